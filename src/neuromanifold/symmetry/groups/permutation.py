"""`PermutationGroup`: the neurons of a layer may be reordered."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.activation import Activation
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.symmetry.groups.base import AbstractGroup, check_net
from neuromanifold.symmetry.groups.monomial import Monomial, monomial
from neuromanifold.symmetry.groups.neurons import by_neuron


@dataclass(frozen=True)
class PermutationGroup(AbstractGroup):
    """Permutations of the hidden neurons, layer by layer, among neurons of equal activation.
    [invariant, Def 4.2 (i)]

    (W_l, b_l) ↦ (P_l W_l P_{l-1}ᵀ, P_l b_l). A symmetry of every network with hidden neurons.

    >>> nm.symmetry.PermutationGroup(nm.MLP((1, 3, 2, 1))).order      # 3!·2!
    12
    """

    net: MLP

    def __post_init__(self):
        check_net(self.net, "PermutationGroup")

    @property
    def classes(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """For each hidden layer: the sets of neurons of equal activation."""
        return tuple(
            _classes(e, w) for e, w in zip(self.net.activation, self.net.widths[1:], strict=False)
        )

    @property
    def order(self) -> int:
        """The number of elements."""
        return math.prod(math.factorial(len(c)) for layer in self.classes for c in layer)

    @property
    def identity(self) -> Monomial:
        """Return the element that leaves every neuron where it is."""
        return monomial(self.net)

    def sample(self, *, key: Key) -> Monomial:
        """Draw a uniformly random element."""
        rng, orders = host_generator(key), []
        for width, layer in zip(self.net.widths[1:], self.classes, strict=False):
            order = np.arange(width)
            for neurons in layer:
                order[neurons] = rng.permutation(neurons)
            orders.append(order)
        return monomial(self.net, order=orders)


def _classes(entry: Any, width: int) -> tuple[np.ndarray, ...]:
    kinds: list[Activation] = []

    def number(activation: Activation) -> int:
        if activation not in kinds:
            kinds.append(activation)
        return kinds.index(activation)

    numbers = by_neuron(entry, width, number)
    return tuple(np.flatnonzero(numbers == k) for k in range(len(kinds)))
