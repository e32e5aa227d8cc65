"""`LinearStack`: linear layers of which some have a bias."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.models.activation import Activation, apply_activation
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import boundary, full_products, is_traced, promote, widest
from neuromanifold.numerics.validation import check_sample

Params = tuple[Layer, ...]


@dataclass(frozen=True)
class LinearStack:
    """a_l = σ(W_l a_{l-1} + b_l), the last layer linear, with b_l only where the layer has one.

    What a file holds that no `nm.MLP` describes: there either every layer has a bias or none has.
    """

    activation: Activation

    def __call__(self, params: Params, x: Any) -> Any:
        """f_θ(x), in the widest dtype passed."""
        shape, features = np.shape(x), params[0].weight.shape[1]
        if len(shape) != 2 or shape[1] != features:
            found = f"{shape[1]} features" if len(shape) == 2 else f"shape {shape}"
            raise ValueError(
                f"`x` has {found} but the network takes {features}; pass an array of shape (n, "
                f"{features})."
            )
        if is_traced((params, x)):
            with full_products():
                return _forward(self, params, x)
        x = check_sample(x)
        with boundary(params, x) as leave:
            dtype = widest(params, x)
            return leave(_forward(self, promote(params, dtype), promote(x, dtype)))

    def with_zeros(self, params: Params) -> tuple[MLP, Params]:
        """The same function as an `nm.MLP`: zeros for the biases that are absent."""
        widths = (params[0].weight.shape[1], *(layer.weight.shape[0] for layer in params))
        filled = tuple(
            Layer(w, np.zeros(len(w), np.asarray(w).dtype) if b is None else b) for w, b in params
        )
        return MLP(widths, self.activation), filled


@jax.jit(static_argnums=0)
def _forward(stack: LinearStack, params: Params, x: Any) -> Any:
    for index, layer in enumerate(params):
        x = x if index == 0 else apply_activation(stack.activation, x)
        x = x @ layer.weight.T
        x = x if layer.bias is None else x + layer.bias
    return x
