"""`bottleneck`, the second correction: P 4 with its parts.   [bottleneck, Sec. 3.2]"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neuromanifold.bottleneck import cost_expansion, log_plus
from neuromanifold_papers.bottleneck.statements.cases import (
    EPS,
    compare,
    network,
    outputs,
    worst,
)
from neuromanifold_papers.bottleneck.statements.cost import (
    Spectrum,
    expansion,
    linear_cost,
    spectra,
    third_order,
    with_singular_values,
)
from neuromanifold_papers.bottleneck.statements.first import first_bound, kept
from neuromanifold_papers.bottleneck.statements.ranks import (
    small_matrices,
    small_rank,
    squared_determinant,
)
from neuromanifold_papers.check import Check, at_most, outside
from neuromanifold_papers.statement import control, statement

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
            with_singular_values(np.exp(rng.normal(size=k)), (d + more, k), index + n)
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
    s = np.linalg.svd(matrices, compute_uv=False)
    return 2 * np.sum(
        np.log(np.where(s > 1e-10 * s[..., :1], s, 1.0), where=s > 0, out=np.zeros_like(s)) ** 2,
        axis=-1,
    )


def _log_rounding(*matrices: np.ndarray) -> float:
    """What rounding does to log s through the eigenvalues of AᵀA: eps times the squared
    condition.
    """
    spectra = [kept(M) for M in matrices]
    return (
        64
        * EPS
        * sum(len(s) * float(s[0] / s[-1]) ** 2 * (1 + abs(math.log(s[-1]))) for s in spectra)
    )


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


def second_of_linear(A: np.ndarray, depth: int) -> float:
    """kL + 2 log|A|₊ + R⁽²⁾/L with R⁽²⁾ = ½‖log₊AᵀA‖²."""
    return expansion(A, depth)


def _show_pair(case: Pair) -> str:
    return (
        "all pairs of small matrices"
        if case is None
        else f"A, B = np.array({case[0].tolist()}), np.array({case[1].tolist()})"
    )


def _steep_sum() -> Pair:
    u = np.array([[math.cos(0.1)], [math.sin(0.1)]])
    return np.diag([1.0, 0.0]), u @ u.T


def _oblique() -> Pair:
    return np.array([[1.0, 0.0]]), np.array([[0.1], [math.sqrt(0.99)]])


@statement(
    "P 4",
    spectra,
    control(
        "the third correction has no sign: s = 1/5",
        lambda: ((0.2,), (1, 1), 0, 1),
        limit=lambda A: cost_expansion(A).r3,
    ),
    method="float64",
    show=repr,
    narrower=_LINEAR,
)
def measure_sign(case: Spectrum, limit: Callable[[np.ndarray], float] = second) -> Check:
    """R⁽²⁾(f) ≥ 0 where there is a limiting representation.

    L(R(A; L) − L·rank − 2 log|A|₊) ≥ 0, whose limit is R⁽²⁾, and R⁽²⁾ itself.
    """
    s, shape, seed, depth = case
    A, values = with_singular_values(s, shape, seed), np.array(s)
    correction = depth * (linear_cost(values, depth) - len(s) * depth - first_bound(values))
    rounding = 64 * EPS * depth**2 * (1 + linear_cost(values, depth))
    hypotheses = {"rank": len(s), "depth": depth}
    return worst(
        [compare(correction, ">=", 0.0, rounding), compare(limit(A), ">=", 0.0, 64 * EPS)],
        hypotheses,
    )


@statement(
    "P 4 (1)",
    invertible_pairs,
    control("R⁽¹⁾ does not add: (1, 0)·(0.1, √0.99)ᵀ", _oblique),
    method="float64",
    show=_show_pair,
    narrower=_LINEAR,
)
def measure_root(case: Pair) -> Check:
    """√R⁽²⁾(f∘g) ≤ √R⁽²⁾(f) + √R⁽²⁾(g) when the R⁽⁰⁾ agree and R⁽¹⁾ adds."""
    if case is None:
        A = small_matrices()[small_rank(small_matrices()) == 2].astype(float)
        values = _seconds(A)
        excess = np.sqrt(_seconds(A[:, None] @ A[None])) - composed_root(
            values[:, None], values[None]
        )
        hypotheses = {"matrices": "all invertible over −1, 0, 1"}
        return at_most(
            float(excess.max()), 0.0, 64 * EPS * 8, cases=excess.size, hypotheses=hypotheses
        )
    A, B = case
    hypotheses = {"matrices": f"{len(A)} × {len(A)}", "rank": len(kept(A))}
    left, right = (
        math.sqrt(second(A @ B)),
        float(composed_root(float(_seconds(A)), float(_seconds(B)))),
    )
    additive = abs(first_bound(kept(A @ B)) - first_bound(kept(A)) - first_bound(kept(B))) < 1e-8
    drops = outside("R⁽¹⁾ does not add", when=not additive)
    return compare(
        left, "<=", right, _log_rounding(A, B, A @ B), hypotheses=hypotheses, drops=drops
    )


@statement(
    "P 4 (2)",
    orthogonal_pairs,
    control("R⁽¹⁾ does not add: projections at an angle of 0.1", _steep_sum),
    method="float64",
    show=_show_pair,
    narrower=_LINEAR,
)
def measure_added_second(case: Pair) -> Check:
    """R⁽²⁾(f + g) ≤ R⁽²⁾(f) + R⁽²⁾(g) when R⁽⁰⁾ and R⁽¹⁾ add."""
    if case is None:
        A = small_matrices()
        rank, square, both = small_rank(A), squared_determinant(A), A[:, None] + A[None]
        adds = small_rank(both) == rank[:, None] + rank[None]
        adds &= squared_determinant(both) == square[:, None] * square[None]
        values = _seconds(A.astype(float))
        excess = (_seconds(both.astype(float)) - added_second(values[:, None], values[None]))[adds]
        drops = outside("R⁽⁰⁾ or R⁽¹⁾ does not add", parts=int((~adds).sum()))
        hypotheses = {"matrices": "all over −1, 0, 1"}
        return at_most(
            float(excess.max()),
            0.0,
            64 * EPS * 8,
            cases=len(excess),
            drops=drops,
            hypotheses=hypotheses,
        )
    A, B = case
    left, right = second(A + B), float(added_second(float(_seconds(A)), float(_seconds(B))))
    return compare(
        left,
        "<=",
        right,
        _log_rounding(A, B, A + B),
        hypotheses={"matrices": f"{len(A)} × {len(A)}"},
    )


@statement(
    "P 4 (3)",
    positive_maps,
    control(
        "twice R⁽²⁾",
        lambda: (np.array([[math.log(3.0)]]), np.eye(1), np.eye(1), 40),
        printed=lambda A, depth: second_of_linear(A, depth) + second(A) / depth,
    ),
    method="float64",
    show=lambda case: (
        f"B, Q, V, L = {case[0].tolist()}, {case[1].tolist()}, {case[2].tolist()}, {case[3]}"
    ),
)
def measure_second_of_linear(
    case: Positive, printed: Callable[[np.ndarray, int], float] = second_of_linear
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
    case_net = network(weights, x)
    s = np.exp(values)
    norm, condition = case_net.squared_norm, float(s.max() / s.min()) ** 2
    rounding = 64 * EPS * (1 + norm + condition) * depth
    missed = float(np.abs(outputs(case_net.net, case_net.params, x) - x @ A.T).max())
    return worst(
        [
            compare(missed, "=", 0.0, rounding),
            compare(norm, "=", linear_cost(s, depth), rounding),
            compare(abs(norm - printed(A, depth)), "<=", third_order(s, depth), rounding),
        ],
        {"rank": len(B), "depth": depth},
    )
