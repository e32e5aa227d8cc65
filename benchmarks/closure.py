"""Brackets of tanh networks by depth and size, against nested forward mode: `python -m
benchmarks.closure` prints the table.
"""

import time
from collections.abc import Callable
from functools import partial

import jax
import numpy as np

import neuromanifold as nm
from neuromanifold.orbits import lie_closure
from neuromanifold.orbits.family import Family, TracedFamily, dense_family
from neuromanifold.orbits.partition import flatten_on_host

NETWORKS = [((1, 4, 1), False), ((3, 8, 1), False), ((2, 8, 8, 1), True), ((4, 16, 16, 1), True)]
DEPTHS = (2, 3, 4, 5, 6, 8)
DEEPEST_NESTED = 5


def seconds(run: Callable[[], object], repeats: int = 3) -> tuple[float, float]:
    """(first call, best of the later ones)."""
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times[0], min(times[1:])


def table() -> str:
    """Seconds for D + 8 brackets of each depth; in parentheses nested forward mode, jitted and
    vmapped: first call, later ones.
    """
    lines = [
        "| network | D | " + " | ".join(f"depth {k}" for k in DEPTHS) + " |",
        "|---" * (2 + len(DEPTHS)) + "|",
    ]
    for widths, bias in NETWORKS:
        net = nm.MLP(widths, "tanh", bias=bias)
        params = net.init(key=jax.random.key(0), dtype="float64")
        inputs = np.random.default_rng(0).normal(size=(2 * net.n_params, widths[0]))
        fast, nested = dense_family(net, inputs), TracedFamily(net, params, inputs, widths[-1:])
        cells = [_cell(fast, nested, flatten_on_host(params), depth) for depth in DEPTHS]
        name = "-".join(map(str, widths)) + (" with biases" if bias else "")
        lines.append(f"| {name} | {net.n_params} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(fast: Family, nested: Family, theta: np.ndarray, depth: int) -> str:
    lanes = len(theta) + 8
    if 3**depth * lanes * lanes > 3e7:
        return "–"
    _, ours = seconds(lambda: fast.brackets(theta, depth, lanes, np.random.default_rng(1)))
    if depth > DEEPEST_NESTED or len(theta) > 200:
        return f"{ours:.2g}"
    first, theirs = seconds(lambda: nested.brackets(theta, depth, lanes, np.random.default_rng(1)))
    return f"{ours:.2g} ({first:.2g}, {theirs:.2g})"


def closures() -> str:
    """Seconds of whole closures, second route and bound included: at a random point, and where
    all w = 0.
    """
    lines = [
        "| network | point | depth | by depth | first call | later |",
        "|---|---|---|---|---|---|",
    ]
    for widths, depth in (((1, 4, 1), 10), ((3, 4, 1), 10), ((3, 8, 1), 4), ((3, 8, 1), 8)):
        net = nm.MLP(widths, "tanh", bias=False)
        drawn = net.init(key=jax.random.key(0), dtype="float64")
        degenerate = (nm.Layer(np.zeros_like(drawn[0].weight)), drawn[1])
        for name, params in (("random", drawn), ("w = 0", degenerate)):
            run = partial(lie_closure, net, params, key=jax.random.key(0), depth=depth)
            first, later = seconds(run)
            ranks = ", ".join(str(int(rank)) for rank in run().by_depth)
            lines.append(
                f"| {'-'.join(map(str, widths))} | {name} | {depth} | {ranks} | {first:.2g} s | "
                f"{later:.2g} s |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(), closures(), sep="\n\n")
