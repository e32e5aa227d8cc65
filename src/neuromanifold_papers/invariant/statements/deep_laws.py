"""invariant: which functions deep linear networks conserve besides the entries of
W_{l+1}ᵀW_{l+1} − W_lW_lᵀ.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.orbits.bounds import conserved_forms
from neuromanifold.orbits.closure import LieClosure, lie_closure
from neuromanifold.orbits.rings import Residues
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.invariant.statements.conservation import Widths
from neuromanifold_papers.statement import control, statement


@dataclass(frozen=True)
class Chain:
    """A deep linear network without biases, at nonzero whole weights."""

    widths: Widths
    seed: int = 0

    @property
    def net(self) -> MLP:
        """The network."""
        return MLP(self.widths, "identity", bias=False)

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"widths": str(self.widths), "layers": len(self.widths) - 1}

    @property
    def params(self) -> Params:
        """Weights 1 to 9 with random signs."""
        rng = np.random.default_rng(self.seed)
        shapes = zip(self.widths[1:], self.widths[:-1], strict=True)
        return tuple(Layer(rng.integers(1, 10, s) * rng.choice([-1.0, 1.0], s)) for s in shapes)

    @property
    def closure(self) -> LieClosure:
        """Modulo a prime, and by transport."""
        return chain_closure(self)

    @property
    def laws(self) -> int:
        """D − dim Lie_θ."""
        return self.net.n_params - int(self.closure.dimension)

    @property
    def transported(self) -> int:
        """D less the dimension by transport along the orbit in float64, without brackets."""
        found = self.closure.along_orbit
        return -1 if found is None else self.net.n_params - int(found)

    @property
    def balances(self) -> int:
        """How many of the entries of Δ_l = W_{l+1}ᵀW_{l+1} − W_lW_lᵀ are independent at the
        point, modulo a prime.
        """
        p = modular.random_prime()
        return modular_rank(conserved_forms(self.net, self.params, Residues(p)), p)


@lru_cache(maxsize=512)
def chain_closure(case: Chain) -> LieClosure:
    """The library's closure."""
    return lie_closure(case.net, case.params, key=jax.random.key(0))


def scalar_inside(widths: Widths) -> bool:
    """Whether two layers of width 1 have two neighbouring wider layers somewhere between them."""
    ends = ((widths[:l], widths[l : l + 2], widths[l + 2 :]) for l in range(len(widths) - 1))
    return any(1 in left and min(pair) > 1 and 1 in right for left, pair, right in ends)


def _all_laws(case: Chain) -> Check:
    return equal(case.laws, case.balances)


def _chains(rng: np.random.Generator, draws: int) -> Iterator[Chain]:
    for layers in (2, 3):
        yield from (Chain(widths) for widths in itertools.product((1, 2), repeat=layers + 1))
    yield from map(Chain, ((1, 2, 2, 1, 2), (2, 1, 2, 2, 1), (1, 2, 1, 2, 2), (2, 1, 1, 2, 2)))
    for _ in range(draws):
        yield Chain(tuple(rng.integers(1, 3, 5).tolist()), int(rng.integers(2**31)))


def _show_chain(case: Chain) -> str:
    weights = [layer.weight.tolist() for layer in case.params]
    return (
        f"net = nm.MLP({case.widths}, 'identity', bias=False)\n"
        f"params = tuple(nm.Layer(np.array(w)) for w in {weights})\n"
        "net.n_params - int(nm.lie_closure(net, params, key=jax.random.key(0)).dimension)"
    )


deep_amended = statement(
    "conservation (deep linear), amended",
    lambda rng, draws: (case for case in _chains(rng, draws) if not scalar_inside(case.widths)),
    control("(1, 2, 2 | 1)", lambda: Chain((1, 2, 2, 1))),
    amends="conservation (deep linear)",
    draws=6,
    show=_show_chain,
    says="the entries of Δ_l = W_{l+1}ᵀW_{l+1} − W_lW_lᵀ are all that a deep linear network conserves unless two layers of width 1 have two neighbouring wider layers between them",
)(_all_laws)
deep = statement(
    "conservation (deep linear)",
    lambda rng, draws: (
        case for case in _chains(rng, draws) if not case.widths[0] == case.widths[-1] == 1
    ),
    control("n_0 = n_L = 1: (1, 2, 2 | 1)", lambda: Chain((1, 2, 2, 1))),
    draws=6,
    source="ours",
    show=_show_chain,
    confirm=lambda case: equal(case.transported, case.balances),
    says="where n_0, n_L are not both 1, the entries of Δ_l = W_{l+1}ᵀW_{l+1} − W_lW_lᵀ are all that a deep linear network conserves",
)(_all_laws)


def wide_neighbours(widths: Widths) -> bool:
    """Whether two neighbouring layers both have more than one neuron."""
    return any(a > 1 and b > 1 for a, b in itertools.pairwise(widths))


def _scalars(rng: np.random.Generator, draws: int) -> Iterator[Chain]:
    for hidden in (1, 2, 3):
        yield from (Chain((1, *inner, 1)) for inner in itertools.product((1, 2), repeat=hidden))
    yield from (
        Chain((1, *rng.integers(1, 4, int(rng.integers(1, 3))).tolist(), 1), 1)
        for _ in range(draws)
    )


@statement(
    "conservation (single scalar)",
    _scalars,
    control("n_L = 2", lambda: Chain((1, 2, 2))),
    draws=4,
    source="ours",
)
def one_dimension(case: Chain) -> Check:
    """Where n_0 = n_L = 1, without biases, Lie_θ of a linear network has dimension 1: there are D
    − 1 conserved functions.
    """
    return equal(int(case.closure.dimension), 1)


@statement(
    "conservation (more laws than Δ's), amended",
    _scalars,
    control("no wider neighbours: (1, 2 | 1)", lambda: Chain((1, 2, 1)), more=lambda widths: True),
    amends="conservation (more laws than Δ's)",
    draws=10,
    show=_show_chain,
)
def more_amended(case: Chain, more: Any = wide_neighbours) -> Check:
    """Where n_0 = n_L = 1 there are more conserved functions than independent entries of the Δ_l
    exactly where two neighbouring layers are wider than 1.
    """
    found = case.net.n_params - 1 - case.balances
    return equal(int(found > 0), int(more(case.widths)))


@statement(
    "conservation (more laws than Δ's)",
    _scalars,
    control("n_L = 2", lambda: Chain((1, 2, 2))),
    draws=4,
    source="ours",
    show=_show_chain,
    confirm=lambda case: at_least(case.transported, case.balances + 1),
)
def conservation_more_laws_than_s(case: Any) -> Check:
    """Where n_0 = n_L = 1, without biases, a linear network conserves more functions than the Δ_l
    have independent entries.
    """
    return at_least(case.laws, case.balances + 1)
