"""`symmetry_group`: all of an architecture's symmetries that this room knows, as one group."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.base import AbstractGroup, Composition, ContinuousGroup, Element, check_net
from neuromanifold.symmetry.linear import AffineGroup, GeneralLinearGroup
from neuromanifold.symmetry.neurons import degree, hidden, is_linear, linear_neurons
from neuromanifold.symmetry.permutation import PermutationGroup
from neuromanifold.symmetry.scaling import ScalingGroup
from neuromanifold.symmetry.sign import SignGroup
from neuromanifold.tangent.fields import Fields, join


@dataclass(frozen=True)
class SymmetryGroup(ContinuousGroup):
    """The group that an architecture and its activations have: the product of `factors`.

    Permutations, sign flips (odd or even activations), scalings (homogeneous activations; negative ones where
    allowed), and for linear neurons GL, or with biases the affine group, which contains their scalings: those are
    left out of the generators, so that `dimension` is the dimension of the group.
    """

    net: MLP
    factors: tuple[AbstractGroup, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the factors."""
        return tuple(type(factor).__name__.removesuffix("Group").lower() for factor in self.factors)

    @property
    def order(self) -> float:
        """The number of elements: finite without continuous factors."""
        if self.dimension:
            return float("inf")
        return float(np.prod([f.order for f in self.factors if isinstance(f, PermutationGroup | SignGroup)]))

    @cached_property
    def _continuous(self) -> tuple[tuple[ContinuousGroup, np.ndarray], ...]:
        """The continuous factors, each with the generators that no other factor has."""
        chosen = []
        for factor in self.factors:
            if isinstance(factor, ScalingGroup):
                linear, homogeneous = (
                    np.concatenate(hidden(self.net, is_linear)),
                    np.concatenate(hidden(self.net, degree)),
                )
                chosen.append((factor, np.flatnonzero(~linear[~np.isnan(homogeneous)])))
            elif isinstance(factor, ContinuousGroup):
                chosen.append((factor, np.arange(factor.dimension)))
        return tuple(chosen)

    @cached_property
    def fields(self) -> Fields:
        """The generators of the continuous factors, one after the other."""
        return join(self.net, [f.fields.combine(np.eye(f.dimension, dtype=np.int64)[k]) for f, k in self._continuous])

    def exponential(self, coordinates: Any) -> Element:
        """The product of the factors' exponentials."""
        start, parts = 0, []
        for factor, chosen in self._continuous:
            place = np.eye(factor.dimension, dtype=coordinates.dtype)[:, chosen]
            own = place @ coordinates[start : start + len(chosen)]
            parts.append(factor.exponential(own))
            start += len(chosen)
        return Composition(tuple(parts))

    def clip(self, coordinates: Any, bound: float) -> Any:
        """Each factor within its share of the bound."""
        start, parts, share = 0, [], bound ** (1 / max(1, len(self._continuous)))
        for factor, chosen in self._continuous:
            parts.append(factor.clip(coordinates[start : start + len(chosen)], share))
            start += len(chosen)
        return jnp.concatenate(parts) if parts else coordinates

    def sample(self, *, key: Any) -> Element:
        """A product of samples of the factors."""
        element: Element = Composition(())
        for factor, k in zip(self.factors, jax.random.split(key, len(self.factors)), strict=True):
            element = element @ factor.sample(key=k)
        return element


def symmetry_group(net: MLP) -> SymmetryGroup:
    """The symmetries of an architecture with its activations, whatever the data.

    >>> nm.symmetry_group(nm.MLP((2, 3, 2, 1))).names, nm.symmetry_group(nm.MLP((2, 3, 2, 1))).dimension
    (('permutation', 'scaling'), 5)
    >>> nm.symmetry_group(nm.MLP((2, 3, 1), "tanh")).names
    ('permutation', 'sign')
    >>> nm.symmetry_group(nm.MLP((2, 3, 1), "identity")).dimension        # GL(3) with translations
    12
    """
    check_net(net, "symmetry_group")
    factors: list[AbstractGroup] = [PermutationGroup(net)]
    if any(a.parity for a in _activations(net)) or net.output_activation.parity == "even":
        factors.append(SignGroup(net))
    if any(a.degree is not None for a in _activations(net)):
        factors.append(ScalingGroup(net))
    if any(len(layer) for layer in linear_neurons(net)):
        factors.append(AffineGroup(net) if net.bias else GeneralLinearGroup(net))
    return SymmetryGroup(net, tuple(factors))


def _activations(net: MLP) -> list[Any]:
    return [part[0] for entry in net.activation for part in getattr(entry, "parts", ((entry, 0),))]
