"""The covariances of the data themselves: where the recursion starts."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from neuromanifold.tangent.infinite.pairs import Array, Pairs

_FEW_CHANNELS = 16
_AT_ONCE = 8
_NEARLY_EQUAL = 1e-4


@partial(jax.jit, static_argnames=("crossed", "full", "same", "tangent"))
def inputs(x1: Array, x2: Array, *, crossed: bool, full: bool, same: bool, tangent: bool) -> Pairs:
    """Means over the channels of samples (n, *positions, channels). `same`: x1 and x2 are one list of samples."""
    pairs = Pairs((x1**2).mean(-1), (x2**2).mean(-1), None, None, None, crossed, full)
    covariance = _products(pairs, x1, x2) / x1.shape[-1]
    if x1.shape[-1] <= _FEW_CHANNELS:
        distance = _by_differences(pairs.over_left(x1), pairs.over_right(x2))
    else:
        distance = _by_products(pairs, x1, x2, covariance, same)
    start = jnp.zeros_like(distance) if tangent else None
    return replace(pairs, covariance=covariance, distance=distance, tangent=start)


def _by_differences(u: Array, v: Array) -> Array:
    """½‖u − v‖² over the channels, a few of them at a time: exact where two samples agree."""
    channels = u.shape[-1]
    if channels <= _AT_ONCE:
        return ((u - v) ** 2).sum(-1) / (2 * channels)

    def parts(w: Array) -> Array:
        w = jnp.pad(w, [(0, 0)] * (w.ndim - 1) + [(0, -channels % _AT_ONCE)])
        return jnp.moveaxis(w.reshape(*w.shape[:-1], -1, _AT_ONCE), -2, 0)

    start = jnp.zeros(jnp.broadcast_shapes(u.shape[:-1], v.shape[:-1]))
    total, _ = jax.lax.scan(lambda t, uv: (t + ((uv[0] - uv[1]) ** 2).sum(-1), None), start, (parts(u), parts(v)))
    return total / (2 * channels)


def _by_products(pairs: Pairs, x1: Array, x2: Array, covariance: Array, same: bool) -> Array:
    """½‖u − v‖² from matrix products; by differences for all pairs where two samples of different places nearly agree."""
    mean = pairs.mean_variance
    rough = jnp.maximum(mean - covariance, 0.0)
    known = _equal_places(pairs, mean.shape) if same else jnp.zeros((), bool)
    rough = jnp.where(known, 0.0, rough)
    close = (rough < _NEARLY_EQUAL * mean) & ~known
    return jax.lax.cond(close.any(), lambda: _by_differences(pairs.over_left(x1), pairs.over_right(x2)), lambda: rough)


def _products(pairs: Pairs, x1: Array, x2: Array) -> Array:
    """⟨x1, x2⟩ over the channels, in the layout of the pairs."""
    axes = len(pairs.positions)
    channel, samples = 0, [1, 2] if pairs.crossed else [1, 1]
    here = [3 + j for j in range(axes)]
    there = [3 + axes + j for j in range(axes)] if pairs.full else here
    out = [place for both in zip(here, there, strict=True) for place in both] if pairs.full else here
    return jnp.einsum(
        x1, [samples[0], *here, channel], x2, [samples[1], *there, channel], [*samples[: pairs.batch], *out]
    )


def _equal_places(pairs: Pairs, shape: tuple[int, ...]) -> Array:
    """Where an entry pairs a sample's position with itself."""
    equal = jnp.ones((), bool)
    if pairs.crossed:
        equal = jnp.eye(*shape[:2], dtype=bool).reshape(*shape[:2], *[1] * (len(shape) - 2))
    if pairs.full:
        for j, size in enumerate(pairs.positions):
            first = pairs.batch + 2 * j
            place = [size if a in (first, first + 1) else 1 for a in range(len(shape))]
            equal = equal & jnp.eye(size, dtype=bool).reshape(place)
    return equal
