"""The chain r_S ≤ r_R ≤ r_∞ ≤ D: what J spans on the sample, on generic inputs of the sampled
regions, and on all regions reached.

On a region (its gates held) every row of J is a polynomial in the input. Its span over the region
is reached by random inputs, which need not lie in the region: rounds of one random input for each
region are added until a whole round adds nothing, and then no input of these regions can. Rows of
the sample lie in that span, so the kernels are nested.
"""

import abc
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.graph import programs
from neuromanifold.graph.arithmetic import Floats
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.residues import Residue, ResidueArithmetic
from neuromanifold.graph.walk import walk
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.spaces import FloatSpaces, ModularSpaces, Spaces
from neuromanifold.regions.decisions import Decisions, decide, float_gates
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.reach import (
    Data,
    KnownRegions,
    between,
    gate_rows,
    known_regions,
    wide_inputs,
)

_BATCH = 256
_PATIENCE = (
    4  # batches of new inputs without a new direction, and rounds in which not all rows are finite
)
MOST_BATCHES = 16
_SPARE = 4
_FEWEST = (
    64  # new regions looked at in a batch, beyond twice as many as could show all that is missing
)

Gates = tuple[np.ndarray, ...]


class Rows(abc.ABC):
    """The rows of J at any inputs, the gates given."""

    graph: Graph
    spaces: Spaces
    data: Data
    gates: Gates

    @property
    def columns(self) -> int:
        """D."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.graph.params))

    @abc.abstractmethod
    def at(self, data: Data, gates: Gates) -> np.ndarray:
        """Return J at `data`, (n·o, D), the bends decided as `gates` say."""

    @cached_property
    def of_sample(self) -> np.ndarray:
        """The Jacobian on the sample, all of whose rows must be finite."""
        found = self.at(self.data, self.gates)
        if bad := len(found) - len(finite(found)):
            raise ArithmeticError(
                f"`f` has a derivative that is not finite in {bad} of {len(found)} rows of J on "
                "`x`; remove these samples, "
                "or keep roots and divisions away from zero (an ε in the norm)."
            )
        return found

    def adding(self, basis: np.ndarray, data: Data, gates: Gates) -> np.ndarray:
        """Say which inputs may have rows outside the span of `basis`."""
        return np.ones(len(data[0]), bool)

    @abc.abstractmethod
    def decided(self, data: Data) -> tuple[Data, Gates]:
        """Return the inputs of `data` that lie on no kink, and the gates there."""

    @abc.abstractmethod
    def quantities(self, data: Data, gates: Gates) -> Gates:
        """Return what the decisions are about, in float64."""

    @abc.abstractmethod
    def segment_rows(
        self, held: Gates, switching: Gates, count: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Return `Graph.segment_gradient` at `count` random inputs and cotangents, units held on
        (`held`) or off, and those that switch taken as inputs.
        """

    def _draw_rows(self, count: int, rng: np.random.Generator) -> list[int]:
        """Draw `count` samples, for inputs that are whole numbers."""
        return rng.integers(0, len(self.data[0]), count).tolist()

    def _cotangents(self, switching: Gates, count: int, drawn: Any) -> Any:
        """Draw random numbers for the outputs and for what the switching units decide on; the
        others get zeros.
        """
        where = np.concatenate([np.ones(self.graph.outputs, bool), *(c.ravel() for c in switching)])
        return np.where(where, drawn((count, len(where))), 0)


def finite(rows: np.ndarray) -> np.ndarray:
    """Return the rows that are finite."""
    return rows[np.isfinite(rows).all(axis=1)]


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Return the rows divided by their lengths; zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


@dataclass(frozen=True, eq=False)
class ExactRows(Rows):
    """J modulo a prime; gates are proved."""

    problem: Problem
    spaces: ModularSpaces

    @property
    def graph(self) -> Graph:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the network as a program."""
        return self.problem.graph

    @property
    def data(self) -> Data:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the sample."""
        return self.problem.data

    @property
    def gates(self) -> Gates:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the gates of the sample."""
        return self.problem.decisions.gates

    def at(self, data: Data, gates: Gates) -> np.ndarray:
        return self.moved(data, gates).residues(self.spaces.p)

    def adding(self, basis: np.ndarray, data: Data, gates: Gates) -> np.ndarray:
        """Find the inputs whose rows are not orthogonal to a random vector of the kernel: one
        product, no Jacobian.
        """
        found = self.moved(data, gates).products(self.spaces.p, self.spaces.orthogonal(basis)[None])
        return np.asarray(found.reshape(len(data[0]), -1).any(axis=1))

    def moved(self, data: Data, gates: Gates) -> Problem:
        """Return the same problem at other inputs."""
        none = tuple(np.zeros(g.shape, bool) for g in gates)
        return replace(
            self.problem, data=data, decisions=Decisions(self.graph, gates, none, none, 0)
        )

    def decided(self, data: Data) -> tuple[Data, Gates]:
        found = decide(self.graph, self.problem.leaves, data, memory=self.problem.budget)
        inside = np.ones(len(data[0]), bool)
        for kinks in found.kinks:
            inside &= ~kinks.reshape(len(kinks), -1).any(axis=1)
        return tuple(a[inside] for a in data), tuple(g[inside] for g in found.gates)

    def decided_all(self, data: Data) -> Gates:
        """Return the gates at `data`, whether or not an input lies on a kink."""
        return decide(self.graph, self.problem.leaves, data, memory=self.problem.budget).gates

    def quantities(self, data: Data, gates: Gates) -> Gates:
        program = programs.quantities(self.graph, len(data[0]))
        return tuple(walk(program, Floats(), [*self.problem.leaves, *data, *gates]))

    def segment_rows(
        self, held: Gates, switching: Gates, count: int, rng: np.random.Generator
    ) -> np.ndarray:
        A, some = ResidueArithmetic(self.spaces.p), self._draw_rows(count, rng)
        data = [
            A.random((count, *a.shape[1:])) if a.dtype.kind == "f" else a[some] for a in self.data
        ]
        gates = [np.broadcast_to(on, (count, *on.shape)) for on in held]
        added = [Residue(np.where(c, self.spaces.random((count, *c.shape)), 0)) for c in switching]
        cotangent = Residue(self._cotangents(switching, count, self.spaces.random))
        leaves = [A.lift(leaf) for leaf in self.problem.leaves]
        [found] = walk(
            programs.segment_gradients(self.graph, count),
            A,
            [*leaves, *data, *gates, *added, cotangent],
        )
        return found.values


@dataclass(frozen=True, eq=False)
class FloatRows(Rows):
    """J in float64, each row divided by its length; gates as float64 has them."""

    graph: Graph
    params: Any
    data: Data
    spaces: FloatSpaces

    @cached_property
    def gates(self) -> Gates:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the gates of the sample."""
        return self.decided(self.data)[1]

    def at(self, data: Data, gates: Gates) -> np.ndarray:
        with arithmetic():
            found = _jacobians(self.graph, self.params, self._samples(data), gates)
            rows = np.asarray(found).reshape(len(data[0]) * self.graph.outputs, -1)
        return unit_rows(rows)

    def decided(self, data: Data) -> tuple[Data, Gates]:
        with arithmetic():
            gates = float_gates(self.graph, self.params, self._samples(data))
            return data, tuple(np.asarray(gate) for gate in gates)

    def quantities(self, data: Data, gates: Gates) -> Gates:
        with arithmetic():
            found = _quantities(self.graph, self.params, self._samples(data), gates)
            return tuple(np.asarray(q) for q in found)

    def segment_rows(
        self, held: Gates, switching: Gates, count: int, rng: np.random.Generator
    ) -> np.ndarray:
        some, n = self._draw_rows(count, rng), rng.standard_normal
        data = tuple(
            wide_inputs((a,), count, rng, bent=False)[0] if a.dtype.kind == "f" else a[some]
            for a in self.data
        )
        gates = tuple(np.broadcast_to(on, (count, *on.shape)) for on in held)
        added = tuple(np.where(c, n((count, *c.shape)), 0.0) for c in switching)
        with arithmetic():
            cotangents = self._cotangents(switching, count, n)
            found = self.graph, self.params, self._samples(data), gates, added, cotangents
            rows = np.asarray(_segment_gradients(*found))
        return unit_rows(rows)

    def _samples(self, data: Data) -> Any:
        return jax.tree.unflatten(jax.tree.structure(self.graph.sample), data)


@jax.jit(static_argnums=0)
def _segment_gradients(graph: Graph, params: Any, *rest: Any) -> Any:
    return jax.vmap(graph.segment_gradient, (None, *[0] * len(rest)))(params, *rest)


@jax.jit(static_argnums=0)
def _quantities(graph: Graph, params: Any, samples: Any, gates: Gates) -> Any:
    return jax.vmap(graph.quantities, (None, 0, 0))(params, samples, gates)


@jax.jit(static_argnums=0)
def _jacobians(graph: Graph, params: Any, samples: Any, gates: Gates) -> Any:
    flat, unravel = ravel_pytree(params)

    def one(sample: Any, gates: Any) -> Any:
        return jax.jacrev(lambda theta: graph.gated(unravel(theta), sample, gates))(flat)

    return jax.vmap(one)(samples, gates)


@dataclass(frozen=True, eq=False)
class RowSpaces:
    """The rank of J on the sample, bases of its row space on the sample's regions (`sampled`) and
    on all that were reached.

    `met` are the gates of the regions reached, those of the sample first. `dropped` counts the rows
    at random and wide inputs that were not finite; `ended`: batches of new inputs added nothing
    more.
    """

    rows: Rows
    sample: int
    regions: np.ndarray
    everywhere: np.ndarray
    sampled: KnownRegions
    reached: KnownRegions
    met: Gates
    gap: float
    dropped: int
    ended: bool

    @property
    def spaces(self) -> Spaces:
        """What the ranks are computed with."""
        return self.rows.spaces

    @property
    def ranks(self) -> tuple[int, int, int, int]:
        """The ranks r_S, r_R, r_∞ and D."""
        return self.sample, len(self.regions), len(self.everywhere), self.everywhere.shape[1]


def chain_of(
    rows: Rows, rng: np.random.Generator, *, rank: int | None = None, batches: int = MOST_BATCHES
) -> RowSpaces:
    """Sample, then its regions, then wide and new inputs until batches of them add nothing.

    Rows of the sample lie in the span of its regions: where its `rank` is known nothing else is
    asked of it.
    """
    spaces, gaps = rows.spaces, []
    if rank is None:
        matrix = _tall(spaces, rows.of_sample)
        basis, gaps = spaces.basis(matrix), [spaces.gap(matrix)]
        rank = len(basis)
    else:
        basis = np.zeros((0, rows.columns), np.int64)
    sampled, first = known_regions(rows.data, rows.gates)
    met = tuple(g[first] for g in rows.gates)
    regions, gap, dropped = _grow(rows, basis, sampled.data, met, rng)
    everywhere, reached, idle = regions, sampled, 0
    gaps.append(gap)
    for batch in range(batches):
        if len(everywhere) == everywhere.shape[1] or idle == _PATIENCE:
            break
        before = len(everywhere)
        most = _FEWEST + -(-2 * (everywhere.shape[1] - before) // rows.graph.outputs)
        reached, met, new = further_regions(rows, reached, met, batch, most, rng)
        everywhere, gap, lost = (
            _grow(rows, everywhere, *new, rng) if len(new[0][0]) else (everywhere, np.inf, 0)
        )
        gaps.append(gap)
        dropped += lost
        idle = 0 if len(everywhere) > before else idle + 1
    ended = idle == _PATIENCE or len(everywhere) == everywhere.shape[1]
    return RowSpaces(
        rows, rank, regions, everywhere, sampled, reached, met, min(gaps), dropped, ended
    )


def further_regions(
    rows: Rows,
    reached: KnownRegions,
    met: Gates,
    batch: int,
    most: int,
    rng: np.random.Generator,
) -> tuple[KnownRegions, Gates, tuple[Data, Gates]]:
    """Return the regions known after a batch of new inputs, wide ones and ones between known ones in
    turn, `most` of the new ones; their gates; and the inputs of those that are new, with theirs.
    """
    data = (
        _inputs_between(rows, reached, met, rng)
        if batch % 2
        else wide_inputs(rows.data, _BATCH, rng, bent=bool(met))
    )
    if not len(data[0]):  # no two regions are reached, so none lie between them
        return reached, met, (data, tuple(g[:0] for g in met))
    data, gates = rows.decided(data)
    reached, fresh = reached.with_new(data, gate_rows(gates, data), most)
    new = tuple(a[fresh] for a in data), tuple(g[fresh] for g in gates)
    return reached, tuple(np.concatenate(pair) for pair in zip(met, new[1], strict=True)), new


def _inputs_between(
    rows: Rows, reached: KnownRegions, met: Gates, rng: np.random.Generator
) -> Data:
    """Return new inputs on segments between those `reached`, by the signs that change there; maxima
    over several have no sign.
    """
    chosen = np.sort(rng.permutation(reached.count)[:_BATCH])
    known = KnownRegions(tuple(a[chosen] for a in reached.data), reached.rows[chosen])
    found = rows.quantities(known.data, tuple(g[chosen] for g in met))
    signs = [
        q.reshape(len(q), -1)
        for q, units in zip(found, rows.graph.units, strict=True)
        if units.candidates is None
    ]
    return between(known, np.concatenate([np.zeros((known.count, 0)), *signs], axis=1), _BATCH, rng)


def _grow(
    rows: Rows, basis: np.ndarray, data: Data, gates: Gates, rng: np.random.Generator
) -> tuple[np.ndarray, float, int]:
    """Enlarge the span by random inputs with these gates, round after round, until a round adds
    nothing (a few, where rows are not finite); return also the gap of the last, and how many rows
    were left out because they are not finite.

    Modulo the span, what a region shows is a polynomial in the input: where a random one adds
    nothing, none will, and the region is done.
    """
    spaces, gap, dropped, idle, regions = rows.spaces, np.inf, 0, 0, np.arange(len(data[0]))
    while len(basis) < basis.shape[1]:
        regions = regions[
            rows.adding(basis, *_random_inputs(rows, data, gates, _repeat(regions), rng))[
                : len(regions)
            ]
        ]
        if not len(regions):
            break
        whole = rows.at(*_random_inputs(rows, data, gates, _repeat(regions), rng))
        new = finite(whole)
        dropped += len(whole) - len(new)
        found, gap = spaces.extended(basis, new), spaces.gap(np.concatenate([basis, new]))
        idle = idle + 1 if found is basis else 0
        if idle and (len(new) == len(whole) or idle == _PATIENCE):
            break
        basis = found
    return basis, gap, dropped


def _random_inputs(
    rows: Rows, data: Data, gates: Gates, regions: np.ndarray, rng: np.random.Generator
) -> tuple[Data, Gates]:
    """Draw random inputs, one for each of `regions`, and return them with the regions' gates."""
    return _generic(rows, tuple(a[regions] for a in data), rng), tuple(g[regions] for g in gates)


def _repeat(regions: np.ndarray) -> np.ndarray:
    """Repeat `regions` up to a power of two, so that few programs are traced."""
    size = 1 << (max(len(regions), 2 * _FEWEST) - 1).bit_length()
    return regions[np.arange(size) % len(regions)]


def _generic(rows: Rows, data: Data, rng: np.random.Generator) -> Data:
    """Draw random inputs in place of `data`, of the sample's spread; whole numbers stay."""
    return tuple(
        wide_inputs((full,), len(a), rng, bent=False)[0] if a.dtype.kind == "f" else a
        for full, a in zip(rows.data, data, strict=True)
    )


def _tall(spaces: Spaces, A: np.ndarray) -> np.ndarray:
    """Mix the rows of `A` to fewer of the same span where singular values are asked for; exact
    elimination takes them in turn.
    """
    return A if spaces.exact else spaces.mixed(A, A.shape[1] + _SPARE)
