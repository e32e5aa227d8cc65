"""`symmetry_group`: all of an architecture's symmetries that this room knows, as one group."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.models.arguments import Model
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.randomness import check_key
from neuromanifold.numerics.results import Shown
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.symmetry.base import AbstractGroup, Composition, ContinuousGroup, Element, check_net
from neuromanifold.symmetry.discover import discover, problem_of
from neuromanifold.symmetry.discrete import place_groups
from neuromanifold.symmetry.flow import FlowGroup
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
        return _sampled(self.factors, key)


@dataclass(frozen=True, eq=False, repr=False)
class NetworkGroup(Shown, AbstractGroup):
    """The symmetries of any network by its graph: permutations and signs of each hidden axis, and the flows that `discover` found.

    `factors` are `PlaceGroup`s and, where a key was given, one `FlowGroup`. Left out: axes along which the graph treats places
    differently (windows, slices, masks, constants that vary).
    """

    net: Model  # pyright: ignore[reportIncompatibleVariableOverride]
    factors: tuple[AbstractGroup, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What each factor does."""
        return tuple(map(str, self.factors))

    def headline(self) -> str:
        """What its factors do."""
        return "; ".join(self.names) or "the identity alone"

    @property
    def flows(self) -> FlowGroup:
        """The continuous factor, where it was sought."""
        found = [f for f in self.factors if isinstance(f, FlowGroup)]
        if not found:
            raise TypeError(
                "`group` holds permutations and signs alone: `nm.symmetry_group` was called without a key; "
                "pass `key=`, so that it seeks the continuous symmetries as well."
            )
        return found[0]

    @property
    def dimension(self) -> int:
        """How many independent fields its continuous factor has."""
        return sum(f.dimension for f in self.factors if isinstance(f, FlowGroup))

    def generators(self, params: Any) -> Float[Any, "g D"]:
        """Those of the continuous factor, none where none was sought."""
        flows = [f.generators(params) for f in self.factors if isinstance(f, FlowGroup)]
        return flows[0] if flows else np.zeros((0, sum(np.size(leaf) for leaf in jax.tree.leaves(params))))

    def shortest(self, params: Any) -> Any:
        """The point of the continuous factor's orbit that is nearest to the origin; the others keep distances."""
        return self.flows.shortest(params)

    @property
    def identity(self) -> Element:
        """The neutral element."""
        return Composition(())

    def sample(self, *, key: Any) -> Element:
        """A product of samples of the factors."""
        return _sampled(self.factors, key)


def _sampled(factors: tuple[AbstractGroup, ...], key: Any) -> Element:
    check_key(key)
    element: Element = Composition(())
    for factor, k in zip(factors, jax.random.split(key, len(factors)), strict=True):
        element = element @ factor.sample(key=k)
    return element


@overload
def symmetry_group(net: Model) -> SymmetryGroup: ...
@overload
def symmetry_group(net: Model, params: Any, x: Any = None, *, key: Any = None, batch: bool = False) -> NetworkGroup: ...
def symmetry_group(
    net: Model, params: Any = None, x: Any = None, *, key: Any = None, batch: bool = False
) -> SymmetryGroup | NetworkGroup:
    """The symmetries of an architecture with its activations, whatever the data.

    Of an `nm.MLP` alone: a `SymmetryGroup`. Of any network at `params` and samples `x` (only shapes and sizes count): a `NetworkGroup`, the
    permutations and signs of channels, units and heads that its graph shows, each tried at random parameters and inputs; with `key` also
    the flows that `discover` finds. `batch=True` takes the whole `x` as one input (normalisation in training mode).

    >>> nm.symmetry_group(nm.MLP((2, 3, 2, 1))).names, nm.symmetry_group(nm.MLP((2, 3, 2, 1))).dimension
    (('permutation', 'scaling'), 5)
    >>> nm.symmetry_group(nm.MLP((2, 3, 1), "tanh")).names
    ('permutation', 'sign')
    >>> nm.symmetry_group(nm.MLP((2, 3, 1), "identity")).dimension        # GL(3) with translations
    12
    >>> f = lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]
    >>> group = nm.symmetry_group(f, {"w": np.ones((2, 3)), "v": np.ones((3, 1))}, np.ones((4, 2)))
    >>> group.names, group.factors[0].order                               # 2³·3!
    (('permutations of 3 channels with signs: v w',), 48)
    """
    if params is not None or x is not None:
        return _of_network(net, params, x, key, batch)
    check_net(net, "symmetry_group")
    net = cast(MLP, net)
    factors: list[AbstractGroup] = [PermutationGroup(net)]
    if any(a.parity for a in _activations(net)) or net.output_activation.parity == "even":
        factors.append(SignGroup(net))
    if any(a.degree is not None for a in _activations(net)):
        factors.append(ScalingGroup(net))
    if any(len(layer) for layer in linear_neurons(net)):
        factors.append(AffineGroup(net) if net.bias else GeneralLinearGroup(net))
    return SymmetryGroup(net, tuple(factors))


def _of_network(f: Model, params: Any, x: Any, key: Any, batch: bool) -> NetworkGroup:
    if params is None or x is None:
        raise TypeError(
            f"`{'params' if params is None else 'x'}` is None; pass parameters and samples together, or an nm.MLP alone."
        )
    refuse_tracers((params, x), "`symmetry_group`")
    with arithmetic():
        factors = place_groups(problem_of(f, params, x, batch))
    flows = () if key is None else (discover(f, params, x, key=key, batch=batch).group,)
    return NetworkGroup(f, (*factors, *flows))


def _activations(net: MLP) -> list[Any]:
    return [part[0] for entry in net.activation for part in getattr(entry, "parts", ((entry, 0),))]
