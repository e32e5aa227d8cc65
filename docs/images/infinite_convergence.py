"""Draws infinite-convergence.png and prints the numbers of infinite-width.md: how finite networks
approach their kernels.

What is measured stays in infinite-convergence.json (an H200, 7 minutes); without that file it is
measured anew.
"""

import json
from pathlib import Path

import jax
import numpy as np

import neuromanifold as nm
from neuromanifold.models.layers import Attention, Conv, Dense, Flatten, GlobalAvgPool, Residual

HERE = Path(__file__).parent
RUNS = {16: 20_000, 32: 20_000, 64: 20_000, 128: 20_000, 256: 4000, 512: 4000}
COLOURS = ("#0072B2", "#D55E00", "#009E73")


def convolutional(n):
    return nm.Sequential(
        Conv(n, 3),
        "relu",
        Conv(n, 3),
        "relu",
        GlobalAvgPool(),
        Dense(n, bias_std=0.3),
        input_shape=(5, 5, 2),
    )


def residual(n):
    branch = ("relu", Dense(n, weight_std=1.4, bias_std=0.3))
    return nm.Sequential(
        Dense(n), Residual(*branch), Residual(*branch), "relu", Dense(n), input_shape=(4,)
    )


def attention(n):
    return nm.Sequential(
        Dense(n),
        "relu",
        Attention(n),
        "relu",
        Attention(n),
        "relu",
        Flatten(),
        Dense(n),
        input_shape=(4, 3),
    )


NETS = {"convolutional": convolutional, "residual": residual, "attention": attention}


def measured(build):
    """For each width and kernel: the root mean square deviation of one network, the bias of the
    mean, its standard error.
    """
    net = build(1)
    x = np.random.default_rng(0).standard_normal((3, *net.input_shape))
    limit = nm.infinite.infinite_kernels(net, x)
    rows = []
    for n, runs in RUNS.items():
        found = nm.infinite.monte_carlo_kernels(build(n), x, key=jax.random.key(n), runs=runs)
        numbers = {
            kind: [
                getattr(found, kind).deviation(getattr(limit, kind)),
                *getattr(found, kind).bias(getattr(limit, kind)),
            ]
            for kind in ("nngp", "ntk")
        }
        rows.append({"width": n, "runs": runs, **numbers})
        print(rows[-1], flush=True)
    return rows


def slope(rows, kind, column):
    """Of a straight line through the logarithms; a bias counts where it exceeds three standard
    errors.
    """
    kept = [r for r in rows if column == 0 or r[kind][1] > 3 * r[kind][2]]
    if len(kept) < 3:
        return None, len(kept)
    points = np.log([[r["width"], r[kind][column]] for r in kept])
    return float(np.polyfit(*points.T, 1)[0]), len(kept)


def draw(table, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
    for (name, rows), colour in zip(table.items(), COLOURS, strict=True):
        widths = [r["width"] for r in rows]
        for kind, marker, style in (("ntk", "o", "-"), ("nngp", "s", "--")):
            axes[0].loglog(
                widths,
                [r[kind][0] for r in rows],
                marker + style,
                ms=4,
                color=colour,
                label=f"{name}, {kind.upper()}",
            )
            kept = [r for r in rows if r[kind][1] > 3 * r[kind][2]]
            axes[1].errorbar(
                [r["width"] for r in kept],
                [r[kind][1] for r in kept],
                [r[kind][2] for r in kept],
                fmt=marker + style,
                ms=4,
                color=colour,
            )
    for axis, power, level, title in (
        (axes[0], -0.5, 0.22, "one network"),
        (axes[1], -1.0, 0.014, "mean over networks"),
    ):
        ends = np.array([min(widths), max(widths)], float)
        axis.loglog(ends, level * (ends / ends[0]) ** power, ":", color="0.5")
        axis.text(ends[0], 0.45 * level, f"slope {power:g}", color="0.4", fontsize=8)
        axis.set(xlabel="width", ylabel="relative distance from the limit", title=title)
        axis.set_xticks(widths, [str(w) for w in widths])
        axis.xaxis.set_minor_formatter("")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=160)


def main():
    stored = HERE / "infinite-convergence.json"
    if not stored.exists():
        table = {name: measured(build) for name, build in NETS.items()}
        stored.write_text(json.dumps(table, indent=1) + "\n")
    table = json.loads(stored.read_text())
    for name, rows in table.items():
        for kind in ("nngp", "ntk"):
            print(name, kind, "deviation", slope(rows, kind, 0), "bias", slope(rows, kind, 1))
    draw(table, HERE / "infinite-convergence.png")


if __name__ == "__main__":
    main()
