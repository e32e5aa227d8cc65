"""The conditions of `discover` modulo a prime, where the network is a rational function on each of its regions."""

from typing import Any

import jax
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.residues import Residues
from neuromanifold.graph.walk import walk
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import is_floating
from neuromanifold.symmetry.ansatz import Ansatz, Term
from neuromanifold.symmetry.problem import MARGIN, Problem

_BITS = 26
_MOST_ADDED = 2**10
"""So many products of residues below 2²⁶ can be added in 64 bits."""
_SAMPLES = 4
_ROUNDS = 6
_MOST_UNKNOWNS = 700


def rank_modulo(
    problem: Problem, ansatz: Ansatz, numbers: np.ndarray, expected: int, rng: np.random.Generator
) -> int | None:
    """The rank of the conditions modulo a random prime of 26 bits; None where f is not rational, or the system is large.

    On a region where all bends are decided alike, f is a rational function of parameters and input, and so are the conditions: they
    hold on the region exactly when they hold as identities. The gates are taken at random floats, numbers are random residues. The rank
    is at most that of the conditions, so what is left is at least the space of fields. Rows are added, since units may be off, until
    the rank is the one `expected` or six times as many rows as unknowns were seen.
    """
    unknowns = int(numbers.max(initial=-1)) + 1
    if problem.batch or not 0 < unknowns <= _MOST_UNKNOWNS or problem.size > _MOST_ADDED:
        return None
    graph = trace(problem.f, problem.params, problem.one)
    if not graph.exact:
        return None
    p = modular.random_prime(bits=_BITS)
    rows, rank = np.empty((0, unknowns), np.int64), -1
    for more in range(1, _ROUNDS + 1):
        while len(rows) < more * (unknowns + MARGIN):
            rows = np.concatenate([rows, _conditions(problem, graph, ansatz, numbers, unknowns, p, rng)])
        rank = modular_rank(rows, p)
        if rank >= expected:
            break
    return rank


def _conditions(
    problem: Problem, graph: Graph, ansatz: Ansatz, numbers: np.ndarray, unknowns: int, p: int, rng: np.random.Generator
) -> np.ndarray:
    """Conditions at random residues, on the region of a random point and of a few random inputs."""
    theta, x = problem.draw(rng), jax.tree.map(lambda a: a[:, 0], problem.draw_input(rng, _SAMPLES))
    A = Residues(p)
    gates = jax.vmap(graph.decide, (None, 0))(jax.tree.unflatten(problem.structure, theta), x)
    leaves = [A.random(shape) for shape in problem.shapes]
    inputs = [A.random(np.shape(a)) if is_floating(a) else np.asarray(a) for a in jax.tree.leaves(x)]
    program = programs.jacobians(graph, _SAMPLES, tuple(range(len(leaves))))
    [J] = walk(program, A, [*leaves, *inputs, *(np.asarray(g) for g in jax.tree.leaves(gates))])
    values = [leaf.values for leaf in leaves]
    cuts = np.cumsum([leaf.size for leaf in values])[:-1]
    found = []
    for row in J.values.reshape(-1, J.values.shape[-1]):
        parts = [part.reshape(leaf.shape) for part, leaf in zip(np.split(row, cuts), values, strict=True)]
        full = np.concatenate([_pull(term, parts, values, p).reshape(-1) for term in ansatz.terms])
        reduced = np.zeros(unknowns, np.int64)
        np.add.at(reduced, numbers, full)
        found.append(reduced % p)
    return np.array(found)


def _pull(term: Term, cotangents: list[Any], leaves: list[Any], p: int) -> np.ndarray:
    if term.source < 0:
        return cotangents[term.target]
    coefficient, source, target = term.letters
    return np.einsum(f"{target},{source}->{coefficient}", cotangents[term.target], leaves[term.source]) % p
