"""`bottleneck`, the proof of Theorem 10: how long a path through all targets must be.
[bottleneck, proof of Thm 19]
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from neuromanifold_papers.bottleneck.statements.cases import EPS, numeric
from neuromanifold_papers.bottleneck.statements.interpolants import apart
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.statement import control, named

Points = tuple[tuple[float, ...], ...]


def distances(points: Points) -> np.ndarray:
    """Between all pairs; exact for whole numbers on a line."""
    return apart(np.array(points, float))


def printed_bound(points: Points, ends: int = 0) -> float:
    """½ Σ_i (d_{1,i} + d_{2,i}), d_1 and d_2 the distances to the closest and to the second closest of
    the others; less half of the largest d_2 for so many ends: from these a path goes on on one side.
    """
    nearest = np.sort(distances(points), axis=1)[:, 1:3]
    return float(nearest.sum() - np.sort(nearest[:, 1])[::-1][:ends].sum()) / 2


amended_bound = partial(printed_bound, ends=2)


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


def farthest(points: Points) -> float:
    """½ Σ of the two largest distances of each point."""
    return float(np.sort(distances(points), axis=1)[:, -2:].sum() / 2)


_THREE: Points = ((0.0,), (1.0,), (2.0,))
_APART: Points = ((0.0,), (1.0,), (2.0,), (100.0,), (101.0,), (102.0,))


@numeric(
    "Thm 10 (path)",
    point_sets,
    control(
        "the two farthest points in place of the closest, for two triples far apart",
        lambda: _APART,
        bound=farthest,
    ),
    show=lambda points: f"np.array({[list(p) for p in points]})",
    confirm=on_a_line,
)
def path(points: Points, bound: Callable[[Points], float] = printed_bound) -> Check:
    """A path through N points is at least ½ Σ_i (d_{1,i} + d_{2,i}) long, d_1 and d_2 the
    distances to the closest and second closest point (the fraction is hard to read in our
    copy: this is the bound of a closed tour, for which it is true).

    The shortest path through all points, over all their orders, against the bound.
    """
    D, n = distances(points), len(points)
    orders = np.array(
        [order for order in itertools.permutations(range(n)) if order[0] <= order[-1]]
    )
    length = float(D[orders[:, :-1], orders[:, 1:]].sum(axis=1).min())
    rounding = 64 * EPS * n * (1 + length)
    return at_least(length, bound(points), rounding, N=n, dimension=len(points[0]))


thm_10_path_amended = path.amend(
    control("the ends counted as the others", lambda: _THREE, bound=printed_bound),
    bound=amended_bound,
)(
    "A path through N points is at least ½ Σ_i (d_{1,i} + d_{2,i}) less half of the two largest "
    "d_{2,i} long."
)


def mean_distances(k: int, n: int, rng: np.random.Generator, at: int = 1) -> float:
    """The mean distance to the `at`-th closest of n uniform points of the flat torus ℝ^k/ℤ^k."""
    from scipy.spatial import KDTree

    y = rng.uniform(size=(n, k))
    return float(KDTree(y, boxsize=1.0).query(y, at + 1)[0][:, at].mean())


SIZES, TRIALS = (500, 1000, 2000, 4000), 6


@numeric(
    "Thm 10 (distances)",
    lambda rng, draws: itertools.product((1, 2, 3), (1, 2), range(1 + draws // 40)),
    control("N^{−1}, in the plane", lambda: (2, 1, 0), order=lambda k: -1.0),
    show=named("k, closest, seed"),
)
def measure_order(
    case: tuple[int, int, int], order: Callable[[int], float] = lambda k: -1 / k
) -> Check:
    """N points of a k*-dimensional distribution are N^{−1/k*} away from the closest and second
    closest on average, up to a factor.

    The slope of the logarithm of the mean distance against log N, up to four standard errors.
    """
    from scipy.stats import linregress

    k, at, seed = case
    rng, sizes = np.random.default_rng([k, at, seed]), np.repeat(SIZES, TRIALS)
    means = [mean_distances(k, int(n), rng, at) for n in sizes]
    found: Any = linregress(np.log(sizes), np.log(means))
    covered = {"k*": k, "closest": at}
    return equal(float(found.slope), order(k), 4 * float(found.stderr), hypotheses=covered)
