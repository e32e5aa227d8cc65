"""Standard deviations of the weight layers, one entry each, as arguments that can be
differentiated by.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from neuromanifold.models.layers.attention import Attention
from neuromanifold.models.layers.base import AbstractLayer
from neuromanifold.models.layers.branches import Residual, Sum
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.validation import indefinite
from neuromanifold.tangent.infinite.operations import Spread

WeightLayer = Dense | Conv | Attention


class Deviation(NamedTuple):
    """σ_w (for attention those of key, value and output) and σ_b of one weight layer."""

    weight: Any
    bias: Any

    def spread(self, fan_in: int, bias: bool, scaling: str) -> Spread:
        """For a dense or convolutional layer."""
        weight, offset = self.weight**2, self.bias**2 if bias else 0.0
        rates = (weight, offset) if scaling == "ntk" else (float(fan_in), float(bias))
        return Spread(weight, offset, *rates)

    def attention_spread(self, fans: tuple[int, int], bias: bool, scaling: str) -> Spread:
        """For the value and output weights of attention, which both enter the tangent kernel;
        those of the keys do not, in the limit.
        """
        value, out = self.weight[1] ** 2, self.weight[2] ** 2
        offset = self.bias**2 if bias else 0.0
        rates = (
            (2 * value * out, offset)
            if scaling == "ntk"
            else (fans[0] * out + fans[1] * value, float(bias))
        )
        return Spread(value * out, offset, *rates)


def weight_layers(layers: tuple[AbstractLayer, ...]) -> list[WeightLayer]:
    """The layers with weights, in the order in which the walk meets them."""
    found: list[WeightLayer] = []
    for layer in layers:
        match layer:
            case Dense() | Conv() | Attention():
                found.append(layer)
            case Residual(layers=inner):
                found += weight_layers(inner)
            case Sum(branches=branches):
                found += [each for branch in branches for each in weight_layers(branch)]
    return found


def deviations(
    layers: tuple[AbstractLayer, ...], weight_std: Any, bias_std: Any
) -> tuple[Deviation, ...]:
    """The layers' own standard deviations, or those given: one number for all, or one entry per
    weight layer.
    """
    found = weight_layers(layers)
    weights, biases = (
        _entries(weight_std, len(found), "weight_std"),
        _entries(bias_std, len(found), "bias_std"),
    )
    return tuple(_deviation(*each) for each in zip(found, weights, biases, strict=True))


def _deviation(layer: WeightLayer, weight: Any, bias: Any) -> Deviation:
    bias = jnp.asarray(layer.bias_std if bias is None else bias, jnp.float64)
    if isinstance(layer, Attention):
        own = (layer.key_std, layer.value_std, layer.out_std)
        given = own if weight is None else weight if _several(weight) else (weight,) * 3
        if len(given) != 3:
            raise ValueError(
                f"`weight_std` has {len(given)} entries for attention; pass one, or three: key, "
                "value, output."
            )
        return Deviation(jnp.stack([jnp.asarray(w, jnp.float64) for w in given]), bias)
    if _several(weight):
        raise ValueError(
            f"`weight_std` has the entry {weight!r} for {indefinite(layer)} layer; pass one number."
        )
    return Deviation(jnp.asarray(layer.weight_std if weight is None else weight, jnp.float64), bias)


def _several(given: Any) -> bool:
    return isinstance(given, (tuple, list)) or np.ndim(given) > 0


def _entries(given: Any, count: int, name: str) -> list[Any]:
    if given is None:
        return [None] * count
    entries = list(given) if _several(given) else [given] * count
    if len(entries) != count:
        raise ValueError(
            f"`{name}` is {given!r}; pass one number, or one for each of the {count} weight layers."
        )
    for entry in entries:
        if entry is not None and not is_traced(entry):
            _check(entry, given, name)
    return entries


def _check(entry: Any, given: Any, name: str) -> None:
    values = np.asarray(entry, np.float64)
    zero = (values == 0).any() and name == "weight_std"
    if not np.isfinite(values).all() or (values < 0).any() or zero:
        allowed = "positive numbers" if name == "weight_std" else "zero or positive numbers"
        raise ValueError(f"`{name}` is {given!r}; pass {allowed}.")
