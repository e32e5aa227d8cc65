"""Operations that sum up, along some axes or all."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Table, axes, table


def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    """ATen's signature (x, dim=None, keepdim=False) for a function of JAX's."""

    def operation(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        x = x if dtype is None else jnp.asarray(x, dtype)
        return function(x, axis=axes(dim, x.ndim), keepdims=keepdim)

    return operation


def whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """ATen's signature (x, dtype=None): over all axes."""
    return lambda x, dtype=None: reduced(function)(x, dtype=dtype)


def variance(x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    """Σ (x − mean)² / (n − correction)."""
    return jnp.var(
        x, axis=axes(dim, x.ndim), ddof=1 if correction is None else correction, keepdims=keepdim
    )


def deviation(x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    """The root of the variance."""
    return jnp.sqrt(variance(x, dim, correction, keepdim))


def variance_and_mean(
    x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> tuple[Any, Any]:
    """Both."""
    return variance(x, dim, correction, keepdim), jnp.mean(
        x, axis=axes(dim, x.ndim), keepdims=keepdim
    )


def unbiased(function: Callable[..., Any]) -> Callable[..., Any]:
    """The older signatures, in which a flag says whether one is subtracted."""
    return lambda x, dim=None, unbiased=True, keepdim=False: function(
        x, dim, int(unbiased), keepdim
    )


def norm(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """(Σ |x|^p)^(1/p), over vectors."""
    order = 2 if order is None else order
    x = x if dtype is None else jnp.asarray(x, dtype)
    if x.ndim > 1 and len(axes(dim, x.ndim)) == x.ndim:
        flat = jnp.linalg.norm(jnp.ravel(x), order)
        return flat.reshape((1,) * x.ndim) if keepdim else flat
    [axis] = axes(dim, x.ndim)
    return jnp.linalg.norm(x, order, axis=axis, keepdims=keepdim)


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
        "sum.dim_IntList": reduced(jnp.sum),
        "mean.default": whole(jnp.mean),
        "mean.dim": reduced(jnp.mean),
        "prod.default": whole(jnp.prod),
        "prod.dim_int": reduced(jnp.prod),
        "amax.default": reduced(jnp.max),
        "amin.default": reduced(jnp.min),
        "max.default": whole(jnp.max),
        "min.default": whole(jnp.min),
        "max.dim": extreme(jnp.argmax),
        "min.dim": extreme(jnp.argmin),
        "argmax.default": position(jnp.argmax),
        "argmin.default": position(jnp.argmin),
        "any.default any.dim any.dims": reduced(jnp.any),
        "all.default all.dim all.dims": reduced(jnp.all),
        "logsumexp.default": reduced(jax.scipy.special.logsumexp),
        "var.correction": variance,
        "std.correction": deviation,
        "var_mean.correction": variance_and_mean,
        "var.dim": unbiased(variance),
        "std.dim": unbiased(deviation),
        "norm.ScalarOpt_dim linalg_vector_norm.default": norm,
        "sort.default": sort,
        "topk.default": topk,
        "softmax.int _softmax.default": softmax,
        "log_softmax.int _log_softmax.default": log_softmax,
        "cumsum.default": cumulative(jnp.cumsum),
        "cumprod.default": cumulative(jnp.cumprod),
        "logcumsumexp.default": lambda x, dim: jax.lax.cumlogsumexp(x, axis=dim % x.ndim),
    }
)
