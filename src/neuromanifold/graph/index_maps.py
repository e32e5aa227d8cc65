"""Index maps: the operations that move numbers and compute nothing, on NumPy arrays of any kind.

A map takes a node's options and the arrays: residues, bounds, rationals, integers alike.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Options = Mapping[str, Any]
Sizes = Sequence[Any]
"""Whole numbers; JAX writes some of them as NumPy's."""


def pad(a: np.ndarray, fill: Any, config: Sizes) -> np.ndarray:
    """`lax.pad`: low, high and interior padding of each axis; negative low or high padding cuts."""
    full = [lo_hi[2] * max(n - 1, 0) + n for n, lo_hi in zip(a.shape, config, strict=True)]
    positive = [(max(lo, 0), max(hi, 0)) for lo, hi, _ in config]
    out = np.empty([lo + n + hi for n, (lo, hi) in zip(full, positive, strict=True)], a.dtype)
    out[...] = fill
    place = tuple(
        slice(lo, lo + n, step + 1)
        for n, (lo, _), (_, _, step) in zip(full, positive, config, strict=True)
    )
    out[place] = a
    return out[
        tuple(
            slice(max(-lo, 0), n - max(-hi, 0))
            for n, (lo, hi, _) in zip(out.shape, config, strict=True)
        )
    ]


def windows(
    a: np.ndarray, sizes: Sizes, strides: Sizes, dilation: Sizes, axes: Sizes
) -> np.ndarray:
    """All windows over `axes`, offsets on a new last axis: entry k at place i is `a[i·stride +
    offset_k·dilation]`.
    """
    counts = [
        (a.shape[axis] - (size - 1) * d - 1) // s + 1
        for axis, size, s, d in zip(axes, sizes, strides, dilation, strict=True)
    ]
    parts = []
    for offset in np.ndindex(*sizes):
        cut = [slice(None)] * a.ndim
        for axis, o, s, d, n in zip(axes, offset, strides, dilation, counts, strict=True):
            cut[axis] = slice(o * d, o * d + s * (n - 1) + 1, s)
        parts.append(a[tuple(cut)])
    return np.stack(parts, axis=-1)


def reshape(options: Options, a: np.ndarray, *_: Any) -> np.ndarray:
    """`lax.reshape`."""
    order = options["dimensions"]
    return (a if order is None else a.transpose(order)).reshape(options["new_sizes"])


def slice_entries(options: Options, a: np.ndarray) -> np.ndarray:
    """`lax.slice`."""
    strides = options.get("strides") or (1,) * a.ndim
    return a[tuple(map(slice, options["start_indices"], options["limit_indices"], strides))]


def broadcast(options: Options, a: np.ndarray, *_: Any) -> np.ndarray:
    """`lax.broadcast_in_dim`: axis i of `a` becomes axis `broadcast_dimensions[i]`."""
    shape = tuple(options["shape"])
    expanded = np.ones(len(shape), int)
    expanded[list(options["broadcast_dimensions"])] = a.shape
    return np.broadcast_to(a.reshape(expanded), shape)


def dynamic_slice(options: Options, a: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    """`lax.dynamic_slice`: a start that would leave the array is moved inside."""
    return a[_place(a.shape, options["slice_sizes"], starts)]


def dynamic_update(
    options: Options, a: np.ndarray, new: np.ndarray, *starts: np.ndarray
) -> np.ndarray:
    """`lax.dynamic_update_slice`."""
    out = a.copy()
    out[_place(a.shape, new.shape, starts)] = new
    return out


def _place(shape: Sizes, sizes: Sizes, starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
    at = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(s, s + size) for s, size in zip(at, sizes, strict=True))


def select(options: Options, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    """`lax.select_n`."""
    if len(cases) == 2:
        return np.where(which.astype(bool), cases[1], cases[0])
    stacked = np.stack(cases)
    return np.take_along_axis(stacked, np.broadcast_to(which, stacked.shape[1:])[None], axis=0)[0]


def gather_index(
    shape: Sizes, indices: np.ndarray, options: Options
) -> tuple[np.ndarray, np.ndarray]:
    """For `lax.gather` and `lax.scatter` on an operand of that shape: the flat position of every
    entry, and which exist.

    `options` has the dimension numbers in the names of `gather`; entries out of bounds do not
    exist, or are clipped.
    """
    offset, collapsed = tuple(options["offset_dims"]), tuple(options["collapsed"])
    batched, index_batched = tuple(options["operand_batching"]), tuple(options["indices_batching"])
    sizes, start_map = tuple(options["slice_sizes"]), tuple(options["start_index_map"])
    outer = indices.shape[:-1]
    rank = len(outer) + len(offset)
    outer_axes = [axis for axis in range(rank) if axis not in offset]
    window_axes = [d for d in range(len(shape)) if d not in collapsed and d not in batched]
    valid = np.ones((1,) * rank, bool)
    flat = np.zeros((1,) * rank, np.int64)
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    for d, size in enumerate(shape):
        start = np.zeros(outer, np.int64)
        if d in start_map:
            start = indices[..., start_map.index(d)].astype(np.int64)
            if options["clip"]:
                start = np.clip(start, 0, size - sizes[d])
            fits = (start >= 0) & (start <= size - sizes[d])
            valid = valid & _place_axes(fits, outer_axes, rank)
        elif d in batched:
            axis = index_batched[batched.index(d)]
            start = np.broadcast_to(
                np.arange(outer[axis]).reshape([-1 if a == axis else 1 for a in range(len(outer))]),
                outer,
            )
        flat = flat + strides[d] * _place_axes(start, outer_axes, rank)
        if d in window_axes:
            axis = sorted(offset)[window_axes.index(d)]
            flat = flat + strides[d] * np.arange(sizes[d]).reshape(
                [-1 if a == axis else 1 for a in range(rank)]
            )
    full = np.broadcast_shapes(flat.shape, valid.shape)
    return np.broadcast_to(flat, full), np.broadcast_to(valid, full)


def _place_axes(a: np.ndarray, axes: Sizes, rank: int) -> np.ndarray:
    shape = np.ones(rank, int)
    shape[list(axes)] = a.shape
    return a.reshape(shape)


def gather(options: Options, a: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """`lax.gather`; an index outside of the array is refused."""
    flat, valid = gather_index(a.shape, indices, gather_options(options))
    if not valid.all():
        raise IndexError(
            f"an index lies outside an array of shape {a.shape}; pass indices that exist "
            "(token ids below the table's length)."
        )
    return a.reshape(-1)[flat]


def gather_options(options: Options) -> dict[str, Any]:
    """The dimension numbers of `lax.gather` in the names that `gather_index` takes."""
    numbers = options["dimension_numbers"]
    return {
        "offset_dims": numbers.offset_dims,
        "collapsed": numbers.collapsed_slice_dims,
        "start_index_map": numbers.start_index_map,
        "operand_batching": numbers.operand_batching_dims,
        "indices_batching": numbers.start_indices_batching_dims,
        "slice_sizes": options["slice_sizes"],
        "clip": "CLIP" in str(options["mode"]).upper(),
    }


def scatter_options(options: Options, operand: Sizes, updates: Sizes) -> dict[str, Any]:
    """The dimension numbers of `lax.scatter` in the same names: its updates lie where a gather
    would read.
    """
    numbers = options["dimension_numbers"]
    inserted, batched = tuple(numbers.inserted_window_dims), tuple(numbers.operand_batching_dims)
    window = iter(sorted(numbers.update_window_dims))
    sizes = [
        1 if d in inserted or d in batched else updates[next(window)] for d in range(len(operand))
    ]
    return {
        "offset_dims": numbers.update_window_dims,
        "collapsed": inserted,
        "start_index_map": numbers.scatter_dims_to_operand_dims,
        "operand_batching": batched,
        "indices_batching": numbers.scatter_indices_batching_dims,
        "slice_sizes": sizes,
        "clip": "CLIP" in str(options["mode"]).upper(),
    }


def scatter(
    options: Options, base: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    """`lax.scatter`: the updates take the place of entries; those outside of the array go."""
    flat, valid = scatter_index(options, base.shape, indices, updates.shape)
    out = np.array(base)
    out.reshape(-1)[flat[valid]] = updates[valid]
    return out


def scatter_index(
    options: Options, operand: Sizes, indices: np.ndarray, updates: Sizes
) -> tuple[np.ndarray, np.ndarray]:
    """The flat position of every update, and which exist."""
    return gather_index(operand, indices, scatter_options(options, operand, updates))


def split(options: Options, a: np.ndarray) -> list[np.ndarray]:
    """`lax.split`."""
    return np.split(a, np.cumsum(options["sizes"])[:-1], options["axis"])


def unstack(options: Options, a: np.ndarray) -> list[np.ndarray]:
    """One array for each place of an axis."""
    return [a.take(i, options["axis"]) for i in range(a.shape[options["axis"]])]
