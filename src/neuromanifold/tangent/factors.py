"""The layer structure of an MLP's differential, from which kernels follow without the Jacobian."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from neuromanifold.models.activation import activation_slope, apply_activation
from neuromanifold.models.mlp import MLP, Params


class Factors(NamedTuple):
    """What a layer contributes to J: its scaled input `a` (n, in) and the slope of the output `d` = ∂f/∂z (n, o, out).

    ∂f_o(x_i)/∂W = d[i, o] ⊗ a[i]  and  ∂f_o(x_i)/∂b = d[i, o].
    """

    a: Any
    d: Any


def layer_factors(net: MLP, params: Params, x: Any) -> tuple[Factors, ...]:
    """The factors of every layer, by one forward and one backward pass with all outputs at once."""
    z = net.preactivations(params, x)
    x = x.astype(z[0].dtype)
    inputs = (x, *(apply_activation(entry, zl) for entry, zl in zip(net.activation, z[:-1], strict=True)))
    slopes = [activation_slope(entry, zl) for entry, zl in zip(net.activations, z, strict=True)]
    d = jnp.eye(net.widths[-1], dtype=z[-1].dtype)[None] * slopes[-1][:, None, :]
    factors = []
    for index in reversed(range(net.depth)):
        scale = net.weight_scales[index]
        factors.append(Factors(inputs[index] * scale, d))
        if index:
            d = (d @ params[index].weight) * (scale * slopes[index - 1])[:, None, :]
    return tuple(reversed(factors))
