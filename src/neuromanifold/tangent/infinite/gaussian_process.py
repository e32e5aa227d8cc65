"""Gaussian-process regression with the kernels of infinitely wide networks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.models.arguments import Model, Samples, Targets
from neuromanifold.numerics.precision import arithmetic, in_float64, is_traced
from neuromanifold.numerics.results import Array, follows, show_record
from neuromanifold.numerics.validation import check_rtol, check_sample
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.infinite.kernels import nngp
from neuromanifold.tangent.infinite.quadrature import Quadrature

InfiniteKernel = Callable[..., Any]


class Posterior(NamedTuple):
    """Mean (m, *out) and covariance (m, m) of the outputs given the data, each output on its own;
    or its diagonal (m,) alone.

    `residual` is the relative residual of the linear systems behind them, `products` how many
    products with the kernel they took: 0 where it was factorised.
    """

    mean: Array
    covariance: Array
    residual: float
    products: int

    def __repr__(self) -> str:
        return show_record(self)

    @property
    def standard_deviation(self) -> np.ndarray:
        """Return the standard deviation at each sample."""
        variances = self.covariance if self.covariance.ndim == 1 else np.diagonal(self.covariance)
        return np.sqrt(np.maximum(variances, 0.0))


@follows
def gp_posterior(
    net: Model,
    x: Samples,
    y: Targets,
    other: Samples,
    *,
    noise_std: float = 0.0,
    kernel: InfiniteKernel = nngp,
    weight_std: Any = None,
    bias_std: Any = None,
    quadrature: Quadrature | None = None,
    diagonal: bool = False,
    memory: int | str | None = None,
    rtol: float = 1e-10,
) -> Posterior:
    """Return the outputs at `other` samples given y = f(x) + noise, for f drawn from the Gaussian
    process of `kernel`.

    K'(K + σ²)⁻¹y   and   K'' − K'(K + σ²)⁻¹K'ᵀ.

    `kernel` is `nm.nngp` (all layers of an infinitely wide network, sampled given the data) or
    `nm.infinite_ntk` (what training all layers converges to in the mean). K is factorised where
    three copies of it fit into `memory`; beyond that the systems are solved by conjugate gradients
    on blocks of the kernel that are computed anew in each step, to `rtol`. With `diagonal=True` the
    covariance is its diagonal alone, and K'' is never formed.

    `weight_std`, `bias_std` and `quadrature` are as for `infinite_ntk`.

    >>> line = nm.MLP((1, 1), bias=False)                    # f = wx with w ~ N(0, 1)
    >>> found = gp_posterior(line, np.array([[1.0]]), np.array([[2.0]]), np.array([[3.0]]), noise_std=1.0)
    >>> found.mean.tolist(), found.covariance.tolist()       # w given wx + ε = 2: mean 1, variance 1/2
    ([[3.0]], [[4.5]])
    """
    check_rtol(rtol)
    if not (np.isfinite(noise_std) and noise_std >= 0):
        raise ValueError(f"`noise_std` is {noise_std}; pass zero or a positive number.")
    x, y, other = (
        np.asarray(check_sample(v, n), np.float64)
        for v, n in ((x, "x"), (y, "y"), (other, "other"))
    )
    if len(x) != len(y):
        raise ValueError(
            f"`y` has {len(y)} samples but `x` has {len(x)}; pass one target for each sample."
        )
    covariance = partial(
        kernel, net, weight_std=weight_std, bias_std=bias_std, quadrature=quadrature, memory=memory
    )
    budget, shift = memory_budget(memory), float(noise_std) ** 2
    cross, prior = (
        covariance(other, x),
        covariance(other, **({"diagonal": True} if diagonal else {})),
    )
    right = np.concatenate([y.reshape(len(y), -1), cross.T], axis=1)
    if 3 * 8 * len(x) ** 2 <= budget:
        solved, residual, products = *_solve(covariance(x), right, shift), 0
    else:
        size = max(1, int((budget / 64) ** 0.5))
        solved, residual, products = BlockedKernel(covariance, x, size).solve(
            right, shift, rtol=rtol
        )
    weights, explained = (
        solved[:, : right.shape[1] - len(other)],
        solved[:, right.shape[1] - len(other) :],
    )
    spread = prior - (np.einsum("ij,ji->i", cross, explained) if diagonal else cross @ explained)
    mean = (cross @ weights).reshape(len(other), *y.shape[1:])
    return Posterior(mean, (spread + spread.T) / 2, residual, products)


def _solve(kernel: np.ndarray, right: np.ndarray, shift: float) -> tuple[np.ndarray, float]:
    from scipy.linalg import cho_solve

    shifted = kernel + shift * np.eye(len(kernel))
    factor = _cholesky(shifted)
    solved = cho_solve((factor, True), right)
    scale = np.maximum(np.linalg.norm(right, axis=0), np.finfo(np.float64).tiny)
    return solved, float((np.linalg.norm(shifted @ solved - right, axis=0) / scale).max())


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(matrix)[0])
        raise ValueError(
            f"`noise_std` is too small: the kernel plus noise has the eigenvalue {smallest:.1e}, "
            "so that samples nearly agree "
            "or exceed the degrees of freedom; raise it, or drop repeated samples."
        ) from None


def log_marginal_likelihood(
    net: Model,
    x: Samples,
    y: Targets,
    *,
    noise_std: Any = 0.0,
    kernel: InfiniteKernel = nngp,
    weight_std: Any = None,
    bias_std: Any = None,
    quadrature: Quadrature | None = None,
    memory: int | str | None = None,
) -> Float[Any, ""]:
    """Return log p(y | x) for y = f(x) + noise and f drawn from the Gaussian process of `kernel`,
    summed over independent outputs.

    −½ Σ_o y_oᵀ(K + σ²)⁻¹y_o − (o/2) log det(K + σ²) − (no/2) log 2π.

    `jax.grad` differentiates it by `weight_std`, `bias_std`, `noise_std` and the data: how to
    choose them.

    `quadrature` is as for `infinite_ntk`.

    >>> line = nm.MLP((1, 1), bias=False)
    >>> round(float(log_marginal_likelihood(line, np.array([[1.0]]), np.array([[0.0]]), noise_std=1.0)), 9)      # −½ log 4π
    -1.265512123
    """
    x, y = check_sample(x), check_sample(y, "y")
    if np.shape(x)[0] != np.shape(y)[0]:
        raise ValueError(
            f"`y` has {np.shape(y)[0]} samples but `x` has {np.shape(x)[0]}; pass one target for "
            "each sample."
        )

    def value(x: Any, y: Any, noise_std: Any, weight_std: Any, bias_std: Any) -> Any:
        found = kernel(
            net, x, weight_std=weight_std, bias_std=bias_std, quadrature=quadrature, memory=memory
        )
        return _log_likelihood(jnp.asarray(found), jnp.asarray(y), jnp.asarray(noise_std))

    arguments = (x, y, noise_std, weight_std, bias_std)
    with arithmetic():
        if is_traced(arguments):
            return in_float64(value, *arguments)
        found = float(
            value(*(jax.tree.map(lambda v: np.asarray(v, np.float64), a) for a in arguments))
        )
    if not np.isfinite(found):
        raise ValueError(
            f"`noise_std` is {noise_std}: the kernel plus noise is not positive definite to "
            "rounding; raise it, or drop repeated samples."
        )
    return found


@jax.jit
def _log_likelihood(kernel: Any, y: Any, noise_std: Any) -> Any:
    y = y.reshape(len(y), -1)
    factor = jnp.linalg.cholesky(kernel + noise_std**2 * jnp.eye(len(kernel)))
    half = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    outputs = y.shape[1]
    log_determinant = 2 * jnp.log(jnp.diagonal(factor)).sum()
    return -((half**2).sum() + outputs * log_determinant + y.size * jnp.log(2 * jnp.pi)) / 2


Kernel = Callable[..., np.ndarray]
_LANDMARKS = 256


class KernelSolution(NamedTuple):
    """X with (K + σ²)X = B, the largest relative residual of its columns, and how many products
    with K it took.
    """

    x: np.ndarray
    residual: float
    products: int


@dataclass(frozen=True, eq=False)
class BlockedKernel:
    """K(x, x) by blocks of `size` samples; `kernel(x1, x2)` computes one, and one on either side of
    the diagonal serves both.

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

    def solve(
        self, b: np.ndarray, shift: float, *, rtol: float, steps: int = 1000
    ) -> KernelSolution:
        """(K + shift)⁻¹ b by conjugate gradients, all columns at once, until every relative
        residual is below `rtol`.
        """
        precondition = self._preconditioner(shift)
        x, r = np.zeros_like(b), b.copy()
        z = precondition(r)
        p, rho = z, _dots(r, z)
        scale = np.maximum(np.linalg.norm(b, axis=0), np.finfo(np.float64).tiny)
        residual = np.inf
        for step in range(steps):
            residual = float((np.linalg.norm(r, axis=0) / scale).max())
            if residual <= rtol:
                return KernelSolution(x, residual, step)
            q = self @ p + shift * p
            alpha = _quotient(rho, _dots(p, q))
            x, r = x + alpha * p, r - alpha * q
            z = precondition(r)
            before, rho = rho, _dots(r, z)
            p = z + _quotient(rho, before) * p
        raise ArithmeticError(
            f"conjugate gradients have not reached `rtol` {rtol:.0e} in {steps} steps (residual "
            f"{residual:.0e}); "
            "raise `noise_std` or `rtol`, or give more `memory` so that the kernel is factorised."
        )

    def _preconditioner(self, shift: float) -> Callable[[np.ndarray], np.ndarray]:
        """(LLᵀ + δ)⁻¹ by Woodbury, with LLᵀ the Nyström approximation of K from a sample of
        landmarks.
        """
        from scipy.linalg import cho_factor, cho_solve, solve_triangular

        count = min(_LANDMARKS, len(self.x))
        chosen = np.sort(np.random.default_rng(0).permutation(len(self.x))[:count])
        landmarks = self.x[chosen]
        columns = np.concatenate(
            [
                np.asarray(self.kernel(self.x[p], landmarks), np.float64)
                for p in blocks(len(self.x), self.size)
            ]
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
