"""Where a program bends: maxima, absolute values, comparisons, pooling. Each bend asks an oracle
one of two questions.

`positive(q)`: is this quantity positive?   `largest(c)`: which candidate on the last axis is the
largest? The answers are *gates*. With its gates given, a bend is an index map, and the program a
polynomial on its region.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.index_maps import Options, pad, windows

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
    """Asks JAX where an answer is not known yet, and keeps all of them as `gates`: a traced program
    then holds every open decision as `gt` or `argmax`.
    """

    def __init__(self, known: Sequence[Any] = ()) -> None:
        self._known: Iterator[Any] = iter(known)
        self.gates: list[Any] = []

    def positive(self, quantity: Any) -> Any:
        return self._keep(lambda: jax.lax.gt(quantity, jnp.zeros_like(quantity)))

    def largest(self, candidates: Any) -> Any:
        return self._keep(lambda: jax.lax.argmax(candidates, candidates.ndim - 1, np.int64))

    def _keep(self, ask: Callable[[], Any]) -> Any:
        known = next(self._known, None)
        self.gates.append(ask() if known is None else known)
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
        self.quantities.append(candidates - pick(gate, candidates)[..., None])
        return gate


def pick(place: Any, candidates: Any) -> Any:
    """The candidate at that place: a choice and a sum of zeros, so that its derivative is a
    choice as well.
    """
    chosen = jnp.arange(candidates.shape[-1]) == place[..., None]
    return jnp.where(chosen, candidates, jnp.zeros_like(candidates)).sum(axis=-1)


@dataclass(frozen=True)
class Bend:
    """How an operation bends: `choose(ask, options, *values)` puts its questions to an oracle and
    makes the result of the answers. At a tie the second operand wins.

    It asks `questions` about each of its scalars, where its options are such that it `applies`.
    `candidates(options, shape)` are how many candidates each of its maxima has, and which of them
    lie inside the array (None for all); `held(options, shape)` counts the entries that are compared
    at once, where they are more than it gives. `of_equals` is what a comparison gives for a value
    and itself. `commutes` says whether operands may be exchanged, `clips` on which sides a signal
    is held back. `orders` says whether entries are sorted. `pools` is 1 for the largest entry of
    windows, −1 for the smallest.
    """

    choose: Callable[..., Any]
    questions: int = 1
    applies: Callable[[Options], bool] = lambda options: True
    candidates: Callable[[Options, Sequence[int]], tuple[int, np.ndarray | None]] | None = None
    held: Callable[[Options, Sequence[int]], int] | None = None
    of_equals: bool | None = None
    commutes: bool = False
    clips: tuple[str, ...] = ()
    orders: bool = False
    pools: int = 0


def maximum(ask: Oracle, options: Options, a: Any, b: Any) -> Any:
    """max(a, b)."""
    return jnp.where(ask.positive(a - b), a, b)


def minimum(ask: Oracle, options: Options, a: Any, b: Any) -> Any:
    """min(a, b)."""
    return jnp.where(ask.positive(b - a), a, b)


def absolute(ask: Oracle, options: Options, a: Any) -> Any:
    """|a|."""
    return jnp.where(ask.positive(a), a, -a)


def clamp(ask: Oracle, options: Options, low: Any, a: Any, high: Any) -> Any:
    """min(max(a, low), high)."""
    low, high = jnp.broadcast_to(low, a.shape), jnp.broadcast_to(high, a.shape)
    return minimum(ask, options, maximum(ask, options, a, low), high)


def equal(ask: Oracle, options: Options, a: Any, b: Any) -> Any:
    """a = b: neither is larger."""
    return ~(ask.positive(a - b) | ask.positive(b - a))


def reduction(sign: int) -> Bend:
    """The largest entry over some axes, the smallest with sign −1."""

    def choose(ask: Oracle, options: Options, a: Any) -> Any:
        last = _axes_last(a, options["axes"])
        return pick(ask.largest(sign * last if sign < 0 else last), last)

    return Bend(choose, candidates=_over_axes)


def argument(sign: int) -> Bend:
    """The place of the largest entry on an axis, of the smallest with sign −1."""

    def choose(ask: Oracle, options: Options, a: Any) -> Any:
        last = _axes_last(a, options["axes"])
        return ask.largest(sign * last if sign < 0 else last).astype(options["index_dtype"])

    return Bend(choose, candidates=_over_axes)


def _axes_last(a: Any, axes: Sequence[int]) -> Any:
    kept = [d for d in range(a.ndim) if d not in axes]
    return jnp.transpose(a, [*kept, *axes]).reshape(*(a.shape[d] for d in kept), -1)


def _over_axes(options: Options, shape: Sequence[int]) -> tuple[int, None]:
    return int(np.prod([shape[d] for d in options["axes"]])), None


def pooling(sign: int) -> Bend:
    """The largest entry of each window, the smallest with sign −1."""

    def choose(ask: Oracle, options: Options, a: Any) -> Any:
        entries = take_windows(options, a)
        return pick(ask.largest(sign * entries if sign < 0 else entries), entries)

    def candidates(options: Options, shape: Sequence[int]) -> tuple[int, np.ndarray | None]:
        inside = window_inside(options, shape)
        return inside.shape[-1], None if inside.all() else inside

    return Bend(choose, candidates=candidates, pools=sign)


def running(sign: int) -> Bend:
    """The largest entry so far along an axis, the smallest with sign −1. The candidates that come
    later hold the first entry again.
    """

    def choose(ask: Oracle, options: Options, a: Any) -> Any:
        last = jnp.moveaxis(a, options["axis"], -1)
        last = last[..., ::-1] if options["reverse"] else last
        inside = np.tri(last.shape[-1], dtype=bool)
        entries = jnp.where(inside, last[..., None, :], last[..., None, :1])
        found = pick(ask.largest(sign * entries if sign < 0 else entries), entries)
        return jnp.moveaxis(found[..., ::-1] if options["reverse"] else found, -1, options["axis"])

    def candidates(options: Options, shape: Sequence[int]) -> tuple[int, np.ndarray]:
        n, axis = shape[options["axis"]], options["axis"]
        return n, np.broadcast_to(np.tri(n, dtype=bool), (*shape[:axis], *shape[axis + 1 :], n, n))

    return Bend(choose, candidates=candidates, held=pairs("axis"))


def sort_entries(ask: Oracle, options: Options, *operands: Any) -> list[Any]:
    """`lax.sort`: all operands in the order of the first, smallest first; of equal ones the first.

    Entry i comes after entry j > i where it is larger: with these comparisons of pairs given, the
    sorted entries are a permutation of them.
    """
    axis = options["dimension"]
    moved = [jnp.moveaxis(a, axis, -1) for a in operands]
    place = _places(ask, moved[0])
    return [jnp.moveaxis(_put(place, a), -1, axis) for a in moved]


def largest_entries(ask: Oracle, options: Options, a: Any) -> list[Any]:
    """`lax.top_k`: the k largest entries along an axis and where they are."""
    axis, k = options.get("axis", a.ndim - 1), options["k"]
    moved = jnp.moveaxis(a, axis, -1)
    place = _places(ask, -moved)
    index = jnp.broadcast_to(jnp.arange(moved.shape[-1], dtype=np.int32), moved.shape)
    return [jnp.moveaxis(_put(place, v)[..., :k], -1, axis) for v in (moved, index)]


def _places(ask: Oracle, a: Any) -> Any:
    """The place that each entry has on the last axis, once sorted."""
    n = a.shape[-1]
    first, second = np.triu_indices(n, 1)
    later = ask.positive(a[..., first] - a[..., second])
    pair = np.zeros((n, n), int)
    pair[first, second] = pair[second, first] = np.arange(len(first))
    compared, earlier = later[..., pair], np.tri(n, k=-1, dtype=bool)
    after = jnp.where(earlier, ~compared, compared) & ~np.eye(n, dtype=bool)
    return after.sum(axis=-1, dtype=np.int32)


def _put(place: Any, a: Any) -> Any:
    """The entries at their places: a choice and a sum of zeros."""
    chosen = place[..., None, :] == jnp.arange(a.shape[-1])[:, None]
    return jnp.where(chosen, a[..., None, :], jnp.zeros((), a.dtype)).sum(axis=-1, dtype=a.dtype)


def pairs(axis: str) -> Callable[[Options, Sequence[int]], int]:
    """How many entries sorting along an axis compares, by the name of the option that has it."""

    def held(options: Options, shape: Sequence[int]) -> int:
        n = shape[options.get(axis, len(shape) - 1)]
        return int(np.prod(shape)) * 2 * n

    return held


def take_windows(options: Options, a: Any) -> Any:
    """The entries of every window on a new last axis; a place in the padding holds the window's
    first real entry again.
    """
    config = [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["base_dilation"], strict=True)
    ]
    inside = window_inside(options, a.shape)
    full = jax.lax.pad(a, jnp.zeros((), a.dtype), config)
    entries = (_slice_windows if inside.shape[-1] <= _SLICES else _gather_windows)(
        options, full, inside.shape[:-1]
    )
    if inside.all():
        return entries
    return jnp.where(inside, entries, pick(jnp.asarray(inside.argmax(axis=-1)), entries)[..., None])


def _slice_windows(options: Options, a: Any, count: Sequence[int]) -> Any:
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


def _gather_windows(options: Options, a: Any, count: Sequence[int]) -> Any:
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


def window_inside(options: Options, shape: Sequence[int]) -> np.ndarray:
    """Which places of which window of a pooling lie on the array and not on its padding."""
    config = [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["base_dilation"], strict=True)
    ]
    real = pad(np.ones(shape, bool), False, config)
    sizes, strides, dilation = (
        options[k] for k in ("window_dimensions", "window_strides", "window_dilation")
    )
    return windows(real, sizes, strides, dilation, range(real.ndim))


def take_extremes(sign: int, options: Options, a: Any) -> Any:
    """The windowed maximum of real numbers (the minimum with sign −1), as `jax.lax.reduce_window`
    has it, with a choice for its derivative.

    JAX's own forward derivative packs the entry and its tangent into one word on a GPU: in float64
    20 bits are left of each, and entries that agree to 20 bits are taken for equal (JAX 0.10 to
    0.12). Here the place of the largest entry is looked up, of equal ones the first, and the
    tangent is read there: all bits on every device, whatever the window's dilation.
    """
    return _pooling(sign, tuple((name, options[name]) for name in sorted(options)))(a)


@cache
def _pooling(sign: int, options: tuple[tuple[str, Any], ...]) -> Callable[[Any], Any]:
    window = dict(options)

    @jax.custom_jvp
    def value(a: Any) -> Any:
        fold = jax.lax.max if sign > 0 else jax.lax.min
        return jax.lax.reduce_window(a, np.array(-sign * np.inf, a.dtype), fold, **window)

    @value.defjvp
    def derivative(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        (a,), (change,) = primals, tangents
        place = Choosing().largest(take_windows(window, sign * a))
        return value(a), pick(place, take_windows(window, change))

    return value
