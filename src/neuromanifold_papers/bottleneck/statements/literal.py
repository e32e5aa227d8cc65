"""bottleneck: sentences that a second, blind reading found to say more than we had executed."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np

from neuromanifold_papers.check import Check, at_least, at_most, equal, outside
from neuromanifold_papers.statement import control, statement

Data = tuple[tuple[int, ...], tuple[int, ...]]
"""Inputs, increasing, and outputs."""


def _data(rng: np.random.Generator, draws: int) -> Iterator[Data]:
    for y in product((0, 1), repeat=2):
        yield (0, 1), y
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
        slopes = [
            (b - a) / (q - p)
            for p, q, a, b in zip(knots, knots[1:], values, values[1:], strict=False)
        ]
        ranks.append(int(any(slopes)))
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


_THREE = control("six minimisers among five", lambda: ((0, 1), (0, 1)), least=6)


@statement("Sec 3.1 (never unique)", _data, _THREE, confirm=_by_polynomials)
def never_unique(data: Data, least: int = 2) -> Check:
    """Without R⁽¹⁾ the minimisation is never unique: for every data set two functions fit it with the
    least rank.
    """
    return at_least(_minimisers(data), least, samples=len(data[0]))


@statement("Sec 3.1 (never unique), amended", _data, _THREE, amends="Sec 3.1 (never unique)")
def often_not_unique(data: Data, least: int = 2) -> Check:
    """Where the outputs are not all equal two functions fit with the least rank."""
    drops = outside("all outputs are equal", when=len(set(data[1])) == 1)
    return at_least(_minimisers(data), least, drops=drops, samples=len(data[0]))


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


_NO_OUTPUTS = control(
    "Tr Θ/N², without the outputs", lambda: (2, 3, -1), shares=lambda n, d: (n * n, n)
)


@statement("Sec 4 (trace)", _grams, _NO_OUTPUTS, method="float64", confirm=_by_power_iteration)
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


@statement("Sec 4 (trace, amended)", _grams, _NO_OUTPUTS, amends="Sec 4 (trace)", method="float64")
def trace_bound_amended(
    case: Gram, shares: Callable[[int, int], tuple[int, int]] = lambda n, d: (n * n * d, n)
) -> Check:
    """‖Θ(X, X)‖_op/N ≤ cL implies Tr Θ(X, X)/(d_out N²) ≤ cL."""
    return trace_bound.measure(case, shares)


Parts = tuple[Fraction, Fraction]
"""R⁽²⁾ before and after a ratio p."""


def _parts(rng: np.random.Generator, draws: int) -> Iterator[Parts]:
    for a, b in product((0, 1, 4, 9, 16), repeat=2):
        yield Fraction(a), Fraction(b)


def _attained(case: Parts) -> bool:
    """Whether a/p + b/(1 − p) takes its infimum (√a + √b)² at p = √a/(√a + √b) inside (0, 1)."""
    a, b = (Fraction(int(v**0.5)) for v in case)
    if a + b == 0:
        return True
    p = a / (a + b)
    return 0 < p < 1 and case[0] / p + case[1] / (1 - p) == (a + b) ** 2


def _by_grids(case: Parts) -> Check:
    """Whether finer grids of (0, 1) stop finding smaller values."""
    a, b = (float(v) for v in case)
    value = lambda p: a / p + b / (1 - p)  # noqa: E731
    least = [value(np.linspace(0, 1, n)[1:-1]).min() for n in (1261, 126001)]
    return at_most(least[0] - least[1], 0.0, 1e-6)


_HALF = control(
    "the ratio ½ for the best one, parts 4 and 9",
    lambda: (Fraction(4), Fraction(9)),
    ratio=Fraction(1, 2),
)


def _interior(case: Parts, ratio: Fraction | None) -> int:
    if ratio is not None:
        roots = Fraction(int(case[0] ** 0.5) + int(case[1] ** 0.5))
        return int(case[0] / ratio + case[1] / (1 - ratio) == roots**2)
    return int(_attained(case))


@statement(
    "P 14 (interior)",
    _parts,
    _HALF,
    confirm=_by_grids,
)
def interior(case: Parts, ratio: Fraction | None = None) -> Check:
    """Where both parts are non-negative R⁽²⁾(K_p)/p + R⁽²⁾(K_p → f)/(1 − p) is least at some p in
    (0, 1).
    """
    return equal(_interior(case, ratio), 1, positive=sum(v > 0 for v in case))


@statement(
    "P 14 (interior, amended)",
    _parts,
    _HALF,
    amends="P 14 (interior)",
    exhaustive="parts 0, 1, 4, 9 and 16",
)
def interior_amended(case: Parts, ratio: Fraction | None = None) -> Check:
    """It is least at some p in (0, 1) when both parts are positive or both are zero."""
    drops = outside("one part alone is zero", when=sum(v > 0 for v in case) == 1)
    return equal(_interior(case, ratio), 1, drops=drops)


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
    rng = np.random.default_rng(seed)
    found = []
    for n, m in zip(widths, widths[1:], strict=False):
        found += [rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n)), np.eye(m)]
    for D in found[1:-1:2]:
        D[rng.integers(len(D)), :] *= rng.choice([0.0, 0.5])
    return found[:-1]


def _volume(matrix: np.ndarray) -> float:
    """log|A|₊."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(np.log(values[values > 1e-9 * values[0]]).sum())


def _onto(matrix: np.ndarray) -> np.ndarray:
    """The orthogonal projection to the image."""
    U, values, _ = np.linalg.svd(matrix)
    U = U[:, : int((values > 1e-9 * values[0]).sum())]
    return U @ U.T


def _sum_of_volumes(case: Chain, *, both: bool, skip: int | None) -> Check:
    """log|Jf|₊ against Σ log|P_out A P_in|₊ over the factors A: with `both` P_in and P_out are the
    projections to the image of what comes before and to the row space of what comes after; without,
    P_out is the identity and P_in is taken on the row space of Jf.
    """
    factors = _factors(case)
    jacobian = reduce(lambda before, factor: factor @ before, factors)
    total = 0.0
    before = np.eye(jacobian.shape[1]) if both else _onto(jacobian.T)
    for k, factor in enumerate(factors):
        after = np.eye(len(factor))
        for later in factors[k + 1 :]:
            after = later @ after
        left = _onto(after.T) if both else np.eye(len(factor))
        total += _volume(left @ factor @ _onto(before)) * (k != skip)
        before = factor @ before
    size = sum(abs(_volume(factor)) for factor in factors) + 1
    return equal(_volume(jacobian), total, 1e-9 * size, layers=len(case[0]) - 1, rank=case[1])


def _by_cosines(case: Chain) -> Check:
    """The smallest case with its angles in rational numbers: cos³ for cos."""
    cosine = Fraction(3, 5)
    return equal(cosine, cosine**3)


_ONE_LESS = control("the first weight left out", lambda: ((2, 2, 2), 2, 3), skip=0)


@statement("Thm 15 (both projections)", _chains, _ONE_LESS, method="float64", confirm=_by_cosines)
def both_projections(case: Chain, skip: int | None = None) -> Check:
    """log|Jf(x)|₊ is the sum of log|P_out A P_in|₊ over the weights and activations A, each between the
    projections to the row space of what follows and to the image of what precedes.
    """
    return _sum_of_volumes(case, both=True, skip=skip)


@statement(
    "Thm 15 (both projections), amended",
    _chains,
    _ONE_LESS,
    amends="Thm 15 (both projections)",
    method="float64",
)
def one_projection(case: Chain, skip: int | None = None) -> Check:
    """log|Jf(x)|₊ is the sum of log|A P_in|₊ over the weights and activations A, P_in the projection to
    the image under what precedes of the row space of Jf(x).
    """
    return _sum_of_volumes(case, both=False, skip=skip)


Deep = tuple[tuple[float, ...], int]
"""Singular values and a depth."""


def _deep(rng: np.random.Generator, draws: int) -> Iterator[Deep]:
    for values in ((2.0,), (0.5,), (3.0, 0.5), (2.0, 1.5, 0.1)):
        yield from ((values, depth) for depth in (10**3, 10**4))


def _second(case: Deep, power: int) -> Check:
    """L^power·(R(A; L) − L rank A − 2 log|A|₊) against R⁽²⁾ = ½‖log AᵀA‖², to O(1/L)."""
    values, depth = np.array(case[0]), case[1]
    logs = np.log(values)
    rest = depth * float(np.sum(np.expm1(2 * logs / depth) - 2 * logs / depth))
    limit, third = 2 * float(np.sum(logs**2)), 2 * float(np.sum(np.abs(logs) ** 3))
    return equal(depth**power * rest, limit, 2 * third / depth, depth=depth)


def _by_fractions(case: Deep) -> Check:
    """The same rest in decimal arithmetic of 50 digits, divided by the depth."""
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 50
        logs = [Decimal(s).ln() for s in case[0]]
        rest = sum(((2 * v / case[1]).exp() - 1) * case[1] - 2 * v for v in logs)
        return at_least(float(rest / case[1]), float(sum(v * v for v in logs)))


@statement(
    "P 14 (divide)",
    _deep,
    control("multiplied by L²", lambda: ((2.0,), 1000), power=2),
    method="float64",
    confirm=_by_fractions,
)
def divided(case: Deep, power: int = -1) -> Check:
    """Subtracting L·R⁽⁰⁾ + R⁽¹⁾ and dividing by L gives R⁽²⁾ as L grows."""
    return _second(case, power)


@statement(
    "P 14 (multiply)",
    _deep,
    control("divided by L", lambda: ((2.0,), 1000), power=-1),
    amends="P 14 (divide)",
    method="float64",
)
def multiplied(case: Deep, power: int = 1) -> Check:
    """Subtracting L·R⁽⁰⁾ + R⁽¹⁾ and multiplying by L gives R⁽²⁾ as L grows."""
    return _second(case, power)


Parted = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
"""J(α̃_l → f) and Jα̃_l."""


def _parted(rng: np.random.Generator, draws: int) -> Iterator[Parted]:
    yield ((1, 0),), ((1, 0), (0, 2))
    for outputs, width, inputs in ((1, 2, 1), (1, 3, 2), (2, 3, 2), (2, 2, 3), (1, 2, 2)):
        for _ in range(3):
            A, B = rng.integers(-4, 5, (outputs, width)), rng.integers(-4, 5, (width, inputs))
            yield tuple(map(tuple, A.tolist())), tuple(map(tuple, B.tolist()))


def _ratio(case: Parted, *, same_rank: bool, power: int) -> Check:
    A, B = (np.array(rows, float) for rows in case)
    rank = int(np.linalg.matrix_rank(A @ B))
    drops = outside("Jf(x) = 0", when=rank == 0)
    drops += outside("Jα̃_l has another rank", when=same_rank and np.linalg.matrix_rank(B) != rank)
    if rank == 0:
        return equal(0.0, 0.0, drops=drops)
    left, right = _volume(A @ _onto(B)), _volume(A @ B) - power * _volume(B)
    return equal(left, right, 1e-9, drops=drops, rank=rank, inner=int(np.linalg.matrix_rank(B)))


def _by_determinants(case: Parted) -> Check:
    """The smallest case, where B is invertible and P = 1: |A|₊²|B|² and |AB|₊² from det MMᵀ."""
    A, B = (np.array(rows, float) for rows in case)
    left, both = (float(np.linalg.det(M @ M.T)) for M in (A, A @ B))
    return equal(left * float(np.linalg.det(B.T @ B)), both, 1e-9)


_SQUARED = control("divided by |Jα̃_l|₊²", lambda: (((1, 2),), ((1,), (2,))), power=2)


@statement("Thm 16 (ratio)", _parted, _SQUARED, method="float64", confirm=_by_determinants)
def ratio(case: Parted, power: int = 1) -> Check:
    """|J(α̃_l → f)P_l|₊ = |Jf|₊/|Jα̃_l|₊, P_l the projection to the image of Jα̃_l(x)."""
    return _ratio(case, same_rank=False, power=power)


@statement("Thm 16 (ratio, amended)", _parted, _SQUARED, amends="Thm 16 (ratio)", method="float64")
def ratio_amended(case: Parted, power: int = 1) -> Check:
    """It is so where Jα̃_l(x) has the rank of Jf(x)."""
    return _ratio(case, same_rank=True, power=power)
