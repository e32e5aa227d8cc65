"""A network at infinite width as two pure functions of the data: the pass over pairs (x, x), and
the pass over all pairs. Each layer is an operation on `Pairs`.

What only a sample's own covariances tell (variances after an average, weights of attention,
coefficients of a series) is recorded in the pass over pairs (x, x), once per sample, and replayed
in the pass over all pairs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.layers.attention import Attention
from neuromanifold.models.layers.base import AbstractLayer, Shape
from neuromanifold.models.layers.branches import (
    Elementwise,
    Residual,
    Sum,
    apply_all,
    shapes_through,
)
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.layers.norm import LayerNorm
from neuromanifold.models.layers.pooling import AvgPool, Flatten, GlobalAvgPool
from neuromanifold.models.layers.windows import per_axis
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.models.sequential import Sequential
from neuromanifold.numerics.validation import indefinite
from neuromanifold.tangent.infinite import operations
from neuromanifold.tangent.infinite.deviations import Deviation, weight_layers
from neuromanifold.tangent.infinite.duals import Dual, Own
from neuromanifold.tangent.infinite.operations import Average, Spread, Window
from neuromanifold.tangent.infinite.pairs import Array, Pairs
from neuromanifold.tangent.infinite.quadrature import Quadrature

Layers = tuple[AbstractLayer, ...]


@dataclass(frozen=True)
class ChannelCovariances:
    """Covariances and what the channels are: `"data"`, `"gaussian"` pre-activations, or other
    random `"features"`.

    `sources` numbers the weights that they depend on directly, so that sums of dependent branches
    are noticed.
    """

    pairs: Pairs
    law: str = "data"
    sources: frozenset[int] = frozenset()


def needs_pairs_of_positions(layers: Layers, after: bool) -> bool:
    """Whether covariances between different positions are needed before the layers, given
    whether they are after them.
    """
    for layer in reversed(layers):
        after = _needs(layer, after)
    return after


def _needs(layer: AbstractLayer, after: bool) -> bool:
    match layer:
        case GlobalAvgPool() | Attention():
            return True
        case AvgPool(window=window):
            return after or (window if isinstance(window, int) else max(window)) > 1
        case Flatten():
            return False
        case Residual(layers=inner):
            return after or needs_pairs_of_positions(inner, after)
        case Sum(branches=branches):
            return any(needs_pairs_of_positions(branch, after) for branch in branches)
    return after


def asks(layers: Layers) -> bool:
    """Whether any layer needs what only a sample's own covariances tell."""
    for layer in layers:
        match layer:
            case AvgPool() | GlobalAvgPool() | Attention():
                return True
            case Residual(layers=inner) if asks(inner):
                return True
            case Sum(branches=branches) if any(map(asks, branches)):
                return True
    return False


@dataclass
class Walk:
    """One pass. `recorded` gathers what the pass over pairs (x, x) finds; `left` and `right`
    replay it for two sides.
    """

    duals: Iterator[Dual]
    deviations: Iterator[Deviation]
    scaling: str
    left: Iterator[Any] | None = None
    right: Iterator[Any] | None = None
    recorded: list[Any] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    variances: list[tuple[int, Any]] = field(default_factory=list)
    sources: int = 0

    def ask(self, compute: Callable[[], Any]) -> tuple[Any, Any]:
        """A sample's own value, for both sides of the pairs."""
        if self.left is not None and self.right is not None:
            return next(self.left), next(self.right)
        self.recorded.append(compute())
        return self.recorded[-1], self.recorded[-1]

    def through(
        self, layers: Layers, now: ChannelCovariances, shape: Shape, after: bool, where: str
    ) -> ChannelCovariances:
        """The channels after the layers; `after` says whether different positions will still be
        needed there.
        """
        shapes = shapes_through(layers, shape)
        for index, layer in enumerate(layers):
            now = _forgotten(now, needs_pairs_of_positions(layers[index:], after))
            remaining = needs_pairs_of_positions(layers[index + 1 :], after)
            now = self.step(layer, now, shapes[index], remaining, f"{where}[{index}]")
            self.variances.append((self.sources, now.pairs.left))
        return _forgotten(now, after)

    def step(
        self, layer: AbstractLayer, now: ChannelCovariances, shape: Shape, after: bool, where: str
    ) -> ChannelCovariances:
        """Go through one layer."""
        pairs, axes = now.pairs, len(now.pairs.positions)
        match layer:
            case Dense():
                return self.fresh(
                    operations.affine(pairs, self.weights(layer.fan_in(shape), layer.bias))
                )
            case Conv():
                windows = _windows(layer.window, layer.strides, layer.padding, axes)
                return self.fresh(
                    operations.convolve(
                        pairs, windows, self.weights(layer.fan_in(shape), layer.bias)
                    )
                )
            case Elementwise():
                _check_gaussian(now, where, str(layer.activation))
                return replace(now, pairs=self.activation(pairs), law="features")
            case AvgPool():
                windows = _windows(layer.window, layer.steps, layer.padding, axes)
                terms = prod(w.size for w in windows) ** 2
                return replace(
                    now, pairs=self.averaged(pairs, operations.average(pairs, windows), terms)
                )
            case GlobalAvgPool():
                terms = prod(pairs.positions) ** 2
                return replace(
                    now, pairs=self.averaged(pairs, operations.global_average(pairs), terms)
                )
            case Flatten():
                mixed = now.law == "gaussian" and prod(pairs.positions) > 1
                return replace(
                    now, pairs=operations.flatten(pairs), law="features" if mixed else now.law
                )
            case LayerNorm():
                _check_gaussian(now, where, "LayerNorm")
                return replace(
                    now, pairs=operations.normalise(pairs, positions=layer.positions, eps=layer.eps)
                )
            case Attention():
                return self.fresh(self.attention(layer, pairs, shape, where))
            case Residual():
                return self.total([(), layer.layers], now, shape, after, where)
            case Sum():
                return self.total(list(layer.branches), now, shape, after, where)
        raise TypeError(
            f"`{where}` is {indefinite(layer)}, which has no infinite-width limit here; use "
            "nm.layers."
        )

    def weights(self, fan_in: int, bias: bool) -> Spread:
        """The next weight layer's variances."""
        return next(self.deviations).spread(fan_in, bias, self.scaling)

    def fresh(self, pairs: Pairs) -> ChannelCovariances:
        """Gaussian channels behind new weights."""
        self.sources += 1
        return ChannelCovariances(pairs, "gaussian", frozenset({self.sources}))

    def activation(self, pairs: Pairs) -> Pairs:
        """An activation; its own coefficients are recorded where they are costly."""
        dual, error = next(self.duals), 0.0
        if not dual.recorded:
            left, right = operations.own(dual, pairs.left), operations.own(dual, pairs.right)
        elif self.left is None:
            left = right = operations.own(dual, pairs.left)
            error = left.error
            self.recorded.append((left.variance, left.record))
        else:
            left, right = (Own(*known) for known in self.ask(lambda: None))
        pairs, missed = operations.activation(dual, pairs, left, right)
        self.errors.append(jnp.maximum(error, missed))
        return pairs

    def averaged(self, pairs: Pairs, average: Average, terms: int) -> Pairs:
        """The pairs after a map of the positions, with the variances that each sample's own
        covariances tell.
        """
        left, right = self.ask(lambda: operations.own_variances(average, pairs.full))
        return operations.average_positions(pairs, average, left, right, terms)

    def attention(self, layer: Attention, pairs: Pairs, shape: Shape, where: str) -> Pairs:
        """Attention in its linear scaling."""
        if not layer.tied:
            raise ValueError(
                f"`{where}` is Attention(tied=False): with independent queries and keys and "
                "logits divided by √key_features "
                "the attention weights stay random at infinite width, so that the outputs are no "
                "Gaussian process; pass tied=True."
            )
        given = next(self.deviations)
        left, right = self.ask(lambda: operations.attention_weights(pairs, given.weight[0] ** 2))
        pairs = self.averaged(
            pairs, operations.attend(pairs, left, right), prod(pairs.positions) ** 2
        )
        fans = (shape[-1], layer.heads * layer.widths[1])
        return operations.affine(pairs, given.attention_spread(fans, layer.bias, self.scaling))

    def total(
        self, branches: list[Layers], now: ChannelCovariances, shape: Shape, after: bool, where: str
    ) -> ChannelCovariances:
        """A sum of branches that must be independent."""
        ends = [
            self.through(b, now, shape, after, f"{where}.branch{i}") for i, b in enumerate(branches)
        ]
        if any(end.law == "data" for end in ends):
            raise ValueError(
                f"`{where}` adds the data themselves, whose channels stay finite, to channels "
                "that grow without bound; "
                "put a Dense or Conv layer before it."
            )
        if any(a.sources & b.sources for i, a in enumerate(ends) for b in ends[:i]):
            raise ValueError(
                f"`{where}` adds branches that are made of the same weights, so that they are "
                "dependent; "
                "end all of them but one with a Dense or Conv layer of its own."
            )
        law = "gaussian" if all(end.law == "gaussian" for end in ends) else "features"
        total = operations.add([end.pairs for end in ends])
        return ChannelCovariances(total, law, frozenset().union(*(end.sources for end in ends)))


def _windows(window: Any, strides: Any, padding: str, axes: int) -> tuple[Window, ...]:
    sizes, steps = per_axis(window, axes, "window"), per_axis(strides, axes, "strides")
    return tuple(Window(size, step, padding) for size, step in zip(sizes, steps, strict=True))


def _forgotten(now: ChannelCovariances, needed: bool) -> ChannelCovariances:
    """Without the covariances between different positions, where no layer to come needs them."""
    return (
        now
        if needed or not now.pairs.full
        else replace(now, pairs=operations.equal_positions(now.pairs))
    )


def _check_gaussian(now: ChannelCovariances, where: str, what: str) -> None:
    if now.law == "gaussian":
        return
    found = "data" if now.law == "data" else "random features that are not Gaussian"
    raise ValueError(
        f"`{where}` applies {what} to {found}; at infinite width it needs Gaussian "
        "pre-activations: "
        "put a Dense or Conv layer before it."
    )


@dataclass(frozen=True)
class KernelProgram:
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

    def with_orders(self, orders: tuple[int, ...]) -> "KernelProgram":
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


def program(net: Any, scaling: str | None, quadrature: Quadrature | None) -> KernelProgram:
    """The program of a described network; the parametrisation of an `MLP` is NTK unless
    `scaling` says otherwise.
    """
    if scaling not in (None, "ntk", "standard"):
        raise ValueError(
            f"`scaling` is {scaling!r}; pass 'ntk', 'standard', or None for the network's own."
        )
    quadrature = quadrature or Quadrature()
    if isinstance(net, Sequential):
        return KernelProgram(net.layers, net.input_shape, scaling or net.scaling, quadrature)
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
    return KernelProgram(layers, net.widths[:1], scaling or "ntk", quadrature)


def own_pass(
    it: KernelProgram, x: Any, deviations: tuple[Deviation, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """What each sample's own covariances tell, and the estimated errors."""
    walk, _ = _walk(it, x, x, deviations, None, crossed=False, same=True, tangent=False)
    return tuple(walk.recorded), tuple(walk.errors)


def largest_variances(
    it: KernelProgram, x: Any, deviations: tuple[Deviation, ...]
) -> list[tuple[int, float]]:
    """After each layer: how many weight layers there were, and the largest variance."""
    walk, _ = _walk(it, x, x, deviations, None, crossed=False, same=True, tangent=False)
    return [(count, float(variances.max())) for count, variances in walk.variances]


def pair_pass(
    it: KernelProgram,
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
    it: KernelProgram, x: Any, deviations: tuple[Deviation, ...], *, tangent: bool
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Variance and tangent kernel of each sample with itself, (n, *positions), and the estimated
    errors.
    """
    walk, pairs = _walk(it, x, x, deviations, None, crossed=False, same=True, tangent=tangent)
    return pairs.covariance, pairs.tangent, tuple(walk.errors)


def _walk(
    it: KernelProgram,
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
    return walk, walk.through(
        it.random, ChannelCovariances(pairs), shape, it.pairs_remain, "layers"
    ).pairs


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
