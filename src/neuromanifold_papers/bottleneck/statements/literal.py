"""bottleneck: sentences that a second, blind reading found to say more than we had executed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import pairwise, product
from math import isqrt
from typing import Any

import numpy as np

from neuromanifold_papers.bottleneck.statements.cases import fractions, numeric
from neuromanifold_papers.check import Check, at_least, at_most, equal, outside
from neuromanifold_papers.statement import Control, control, statement

Data = tuple[tuple[int, ...], tuple[int, ...]]
"""Inputs, increasing, and outputs."""


def _data(rng: np.random.Generator, draws: int) -> Iterator[Data]:
    yield from (((0, 1), y) for y in product((0, 1), repeat=2))
    for _ in range(draws):
        n = int(rng.integers(2, 6))
        x = np.sort(rng.choice(20, n, replace=False))
        yield tuple(x.tolist()), tuple(int(v) for v in rng.integers(-1, 2, n))


def _minimisers(data: Data) -> int:
    """How many of five piecewise linear interpolants have the least rank among them: each with one
    more knot, at the middle of the first interval and a height of its own.
    """
    x, y = data
    middle, on_line = Fraction(x[0] + x[1], 2), Fraction(y[0] + y[1], 2)
    ranks = []
    for height in range(-2, 3):
        knots = [x[0], middle, *x[1:]]
        values = [y[0], on_line + height, *y[1:]]
        ranks.append(int(np.any(np.diff(fractions(values)) / np.diff(fractions(knots)))))
    return ranks.count(min(ranks))


def _by_polynomials(data: Data) -> Check:
    """p + tΠ(x − x_i), p through the data: for how many t the largest rank of p' is the least."""
    x, y = (np.array(part, float) for part in data)
    through, zero = np.polyfit(x, y, len(x) - 1), np.poly(x)
    grid = np.linspace(x[0], x[-1], 101)
    ranks = []
    for t in (-2, -1, 0, 1, 2):
        slope = np.polyval(np.polyder(np.polyadd(through, t * zero)), grid)
        ranks.append(int(np.abs(slope).max() > 1e-9))
    return at_least(ranks.count(min(ranks)), 2)


@statement(
    "Sec 3.1 (never unique)",
    _data,
    control("six minimisers among five", lambda: ((0, 1), (0, 1)), least=6),
    confirm=_by_polynomials,
)
def never_unique(data: Data, least: int = 2) -> Check:
    """Without R⁽¹⁾ the minimisation is never unique: for every data set two functions fit it with the
    least rank.
    """
    return at_least(_minimisers(data), least, samples=len(data[0]))


@never_unique.amend()
def often_not_unique(data: Data, least: int = 5) -> Check:
    """Where the outputs are not all equal several functions fit with the least rank: all five."""
    drops = outside("all outputs are equal", when=len(set(data[1])) == 1)
    return equal(_minimisers(data), least, drops=drops, samples=len(data[0]))


Gram = tuple[int, int, int]
"""Samples, outputs and a seed."""


def _grams(rng: np.random.Generator, draws: int) -> Iterator[Gram]:
    yield from ((n, d, -1) for n in (1, 2, 3) for d in (1, 2))
    for seed in rng.integers(2**31, size=draws):
        yield int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(seed)


def _kernel(case: Gram) -> np.ndarray:
    """Θ(X, X): the identity, or JJᵀ of integers."""
    size = case[0] * case[1]
    if case[2] < 0:
        return np.eye(size)
    J = np.random.default_rng(case[2]).integers(-9, 10, (size, 7)).astype(float)
    return J @ J.T


def _by_power_iteration(case: Gram) -> Check:
    """‖Θ‖_op from powers of Θ, the trace from its quadratic form at random signs (exact for 1)."""
    kernel, v = _kernel(case), np.ones(case[0] * case[1])
    for _ in range(200):
        v = kernel @ v / np.linalg.norm(kernel @ v)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(v))
    return at_most(signs @ kernel @ signs / len(v), v @ kernel @ v / case[0], 1e-9)


def _no_outputs(samples: int) -> Control:
    return control(
        "Tr Θ/N², without the outputs",
        lambda: (samples, 3, -1),
        shares=lambda n, d: (n * n, n),
    )


@numeric("Sec 4 (trace)", _grams, _no_outputs(1), confirm=_by_power_iteration)
def trace_bound(
    case: Gram, shares: Callable[[int, int], tuple[int, int]] = lambda n, d: (n * d, n)
) -> Check:
    """‖Θ(X, X)‖_op/N ≤ cL implies Tr Θ(X, X)/(d_out N) ≤ cL: the second is at most the first (the
    factors are hard to read in our copy).
    """
    kernel, (below, above) = _kernel(case), shares(case[0], case[1])
    top = float(np.linalg.eigvalsh(kernel)[-1])
    slack = 1e-12 * top * len(kernel)
    return at_most(np.trace(kernel) / below, top / above, slack, N=case[0], d_out=case[1])


trace_bound_amended = trace_bound.amend(_no_outputs(2), shares=lambda n, d: (n * n * d, n))(
    "‖Θ(X, X)‖_op/N ≤ cL implies Tr Θ(X, X)/(d_out N²) ≤ cL."
)


Parts = tuple[Fraction, Fraction]
"""R⁽²⁾ before and after a ratio p."""


def _weighted(a: Any, b: Any, p: Any) -> Any:
    return a / p + b / (1 - p)


def _by_grids(case: Parts) -> Check:
    """Whether finer grids of (0, 1) stop finding smaller values."""
    a, b = map(float, case)
    least = [_weighted(a, b, np.linspace(0, 1, n)[1:-1]).min() for n in (1261, 126001)]
    return at_most(least[0] - least[1], 0.0, 1e-6)


@statement(
    "P 14 (interior)",
    list(product(map(Fraction, (0, 1, 4, 9, 16)), repeat=2)),
    control(
        "the ratio ½ for the best one, parts 4 and 9",
        lambda: (Fraction(4), Fraction(9)),
        ratio=Fraction(1, 2),
    ),
    confirm=_by_grids,
)
def interior(case: Parts, ratio: Fraction | None = None) -> Check:
    """Where both parts are non-negative R⁽²⁾(K_p)/p + R⁽²⁾(K_p → f)/(1 − p) is least at some p in
    (0, 1).

    Whether a/p + b/(1 − p) takes its infimum (√a + √b)² at p = √a/(√a + √b) inside (0, 1).
    """
    first, total = isqrt(int(case[0])), sum(isqrt(int(v)) for v in case)
    p = Fraction(first, total) if total and ratio is None else ratio or Fraction(1, 2)
    attained = 0 < p < 1 and _weighted(*case, p) == total**2
    return equal(int(attained), 1, positive=sum(v > 0 for v in case))


@interior.amend(exhaustive="parts 0, 1, 4, 9 and 16")
def interior_amended(case: Parts, ratio: Fraction | None = None) -> Check:
    """It is least at some p in (0, 1) when both parts are positive or both are zero."""
    drops = outside("one part alone is zero", when=sum(v > 0 for v in case) == 1)
    return replace(interior(case, ratio=ratio), drops=drops)


Chain = tuple[tuple[int, ...], int, int]
"""Widths, the rank of every weight matrix at most, and a seed: ReLU-like diagonals of 0 and 1."""


def _chains(rng: np.random.Generator, draws: int) -> Iterator[Chain]:
    yield (1, 2, 1), 1, 0
    for widths in ((2, 3, 2), (3, 4, 4, 1), (3, 5, 4, 5, 2)):
        for rank in (1, 2, 3):
            yield from ((widths, rank, int(seed)) for seed in rng.integers(2**31, size=3))


def _factors(case: Chain) -> list[np.ndarray]:
    """W_1, D_1, W_2, …, W_L: for the smallest case W_1 = (1, 0), D = 1, W_2 = (3/5, 4/5)."""
    widths, rank, seed = case
    if len(widths) == 3 and widths[0] == 1:
        return [np.array([[1.0], [0.0]]), np.eye(2), np.array([[0.6, 0.8]])]
    rng, found = np.random.default_rng(seed), []
    for n, m in pairwise(widths):
        found += [rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n)), np.eye(m)]
    for D in found[1:-1:2]:
        D[rng.integers(len(D)), :] *= rng.choice([0.0, 0.5])
    return found[:-1]


def _volume(matrix: np.ndarray) -> float:
    """log|A|₊."""
    values = np.linalg.svdvals(matrix)
    return float(np.log(values[values > 1e-9 * values[0]]).sum())


def _onto(matrix: np.ndarray) -> np.ndarray:
    """The orthogonal projection to the image."""
    U, values, _ = np.linalg.svd(matrix)
    U = U[:, : int((values > 1e-9 * values[0]).sum())]
    return U @ U.T


@numeric(
    "Thm 15 (both projections)",
    _chains,
    control("the first weight left out", lambda: ((2, 2, 2), 2, 3), skip=0),
    # The smallest case with its angles in rational numbers: cos³ for cos.
    confirm=lambda case: equal(Fraction(3, 5), Fraction(3, 5) ** 3),
)
def both_projections(case: Chain, skip: int | None = None, both: bool = True) -> Check:
    """log|Jf(x)|₊ is the sum of log|P_out A P_in|₊ over the weights and activations A, each between the
    projections to the row space of what follows and to the image of what precedes.

    Without `both` P_out is the identity and P_in is taken on the row space of Jf.
    """
    factors, total = _factors(case), 0.0
    jacobian = reduce(lambda before, factor: factor @ before, factors)
    before = np.eye(jacobian.shape[1]) if both else _onto(jacobian.T)
    for k, factor in enumerate(factors):
        after = reduce(lambda a, later: later @ a, factors[k + 1 :], np.eye(len(factor)))
        left = _onto(after.T) if both else np.eye(len(factor))
        total += _volume(left @ factor @ _onto(before)) * (k != skip)
        before = factor @ before
    size = sum(abs(_volume(factor)) for factor in factors) + 1
    return equal(_volume(jacobian), total, 1e-9 * size, layers=len(case[0]) - 1, rank=case[1])


one_projection = both_projections.amend(both=False)(
    "log|Jf(x)|₊ is the sum of log|A P_in|₊ over the weights and activations A, P_in the projection to "
    "the image under what precedes of the row space of Jf(x)."
)


Deep = tuple[tuple[float, ...], int]
"""Singular values and a depth."""


def _by_fractions(case: Deep) -> Check:
    """The same rest in decimal arithmetic of 50 digits, divided by the depth."""
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 50
        logs = [Decimal(s).ln() for s in case[0]]
        rest = sum(((2 * v / case[1]).exp() - 1) * case[1] - 2 * v for v in logs)
        return at_least(float(rest / case[1]), float(sum(v * v for v in logs)))


@numeric(
    "P 14 (divide)",
    list(product(((2.0,), (0.5,), (3.0, 0.5), (2.0, 1.5, 0.1)), (10**3, 10**4))),
    control("R⁽¹⁾ alone subtracted", lambda: ((1.0,), 1000), ranks=0),
    confirm=_by_fractions,
)
def divided(case: Deep, ranks: int = 1, power: int = -1) -> Check:
    """Subtracting L·R⁽⁰⁾ + R⁽¹⁾ and dividing by L gives R⁽²⁾ as L grows.

    L^power·(R(A; L) − L rank A − 2 log|A|₊) against R⁽²⁾ = ½‖log AᵀA‖², to O(1/L).
    """
    logs, depth = np.log(case[0]), case[1]
    rest = depth * float(np.sum(np.expm1(2 * logs / depth) - 2 * logs / depth + 1 - ranks))
    limit, third = 2 * float(np.sum(logs**2)), 2 * float(np.sum(np.abs(logs) ** 3))
    return equal(depth**power * rest, limit, 2 * third / depth, depth=depth)


multiplied = divided.amend(power=1)(
    "Subtracting L·R⁽⁰⁾ + R⁽¹⁾ and multiplying by L gives R⁽²⁾ as L grows."
)


Parted = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
"""J(α̃_l → f) and Jα̃_l."""


def _parted(rng: np.random.Generator, draws: int) -> Iterator[Parted]:
    yield ((1, 0),), ((1, 0), (0, 2))
    for outputs, width, inputs in ((1, 2, 1), (1, 3, 2), (2, 3, 2), (2, 2, 3), (1, 2, 2)):
        for _ in range(3):
            A, B = rng.integers(-4, 5, (outputs, width)), rng.integers(-4, 5, (width, inputs))
            yield tuple(map(tuple, A.tolist())), tuple(map(tuple, B.tolist()))


def _by_determinants(case: Parted) -> Check:
    """The smallest case, where B is invertible and P = 1: |A|₊²|B|² and |AB|₊² from det MMᵀ."""
    A, B = (np.array(rows, float) for rows in case)
    left, both = (float(np.linalg.det(M @ M.T)) for M in (A, A @ B))
    return equal(left * float(np.linalg.det(B.T @ B)), both, 1e-9)


@numeric(
    "Thm 16 (ratio)",
    _parted,
    control("divided by |Jα̃_l|₊²", lambda: (((1, 2),), ((1,), (2,))), power=2),
    confirm=_by_determinants,
)
def ratio(case: Parted, power: int = 1, same_rank: bool = False) -> Check:
    """|J(α̃_l → f)P_l|₊ = |Jf|₊/|Jα̃_l|₊, P_l the projection to the image of Jα̃_l(x)."""
    A, B = (np.array(rows, float) for rows in case)
    rank, inner = int(np.linalg.matrix_rank(A @ B)), int(np.linalg.matrix_rank(B))
    drops = outside("Jf(x) = 0", when=rank == 0)
    drops += outside("Jα̃_l has another rank", when=same_rank and inner != rank)
    left, right = _volume(A @ _onto(B)), _volume(A @ B) - power * _volume(B)
    return equal(left, right, 1e-9, drops=drops, rank=rank, inner=inner)


ratio_amended = ratio.amend(same_rank=True)("It is so where Jα̃_l(x) has the rank of Jf(x).")
