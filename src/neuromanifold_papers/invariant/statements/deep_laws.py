"""invariant: which functions deep linear networks conserve besides the entries of
W_{l+1}ᵀW_{l+1} − W_lW_lᵀ.
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
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.orbits.bounds import conserved_forms
from neuromanifold.orbits.closure import LieClosure, lie_closure
from neuromanifold.orbits.rings import Residues
from neuromanifold_papers.check import Check
from neuromanifold_papers.invariant.statements.cases import PAPER
from neuromanifold_papers.invariant.statements.conservation import ROW, Widths
from neuromanifold_papers.statement import NO_PROOF, Control, Statement


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
    ones = [l for l, n in enumerate(widths) if n == 1]
    return any(
        widths[l] > 1
        and widths[l + 1] > 1
        and any(o < l for o in ones)
        and any(o > l + 1 for o in ones)
        for l in range(len(widths) - 1)
    )


def _chain(case: Chain) -> dict[str, Any]:
    return {"widths": str(case.widths), "layers": len(case.widths) - 1}


def _all_laws(case: Chain) -> Check:
    return Check(case.laws, case.balances, hypotheses=_chain(case))


def _chains(rng: np.random.Generator, draws: int) -> Iterator[Chain]:
    for layers in (2, 3):
        yield from (Chain(widths) for widths in itertools.product((1, 2), repeat=layers + 1))
    yield from (
        Chain(widths)
        for widths in ((1, 2, 2, 1, 2), (2, 1, 2, 2, 1), (1, 2, 1, 2, 2), (2, 1, 1, 2, 2))
    )
    for _ in range(draws):
        yield Chain(tuple(rng.integers(1, 3, 5).tolist()), int(rng.integers(2**31)))


def _show_chain(case: Chain) -> str:
    weights = [layer.weight.tolist() for layer in case.params]
    return (
        f"net = nm.MLP({case.widths}, 'identity', bias=False)\n"
        f"params = tuple(nm.Layer(np.array(w)) for w in {weights})\n"
        "net.n_params - int(nm.lie_closure(net, params, key=jax.random.key(0)).dimension)"
    )


DEEP_AMENDED = Statement(
    paper=PAPER,
    row=ROW,
    id="conservation (deep linear)",
    says="the entries of Δ_l = W_{l+1}ᵀW_{l+1} − W_lW_lᵀ are all that a deep linear network "
    "conserves unless two layers of width 1 "
    "have two neighbouring wider layers between them",
    method="exact",
    cases=lambda rng, draws: (
        case for case in _chains(rng, draws) if not scalar_inside(case.widths)
    ),
    measure=_all_laws,
    control=Control("(1, 2, 2 | 1)", case=lambda: Chain((1, 2, 2, 1))),
    draws=6,
    exhaustive="two and three layers of width ≤ 2, at one generic point each",
    show=_show_chain,
    proof=f"{NO_PROOF} beyond two layers, whose proof is that of conservation (two-layer linear): "
    "with more, the fields are not linear in "
    "θ, and one would have to show that brackets of all orders reach every direction that fixes "
    "the Δ_l",
)
DEEP = Statement(
    paper=PAPER,
    row=ROW,
    id="conservation (deep linear)",
    says="where n_0, n_L are not both 1, the entries of Δ_l = W_{l+1}ᵀW_{l+1} − W_lW_lᵀ are all "
    "that a deep linear network conserves",
    method="exact",
    cases=lambda rng, draws: (
        case for case in _chains(rng, draws) if not case.widths[0] == case.widths[-1] == 1
    ),
    measure=_all_laws,
    control=Control("n_0 = n_L = 1: (1, 2, 2 | 1)", case=lambda: Chain((1, 2, 2, 1))),
    draws=6,
    exhaustive="two and three layers of width ≤ 2, four with a scalar part inside, at one generic "
    "point each",
    source="ours",
    show=_show_chain,
    confirm=lambda case: Check(case.transported, case.balances),
    route="transport along the orbit in float64",
    worked="""
In (1, 2, 2, 1 | 2) the first three layers multiply to one number, c = W₃W₂W₁, and f(x) = W₄cx. Whatever data and loss, (W₁, W₂, W₃)
moves along ∇c: on one curve, so that 8 − 1 = 7 functions of these 8 weights are conserved, one more than the 6 independent entries of
their Δ_1, Δ_2. The whole network has D = 10 and the orbit dimension 1 + 2 − 1 = 2 (the curve, W₄ ∈ ℝ², and |W₄|² − |W₃|² conserved), hence
8 conserved functions; the Δ_l give 7. A single scalar function makes more laws also where it is only a part of the network.
""",
    amended=DEEP_AMENDED,
)


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


def _one_dimension(case: Chain) -> Check:
    return Check(int(case.closure.dimension), 1, hypotheses=_chain(case))


ONE_DIMENSION = Statement(
    paper=PAPER,
    row=ROW,
    id="conservation (single scalar)",
    says="where n_0 = n_L = 1, without biases, Lie_θ of a linear network has dimension 1: there "
    "are D − 1 conserved functions",
    method="exact",
    cases=_scalars,
    measure=_one_dimension,
    control=Control("n_L = 2", case=lambda: Chain((1, 2, 2))),
    draws=4,
    exhaustive="one to three hidden layers of width 1 or 2, at one generic point each",
    source="THEORY",
    show=_show_chain,
)


def _at_least(case: Chain, more: Callable[[Widths], bool] = wide_neighbours) -> Check:
    return Check(
        case.net.n_params - 1 - case.balances, int(more(case.widths)), ">=", hypotheses=_chain(case)
    )


MORE_AMENDED = Statement(
    paper=PAPER,
    row=ROW,
    id="conservation (more laws than Δ's)",
    says="where n_0 = n_L = 1 there are more conserved functions than independent entries of the "
    "Δ_l once two neighbouring layers "
    "are wider than 1",
    method="exact",
    cases=_scalars,
    measure=_at_least,
    control=Control(
        "no wider neighbours: (1, 2 | 1)",
        case=lambda: Chain((1, 2, 1)),
        breaks={"more": lambda widths: True},
    ),
    draws=10,
    exhaustive="one to three hidden layers of width 1 or 2, at one generic point each",
    show=_show_chain,
    proof="At generic θ. f(x) = c(θ)x: θ moves along ∇c, and D − 1 functions are conserved. All "
    "dΔ_l vanish on V exactly when the "
    "T_l(V) = W_{l+1}ᵀV_{l+1} − V_lW_lᵀ are skew, and T(∇c) = 0. Let layers l and l + 1 be wider "
    "than 1, u_j = W_j⋯W_1, v_jᵀ = "
    "W_L⋯W_{j+1}, W = W_{l+1}, q = WᵀWu_l, p = Wv_l. Take V_{l+1} = u_{l+1}v_lᵀ, add "
    "−v_j(W_{j−1}⋯W_{l+1}q)ᵀ to V_j for all j > l and "
    "−(W_{j+1}ᵀ⋯W_{l+1}ᵀp)u_{j−1}ᵀ for all j ≤ l + 1. In T the added terms cancel but at l and l "
    "+ 1: T_l = qv_lᵀ − v_lqᵀ, T_{l+1} = "
    "pu_{l+1}ᵀ − u_{l+1}pᵀ, both skew, and T_l ≠ 0 as q and v_l are not parallel. So V and ∇c are "
    "independent, and the dΔ_l have "
    "rank D − 2 at most.",
)
MORE = Statement(
    paper=PAPER,
    row=ROW,
    id="conservation (more laws than Δ's)",
    says="where n_0 = n_L = 1, without biases, a linear network conserves more functions than the "
    "Δ_l have independent entries",
    method="exact",
    cases=_scalars,
    measure=lambda case: Check(case.laws, case.balances + 1, ">=", hypotheses=_chain(case)),
    control=Control("n_L = 2", case=lambda: Chain((1, 2, 2))),
    draws=4,
    exhaustive="one to three hidden layers of width 1 or 2, at one generic point each",
    source="THEORY",
    show=_show_chain,
    confirm=lambda case: Check(case.transported, case.balances + 1, ">="),
    route="transport along the orbit in float64",
    worked="""
f(x) = w₂w₁x has D = 2 and one conserved function, D − 1 = 1; that is w₂² − w₁², the only entry of Δ_1. For (1, r | 1) likewise:
D − 1 = 2r − 1, and Δ_1 = vvᵀ − wwᵀ has 2r − 1 independent entries. There are more laws than the Δ's only where two
neighbouring hidden layers have more than one neuron, as (1, 2, 2 | 1): 7 against 6.
""",
    amended=MORE_AMENDED,
)
