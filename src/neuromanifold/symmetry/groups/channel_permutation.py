"""`ChannelPermutationGroup`: permutations and signs of the channels, units and heads of any network, read
from its graph.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.arguments import Model
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.results import Shown
from neuromanifold.symmetry.discovery.channels import Slot
from neuromanifold.symmetry.groups.base import AbstractGroup
from neuromanifold.symmetry.groups.monomial import Monomial


@dataclass(frozen=True, eq=False, repr=False)
class ChannelPermutationGroup(Shown, AbstractGroup):
    """Permutations of the positions of one hidden axis in all parameters that have it, and sign flips
    of each position.

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
        """How many positions."""
        return self.slots[0].size

    @property
    def order(self) -> int:
        """The number of elements."""
        return 2 ** (len(self.flips) * self.size) * math.factorial(self.size)

    @property
    def identity(self) -> Monomial:
        """Return the element that leaves every channel where it is."""
        return self.element(np.arange(self.size))

    def element(self, order: Any, signs: Any = None) -> Monomial:
        """Return the element that puts the positions in a new order (position i is the old position
        `order[i]`), times `signs` ±1, one
        row for each of the flips.
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
                f"and {self.size} positions."
            )
        factors = np.ones((len(self.slots), self.size))
        for flip, row in zip(self.flips, signs, strict=True):
            factors[list(flip)] *= row
        return channel_monomial(self.shapes, self.slots, order, factors)

    def sample(self, *, key: Key) -> Monomial:
        """Draw a uniformly random element."""
        rng = host_generator(key)
        return self.element(
            rng.permutation(self.size), rng.choice([-1.0, 1.0], (len(self.flips), self.size))
        )

    def __str__(self) -> str:
        kinds = "" if len(self.flips) == 1 else f" of {len(self.flips)} kinds"
        signs = f" with signs{kinds}" if self.flips else ""
        return f"permutations of {self.size} {self.kind}{signs}: {' '.join(self.parameters)}"


def channel_monomial(
    shapes: Sequence[tuple[int, ...]], slots: Sequence[Slot], order: np.ndarray, factors: np.ndarray
) -> Monomial:
    """Return the element that puts channel order[i] at position i, times `factors[s, i]` in slot s."""
    orders = [[np.arange(n) for n in shape] for shape in shapes]
    scales = [[np.ones(n) for n in shape] for shape in shapes]
    for slot, own in zip(slots, factors, strict=True):
        places = slice(slot.start, slot.start + slot.length)
        orders[slot.leaf][slot.axis][places] = slot.kept(order)
        scales[slot.leaf][slot.axis] *= slot.spread(own, shapes[slot.leaf][slot.axis])
    return Monomial(tuple(map(tuple, orders)), tuple(map(tuple, scales)))
