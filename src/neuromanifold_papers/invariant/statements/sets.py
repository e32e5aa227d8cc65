"""invariant, P 3.2 and 3.3: the algebra of structural invariant sets, and linear models, which
have but one.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.orbits.closure import LieClosure, lie_closure
from neuromanifold.orbits.lattice import LeafLattice, invariant_leaves
from neuromanifold.orbits.partition import invariant_leaf
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.invariant.statements.cases import ANALYTIC, trained
from neuromanifold_papers.statement import by_integration, control, in_float64


@dataclass(frozen=True)
class Start:
    """A leaf of a two-neuron network, and a seed for the point on it, the data and the loss."""

    name: str
    leaf: int
    seed: int


@lru_cache
def lattice(name: str) -> LeafLattice:
    """The leaves of Σ a_i σ(w_i x), two neurons."""
    return invariant_leaves(MLP((1, 2, 1), ANALYTIC[name], bias=False))


def leaf_of(leaves: LeafLattice, params: Params) -> int:
    """The leaf on which the parameters lie."""
    return list(leaves).index(invariant_leaf(leaves.net, params, atol=1e-10))


def _starts(rng: np.random.Generator, draws: int) -> Iterator[Start]:
    for name in ("exp", "tanh"):
        yield from (Start(name, leaf, 0) for leaf in range(len(lattice(name))))
    for _ in range(draws):
        yield Start("tanh", int(rng.integers(6)), int(rng.integers(2**31)))


@by_integration(
    "3.2",
    _starts,
    control(
        "{a₁ > 0} and its complement in place of the leaves: the flow crosses",
        lambda: Start("exp", 0, 4),
        place=lambda leaves, params: int(params[1].weight[0, 0] > 0),
    ),
    draws=6,
)
def set_algebra(case: Start, place: Any = leaf_of) -> Check:
    """Complements, unions and intersections of structural invariant sets are structural invariant
    sets, or empty.

    Over all pairs of unions of leaves: how often a complement, union or intersection holds
    θ(0) but not θ(t), or the reverse.
    """
    leaves, rng = lattice(case.name), np.random.default_rng(case.seed)
    start = leaves[case.leaf].sample(key=jax.random.key(case.seed))
    i, j = (place(leaves, params) for params in (start, trained(rng, leaves.net, start).end()))
    n = len(leaves)
    sets = [leaves.set(k for k in range(n) if mask >> k & 1) for mask in range(2**n)]
    broken = sum((j in (~A).members) == (i in A.members) for A in sets)
    for A, B in itertools.combinations(sets, 2):
        broken += (j in (A | B).members) != (i in A.members or i in B.members)
        broken += (j in (A & B).members) != (i in A.members and i in B.members)
    return equal(broken, 0, comparisons=len(sets) ** 2, activation=case.name, leaves=n)


FEATURES: dict[str, Callable[[np.ndarray], list[np.ndarray]]] = {
    "powers": lambda x: [x[:, 0] ** k for k in range(4)],
    "exponentials": lambda x: [np.exp(k * x[:, 0] / 2) for k in (1, -1, 2, 3)],
    "sines": lambda x: [np.sin(k * x[:, 0]) for k in (1, 2, 3, 4)],
    "two inputs": lambda x: [x[:, 0], x[:, 1], x[:, 0] * x[:, 1], np.sin(x[:, 0] + x[:, 1])],
    "dependent": lambda x: [np.sin(x[:, 0]) ** 2, np.cos(x[:, 0]) ** 2, np.ones(len(x)), x[:, 1]],
}


@dataclass(frozen=True)
class Features:
    """The first M features of a family, and a point θ."""

    family: str
    theta: tuple[float, ...]

    @property
    def closure(self) -> LieClosure:
        """Of the linear model Σ θ_i ψ_i(x), at 24 inputs."""
        x = np.random.default_rng(0).standard_normal((24, 2))
        inputs = np.stack(FEATURES[self.family](x)[: len(self.theta)], axis=1)
        net = MLP((len(self.theta), 1), "identity", bias=False)
        params = (Layer(np.array([self.theta])),)
        return lie_closure(net, params, key=jax.random.key(0), inputs=inputs, exact=False)


def _linear_models(rng: np.random.Generator, draws: int) -> Iterator[Features]:
    families = [family for family in FEATURES if family != "dependent"]
    for M, family in itertools.product((1, 2, 3, 4), families):
        yield Features(family, (0.0,) * M)
        yield Features(family, (1.0,) + (0.0,) * (M - 1))
    for _ in range(draws):
        M = int(rng.integers(1, 5))
        yield Features(str(rng.choice(families)), tuple(rng.standard_normal(M).tolist()))


@in_float64(
    "3.3",
    _linear_models,
    control("the features sin², cos², 1", lambda: Features("dependent", (0.0, 0.0, 0.0))),
    draws=6,
)
def linear(case: Features) -> Check:
    """A linear model Σ θ_i ψ_i(x) with independent analytic features has only the trivial SIM:
    dim Lie_θ = M everywhere.
    """
    M = len(case.theta)
    return equal(int(case.closure.dimension), M, features=case.family, M=M)
