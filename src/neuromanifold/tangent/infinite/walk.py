"""From a description to covariances: each layer as an operation on `Pairs`, in two passes.

What only a sample's own covariances tell (variances after an average, weights of attention,
coefficients of a series) is recorded in a pass over pairs (x, x), once per sample, and replayed in
the pass over all pairs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import jax.numpy as jnp

from neuromanifold.models.layers.attention import Attention
from neuromanifold.models.layers.base import AbstractLayer, Shape
from neuromanifold.models.layers.branches import Elementwise, Residual, Sum, shapes_through
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.layers.norm import LayerNorm
from neuromanifold.models.layers.pooling import AvgPool, Flatten, GlobalAvgPool
from neuromanifold.models.layers.windows import per_axis
from neuromanifold.numerics.validation import indefinite
from neuromanifold.tangent.infinite import operations
from neuromanifold.tangent.infinite.deviations import Deviation
from neuromanifold.tangent.infinite.duals import Dual, Own
from neuromanifold.tangent.infinite.operations import Average, Spread, Window
from neuromanifold.tangent.infinite.pairs import Pairs

Layers = tuple[AbstractLayer, ...]


@dataclass(frozen=True)
class Channels:
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
        self, layers: Layers, now: Channels, shape: Shape, after: bool, where: str
    ) -> Channels:
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
        self, layer: AbstractLayer, now: Channels, shape: Shape, after: bool, where: str
    ) -> Channels:
        """One layer."""
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

    def fresh(self, pairs: Pairs) -> Channels:
        """Gaussian channels behind new weights."""
        self.sources += 1
        return Channels(pairs, "gaussian", frozenset({self.sources}))

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
        return operations.averaged(pairs, average, left, right, terms)

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
        self, branches: list[Layers], now: Channels, shape: Shape, after: bool, where: str
    ) -> Channels:
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
        return Channels(total, law, frozenset().union(*(end.sources for end in ends)))


def _windows(window: Any, strides: Any, padding: str, axes: int) -> tuple[Window, ...]:
    sizes, steps = per_axis(window, axes, "window"), per_axis(strides, axes, "strides")
    return tuple(Window(size, step, padding) for size, step in zip(sizes, steps, strict=True))


def _forgotten(now: Channels, needed: bool) -> Channels:
    """Without the covariances between different positions, where no layer to come needs them."""
    return (
        now
        if needed or not now.pairs.full
        else replace(now, pairs=operations.equal_positions(now.pairs))
    )


def _check_gaussian(now: Channels, where: str, what: str) -> None:
    if now.law == "gaussian":
        return
    found = "data" if now.law == "data" else "random features that are not Gaussian"
    raise ValueError(
        f"`{where}` applies {what} to {found}; at infinite width it needs Gaussian "
        "pre-activations: "
        "put a Dense or Conv layer before it."
    )
