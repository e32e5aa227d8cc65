"""Operations that move entries without changing them: views, joins, cuts, indices."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.adapters.torch.operations.base import Refusal, Table, table

_MOST_PIECES = 10_000


def view(x: Any, size: Sequence[int]) -> Any:
    """The same entries in another shape."""
    return jnp.reshape(x, tuple(size))


def flatten(x: Any, start: int = 0, end: int = -1) -> Any:
    """Axes `start` to `end` made one."""
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Any:
    """One axis made several."""
    dim %= x.ndim
    known = -math.prod(sizes) if -1 in sizes else 1
    sizes = [x.shape[dim] // known if size == -1 else size for size in sizes]
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def transpose(x: Any, a: int, b: int) -> Any:
    """Two axes exchanged."""
    return jnp.swapaxes(x, a, b)


def squeeze(x: Any, dims: Sequence[int]) -> Any:
    """Axes of length one removed; which ones, the recorded shapes have said."""
    return jnp.squeeze(x, tuple(dims))


def expand(x: Any, size: Sequence[int], implicit: bool = False) -> Any:
    """Axes of length one repeated; −1 keeps an axis."""
    shape = (1,) * (len(size) - x.ndim) + x.shape
    return jnp.broadcast_to(
        x, tuple(old if new == -1 else new for old, new in zip(shape, size, strict=True))
    )


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Arrays joined along an axis; empty one-dimensional ones are passed over, as PyTorch does."""
    return jnp.concatenate([t for t in tensors if t.shape != (0,)], axis=dim)


def split(x: Any, size: int | Sequence[int], dim: int = 0) -> list[Any]:
    """Pieces of the given size (the last may be shorter), or of the given sizes."""
    length = x.shape[dim]
    if isinstance(size, int) and length > _MOST_PIECES * size:
        raise Refusal(f"cuts {length} entries into pieces of {size}, which are too many")
    sizes = (
        [min(size, length - start) for start in range(0, length, size)]
        if isinstance(size, int)
        else size
    )
    stops = np.cumsum(sizes)
    return [
        jax.lax.slice_in_dim(x, int(b - s), int(b), axis=dim)
        for s, b in zip(sizes, stops, strict=True)
    ]


def chunk(x: Any, chunks: int, dim: int = 0) -> list[Any]:
    """At most that many pieces of equal size, the last shorter."""
    return split(x, -(-x.shape[dim] // chunks), dim)


def unbind(x: Any, dim: int = 0) -> list[Any]:
    """The slices along an axis."""
    if x.shape[dim] > _MOST_PIECES:
        raise Refusal(f"cuts {x.shape[dim]} slices apart, which are too many")
    return [select(x, dim, i) for i in range(x.shape[dim])]


def select(x: Any, dim: int, index: int) -> Any:
    """One slice; the axis goes."""
    return jax.lax.index_in_dim(x, index, dim, keepdims=False)


def cut(
    x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """x[start:end:step] along an axis."""
    begin, stop, stride = slice(start, end, step).indices(x.shape[dim])
    return jax.lax.slice_in_dim(x, begin, max(begin, stop), stride, axis=dim)


def narrow(x: Any, dim: int, start: int, length: int) -> Any:
    """`length` entries from `start`."""
    return cut(x, dim, start, start % x.shape[dim] + length)


def select_scatter(x: Any, part: Any, dim: int, index: int) -> Any:
    """x with one slice replaced."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(part)


def slice_scatter(
    x: Any, part: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """x with x[start:end:step] replaced."""
    window = slice(*slice(start, end, step).indices(x.shape[dim]))
    return (
        part
        if window == slice(0, x.shape[dim], 1)
        else x.at[(slice(None),) * (dim % x.ndim) + (window,)].set(part)
    )


def index(x: Any, indices: Sequence[Any]) -> Any:
    """Entries picked by integer arrays; None keeps an axis."""
    if any(i is not None and i.dtype == bool for i in indices):
        raise Refusal(
            "picks entries by a mask, so the shape depends on the values; use torch.where"
        )
    return x[tuple(slice(None) if i is None else i for i in indices)]


def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """x with entries replaced, or added to; a mask takes one value."""
    if len(indices) == 1 and indices[0].dtype == bool and jnp.size(values) == 1 and not accumulate:
        mask = indices[0].reshape(indices[0].shape + (1,) * (x.ndim - indices[0].ndim))
        return jnp.where(mask, jnp.reshape(values, ()), x)
    if any(i is not None and i.dtype == bool for i in indices):
        raise Refusal("writes entries picked by a mask; use torch.where")
    place = x.at[tuple(slice(None) if i is None else i for i in indices)]
    return place.add(values) if accumulate else place.set(values)


def places_of(mask: Any) -> tuple[Any, ...]:
    """Where a mask is true, and beyond the end of its axes as often as it is not: an array of
    fixed length stands for one of any length.

    Rows that are read there are of no use, and what is written there is dropped.
    """
    return jnp.nonzero(mask, size=mask.size, fill_value=max(mask.shape, default=0))


def _by_places(indices: Sequence[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for i in indices:
        if i is None:
            found.append(slice(None))
        else:
            found.extend(places_of(i) if i.dtype == bool else [i])
    return tuple(found)


def masked_index(x: Any, indices: Sequence[Any]) -> Any:
    """Entries picked by masks, as `places_of` orders them."""
    return x[_by_places(indices)]


def masked_index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """x with the entries that masks pick replaced, or added to."""
    place = x.at[_by_places(indices)]
    return place.add(values) if accumulate else place.set(values)


def diagonal_scatter(x: Any, part: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """x with a diagonal replaced."""
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    i = jnp.arange(part.shape[-1])
    placed = moved.at[..., i - min(offset, 0), i + max(offset, 0)].set(part)
    return jnp.moveaxis(placed, (-2, -1), (dim1, dim2))


def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    """x with the slices of `source` in the place of those that `index` names along `dim`."""
    return jnp.moveaxis(jnp.moveaxis(x, dim, 0).at[index].set(jnp.moveaxis(source, dim, 0)), 0, dim)


def index_select(x: Any, dim: int, index: Any) -> Any:
    """Slices picked along an axis."""
    return jnp.take(x, index, axis=dim, mode="clip")


def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    """y[i][j] = x[index[i][j]][j], for `dim` 0."""
    window = tuple(
        slice(None) if axis == dim % x.ndim else slice(0, n) for axis, n in enumerate(index.shape)
    )
    return jnp.take_along_axis(x[window], index, axis=dim)


def repeat(x: Any, repeats: Sequence[int]) -> Any:
    """The whole array repeated along each axis."""
    return jnp.tile(x, tuple(repeats))


def repeat_interleave(
    x: Any, repeats: Any, dim: int | None = None, output_size: int | None = None
) -> Any:
    """Each entry repeated in place."""
    if not isinstance(repeats, int):
        raise Refusal("repeats entries by counts that are themselves data; pass a whole number")
    return jnp.repeat(x, repeats, axis=dim)


def roll(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Entries moved along axes, those that fall off coming back in front."""
    return jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])


def constant_pad(x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    """A margin of one value; `pad` lists (before, after) from the last axis on, negative numbers
    cut.
    """
    pairs = [(0, 0, 0)] * (x.ndim - len(pad) // 2) + [
        (a, b, 0) for a, b in zip(pad[::2], pad[1::2], strict=True)
    ][::-1]
    return jax.lax.pad(x, jnp.asarray(0 if value is None else value, x.dtype), pairs)


def pad(x: Any, widths: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    """A margin: constant, reflected, repeated or periodic."""
    if mode == "constant":
        return constant_pad(x, widths, value)
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + list(
        zip(widths[::2], widths[1::2], strict=True)
    )[::-1]
    return jnp.pad(x, pairs, mode=names[mode])


def pixel_shuffle(x: Any, factor: int) -> Any:
    """(…, c·r², h, w) → (…, c, h·r, w·r)."""
    *head, c, h, w = x.shape
    n = len(head)
    y = x.reshape(*head, c // factor**2, factor, factor, h, w)
    y = jnp.transpose(y, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return y.reshape(*head, c // factor**2, h * factor, w * factor)


def pixel_unshuffle(x: Any, factor: int) -> Any:
    """(…, c, h·r, w·r) → (…, c·r², h, w)."""
    *head, c, h, w = x.shape
    n = len(head)
    y = x.reshape(*head, c, h // factor, factor, w // factor, factor)
    y = jnp.transpose(y, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return y.reshape(*head, c * factor**2, h // factor, w // factor)


def movedim(x: Any, source: Any, destination: Any) -> Any:
    """Axes moved to other places."""
    return jnp.moveaxis(x, source, destination)


def same(x: Any, *_: Any, **__: Any) -> Any:
    """The argument itself: copies, devices and memory layouts mean nothing here, dtypes are set
    by the interpreter.
    """
    return x


def triangle(x: Any, diagonal: int = 0, *, lower: bool) -> Any:
    """The lower or upper triangle of the last two axes, zeros elsewhere."""
    return (jnp.tril if lower else jnp.triu)(x, diagonal)


# Names of our own, for graphs in which what a mask picks is only written back by masks.
MASKED = {
    "masked.index": masked_index,
    "masked.index_put": masked_index_put,
    "masked.nonzero": lambda mask: jnp.stack(places_of(mask), axis=-1),
    "masked.nonzero_numpy": lambda mask: list(places_of(mask)),
}

SHAPE: Table = MASKED | table(
    {
        "view.default _unsafe_view.default reshape.default _reshape_copy.default": view,
        "view_as.default reshape_as.default": lambda x, other: view(x, other.shape),
        "flatten.using_ints": flatten,
        "unflatten.int": unflatten,
        "permute.default": lambda x, dims: jnp.transpose(x, tuple(dims)),
        "transpose.int swapaxes.default swapdims.default": transpose,
        "t.default numpy_T.default": lambda x: jnp.transpose(x),
        "mT.default adjoint.default": lambda x: jnp.swapaxes(x, -1, -2),
        "movedim.int movedim.intlist": movedim,
        "unsqueeze.default": jnp.expand_dims,
        "squeeze.default squeeze.dim squeeze.dims": squeeze,
        "expand.default": expand,
        "expand_as.default": lambda x, other: expand(x, other.shape),
        "broadcast_to.default": expand,
        "broadcast_tensors.default": lambda tensors: list(jnp.broadcast_arrays(*tensors)),
        "cat.default concat.default": cat,
        "stack.default": lambda tensors, dim=0: jnp.stack(tensors, dim),
        "split.Tensor split_with_sizes.default split.sizes unsafe_split.Tensor": split,
        "chunk.default": chunk,
        "unbind.int": unbind,
        "select.int": select,
        "slice.Tensor": cut,
        "narrow.default": narrow,
        "select_scatter.default": select_scatter,
        "slice_scatter.default": slice_scatter,
        "index.Tensor _unsafe_index.Tensor": index,
        "index_copy.default": index_copy,
        "index_put.default _unsafe_index_put.default": index_put,
        "index_select.default": index_select,
        "gather.default": gather,
        "diff.default": lambda x, n=1, dim=-1, prepend=None, append=None: jnp.diff(
            x, n, dim, prepend, append
        ),
        "flip.default": lambda x, dims: jnp.flip(x, tuple(dims)),
        "roll.default": roll,
        "repeat.default tile.default": repeat,
        "repeat_interleave.self_int repeat_interleave.self_Tensor": repeat_interleave,
        "constant_pad_nd.default": constant_pad,
        "pad.default": pad,
        "pixel_shuffle.default": pixel_shuffle,
        "pixel_unshuffle.default": pixel_unshuffle,
        "tril.default": lambda x, diagonal=0: triangle(x, diagonal, lower=True),
        "triu.default": lambda x, diagonal=0: triangle(x, diagonal, lower=False),
        "diagonal.default": jnp.diagonal,
        "diagonal_scatter.default": diagonal_scatter,
        "contiguous.default clone.default alias.default lift_fresh_copy.default lift_fresh.default": same,
        "to.dtype to.device to.dtype_layout to.other _to_copy.default type_as.default": same,
        "copy.default": lambda target, source, *_: jnp.broadcast_to(source, target.shape),
        "detach.default": jax.lax.stop_gradient,
    }
)
