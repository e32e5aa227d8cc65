"""riemann: sentences between the theorems and steps of proofs, by exact algebra."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import prod

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.riemann.statements.exact import differing, statement
from neuromanifold_papers.statement import control

ZeroPair = tuple[int, int, int]
"""A depth and the layers k and l, counted from 1, whose filters are zero."""


def _by_filters(case: ZeroPair) -> Check:
    """The same sum from filters, by the library's invariants."""
    depth, k, l = case
    net = LinearConvNet((2,) * depth, (1,) * depth)
    params = tuple(
        np.zeros(2) if layer in (k, l) else np.array([1.0, layer]) for layer in range(1, depth + 1)
    )
    return equal(float(np.sum(fs.norm_differences(net, params)[k - 1 : l])), 0.0)


@statement(
    "P 8 (printed sum)",
    [(depth, k, l) for depth in (3, 4, 5) for k, l in combinations(range(1, depth), 2)],
    control("the last three of five layers", lambda: (5, 3, 4)),
    confirm=_by_filters,
)
def printed_sum(case: ZeroPair, to: int = 0) -> Check:
    """If w_k = w_l = 0 then Σ_{i=k}^{l} δ_i = 0, as printed up to l."""
    depth, k, l = case
    squared = [0 if layer in (k, l) else 1 + layer * layer for layer in range(1, depth + 1)]
    return equal(sum(np.diff(squared)[k - 1 : l - to].tolist()), 0, layers=depth)


printed_sum_amended = printed_sum.amend(control("summed up to l", lambda: (4, 1, 2), to=0), to=1)(
    "If w_k = w_l = 0 then Σ_{i=k}^{l−1} δ_i = 0."
)


@dataclass(frozen=True)
class Swapped:
    """Filters a, b of whole lengths, sizes (2, 2), stride one: the tuples over v = a·b with the
    same δ are ±(a, b) and ±(sb, a/s), s = |a|/|b|.
    """

    a: tuple[int, int]
    b: tuple[int, int]

    def tuples(self) -> list[tuple[np.ndarray, np.ndarray]]:
        a, b = (np.array([Fraction(v) for v in w], object) for w in (self.a, self.b))
        s = Fraction(round(float(np.hypot(*self.a))), round(float(np.hypot(*self.b))))
        return [
            (sign * first, sign * second)
            for first, second in ((a, b), (s * b, a / s))
            for sign in (1, -1)
        ]


_LINE = LinearConvNet((2, 2), (1, 1))
_WHOLE = ((3, 4), (5, 12), (8, 15), (1, 0), (0, 2), (4, 3))


def _agree_in_float64(case: Swapped) -> Check:
    tuples = (tuple(w.astype(float) for w in params) for params in case.tuples())
    kernels = [np.asarray(fs.filter_kernel(_LINE, params), float) for params in tuples]
    close = [np.abs(K - M).max() < 1e-9 for K, M in product(kernels, repeat=2)]
    return equal(int(sum(close)), 0)


@statement(
    "Rem 1",
    [
        Swapped(a, b)
        for a, b in product(_WHOLE, repeat=2)
        if a[0] * b[1] != a[1] * b[0] and np.hypot(*a) != np.hypot(*b)
    ],
    control("filters of other lengths", lambda: Swapped((3, 4), (0, 2))),
    confirm=_agree_in_float64,
)
def rem_1(case: Swapped) -> Check:
    """Since equality of kernels is a polynomial condition, one counterexample shows that it holds for
    almost no pair of parameters with equal function and invariants; how many of 16 such pairs over
    one (v, δ) satisfy it, where some do not.
    """
    kernels = [fs.filter_kernel(_LINE, params) for params in case.tuples()]
    agree = [differing(K, M) == 0 for K, M in product(kernels, repeat=2)]
    return equal(sum(agree) if not all(agree) else 0, 0, comparisons=len(agree))


@rem_1.amend(control("a tuple and its own negative", lambda: Swapped((3, 4), (0, 2)), second=1))
def rem_1_amended(case: Swapped, second: int = 2) -> Check:
    """On one component of the set of pairs, that of the exchanged filters, a single counterexample
    is enough: the kernels differ on all pairs drawn from it.
    """
    first, other = case.tuples()[0], case.tuples()[second]
    same = differing(fs.filter_kernel(_LINE, first), fs.filter_kernel(_LINE, other)) == 0
    return equal(int(same), 0)


@dataclass(frozen=True)
class Samples:
    """Rows x_i with targets y_i for one output of the end-to-end filter."""

    x: tuple[tuple[int, ...], ...]
    y: tuple[int, ...]

    def moment(self) -> list[int]:
        """Xᵀy."""
        return (np.array(self.y) @ np.array(self.x)).tolist()

    def lower(self) -> int:
        """How many ±te_i, all of which are end-to-end filters at stride one, have a smaller loss
        than 0 for small t: those with (Xᵀy)_i ≠ 0.
        """
        found = 0
        for j, sign in product(range(len(self.x[0])), (1, -1)):
            t = Fraction(sign, 10**6)
            loss = sum((t * row[j] - y) ** 2 for row, y in zip(self.x, self.y, strict=True))
            found += loss < sum(y * y for y in self.y)
        return found


def _data(rng: np.random.Generator, draws: int) -> Iterator[Samples]:
    yield Samples(((1, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)), (1, -1, 0, 0))
    for _ in range(draws):
        x, y = rng.integers(-2, 3, (4, 3)).tolist(), rng.integers(-2, 3, 4).tolist()
        if any(y):
            yield Samples(tuple(map(tuple, x)), tuple(y))


def _least(case: Samples) -> Check:
    u = np.linalg.lstsq(np.array(case.x, float), np.array(case.y, float))[0]
    return at_least(float(np.abs(u).max()), 1e-9)


@statement(
    "Sec 1.2 (saddle)",
    _data,
    control(
        "targets ±2 on one input",
        lambda: Samples(((1, 0, 0), (1, 0, 0), (0, 1, 1)), (2, -2, 0)),
        passes=lambda: Samples(((1, 0, 0), (1, 0, 0), (0, 1, 1)), (2, 2, 0)),
    ),
    confirm=_least,
)
def saddle_as_printed(case: Samples) -> Check:
    """Unless all Y_i are 0, the zero function is a saddle: the loss takes smaller values near it."""
    return at_least(case.lower(), 1, samples=len(case.y))


@saddle_as_printed.amend(
    control("Y ≠ 0 for XᵀY ≠ 0", lambda: Samples(((1,), (1,)), (1, -1)), of=lambda case: case.y)
)
def saddle_amended(case: Samples, of: Callable[[Samples], Sequence[int]] = Samples.moment) -> Check:
    """The loss takes smaller values near the zero function exactly when XᵀY ≠ 0, as for almost all
    data.
    """
    return equal(int(case.lower() > 0), int(any(of(case))), samples=len(case.y))


Norms = tuple[int, ...]


@statement(
    "P 2 (proof)",
    lambda rng, draws: [
        tuple(rng.integers(-4, 5, n).tolist()) for n in (1, 2, 3) for _ in range(5)
    ],
    control("to the left of −n", lambda: (1, 2), side=-1),
)
def p_2_proof(delta: Norms, side: int = 1) -> Check:
    """(x + n_1)⋯(x + n_H) is 0 at x = −n, n = min n_l, positive and increasing to the right of it, so
    that C > 0 is taken once; β_l = x + n_l are the solutions of Eq 12.
    """
    shifts = np.cumsum([0, *delta])
    shifts = (shifts - shifts.min()).tolist()
    points = [side * Fraction(k, 8) - min(shifts) for k in range(40)]
    values = [prod(x + shift for shift in shifts) for x in points]
    rising = all(a < b for a, b in zip(values, values[1:], strict=False))
    return equal(int(values[0] == 0 and rising), 1, layers=len(shifts))


@statement(
    "Lem 5 (proof)",
    lambda rng, draws: [
        tuple(map(int, rng.integers(1, 9, n))) for n in (2, 3, 4, 5) for _ in range(6)
    ],
    control("a zero first filter", lambda: (0, 3, 4)),
)
def lem_5_proof(norms: Norms) -> Check:
    """(λ_{i−1} − λ_i)‖w_i‖² = −λ_1‖w_1‖² gives λ_i = c_iλ_1 with c_i > 0, and the last condition
    λ_{H−1}‖w_H‖² = −λ_1‖w_1‖² then forces λ_1 = 0: c_{H−1}‖w_H‖² + ‖w_1‖² is not 0.
    """
    c = Fraction(1)
    positive = norms[0] > 0
    for norm in norms[1:-1]:
        c = (c * norm + norms[0]) / norm
        positive = positive and c > 0
    return equal(int(positive and c * norms[-1] + norms[0] > 0), 1, layers=len(norms))


@statement(
    "Ex 17 (bijective)",
    lambda rng, draws: list(product((1, 2, 5), (1, 3), [Fraction(n, 4) for n in range(1, 20)])),
    control("δ with the sign of ‖a‖² reversed", lambda: (1, 3, Fraction(1, 2)), sign=-1),
    exhaustive="‖a‖² = 1, 2, 5, ‖b‖² = 1, 3, λ² = ¼, …, 19/4",
)
def ex_17_bijective(case: tuple[int, int, Fraction], sign: int = 1) -> Check:
    """δ ↦ λ² = (−δ + √(δ² + 4‖a‖²‖b‖²))/(2‖a‖²) is strictly decreasing and onto (0, ∞): every λ² is
    taken at δ = ‖b‖²/λ² − λ²‖a‖² alone.
    """
    a, b, square = case
    delta = b / square - sign * square * a
    # λ² solves aλ⁴ + δλ² − b = 0, and (2aλ² + δ)² = δ² + 4ab
    root = 2 * a * square + delta
    solved = root * root == delta**2 + 4 * a * b and root > 0
    later = b / (square + 1) - (square + 1) * a
    return equal(int(solved and later < b / square - square * a), 1)
