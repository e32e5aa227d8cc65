"""Where a program bends: maxima, absolute values, comparisons, pooling. Each bend asks an oracle
one of two questions.

`positive(q)`: is this quantity positive?   `largest(c, inside)`: which candidate on the last axis
is the largest? The answers are *gates*. With its gates given, a bend is an index map, and the
program a polynomial on its region.
"""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.structural import padded, windows

_SLICES = 64
"""Up to this many places of a window are sliced one by one."""


class Oracle(abc.ABC):
    """Answers the questions of bends, in the order in which they are asked."""

    @abc.abstractmethod
    def positive(self, quantity: Any) -> Any:
        """Truth values: is it > 0?"""

    @abc.abstractmethod
    def largest(self, candidates: Any) -> Any:
        """The place of the largest candidate on the last axis."""


class Deciding(Oracle):
    """Asks JAX, and keeps the gates: a traced program then holds every decision as `gt` or
    `argmax`.
    """

    def __init__(self) -> None:
        self.gates: list[Any] = []

    def positive(self, quantity: Any) -> Any:
        self.gates.append(jax.lax.gt(quantity, jnp.zeros_like(quantity)))
        return self.gates[-1]

    def largest(self, candidates: Any) -> Any:
        self.gates.append(jax.lax.argmax(candidates, candidates.ndim - 1, np.int64))
        return self.gates[-1]


class Choosing(Oracle):
    """Asks JAX and keeps nothing. Of equal candidates the first is the largest, as in the
    derivative of JAX's own pooling.
    """

    def positive(self, quantity: Any) -> Any:
        return jax.lax.gt(quantity, jnp.zeros_like(quantity))

    def largest(self, candidates: Any) -> Any:
        return jax.lax.argmax(candidates, candidates.ndim - 1, np.int32)


class Gated(Oracle):
    """Knows the answers; keeps the quantities that were asked about."""

    def __init__(self, gates: Sequence[Any]) -> None:
        self._gates: Iterator[Any] = iter(gates)
        self.quantities: list[Any] = []

    def positive(self, quantity: Any) -> Any:
        self.quantities.append(quantity)
        return next(self._gates)

    def largest(self, candidates: Any) -> Any:
        gate = next(self._gates)
        self.quantities.append(candidates - picked(gate, candidates)[..., None])
        return gate


def picked(place: Any, candidates: Any) -> Any:
    """The candidate at that place: a choice and a sum of zeros, so that its derivative is a
    choice as well.
    """
    chosen = jnp.arange(candidates.shape[-1]) == place[..., None]
    return jnp.where(chosen, candidates, jnp.zeros_like(candidates)).sum(axis=-1)


def _maximum(ask: Oracle, options: Any, a: Any, b: Any) -> Any:
    return jnp.where(ask.positive(a - b), a, b)


def _minimum(ask: Oracle, options: Any, a: Any, b: Any) -> Any:
    return jnp.where(ask.positive(b - a), a, b)


def _absolute(ask: Oracle, options: Any, a: Any) -> Any:
    return jnp.where(ask.positive(a), a, -a)


def _clamp(ask: Oracle, options: Any, low: Any, a: Any, high: Any) -> Any:
    low, high = jnp.broadcast_to(low, a.shape), jnp.broadcast_to(high, a.shape)
    return _minimum(ask, options, _maximum(ask, options, a, low), high)


def _reduction(sign: int) -> Callable[..., Any]:
    def rule(ask: Oracle, options: Mapping[str, Any], a: Any) -> Any:
        axes = options["axes"]
        kept = [d for d in range(a.ndim) if d not in axes]
        last = jnp.transpose(a, [*kept, *axes]).reshape(*(a.shape[d] for d in kept), -1)
        return picked(ask.largest(sign * last if sign < 0 else last), last)

    return rule


def _pooling(sign: int) -> Callable[..., Any]:
    def rule(ask: Oracle, options: Mapping[str, Any], a: Any) -> Any:
        entries = windowed(options, a)
        return picked(ask.largest(sign * entries if sign < 0 else entries), entries)

    return rule


def windowed(options: Mapping[str, Any], a: Any) -> Any:
    """The entries of every window on a new last axis; a place in the padding holds the window's
    first real entry again.
    """
    config = [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["base_dilation"], strict=True)
    ]
    inside = window_inside(options, a.shape)
    full = jax.lax.pad(a, jnp.zeros((), a.dtype), config)
    entries = (_sliced if inside.shape[-1] <= _SLICES else _gathered)(
        options, full, inside.shape[:-1]
    )
    if inside.all():
        return entries
    return jnp.where(
        inside, entries, picked(jnp.asarray(inside.argmax(axis=-1)), entries)[..., None]
    )


def _sliced(options: Mapping[str, Any], a: Any, count: Sequence[int]) -> Any:
    """One strided slice for each place in the window: its derivative is a sum of them."""
    sizes, strides, dilation = (
        options[k] for k in ("window_dimensions", "window_strides", "window_dilation")
    )
    starts = (
        [o * d for o, d in zip(offset, dilation, strict=True)] for offset in np.ndindex(*sizes)
    )
    stops = [s * (n - 1) + 1 for s, n in zip(strides, count, strict=True)]
    parts = [
        jax.lax.slice(a, start, [b + e for b, e in zip(start, stops, strict=True)], strides)
        for start in starts
    ]
    return jnp.stack(parts, axis=-1)


def _gathered(options: Mapping[str, Any], a: Any, count: Sequence[int]) -> Any:
    """One look-up for each axis: a large window has too many places to be sliced."""
    sizes, strides, dilation = (
        options[k] for k in ("window_dimensions", "window_strides", "window_dilation")
    )
    for axis, (size, stride, apart, n) in enumerate(
        zip(sizes, strides, dilation, count, strict=True)
    ):
        places = np.arange(n)[:, None] * stride + np.arange(size) * apart
        a = jnp.moveaxis(jnp.take(a, places, axis=axis), axis + 1, -1)
    return a.reshape(*count, -1)


def window_inside(options: Mapping[str, Any], shape: Sequence[int]) -> np.ndarray:
    """Which places of which window of a pooling lie on the array and not on its padding."""
    config = [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["base_dilation"], strict=True)
    ]
    real = padded(np.ones(shape, bool), False, config)
    sizes, strides, dilation = (
        options[k] for k in ("window_dimensions", "window_strides", "window_dilation")
    )
    return windows(real, sizes, strides, dilation, range(real.ndim))


def _equal(ask: Oracle, options: Any, a: Any, b: Any) -> Any:
    return ~(ask.positive(a - b) | ask.positive(b - a))


BENDS: dict[str, Callable[..., Any]] = {
    "max": _maximum,
    "min": _minimum,
    "abs": _absolute,
    "clamp": _clamp,
    "reduce_max": _reduction(1),
    "reduce_min": _reduction(-1),
    "reduce_window_max": _pooling(1),
    "reduce_window_min": _pooling(-1),
    "gt": lambda ask, options, a, b: ask.positive(a - b),
    "lt": lambda ask, options, a, b: ask.positive(b - a),
    "ge": lambda ask, options, a, b: ~ask.positive(b - a),
    "le": lambda ask, options, a, b: ~ask.positive(a - b),
    "eq": _equal,
    "ne": lambda ask, options, a, b: ~_equal(ask, options, a, b),
}
"""What each bending operation asks and makes of the answer. At a tie the second argument wins."""
