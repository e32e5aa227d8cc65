"""Extreme eigenvalues of a symmetric operator that is only known by its products: thick-restart
Lanczos on the device.

matfree 0.6.3 has no restarts, so that the number of products must be known. Of 20 eigenvalues 1e-3
apart among 2,000 the largest eight are off by 0.1 after its 48 products, and as accurate as here
after 192, in 3.8 times the time; of a kernel (10-64-64-1, N = 512), whose eigenvalues fall quickly,
48 are enough and take as long as this (two cores, 19 November 2026).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.numerics.compiling import compiled

_LARGEST_BASIS = 48
_MOST_RESTARTS = 200


@dataclass(frozen=True)
class MatrixProduct:
    """v ↦ fn(*static, *arguments, v) as a hashable object, so that one compilation serves all
    `arguments` of a shape.
    """

    fn: Callable[..., Any]
    static: tuple[Any, ...] = ()

    def __call__(self, arguments: tuple[Any, ...], v: Any) -> Any:
        return self.fn(*self.static, *arguments, v)


class Eigenpairs(NamedTuple):
    """Eigenvalues, the wanted end of the spectrum first, with unit vectors and the norms
    ‖Av − λv‖, which bound each error.
    """

    values: Float[Any, " k"]
    vectors: Float[Any, "k size"]
    residuals: Float[Any, " k"]


class _State(NamedTuple):
    """The basis (one row more than the projected operator `H` has), how much of it is kept, and
    what was found last.
    """

    V: Any
    H: Any
    key: Any
    start: Any
    restarts: Any
    pairs: Eigenpairs
    open: Any


def largest_eigenpairs(
    product: MatrixProduct,
    arguments: tuple[Any, ...],
    size: int,
    k: int,
    *,
    rtol: float = 0.0,
    signed: bool = False,
    dtype: Any = jnp.float64,
    key: Any = None,
) -> Eigenpairs:
    """Return the `k` eigenpairs of largest magnitude of a symmetric operator of that size, or with
    `signed=True` those of largest value, once ‖Av − λv‖ ≤ rtol·‖A‖.

    `rtol=0` asks for what the dtype allows. Works under `jit`. An operator that is zero has
    eigenvalues 0.

    >>> diagonal = MatrixProduct(lambda d, v: d * v)
    >>> with jax.enable_x64(True):
    ...     found = largest_eigenpairs(diagonal, (jnp.arange(1.0, 101.0),), 100, 2)
    >>> found.values.round(10).tolist()
    [100.0, 99.0]
    >>> with jax.enable_x64(True):
    ...     found = largest_eigenpairs(diagonal, (jnp.arange(-100.0, 4.0),), 104, 2, signed=True)
    >>> found.values.round(10).tolist()
    [3.0, 2.0]
    """
    if not 1 <= k <= size:
        raise ValueError(f"`k` is {k} but the operator has size {size}; pass 1 ≤ k ≤ {size}.")
    key = jax.random.key(0) if key is None else key
    basis = min(size, max(_LARGEST_BASIS, 2 * k + 16))
    tolerance = max(rtol, 64 * float(jnp.finfo(dtype).eps))
    return _solve(
        product,
        arguments,
        key,
        size=size,
        k=k,
        basis=basis,
        rtol=tolerance,
        signed=signed,
        dtype=jnp.dtype(dtype).name,
    )


@compiled("product", "size", "k", "basis", "rtol", "signed", "dtype")
def _solve(
    product: MatrixProduct,
    arguments: Any,
    key: Any,
    *,
    size: int,
    k: int,
    basis: int,
    rtol: float,
    signed: bool,
    dtype: str,
) -> Eigenpairs:
    if basis == size:
        return _dense(product, arguments, size, k, signed, dtype)
    first = _random(key, size, dtype)
    V = jnp.zeros((basis + 1, size), dtype).at[0].set(first / jnp.linalg.norm(first))
    none = Eigenpairs(jnp.zeros(k, dtype), jnp.zeros((k, size), dtype), jnp.full(k, jnp.inf, dtype))
    state = _State(
        V, jnp.zeros((basis, basis), dtype), key, jnp.int32(0), jnp.int32(0), none, jnp.bool_(True)
    )
    cycle = partial(
        _cycle, product, arguments, k=k, kept=k + (basis - k) // 2, rtol=rtol, signed=signed
    )
    return jax.lax.while_loop(lambda s: s.open & (s.restarts < _MOST_RESTARTS), cycle, state).pairs


def _dense(
    product: MatrixProduct, arguments: Any, size: int, k: int, signed: bool, dtype: str
) -> Eigenpairs:
    """The matrix itself, where a basis of the whole space is no larger than a basis of Lanczos."""
    matrix = jax.vmap(lambda v: product(arguments, v))(jnp.eye(size, dtype=dtype)).astype(dtype)
    values, S = jnp.linalg.eigh((matrix + matrix.T) / 2)
    order = _order(values, signed)[:k]
    rounding = size * jnp.finfo(dtype).eps * jnp.abs(values).max()
    return Eigenpairs(values[order], S[:, order].T, jnp.full(k, rounding))


def _order(values: Any, signed: bool) -> Any:
    """Sort by value or by magnitude, the largest first."""
    return jnp.argsort(-(values if signed else jnp.abs(values)))


def _cycle(
    product: MatrixProduct,
    arguments: Any,
    state: _State,
    *,
    k: int,
    kept: int,
    rtol: float,
    signed: bool,
) -> _State:
    """Fill the basis, take Ritz pairs, and keep the best of them for the next cycle."""
    basis = len(state.H)
    key, drawn = jax.random.split(state.key)
    step = partial(_step, product, arguments, drawn)
    V, H, beta = jax.lax.fori_loop(
        state.start, basis, step, (state.V, state.H, jnp.zeros((), state.V.dtype))
    )
    values, S = jnp.linalg.eigh((H + H.T) / 2)
    order = _order(values, signed)
    values, S = values[order], S[:, order]
    ritz = S.T @ V[:basis]
    residuals = beta * jnp.abs(S[-1])
    pairs = Eigenpairs(values[:k], ritz[:k], residuals[:k])
    rows = jnp.zeros_like(V).at[:kept].set(ritz[:kept]).at[kept].set(V[basis])
    H = jnp.diag(jnp.where(jnp.arange(basis) < kept, values, 0.0))
    unsettled = (residuals[:k] > rtol * jnp.abs(values).max()).any()
    return _State(rows, H, key, jnp.int32(kept), state.restarts + 1, pairs, unsettled)


def _step(
    product: MatrixProduct, arguments: Any, key: Any, j: Any, carry: tuple[Any, Any, Any]
) -> tuple[Any, Any, Any]:
    """One product, orthogonalised twice against the whole basis. Where nothing is left, a random
    direction goes on.
    """
    V, H, _ = carry
    w = product(arguments, V[j]).astype(V.dtype)
    coefficients, size = V[:-1] @ w, jnp.linalg.norm(w)
    w = _orthogonal(V, w)
    beta = jnp.linalg.norm(w)
    ends = beta <= 8 * jnp.finfo(V.dtype).eps * size
    fresh = _orthogonal(V, _random(jax.random.fold_in(key, j), w.size, w.dtype) / w.size**0.5)
    w = jnp.where(ends, fresh, w)
    length = jnp.linalg.norm(w)
    w = jnp.where(
        length > 1e-8 * jnp.where(ends, 1.0, beta), w / jnp.where(length > 0, length, 1.0), 0.0
    )
    H = H.at[:, j].set(coefficients).at[j].set(coefficients)
    return V.at[j + 1].set(w), H, jnp.where(ends, 0.0, beta)


def _random(key: Any, size: int, dtype: Any) -> Any:
    """A random direction. Its bits are those of float32: a program with 64-bit ones cannot be
    lowered in a caller's `jit` while JAX's x64 flag is off.
    """
    return jax.random.normal(key, (size,), np.float32).astype(dtype)


def _orthogonal(V: Any, w: Any) -> Any:
    for _ in range(2):
        w = w - V.T @ (V @ w)
    return w
