"""Eigenvalues and linear systems of a symmetric matrix that is read from a disk: few passes,
many vectors in each.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.numerics.lanczos import Eigenpairs
from neuromanifold.numerics.validation import check_rtol

Product = Callable[[np.ndarray], np.ndarray]
_MOST_PASSES = 200
_LARGEST_BASIS = 16


class Solution(NamedTuple):
    """x with Ax = b, the norms ‖Ax − b‖/‖b‖ of its columns, and how many passes it took."""

    x: np.ndarray
    residuals: np.ndarray
    passes: int


def largest_eigenpairs(
    product: Product, size: int, k: int, *, rtol: float = 1e-10, block: int | None = None
) -> Eigenpairs:
    """The `k` eigenpairs of largest magnitude by blocked Lanczos with thick restarts, until ‖Av −
    λv‖ ≤ rtol·|λ_max|.

    One pass multiplies `block` vectors (by default k + 4). Ritz pairs of the whole basis,
    orthogonalised twice; the residual norms are those of the pairs themselves and not estimates.

    >>> found = largest_eigenpairs(lambda v: np.arange(1.0, 101.0)[:, None] * v, 100, 2)
    >>> found.values.round(9).tolist()
    [100.0, 99.0]
    """
    check_rtol(rtol)
    if not 1 <= k <= size:
        raise ValueError(f"`k` is {k} but the matrix has {size} rows; pass 1 ≤ k ≤ {size}.")
    rng, block = np.random.default_rng(0), min(block or k + 4, size)
    Q = np.linalg.qr(rng.standard_normal((size, block)))[0]
    AQ = product(Q)
    values, vectors, residuals = np.zeros(0), Q[:, :0], np.zeros(0)
    for _ in range(_MOST_PASSES):
        values, S = np.linalg.eigh((Q.T @ AQ + AQ.T @ Q) / 2)
        order = np.argsort(-np.abs(values))
        values, S = values[order], S[:, order]
        vectors, images = Q @ S[:, :k], AQ @ S[:, :k]
        residuals = np.linalg.norm(images - vectors * values[:k], axis=0)
        if (residuals <= rtol * np.abs(values[0])).all() or Q.shape[1] == size:
            break
        following = _following(Q, AQ, S[:, :block], values[:block], rng)
        if Q.shape[1] + block > _LARGEST_BASIS * block:
            Q, AQ = Q @ S[:, : 2 * block], AQ @ S[:, : 2 * block]
        Q, AQ = np.hstack([Q, following]), np.hstack([AQ, product(following)])
    return Eigenpairs(values[:k], vectors.T, residuals)


def _following(
    Q: np.ndarray, AQ: np.ndarray, S: np.ndarray, values: np.ndarray, rng: Any
) -> np.ndarray:
    """The residuals of the best pairs, orthogonal to the basis; where nothing is left of one, a
    random direction.
    """
    W = AQ @ S - (Q @ S) * values
    sizes = np.linalg.norm(W, axis=0)
    spent = sizes <= 64 * np.finfo(np.float64).eps * np.abs(values[0])
    W = np.where(spent, rng.standard_normal(W.shape), W / np.where(spent, 1.0, sizes))
    W = W[:, : Q.shape[0] - Q.shape[1]]
    for _ in range(2):
        W = np.linalg.qr(W - Q @ (Q.T @ W))[0]
    return W


def solve(
    product: Product,
    b: np.ndarray,
    *,
    precondition: Product = lambda r: r,
    rtol: float = 1e-8,
    passes: int = 500,
) -> Solution:
    """Ax = b for positive definite A by preconditioned conjugate gradients, all columns of `b` in
    one pass.

    A column that has converged stands still. Ends after `passes` passes; `residuals` say how far it
    came.

    >>> solve(lambda v: 2.0 * v, np.ones((3, 1))).x.ravel().tolist()
    [0.5, 0.5, 0.5]
    """
    check_rtol(rtol)
    x, r = np.zeros_like(b), b.copy()
    scale = np.linalg.norm(b, axis=0)
    z = precondition(r)
    p, rz, count = z.copy(), (r * z).sum(axis=0), 0
    while count < passes and (open_ := np.linalg.norm(r, axis=0) > rtol * scale).any():
        Ap, count = product(p), count + 1
        curvature = (p * Ap).sum(axis=0)
        step = np.where(open_ & (curvature > 0), rz / np.where(curvature > 0, curvature, 1.0), 0.0)
        x, r = x + step * p, r - step * Ap
        z = precondition(r)
        rz, before = (r * z).sum(axis=0), rz
        p = z + np.where(before > 0, rz / np.where(before > 0, before, 1.0), 0.0) * p
    left = np.linalg.norm(product(x) - b, axis=0) / np.where(scale > 0, scale, 1.0)
    return Solution(x, left, count + 1)
