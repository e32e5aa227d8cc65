"""Closures of rational networks in exact arithmetic: the same brackets modulo a random 61-bit
prime.
"""

import hashlib
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.graph import trace
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.rank import Certificate
from neuromanifold.orbits.bounds import UpperBound, closure_upper_bound
from neuromanifold.orbits.family import walked_family
from neuromanifold.orbits.host import flatten_on_host
from neuromanifold.orbits.rings import Residues


class ClosureCertificate(Certificate):
    """Why Lie_θ has dimension `rank`, or at least that.

    Lower bound, always a proof: brackets of at most `depth` fields at the recorded inputs, rational
    vectors all, have this rank modulo `prime`, and reduction never raises a rank. Upper bound:
    `upper_bound` linear forms' count, computed modulo the same prime, where a rank too small only
    weakens it; `proved` says whether the two meet.
    """

    rank: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    prime: int = eqx.field(static=True)
    upper_bound: int = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    fingerprint: str = eqx.field(static=True)

    @property
    def proved(self) -> bool:
        """Whether lower and upper bound meet."""
        return self.rank == self.upper_bound

    def verify(self, net: Any, params: Any, x: Any) -> bool:
        """Recompute modulo another prime with other brackets; False for another network, point
        or inputs.
        """
        problem = Problem(net, params, np.asarray(x, np.float64), _another_prime(self.prime))
        if problem.fingerprint != self.fingerprint:
            return False
        rng = np.random.default_rng()
        rows = np.concatenate(
            [problem.vectors(k, problem.n_params + 8, rng) for k in range(1, self.depth + 1)]
        )
        return (
            modular_rank(rows, problem.ring.p) == self.rank
            and problem.bound().value == self.upper_bound
        )

    def __str__(self) -> str:
        upper = f"proved: {self.reason}" if self.proved else f"at least; at most {self.upper_bound}"
        return f"exact, depth {self.depth}, {upper}"


class Problem:
    """A rational network, its parameters and inputs modulo a prime."""

    def __init__(self, net: Any, params: Any, inputs: Float[np.ndarray, "n ..."], p: int):
        self.net, self.params, self.inputs, self.ring = net, params, inputs, Residues(p)
        self.theta = self.ring.embed(flatten_on_host(params))
        self.graph = trace(net, params, inputs)
        self.family = walked_family(self.graph, inputs, self.ring)

    @property
    def n_params(self) -> int:
        """D."""
        return len(self.theta)

    @property
    def fingerprint(self) -> str:
        """What the certificate is about."""
        digest = hashlib.sha256(self.graph.text.encode())
        for a in (flatten_on_host(self.params), self.inputs):
            digest.update(np.ascontiguousarray(a, np.float64).tobytes())
        return digest.hexdigest()

    def vectors(self, depth: int, lanes: int, rng: np.random.Generator) -> np.ndarray:
        """All fields at θ for depth one, random brackets of that depth beyond."""
        if depth == 1:
            return self.family.jacobian(self.theta)
        return self.family.brackets(self.theta, depth, lanes, rng).vectors

    def bound(self) -> UpperBound:
        """The upper bound, modulo the prime."""
        return closure_upper_bound(self.net, self.params, self.ring)


def draw_problem(net: Any, params: Any, inputs: Float[np.ndarray, "n ..."]) -> Problem:
    """The problem modulo a random prime."""
    return Problem(net, params, inputs, modular.random_prime())


def has_rational_fields(f: Any, params: Any, inputs: Any) -> bool:
    """Whether f_θ(x) is a rational function of θ and x without bends, so that its fields are
    rational at floats.
    """
    graph = trace(f, params, inputs)
    return graph.exact and graph.analytic


def _another_prime(p: int) -> int:
    q = modular.random_prime()
    return q if q != p else _another_prime(p)
