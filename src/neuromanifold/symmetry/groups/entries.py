"""Elements that permute single entries of parameters and multiply them by factors."""

from typing import Any

import jax
import numpy as np

from neuromanifold.models.arguments import Params
from neuromanifold.symmetry.groups.base import Composition, Element


class Entries(Element):
    """θ'[i] = u[i] θ[p(i)] for every leaf θ read as one row, p its `orders`, u its `factors`, both of
    the leaf's shape: what permutes the channels of each head in its own way.

    >>> g = nm.symmetry.Entries((np.array([[1, 0]]),), (np.array([[2.0, 3.0]]),))
    >>> g(np.array([[5.0, 7.0]])).tolist(), g.inverse(g(np.array([[5.0, 7.0]]))).tolist()
    ([[14.0, 15.0]], [[5.0, 7.0]])
    """

    orders: tuple[Any, ...]
    factors: tuple[Any, ...]

    def act(self, params: Params) -> Any:
        """Return g(θ)."""
        leaves, structure = jax.tree.flatten(params)
        moved = zip(leaves, self.orders, self.factors, strict=True)
        return structure.unflatten(
            [leaf.reshape(-1)[p] * u.astype(leaf.dtype) for leaf, p, u in moved]
        )

    @property
    def inverse(self) -> "Entries":
        """θ[i] = θ'[q(i)] / u[q(i)] with q = p⁻¹."""
        orders = tuple(np.argsort(p, axis=None).reshape(p.shape) for p in self.orders)
        pairs = zip(self.factors, orders, strict=True)
        return Entries(orders, tuple((1 / u).reshape(-1)[q] for u, q in pairs))

    def __matmul__(self, other: Any) -> Element:
        if not isinstance(other, Entries):
            return Composition((self,)) @ other
        leaves = list(zip(self.orders, self.factors, other.orders, other.factors, strict=True))
        return Entries(
            tuple(q.reshape(-1)[p] for p, _, q, _ in leaves),
            tuple(u * v.reshape(-1)[p] for p, u, _, v in leaves),
        )
