"""`hidden_equivalence`: the symmetries that a sample adds, because some neurons have one sign on
all of it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from neuromanifold.models.arguments import Samples
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.rank import numerical_rank
from neuromanifold.numerics.results import Array, Result
from neuromanifold.numerics.spaces import FloatSpaces, exact_spaces
from neuromanifold.numerics.validation import check_params, check_sample
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.signs import Signs
from neuromanifold.regions.status import LayerStatus
from neuromanifold.symmetry.account.relations import related_directions
from neuromanifold.symmetry.groups.base import check_net
from neuromanifold.tangent.rank.fields import ParameterLayout, VectorFields, join, units
from neuromanifold.tangent.rank.generators import sample_symmetries

INACTIVE, CLOSED = "inactive neurons", "closed paths"


@dataclass(frozen=True, eq=False, repr=False)
class HiddenEquivalence(Result):
    """Symmetries of f_θ on a sample, near θ, that come from its neurons' signs there.
    [complexity, Def 4.1]

    Scalings for neurons that change their sign on the sample, the affine group (GL without biases)
    for those that are linear on it, GL(m) for m neurons of a layer with one sign pattern on the
    sample (which the paper's definition leaves out), and free parameters: those of inactive
    neurons, and those that no open path runs through. `dimension` counts generators,
    `orbit_dimension` how many of them are independent at θ: five neurons of one pattern have 25 and
    13. Linear relations between patterns (z = x and −x: 1_A + 1_B = 1) give directions that belong
    to no group: `relation_dimension`. Whether more exists is not known, so that nothing here is
    called the largest. The action of finite elements is that of a network whose fixed neurons are
    replaced by linear ones, so it holds as long as no neuron changes its sign; the generators are
    exact.
    """

    net: MLP
    params: Params
    x: Array
    problem: Problem

    def headline(self) -> str:
        """Say how many generators there are, and where they come from."""
        sources = ", ".join(
            f"{fields.count} {name}" for name, fields in self.sources.items() if fields.count
        )
        return f"{self.dimension} generators: {sources or 'none'}; {len(self.x)} samples"

    @property
    def signs(self) -> Signs:
        """The sign of every hidden neuron on the sample, proved."""
        return self.problem.signs

    @property
    def layers(self) -> tuple[LayerStatus, ...]:
        """What the neurons of each hidden layer are on the sample."""
        return self.problem.layers

    @property
    def slopes(self) -> list[np.ndarray]:
        """σ' of every neuron at every sample, layer by layer; nan where it is no constant."""
        return self.problem.slopes

    @property
    def free(self) -> Bool[np.ndarray, " D"]:
        """Which parameters no open path runs through."""
        return self.problem.zero_columns

    @cached_property
    def sources(self) -> dict[str, VectorFields]:
        """The generators by where they come from, in the order in which an account counts them."""
        layout, dead = ParameterLayout(self.net), np.zeros(self.net.n_params, bool)
        for index, layer in enumerate(self.layers):
            for i in layer.inactive.tolist():
                dead[layout.incoming(index, i)] = True
                dead[layout.outgoing(index, i)] = True
        found = {INACTIVE: np.flatnonzero(dead), CLOSED: np.flatnonzero(self.free & ~dead)}
        free = {name: units(self.net, positions) for name, positions in found.items()}
        return free | sample_symmetries(self.net, self.layers)

    @cached_property
    def fields(self) -> VectorFields:
        """Return all generators."""
        return join(self.net, list(self.sources.values()))

    @property
    def dimension(self) -> int:
        """The dimension of the group: Σ over patterns m² + Σ k² (+ k with biases) + other
        scalings + free parameters.
        """
        return self.fields.count

    def generators(self, params: Params | None = None) -> Float[Any, "g D"]:
        """Return vectors v with Jv = 0, one per row, columns in `ravel_pytree` order."""
        return self.fields.at(self.params if params is None else params)

    def orbit_dimension(self, *, exact: bool = True) -> Any:
        """Return the rank of the generators at θ, with `exact` modulo a random prime, else from singular
        values."""
        if not exact:
            return numerical_rank(self.generators())
        p = modular.random_prime()
        return modular_rank(self.fields.modulo(self.params, p), p)

    def relation_dimension(self) -> int:
        """Return how many directions linear relations between sign patterns add to the orbit: 1_A +
        1_B = 1, for z = x and −x, adds one.
        """
        spaces = exact_spaces()
        own = self.fields.modulo(self.params, spaces.p)
        related, _ = related_directions(self.net, self.params, self.slopes, spaces)
        return spaces.rank(np.concatenate([own, related])) - spaces.rank(own)

    def relation_directions(self) -> Float[Any, "r D"]:
        """Return orthonormal vectors v with Jv = 0 that come from relations between patterns, the
        group's own among them; in float64.
        """
        return related_directions(self.net, self.params, self.slopes, FloatSpaces())[0]

    def stabiliser_dimension(self, *, exact: bool = True) -> int:
        """Return dim G − dim Gθ, with `exact` modulo a random prime.   [complexity, Eq. 4]"""
        return self.dimension - int(self.orbit_dimension(exact=exact))


def hidden_equivalence(net: MLP, params: Params, x: Samples) -> HiddenEquivalence:
    """Return the data-dependent symmetry group of a network on a sample, from its fixed neurons.
    [complexity, Def 4.1, Prop 4.5]

    Signs are decided by exact arithmetic on the host. Under leaky ReLU a neuron of fixed negative
    sign is linear with slope α, not dead.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(np.ones((2, 1)), np.array([3.0, -5.0])), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    >>> group = nm.hidden_equivalence(net, params, np.array([[-1.0], [2.0]]))
    >>> group.dimension        # neuron 0 is linear: its scale and its translation; neuron 1 is dead: 3 free parameters
    5
    """
    check_net(net, "hidden_equivalence")
    if is_traced((params, x)):
        raise TypeError(
            "`hidden_equivalence` decides signs exactly on the host; call it outside jit, vmap "
            "and grad."
        )
    check_params(params)
    net.check(params, x)
    check_sample(x)
    x = np.asarray(x, np.float64)
    return HiddenEquivalence(net, params, x, Problem.of(net, params, x))
