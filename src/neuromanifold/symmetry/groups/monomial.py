"""Elements that permute the entries of parameters along their axes and multiply them by factors."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.arguments import Params
from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.groups.base import Composition, Element

Axes = tuple[tuple[Any, ...], ...]


class Monomial(Element):
    """θ'[i, j, …] = u_i v_j … θ[p(i), q(j), …] for every leaf θ of the parameters, p, q, … the
    `orders` of its axes, u, v, … their `factors`.

    Permutations, signs and scalings of the channels of any network are of this form, those of a
    perceptron's neurons too: (W, b)'_i = u_i (W, b)_{p(i)} and V'_{·i} = V_{·p(i)} / v_i, V the next
    layer's weights.
    """

    orders: Axes
    factors: Axes

    def act(self, params: Params) -> Any:
        """Return g(θ)."""
        leaves, structure = jax.tree.flatten(params)
        moved = zip(leaves, self.orders, self.factors, strict=True)
        return structure.unflatten([_move(*each) for each in moved])

    @property
    def order(self) -> tuple[Any, ...]:
        """Which neuron stands where, layer by layer of a perceptron."""
        return tuple(p for p, _ in self._weights())

    @property
    def into(self) -> tuple[Any, ...]:
        """By what the incoming weights of each neuron are multiplied, layer by layer of a
        perceptron.
        """
        return tuple(u for _, u in self._weights())

    def _weights(self) -> Iterator[tuple[Any, Any]]:
        for orders, factors in zip(self.orders, self.factors, strict=True):
            if len(orders) == 2:
                yield orders[0], factors[0]

    @property
    def inverse(self) -> "Monomial":
        """θ[i] = θ'[q(i)] / u_{q(i)} with q = p⁻¹."""
        orders = tuple(tuple(_inverse(p) for p in axes) for axes in self.orders)
        factors = [
            tuple((1 / u)[q] for u, q in zip(*each, strict=True))
            for each in zip(self.factors, orders, strict=True)
        ]
        return Monomial(orders, tuple(factors))

    def __matmul__(self, other: Any) -> Element:
        if not isinstance(other, Monomial):
            return Composition((self,)) @ other
        leaves = [
            list(zip(*each, strict=True))
            for each in zip(self.orders, self.factors, other.orders, other.factors, strict=True)
        ]
        return Monomial(
            tuple(tuple(q[p] for p, _, q, _ in axes) for axes in leaves),
            tuple(tuple(u * v[p] for p, u, _, v in axes) for axes in leaves),
        )


def _move(leaf: Any, orders: tuple[Any, ...], factors: tuple[Any, ...]) -> Any:
    if leaf.shape != tuple(map(len, orders)):
        raise ValueError(f"an array of shape {leaf.shape} has no such axes")
    for axis, (order, factor) in enumerate(zip(orders, factors, strict=True)):
        if not _is_constant(order, np.arange(len(order))):
            leaf = leaf.take(order, axis)
        if not _is_constant(factor, 1):
            shape = [-1 if other == axis else 1 for other in range(leaf.ndim)]
            leaf = leaf * factor.astype(leaf.dtype).reshape(shape)
    return leaf


def _is_constant(array: Any, value: Any) -> bool:
    """Whether an array is known, and equal to a value."""
    return isinstance(array, np.ndarray) and bool((array == value).all())


def _inverse(order: Any) -> Any:
    return np.argsort(order) if isinstance(order, np.ndarray) else jnp.argsort(order)


def monomial(net: MLP, *, order: Any = None, into: Any = None, out: Any = None) -> Monomial:
    """Return the element that reorders the hidden neurons of `net` by `order`, multiplies what
    enters them by `into`, and divides what leaves them by `out`, layer by layer. What is left out
    is the identity, and so is the output layer's.
    """
    hidden, widths = net.widths[1:-1], net.widths
    order = [*map(np.arange, hidden)] if order is None else list(order)
    into = [*map(np.ones, hidden)] if into is None else list(into)
    out = [1 / v for v in (into[: len(hidden)] if out is None else out)]
    order = [np.arange(widths[0]), *order, np.arange(widths[-1])]
    into = [*into, *map(np.ones, widths[len(into) + 1 :])]
    orders: list[tuple[Any, ...]] = []
    factors: list[tuple[Any, ...]] = []
    for layer, (u, v) in enumerate(zip(into, [np.ones(widths[0]), *out], strict=True)):
        orders += [(order[layer + 1], order[layer]), (order[layer + 1],)][: 1 + net.bias]
        factors += [(u, v), (u,)][: 1 + net.bias]
    return Monomial(tuple(orders), tuple(factors))
