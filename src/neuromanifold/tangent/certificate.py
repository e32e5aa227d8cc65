"""Exact functional dimension of an MLP, and the certificate that says why it is right."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import Echelon, echelon, modular_rank
from neuromanifold.numerics.rank import Certificate
from neuromanifold.regions.heights import field_degree, jacobian_height, minor_bits
from neuromanifold.regions.signs import Signs, exact_signs
from neuromanifold.tangent import residues, structure

_DENSE_ENTRIES = 2**22
_GENERATOR_ENTRIES = 2**22
_BYTES_PER_ENTRY = 64  # a residue, the temporaries of its product, and FLINT's copies
_PRIMES_BETWEEN = 2.0**54  # fewer than the primes between 2⁶⁰ and 2⁶¹ (2.7·10¹⁶)


_IN_WORDS = {
    "full rank": "proved: no matrix of this shape has more",
    "kernel vectors": "proved: symmetries account for all the rest",
    "regions": "proved: the linear regions allow no more",
    "primes": "proved: enough primes agree",
}


class JacobianCertificate(Certificate):
    """Why the rank of J is `rank`.

    Lower bound: the rank modulo `prime` is `rank`, and reduction never raises a rank; `rows` and `columns` name a minor
    that is invertible modulo the prime (columns are absent when `sketched`). Upper bound: `reason` is one of
    `"full rank"`, `"kernel vectors"` (structurally zero columns and symmetry generators span the rest), `"regions"`
    (rows of one linear region are affinely dependent), `"primes"` (so many primes agree that Hadamard's bound forces
    it), each a proof, or `"probability"`: the prime was drawn at random and a larger rank escapes it with at most
    `failure_probability`.

    `kinks` lists (sample, layer, neuron) whose pre-activation is exactly zero; there f_θ is not differentiable, and J
    is taken with the slope from the left. `escalated` samples needed ball arithmetic for their signs.
    """

    rank: int = eqx.field(static=True)
    shape: tuple[int, int] = eqx.field(static=True)
    prime: int = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    failure_probability: float = eqx.field(static=True)
    kinks: tuple[tuple[int, int, int], ...] = eqx.field(static=True)
    escalated: int = eqx.field(static=True)
    sketched: bool = eqx.field(static=True)
    fingerprint: str = eqx.field(static=True)

    @property
    def proved(self) -> bool:
        """Whether the upper bound is a proof and not a probability."""
        return self.failure_probability == 0.0

    def verify(self, net: MLP, params: Params, x: Any) -> bool:
        """Recompute by another prime and another route: signs by ball arithmetic alone, J by forward products.

        False when network, parameters or data are not those of the certificate, or any number differs.
        """
        problem = _Problem.of(net, params, x, balls_only=True)
        if problem.fingerprint != self.fingerprint or problem.signs.kinks != self.kinks:
            return False
        p = residues.draw_prime(net)
        while p == self.prime:
            p = residues.draw_prime(net)
        directions = modular.random_residues((min(self.rank + 1, net.n_params), net.n_params), p)
        reduced = residues.reduce_net(net, problem.params, p)
        products = residues.forward_products(reduced, modular.from_floats(problem.x, p), problem.signs, directions)
        return modular_rank(products, p) == self.rank and self._upper_bound_holds(problem, reduced)

    def _upper_bound_holds(self, problem: "_Problem", reduced: residues.ModularNet) -> bool:
        if self.reason == "probability":
            return self.failure_probability >= problem.failure_probability(self.sketched)
        if not self.proved:
            return False
        if self.reason == "full rank":
            return self.rank == min(self.shape)
        if self.reason == "regions":
            applies = structure.is_piecewise_linear(problem.net)
            return applies and structure.exact_region_bound(problem.net, problem.signs) == self.rank
        if self.reason == "kernel vectors":
            kernel = problem.kernel_vectors(reduced)
            x = modular.from_floats(problem.x, reduced.p)
            annihilated = not residues.forward_products(reduced, x, problem.signs, kernel).any()
            return annihilated and modular_rank(kernel, reduced.p) == problem.net.n_params - self.rank
        return self.reason == "primes"

    def __str__(self) -> str:
        upper = _IN_WORDS.get(self.reason, f"failure probability ≤ {self.failure_probability:.1g}")
        kinks = f", {len(self.kinks)} pre-activations exactly zero" if self.kinks else ""
        return f"exact, {upper}{kinks}{', sketched' if self.sketched else ''}"


@dataclass(frozen=True)
class _Problem:
    """Network, parameters and data in float64, with their proved signs."""

    net: MLP
    params: Params
    x: np.ndarray
    signs: Signs

    @staticmethod
    def of(net: MLP, params: Params, x: Any, *, balls_only: bool = False) -> "_Problem":
        params = tuple(type(p)(*(None if a is None else np.asarray(a, np.float64) for a in p)) for p in params)
        x = np.asarray(x, np.float64)
        return _Problem(net, params, x, exact_signs(net, params, x, balls_only=balls_only))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.x) * self.net.widths[-1], self.net.n_params

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(repr(self.net).encode())
        for a in (*(a for layer in self.params for a in layer if a is not None), self.x):
            digest.update(np.ascontiguousarray(a).tobytes())
        return digest.hexdigest()

    def minor_bits(self) -> float:
        height = jacobian_height(self.net, self.params, self.x)
        return minor_bits(height, min(self.shape), field_degree(self.net))

    def failure_probability(self, sketched: bool) -> float:
        """How likely a random prime (and sketch) hides a larger rank: prime divisors of a minor over eligible primes."""
        by_prime = self.minor_bits() / 60 / (_PRIMES_BETWEEN / (2 * field_degree(self.net)))
        by_sketch = 2 * min(self.shape) / 2.0**60 if sketched else 0.0
        return min(1.0, by_prime + by_sketch)

    def kernel_vectors(self, reduced: residues.ModularNet) -> np.ndarray:
        """Structurally zero columns as unit vectors, and symmetry generators."""
        free = np.flatnonzero(structure.zero_columns(self.net, self.params, self.x, self.signs))
        units = np.zeros((len(free), self.net.n_params), np.int64)
        units[np.arange(len(free)), free] = 1
        return np.concatenate([units, structure.generators(reduced, self.params, self.signs)])


def certified_rank(net: MLP, params: Params, x: Any, *, prove: bool, budget: int) -> JacobianCertificate:
    """The rank of J at float parameters and float data, exactly."""
    problem = _Problem.of(net, params, x)
    p = residues.draw_prime(net)
    reduced = residues.reduce_net(net, problem.params, p)
    sketched = not prove and math.prod(problem.shape) > min(_DENSE_ENTRIES, budget / _BYTES_PER_ENTRY)
    found = _sketched_echelon(problem, reduced, budget) if sketched else echelon(_matrix(problem, reduced), p)
    reason, probability = _upper_bound(problem, reduced, found.rank, sketched)
    if reason == "probability" and prove:
        found, reason, probability = _over_enough_primes(problem, found), "primes", 0.0
    return JacobianCertificate(
        rank=found.rank,
        shape=problem.shape,
        prime=p,
        rows=found.rows,
        columns=found.columns,
        reason=reason,
        failure_probability=probability,
        kinks=problem.signs.kinks,
        escalated=problem.signs.escalated,
        sketched=sketched,
        fingerprint=problem.fingerprint,
    )


def _matrix(problem: _Problem, reduced: residues.ModularNet) -> np.ndarray:
    factors = residues.modular_factors(reduced, modular.from_floats(problem.x, reduced.p), problem.signs)
    return residues.modular_jacobian(factors, bias=problem.net.bias, p=reduced.p)


def _sketched_echelon(problem: _Problem, reduced: residues.ModularNet, budget: int) -> Echelon:
    """Rank and pivot rows of J·R, rows mixed down to D as well when there are more of them."""
    (height, width), p = problem.shape, reduced.p
    m = min(height, width)
    sketch = residues.draw_sketch(problem.net, m, p)
    mixed, parts = np.zeros((m, m), np.int64), []
    for part in residues.sample_blocks(problem.net, len(problem.x), m, budget):
        signs = Signs(tuple(layer[part] for layer in problem.signs.layers), (), 0)
        factors = residues.modular_factors(reduced, modular.from_floats(problem.x[part], p), signs)
        rows = residues.sketched_jacobian(factors, sketch, p)
        if height > width:
            mixed = modular.add(mixed, modular.matmul(modular.random_residues((m, len(rows)), p), rows, p), p)
        else:
            parts.append(rows)
    found = echelon(np.concatenate(parts) if parts else mixed, p)
    return Echelon(found.rank, found.rows if parts else (), ())


def _upper_bound(problem: _Problem, reduced: residues.ModularNet, rank: int, sketched: bool) -> tuple[str, float]:
    """Why the rank is no larger, and with which probability that is wrong."""
    net = problem.net
    if rank == min(problem.shape):
        return "full rank", 0.0
    if structure.is_piecewise_linear(net) and structure.exact_region_bound(net, problem.signs) == rank:
        return "regions", 0.0
    if _kernel_meets(problem, reduced, rank):
        return "kernel vectors", 0.0
    return "probability", problem.failure_probability(sketched)


def _kernel_meets(problem: _Problem, reduced: residues.ModularNet, rank: int) -> bool:
    net, nullity = problem.net, problem.net.n_params - rank
    free = structure.zero_columns(net, problem.params, problem.x, problem.signs)
    count = structure.generator_count(net, problem.signs)
    if free.sum() + count < nullity or count * net.n_params > _GENERATOR_ENTRIES:
        return False
    vectors = structure.generators(reduced, problem.params, problem.signs)[:, ~free]
    return int(free.sum()) + modular_rank(vectors, reduced.p) == nullity


def _over_enough_primes(problem: _Problem, found: Echelon) -> Echelon:
    """The largest rank over so many primes that no nonzero minor could vanish modulo all of them."""
    needed = math.floor(problem.minor_bits() / 60) + 1
    primes: set[int] = set()
    while len(primes) < needed:
        p = residues.draw_prime(problem.net)
        if p in primes:
            continue
        primes.add(p)
        matrix = _matrix(problem, residues.reduce_net(problem.net, problem.params, p))
        if modular_rank(matrix, p) > found.rank:
            found = echelon(matrix, p)
    return found
