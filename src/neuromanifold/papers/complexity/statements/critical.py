"""complexity, Sec. 4.1: flat directions at critical points, and the orbit of positive scalings."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.models.activation import Activation, Mixed, apply_activation
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.papers.check import Check, outside
from neuromanifold.papers.complexity.statements.action import all_statuses, equivalence_fields
from neuromanifold.papers.complexity.statements.cases import (
    Network,
    Widths,
    architectures,
    integer_rank,
    network,
    random_network,
    random_widths,
    staged,
)
from neuromanifold.papers.statement import Control, Statement
from neuromanifold.symmetry.scaling import ScalingGroup

PAPER = "complexity"


def _minimum_nullity(case: Network) -> Check:
    """At y = f_θ(X) the Hessian of the squared error is 2JᵀJ: its nullity against dim H_eq, where the stabiliser is finite."""
    fields, p = equivalence_fields(case), modular.random_prime()
    orbit = modular_rank(fields.modulo(case.params, p), p)
    J = case.jacobian.astype(object)
    nullity = case.net.n_params - integer_rank(J.T @ J)
    return Check(
        nullity,
        fields.count,
        ">=",
        hypotheses={"hidden layers": case.net.depth - 1, "dim H_eq": fields.count, "fixed": sum(case.fixed)},
        drops=outside("the stabiliser is not finite", when=orbit < fields.count),
    )


CRITICAL = Statement(
    paper=PAPER,
    row="4.2",
    id="4.2",
    says="at an interpolating minimum with trivial stabiliser the Hessian has nullity ≥ dim H_eq",
    method="exact",
    cases=all_statuses,
    measure=_minimum_nullity,
    control=Control(
        "(1, 3 | 1), all active: the stabiliser has dimension 2, and 8 directions are flat, not 9",
        case=lambda: staged(np.random.default_rng(0), (1, 3, 1), (("active",) * 3,), 6, size=9),
    ),
    narrower="the nullity, which bounds dim 𝒞 from above where 𝒞 is smooth; that the orbit is critical is 4.2 (saddles)",
    show=str,
)


@dataclass(frozen=True)
class Saddle:
    """A linear network (n, h | n) at the critical point that fits the singular directions `kept` of diag(1, 2, …, n) and no other.

    `stretched` other than 1 multiplies W_2: no critical point any more.
    """

    n: int
    kept: tuple[int, ...]
    stretched: float = 1.0

    @property
    def net(self) -> MLP:
        """The architecture."""
        return MLP((self.n, len(self.kept), self.n), "identity")

    @property
    def params(self) -> Params:
        """W_1 picks the kept coordinates, W_2 multiplies them by their singular values."""
        pick = np.eye(self.n)[list(self.kept)]
        values = self.stretched * np.arange(1.0, self.n + 1)[list(self.kept)]
        return Layer(pick, np.zeros(len(pick))), Layer((pick * values[:, None]).T, np.zeros(self.n))

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """±e_i ↦ ±i e_i."""
        x = np.concatenate([np.eye(self.n), -np.eye(self.n)])
        return x, x * np.arange(1.0, self.n + 1)


@lru_cache
def _derivatives(net: MLP) -> Any:
    unravel = ravel_pytree(jax.tree.map(jnp.asarray, Saddle(net.widths[0], tuple(range(net.widths[1]))).params))[1]

    def loss(flat, x, y):
        return ((net(unravel(flat), x) - y) ** 2).sum()

    def gradient_twice(flat, x, y):
        gradient = jax.grad(loss)(flat, x, y)
        return gradient, gradient

    return jax.jit(jax.jacfwd(gradient_twice, has_aux=True))


def _saddle_nullity(case: Saddle) -> Check:
    """The Hessian's entries are small integers, so that autodiff in float64 makes no error."""
    with arithmetic():
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(case.params)])
        hessian, gradient = (np.asarray(a) for a in _derivatives(case.net)(flat, *case.data))
    h, rank = len(case.kept), integer_rank(hessian.astype(np.int64))
    hypotheses = {"n": case.n, "h": h, "kept": str(case.kept)}
    drops = outside("not a critical point", when=gradient.any())
    return Check(len(flat) - rank, h**2, ">=", hypotheses=hypotheses, drops=drops)


def _saddles(rng: np.random.Generator, draws: int) -> Iterator[Saddle]:
    for n, h in ((1, 1), (2, 1), (2, 2), (3, 1)):
        yield from (Saddle(n, kept) for kept in itertools.combinations(range(n), h))


SADDLES = Statement(
    paper=PAPER,
    row="4.2",
    id="4.2 (saddles)",
    says="at every critical point of a linear network (n, h | n) that fits h of n singular directions, the Hessian "
    "has nullity ≥ dim GL(h) = h²",
    method="exact",
    cases=_saddles,
    measure=_saddle_nullity,
    control=Control("W_2 three times as large: not critical", case=lambda: Saddle(2, (0, 1), 3.0)),
    exhaustive="every set of h directions, (n, h) = (1, 1), (2, 1), (2, 2), (3, 1); squared error of diag(1, …, n) on ±e_i",
)


def commutator(sigma: Activation | Mixed, matrices: np.ndarray, z: np.ndarray) -> float:
    """max |σ(gz) − gσ(z)| over matrices g and points z."""
    with arithmetic():
        after = np.asarray(apply_activation(sigma, z @ matrices.transpose(0, 2, 1)))
        before = np.asarray(apply_activation(sigma, z)) @ matrices.transpose(0, 2, 1)
    return float(np.abs(after - before).max())


def _scaled_permutations(n: int, scales: tuple[float, ...]) -> np.ndarray:
    found = [
        np.eye(n)[list(order)] * np.array(d)
        for order in itertools.permutations(range(n))
        for d in itertools.product(scales, repeat=n)
    ]
    return np.stack(found)


def _grid(n: int) -> np.ndarray:
    return np.array(list(itertools.product((-2.0, -1.0, 0.0, 1.0, 2.0), repeat=n)))


def _commutes(n: int, scales: tuple[float, ...] = (0.5, 1.0, 3.0)) -> Check:
    matrices, z = _scaled_permutations(n, scales), _grid(n)
    [relu] = MLP((1, n, 1)).activation
    found, pairs = commutator(relu, matrices, z), len(matrices) * len(z)
    return Check(found, 0.0, hypotheses={"n": n}, cases=len(matrices), comparisons=pairs)


COMMUTES = Statement(
    paper=PAPER,
    row="4.3",
    id="4.3 (commutes)",
    says="permutations times positive diagonal matrices commute with ReLU",
    method="exact",
    cases=lambda rng, draws: [1, 2, 3],
    measure=_commutes,
    control=Control(
        "a negative factor",
        case=lambda: 1,
        breaks={"scales": (-1.0,)},
    ),
    exhaustive="n = 1, 2, 3: all permutations, factors ½, 1, 3, points of {−2, …, 2}ⁿ",
)


def _scaling_orbit(case: Network) -> Check:
    orbit = ScalingGroup(case.net).orbit_dimension(case.params)
    N = sum(case.net.widths[1:-1])
    return Check(orbit, N, hypotheses={"hidden layers": case.net.depth - 1, "N": N})


def _orbit_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    drawn: list[Widths] = [random_widths(rng, 5, 8) for _ in range(draws)]
    for widths in [*architectures([1, 2], 3), *architectures([3], 2), *drawn]:
        yield random_network(rng, widths, 2)


ORBIT = Statement(
    paper=PAPER,
    row="4.3",
    id="4.3 (orbit)",
    says="a generic ReLU network has an orbit of positive scalings of dimension N, the number of hidden neurons",
    method="exact",
    cases=_orbit_cases,
    measure=_scaling_orbit,
    control=Control(
        "a neuron of (1, 2 | 1) without weights and bias",
        case=lambda: network([[[1], [0]], [[1, 0]]], [[1, 0], [1]], [0, 1]),
    ),
    exhaustive="widths 1 to 3 with one or two hidden layers, widths 1 and 2 with three; for every architecture the hidden "
    "biases are scaled by a diagonal matrix of rank N",
    show=str,
)
