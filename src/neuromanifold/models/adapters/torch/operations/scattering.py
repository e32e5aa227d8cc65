"""Operations that write to, sum into and look up places which the data name; running extremes
and order statistics.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Refusal, Table, table
from neuromanifold.models.adapters.torch.operations.reduction import sort


def _place(x: Any, dim: int, index: Any) -> Any:
    """x at [i][index[i][j]][k]…, for `dim` 1."""
    grid = jnp.meshgrid(*(jnp.arange(n) for n in index.shape), indexing="ij", sparse=True)
    return x.at[tuple(index if axis == dim % x.ndim else at for axis, at in enumerate(grid))]


def _fitting(source: Any, index: Any) -> Any:
    """A number, or as many entries of the source as there are indices."""
    return source[tuple(slice(0, n) for n in index.shape)] if jnp.ndim(source) else source


def scatter(x: Any, dim: int, index: Any, source: Any) -> Any:
    """x with y[i][index[i][j]] = source[i][j], for `dim` 1."""
    return _place(x, dim, index).set(_fitting(source, index))


def scatter_add(x: Any, dim: int, index: Any, source: Any) -> Any:
    """x with source[i][j] added to y[i][index[i][j]], for `dim` 1."""
    return _place(x, dim, index).add(_fitting(source, index))


def scatter_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    """Sums, means and extremes of what goes to the same place, with or without what stood
    there.
    """
    if reduce in ("amax", "amin"):
        return _scatter_extreme(x, source, dim, index, reduce == "amax", include_self)
    if reduce not in ("sum", "mean"):
        raise Refusal(f"reduces by {reduce!r}; use 'sum', 'mean', 'amax' or 'amin'")
    counts = _place(jnp.zeros(x.shape, x.dtype), dim, index).add(1)
    total = scatter_add(x if include_self else jnp.where(counts > 0, 0, x), dim, index, source)
    return total if reduce == "sum" else total / jnp.maximum(counts + include_self, 1)


def _scatter_extreme(
    x: Any, source: Any, dim: int, index: Any, largest: bool, include_self: bool
) -> Any:
    """The largest or smallest entries; equal ones share the derivative."""
    met = _place(jnp.zeros(x.shape, bool), dim, index).set(True)
    kept = True if include_self else ~met

    source = _fitting(source, index)

    @jax.custom_jvp
    def extreme(x: Any, source: Any, kept: Any, index: Any) -> Any:
        worst = -jnp.inf if largest else jnp.inf
        place = _place(jnp.where(kept, x, worst), dim, index)
        return place.max(source) if largest else place.min(source)

    @extreme.defjvp
    def derivative(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        (x, source, kept, index), (dx, change, *_) = primals, tangents
        y = extreme(x, source, kept, index)
        # What stood there is counted even where it is left out, as PyTorch does.
        own, theirs = x == y, source == jnp.take_along_axis(y, index, dim)
        count = _place(own.astype(y.dtype), dim, index).add(theirs)
        return y, _place(jnp.where(own & kept, dx, 0.0), dim, index).add(theirs * change) / count

    return extreme(x, source, jnp.asarray(kept), index)


def unfold(x: Any, dim: int, size: int, step: int) -> Any:
    """Windows along an axis, their entries on a new last axis."""
    starts = jnp.arange(0, x.shape[dim] - size + 1, step)
    return jnp.moveaxis(
        jnp.take(x, starts[:, None] + jnp.arange(size), axis=dim), dim % x.ndim + 1, -1
    )


def running(extreme: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """(values, indices) of the running extreme along an axis; of equal entries the last, as in
    PyTorch.
    """

    def operation(x: Any, dim: int) -> tuple[Any, Any]:
        axis = dim % x.ndim
        here = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
        index = jax.lax.cummax(jnp.where(x == extreme(x, axis=axis), here, 0), axis=axis)
        return jnp.take_along_axis(x, index, axis=axis), index

    return operation


def kth(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The k-th smallest entry along an axis, and where it stands."""
    parts = [jax.lax.slice_in_dim(part, k - 1, k, axis=dim % x.ndim) for part in sort(x, dim)]
    value, index = parts if keepdim else [jnp.squeeze(part, dim) for part in parts]
    return value, index


def median(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower median."""
    return kth(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def searchsorted(
    sequence: Any,
    x: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """How many entries of a sorted sequence are smaller than x, or not larger; a sequence for each
    row of x where there are several.
    """
    side = "right" if right or side == "right" else "left"
    if sorter is not None:
        sequence = jnp.take_along_axis(sequence, sorter, -1)
    if sequence.ndim == 1:
        return jnp.searchsorted(sequence, x, side=side)
    before = jnp.less_equal if side == "right" else jnp.less
    return before(sequence[..., None, :], x[..., None]).sum(-1)


def bucketize(x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    """In which interval between the boundaries each entry lies."""
    return searchsorted(boundaries, x, right=right)


def histogram(x: Any, bins: int = 100, low: Any = 0, high: Any = 0) -> Any:
    """How many entries lie in each of the equal bins from `low` to `high`."""
    if low == high:
        raise Refusal("has bins between the extremes of its data; pass `min` and `max`")
    place = jnp.floor((x.ravel() - low) * (bins / (high - low))).astype(jnp.int32)
    inside = (x.ravel() >= low) & (x.ravel() <= high)
    last = jnp.where(inside, jnp.minimum(place, bins - 1), bins)
    return jnp.zeros(bins, x.dtype).at[last].add(1)


def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Any, None, None, None]:
    """Sums (mode 0) or means (mode 1) of rows of a table, bag by bag; `offsets` say where each
    begins.
    """
    if mode == 2 or scale_grad_by_freq:
        raise Refusal(
            "takes the largest entries of bags or scales gradients by frequency; use mode 'sum' "
            "or 'mean'"
        )
    bags = offsets[:-1] if include_last_offset else offsets
    bag = jnp.searchsorted(bags, jnp.arange(len(indices)), side="right") - 1
    counted = jnp.where(indices == padding_idx, 0, 1).astype(weight.dtype)
    weights = counted if per_sample_weights is None else counted * per_sample_weights
    rows = jnp.take(weight, indices, axis=0, mode="fill") * weights[:, None]
    total = jnp.zeros((len(bags), weight.shape[1]), rows.dtype).at[bag].add(rows)
    counts = jnp.zeros(len(bags), rows.dtype).at[bag].add(counted)
    return (total if mode == 0 else total / jnp.maximum(counts, 1)[:, None]), None, None, None


SCATTERING: Table = table(
    {
        "scatter.src scatter.value": scatter,
        "scatter_add.default": scatter_add,
        "scatter_reduce.two": scatter_reduce,
        "unfold.default": unfold,
        "cummax.default": running(jax.lax.cummax),
        "cummin.default": running(jax.lax.cummin),
        "kthvalue.default": kth,
        "median.dim": median,
        "searchsorted.Tensor": searchsorted,
        "bucketize.Tensor": bucketize,
        "histc.default": histogram,
        "_embedding_bag.default": embedding_bag,
    }
)
