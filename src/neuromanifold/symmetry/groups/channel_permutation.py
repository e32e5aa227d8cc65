"""`PlaceGroup`: permutations and signs of the channels, units and heads of any network, read
from its graph.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.models.arguments import Model
from neuromanifold.numerics.randomness import host_generator
from neuromanifold.numerics.results import Shown
from neuromanifold.symmetry.discovery.channels import Slot
from neuromanifold.symmetry.groups.base import AbstractGroup, Composition, Element

Axes = tuple[tuple[Any, ...], ...]


class Renaming(Element):
    """θ'[i, j, …] = s_i t_j … θ[p(i), q(j), …] for every leaf θ of the parameters, p, q, …
    orders of its axes, s, t, … signs or other factors, none of them zero.
    """

    orders: Axes
    signs: Axes

    def act(self, params: Any) -> Any:
        """g(θ)."""
        leaves, structure = jax.tree.flatten(params)
        return structure.unflatten(
            [_renamed(*each) for each in zip(leaves, self.orders, self.signs, strict=True)]
        )

    @property
    def inverse(self) -> "Renaming":
        """θ[i] = θ'[q(i)] / s_{q(i)}, q = p⁻¹."""
        orders = tuple(tuple(np.argsort(p) for p in axes) for axes in self.orders)
        signs = [
            [1 / s[q] for s, q in zip(*each, strict=True)]
            for each in zip(self.signs, orders, strict=True)
        ]
        return Renaming(orders, tuple(map(tuple, signs)))

    def __matmul__(self, other: Any) -> Element:
        if not isinstance(other, Renaming):
            return Composition((self,)) @ other
        pairs = [
            list(zip(*each, strict=True))
            for each in zip(self.orders, self.signs, other.orders, other.signs, strict=True)
        ]
        return Renaming(
            tuple(tuple(q[p] for p, _, q, _ in axes) for axes in pairs),
            tuple(tuple(s * t[p] for p, s, _, t in axes) for axes in pairs),
        )


def _renamed(leaf: Any, orders: tuple[Any, ...], signs: tuple[Any, ...]) -> Any:
    for axis, (order, sign) in enumerate(zip(orders, signs, strict=True)):
        shape = [1] * leaf.ndim
        shape[axis] = -1
        leaf = leaf.take(order, axis) * sign.astype(leaf.dtype).reshape(shape)
    return leaf


@dataclass(frozen=True, eq=False, repr=False)
class PlaceGroup(Shown, AbstractGroup):
    """Permutations of the places of one hidden axis in all parameters that have it, and sign flips
    of each place.

    `kind` is "channels" or "heads", `parameters` names the leaves, `slots` says where they have the
    axis. `flips` are the sets of slots that may change sign together at one place: incoming and
    outgoing ones for odd bends, incoming ones for even bends, gate-free factors of gated units,
    pairs of linear factors. They generate all sign patterns that were found. `sought` says among
    how many.

    The group is the wreath product of {±1}^flips with the permutations: order 2^{flips·n} n!.
    """

    net: Model  # pyright: ignore[reportIncompatibleVariableOverride]
    shapes: tuple[tuple[int, ...], ...]
    kind: str
    parameters: tuple[str, ...]
    slots: tuple[Slot, ...]
    flips: tuple[tuple[int, ...], ...]
    sought: str

    @property
    def size(self) -> int:
        """How many places."""
        return self.slots[0].size

    @property
    def order(self) -> int:
        """The number of elements."""
        return 2 ** (len(self.flips) * self.size) * math.factorial(self.size)

    @property
    def identity(self) -> Renaming:
        """Everything stays."""
        return self.element(np.arange(self.size))

    def element(self, order: Any, signs: Any = None) -> Renaming:
        """The places in a new order (place i is the old place order[i]), times signs ±1, one row
        for each of the flips.
        """
        order = np.asarray(order)
        signs = (
            np.ones((len(self.flips), self.size))
            if signs is None
            else np.asarray(signs, np.float64)
        )
        if sorted(order.tolist()) != list(range(self.size)):
            raise ValueError(
                f"`order` is {order.tolist()}; pass a permutation of 0 … {self.size - 1}."
            )
        if signs.shape != (len(self.flips), self.size) or not (np.abs(signs) == 1).all():
            raise ValueError(
                f"`signs` has shape {signs.shape}; pass ±1 for each of {len(self.flips)} flips "
                f"and {self.size} places."
            )
        orders = [[np.arange(n) for n in shape] for shape in self.shapes]
        factors = [[np.ones(n) for n in shape] for shape in self.shapes]
        for k, slot in enumerate(self.slots):
            sign = np.prod(
                [row for flip, row in zip(self.flips, signs, strict=True) if k in flip], axis=0
            ) * np.ones(self.size)
            own = slice(slot.start, slot.start + slot.length)
            orders[slot.leaf][slot.axis][own] = slot.kept(order)
            factors[slot.leaf][slot.axis] *= slot.spread(sign, len(factors[slot.leaf][slot.axis]))
        return Renaming(tuple(map(tuple, orders)), tuple(map(tuple, factors)))

    def sample(self, *, key: Any) -> Renaming:
        """A uniformly random element."""
        rng = host_generator(key)
        return self.element(
            rng.permutation(self.size), rng.choice([-1.0, 1.0], (len(self.flips), self.size))
        )

    def __str__(self) -> str:
        kinds = "" if len(self.flips) == 1 else f" of {len(self.flips)} kinds"
        signs = f" with signs{kinds}" if self.flips else ""
        return f"permutations of {self.size} {self.kind}{signs}: {' '.join(self.parameters)}"
