"""Layers made of layers: `Residual` and `Sum`, and how a list of layers acts."""

from dataclasses import dataclass
from typing import Any

import jax

from neuromanifold.models.activation import Activation, Mixed, activation_named, apply_activation
from neuromanifold.models.layers.base import AbstractLayer, Shape
from neuromanifold.numerics.randomness import Key

Given = AbstractLayer | Activation | Mixed | str


@dataclass(frozen=True)
class Elementwise(AbstractLayer):
    """An activation as a layer; a name or an `nm.Activation` in a list of layers becomes one."""

    activation: Activation | Mixed

    def output_shape(self, shape: Shape) -> Shape:
        """Return `shape` as it is."""
        if isinstance(self.activation, Mixed) and self.activation.width != shape[-1]:
            raise ValueError(
                f"`layers` apply {self.activation} with {self.activation.width} neurons to "
                f"{shape[-1]} channels; make them equal."
            )
        return shape

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return σ(x)."""
        return apply_activation(self.activation, x)


@dataclass(frozen=True, init=False)
class Residual(AbstractLayer):
    """x + branch(x): the layers given, beside their own input.

    >>> nm.Sequential(nm.layers.Dense(4), Residual("relu", nm.layers.Dense(4)), input_shape=(2,)).output_shape
    (4,)
    """

    layers: tuple[AbstractLayer, ...]

    def __init__(self, *layers: Given):
        object.__setattr__(self, "layers", as_layers(layers, "Residual"))

    def output_shape(self, shape: Shape) -> Shape:
        """Return `shape`, which the branch must keep."""
        found = shapes_through(self.layers, shape)[-1]
        if found != shape:
            raise ValueError(
                f"`Residual` adds a branch of shape {found} to its input {shape}; make them equal."
            )
        return shape

    def draw(self, key: Key, shape: Shape, scaling: str) -> Any:
        """Draw the branch's parameters, one entry per layer, for samples of shape `shape`."""
        return draw_all(self.layers, key, shape, scaling)

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return `x` plus the outputs of the branch."""
        return x + apply_all(self.layers, params, x, scaling)


@dataclass(frozen=True, init=False)
class Sum(AbstractLayer):
    """Σ_i branch_i(x): branches, each a layer or a tuple of layers, that share one input.

    >>> wide = Sum(nm.layers.Dense(4), (nm.layers.Dense(8), "relu", nm.layers.Dense(4)))
    >>> nm.Sequential(wide, input_shape=(2,)).output_shape
    (4,)
    """

    branches: tuple[tuple[AbstractLayer, ...], ...]

    def __init__(self, *branches: Given | tuple[Given, ...]):
        if len(branches) < 2:
            raise ValueError(f"`Sum` is given {len(branches)} branches; pass two or more.")
        object.__setattr__(
            self,
            "branches",
            tuple(as_layers(b if isinstance(b, tuple) else (b,), "Sum") for b in branches),
        )

    def output_shape(self, shape: Shape) -> Shape:
        """Return the one shape that all branches give to samples of shape `shape`."""
        found = [shapes_through(branch, shape)[-1] for branch in self.branches]
        if len(set(found)) != 1:
            raise ValueError(
                f"`Sum` adds branches of shapes {', '.join(map(str, found))}; make them equal."
            )
        return found[0]

    def draw(self, key: Key, shape: Shape, scaling: str) -> Any:
        """Draw the parameters of each branch for samples of shape `shape`."""
        keys = jax.random.split(key, len(self.branches))
        return tuple(
            draw_all(b, k, shape, scaling) for b, k in zip(self.branches, keys, strict=True)
        )

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return the sum of the branches."""
        return sum(apply_all(b, p, x, scaling) for b, p in zip(self.branches, params, strict=True))


def as_layers(given: tuple[Given, ...], owner: str) -> tuple[AbstractLayer, ...]:
    """The layers, with names and activations wrapped."""
    return tuple(_as_layer(entry, f"{owner}[{index}]") for index, entry in enumerate(given))


def _as_layer(given: Given, where: str) -> AbstractLayer:
    if isinstance(given, AbstractLayer):
        return given
    if isinstance(given, str):
        return Elementwise(activation_named(given))
    if isinstance(given, (Activation, Mixed)):
        return Elementwise(given)
    raise TypeError(
        f"`{where}` is {given!r}; pass a layer of nm.layers, an activation, or an activation's "
        "name."
    )


def shapes_through(layers: tuple[AbstractLayer, ...], shape: Shape) -> list[Shape]:
    """The shape of one sample before the first layer and after each."""
    shapes = [shape]
    for layer in layers:
        shapes.append(layer.output_shape(shapes[-1]))
    return shapes


def draw_all(
    layers: tuple[AbstractLayer, ...], key: Any, shape: Shape, scaling: str
) -> tuple[Any, ...]:
    """The parameters of each layer."""
    keys = jax.random.split(key, max(len(layers), 1))
    shapes = shapes_through(layers, shape)
    return tuple(
        layer.draw(k, s, scaling) for layer, k, s in zip(layers, keys, shapes, strict=False)
    )


def apply_all(layers: tuple[AbstractLayer, ...], params: Any, x: Any, scaling: str) -> Any:
    """Apply the layers one after another."""
    for layer, own in zip(layers, params, strict=True):
        x = layer.apply(own, x, scaling)
    return x
