"""`Conv`: one affine map of the channels in a window, at every position."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax

from neuromanifold.models.layers.base import (
    AbstractLayer,
    Shape,
    check_deviations,
    check_features,
    deviations,
)
from neuromanifold.models.layers.windows import check_window, margins, pad, per_axis, slid_shape
from neuromanifold.numerics.randomness import Key


@dataclass(frozen=True)
class Conv(AbstractLayer):
    """A convolution over any number of axes of positions; `weight` (features, channels, *window),
    fan_in = channels·Πwindow.

    `padding` is `"SAME"` (zeros), `"VALID"` (none) or `"CIRCULAR"` (the other side).

    >>> nm.Sequential(Conv(4, 3, strides=2), input_shape=(6, 6, 2)).output_shape
    (3, 3, 4)
    """

    features: int
    window: int | Shape
    strides: int | Shape = field(default=1, kw_only=True)
    padding: str = field(default="SAME", kw_only=True)
    bias: bool = field(default=True, kw_only=True)
    weight_std: float = field(default=1.0, kw_only=True)
    bias_std: float = field(default=1.0, kw_only=True)

    def __post_init__(self):
        check_features(self.features)
        check_window(self.window, self.strides, self.padding)
        check_deviations(weight_std=self.weight_std, bias_std=self.bias_std)

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape after the convolution: the positions of the window, `features` channels."""
        if len(shape) < 2:
            raise ValueError(
                f"`input_shape` reaches Conv as {shape}; a convolution needs positions and "
                "channels: pass (positions, …, channels)."
            )
        return (*slid_shape(shape, self.window, self.strides, self.padding), self.features)

    def fan_in(self, shape: Shape) -> int:
        """Return the channels of `shape` times the size of the window."""
        return shape[-1] * prod(per_axis(self.window, len(shape) - 1, "window"))

    def draw(self, key: Key, shape: Shape, scaling: str) -> Any:
        """Draw `Layer(weight, bias)` for samples of shape `shape`."""
        given = deviations(self.bias, self.weight_std, self.bias_std)
        window = per_axis(self.window, len(shape) - 1, "window")
        return given.draw(key, (self.features, shape[-1], *window), self.fan_in(shape), scaling)

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return XLA's convolution of `x`, channels last."""
        given, axes = deviations(self.bias, self.weight_std, self.bias_std), x.ndim - 2
        window, strides = (
            per_axis(self.window, axes, "window"),
            per_axis(self.strides, axes, "strides"),
        )
        widths = [
            margins(n, k, s, self.padding)
            for n, k, s in zip(x.shape[1:-1], window, strides, strict=True)
        ]
        channels_last = (0, axes + 1, *range(1, axes + 1))
        numbers = jax.lax.ConvDimensionNumbers(channels_last, tuple(range(axes + 2)), channels_last)
        product = jax.lax.conv_general_dilated(
            pad(x, widths, self.padding),
            params.weight,
            strides,
            "VALID",
            dimension_numbers=numbers,
        )
        return given.finish(product, params.bias, self.fan_in(x.shape[1:]), scaling)
