"""bottleneck: remarks of Sections 3 and 4 and steps of the proofs of Props 12, 14 and Thm 19."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from neuromanifold_papers.check import Check, at_least, at_most, equal
from neuromanifold_papers.statement import control, statement

LINEAR = "linear networks, whose optimal representations are known: the powers of A"
Spectrum = tuple[tuple[float, ...], int, int]


def _spectra(rng: np.random.Generator, draws: int) -> Iterator[Spectrum]:
    """Singular values, a depth and a layer."""
    for values in ((1.0,), (2.0, 0.5), (3.0, 1.0, 0.2)):
        for depth in (4, 10, 50):
            yield from ((values, depth, layer) for layer in (1, depth // 2, depth - 1))


def _cost(values: np.ndarray, depth: int) -> float:
    """R(A; L) = L Σ s^{2/L}."""
    return depth * float(np.sum(values ** (2 / depth)))


@statement(
    "Sec 3.3 (five limits)",
    _spectra,
    control("the layer's representation at half its ratio", lambda: ((2.0, 0.5), 10, 5), share=0.5),
    method="float64",
    narrower=LINEAR,
)
def five_limits(case: Spectrum, share: float = 1.0) -> Check:
    """Along a network of least norm R(f; L) = R(α̃_l; l) + R(α̃_l → f; L − l), the ranks of both
    parts are that of f, their R⁽¹⁾ add, their R⁽²⁾ over p and 1 − p add, and between neighbouring
    layers R⁽¹⁾ tends to 0.
    """
    values, depth, layer = np.array(case[0]), case[1], case[2]
    p = share * layer / depth
    first, rest = values**p, values ** (1 - p)
    logs = np.log(values)
    errors = [
        _cost(first, layer) + _cost(rest, depth - layer) - _cost(values, depth),
        float(np.sum(first > 0) - len(values)) + float(np.sum(rest > 0) - len(values)),
        2 * float(np.sum(np.log(first)) + np.sum(np.log(rest)) - np.sum(logs)),
        2 * float(np.sum((p * logs) ** 2) / (layer / depth))
        + 2 * float(np.sum(((1 - p) * logs) ** 2) / (1 - layer / depth))
        - 2 * float(np.sum(logs**2)),
    ]
    scale = 1 + _cost(values, depth)
    worst = max(abs(error) for error in errors)
    return at_most(worst, 0.0, 1e-12 * scale, depth=depth, comparisons=len(errors))


@statement(
    "P 14 (limit)",
    lambda rng, draws: list(product((0.0, 0.3, 2.0), (0.1, 1.0, 5.0))),
    control("the smaller of the two roots for their sum", lambda: (2.0, 1.0), of=min),
    method="float64",
)
def p_14_limit(case: tuple[float, float], of: object = sum) -> Check:
    """The least A/(1 − p) + B/p over p in (0, 1) is (√A + √B)² for A, B ≥ 0; it is −∞ at an end when
    one is negative; for commuting matrices R⁽²⁾ of a product is at most A/(1 − p) + B/p.
    """
    A, B = case
    grid = np.linspace(1e-4, 1 - 1e-4, 20001)
    least = float(np.min(A / (1 - grid) + B / grid))
    roots = [np.sqrt(A), np.sqrt(B)]
    closed = float((sum(roots) if of is sum else min(roots)) ** 2)
    negative = float(np.min(-1 / (1 - grid) + B / grid))
    a, b = np.array([np.sqrt(A / 2), 0.0]), np.array([np.sqrt(B / 2), 0.0])
    composed = 2 * float(np.sum((a + b) ** 2)) - least
    worst = max(abs(least - closed), composed, 1.0 if negative > -1000 else 0.0)
    return at_most(worst, 0.0, 2e-4 * (1 + A + B))


def _tangents(rng: np.random.Generator, draws: int) -> Iterator[tuple[int, int, int]]:
    for size, k in ((2, 1), (3, 1), (3, 2), (5, 3)):
        yield from ((size, k, int(seed)) for seed in rng.integers(2**31, size=max(draws // 10, 2)))


@statement(
    "P 12 (steps)",
    _tangents,
    control("‖W‖² = 100k", lambda: (3, 2, 0), scale=10.0),
    method="float64",
)
def p_12_steps(case: tuple[int, int, int], scale: float = 1.0) -> Check:
    """W_L A = P gives A = W_L⁺P; α²‖W‖² − 2k log α is least where ‖αW‖² = k; and then
    2 log|W⁺P|₊ ≥ 0 for every tangent space, 0 only where W is an isometry on it.
    """
    size, k, seed = case
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(size, size))
    W *= scale * np.sqrt(k) / np.linalg.norm(W)
    basis = np.linalg.qr(rng.normal(size=(size, k)))[0]
    P = basis @ basis.T
    A = np.linalg.pinv(W) @ P
    values = np.linalg.svd(A, compute_uv=False)[:k]
    excess = 2 * float(np.sum(np.log(values)))
    alphas = np.linspace(0.2, 3, 2801)
    least = alphas[np.argmin(alphas**2 * np.sum(W**2) - 2 * k * np.log(alphas))]
    scaled = abs(float(least**2 * np.sum(W**2)) - k)
    error = float(np.abs(W @ A - P).max()) if size <= 5 else 0.0
    wrong = max(0.0, scaled - 0.02) + max(0.0, error - 1e-8)
    return at_least(excess - wrong, 0.0, 1e-9, size=size, k=k)


@statement(
    "Thm 19 (intervals)",
    lambda rng, draws: [
        tuple(map(int, rng.integers(1, 30, n))) for n in (3, 8, 20) for _ in range(4)
    ],
    control("three quarters short", lambda: (1, 1, 1, 1), share=Fraction(1, 4), more=1),
)
def thm_19_intervals(
    gaps: tuple[int, ...], share: Fraction = Fraction(1, 2), more: int = 0
) -> Check:
    """Of N intervals of total length D more than half are shorter than 2D/N, and a path that runs
    over an interval has somewhere at least the slope of its chord.
    """
    total, count = sum(gaps), len(gaps)
    short = sum(Fraction(gap) < Fraction(total, count) / share for gap in gaps)
    # a path of two pieces from 0 to 1 over the gap: the steeper piece is at least the chord
    steep = min(
        max(Fraction(2, 3) / (Fraction(gap) / 2), Fraction(1, 3) / (Fraction(gap) / 2)) * gap
        for gap in gaps
    )
    found = short if steep >= 1 else 0
    return at_least(found, count * (1 - share) + more * count, intervals=count)


@statement(
    "Sec 3.1 (not unique)",
    lambda rng, draws: [Fraction(n, 8) for n in (1, 2, 3, 5, 6, 7)],
    control("the same function twice", lambda: Fraction(1, 2)),
)
def not_unique(middle: Fraction) -> Check:
    """x and the piecewise linear function through (0, 0), (½, m), (1, 1) fit the data 0, 1 with the
    same rank 1, differ off the data, and are told apart by their largest slopes, which R⁽¹⁾ bounds.
    """

    def bent(x: Fraction) -> Fraction:
        return 2 * middle * x if x <= Fraction(1, 2) else 1 - 2 * (1 - middle) * (1 - x)

    fits = all(bent(Fraction(x)) == x for x in (0, 1))
    apart = any(bent(Fraction(n, 16)) != Fraction(n, 16) for n in range(17))
    steepest = max(16 * (bent(Fraction(n + 1, 16)) - bent(Fraction(n, 16))) for n in range(16))
    return equal(int(fits and apart and steepest > 1), 1)


def _regular(rng: np.random.Generator, draws: int) -> Iterator[tuple[int, ...]]:
    """A with det A ≠ 0, as almost all are, and B, both 2 × 2."""
    for _ in range(draws):
        case = tuple(map(int, rng.integers(-9, 10, 8)))
        if case[0] * case[3] != case[1] * case[2]:
            yield case


@statement(
    "Sec 3 (zero derivatives)",
    _regular,
    control("at a matrix of rank 1", lambda: (1, 2, 2, 4, 1, 0, 0, 1)),
)
def zero_derivatives(case: tuple[int, ...]) -> Check:
    """The rank is constant near almost every matrix: rank(A + tB) = rank A for small t."""
    t = Fraction(1, 10**6)
    moved = [a + t * b for a, b in zip(case[:4], case[4:], strict=True)]
    full = [m[0] * m[3] != m[1] * m[2] for m in (case, moved)]
    return equal(int(full[0]), int(full[1]))


@statement(
    "Sec 3.1 (overestimating)",
    lambda rng, draws: [Fraction(1, n) for n in (1, 2, 10, 1000)],
    control("twice the distance", lambda: Fraction(1, 10), factor=2),
)
def overestimating(epsilon: Fraction, factor: int = 1) -> Check:
    """(x, 0) of rank 1 is approximated on [0, 1]² by (x, εy) of rank 2 at distance ε."""
    corners = product((0, 1), repeat=2)
    distance = max(factor * epsilon * y for _, y in corners)
    rank = int(epsilon != 0) + 1
    return at_most(distance if rank == 2 else Fraction(2), epsilon)


@statement(
    "Sec 3.3 (kernels)",
    lambda rng, draws: [tuple(map(int, rng.integers(-9, 10, 4))) for _ in range(draws)],
    control("a dilation", lambda: (1, 2, 3, 4), turn=((2, 0), (0, 2))),
)
def kernels(
    case: tuple[int, ...],
    turn: tuple[tuple[Fraction | int, ...], ...] = (
        (Fraction(3, 5), Fraction(-4, 5)),
        (Fraction(4, 5), Fraction(3, 5)),
    ),
) -> Check:
    """Swapping neurons and orthogonal maps of a representation leave its kernel α̃(x)·α̃(y)."""
    x, y = case[:2], case[2:]

    def turned(v: tuple[int, ...]) -> list[Fraction | int]:
        return [row[0] * v[0] + row[1] * v[1] for row in turn]

    a, b = turned(x), turned(y)
    swapped = x[1] * y[1] + x[0] * y[0]
    wrong = (a[0] * b[0] + a[1] * b[1] != x[0] * y[0] + x[1] * y[1]) + (
        swapped != x[0] * y[0] + x[1] * y[1]
    )
    return equal(int(wrong), 0, comparisons=2)


@statement(
    "D.2 (semicontinuity)",
    lambda rng, draws: [(L, n) for L in (1, 2, 5, 20) for n in (10, 1000, 10**6)],
    control("the rank of the sequence for its limit", lambda: (5, 10**6), rank=2),
    method="float64",
    narrower="linear maps diag(1, 1/n), whose limit has a smaller rank",
)
def semicontinuity(case: tuple[int, int], rank: int = 1) -> Check:
    """lim inf R(f; L) ≥ R(f_0; L) as f → f_0: along diag(1, 1/n) → diag(1, 0) the cost stays above
    that of the limit, L.
    """
    depth, n = case
    cost = _cost(np.array([1.0, 1 / n]), depth)
    limit = _cost(np.array([1.0]), depth) * rank
    return at_least(cost, limit, 1e-12 * depth, depth=depth)


@statement(
    "App E",
    lambda rng, draws: [int(seed) for seed in rng.integers(2**31, size=5)],
    control("h of one latent variable", lambda: 0, latent=1),
    method="float64",
    narrower="shallow tanh networks of width 30; the print gives neither width nor activation",
)
def app_e(seed: int, latent: int = 2) -> Check:
    """y = h(z_1, z_2) and x = g(z_1, …, z_8) in ℝ²⁰ with random shallow networks: g has an injective
    differential and dh has rank 2, so that f* = h∘g⁻¹ has Jacobian rank 2 and BN-rank 2.
    """
    rng = np.random.default_rng(seed)

    def differential(inputs: int) -> np.ndarray:
        V, W = rng.normal(size=(20, 30)), rng.normal(size=(30, inputs))
        z = rng.normal(size=inputs)
        return V @ np.diag(1 - np.tanh(W @ z) ** 2) @ W

    g, h = differential(8), differential(latent)
    wrong = 8 - int(np.linalg.matrix_rank(g))
    return equal(int(np.linalg.matrix_rank(h)) - wrong, 2)
