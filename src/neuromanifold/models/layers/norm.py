"""`LayerNorm`: each sample centred and scaled to unit variance."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.layers.base import AbstractLayer, Shape


@dataclass(frozen=True)
class LayerNorm(AbstractLayer):
    """(x − mean)/√(variance + eps) over the channels, at each position; with `positions=True` over
    the positions too.

    There are no gains and offsets to learn; infinite width knows the layer without them.
    """

    positions: bool = field(default=False, kw_only=True)
    eps: float = field(default=1e-12, kw_only=True)

    def __post_init__(self):
        if not self.eps >= 0:
            raise ValueError(f"`eps` is {self.eps}; pass zero or a small positive number.")

    def output_shape(self, shape: Shape) -> Shape:
        """Return `shape` as it is."""
        return shape

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Centre the channels of each position, then scale them."""
        axes = tuple(range(1, x.ndim)) if self.positions else -1
        centred = x - jnp.mean(x, axis=axes, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=axes, keepdims=True) + self.eps)
