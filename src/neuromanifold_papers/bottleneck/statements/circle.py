"""`bottleneck`, ranks: the identity on the circle, whose Rank_J and Rank_BN differ.
[bottleneck, Sec. 3.1]
"""

import math
from collections.abc import Iterator

import numpy as np

from neuromanifold.bottleneck import jacobian_rank
from neuromanifold.bottleneck.passage import passage
from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.bottleneck.statements.cases import EPS, Case, network
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.statement import control, statement

_HALVINGS = 60
_PLANE = network([np.eye(2)], np.ones((1, 2)))


def circle_points(rng: np.random.Generator, draws: int) -> list[np.ndarray]:
    """Rational points of the circle, those of small height and then random ones, all in one
    case.
    """
    small = [(m, n) for m in range(1, 6) for n in range(m)]
    m, n = np.array(small + rng.integers(1, 50, size=(draws, 2)).tolist()).T
    return [np.stack([m * m - n * n, 2 * m * n], axis=1) / (m * m + n * n)[:, None]]


def through_a_line(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Networks ℝ² → ℝ → ℝ²: the projection, then random ones."""
    yield network([[[1.0, 0.0]], [[1.0], [0.0]]], np.zeros((1, 2)), slope=1.0, kind="projection")
    for _ in range(draws):
        w = int(rng.integers(1, 6))
        slope = float(rng.choice(cases.SLOPES))
        yield cases.drawn(rng, (2, w, 1, w, 2), np.zeros((1, 2)), slope=slope, kind="random")


@statement(
    "ranks (circle, Rank_J)",
    circle_points,
    control("the whole plane instead of the tangent", lambda: np.array([[1.0, 0.0]]), columns=2),
    show=lambda points: f"{len(points)} rational points of the circle",
)
def measure_circle_tangents(points: np.ndarray, columns: int = 1) -> Check:
    """The identity on the circle has Rank_J = 1.

    The rank of the identity on the circle's tangents, the first columns of the frames of tangent and
    normal.
    """
    frames = np.stack([points[:, ::-1] * (-1, 1), points], axis=2)[:, :, :columns]
    rank = jacobian_rank(_PLANE.net, _PLANE.params, points, tangents=frames)
    return equal(int(rank), 1, cases=len(points), points="rational")


@cases.of_networks(
    "ranks (circle, Rank_BN)",
    through_a_line,
    control("inner dimension 2: the identity of the plane misses by 0", lambda: _PLANE),
)
def measure_circle(case: Case) -> Check:
    """No continuous f = h∘g through ℝ¹ is the identity on the circle: it misses some point by 1
    at least; so Rank_BN = 2.

    The larger error at two opposite points that the first neuron of the narrowest layer does not
    tell apart, found by bisection.

    If that neuron is all there is, both are taken to one value, up to rounding, and one of them
    misses by 1.
    """
    at = int(np.argmin(case.net.widths[1:])) + 1

    def value(angle: float) -> float:
        x = np.array([[math.cos(angle), math.sin(angle)], [-math.cos(angle), -math.sin(angle)]])
        u = passage(case.net, case.params, x).preactivations[at - 1][:, 0]
        return float(u[0] - u[1])

    low, high = 0.0, math.pi
    sign = math.copysign(1.0, value(low))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) * sign > 0 else (low, middle)
    pair = np.array([[math.cos(low), math.sin(low)], [-math.cos(low), -math.sin(low)]])
    error = float(np.linalg.norm(cases.outputs(case, pair) - pair, axis=1).max())
    # What rounding of the angle and in every layer can do to the output of points of size 1.
    parts = [1 + sum(float(np.linalg.norm(v)) for v in p if v is not None) for p in case.params]
    rounding = 64 * EPS * math.prod(parts)
    return at_least(error, 1.0, rounding, network=case.kind, slope=case.slope)
