"""Operations over windows, and changes of resolution."""

import functools
import itertools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.bends import take_extremes
from neuromanifold.models.adapters.torch.operations.base import Refusal, Table, repeat, table
from neuromanifold.models.adapters.torch.operations.reduction import extreme


def _windows(
    x: Any, space: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool
) -> tuple[Any, Any, Any]:
    """(kernel, stride, margins) per spatial axis; `ceil_mode` widens the right margin to a last,
    partial window.
    """
    kernel = repeat(kernel, space)
    stride = repeat(stride, space) if stride not in (None, [], ()) else kernel
    margins = []
    for length, k, s, p in zip(
        x.shape[-space:], kernel, stride, repeat(padding, space), strict=True
    ):
        if k > length + 2 * p:
            raise Refusal(
                f"has a window of {k} where only {length + 2 * p} entries are; use a smaller one"
            )
        rest = (length + 2 * p - k) % s
        # A window that would begin in the right margin is left out.
        wider = ceil_mode and rest and length + 2 * p - k - rest + s < length + p
        margins.append((p, p + s - rest if wider else p))
    return kernel, stride, margins


def max_pool(
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *,
    space: int,
) -> Any:
    """The largest entry of each window; of equal ones the first carries the derivative."""
    wide = tuple(
        d * (k - 1) + 1 for d, k in zip(repeat(dilation, space), repeat(kernel, space), strict=True)
    )
    _, stride, margins = _windows(x, space, wide, stride or kernel, padding, ceil_mode)
    lead = (1,) * (x.ndim - space)
    window: dict[str, Any] = {
        "window_dimensions": lead + repeat(kernel, space),
        "window_strides": lead + stride,
        "padding": ((0, 0),) * len(lead) + tuple(margins),
        "base_dilation": (1,) * x.ndim,
        "window_dilation": lead + repeat(dilation, space),
    }
    if jnp.issubdtype(x.dtype, jnp.floating):
        return take_extremes(1, window, x)
    return jax.lax.reduce_window(x, np.array(np.iinfo(x.dtype).min, x.dtype), jax.lax.max, **window)


def avg_pool(
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
    *,
    space: int,
) -> Any:
    """The mean of each window, the margin counted or not."""
    kernel, stride, margins = _windows(x, space, kernel, stride, padding, ceil_mode)
    lead = x.ndim - space
    total = jax.lax.reduce_window(
        x,
        np.array(0, x.dtype),
        jax.lax.add,
        (1,) * lead + kernel,
        (1,) * lead + stride,
        [(0, 0)] * lead + margins,
    )
    if divisor is not None:
        return total / divisor
    if not ceil_mode and (count_include_pad or not any(repeat(padding, space))):
        return total / math.prod(kernel)
    counts = [
        _counts(n, k, s, p, m, include=count_include_pad)
        for n, k, s, p, (_, m) in zip(
            x.shape[-space:], kernel, stride, repeat(padding, space), margins, strict=True
        )
    ]
    return total / functools.reduce(lambda a, b: a[..., None] * b, counts)


def _counts(length: int, k: int, s: int, p: int, after: int, *, include: bool) -> Any:
    """How many entries each window along one axis counts: those of the data, or of the data with
    its margin.
    """
    starts = jnp.arange(-p, length + after - k + 1, s)
    low, high = (-p, length + p) if include else (0, length)
    return jnp.minimum(starts + k, high) - jnp.maximum(starts, low)


def adaptive_avg_pool(x: Any, size: Any, *, space: int) -> Any:
    """Means over as many nearly equal bins as asked for: [⌊il/o⌋, ⌈(i+1)l/o⌉)."""
    sizes: Any = repeat(size, space)  # None keeps an axis
    for axis, out in zip(range(x.ndim - space, x.ndim), sizes, strict=True):
        x = _bin_means(x, axis, x.shape[axis] if out is None else out)
    return x


def _bin_means(x: Any, axis: int, out: int) -> Any:
    length = x.shape[axis]
    if length % out == 0:
        return jnp.mean(
            x.reshape(*x.shape[:axis], out, length // out, *x.shape[axis + 1 :]), axis=axis + 1
        )
    means = _matrix(out, length)
    for i in range(out):
        start, stop = i * length // out, -(-(i + 1) * length // out)
        means[i, start:stop] = 1 / (stop - start)
    return jnp.moveaxis(jnp.tensordot(x, means.astype(x.dtype), (axis, 1)), -1, axis)


def adaptive_max_pool(x: Any, size: Any, *, space: int) -> tuple[Any, None]:
    """The largest entry of each of nearly equal bins, [⌊il/o⌋, ⌈(i+1)l/o⌉) as for the means."""
    out = repeat(size, space)
    if not any(n % o for n, o in zip(x.shape[-space:], out, strict=True)):
        return max_pool(
            x, [n // o for n, o in zip(x.shape[-space:], out, strict=True)], space=space
        ), None
    for axis, n in zip(range(x.ndim - space, x.ndim), out, strict=True):
        # A bin's places go to a new last axis; the shorter bins name their first place again.
        x = jnp.moveaxis(jnp.take(x, _bins(x.shape[axis], n), axis=axis), axis + 1, -1)
    return extreme(jnp.argmax)(x.reshape(*x.shape[:-space], -1), -1)[0], None


def _bins(length: int, out: int) -> np.ndarray:
    _matrix(out, length)
    starts, stops = np.arange(out) * length // out, -(-np.arange(1, out + 1) * length // out)
    places = starts[:, None] + np.arange((stops - starts).max())
    return np.where(places < stops[:, None], places, starts[:, None])


def _sizes(x: Any, size: Any, factors: Any, space: int) -> list[tuple[int, int, float]]:
    """(axis, new length, old length for one of the new): PyTorch takes the factor where one is
    given.
    """
    scales = factors[-1] if factors and factors[-1] is not None else [None] * space
    lengths = x.shape[-space:]
    out = size if size is not None else [int(n * f) for n, f in zip(lengths, scales, strict=True)]
    steps = [n / o if f is None else 1 / f for n, o, f in zip(lengths, out, scales, strict=True)]
    return list(zip(range(x.ndim - space, x.ndim), out, steps, strict=True))


def nearest(x: Any, size: Any = None, *factors: Any, space: int = 2) -> Any:
    """Each entry repeated, to the given size or by factors; PyTorch rounds the steps to float32."""
    for axis, n, step in _sizes(x, size, factors, space):
        places = np.floor(np.arange(n, dtype=np.float32) * np.float32(step)).astype(int)
        x = jnp.take(x, np.minimum(places, x.shape[axis] - 1), axis=axis)
    return x


def bilinear(x: Any, size: Any, align_corners: bool, *factors: Any) -> Any:
    """Linear interpolation along the last two axes."""
    for axis, n, step in _sizes(x, size, factors, 2):
        tents = _tents(x.shape[axis], n, step, align_corners).astype(x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, tents, (axis, 1)), -1, axis)
    return x


def resize_antialiased(x: Any, size: Any, align_corners: bool, *scales: Any, cubic: bool) -> Any:
    """Means along the last two axes under a triangle, or under Keys's weights with a = −1/2, as
    wide as the step.
    """
    given = scales if len(scales) > 1 else scales[0] if scales else None
    factors = [given] if given is not None and None not in given else []
    for axis, n, step in _sizes(x, size, factors, 2):
        length = x.shape[axis]
        if align_corners:
            step = (length - 1) / (n - 1) if n > 1 else 0.0
        weights = _under(_matrix(n, length), step, cubic).astype(x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, (axis, 1)), -1, axis)
    return x


def _under(matrix: np.ndarray, step: float, cubic: bool) -> np.ndarray:
    out, length = matrix.shape
    wide = max(step, 1.0)
    reach = (2 if cubic else 1) * wide
    for i in range(out):
        centre = step * (i + 0.5)
        first, last = max(int(centre - reach + 0.5), 0), min(int(centre + reach + 0.5), length)
        t = np.abs(np.arange(first, last) - centre + 0.5) / wide
        w = np.maximum(1 - t, 0)
        if cubic:
            far = -0.5 * ((t - 5) * t + 8) * t + 2
            w = np.where(t < 1, (1.5 * t - 2.5) * t * t + 1, np.where(t < 2, far, 0))
        matrix[i, first:last] = w / w.sum()
    return matrix


def _matrix(out: int, length: int) -> np.ndarray:
    if out * length > 2**24:
        raise Refusal(f"changes a length of {length} into {out}, which takes too large a matrix")
    return np.zeros((out, length))


def _tents(length: int, out: int, step: float, align_corners: bool) -> np.ndarray:
    """The matrix of linear interpolation from `length` points to `out`."""
    matrix = _matrix(out, length)
    if align_corners:
        places = np.arange(out) * ((length - 1) / (out - 1) if out > 1 else 0.0)
    else:
        places = np.clip((np.arange(out) + 0.5) * step - 0.5, 0, None)
    low = np.minimum(places.astype(int), length - 1)
    weight = places - low
    np.add.at(matrix, (np.arange(out), low), 1 - weight)
    np.add.at(matrix, (np.arange(out), np.minimum(low + 1, length - 1)), weight)
    return matrix


def _with_indices(x: Any, *arguments: Any, space: int) -> tuple[Any, None]:
    return max_pool(x, *arguments, space=space), None


def sample_at(x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool) -> Any:
    """x (n, c, *space) at the points of `grid` (n, *out, d), whose last axis runs from −1 to 1
    over the last axis of x first.

    Linear (0), nearest (1) or cubic (2) interpolation; outside are zeros (0), the border (1) or
    reflections (2).
    """
    space = x.shape[2:]
    places = [
        ((c + 1) / 2 * (n - 1)) if align_corners else ((c + 1) * n - 1) / 2
        for c, n in zip(jnp.moveaxis(grid, -1, 0)[::-1], space, strict=True)
    ]
    taps = [
        _taps(at, n, interpolation, padding, align_corners)
        for at, n in zip(places, space, strict=True)
    ]
    y = 0.0
    for chosen in itertools.product(*taps):
        at, weights, inside = zip(*chosen, strict=True)
        values = jax.vmap(lambda image, *i: image[(slice(None), *i)])(x, *at)
        weight = functools.reduce(operator.mul, weights) * functools.reduce(operator.and_, inside)
        y = y + values * weight[:, None]
    return y


def _taps(
    at: Any, n: int, interpolation: int, padding: int, align_corners: bool
) -> list[tuple[Any, Any, Any]]:
    """(index, weight, whether it lies inside) of the entries that a value between them is made
    of.
    """
    bounded = functools.partial(
        _bound_coordinate, n=n, padding=padding, align_corners=align_corners
    )
    at = at if interpolation == 2 else bounded(at)
    if interpolation == 1:
        terms = [(jnp.round(at), jnp.ones_like(at))]
    else:
        low = jax.lax.stop_gradient(jnp.floor(at))
        t = at - low
        weights = [1 - t, t] if interpolation == 0 else _cubic(t)
        first = 0 if interpolation == 0 else -1
        terms = [(low + first + k, weight) for k, weight in enumerate(weights)]
        terms = [(bounded(i) if interpolation == 2 else i, weight) for i, weight in terms]
    return [
        (jnp.clip(i, 0, n - 1).astype(jnp.int32), weight, (i >= 0) & (i <= n - 1))
        for i, weight in terms
    ]


def _cubic(t: Any) -> list[Any]:
    """Keys's weights with a = −3/4, as PyTorch has them."""
    a = -0.75

    def near(s: Any) -> Any:
        return ((a + 2) * s - (a + 3)) * s * s + 1

    def far(s: Any) -> Any:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _bound_coordinate(at: Any, *, n: int, padding: int, align_corners: bool) -> Any:
    """A coordinate as padding has it: as it is, moved to the border, or reflected there."""
    if padding == 0:
        return at
    if padding == 2:
        low, span = (0.0, n - 1) if align_corners else (-0.5, n)
        distance = jnp.abs(at - low)
        times = jax.lax.stop_gradient(jnp.floor(distance / max(span, 1)))
        rest = distance - times * span
        at = jnp.where(times % 2 == 0, rest, span - rest) + low if span else jnp.zeros_like(at)
    return jnp.clip(at, 0, n - 1)


POOLING: Table = table(
    {
        **{f"max_pool{d}d.default": functools.partial(max_pool, space=d) for d in (1, 2, 3)},
        **{f"avg_pool{d}d.default": functools.partial(avg_pool, space=d) for d in (1, 2, 3)},
        **{
            f"adaptive_avg_pool{d}d.default": functools.partial(adaptive_avg_pool, space=d)
            for d in (1, 2, 3)
        },
        **{
            f"_adaptive_avg_pool{d}d.default": functools.partial(adaptive_avg_pool, space=d)
            for d in (2, 3)
        },
        **{
            f"adaptive_max_pool{d}d.default": functools.partial(adaptive_max_pool, space=d)
            for d in (1, 2, 3)
        },
        **{
            f"max_pool{d}d_with_indices.default": functools.partial(_with_indices, space=d)
            for d in (2, 3)
        },
        "upsample_nearest2d.vec": nearest,
        "upsample_nearest1d.vec": functools.partial(nearest, space=1),
        "upsample_bilinear2d.vec": bilinear,
        "_upsample_bilinear2d_aa.default _upsample_bilinear2d_aa.vec": functools.partial(
            resize_antialiased, cubic=False
        ),
        "_upsample_bicubic2d_aa.default _upsample_bicubic2d_aa.vec": functools.partial(
            resize_antialiased, cubic=True
        ),
        "grid_sampler_2d.default": sample_at,
    }
)
