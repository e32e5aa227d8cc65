"""`bottleneck`, the second correction: P 4 with its parts.   [bottleneck, Sec. 3.2]"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neuromanifold.bottleneck import cost_expansion, log_plus
from neuromanifold_papers.bottleneck.statements import cases, cost, ranks
from neuromanifold_papers.bottleneck.statements.cases import EPS, compare, network, worst
from neuromanifold_papers.bottleneck.statements.first import first_bound, kept
from neuromanifold_papers.check import Check, outside
from neuromanifold_papers.statement import control, named

_LINEAR = "on functions whose R⁽²⁾ is known: linear maps"


def second(A: np.ndarray) -> float:
    """½‖log₊AᵀA‖²."""
    return float(np.sum(log_plus(A.T @ A, rtol=1e-10) ** 2)) / 2


Pair = tuple[np.ndarray, np.ndarray] | None


def invertible_pairs(rng: np.random.Generator, draws: int) -> Iterator[Pair]:
    """All pairs of invertible 2 × 2 matrices over −1, 0, 1 (`None`), then pairs that share the
    k-dimensional space between them.
    """
    yield None
    for index in range(4 * draws):
        d = 2 + index % 3
        k = int(rng.integers(1, d + 1))
        shared = np.linalg.qr(rng.normal(size=(d, k)))[0]
        f, g = (
            cost.with_singular_values(np.exp(rng.normal(size=k)), (d + more, k), index + n)
            for n, more in ((0, 0), (1000, 1))
        )
        yield f @ shared.T, shared @ g.T


def composed_root(f: Any, g: Any) -> Any:
    """What bounds √R⁽²⁾(f∘g), from R⁽²⁾(f) and R⁽²⁾(g)."""
    return np.sqrt(f) + np.sqrt(g)


def added_second(f: Any, g: Any) -> Any:
    """What bounds R⁽²⁾(f + g)."""
    return f + g


def _seconds(matrices: np.ndarray) -> Any:
    """½‖log₊AᵀA‖² = 2 Σ log² s of a stack of matrices."""
    s = np.linalg.svdvals(matrices)
    return 2 * np.sum(np.log(np.where((s > 1e-10 * s[..., :1]) & (s > 0), s, 1.0)) ** 2, axis=-1)


def _log_rounding(*matrices: np.ndarray) -> float:
    """What rounding does to log s through the eigenvalues of AᵀA: eps times the squared
    condition.
    """
    spectra = [kept(M) for M in matrices]
    lost = [len(s) * float(s[0] / s[-1]) ** 2 * (1 + abs(math.log(s[-1]))) for s in spectra]
    return 64 * EPS * sum(lost)


def orthogonal_pairs(rng: np.random.Generator, draws: int) -> Iterator[Pair]:
    """All pairs of 2 × 2 matrices over −1, 0, 1 (`None`), then pairs with orthogonal row and
    column spaces.
    """
    yield None
    for index in range(4 * draws):
        d = 2 + index % 3
        k = int(rng.integers(1, d))
        U, V = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
        s = np.exp(rng.normal(size=d))
        yield (U[:, :k] * s[:k]) @ V[:, :k].T, (U[:, k:] * s[k:]) @ V[:, k:].T


Positive = tuple[np.ndarray, np.ndarray, np.ndarray, int]


def positive_maps(rng: np.random.Generator, draws: int) -> Iterator[Positive]:
    """(B, Q, V, L): A = Q exp(B) Vᵀ with exp(pB) ≥ 0 for every p, on the cone V·orthant, so that
    every AᵖΩ is completely positive.
    """
    for b, L in itertools.product((-1.0, 0.0, 0.7), (1, 2, 5, 40)):
        yield np.array([[b]]), np.eye(1), np.eye(1), L
    for index in range(draws):
        k = 1 + index % 3
        d = k + index % 2
        B = rng.uniform(0, 0.5, size=(k, k))
        B = (B + B.T) / 2 + np.diag(rng.uniform(-1, 1, size=k))
        Q, V = (np.linalg.qr(rng.normal(size=(d, k)))[0] for _ in range(2))
        yield B, Q, V, int(rng.integers(2, 40))


def _show_pair(case: Pair) -> str:
    return "every pair of small matrices" if case is None else named("A, B")(case)


_TURNED = np.array([[math.cos(0.1)], [math.sin(0.1)]])


@cases.numeric(
    "P 4",
    cost.spectra,
    control(
        "the third correction has no sign: s = 1/5",
        lambda: ((0.2,), (1, 1), 0, 1),
        limit=lambda A: cost_expansion(A).r3,
    ),
    show=repr,
    narrower=_LINEAR,
)
def measure_sign(case: cost.Spectrum, limit: Callable[[np.ndarray], float] = second) -> Check:
    """R⁽²⁾(f) ≥ 0 where there is a limiting representation.

    L(R(A; L) − L·rank − 2 log|A|₊) ≥ 0, whose limit is R⁽²⁾, and R⁽²⁾ itself.
    """
    s, shape, seed, depth = case
    A, values = cost.with_singular_values(s, shape, seed), np.array(s)
    found = cost.linear_cost(values, depth)
    correction = depth * (found - len(s) * depth - first_bound(values))
    rounding = 64 * EPS * depth**2 * (1 + found)
    return worst(
        [compare(correction, ">=", 0.0, rounding), compare(limit(A), ">=", 0.0, 64 * EPS)],
        rank=len(s),
        depth=depth,
    )


@cases.numeric(
    "P 4 (1)",
    invertible_pairs,
    control(
        "R⁽¹⁾ does not add: (1, 0)·(0.1, √0.99)ᵀ",
        lambda: (np.array([[1.0, 0.0]]), np.array([[0.1], [math.sqrt(0.99)]])),
        passes=lambda: (np.diag([2.0, 1.0]), np.diag([1.0, 3.0])),
    ),
    show=_show_pair,
    narrower=_LINEAR,
)
def measure_root(case: Pair) -> Check:
    """√R⁽²⁾(f∘g) ≤ √R⁽²⁾(f) + √R⁽²⁾(g) when the R⁽⁰⁾ agree and R⁽¹⁾ adds."""
    if case is None:
        A = ranks.small_matrices()
        A = A[ranks.small_rank(A) == 2].astype(float)
        values, roots = _seconds(A), np.sqrt(_seconds(A[:, None] @ A[None]))
        excess = roots - composed_root(values[:, None], values[None])
        return ranks.largest(
            excess, tolerance=64 * EPS * 8, matrices="all invertible over −1, 0, 1"
        )
    A, B = case
    left, right = math.sqrt(second(A @ B)), float(composed_root(_seconds(A), _seconds(B)))
    additive = abs(first_bound(kept(A @ B)) - first_bound(kept(A)) - first_bound(kept(B))) < 1e-8
    drops, rounding = outside("R⁽¹⁾ does not add", when=not additive), _log_rounding(A, B, A @ B)
    said = {"matrices": f"{len(A)} × {len(A)}", "rank": len(kept(A))}
    return compare(left, "<=", right, rounding, drops=drops, **said)


@cases.numeric(
    "P 4 (2)",
    orthogonal_pairs,
    control(
        "R⁽¹⁾ does not add: projections at an angle of 0.1",
        lambda: (np.diag([1.0, 0.0]), _TURNED @ _TURNED.T),
    ),
    show=_show_pair,
    narrower=_LINEAR,
)
def measure_added_second(case: Pair) -> Check:
    """R⁽²⁾(f + g) ≤ R⁽²⁾(f) + R⁽²⁾(g) when R⁽⁰⁾ and R⁽¹⁾ add."""
    if case is None:
        A = ranks.small_matrices()
        rank, square, both = ranks.small_rank(A), ranks.squared_determinant(A), A[:, None] + A[None]
        adds = ranks.small_rank(both) == rank[:, None] + rank[None]
        adds &= ranks.squared_determinant(both) == square[:, None] * square[None]
        values = _seconds(A.astype(float))
        excess = _seconds(both.astype(float)) - added_second(values[:, None], values[None])
        reason, said = "R⁽⁰⁾ or R⁽¹⁾ does not add", {"matrices": "all over −1, 0, 1"}
        return ranks.largest(excess, adds, reason, 64 * EPS * 8, **said)
    A, B = case
    left, right = second(A + B), float(added_second(_seconds(A), _seconds(B)))
    rounding = _log_rounding(A, B, A + B)
    return compare(left, "<=", right, rounding, matrices=f"{len(A)} × {len(A)}")


@cases.numeric(
    "P 4 (3)",
    positive_maps,
    control(
        "twice R⁽²⁾",
        lambda: (np.array([[math.log(3.0)]]), np.eye(1), np.eye(1), 40),
        printed=lambda A, depth: cost.expansion(A, depth) + second(A) / depth,
    ),
    show=named("B, Q, V, L"),
)
def measure_second_of_linear(
    case: Positive, printed: Callable[[np.ndarray, int], float] = cost.expansion
) -> Check:
    """R⁽²⁾(x ↦ Ax; Ω) = ½‖log₊AᵀA‖² when AᵖΩ is completely positive of dimension rank A for all p
    in [0, 1].

    The balanced factors A^{1/L} stay nonnegative on Ω, so a ReLU network has the cost of the
    linear one, whose 1/L term is R⁽²⁾.
    """
    B, Q, V, depth = case
    values, basis = np.linalg.eigh(B)
    root = (basis * np.exp(values / depth)) @ basis.T
    weights = [root] * depth
    weights[0], weights[-1] = weights[0] @ V.T, Q @ weights[-1]
    if depth == 1:
        weights = [Q @ root @ V.T]
    A = Q @ (basis * np.exp(values)) @ basis.T @ V.T
    x = np.random.default_rng(0).uniform(size=(6, len(B))) @ V.T
    built, s = network(weights, x), np.exp(values)
    norm, condition = built.squared_norm, float(s.max() / s.min()) ** 2
    rounding = 64 * EPS * (1 + norm + condition) * depth
    return worst(
        [
            compare(cases.missed(built, x @ A.T), "=", 0.0, rounding),
            compare(norm, "=", cost.linear_cost(s, depth), rounding),
            compare(abs(norm - printed(A, depth)), "<=", cost.third_order(s, depth), rounding),
        ],
        rank=len(B),
        depth=depth,
    )
