"""What each section of `inspect` costs against the number of parameters D, on a family of
perceptrons or of convolutional networks; with `structural` what is read from structure alone.

    python benchmarks/sizes.py mlp 1e4 1e5 1e6 1e7 1e8
    python benchmarks/sizes.py cnn 1e4 1e5 1e6 1e7
    python benchmarks/sizes.py structural-mlp 1e4 1e5 1e6 1e7 1e8
    python benchmarks/sizes.py structural-cnn 1e4 1e5 1e6 1e7

Prints a row for each section: processor seconds at every D, and the exponent by which they grow over
the largest three, compilation included. Each size runs in a process of its own, on 8 samples, with a
budget of 80 bytes for each parameter, and 2 GB at least.
"""

import json
import resource
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

SAMPLES = 8


def seconds() -> float:
    """Processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def mlp(size: float) -> tuple[Any, Any, np.ndarray]:
    """32-w-w-w-10 with about so many parameters, as a function."""
    import jax

    w = round(np.sqrt(size / 2))
    widths, rng = (32, w, w, w, 10), np.random.default_rng(0)
    pairs = zip(widths, widths[1:], strict=False)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    params = [(draw(b, a) / np.sqrt(a / 2), 0.1 * draw(b)) for a, b in pairs]

    def f(params: Any, x: Any) -> Any:
        for weight, bias in params[:-1]:
            x = jax.nn.relu(x @ weight.T + bias)
        return x @ params[-1][0].T + params[-1][1]

    return f, params, draw(SAMPLES, 32)


def cnn(size: float) -> tuple[Any, Any, np.ndarray]:
    """Three convolutions of c channels on 8×8 images, pooled, and a head, with about so many
    parameters.
    """
    import jax

    c, rng = round(np.sqrt(size / 18)), np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    channels = (3, c, c, c)
    kernels = [
        draw(b, a, 3, 3) / np.sqrt(a * 4.5) for a, b in zip(channels, channels[1:], strict=False)
    ]

    def f(params: Any, x: Any) -> Any:
        for kernel in params[:-1]:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME"))
        return x.mean((2, 3)) @ params[-1]

    return f, [*kernels, draw(c, 10)], draw(SAMPLES, 3, 8, 8)


FAMILIES = {"mlp": mlp, "cnn": cnn}


def one(family: str, size: float) -> dict[str, Any]:
    """Processor seconds of each section, or why it was left out, at one size."""
    import neuromanifold as nm

    module = import_module("neuromanifold.inspection.inspect")
    spent: dict[str, float] = {}

    def timed(section: Any) -> Any:
        def compute(subject: Any) -> Any:
            begun = seconds()
            try:
                return section.compute(subject)
            finally:
                spent[section.title] = seconds() - begun

        return replace(section, compute=compute)

    module.SECTIONS = tuple(timed(section) for section in module.SECTIONS)
    f, params, x = FAMILIES[family](size)
    found = nm.inspect(f, params, x, memory=max(2 * 10**9, int(80 * size)))
    return {
        "D": found.n_params,
        "spent": spent,
        "left out": {part.title: part.left_out for part in found.parts if part.left_out},
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def structural(family: str, size: float) -> dict[str, Any]:
    """The same for what is read from structure, each after the other."""
    import neuromanifold as nm
    from neuromanifold.symmetry.account.dimension_account import account_by_rules
    from neuromanifold.tangent.rank.geometry import Geometry

    f, params, x = FAMILIES[family](size)
    shared, spent = Geometry(f, params, x), dict[str, float]()
    steps = {
        "bends decided": lambda: shared.decided,
        "parameters without effect": lambda: shared.decided.zero_columns,
        "exact rank": lambda: shared.rank,
        "symmetries by structure": lambda: nm.symmetry.structural_symmetries(f, params, x),
        "account by rules, given the above": lambda: account_by_rules(shared, shared.rank),
        "equivalent smaller network": lambda: nm.reduce_width(f, params, x),
    }
    for title, step in steps.items():
        begun = seconds()
        step()
        spent[title] = seconds() - begun
    return {
        "D": shared.problem.shape[1],
        "spent": spent,
        "left out": {},
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main(family: str, sizes: list[str]) -> None:
    """Run all sizes and print the table."""
    runs = []
    for size in sizes:
        command = [sys.executable, __file__, "--one", family, size]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        print(
            f"D = {runs[-1]['D']:,} done, {runs[-1]['memory']:.1f} GB", file=sys.stderr, flush=True
        )
    print("| section | " + " | ".join(f"{run['D']:,}" for run in runs) + " | exponent |")
    print("|---" * (len(runs) + 2) + "|")
    for title in dict.fromkeys(title for run in runs for title in run["spent"]):
        cells = [run["spent"].get(title) for run in runs]
        shown = " | ".join("–" if c is None else f"{c:.2f}" for c in cells)
        known = [(run["D"], c) for run, c in zip(runs, cells, strict=True) if c][-3:]
        slope = np.polyfit(*np.log(np.array(known).T), 1)[0] if len(known) > 1 else np.nan
        print(f"| {title} | {shown} | {slope:.2f} |")
    print("| peak memory, GB | " + " | ".join(f"{run['memory']:.1f}" for run in runs) + " | |")
    for run in runs:
        print(run["D"], run["left out"], file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        kind, _, family = sys.argv[2].rpartition("-")
        print(json.dumps((structural if kind else one)(family, float(sys.argv[3]))))
    else:
        main(sys.argv[1], sys.argv[2:])
