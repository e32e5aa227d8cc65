"""invariant: how many functions gradient flow conserves, D − dim Lie_θ, in two-layer linear and
ReLU networks without biases.
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
from neuromanifold.orbits.closure import lie_closure
from neuromanifold.regions.patterns import activation_patterns
from neuromanifold_papers.check import Check, equal, outside
from neuromanifold_papers.invariant.statements.algebra import PRIME, Field, Span, rank
from neuromanifold_papers.statement import control, in_float64, statement

Widths = tuple[int, ...]


def printed_count(n: int, m: int, r: int) -> int:
    """r(r+1)/2 where n + m ≥ r, else (n+m)r − (n+m)(n+m−1)/2."""
    N = n + m
    return r * (r + 1) // 2 if r <= N else N * r - N * (N - 1) // 2


@dataclass(frozen=True)
class Factors:
    """f(x) = U Vᵀ x with U (n×r) and V (m×r) whole; their first min(n, m) rows are the same
    where `shared`.
    """

    n: int
    m: int
    r: int
    shared: bool = False
    seed: int = 0

    @property
    def U(self) -> np.ndarray:
        """Whole numbers, generic, or 1 on the diagonal."""
        return self._drawn(self.n, 0)

    @property
    def V(self) -> np.ndarray:
        """The same for the other factor."""
        return self._drawn(self.m, 0 if self.shared else 1)

    def _drawn(self, rows: int, stream: int) -> np.ndarray:
        if self.shared and self.seed == 0:
            return np.eye(rows, self.r, dtype=int)
        rng, most = np.random.default_rng([self.seed, stream]), max(self.n, self.m)
        return rng.integers(-9, 10, (most, self.r))[:rows]

    @property
    def stacked(self) -> np.ndarray:
        """(U; V)."""
        return np.concatenate([self.U, self.V])

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"n": self.n, "m": self.m, "r": self.r, "shared rows": self.shared}

    @property
    def network(self) -> tuple[MLP, Params]:
        """The linear network m → r → n."""
        net = MLP((self.m, self.r, self.n), "identity", bias=False)
        return net, (Layer(self.V.T.astype(float)), Layer(self.U.astype(float)))

    @property
    def full(self) -> tuple[bool, bool]:
        """Whether U and V each have full rank, and whether (U; V) has."""
        ranks = [rank(A) == min(A.shape) for A in (self.U, self.V, self.stacked)]
        return ranks[0] and ranks[1], ranks[2]


@lru_cache
def matrix_algebra(n: int, m: int) -> np.ndarray:
    """The Lie algebra that the matrices ((0, A), (Aᵀ, 0)) generate: Z = (U; V) moves by them, Ż
    = MZ. Modulo a prime.
    """
    N = n + m
    units = [np.zeros((N, N), np.int64) for _ in range(n * m)]
    for unit, (i, j) in zip(units, itertools.product(range(n), range(n, N)), strict=True):
        unit[i, j] = unit[j, i] = 1
    span = Span()
    found, new = [], [unit for unit in units if span.add(_entries(unit))]
    while new:
        found += new
        brackets = [(A @ B - B @ A) % PRIME for A, B in itertools.product(units, new)]
        new = [bracket for bracket in brackets if span.add(_entries(bracket))]
    return np.stack(found)


def _entries(A: np.ndarray) -> Field:
    """A matrix as `Span` takes it: its entries by their places."""
    return ({(int(i), int(j)): int(A[i, j]) for i, j in np.argwhere(A)},)


def laws_at(n: int, m: int, Z: np.ndarray) -> int:
    """(n + m)r − dim Lie_θ at Z = (U; V), with Lie_θ = {MZ : M in the matrix algebra}."""
    moved = matrix_algebra(n, m) @ Z % PRIME
    return Z.size - rank(moved.reshape(len(moved), -1))


def library_laws(case: Factors) -> int:
    """D − dim Lie_θ by brackets of the network's fields modulo a 61-bit prime."""
    net, params = case.network
    return net.n_params - int(lie_closure(net, params, key=jax.random.key(0)).dimension)


def _factors(rng: np.random.Generator, draws: int) -> Iterator[Factors]:
    """Every shape up to 4, generic and with shared rows, the smallest with (U; V) of deficient
    rank first; then larger ones.
    """
    yield Factors(2, 2, 3, True)
    shapes = sorted(itertools.product(range(1, 5), repeat=3), key=lambda shape: (sum(shape), shape))
    for (n, m, r), shared in itertools.product(shapes, (False, True)):
        yield Factors(n, m, r, shared)
    for _ in range(draws):
        n, m, r = rng.integers(1, 6, 3).tolist()
        yield Factors(n, m, r, bool(rng.integers(2)), int(rng.integers(1, 2**31)))


def _show(case: Factors) -> str:
    return (
        f"U, V = np.array({case.U.tolist()}, float), np.array({case.V.tolist()}, float)\n"
        f"net = nm.MLP(({case.m}, {case.r}, {case.n}), 'identity', bias=False)\n"
        f"closure = nm.lie_closure(net, (nm.Layer(V.T), nm.Layer(U)), key=jax.random.key(0))\n"
        "net.n_params - int(closure.dimension)"
    )


@statement(
    "conservation (two-layer linear), amended",
    _factors,
    control("U = V = (1 0 0; 0 1 0): (U; V) has rank 2 of 3", lambda: Factors(2, 2, 3, True)),
    amends="conservation (two-layer linear)",
    draws=20,
    show=_show,
)
def stacked(case: Factors) -> Check:
    """UVᵀ with (U; V), of n + m rows, of full rank conserves r(r+1)/2 functions when n + m ≥ r,
    else (n+m)r − (n+m)(n+m−1)/2.

    By matrices, and for the smallest and the random shapes by the library too.
    """
    _, together = case.full
    found = laws_at(case.n, case.m, case.stacked)
    wanted = printed_count(case.n, case.m, case.r)
    if together and max(case.n, case.m, case.r) <= 2 and found == wanted:
        found = library_laws(case)
    drops = outside("(U; V) is not of full rank", when=not together)
    return equal(found, wanted, drops=drops)


@statement(
    "conservation (two-layer linear)",
    _factors,
    control(
        "r(r − 1)/2 functions, at n = m = r = 2",
        lambda: Factors(2, 2, 2),
        count=lambda n, m, r: r * (r - 1) // 2,
    ),
    draws=20,
    source="ours",
    show=_show,
    confirm=lambda case: equal(library_laws(case), printed_count(case.n, case.m, case.r)),
)
def two_layers(case: Factors, count: Any = printed_count) -> Check:
    """UVᵀ with U (n×r) and V (m×r) of full rank conserves r(r+1)/2 functions when n + m ≥ r, else
    (n+m)r − (n+m)(n+m−1)/2.
    """
    each, _ = case.full
    drops = outside("U or V is not of full rank", when=not each)
    found, wanted = laws_at(case.n, case.m, case.stacked), count(case.n, case.m, case.r)
    return equal(found, wanted, drops=drops)


@dataclass(frozen=True)
class Kinked:
    """A two-layer ReLU network without biases; inputs from everywhere, or from where the first
    input is positive.
    """

    W: tuple[tuple[int, ...], ...]
    outputs: int
    half: bool = False

    @property
    def setting(self) -> tuple[MLP, Params, np.ndarray]:
        """Network, parameters, inputs."""
        W, rng = np.array(self.W, float), np.random.default_rng(0)
        net = MLP((W.shape[1], len(W), self.outputs), "relu", bias=False)
        x = rng.standard_normal((120, W.shape[1]))
        x[:, 0] = np.abs(x[:, 0]) if self.half else x[:, 0]
        shape = (self.outputs, len(W))
        V = rng.integers(1, 9, shape) * rng.choice([-1.0, 1.0], shape)
        return net, (Layer(W), Layer(V)), x


def kink_count(case: Kinked) -> int:
    """The linear count for each set of neurons that the inputs do not tell apart; all weights of
    neurons that none activates.
    """
    net, params, x = case.setting
    patterns = np.asarray(activation_patterns(net, params, x))
    kinds, sizes = np.unique(patterns.T, axis=0, return_counts=True)
    d, n = net.widths[0], net.widths[-1]
    pairs = zip(kinds, sizes.tolist(), strict=True)
    return sum(printed_count(n, d, r) if kind.any() else (n + d) * r for kind, r in pairs)


def _relus(rng: np.random.Generator, draws: int) -> Iterator[Kinked]:
    for r, n in itertools.product((1, 2, 3), (1, 2)):
        for positive in range(r + 1):
            weights = tuple((k + 1 if k < positive else -k - 1,) for k in range(r))
            yield from (Kinked(weights, n, half) for half in (False, True))
    directions = ((2, 1), (-1, 2), (1, -3))
    yield from (Kinked(directions[:r], n) for r, n in itertools.product((1, 2, 3), (1, 2)))
    yield Kinked(((2, 0), (1, 0), (-1, 0)), 1, True)
    for _ in range(draws):
        W = rng.integers(1, 6, (3, 2)) * rng.choice([-1, 1], (3, 2))
        yield Kinked(tuple(map(tuple, W.tolist())), int(rng.integers(1, 3)))


@in_float64(
    "conservation (ReLU)",
    _relus,
    control(
        "one law for each neuron, where two are always active together",
        lambda: Kinked(((1,), (2,)), 1),
        count=lambda case: len(case.W),
    ),
    draws=4,
    source="ours",
)
def per_kink(case: Kinked, count: Any = kink_count) -> Check:
    """For two-layer ReLU networks the count is per kink sampled: the linear count for each set of
    neurons that the inputs do not tell apart, one for each neuron where all are told apart.
    """
    net, params, x = case.setting
    found = net.n_params - int(lie_closure(net, params, key=jax.random.key(0), inputs=x).dimension)
    d, r, n = net.widths
    return equal(found, count(case), d=d, r=r, n=n, half_of_the_inputs=case.half)
