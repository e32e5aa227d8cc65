"""`SignGroup` and its semidirect product with the permutations."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.randomness import Key, check_key, host_generator
from neuromanifold.symmetry.groups.base import AbstractGroup, check_net
from neuromanifold.symmetry.groups.monomial import Monomial, monomial
from neuromanifold.symmetry.groups.neurons import by_neuron
from neuromanifold.symmetry.groups.permutation import PermutationGroup


@dataclass(frozen=True)
class SignGroup(AbstractGroup):
    """Sign flips of neurons with an odd or even activation; the others stay.
    [invariant, Def 4.2 (ii), (iii)]

    Odd, σ(−z) = −σ(z): the neuron's incoming weights, bias *and* outgoing weights change sign.
    Even, σ(−z) = σ(z): incoming weights and bias change sign, outgoing weights do not; this
    includes the output neurons when the output activation is even.

    >>> group = nm.symmetry.SignGroup(nm.MLP((1, 2, 1), "tanh"))
    >>> group.order
    4
    """

    net: MLP

    def __post_init__(self):
        check_net(self.net, "SignGroup")
        if not any((p != "").any() for p in self.parities):
            names = ", ".join(sorted({str(entry) for entry in self.net.activation}))
            raise ValueError(
                f"`net` uses {names}, which has no parity (neither odd nor even); SignGroup needs "
                "an odd or even "
                "activation such as tanh, erf, sin, cos, abs or power(d)."
            )

    @property
    def parities(self) -> tuple[np.ndarray, ...]:
        """`"odd"`, `"even"` or `""` for each neuron of each layer; of the output layer only an
        even activation counts.
        """
        layers = zip(self.net.activations, self.net.widths[1:], strict=True)
        *hidden, output = [
            by_neuron(entry, width, lambda a: a.parity or "") for entry, width in layers
        ]
        return (*hidden, np.where(output == "even", "even", ""))

    @property
    def order(self) -> int:
        """The number of elements."""
        return 2 ** int(sum((p != "").sum() for p in self.parities))

    @property
    def identity(self) -> Monomial:
        """Return the element that flips nothing."""
        return monomial(self.net)

    def element(self, signs: tuple[Any, ...]) -> Monomial:
        """Return the element that flips neurons, given `signs` ±1 for each neuron of each layer, the output layer included; 1
        where there is no parity.
        """
        signs = tuple(np.asarray(s, np.float64) for s in signs)
        for index, (s, parity) in enumerate(zip(signs, self.parities, strict=True)):
            wrong = np.flatnonzero((s != 1) & ((parity == "") | (s != -1)))
            if len(wrong):
                raise ValueError(
                    f"`signs[{index}]` is {s[wrong[0]]:g} at neuron {wrong[0]}; pass ±1, and 1 "
                    "where the activation has no parity."
                )
        out = [
            np.where(parity == "odd", s, 1.0)
            for s, parity in zip(signs, self.parities, strict=True)
        ]
        return monomial(self.net, into=signs, out=out[:-1])

    def sample(self, *, key: Key) -> Monomial:
        """Draw a uniformly random element."""
        rng = host_generator(key)
        return self.element(
            tuple(
                np.where((p != "") & (rng.random(len(p)) < 0.5), -1.0, 1.0) for p in self.parities
            )
        )


@dataclass(frozen=True)
class SignedPermutationGroup(AbstractGroup):
    """The semidirect product of sign flips and permutations, (Λ₁, P₁)(Λ₂, P₂) = (Λ₁P₁Λ₂P₁ᵀ, P₁P₂).
    [invariant, Def 4.2 (iv)]

    >>> nm.symmetry.SignedPermutationGroup(nm.MLP((1, 3, 1), "tanh")).order      # 2³·3!
    48
    """

    net: MLP

    def __post_init__(self):
        SignGroup(self.net)

    @property
    def order(self) -> int:
        """The number of elements."""
        return SignGroup(self.net).order * PermutationGroup(self.net).order

    @property
    def identity(self) -> Monomial:
        """The neutral element."""
        return monomial(self.net)

    def sample(self, *, key: Key) -> Monomial:
        """Draw a uniformly random element: a flip after a permutation."""
        check_key(key)
        flip, reorder = jax.random.split(key)
        element = SignGroup(self.net).sample(key=flip) @ PermutationGroup(self.net).sample(
            key=reorder
        )
        assert isinstance(element, Monomial)
        return element
