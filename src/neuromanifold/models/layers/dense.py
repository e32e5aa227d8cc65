"""`Dense`: an affine map of the channels, the same at every position."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from neuromanifold.models.layers.base import (
    AbstractLayer,
    Shape,
    check_deviations,
    check_features,
    deviations,
)
from neuromanifold.numerics.randomness import Key


@dataclass(frozen=True)
class Dense(AbstractLayer):
    """z = σ_w W a/√fan_in + σ_b b over the last axis; `weight` (features, channels), `bias`
    (features,).

    >>> nm.Sequential(Dense(3), input_shape=(2,)).n_params
    9
    """

    features: int
    bias: bool = field(default=True, kw_only=True)
    weight_std: float = field(default=1.0, kw_only=True)
    bias_std: float = field(default=1.0, kw_only=True)

    def __post_init__(self):
        check_features(self.features)
        check_deviations(weight_std=self.weight_std, bias_std=self.bias_std)

    def output_shape(self, shape: Shape) -> Shape:
        """Return `shape` with `features` channels."""
        return (*shape[:-1], self.features)

    def fan_in(self, shape: Shape) -> int:
        """Return the number of channels of `shape`."""
        return shape[-1]

    def draw(self, key: Key, shape: Shape, scaling: str) -> Any:
        """Draw `Layer(weight, bias)` for samples of shape `shape`."""
        given = deviations(self.bias, self.weight_std, self.bias_std)
        return given.draw(key, (self.features, shape[-1]), self.fan_in(shape), scaling)

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Multiply `x` by the weights and add the bias."""
        given = deviations(self.bias, self.weight_std, self.bias_std)
        product = jnp.matmul(x, params.weight.T)
        return given.finish(product, params.bias, self.fan_in(x.shape[1:]), scaling)
