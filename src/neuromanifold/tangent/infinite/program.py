"""A network at infinite width as two pure functions of the data: the pass over pairs (x, x), and
the pass over all pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.layers.base import AbstractLayer, Shape
from neuromanifold.models.layers.branches import (
    Elementwise,
    Residual,
    Sum,
    apply_all,
    shapes_through,
)
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.models.sequential import Sequential
from neuromanifold.tangent.infinite.deviations import Deviation, weight_layers
from neuromanifold.tangent.infinite.duals import Dual
from neuromanifold.tangent.infinite.pairs import Array, Pairs
from neuromanifold.tangent.infinite.quadrature import Quadrature
from neuromanifold.tangent.infinite.walk import Channels, Walk, asks, needs_pairs_of_positions

Layers = tuple[AbstractLayer, ...]


@dataclass(frozen=True)
class Program:
    """Layers for samples of one shape, how their parameters are scaled, and the number of nodes for
    each activation.

    `diagonal`: of the kernel only the diagonal is asked for, each sample and position with itself.
    """

    layers: Layers
    shape: Shape
    scaling: str
    quadrature: Quadrature
    orders: tuple[int, ...] = ()
    diagonal: bool = False

    @property
    def preparation(self) -> Layers:
        """The layers before the first weights, which act on the data themselves."""
        weighted = [bool(weight_layers((layer,))) for layer in self.layers]
        return self.layers[: weighted.index(True)] if any(weighted) else self.layers

    @property
    def random(self) -> Layers:
        """The layers from the first weights on."""
        return self.layers[len(self.preparation) :]

    @property
    def activations(self) -> list[Any]:
        """The activations of the random layers, in the order in which the walk meets them."""
        return list(_activations(self.random))

    @property
    def keeps_positions(self) -> bool:
        """Whether the output has positions, so that the kernel is between positions too."""
        return len(shapes_through(self.layers, self.shape)[-1]) > 1

    @property
    def pairs_remain(self) -> bool:
        """Whether the kernel is between different positions of the output."""
        return self.keeps_positions and not self.diagonal

    @property
    def full(self) -> bool:
        """Whether covariances between different positions of the data are needed."""
        return needs_pairs_of_positions(self.random, self.pairs_remain)

    @property
    def asks(self) -> bool:
        """Whether the pass over pairs (x, x) is needed."""
        return asks(self.random) or any(dual.recorded for dual in self.duals())

    @property
    def entries_per_pair(self) -> int:
        """The largest number of pairs of positions that any layer compares, for one pair of
        samples.
        """
        counts = [prod(shape[:-1]) for shape in shapes_through(self.layers, self.shape)]
        return max(counts) ** 2 if self.full else max(counts)

    def duals(self) -> list[Dual]:
        """The duals of the activations."""
        orders = self.orders or (self.quadrature.blind,) * len(self.activations)
        return [
            self.quadrature.dual(entry, order)
            for entry, order in zip(self.activations, orders, strict=True)
        ]

    def with_orders(self, orders: tuple[int, ...]) -> "Program":
        """The same with other numbers of nodes."""
        return replace(self, orders=orders)


def _activations(layers: Layers) -> Iterator[Any]:
    for layer in layers:
        match layer:
            case Elementwise():
                yield layer.activation
            case Residual(layers=inner):
                yield from _activations(inner)
            case Sum(branches=branches):
                for branch in branches:
                    yield from _activations(branch)


def program(net: Any, scaling: str | None, quadrature: Quadrature | None) -> Program:
    """The program of a described network; the parametrisation of an `MLP` is NTK unless
    `scaling` says otherwise.
    """
    if scaling not in (None, "ntk", "standard"):
        raise ValueError(
            f"`scaling` is {scaling!r}; pass 'ntk', 'standard', or None for the network's own."
        )
    quadrature = quadrature or Quadrature()
    if isinstance(net, Sequential):
        return Program(net.layers, net.input_shape, scaling or net.scaling, quadrature)
    net = require_perceptron(
        net,
        "infinite width is defined for the descriptions nm.MLP and nm.Sequential; of your own "
        "function: `net = nm.describe(f, params, x)`",
    )
    if net.output_activation.name != "identity":
        raise ValueError(
            f"`net` has the output activation {net.output_activation}; the limit is Gaussian "
            "before it: pass a linear output."
        )
    dense = [Dense(width, bias=net.bias) for width in net.widths[1:]]
    hidden = [Elementwise(entry) for entry in net.activation]
    layers = tuple(
        layer
        for both in zip(dense, [*hidden, None], strict=True)
        for layer in both
        if layer is not None
    )
    return Program(layers, net.widths[:1], scaling or "ntk", quadrature)


def own_pass(it: Program, x: Any, deviations: tuple[Deviation, ...]) -> tuple[Any, tuple[Any, ...]]:
    """What each sample's own covariances tell, and the estimated errors."""
    walk, _ = _walk(it, x, x, deviations, None, crossed=False, same=True, tangent=False)
    return tuple(walk.recorded), tuple(walk.errors)


def largest_variances(
    it: Program, x: Any, deviations: tuple[Deviation, ...]
) -> list[tuple[int, float]]:
    """After each layer: how many weight layers there were, and the largest variance."""
    walk, _ = _walk(it, x, x, deviations, None, crossed=False, same=True, tangent=False)
    return [(count, float(variances.max())) for count, variances in walk.variances]


def pair_pass(
    it: Program,
    x1: Any,
    x2: Any,
    deviations: tuple[Deviation, ...],
    own: Any,
    *,
    same: bool,
    tangent: bool,
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Covariances and tangent kernel of all pairs, (n1, *positions, n2, *positions), and the
    estimated errors.
    """
    walk, pairs = _walk(it, x1, x2, deviations, own, crossed=True, same=same, tangent=tangent)
    kernels = (pairs.covariance, pairs.tangent)
    return *(None if v is None else _samples_apart(v) for v in kernels), tuple(walk.errors)  # pyright: ignore[reportReturnType]


def diagonal_pass(
    it: Program, x: Any, deviations: tuple[Deviation, ...], *, tangent: bool
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Variance and tangent kernel of each sample with itself, (n, *positions), and the estimated
    errors.
    """
    walk, pairs = _walk(it, x, x, deviations, None, crossed=False, same=True, tangent=tangent)
    return pairs.covariance, pairs.tangent, tuple(walk.errors)


def _walk(
    it: Program,
    x1: Any,
    x2: Any,
    deviations: Any,
    own: Any,
    *,
    crossed: bool,
    same: bool,
    tangent: bool,
) -> tuple[Walk, Pairs]:
    left, right = (None, None) if own is None else map(iter, own)
    walk = Walk(iter(it.duals()), iter(deviations), it.scaling, left, right)
    x1, x2 = (
        apply_all(it.preparation, ((),) * len(it.preparation), x, it.scaling) for x in (x1, x2)
    )
    pairs = inputs(x1, x2, crossed=crossed, full=it.full, same=same, tangent=tangent)
    shape = shapes_through(it.preparation, it.shape)[-1]
    return walk, walk.through(it.random, Channels(pairs), shape, it.pairs_remain, "layers").pairs


def _samples_apart(v: Any) -> Any:
    """(n1, n2, p, p', q, q') → (n1, p, q, n2, p', q')."""
    axes = (v.ndim - 2) // 2
    return v.transpose(0, *range(2, 2 + 2 * axes, 2), 1, *range(3, 3 + 2 * axes, 2)) if axes else v


def poison(kernel: Any, errors: tuple[Any, ...], rtol: float) -> Any:
    """nan where the quadrature has missed its tolerance and no one is there to be told."""
    if kernel is None or not errors:
        return kernel
    worst = jnp.stack([jnp.asarray(e, jnp.float64) for e in errors]).max()
    return jnp.where(worst <= rtol, kernel, jnp.nan)


_FEW_CHANNELS = 16
_AT_ONCE = 8
_NEARLY_EQUAL = 1e-4


@partial(jax.jit, static_argnames=("crossed", "full", "same", "tangent"))
def inputs(x1: Array, x2: Array, *, crossed: bool, full: bool, same: bool, tangent: bool) -> Pairs:
    """Means over the channels of samples (n, *positions, channels). `same`: x1 and x2 are one
    list of samples.
    """
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
    total, _ = jax.lax.scan(
        lambda t, uv: (t + ((uv[0] - uv[1]) ** 2).sum(-1), None), start, (parts(u), parts(v))
    )
    return total / (2 * channels)


def _by_products(pairs: Pairs, x1: Array, x2: Array, covariance: Array, same: bool) -> Array:
    """½‖u − v‖² from matrix products; by differences for all pairs where two samples of
    different places nearly agree.
    """
    mean = pairs.mean_variance
    rough = jnp.maximum(mean - covariance, 0.0)
    known = _equal_places(pairs, mean.shape) if same else jnp.zeros((), bool)
    rough = jnp.where(known, 0.0, rough)
    close = (rough < _NEARLY_EQUAL * mean) & ~known
    return jax.lax.cond(
        close.any(),
        lambda: _by_differences(pairs.over_left(x1), pairs.over_right(x2)),
        lambda: rough,
    )


def _products(pairs: Pairs, x1: Array, x2: Array) -> Array:
    """⟨x1, x2⟩ over the channels, in the layout of the pairs."""
    axes = len(pairs.positions)
    channel, samples = 0, [1, 2] if pairs.crossed else [1, 1]
    here = [3 + j for j in range(axes)]
    there = [3 + axes + j for j in range(axes)] if pairs.full else here
    out = (
        [place for both in zip(here, there, strict=True) for place in both] if pairs.full else here
    )
    return jnp.einsum(
        x1,
        [samples[0], *here, channel],
        x2,
        [samples[1], *there, channel],
        [*samples[: pairs.batch], *out],
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
