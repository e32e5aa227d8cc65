"""The figures of the `riemann` study; each takes results and returns a matplotlib figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neuromanifold_papers.output import PALETTE, subplots
from neuromanifold_papers.riemann.flows import Limit, Pair
from neuromanifold_papers.riemann.table import INDEPENDENT, Cell

BLUE, ORANGE, GREEN, PINK = PALETTE[:4]
FLOOR = 1e-17


def table_figure(cells: Sequence[Cell]) -> Any:
    """The largest kernel distance of each family, filled where the printed answer is the
    measured one.
    """
    figure, ax = subplots(figsize=(9.5, 0.27 * len(cells) + 1.6))
    labels = []
    for row, cell in enumerate(cells):
        colour = BLUE if cell.printed == "yes" else ORANGE
        value = max(cell.spread, FLOOR)
        ax.plot([FLOOR, value], [row, row], color="0.88", lw=1, zorder=1)
        ax.plot(
            value,
            row,
            "o",
            ms=7,
            color=colour,
            mfc=colour if cell.agrees else "white",
            mew=1.8,
            zorder=3,
        )
        kind = (
            "dense"
            if cell.architecture == "dense"
            else f"D = {cell.dimension}, strides {cell.strides}"
        )
        plain = cell.architecture == "dense" or cell.shapes.startswith("one")
        shapes = cell.shapes if plain else f"shapes {cell.shapes}"
        labels.append(f"{kind}, {shapes}, {cell.invariants}  ({cell.cases})")
    ax.axvline(INDEPENDENT, color="0.4", ls="--", lw=1)
    ax.set_xscale("log")
    ax.set_xlim(FLOOR / 2, 5)
    ax.set_yticks(range(len(cells)), labels, fontsize=7.5)
    ax.set_ylim(len(cells) - 0.4, -0.6)
    ax.set_xlabel("largest relative kernel distance over a fibre (v, δ); 0 drawn at 1e-17")
    ax.set_title("Table 1, measured (number of cases in brackets)", fontsize=11)
    for colour, fill, text in (
        (BLUE, BLUE, "printed: independent — confirmed"),
        (BLUE, "white", "printed: independent — refuted"),
        (ORANGE, ORANGE, "printed: generally dependent — confirmed"),
        (ORANGE, "white", "printed: generally dependent — independent in this family"),
    ):
        ax.plot([], [], "o", color=colour, mfc=fill, mew=1.8, label=text)
    ax.legend(fontsize=7.5, loc="lower center", bbox_to_anchor=(0.3, 1.03), ncols=2, frameon=False)
    return figure


def flow_figure(pairs: Sequence[Pair]) -> Any:
    """Left: the running example's filter along both flows. Right: distances along all pairs of
    flows.
    """
    figure, (left, right) = subplots(1, 2, figsize=(12, 4.6), width_ratios=(1, 1.25))
    shown = pairs[0]
    for j in range(shown.first.shape[1]):
        colour = PALETTE[j % len(PALETTE)]
        left.plot(shown.t, shown.first[:, j], color=colour, lw=3.5, alpha=0.35)
        left.plot(shown.t, shown.second[:, j], color=colour, lw=1.2, ls="--", label=f"$v_{j}$")
    left.set(
        xlabel="time t",
        ylabel="entries of the end-to-end filter",
        title="sizes (3, 2), strides (2, 1)\nwide: parameter flow, dashed: function space alone",
    )
    left.title.set_fontsize(10)
    left.legend(ncols=2, fontsize=8, frameon=False)
    styles = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))]
    counts = {"agree": 0, "part": 0}
    for pair in pairs:
        colour = BLUE if pair.theory == "agree" else ORANGE
        style = styles[counts[pair.theory] % len(styles)]
        counts[pair.theory] += 1
        right.plot(
            pair.t,
            np.maximum(pair.distance, FLOOR),
            color=colour,
            ls=style,
            lw=1.6,
            label=pair.name.replace("LinearConvNet", ""),
        )
    right.axhline(1e-8, color="0.4", lw=1, ls="--")
    right.set_yscale("log")
    right.set_ylim(FLOOR / 3, 10)
    right.set(
        xlabel="time t",
        ylabel="distance of the two flows, relative to ‖v(0)‖",
        title="blue: the theory says equal\norange: the kernel is no function of (v, δ)",
    )
    right.title.set_fontsize(10)
    right.legend(
        fontsize=7,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title="sizes and strides",
        title_fontsize=8,
    )
    return figure


def convergence_figure(found: dict[str, list[Limit]]) -> Any:
    """Where the flows of Theorem 7 end: away from zero and from rank drops."""
    figure, (left, right) = subplots(1, 2, figsize=(10, 4.2))
    for index, (name, limits) in enumerate(found.items()):
        colour, marker = PALETTE[index % len(PALETTE)], "osD^v<>"[index % 7]
        good = sum(limit.smooth for limit in limits)
        left.plot(
            [l.size for l in limits],
            [l.regularity for l in limits],
            marker,
            ms=5,
            alpha=0.75,
            color=colour,
            label=f"{name.removeprefix('LinearConvNet')}: {good} of {len(limits)} smooth",
        )
        gradients = np.sort([max(l.gradient, FLOOR) for l in limits])
        right.step(
            gradients, np.arange(1, len(gradients) + 1) / len(gradients), where="post", color=colour
        )
    left.set(
        xlabel="‖v(∞)‖ / ‖u‖",
        ylabel=r"$\sigma_{\dim M}(d\mu)\,/\,\sigma_1(d\mu)$ at the limit",
        yscale="log",
        title="limits of gradient flow: away from zero, full rank",
    )
    left.set_xlim(left=0)
    left.set_ylim(1e-4, 2)
    left.legend(
        fontsize=7.5, frameon=False, loc="lower left", title="sizes, strides", title_fontsize=8
    )
    right.set(
        xlabel="‖∇L‖ at the end, relative to ‖dμ‖ ‖∇ℓ(0)‖",
        ylabel="share of flows below",
        xscale="log",
        title="how critical the limits are (colours as left)",
    )
    for ax in (left, right):
        ax.title.set_fontsize(10)
    return figure


def singular_figure(v2: np.ndarray, counts: np.ndarray, spread: np.ndarray) -> Any:
    """The running example's neuromanifold in the slice v_0 = v_4 = 1, and the fibres along its
    singular line.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    space = figure.add_subplot(1, 2, 1, projection="3d")
    angle, radius = np.meshgrid(np.linspace(0.02, np.pi / 2 - 0.02, 90), np.linspace(-1.4, 1.4, 41))
    for sign, colour in ((1, BLUE), (-1, "#56B4E9")):
        v1, v3 = radius * np.cos(angle), sign * radius * np.sin(angle)
        height = sign * (np.cos(angle) ** 2 + np.sin(angle) ** 2) / (np.cos(angle) * np.sin(angle))
        visible = np.abs(height) <= 4.2
        space.plot_surface(
            v1,
            np.where(visible, height, np.nan),
            v3,
            color=colour,
            alpha=0.45,
            linewidth=0,
            antialiased=True,
            rstride=1,
            cstride=1,
        )
    for low, high in ((2, 4.2), (-4.2, -2)):
        space.plot(
            [0, 0],
            [low, high],
            [0, 0],
            color=ORANGE,
            lw=3.5,
            label="singular, in M" if low == 2 else None,
        )
    space.plot(
        [0, 0], [-2, 2], [0, 0], color="0.3", lw=1.5, ls="--", label="in the Zariski closure only"
    )
    space.plot([0, 0], [-2, 2], [0, 0], "o", color="black", ms=5, label="rank drops (pinch points)")
    space.set(
        xlabel="$v_1$",
        ylabel="$v_2$",
        zlabel="$v_3$",
        title="M ∩ {v₀ = v₄ = 1}:  v₁² + v₃² = v₁ v₂ v₃",
    )
    space.title.set_fontsize(10)
    space.view_init(elev=22, azim=-62)
    space.legend(fontsize=8, loc="upper left", frameon=False)
    ax = figure.add_subplot(1, 2, 2)
    for value in (0, 1, 2):
        ax.plot(v2[counts == value], counts[counts == value], ".", color=BLUE, ms=6)
    ax.set(
        xlabel="$v_2$ along the line v = (1, 0, v₂, 0, 1)",
        title="balanced fibres along the singular line",
    )
    ax.set_ylabel("factorisations over v", color=BLUE)
    ax.tick_params(axis="y", colors=BLUE)
    ax.set_yticks([0, 1, 2])
    other = ax.twinx()
    other.plot(v2, np.where(counts == 2, spread, np.nan), color=ORANGE, lw=2, ls="--")
    other.set_ylabel("relative distance of the two kernels", color=ORANGE)
    other.tick_params(axis="y", colors=ORANGE)
    other.set_ylim(bottom=0)
    ax.title.set_fontsize(10)
    return figure
