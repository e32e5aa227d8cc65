"""Operations that sum up, along some axes or all."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import (
    Table,
    axes,
    quotient,
    table,
    with_slopes,
)
from neuromanifold.models.adapters.torch.operations.elementwise import sign


def reduce_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """ATen's signature (x, dim=None, keepdim=False) for a function of JAX's."""

    def operation(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        x = x if dtype is None else jnp.asarray(x, dtype)
        return function(x, axis=axes(dim, x.ndim), keepdims=keepdim)

    return operation


def whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """ATen's signature (x, dtype=None): over all axes."""
    return lambda x, dtype=None: reduce_by(function)(x, dtype=dtype)


def variance(x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    """Σ (x − mean)² / (n − correction)."""
    return jnp.var(
        x, axis=axes(dim, x.ndim), ddof=1 if correction is None else correction, keepdims=keepdim
    )


_root = with_slopes(jnp.sqrt, lambda y, x: quotient(0.5, y))


def deviation(x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    """The root of the variance; where it is zero, so is its derivative."""
    return _root(variance(x, dim, correction, keepdim))


def variance_and_mean(
    x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Any, Any]:
    """The variance and the mean."""
    return variance(x, dim, correction, keepdim), reduce_by(jnp.mean)(x, dim, keepdim)


def deviation_and_mean(
    x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Any, Any]:
    """The root of the variance, and the mean."""
    return deviation(x, dim, correction, keepdim), reduce_by(jnp.mean)(x, dim, keepdim)


def with_unbiased_flag(function: Callable[..., Any]) -> Callable[..., Any]:
    """The older signatures, in which a flag says whether one is subtracted."""
    return lambda x, dim=None, unbiased=True, keepdim=False: function(
        x, dim, int(unbiased), keepdim
    )


def norm(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """(Σ |x|^p)^(1/p) over these axes; its derivative is zero where it is zero."""
    x = x if dtype is None else jnp.asarray(x, dtype)
    over = axes(dim, x.ndim)
    y = _norm(x, 2.0 if order is None else float(order), over)
    return y if keepdim else jnp.squeeze(y, over)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _norm(x: Any, order: float, over: tuple[int, ...]) -> Any:
    if order == 2:
        return jnp.sqrt(jnp.sum(jnp.real(x * jnp.conj(x)), over, keepdims=True))
    size = jnp.abs(x)
    if math.isinf(order):
        return (jnp.max if order > 0 else jnp.min)(size, over, keepdims=True)
    if order == 0:
        return jnp.sum(size != 0, over, keepdims=True).astype(size.dtype)
    total = jnp.sum(size if order == 1 else size**order, over, keepdims=True)
    return total if order == 1 else total ** (1 / order)


@_norm.defjvp
def _norm_derivative(
    order: float, over: tuple[int, ...], primals: tuple[Any], tangents: tuple[Any]
) -> tuple[Any, Any]:
    """Σ s dx with s = sgn(x) (|x|/‖x‖)^(p−1); of several largest entries each has its share."""
    (x,), (dx,) = primals, tangents
    y = _norm(x, order, over)
    if order == 2:
        slope = quotient(x, y)
    elif math.isinf(order):
        ties = jnp.abs(x) == y
        slope = sign(x) * ties / jnp.sum(ties, over, keepdims=True)
    elif order == 0:
        slope = jnp.zeros_like(x)
    else:
        share = quotient(jnp.abs(x), y)
        share = jnp.where(share == 0, 0.0, jnp.where(share == 0, 1.0, share) ** (order - 1))
        slope = sign(x) * share
    return y, jnp.sum(jnp.real(jnp.conj(slope) * dx), over, keepdims=True)


def distances(a: Any, b: Any, order: float = 2.0, mode: Any = None) -> Any:
    """‖aᵢ − bⱼ‖ for rows of two matrices."""
    return norm(a[..., :, None, :] - b[..., None, :, :], order, -1)


def extreme(position: Callable[..., Any]) -> Callable[..., Any]:
    """(values, indices) along one axis; the derivative goes to the index that was found."""

    def operation(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        index = position(x, axis=dim, keepdims=True)
        value = jnp.take_along_axis(x, index, axis=dim)
        return (value, index) if keepdim else (jnp.squeeze(value, dim), jnp.squeeze(index, dim))

    return operation


def position(function: Callable[..., Any]) -> Callable[..., Any]:
    """The index of an extreme value, of the flattened array where no axis is named."""
    return lambda x, dim=None, keepdim=False: function(x, axis=dim, keepdims=keepdim)


def sort(x: Any, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    """(values, indices)."""
    index = jnp.argsort(x, axis=dim, descending=descending)
    return jnp.take_along_axis(x, index, axis=dim), index


def topk(
    x: Any, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True
) -> tuple[Any, Any]:
    """The k extreme entries along an axis, in order, and where they stand."""
    values, index = sort(x, dim, largest)
    return jax.lax.slice_in_dim(values, 0, k, axis=dim), jax.lax.slice_in_dim(index, 0, k, axis=dim)


def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """exp xᵢ / Σ exp xⱼ."""
    return jax.nn.softmax(x if dtype is None or dtype is False else jnp.asarray(x, dtype), axis=dim)


def log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """xᵢ − log Σ exp xⱼ."""
    return jax.nn.log_softmax(
        x if dtype is None or dtype is False else jnp.asarray(x, dtype), axis=dim
    )


def cumulative(function: Callable[..., Any]) -> Callable[..., Any]:
    """Running sums and products."""
    return lambda x, dim, dtype=None: function(
        x if dtype is None else jnp.asarray(x, dtype), axis=dim
    )


REDUCTION: Table = table(
    {
        "sum.default": whole(jnp.sum),
        "sum.dim_IntList": reduce_by(jnp.sum),
        "mean.default": whole(jnp.mean),
        "mean.dim": reduce_by(jnp.mean),
        "prod.default": whole(jnp.prod),
        "prod.dim_int": reduce_by(jnp.prod),
        "amax.default": reduce_by(jnp.max),
        "amin.default": reduce_by(jnp.min),
        "max.default": whole(jnp.max),
        "min.default": whole(jnp.min),
        "max.dim": extreme(jnp.argmax),
        "min.dim": extreme(jnp.argmin),
        "argmax.default": position(jnp.argmax),
        "argmin.default": position(jnp.argmin),
        "any.default any.dim any.dims": reduce_by(jnp.any),
        "all.default all.dim all.dims": reduce_by(jnp.all),
        "logsumexp.default": reduce_by(jax.scipy.special.logsumexp),
        "var.correction": variance,
        "std.correction": deviation,
        "var_mean.correction": variance_and_mean,
        "var.dim": with_unbiased_flag(variance),
        "std.dim": with_unbiased_flag(deviation),
        "std_mean.correction": deviation_and_mean,
        "var_mean.dim": with_unbiased_flag(variance_and_mean),
        "std_mean.dim": with_unbiased_flag(deviation_and_mean),
        "norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype linalg_vector_norm.default": norm,
        "norm.Scalar": lambda x, order=2: norm(x, order),
        "dist.default": lambda a, b, order=2: norm(a - b, order),
        "_cdist_forward.default cdist.default": distances,
        "nansum.default": lambda x, dim=None, keepdim=False, dtype=None: reduce_by(jnp.nansum)(
            x, dim, keepdim, dtype
        ),
        "sort.default": sort,
        "sort.stable": lambda x, stable, dim=-1, descending=False: sort(x, dim, descending),
        "topk.default": topk,
        "softmax.int _softmax.default": softmax,
        "log_softmax.int _log_softmax.default": log_softmax,
        "cumsum.default": cumulative(jnp.cumsum),
        "cumprod.default": cumulative(jnp.cumprod),
        "logcumsumexp.default": lambda x, dim: jax.lax.cumlogsumexp(x, axis=dim % x.ndim),
    }
)
