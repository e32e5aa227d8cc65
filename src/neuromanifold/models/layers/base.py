"""What a layer is: a frozen description that knows its shapes, draws its parameters and applies
them.
"""

import abc
import operator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.numerics.validation import indefinite

Shape = tuple[int, ...]
SCALINGS = ("standard", "ntk")


class AbstractLayer(abc.ABC):
    """A map of samples (n, *shape), channels last, with or without parameters.

    `scaling` is the network's: with `"ntk"` parameters are standard normal and the layer multiplies
    by their standard deviations; with `"standard"` the parameters carry them.
    """

    @abc.abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of one sample after the layer, `shape` being that before it."""

    @abc.abstractmethod
    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return the layer's outputs at the samples `x` (n, *shape); `scaling` is `standard` or `ntk`."""

    def draw(self, key: Any, shape: Shape, scaling: str) -> Any:
        """Draw parameters in float32 for samples of shape `shape`, as `scaling` says; nothing for a layer
        without parameters.
        """
        return ()


@dataclass(frozen=True)
class Deviations:
    """Standard deviations of a weight layer: weights σ_w/√fan_in, biases σ_b (`None` where there
    are no biases).
    """

    weight: float
    bias: float | None

    def draw(self, key: Any, shape: Shape, fan_in: int, scaling: str) -> Layer:
        """`weight` of that shape, output channels first, and `bias`."""
        weight_std, bias_std = (
            (self.weight / fan_in**0.5, self.bias) if scaling == "standard" else (1.0, 1.0)
        )
        weight_key, bias_key = jax.random.split(key)
        weight = jnp.float32(weight_std) * jax.random.normal(weight_key, shape, jnp.float32)
        if self.bias is None:
            return Layer(weight, None)
        return Layer(
            weight, jnp.float32(bias_std) * jax.random.normal(bias_key, shape[:1], jnp.float32)
        )

    def finish(self, product: Any, bias: Any, fan_in: int, scaling: str) -> Any:
        """σ_w W a/√fan_in + σ_b b from the bare product W a, channels last; W a + b in standard
        scaling.
        """
        if scaling == "ntk":
            product = product * (self.weight * fan_in**-0.5)
            bias = bias if bias is None or self.bias is None else bias * self.bias
        return product if bias is None else product + bias


def deviations(bias: bool, weight_std: float, bias_std: float) -> Deviations:
    """The layer's `Deviations` from its fields."""
    return Deviations(weight_std, bias_std if bias else None)


def check_features(features: Any, name: str = "features") -> None:
    """Refuse a number of channels that is not a positive whole number."""
    try:
        whole = operator.index(features)
    except TypeError:
        raise TypeError(f"`{name}` is {features!r}; pass a positive whole number.") from None
    if whole < 1:
        raise ValueError(f"`{name}` is {features!r}; pass a positive whole number.")


def check_deviations(**given: Any) -> None:
    """Refuse standard deviations that are negative or not finite, and weights that are all zero."""
    for name, value in given.items():
        if not isinstance(value, (int, float, np.floating)):
            raise TypeError(f"`{name}` is {indefinite(value)}; pass a number.")
        if not np.isfinite(value) or value < 0 or (value == 0 and name != "bias_std"):
            allowed = "zero or a positive number" if name == "bias_std" else "a positive number"
            raise ValueError(f"`{name}` is {value}; pass {allowed}.")
