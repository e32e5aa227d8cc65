"""Elements that permute neurons and multiply them by factors."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.groups.base import Composition, Element


class Monomial(Element):
    """z'_i = u_i z_{p(i)} before and a'_i = v_i a_{p(i)} after the activation of each layer, the
    output layer included.

    On parameters: (W, b)'_i = u_i (W, b)_{p(i)} and V'_{·i} = V_{·p(i)} / v_i, V the next layer's
    weights.
    """

    order: tuple[Any, ...]
    into: tuple[Any, ...]
    out: tuple[Any, ...]

    def act(self, params: Any) -> Any:
        """g(θ)."""
        layers = []
        for index, (weight, bias) in enumerate(params):
            p, u = self.order[index], self.into[index].astype(weight.dtype)
            if index:
                weight = weight[:, self.order[index - 1]] / self.out[index - 1].astype(weight.dtype)
            layers.append(Layer(u[:, None] * weight[p], None if bias is None else u * bias[p]))
        return tuple(layers)

    @property
    def inverse(self) -> "Monomial":
        """z_j = z'_{q(j)} / u_{q(j)} with q = p⁻¹."""
        orders = tuple(_inverse(p) for p in self.order)
        return Monomial(
            orders,
            tuple((1 / u)[q] for u, q in zip(self.into, orders, strict=True)),
            tuple((1 / v)[q] for v, q in zip(self.out, orders, strict=True)),
        )

    def __matmul__(self, other: Any) -> Element:
        if not isinstance(other, Monomial):
            return Composition((self,)) @ other
        return Monomial(
            tuple(q[p] for p, q in zip(self.order, other.order, strict=True)),
            tuple(u * w[p] for p, u, w in zip(self.order, self.into, other.into, strict=True)),
            tuple(u * w[p] for p, u, w in zip(self.order, self.out, other.out, strict=True)),
        )


def _inverse(order: Any) -> Any:
    return np.argsort(order) if isinstance(order, np.ndarray) else jnp.argsort(order)


def monomial(net: MLP, *, order: Any = None, into: Any = None, out: Any = None) -> Monomial:
    """The element with the given hidden orders and factors; what is left out is the identity,
    and so is the output layer's.
    """
    widths = net.widths[1:]
    identity, ones = [np.arange(w) for w in widths], [np.ones(w) for w in widths]
    into = ones[:-1] if into is None else into
    return Monomial(
        tuple([*order, identity[-1]] if order is not None else identity),
        tuple([*into, *ones[len(into) :]]),
        tuple([*(into[: net.depth - 1] if out is None else out), ones[-1]]),
    )
