"""complexity, Sec. 4.1: orbits of critical points, and the orbit of positive scalings."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from neuromanifold.models.activation import Activation, Mixed, apply_activation
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.groups.scaling import ScalingGroup
from neuromanifold_papers.check import Check, at_least, equal, outside
from neuromanifold_papers.complexity.statements import action
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.bounds import rational_outputs
from neuromanifold_papers.complexity.statements.cases import Network
from neuromanifold_papers.statement import control, statement


def moved(case: Network, layer: int, i: int, j: int) -> Network:
    """θ moved by a finite element of G_hid: the shear 1 + E_ij of a layer, or for i = j the
    doubling of neuron i.

    Both are integer on networks with even weights, and commute with ReLU where i and j have one
    sign pattern: z_i + z_j has it too.
    """
    params = [Layer(weight.copy(), bias.copy()) for weight, bias in case.params]
    into, out = params[layer], params[layer + 1].weight
    into.weight[i] += into.weight[j]
    into.bias[i] += into.bias[j]
    if i == j:
        out[:, i] /= 2
    else:
        out[:, j] -= out[:, i]
    return Network(case.net, tuple(params), case.x)


def outputs(case: Network) -> np.ndarray:
    """f_θ(X) in integers."""
    return np.array(rational_outputs(case.params, case.x), object)


def critical_residual(J: np.ndarray) -> np.ndarray:
    """An integer r with Jᵀr = 0: θ is critical for the squared error of y = f_θ(X) − r, and a
    minimum only when r = 0.
    """
    basis, nullity = flint.fmpz_mat(J.T.tolist()).nullspace()
    return np.array([sum(int(basis[i, k]) for k in range(nullity)) for i in range(len(J))], object)


@statement(
    "4.2",
    action.all_statuses,
    control(
        "two neurons of different sign patterns taken for one",
        action.two_bent,
        classes=action.all_as_one,
    ),
)
def orbit_is_critical(case: Network, classes: Any = action.pattern_classes) -> Check:
    """At a critical point with trivial stabiliser dim 𝒞 ≥ dim H_eq: the orbit of H_eq has that
    dimension and consists of critical points.

    dim H_eqθ, if all its generators' finite elements lead to critical points of the same
    loss, else −1; against dim H_eq.
    """
    fields, p = action.equivalence_fields(case, classes), modular.random_prime()
    orbit = modular_rank(fields.modulo(case.params, p), p)
    r, value = critical_residual(case.jacobian), outputs(case)
    pairs = action.class_pairs(classes(case))
    critical = all(
        not (outputs(there) - value).any() and not (there.jacobian.astype(object).T @ r).any()
        for there in (moved(case, *pair) for pair in pairs)
    )
    drops = outside("the stabiliser is not finite", when=orbit < fields.count)
    residual = {"residual": "some" if r.any() else "none"}
    hypotheses = residual | {"hidden layers": case.net.depth - 1, "dim H_eq": fields.count}
    found, count = orbit if critical else -1, len(pairs)
    return at_least(found, fields.count, drops=drops, comparisons=count, hypotheses=hypotheses)


@dataclass(frozen=True)
class Saddle:
    """A linear network (n, h | n) at the critical point that fits the singular directions `kept` of
    diag(1, 2, …, n) and no other.

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


def _gradient(case: Saddle, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """∇L of Σ‖W_2W_1x + … − y‖² by its formula: the biases are zero, and with symmetric inputs
    so are their parts.
    """
    x, y = case.data
    residual = x @ (second @ first).T - y
    parts = (
        residual.T @ (x @ first.T),
        (residual @ second).T @ x,
        residual.sum(axis=0),
        (residual @ second).sum(axis=0),
    )
    return np.concatenate([2 * part.ravel() for part in parts])


@statement(
    "4.2 (saddles)",
    [
        Saddle(n, kept)
        for n in (1, 2, 3)
        for h in range(1, n + 1)
        for kept in itertools.combinations(range(n), h)
    ],
    control("W_2 three times as large: not critical", lambda: Saddle(2, (0, 1), 3.0)),
)
def saddles(case: Saddle) -> Check:
    """A linear network (n, h | n) that fits h of n singular directions is at a critical point,
    and so is its orbit, of dimension dim GL(h) = h².

    dim GL(h)θ, if θ is critical and so is where the shears and doublings that generate GL(h)
    lead, else −1.

    Small integers, so nothing is rounded.
    """
    (first, _), (second, _) = case.params
    h = len(case.kept)
    units = np.eye(h * h).reshape(-1, h, h)
    elements = np.eye(h) + np.array([0 * units[0], *units])
    there = [(g @ first, second @ np.linalg.inv(g)) for g in elements]
    moves = [np.concatenate([(E @ first).ravel(), (-second @ E).ravel()]) for E in units]
    orbit = cast.integer_rank(np.array(moves).astype(np.int64))
    hypotheses = {"n": case.n, "h": h, "kept": str(case.kept)}
    critical = not any(_gradient(case, *pair).any() for pair in there)
    return equal(orbit if critical else -1, h**2, comparisons=len(units), hypotheses=hypotheses)


def commutator(sigma: Activation | Mixed, matrices: np.ndarray, z: np.ndarray) -> float:
    """max |σ(gz) − gσ(z)| over matrices g and points z."""
    with arithmetic():
        after = np.asarray(apply_activation(sigma, z @ matrices.transpose(0, 2, 1)))
        before = np.asarray(apply_activation(sigma, z)) @ matrices.transpose(0, 2, 1)
    return float(np.abs(after - before).max())


@statement(
    "4.3 (commutes)",
    lambda rng, draws: [1, 2, 3],
    control("a negative factor", lambda: 1, scales=(-1.0,)),
)
def commutes(n: int, scales: tuple[float, ...] = (0.5, 1.0, 3.0)) -> Check:
    """Permutations times positive diagonal matrices commute with ReLU."""
    pairs = itertools.product(
        itertools.permutations(np.eye(n)), itertools.product(scales, repeat=n)
    )
    matrices = np.stack([np.array(P) * d for P, d in pairs])
    z = np.array(list(itertools.product((-2.0, -1.0, 0.0, 1.0, 2.0), repeat=n)))
    [relu] = MLP((1, n, 1)).activation
    found, count = commutator(relu, matrices, z), len(matrices) * len(z)
    return equal(found, 0.0, cases=len(matrices), comparisons=count, n=n)


def _orbit_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    drawn = [cast.random_widths(rng, 5, 8) for _ in range(draws)]
    for widths in [*cast.architectures([1, 2], 3), *cast.architectures([3], 2), *drawn]:
        yield cast.random_network(rng, widths, 2)


@statement(
    "4.3 (orbit)",
    _orbit_cases,
    control(
        "a neuron of (1, 2 | 1) without weights and bias",
        lambda: cast.network([[[1], [0]], [[1, 0]]], [[1, 0], [1]], [0, 1]),
    ),
)
def scaling_orbit(case: Network) -> Check:
    """A generic ReLU network has an orbit of positive scalings of dimension N, the number of
    hidden neurons.
    """
    orbit = ScalingGroup(case.net).orbit_dimension(case.params)
    neurons = sum(case.net.widths[1:-1])
    return equal(orbit, neurons, hidden_layers=case.net.depth - 1, N=orbit)
