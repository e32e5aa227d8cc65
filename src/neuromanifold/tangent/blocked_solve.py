"""Linear systems with a kernel that is never held: products block by block, conjugate gradients, a Nyström preconditioner."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.numerics.memory import blocks

Kernel = Callable[..., np.ndarray]
_LANDMARKS = 256


class Solution(NamedTuple):
    """X with (K + σ²)X = B, the largest relative residual of its columns, and how many products with K it took."""

    x: np.ndarray
    residual: float
    products: int


@dataclass(frozen=True, eq=False)
class BlockedKernel:
    """K(x, x) by blocks of `size` samples; `kernel(x1, x2)` computes one, and one on either side of the diagonal serves both.

    >>> it = BlockedKernel(lambda a, b: a @ b.T, np.array([[1.0], [2.0], [3.0]]), 2)
    >>> (it @ np.ones((3, 1))).ravel().tolist()
    [6.0, 12.0, 18.0]
    """

    kernel: Kernel
    x: Any
    size: int

    def __matmul__(self, v: np.ndarray) -> np.ndarray:
        total = np.zeros_like(v)
        parts = list(blocks(len(self.x), self.size))
        for i, rows in enumerate(parts):
            for columns in parts[i:]:
                block = np.asarray(self.kernel(self.x[rows], self.x[columns]), np.float64)
                total[rows] += block @ v[columns]
                if rows != columns:
                    total[columns] += block.T @ v[rows]
        return total

    def solve(self, b: np.ndarray, shift: float, *, rtol: float, steps: int = 1000) -> Solution:
        """(K + shift)⁻¹ b by conjugate gradients, all columns at once, until every relative residual is below `rtol`."""
        precondition = self._preconditioner(shift)
        x, r = np.zeros_like(b), b.copy()
        z = precondition(r)
        p, rho = z, _dots(r, z)
        scale = np.maximum(np.linalg.norm(b, axis=0), np.finfo(np.float64).tiny)
        residual = np.inf
        for step in range(steps):
            residual = float((np.linalg.norm(r, axis=0) / scale).max())
            if residual <= rtol:
                return Solution(x, residual, step)
            q = self @ p + shift * p
            alpha = _quotient(rho, _dots(p, q))
            x, r = x + alpha * p, r - alpha * q
            z = precondition(r)
            before, rho = rho, _dots(r, z)
            p = z + _quotient(rho, before) * p
        raise ArithmeticError(
            f"conjugate gradients have not reached `rtol` {rtol:.0e} in {steps} steps (residual {residual:.0e}); "
            "raise `noise_std` or `rtol`, or give more `memory` so that the kernel is factorised."
        )

    def _preconditioner(self, shift: float) -> Callable[[np.ndarray], np.ndarray]:
        """(LLᵀ + δ)⁻¹ by Woodbury, with LLᵀ the Nyström approximation of K from a sample of landmarks."""
        from scipy.linalg import cho_factor, cho_solve, solve_triangular

        count = min(_LANDMARKS, len(self.x))
        chosen = np.sort(np.random.default_rng(0).permutation(len(self.x))[:count])
        landmarks = self.x[chosen]
        columns = np.concatenate(
            [np.asarray(self.kernel(self.x[p], landmarks), np.float64) for p in blocks(len(self.x), self.size)]
        )
        core = columns[chosen]
        level = np.trace(core) / count
        core = core + 1e-10 * level * np.eye(count)
        low = solve_triangular(np.linalg.cholesky(core), columns.T, lower=True).T
        delta = max(shift, 1e-8 * level)
        inner = cho_factor(delta * np.eye(count) + low.T @ low)
        return lambda r: (r - low @ cho_solve(inner, low.T @ r)) / delta


def _dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=0)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a/b, 0 for a column that is solved already."""
    return np.where(b != 0, a / np.where(b != 0, b, 1.0), 0.0)
