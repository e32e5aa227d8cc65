"""`bottleneck`, the first correction: Theorem 3 with its parts, and what its proof uses.
[bottleneck, Thm 3, Thm 11]
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from neuromanifold.bottleneck import linear_construction
from neuromanifold_papers.bottleneck.statements import cases, ranks
from neuromanifold_papers.bottleneck.statements.cases import EPS, Case, compare, network, worst
from neuromanifold_papers.bottleneck.statements.cost import linear_cost
from neuromanifold_papers.check import Check, at_most, outside
from neuromanifold_papers.statement import control, named

KNOWN = "on functions whose R⁽¹⁾ is known: linear maps on completely positive domains"


doubled = cases.chain(2 ** (1 / 64), 64, 1.0)
"""2x in 64 equal layers, which spend 2 log 2 and a hundredth more."""


def networks(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """2x in 64 layers, every small network, then random ones, of every slope in (−1, 1), with and without
    biases.
    """
    yield doubled
    yield from cases.lattice()
    yield from cases.biased_lattice()
    yield from cases.random_networks(rng, 4 * draws)


def first_bound(s: np.ndarray) -> float:
    """2 log|J|₊."""
    return 2 * float(np.sum(np.log(s)))


def kept(J: np.ndarray) -> np.ndarray:
    """The nonzero singular values."""
    s = np.linalg.svdvals(J)
    return s[s > max(J.shape) * EPS * s[0]]


Pair = tuple[np.ndarray, np.ndarray] | None


def matrix_pairs(rng: np.random.Generator, draws: int) -> Iterator[Pair]:
    """All pairs of 2 × 2 matrices over 0, 1, 2 (`None`), then pairs that map orthants into
    orthants, of every rank.
    """
    yield None
    for index in range(4 * draws):
        d = 2 + index % 3
        k = int(rng.integers(1, d + 1))
        yield _nonnegative(rng, d, k), _nonnegative(rng, d, k)


def _nonnegative(rng: np.random.Generator, d: int, k: int) -> np.ndarray:
    """Nonnegative of rank k, its row and column spaces spanned by nonnegative orthonormal
    vectors.
    """
    if k == d:
        return rng.uniform(size=(d, d)) + np.diag(rng.uniform(size=d))
    columns, sizes = cases.nonnegative_frame(rng, d, k), np.exp(rng.normal(size=k))
    return columns * sizes @ cases.nonnegative_frame(rng, d, k).T


def composed_determinant(f: Any, g: Any) -> Any:
    """The bound on |AB|₊ (on squares of them where both sides are exact): |A|₊|B|₊."""
    return f * g


Bound = Callable[[Any, Any], Any]
Lemma = tuple[Fraction, Fraction, bool]
"""f = s·x and g = t·x in one layer each, on [0, 1] or, signed, on [−1, 1]."""


def confirm_lemma(case: Lemma) -> Check:
    """A linear programme: neurons of every direction (cos φ, sin φ), a free output bias, the
    function wanted at five points.
    """
    from scipy.optimize import linprog

    s, t, signed = case
    x = np.linspace(-1.0 if signed else 0.0, 1.0, 5)
    angle = np.arange(720) * np.pi / 360
    features = np.maximum(np.cos(angle) * x[:, None] + np.sin(angle), 0)
    bias = np.ones((5, 1))
    equations = np.hstack([features, -features, bias, -bias])
    weights = np.concatenate([np.full(1440, 2.0), np.zeros(2)])
    found = linprog(weights, A_eq=equations, b_eq=float(s * t) * x, bounds=(0, None))
    return at_most(float(found.fun), float(s**2 + t**2), 1e-6)


def nonnegative_pairs(rng: np.random.Generator, draws: int) -> Iterator[tuple[Case, Case]]:
    """Chains f and g with weights −1, 0, 1, then ReLU networks of every pair of depths up to 3,
    g nonnegative on the sample.
    """
    for u, v, w in itertools.product((1.0, -1.0, 0.0), repeat=3):
        g = network([[[u]], [[v]]], [[0.0], [1.0]], biases=[[0.0], [1.0]])
        yield network([[[w]]], cases.outputs(g), biases=[[0.0]]), g
    for index in range(draws + 9):
        depths = (1 + index % 3, 1 + index // 3 % 3)
        widths = (2, *rng.integers(1, 4, size=depths[1] - 1).tolist(), 3)
        g = cases.drawn(rng, widths, rng.normal(size=(5, 2)))
        last = g.params[-1]
        last = last._replace(bias=last.bias + np.maximum(0, -cases.outputs(g).min(axis=0)))
        g = replace(g, params=(*g.params[:-1], last))
        widths = (3, *rng.integers(1, 4, size=depths[0] - 1).tolist(), 2)
        yield cases.drawn(rng, widths, cases.outputs(g)), g


def constant_cost(c: float) -> float:
    """R⁽¹⁾ of the constant c on a domain that holds 0, for |c| ≤ 1: the output bias alone, c²."""
    return c * c


def sums(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Pairs of constants whose sizes and sum are at most 1, smallest first, then pairs of
    matrices whose ranks add.
    """
    sizes = (Fraction(0), Fraction(1, 2), Fraction(-1, 2), Fraction(1, 4), Fraction(-1))
    yield from ((a, b) for a, b in itertools.product(sizes, repeat=2) if abs(a + b) <= 1)
    yield from linear_sums(rng, draws)


def linear_sums(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """All pairs of 2 × 2 matrices over 0, 1, 2 (`None`), a pair on two axes, then larger ones."""
    yield None
    yield np.diag([2.0, 0.0]), np.diag([0.0, 3.0])
    for index in range(4 * draws):
        d = 2 + index % 3
        k = int(rng.integers(1, d))
        yield _nonnegative(rng, d, k), _nonnegative(rng, d, int(rng.integers(1, d - k + 1)))


def confirm_constants(case: Any) -> Check:
    """A dynamic programme: c = b + w·r with r the size of the layer below, whose own cost is
    known, four layers deep.
    """
    grid = np.linspace(0, 1.5, 61)[1:]
    below = grid**2

    def best(c: float) -> float:
        carried = np.linspace(0, c, 41)[1:, None] if c else np.zeros((1, 1))
        return float(min(c * c, np.min((c - carried) ** 2 + (carried / grid) ** 2 + below)))

    for _ in range(2):
        below = np.array([best(c) for c in grid])
    a, b = (abs(float(c)) for c in case)
    return at_most(best(abs(float(sum(case)))), best(a) + best(b), 1e-12)


def no_output_bias(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Pairs of networks without an output bias: all chains with weights −1, 0, 1, every depth up to 4
    and every slope, every other one with biases in its hidden layers; then linear maps.
    """
    yield from itertools.product(cases.lattice(((1, 1, 1),), (0.0,)), repeat=2)
    for index in range(draws + 8):
        depth, slope = 2 + index % 3, float(rng.choice((0.0, 0.5, -0.5)))
        x = rng.normal(size=(5, 2))
        nets = []
        for _ in range(2):
            widths = (2, *rng.integers(1, 4, size=depth - 1).tolist(), 2)
            hidden = [(index % 2) * rng.normal(size=n) for n in widths[1:-1]]
            weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(widths)]
            nets.append(network(weights, x, slope=slope, biases=[*hidden, np.zeros(2)]))
        yield tuple(nets)
    yield from linear_sums(rng, draws)


Construction = tuple[np.ndarray, np.ndarray, int]


def constructions(rng: np.random.Generator, draws: int) -> Iterator[Construction]:
    """(A, generators of the cone Ω, L): scalars, then planes, then rotated copies, of full and
    of smaller rank.
    """
    for s, L in itertools.product((2.0, 1.0, 0.5, 3.0), (3, 2, 10, 100)):
        yield np.array([[s]]), np.ones((1, 1)), L
    for A in ranks.small_matrices((0, 1, 2))[::3]:
        if A.any():
            yield A.astype(float), np.eye(2), 10
    for index in range(draws):
        d = 2 + index % 2
        A = _nonnegative(rng, 2, 1 + index % 2)
        outer, inner = (np.linalg.qr(rng.normal(size=(d, d)))[0][:, :2] for _ in range(2))
        yield outer @ A @ inner.T, inner.T, int(rng.integers(2, 60))


def construction_rate(s: np.ndarray, depth: int) -> float:
    """2 log|A|₊ + Σ (s − 1/s)²/L: what a left Riemann sum of dκ/κ from 1 to s² cannot exceed."""
    return first_bound(s) + float(np.sum((s - 1 / s) ** 2)) / depth


def construction_rounding(s: np.ndarray, depth: int) -> float:
    return 256 * EPS * depth * (1 + float(s[0] / s[-1]) ** 2 * (1 + s[0] ** 2))


Rate = Callable[[np.ndarray, int], float]


def printed_weights(layer: int, depth: int) -> tuple[Fraction, Fraction]:
    """The weights of P and AᵀA in the kernel of a layer, as printed: l/L and 1 − l/L."""
    return Fraction(layer, depth), 1 - Fraction(layer, depth)


def exchanged_weights(layer: int, depth: int) -> tuple[Fraction, Fraction]:
    """The weights that begin at the input: 1 − l/L and l/L."""
    return 1 - Fraction(layer, depth), Fraction(layer, depth)


def interpolation_norm(A: np.ndarray, depth: int, weights: Any) -> float:
    """Σ_l ‖B_lB_{l-1}⁺‖² = Σ_l tr K_lK_{l-1}⁺ with K_0 = P, K_L = AᵀA and the interpolation
    between them.
    """
    P, G = np.linalg.pinv(A) @ A, A.T @ A
    inside = [float(p) * P + float(q) * G for p, q in (weights(l, depth) for l in range(1, depth))]
    steps = itertools.pairwise([P, *inside, G])
    return sum(float(np.trace(b @ np.linalg.pinv(a, rcond=1e-12))) for a, b in steps)


def confirm_interpolation(case: Construction) -> Check:
    """The same for a scalar in fractions: Σ κ_l/κ_{l-1} with κ_l = p + q·s²."""
    A, _, depth = case
    square = Fraction(A.item()) ** 2
    between = [p + q * square for p, q in (printed_weights(l, depth) for l in range(1, depth))]
    kappa = itertools.pairwise([Fraction(1), *between, square])
    excess = sum(b / a for a, b in kappa) - depth
    return at_most(excess, construction_rate(np.array([abs(A.item())]), depth), 8 * EPS)


def show_matrices(case: Any) -> str:
    if case is None or isinstance(case[0], Case):
        return ranks.show_pair(case)
    if isinstance(case[0], Fraction):
        return f"from fractions import Fraction\nc = Fraction('{case[0]}'), Fraction('{case[1]}')"
    return named("A, B")(case)


_STEEP = control(
    "slopes outside (−1, 1): σ(z) = 3z on the left",
    lambda: network([[[1.0]]] * 2, [[-1.0], [1.0]], slope=3.0),
)
_SIGNED = network([[[1.0]]], [[1.0], [-1.0]], biases=[[0.0]])
_DOMAIN = ("[0, 1]", "[−1, 1]")
_TWICE = (np.array([[2.0]]), np.ones((1, 1)))
"""A = (2) on the ray of 1."""


@cases.of_networks("Thm 3", networks, _STEEP)
def main(case: Case) -> Check:
    """R⁽¹⁾(f) ≥ 2 log|Jf(x)|₊ where rank Jf(x) = R⁽⁰⁾(f): ‖θ‖² − kL ≥ 2 log|Jf(x)|₊ for all θ, x
    and k = rank Jf(x).

    ‖θ‖² − kL against 2 log|Jf(x)|₊ with k = rank Jf(x), at each point.
    """
    norm, L, checks = case.squared_norm, case.net.depth, []
    spectra = [kept(J) for J in cases.jacobians(case)]
    for s in spectra:
        bound = first_bound(s)
        rounding = 64 * EPS * L * (1 + norm + abs(bound))
        checks.append(compare(norm - len(s) * L, ">=", bound, rounding))
    return worst(checks, rank=max(map(len, spectra)))


@cases.of_networks("Thm 3 (finite depth)", networks, _STEEP)
def finite(case: Case) -> Check:
    """‖θ‖² ≥ L‖Jf(x)‖^{2/L}_{2/L} = L Σ s_i(Jf(x))^{2/L}.

    ‖θ‖² against L‖Jf(x)‖^{2/L}_{2/L} at each point; singular values that are rounding are
    left out, for s^{2/L} would not be small.
    """
    norm, L = case.squared_norm, case.net.depth
    bounds = [linear_cost(kept(J), L) for J in cases.jacobians(case)]
    return compare(norm, ">=", max(bounds), 64 * EPS * L * (1 + norm), comparisons=len(bounds))


@cases.numeric(
    "Thm 3 (1)",
    matrix_pairs,
    control(
        "half of R⁽¹⁾(g)",
        lambda: (np.array([[2.0]]), np.array([[2.0]])),
        bound=lambda f, g: f * g**0.5,
    ),
    show=show_matrices,
    narrower=KNOWN,
)
def composition(case: Pair, bound: Bound = composed_determinant) -> Check:
    """R⁽¹⁾(f∘g) ≤ R⁽¹⁾(f) + R⁽¹⁾(g) when R⁽⁰⁾(f∘g) = R⁽⁰⁾(f) = R⁽⁰⁾(g).

    2 log|AB|₊ ≤ 2 log|A|₊ + 2 log|B|₊ where all three ranks agree, with equality when A is
    taken on the image of B alone.
    """
    if case is None:
        A = ranks.small_matrices((0, 1, 2))
        rank, square = ranks.small_rank(A), ranks.squared_determinant(A)
        both = A[:, None] @ A[None]
        agree = (rank[:, None] == rank[None]) & (ranks.small_rank(both) == rank[None])
        excess = ranks.squared_determinant(both) - bound(square[:, None], square[None])
        return ranks.largest(excess, agree, "the ranks do not agree", matrices="all over 0, 1, 2")
    A, B = case
    U = np.linalg.svd(B)[0][:, : len(kept(B))]
    spectra = [kept(M) for M in (A @ B, A, B, A @ U)]
    k = len(spectra[1])
    both, f, g, inner = map(first_bound, spectra)
    rounding = 64 * EPS * k * sum(float(s[0] / s[-1]) for s in spectra)
    return worst(
        [
            compare(both, "<=", math.log(bound(math.exp(f), math.exp(g))), rounding),
            compare(both, "=", inner + g, rounding),
        ],
        outside("the ranks do not agree", when=len(spectra[0]) != k),
        matrices=f"{len(A)} × {len(A)}",
        rank=k,
    )


@cases.numeric(
    "Thm 3 (1, lemma)",
    [
        (s, t, signed)
        for signed in (False, True)
        for s, t in itertools.product(map(Fraction, (1, "1/2", 2, 3)), repeat=2)
    ],
    control("a third of the right side", lambda: (Fraction(1), Fraction(1), False), share=1 / 3),
    show=lambda case: (
        "from fractions import Fraction\n"
        f"s, t = Fraction('{case[0]}'), Fraction('{case[1]}')  # f = s·x and g = t·x on "
        f"{_DOMAIN[case[2]]}"
    ),
    confirm=confirm_lemma,
)
def lemma(case: Lemma, share: float = 1.0) -> Check:
    """R(f∘g; L₁ + L₂) ≤ R(f; L₁) + R(g; L₂), from which the proof of (1) starts.

    The least ‖θ‖² with which two layers can represent x ↦ st·x is 2·s·t on [0, 1] and at least 2√2·st
    on [−1, 1]; R(f; 1) + R(g; 1) = s² + t².
    """
    s, t, signed = case
    left = 2 * float(s * t) * (math.sqrt(2) if signed else 1.0)
    right = share * float(s**2 + t**2)
    return at_most(left, right, 8 * EPS * right, domain=_DOMAIN[signed], slopes=f"{s}, {t}")


@lemma.amend(
    control("f = g = x on [−1, 1]: the ReLU between them cuts", lambda: (_SIGNED, _SIGNED)),
    cases=nonnegative_pairs,
    show=show_matrices,
)
def measure_stacked(case: tuple[Case, Case]) -> Check:
    """R(f∘g; L₁ + L₂) ≤ R(f; L₁) + R(g; L₂) when g(Ω) is completely positive: rotated into the
    orthant, it passes the ReLU.

    The stacked network is f∘g on the sample, and its norm is the sum of both.
    """
    f, g = case
    weights, biases = zip(*g.params, *f.params, strict=True)
    both = network(weights, g.x, biases=biases, kind="stacked")
    return _joined(
        both, f, g, cases.outputs(f, cases.outputs(g)), depths=f"{f.net.depth} + {g.net.depth}"
    )


def _joined(both: Case, f: Case, g: Case, wanted: np.ndarray, **said: Any) -> Check:
    """Whether the network is the wanted function and its norm the sum of both."""
    norm = both.squared_norm
    rounding = 64 * EPS * (1 + norm + float(np.abs(wanted).max()))
    return worst(
        [
            compare(norm, "=", f.squared_norm + g.squared_norm, 64 * EPS * (1 + norm)),
            compare(cases.missed(both, wanted), "=", 0.0, rounding),
        ],
        **said,
    )


@cases.numeric(
    "Thm 3 (2)",
    sums,
    control("ranks that do not add: f = g = x", lambda: (np.eye(1), np.eye(1))),
    show=show_matrices,
    confirm=confirm_constants,
)
def thm_3_2(case: Any) -> Check:
    """R⁽¹⁾(f + g) ≤ R⁽¹⁾(f) + R⁽¹⁾(g) when R⁽⁰⁾(f + g) = R⁽⁰⁾(f) + R⁽⁰⁾(g).

    Of constants, by the norm of explicit networks on the right; of linear maps.
    """
    if case is None:
        A = ranks.small_matrices((0, 1, 2))
        rank, square = ranks.small_rank(A), ranks.squared_determinant(A)
        both = A[:, None] + A[None]
        add = ranks.small_rank(both) == rank[:, None] + rank[None]
        most = composed_determinant(square[:, None], square[None])
        excess, all_pairs = ranks.squared_determinant(both) - most, "linear, all over 0, 1, 2"
        return ranks.largest(excess, add, "the ranks do not add", functions=all_pairs)
    if isinstance(case[0], Fraction):
        values = [float(c) for c in case]
        nets = [network([[[0.0]], [[0.0]]], [[0.0]], biases=[[0.0], [c]]) for c in values]
        assert all(cases.outputs(n).item() == c for n, c in zip(nets, values, strict=True))
        right = sum(n.squared_norm for n in nets)
        return at_most(constant_cost(sum(values)), right, functions="constants")
    spectra = [kept(M) for M in (case[0] + case[1], *case)]
    add = len(spectra[0]) == len(spectra[1]) + len(spectra[2])
    both, f, g = map(first_bound, spectra)
    rounding = 64 * EPS * (1 + float(spectra[0][0] / spectra[0][-1]))
    drops = outside("the ranks do not add", when=not add)
    return compare(both, "<=", f + g, rounding, drops=drops, functions="linear")


@thm_3_2.amend(
    control(
        "output biases: f = g = x + ½",
        lambda: (network([[[1.0]]] * 2, [[1.0]], biases=[[0.0], [0.5]]),) * 2,
    ),
    cases=no_output_bias,
    show=show_matrices,
)
def measure_parallel(case: Any) -> Check:
    """R⁽¹⁾(f + g) ≤ R⁽¹⁾(f) + R⁽¹⁾(g) when R⁽⁰⁾(f + g) = R⁽⁰⁾(f) + R⁽⁰⁾(g), for networks without
    output biases, whatever those of the hidden layers.

    Both networks side by side are f + g on all inputs, and their norms add.
    """
    if case is None or not isinstance(case[0], Case):
        return thm_3_2(case)
    f, g = case
    said = {"functions": "networks without output biases", "slope": f.slope}
    return _joined(ranks.added(f, g), f, g, cases.outputs(f) + cases.outputs(g), **said)


of_constructions = partial(
    cases.numeric,
    show=named("A, points, depth"),
    covers=lambda case: {
        "shape": str(case[0].shape),
        "rank": len(kept(case[0])),
        "depth": case[2],
    },
)


@of_constructions(
    "Thm 3 (3)",
    constructions,
    control(
        "a limit smaller by ½",
        lambda: (*_TWICE, 100),
        rate=lambda s, depth: construction_rate(s, depth) - 0.5,
    ),
)
def attained(case: Construction, rate: Rate = construction_rate) -> Check:
    """R⁽¹⁾(x ↦ Ax; Ω) = 2 log|A|₊ when P Ω and AΩ are completely positive of dimension rank A:
    the construction's ‖θ‖² − kL → 2 log|A|₊.

    The network of the proof equals x ↦ Ax on the cone, and ‖θ‖² − kL lies between 2 log|A|₊
    and the rate.
    """
    A, points, depth = case
    x = np.random.default_rng(0).uniform(size=(8, len(points))) @ points
    built = Case(*linear_construction(A, points, depth), x)
    s = kept(A)
    excess, rounding = built.squared_norm - len(s) * depth, construction_rounding(s, depth)
    return worst(
        [
            compare(cases.missed(built, x @ A.T), "=", 0.0, rounding),
            compare(excess, "<=", rate(s, depth), rounding),
            compare(excess, ">=", first_bound(s), rounding),
        ]
    )


@of_constructions(
    "Thm 3 (3, interpolation)",
    constructions,
    control(
        "a limit smaller by 2",
        lambda: (np.eye(1), np.ones((1, 1)), 3),
        rate=lambda s, depth: construction_rate(s, depth) - 2,
    ),
    confirm=confirm_interpolation,
)
def interpolation(
    case: Construction, rate: Rate = construction_rate, weights: Any = printed_weights
) -> Check:
    """With the kernels (l/L)P + (1 − l/L)AᵀA the construction's ‖θ‖² − kL tends to 2 log|A|₊
    (appendix, proof of (3)).
    """
    A, _, depth = case
    s = kept(A)
    excess = interpolation_norm(A, depth, weights) - len(s) * depth
    return compare(excess, "<=", rate(s, depth), construction_rounding(s, depth))


exchanged = interpolation.amend(
    control("the printed weights", lambda: (*_TWICE, 3), weights=printed_weights),
    weights=exchanged_weights,
)("With the kernels (1 − l/L)P + (l/L)AᵀA the construction's ‖θ‖² − kL tends to 2 log|A|₊.")
