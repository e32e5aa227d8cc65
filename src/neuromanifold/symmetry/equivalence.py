"""`hidden_equivalence`: the symmetries that a sample adds, because some neurons have one sign on all of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.spaces import FloatSpaces, exact_spaces
from neuromanifold.numerics.validation import check_params, check_sample
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.signs import Signs, layer_slopes, signs_of
from neuromanifold.symmetry import neurons
from neuromanifold.symmetry.base import check_net, numerical_rank
from neuromanifold.symmetry.relations import related_directions
from neuromanifold.tangent.fields import Fields, Layout, join, mixing, translation, units
from neuromanifold.tangent.generators import same_pattern

SOURCES = ("inactive neurons", "closed paths", "scalings", "linear neurons", "translations", "shared sign patterns")


@dataclass(frozen=True, repr=False)
class LayerStatus(Result):
    """What the neurons of a hidden layer are on the sample, as index arrays.

    `linear`: one nonzero slope on all of it (always-active ReLUs, identity, leaky ReLUs of either fixed sign);
    `inactive`: slope zero on all of it; `scaled`: the other homogeneous neurons; `slopes` of the linear ones.
    `mixed`: (i, j, ±1) for ordered pairs of scaled neurons of degree 1 whose slopes are ± equal at every sample.
    """

    linear: Int[np.ndarray, " k"]
    slopes: Float[Any, " k"]
    inactive: Int[np.ndarray, " d"]
    scaled: Int[np.ndarray, " m"]
    degrees: Float[Any, " m"]
    mixed: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True, eq=False, repr=False)
class HiddenEquivalence(Result):
    """Symmetries of f_θ on a sample, near θ, that come from its neurons' signs there.   [complexity, Def 4.1]

    Scalings for neurons that change their sign on the sample, the affine group (GL without biases) for those that are
    linear on it, GL(m) for m neurons of a layer with one sign pattern on the sample (which the paper's definition leaves out),
    and free parameters: those of inactive neurons, and those that no open path runs through. `dimension` counts generators,
    `orbit_dimension` how many of them are independent at θ: five neurons of one pattern have 25 and 13. Linear relations between
    patterns (z = x and −x: 1_A + 1_B = 1) give directions that belong to no group: `relation_dimension`. Whether more exists is
    not known, so that nothing here is called the largest. The
    action of finite elements is that of a network whose fixed neurons are replaced by linear ones, so it holds as
    long as no neuron changes its sign; the generators are exact.
    """

    net: MLP
    params: Params
    x: Any
    problem: Problem
    layers: tuple[LayerStatus, ...]
    free: Bool[np.ndarray, " D"]

    def headline(self) -> str:
        """How many generators there are, and where they come from."""
        sources = ", ".join(f"{fields.count} {name}" for name, fields in self.sources.items() if fields.count)
        return f"{self.dimension} generators: {sources or 'none'}; {len(self.x)} samples"

    @cached_property
    def signs(self) -> Signs:
        """The sign of every hidden neuron on the sample, proved."""
        return signs_of(self.net, self.problem.decisions, len(self.x))

    @cached_property
    def slopes(self) -> list[np.ndarray]:
        """σ' of every neuron at every sample, layer by layer; nan where it is no constant."""
        return layer_slopes(self.net, self.signs)

    @cached_property
    def sources(self) -> dict[str, Fields]:
        """The generators by where they come from, in the order in which an account counts them."""
        layout, net = Layout(self.net), self.net
        dead = np.zeros(net.n_params, bool)
        scalings, mixers, shifts, shared = [], [], [], []
        for index, layer in enumerate(self.layers):
            for i in layer.inactive:
                dead[layout.incoming(index, int(i))] = True
                dead[layout.outgoing(index, int(i))] = True
            scalings += [
                mixing(layout, index, int(i), int(i), 1.0, float(d))
                for i, d in zip(layer.scaled, layer.degrees, strict=True)
            ]
            linear = list(zip(layer.linear.tolist(), layer.slopes.tolist(), strict=True))
            mixers += [mixing(layout, index, i, j, t, s) for i, s in linear for j, t in linear]
            shifts += [translation(layout, index, i, s) for i, s in linear if net.bias]
            shared += [mixing(layout, index, i, j, 1.0, sign) for i, j, sign in layer.mixed]
        found = [units(net, np.flatnonzero(dead)), units(net, np.flatnonzero(self.free & ~dead))]
        found += [join(net, part) for part in (scalings, mixers, shifts, shared)]
        return dict(zip(SOURCES, found, strict=True))

    @cached_property
    def fields(self) -> Fields:
        """All generators."""
        return join(self.net, list(self.sources.values()))

    @property
    def dimension(self) -> int:
        """The dimension of the group: Σ over patterns m² + Σ k² (+ k with biases) + other scalings + free parameters."""
        return self.fields.count

    def generators(self, params: Params | None = None) -> Float[Any, "g D"]:
        """Vectors v with Jv = 0, one per row, columns in `ravel_pytree` order."""
        return self.fields.at(self.params if params is None else params)

    def orbit_dimension(self, *, exact: bool = True) -> Any:
        """The rank of the generators at θ, exactly or from singular values."""
        if not exact:
            return numerical_rank(self.generators())
        p = modular.random_prime()
        return modular_rank(self.fields.modulo(self.params, p), p)

    def relation_dimension(self) -> int:
        """How many directions linear relations between sign patterns add to the orbit: 1_A + 1_B = 1, for z = x and −x, adds one."""
        spaces = exact_spaces()
        own = self.fields.modulo(self.params, spaces.p)
        related, _ = related_directions(self.net, self.params, self.slopes, spaces)
        return spaces.rank(np.concatenate([own, related])) - spaces.rank(own)

    def relation_directions(self) -> Float[Any, "r D"]:
        """Orthonormal vectors v with Jv = 0 that come from relations between patterns, the group's own among them; in float64."""
        return related_directions(self.net, self.params, self.slopes, FloatSpaces())[0]

    def stabiliser_dimension(self, *, exact: bool = True) -> int:
        """dim G − dim Gθ.   [complexity, Eq. 4]"""
        return self.dimension - int(self.orbit_dimension(exact=exact))


def hidden_equivalence(net: MLP, params: Params, x: Any) -> HiddenEquivalence:
    """The data-dependent symmetry group of a network on a sample, from its fixed neurons.   [complexity, Def 4.1, Prop 4.5]

    Signs are decided by exact arithmetic on the host. Under leaky ReLU a neuron of fixed negative sign is linear with
    slope α, not dead.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(np.ones((2, 1)), np.array([3.0, -5.0])), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    >>> group = nm.hidden_equivalence(net, params, np.array([[-1.0], [2.0]]))
    >>> group.dimension        # neuron 0 is linear: its scale and its translation; neuron 1 is dead: 3 free parameters
    5
    """
    check_net(net, "hidden_equivalence")
    if is_traced((params, x)):
        raise TypeError("`hidden_equivalence` decides signs exactly on the host; call it outside jit, vmap and grad.")
    check_params(params)
    net.check(params, x)
    check_sample(x)
    x = np.asarray(x, np.float64)
    return equivalence_of(net, params, x, Problem.of(net, params, x))


def equivalence_of(net: MLP, params: Params, x: np.ndarray, problem: Problem) -> HiddenEquivalence:
    """The same from a network whose bends are decided already."""
    signs = signs_of(net, problem.decisions, len(x))
    slopes = layer_slopes(net, signs)
    degrees = neurons.hidden(net, neurons.degree)
    layers = tuple(_status(slope, degree) for slope, degree in zip(slopes, degrees, strict=False))
    return HiddenEquivalence(net, params, x, problem, layers, problem.zero_columns())


def _status(slope: np.ndarray, degree: np.ndarray) -> LayerStatus:
    constant = (slope == slope[0]).all(axis=0)
    linear, inactive = np.flatnonzero(constant & (slope[0] != 0)), np.flatnonzero(constant & (slope[0] == 0))
    scaled = np.flatnonzero(~constant & ~np.isnan(degree))
    mixed = tuple(same_pattern(slope, [int(i) for i in scaled if degree[i] == 1]))
    return LayerStatus(linear, slope[0, linear], inactive, scaled, degree[scaled], mixed)
