"""`bottleneck`, the diverging representations of Example 20.   [bottleneck, Ex 20]"""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from neuromanifold.bottleneck.passage import squared_norm
from neuromanifold_papers.bottleneck.example20 import (
    example20,
    example20_excess,
    representation_lipschitz,
)
from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.check import Check
from neuromanifold_papers.statement import control

Depth = tuple[int, float]


def depths(rng: np.random.Generator, draws: int) -> Iterator[Depth]:
    """(L, γ): even depths, as the paper's construction, and odd ones; γ over (½, 1)."""
    yield from itertools.product((2, 3, 4, 6, 8, 20, 41, 100), (0.75, 0.55, 0.95))
    for _ in range(draws // 2):
        yield int(rng.integers(2, 150)), float(rng.uniform(0.5, 1))


def wanted(x: np.ndarray) -> np.ndarray:
    """(x₁, x₂, x₃ + σ(x₁ − x₂))."""
    return np.stack([x[:, 0], x[:, 1], x[:, 2] + np.maximum(x[:, 0] - x[:, 1], 0)], axis=1)


_CUBE = np.array(list(itertools.product((0.0, 0.25, 1.0), repeat=3)))


def excess_bound(depth: int, gamma: float) -> float:
    """12(L − 2)ε² cosh 4ε + 2e^{−(L−2)ε} + e^{−2(L−2)ε} with ε = L^{−γ}: o(1) exactly for ½ < γ
    < 1.
    """
    epsilon = depth**-gamma
    decay = math.exp(-(depth - 2) * epsilon)
    return 12 * (depth - 2) * epsilon**2 * math.cosh(4 * epsilon) + 2 * decay + decay**2


def even_depths(rng: np.random.Generator, draws: int) -> Iterator[Depth]:
    """Even depths with networks up to 100, then by the closed form up to 2⁶⁰."""
    yield from itertools.product((2, 4, 10, 100), (0.75, 0.55, 0.95))
    yield from itertools.product((2**20, 2**40, 2**60), (0.75, 0.6, 0.8))
    for _ in range(draws // 2):
        yield 2 * int(rng.integers(1, 60)), float(rng.uniform(0.5, 1))


def _excess(depth: int, gamma: float) -> float:
    """The library's closed form; far out, where cosh − 1 is below rounding, its two leading
    terms.
    """
    epsilon = float(depth) ** -gamma
    if depth <= 2**20:
        return example20_excess(depth, epsilon)
    return (depth - 2) / 2 * (24 * epsilon**2 + 24 * epsilon**4)


of_depths = partial(cases.numeric, covers=lambda case: {"depth": case[0], "γ": round(case[1], 2)})


@of_depths(
    "Ex 20",
    depths,
    control(
        "outside the orthant, at (−1, −1, 0)",
        lambda: (8, 0.75),
        points=np.array([[-1.0, -1.0, 0.0]]),
    ),
)
def measure_example(case: Depth, points: np.ndarray = _CUBE) -> Check:
    """The printed weights represent (x₁, x₂, x₃ + σ(x₁ − x₂)) on [0, 1]³."""
    depth, gamma = case
    net, params = example20(depth, gamma=gamma)
    gap = cases.missed(cases.Case(net, params, points), wanted(points))
    stretch = math.exp((depth - 2) / 2 * depth**-gamma)
    return cases.compare(gap, "=", 0.0, 64 * cases.EPS * depth * stretch**3)


@of_depths(
    "Ex 20 (norm)",
    even_depths,
    control(
        "γ = ½: the excess tends to 12",
        lambda: (2**40, 0.5),
        bound=lambda depth, gamma: excess_bound(depth, 0.75),
    ),
)
def measure_excess(case: Depth, bound: Callable[[int, float], float] = excess_bound) -> Check:
    """‖θ‖² = 3L + o(1) with ε = L^{−γ}, ½ < γ < 1, so that R⁽⁰⁾ = 3 and R⁽¹⁾ = 0.

    ‖θ‖² − 3L of the network, or its closed form, against a bound that tends to 0; and the
    closed form against the network.
    """
    depth, gamma = case
    closed = _excess(depth, gamma)
    rounding = 64 * cases.EPS * 3 * min(depth, 200)
    checks = [cases.compare(closed, "<=", bound(depth, gamma), rounding)]
    if depth <= 200:
        excess = squared_norm(*example20(depth, gamma=gamma)) - 3 * depth
        checks.append(cases.compare(excess, "=", closed, rounding))
    else:
        checks.append(cases.compare(closed, "<=", 13 * depth ** (1 - 2 * gamma), rounding))
    return cases.worst(checks)


@of_depths(
    "Ex 20 (divergence)",
    lambda rng, draws: [case for case in depths(rng, draws) if case[0] % 2 == 0],
    control(
        "ε = 0: bounded representations, and the excess stays 3",
        lambda: (100, 0.75),
        build=lambda depth, gamma: example20(depth, epsilon=0.0),
    ),
)
def measure_divergence(case: Depth, build: Callable[..., Any] = example20) -> Check:
    """The representations are not uniformly Lipschitz: ‖Jα_l‖ reaches e^{(L−2)ε/2}, and P 13
    makes C ≥ √(√2/(‖θ‖² − 3L)).

    The largest ‖Jα_l‖ against e^{(L−2)ε/2} and the least that P 13 allows, which it passes;
    both grow without bound.
    """
    depth, gamma = case
    net, params = build(depth, gamma=gamma)
    found = float(representation_lipschitz(net, params, _CUBE).max())
    excess, stretch = _excess(depth, gamma), math.exp((depth - 2) / 2 * depth**-gamma)
    return cases.worst(
        [
            cases.compare(found, ">=", stretch, 64 * cases.EPS * depth * stretch),
            # P 13's C, as ‖Jf(x) − Jf(y)‖_* = √2 across x₁ = x₂.
            cases.compare(found, ">=", math.sqrt(math.sqrt(2) / excess), 1e-9),
        ]
    )
