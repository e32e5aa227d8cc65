"""`riemann`, Sec 1.1, 2 and 4: products of matrices, their singular points, and the metric of
balanced factorisations.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.conserved import (
    balanced,
    balanced_cases,
    product_jacobian,
)
from neuromanifold_papers.statement import control


def small_matrices(rng: np.random.Generator, draws: int) -> Iterator[np.ndarray]:
    """All 2 × 2 and 2 × 3 matrices with entries −1, 0, 1; then 3 × 3 integer matrices of every
    rank.
    """
    for shape in ((2, 2), (2, 3)):
        listed = product((-1, 0, 1), repeat=shape[0] * shape[1])
        yield from (np.array(entries, object).reshape(shape) for entries in listed)
    for index in range(draws):
        q = index % 4
        yield (rng.integers(-5, 6, (3, q)) @ rng.integers(-5, 6, (q, 3))).astype(object)


def factored(W: np.ndarray, widths: tuple[int, ...]) -> list[np.ndarray]:
    """W = W_H⋯W_1 through hidden widths: its pivot columns times its reduced echelon form, the
    rest identities and zeros.
    """
    import flint

    reduced, q = flint.fmpq_mat([[int(e) for e in row] for row in W.tolist()]).rref()
    rows = np.array(reduced.tolist(), object)[:q]
    pivots = [int(np.flatnonzero(row)[0]) for row in rows]
    q = min(q, *widths)
    layers = [padded(rows[:q], (widths[0], W.shape[1]))]
    layers += [padded(np.eye(q, dtype=object), (b, a)) for a, b in pairwise(widths)]
    return [*layers, padded(W[:, pivots[:q]], (W.shape[0], widths[-1]))]


def padded(block: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The block in the upper left corner of zeros."""
    found = np.zeros(shape, int).astype(object)
    found[: block.shape[0], : block.shape[1]] = block
    return found


def _rank(W: np.ndarray) -> int:
    return exact.rank(W) if W.any() else 0


@exact.statement(
    "Sec 1.1 (rank ≤ r)",
    lambda rng, draws: (
        (W, widths)
        for W in small_matrices(rng, draws)
        for widths in ((1,), (2,), (3,), (1, 2), (2, 2), (3, 2))
        if _rank(W) <= min(widths)
    ),
    control(
        "the identity of ℝ² through one hidden neuron",
        lambda: (np.eye(2, dtype=int).astype(object), (1,)),
    ),
)
def image(case: Any) -> Check:
    """The products W_H⋯W_1 are all matrices of rank at most r = min(d_0, …, d_H) (called a
    manifold: it is one only for the largest r).
    """
    W, widths = case
    wrong = exact.differing(fs.end_to_end_matrix(factored(W, widths)), W)
    return equal(wrong, 0, rank=_rank(W), hidden_widths=str(widths))


def tangent_span(W: np.ndarray, r: int) -> int:
    """The dimension spanned by velocities of curves of rank ≤ r at W: ẆV + UV̇ for W = UV, and Z
    with rank(W + tZ) ≤ r for all t.

    A minor of W + tZ of order r + 1 is a polynomial of degree ≤ r + 1 in t: it vanishes for all t
    when it does for t = 0, …, r + 1.
    """
    m, n = W.shape
    V, U = factored(W, (r,))
    velocities = [np.outer(e, V[k]) for k in range(r) for e in np.eye(m, dtype=object)]
    velocities += [np.outer(U[:, k], e) for k in range(r) for e in np.eye(n, dtype=object)]
    for Z in exact.units(W):
        if all(not (W + t * Z).any() or exact.rank(W + t * Z) <= r for t in range(1, r + 2)):
            velocities.append(Z)
    return exact.rank(np.array([v.ravel() for v in velocities], object))


@exact.statement(
    "sing (dense)",
    lambda rng, draws: (
        (W, r) for W in small_matrices(rng, draws) for r in range(max(_rank(W), 1), min(W.shape))
    ),
    control(
        "r = 2 among 2 × 2 matrices, the largest possible",
        lambda: (np.zeros((2, 2), int).astype(object), 2),
    ),
)
def _singular(case: Any) -> Check:
    """Among matrices of rank at most r, r not the largest possible, exactly those of rank at most
    r − 1 are singular.

    Whether velocities span more than dim M = r(m + n − r) dimensions, against whether the
    rank is below r.
    """
    W, r = case
    q, singular = _rank(W), tangent_span(W, r) > r * (sum(W.shape) - r)
    return equal(int(singular), int(q < r), shape=str(W.shape), r=r, rank=q)


def tangents(W: np.ndarray, r: int) -> np.ndarray:
    """An orthonormal basis of T_W M_r = {UA + BVᵀ}, flattened row by row."""
    U, _, Vt = np.linalg.svd(W)
    kept = [(i, j) for i, j in np.ndindex(W.shape) if i < r or j < r]
    return np.array([np.outer(U[:, i], Vt[j]).ravel() for i, j in kept]).T


def _low_rank(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for m, n, depth in product((1, 2, 3), (1, 2, 3), (2, 3, 4)):
        for r in range(1, min(m, n) + 1):
            W = fs.end_to_end_matrix(balanced((n, r, m), r, rng))
            yield from ((scale * W, depth, r) for scale in (1.0, 1e-4))


@exact.in_float64(
    "Eq 6 (invertible)",
    _low_rank,
    control(
        "on all matrices, at a matrix of rank 1",
        lambda: (np.diag([1.0, 0.0]), 2, 1),
        space=lambda W, r: np.eye(W.size),
    ),
)
def invertible(case: Any, space: Callable[[np.ndarray, int], np.ndarray] = tangents) -> Check:
    """The restriction of A_W to the tangent space of the matrices of rank r is invertible, and
    positive: its inverse is a metric.

    The least eigenvalue of A_W on T_W M_r, relative to the largest.
    """
    W, depth, r = case
    basis = space(W, r)
    values = np.linalg.eigvalsh(basis.T @ fs.balanced_operator(W, depth).matrix @ basis)
    return at_least(float(values[0] / values[-1]), 1e-4, shape=str(W.shape), rank=r, H=depth)


@exact.in_float64(
    "Thm 14 (powers)",
    balanced_cases([*product((1, 2, 3), repeat=3), *product((1, 2), repeat=4)]),
    control(
        "the exponent (H − j)/H",
        lambda: (balanced((2, 2, 2), 2, np.random.default_rng(0)), (2, 2, 2), 2),
        shift=0,
    ),
    draws=20,
)
def powers(case: Any, shift: int = 1) -> Check:
    """Balanced weights of product W: W_H⋯W_j(W_H⋯W_j)ᵀ = (WWᵀ)^{(H−j+1)/H} for every j.

    (W_H⋯W_j)(W_H⋯W_j)ᵀ against (WWᵀ)^{(H−j+1)/H}, for all j.
    """
    params, widths, r = case
    depth, W = len(params), fs.end_to_end_matrix(params)
    U, s, _ = np.linalg.svd(W)
    gaps = []
    for j in range(1, depth + 1):
        tail = fs.end_to_end_matrix(params[j - 1 :])
        power = (U[:, :r] * s[:r] ** (2 * (depth - j + shift) / depth)) @ U[:, :r].T
        gaps.append(np.abs(tail @ tail.T - power).max() / np.abs(power).max())
    hypotheses = {"widths": str(widths), "rank": r}
    return equal(float(max(gaps)), 0.0, 1e3 * exact.EPS, comparisons=depth, hypotheses=hypotheses)


def balance_equations(params: Any) -> np.ndarray:
    """The rows of dΔ_l: Θ_0 has their kernel for its tangent space."""
    rows = []
    for l in range(len(params) - 1):
        for i, j in product(range(params[l].shape[0]), repeat=2):
            parts = [np.zeros(W.shape) for W in params]
            parts[l + 1][:, j] += params[l + 1][:, i]
            parts[l + 1][:, i] += params[l + 1][:, j]
            parts[l][j] -= params[l][i]
            parts[l][i] -= params[l][j]
            rows.append(np.concatenate([part.ravel() for part in parts]))
    return np.array(rows)


@exact.in_float64(
    "Thm 14 (metric)",
    lambda rng, draws: (
        (balanced((d,) * (H + 1), d, rng), (d,) * (H + 1), d)
        for d, H in product((1, 2, 3), (2, 3))
        for _ in range(2)
    ),
    control(
        "twice the pushforward",
        lambda: (balanced((2, 2, 2), 2, np.random.default_rng(0)), (2, 2, 2), 2),
        factor=2.0,
    ),
)
def quotient(case: Any, factor: float = 1.0) -> Check:
    """At balanced weights the inverse of the NTK is the Euclidean metric of Θ_0 pushed forward:
    the quotient metric of the orthogonal action.

    K⁻¹ on T_W against ‖θ̇‖² of the shortest θ̇ ∈ T_θΘ_0 over Ẇ: the quotient of the Euclidean
    metric by the orthogonal action.
    """
    params, widths, r = case
    J, equations = product_jacobian(params), balance_equations(params)
    spectrum = np.linalg.svd(equations)
    level = spectrum[2][(spectrum[1] > 1e-9).sum() :].T
    basis = tangents(fs.end_to_end_matrix(params), r)
    lifts = level @ np.linalg.lstsq(J @ level, basis, rcond=1e-9)[0]
    inverse = np.linalg.inv(basis.T @ fs.dense_kernel(params).matrix @ basis)
    gap = np.linalg.norm(factor * lifts.T @ lifts - inverse) / np.linalg.norm(inverse)
    return equal(float(gap), 0.0, 1e-9, widths=str(widths), rank=r)
