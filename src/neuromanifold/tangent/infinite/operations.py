"""What each kind of layer does to `Pairs`: the arithmetic of covariances at infinite width.

Each operation is compiled by itself, so that layers of one kind and shape share it, and XLA cannot
fuse an activation into the sums after it, where it would be computed once per term.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from neuromanifold.models.layers.windows import margins, windows_along
from neuromanifold.tangent.infinite.duals import Dual, Own
from neuromanifold.tangent.infinite.pairs import (
    Array,
    Pairs,
    difference,
    geometry,
    on_diagonal,
    root,
)


class Spread(NamedTuple):
    """Weights N(0, `weight`/fan_in) and biases N(0, `bias`), and how they enter the tangent kernel.

    With standard normal parameters (`scaling="ntk"`) the rates are the variances; where the
    parameters carry their deviations (`"standard"`) they are fan_in and 1.
    """

    weight: Array
    bias: Array
    weight_rate: Array
    bias_rate: Array


class Window(NamedTuple):
    """A window along one axis of positions."""

    size: int
    stride: int
    padding: str

    def margins(self, positions: int) -> tuple[int, int]:
        """What is added before and after the axis."""
        return margins(positions, self.size, self.stride, self.padding)

    def widened(self, v: Array, axis: int) -> Array:
        """The array with its margins, of zeros or of the other side."""
        widths = self.margins(v.shape[axis])
        if not sum(widths):
            return v
        mode = "wrap" if self.padding == "CIRCULAR" else "constant"
        return jnp.pad(v, [widths if a == axis else (0, 0) for a in range(v.ndim)], mode=mode)

    def mean(self, v: Array, axes: Sequence[int], positions: int) -> Array:
        """The mean over windows that move along several axes at once; `v` has its margins."""
        count = windows_along(positions, *self)
        return sum(self._move(v, axes, offset, count) for offset in range(self.size)) / self.size

    def _move(self, v: Array, axes: Sequence[int], offset: int, count: int) -> Array:
        for axis in axes:
            v = jax.lax.slice_in_dim(
                v, offset, offset + (count - 1) * self.stride + 1, self.stride, axis
            )
        return v


@jax.jit
def affine(pairs: Pairs, spread: Spread) -> Pairs:
    """Σ' = σ_w² Σ + σ_b²,  Θ' = r_w Σ + r_b + σ_w² Θ: a dense layer, or the end of any other
    weight layer.
    """
    tangent = pairs.tangent
    if tangent is not None:
        tangent = spread.weight_rate * pairs.covariance + spread.bias_rate + spread.weight * tangent
    return replace(
        pairs,
        left=spread.weight * pairs.left + spread.bias,
        right=spread.weight * pairs.right + spread.bias,
        covariance=spread.weight * pairs.covariance + spread.bias,
        distance=spread.weight * pairs.distance,
        tangent=tangent,
    )


@partial(jax.jit, static_argnames="windows")
def convolve(pairs: Pairs, windows: tuple[Window, ...], spread: Spread) -> Pairs:
    """Means over a window that moves over both samples at once, axis by axis, then `affine`."""
    for axis, window in enumerate(windows):
        pairs = _taps(pairs, axis, window)
    return affine(pairs, spread)


def _taps(pairs: Pairs, axis: int, window: Window) -> Pairs:
    """One axis. Where one sample's window reaches beyond its margin and the other's does not, the
    covariance is 0 and ½E(u − v)² is
    half of the one variance left."""
    size, both = pairs.positions[axis], _axes(pairs, axis)
    before, after = window.margins(size)

    def widened(v: Array) -> Array:
        for place in both:
            v = window.widened(v, place)
        return v

    left, right = (window.widened(v, 1 + axis) for v in (pairs.left, pairs.right))
    distance = widened(pairs.distance)
    if pairs.full and before + after and window.padding != "CIRCULAR":
        inside = jnp.pad(jnp.ones(size, bool), (before, after))
        inside = _between(inside[:, None] & inside, both, distance.ndim)
        distance = jnp.where(
            inside, distance, (pairs.over_left(left) + pairs.over_right(right)) / 2
        )
    return replace(
        pairs,
        left=window.mean(left, (1 + axis,), size),
        right=window.mean(right, (1 + axis,), size),
        distance=window.mean(distance, both, size),
        **pairs.map_pairs(lambda v: window.mean(widened(v), both, size)),
    )


def _between(table: Array, axes: Sequence[int], ndim: int) -> Array:
    """A table over two axes, shaped to meet an array of that many."""
    return jnp.expand_dims(table, tuple(a for a in range(ndim) if a not in axes))


def _axes(pairs: Pairs, axis: int) -> tuple[int, ...]:
    """Where an axis of positions stands in the arrays over pairs."""
    first = pairs.batch + 2 * axis
    return (first, first + 1) if pairs.full else (pairs.batch + axis,)


@partial(jax.jit, static_argnums=0)
def own(dual: Dual, a: Array) -> Own:
    """What a dual knows of each sample."""
    return dual.own(a)


@partial(jax.jit, static_argnums=0)
def activation(dual: Dual, pairs: Pairs, left: Own, right: Own) -> tuple[Pairs, Any]:
    """Σ' = E[σ(u)σ(v)],  Θ' = Θ E[σ'(u)σ'(v)]; and the error that quadrature estimates for the
    pairs.
    """
    moments = dual.pairs(
        geometry(pairs),
        jax.tree.map(pairs.over_left, left._replace(error=())),
        jax.tree.map(pairs.over_right, right._replace(error=())),
    )
    after = replace(
        pairs,
        left=left.variance,
        right=right.variance,
        covariance=moments.covariance,
        distance=moments.distance,
        tangent=None if pairs.tangent is None else pairs.tangent * moments.slope,
    )
    return after, moments.error


class Average(NamedTuple):
    """Covariances and tangent kernel after a linear map of the positions; the variances are
    found apart.
    """

    covariance: Array
    tangent: Array | None


@partial(jax.jit, static_argnums=1)
def average(pairs: Pairs, windows: tuple[Window, ...]) -> Average:
    """Means over windows that move over each sample by itself: c'(P, P') is the mean of c over
    pairs of positions.
    """

    def mean(v: Array) -> Array:
        for axis, window in enumerate(windows):
            for place in _axes(pairs, axis):
                v = window.mean(window.widened(v, place), (place,), pairs.positions[axis])
        return v

    return Average(**pairs.map_pairs(mean))


@jax.jit
def global_average(pairs: Pairs) -> Average:
    """The mean over all pairs of positions."""
    return Average(**pairs.map_pairs(lambda v: v.mean(axis=tuple(range(pairs.batch, v.ndim)))))


@jax.jit
def attention_weights(pairs: Pairs, logit: Array) -> Array:
    """G = softmax(σ_k² Σ(x, x)): what the weights of attention with tied queries and keys
    converge to in their linear scaling.
    """
    return jax.nn.softmax(logit * _matrix(pairs.covariance, pairs), axis=-1)


@jax.jit
def attend(pairs: Pairs, left: Array, right: Array) -> Average:
    """G Σ Gᵀ and G Θ Gᵀ: attention before its value and output weights."""
    left, right = (left[:, None], right[None]) if pairs.crossed else (left, right)

    def weighted(v: Array) -> Array:
        product = jnp.matmul(left, jnp.matmul(_matrix(v, pairs), jnp.swapaxes(right, -1, -2)))
        axes = len(pairs.positions)
        apart = product.reshape(*product.shape[:-2], *pairs.positions, *pairs.positions)
        order = (pairs.batch + offset + j for j in range(axes) for offset in (0, axes))
        return apart.transpose(*range(pairs.batch), *order)

    return Average(**pairs.map_pairs(weighted))


def _matrix(v: Array, pairs: Pairs) -> Array:
    """Pairs of positions (…, p, p', q, q') as matrices (…, P, P')."""
    b, axes, size = pairs.batch, len(pairs.positions), prod(pairs.positions)
    order = (*range(b), *range(b, b + 2 * axes, 2), *range(b + 1, b + 2 * axes, 2))
    return v.transpose(order).reshape(*v.shape[:b], size, size)


@partial(jax.jit, static_argnums=1)
def own_variances(average: Average, full: bool) -> Array:
    """The variances after a map of the positions, from the covariances of each sample with
    itself.
    """
    return on_diagonal(average.covariance, 1) if full else average.covariance


@partial(jax.jit, static_argnames="terms")
def average_positions(
    pairs: Pairs, average: Average, left: Array, right: Array, terms: int
) -> Pairs:
    """The pairs after a map of the positions that sums so many terms."""
    full = pairs.full and left.ndim > 1
    after = replace(pairs, left=left, right=right, full=full, **average._asdict())
    return replace(after, distance=difference(after.mean_variance, average.covariance, terms=terms))


@jax.jit
def flatten(pairs: Pairs) -> Pairs:
    """Positions become channels: every covariance is the mean of those at equal positions."""

    def mean(v: Array, samples: int) -> Array:
        return v.mean(axis=tuple(range(samples, v.ndim)))

    return replace(
        pairs,
        left=mean(pairs.left, 1),
        right=mean(pairs.right, 1),
        distance=mean(pairs.distance, pairs.batch),
        **pairs.map_pairs(lambda v: mean(v, pairs.batch)),
        full=False,
    )


@jax.jit
def equal_positions(pairs: Pairs) -> Pairs:
    """Forget the covariances between different positions."""
    distance = on_diagonal(pairs.distance, pairs.batch)
    return replace(
        pairs,
        distance=distance,
        full=False,
        **pairs.map_pairs(lambda v: on_diagonal(v, pairs.batch)),
    )


@partial(jax.jit, static_argnames=("positions", "eps"))
def normalise(pairs: Pairs, *, positions: bool, eps: float) -> Pairs:
    """Layer normalisation: u/√(a + ε), or with the mean of a over the positions; Θ' = Θ/√((a +
    ε)(b + ε)).
    """

    def level(v: Array) -> Array:
        return (v.mean(axis=tuple(range(1, v.ndim)), keepdims=True) if positions else v) + eps

    below_left, below_right = level(pairs.left), level(pairs.right)
    sizes = pairs.over_left(root(below_left)) * pairs.over_right(root(below_right))
    left, right = pairs.left / below_left, pairs.right / below_right
    radial = (pairs.over_left(root(left)) - pairs.over_right(root(right))) ** 2 / 2
    distance = geometry(pairs).minus / sizes + radial
    return replace(
        pairs, left=left, right=right, distance=distance, **pairs.map_pairs(lambda v: v / sizes)
    )


@jax.jit
def add(branches: Sequence[Pairs]) -> Pairs:
    """Sums of independent branches: everything adds."""
    first = branches[0]
    return replace(
        first,
        left=sum(b.left for b in branches),
        right=sum(b.right for b in branches),
        covariance=sum(b.covariance for b in branches),
        distance=sum(b.distance for b in branches),
        tangent=None if first.tangent is None else sum(b.tangent for b in branches),  # pyright: ignore[reportArgumentType, reportCallIssue]
    )
