"""Averages over positions: `AvgPool` in windows, `GlobalAvgPool` over all of them."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.layers.base import AbstractLayer, Shape
from neuromanifold.models.layers.windows import check_window, margins, pad, per_axis, slid_shape


@dataclass(frozen=True)
class AvgPool(AbstractLayer):
    """The mean over each window; margins of zeros (`"SAME"`) count as zeros. `strides` are the
    window's size unless given.

    >>> nm.Sequential(AvgPool(2), input_shape=(6, 6, 3)).output_shape
    (3, 3, 3)
    """

    window: int | Shape
    strides: int | Shape | None = field(default=None, kw_only=True)
    padding: str = field(default="VALID", kw_only=True)

    def __post_init__(self):
        check_window(self.window, self.steps, self.padding)

    @property
    def steps(self) -> int | Shape:
        """Return the strides."""
        return self.window if self.strides is None else self.strides

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape after pooling `shape`: the positions of the window."""
        return (*slid_shape(shape, self.window, self.steps, self.padding), shape[-1])

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return the sums of `x` over windows, divided by their size."""
        axes = x.ndim - 2
        window, strides = (
            per_axis(self.window, axes, "window"),
            per_axis(self.steps, axes, "strides"),
        )
        widths = [
            margins(n, k, s, self.padding)
            for n, k, s in zip(x.shape[1:-1], window, strides, strict=True)
        ]
        x = pad(x, widths, self.padding)
        zero = np.zeros((), x.dtype)
        return jax.lax.reduce_window(
            x, zero, jax.lax.add, (1, *window, 1), (1, *strides, 1), "VALID"
        ) / prod(window)


@dataclass(frozen=True)
class GlobalAvgPool(AbstractLayer):
    """The mean over all positions."""

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of the channels alone."""
        if len(shape) < 2:
            raise ValueError(
                f"`input_shape` reaches GlobalAvgPool as {shape}; there are no positions left to "
                "average: leave the layer out."
            )
        return shape[-1:]

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return the mean over the positions."""
        return jnp.mean(x, axis=tuple(range(1, x.ndim - 1)))


@dataclass(frozen=True)
class Flatten(AbstractLayer):
    """Positions and channels as one long vector of channels."""

    def output_shape(self, shape: Shape) -> Shape:
        """Return the product of all sizes of `shape`."""
        return (prod(shape),)

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Put all entries of a sample on one axis."""
        return x.reshape(len(x), -1)
