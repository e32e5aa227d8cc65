"""`bottleneck`, the proof of Theorem 10: how long a path through all targets must be.
[bottleneck, proof of Thm 19]
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neuromanifold_papers.bottleneck.statements.cases import EPS
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.statement import control, statement

Points = tuple[tuple[float, ...], ...]


def distances(points: Points) -> np.ndarray:
    """Between all pairs; exact for whole numbers on a line."""
    y = np.array(points, float)
    return np.linalg.norm(y[:, None] - y[None], axis=2)


def shortest_path(points: Points) -> float:
    """The least length of a path through all points, over all their orders."""
    D, n = distances(points), len(points)
    orders = np.array(
        [order for order in itertools.permutations(range(n)) if order[0] <= order[-1]]
    )
    return float(D[orders[:, :-1], orders[:, 1:]].sum(axis=1).min())


def neighbours(points: Points) -> np.ndarray:
    """d_1 and d_2 of each point: the distances to the closest and to the second closest of the
    others.
    """
    return np.sort(distances(points), axis=1)[:, 1:3]


def printed_bound(points: Points) -> float:
    """½ Σ_i (d_{1,i} + d_{2,i})."""
    return float(neighbours(points).sum() / 2)


def amended_bound(points: Points) -> float:
    """The same less half of the two largest d_2: a path goes on from its ends on one side only."""
    second = np.sort(neighbours(points)[:, 1])
    return printed_bound(points) - float(second[-2:].sum() / 2)


def on_a_line(points: Points) -> Check:
    """Whole points of a line: the path from the least to the largest against the sums, in
    integers.
    """
    values = sorted(int(p[0]) for p in points)
    total = 0
    for i, y in enumerate(values):
        near = sorted(abs(y - other) for j, other in enumerate(values) if j != i)
        total += near[0] + near[1]
    return at_least(2 * (values[-1] - values[0]), total)


def point_sets(rng: np.random.Generator, draws: int) -> Iterator[Points]:
    """Three and four whole points of a line, repeated ones too; of a 3 × 3 grid; then random
    ones in up to three dimensions.
    """
    line = [(float(v),) for v in range(5)]
    for n in (3, 4):
        yield from itertools.combinations(line, n)
        yield from (
            some
            for some in itertools.combinations_with_replacement(line[:3], n)
            if len(set(some)) < n
        )
    grid = [(float(a), float(b)) for a, b in itertools.product(range(3), repeat=2)]
    yield from itertools.chain(itertools.combinations(grid, 3), itertools.combinations(grid, 4))
    for _ in range(draws):
        y = rng.normal(size=(int(rng.integers(5, 8)), int(rng.integers(1, 4))))
        yield tuple(map(tuple, y.tolist()))


def measure_path(points: Points, bound: Callable[[Points], float]) -> Check:
    """The shortest path through all points against the bound."""
    length = shortest_path(points)
    hypotheses = {"N": len(points), "dimension": len(points[0])}
    return at_least(
        length, bound(points), 64 * EPS * len(points) * (1 + length), hypotheses=hypotheses
    )


def farthest(points: Points) -> float:
    """½ Σ of the two largest distances of each point."""
    return float(np.sort(distances(points), axis=1)[:, -2:].sum() / 2)


_THREE: Points = ((0.0,), (1.0,), (2.0,))
_APART: Points = ((0.0,), (1.0,), (2.0,), (100.0,), (101.0,), (102.0,))


@statement(
    "Thm 10 (path)",
    point_sets,
    control(
        "the two farthest points in place of the closest, for two triples far apart",
        lambda: _APART,
        bound=farthest,
    ),
    method="float64",
    show=lambda points: f"np.array({[list(p) for p in points]})",
    confirm=on_a_line,
)
def path(points: Any, bound: Any = printed_bound) -> Check:
    """A path through N points is at least ½ Σ_i (d_{1,i} + d_{2,i}) long, d_1 and d_2 the
    distances to the closest and second closest point (the fraction is hard to read in our
    copy: this is the bound of a closed tour, for which it is true).
    """
    return measure_path(points, bound)


@statement(
    "Thm 10 (path) amended",
    point_sets,
    control("the ends counted as the others", lambda: _THREE, bound=printed_bound),
    amends="Thm 10 (path)",
    method="float64",
    show=lambda points: f"np.array({[list(p) for p in points]})",
)
def thm_10_path_amended(points: Any, bound: Any = amended_bound) -> Check:
    """A path through N points is at least ½ Σ_i (d_{1,i} + d_{2,i}) less half of the two largest
    d_{2,i} long.
    """
    return measure_path(points, bound)


def mean_distances(k: int, n: int, rng: np.random.Generator, at: int = 1) -> float:
    """The mean distance to the `at`-th closest of n uniform points of the flat torus ℝ^k/ℤ^k."""
    from scipy.spatial import KDTree

    y = rng.uniform(size=(n, k))
    return float(KDTree(y, boxsize=1.0).query(y, at + 1)[0][:, at].mean())


SIZES, TRIALS = (500, 1000, 2000, 4000), 6


def order_of(k: int) -> float:
    """−1/k*."""
    return -1 / k


@statement(
    "Thm 10 (distances)",
    lambda rng, draws: itertools.product((1, 2, 3), (1, 2), range(1 + draws // 40)),
    control("N^{−1}, in the plane", lambda: (2, 1, 0), order=lambda k: -1.0),
    method="float64",
    show=lambda case: f"k, closest, seed = {case}",
)
def measure_order(case: tuple[int, int, int], order: Callable[[int], float] = order_of) -> Check:
    """N points of a k*-dimensional distribution are N^{−1/k*} away from the closest and second
    closest on average, up to a factor.

    The slope of the logarithm of the mean distance against log N, up to four standard errors.
    """
    from scipy.stats import linregress

    k, at, seed = case
    rng, sizes = np.random.default_rng([k, at, seed]), np.repeat(SIZES, TRIALS)
    found: Any = linregress(
        np.log(sizes), np.log([mean_distances(k, int(n), rng, at) for n in sizes])
    )
    return equal(
        float(found.slope), order(k), 4 * float(found.stderr), hypotheses={"k*": k, "closest": at}
    )


STATEMENTS = (path, measure_order)
