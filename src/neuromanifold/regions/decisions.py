"""On which side of every bend a network is: decided by proof, never by rounding, wherever nothing
smooth comes before the bend.

A walk in float64 with a running error bound decides nearly everything. Samples with an open
decision are walked again in balls of growing precision, until each ball excludes zero or lies below
the separation bound of its height, which proves a tie; and where that would take too many bits,
over the rationals. Bends behind a function without exact values are decided in float64, as JAX
computes it, and not said to be proved.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.balls import Balls
from neuromanifold.graph.bounded import Bounded, is_open
from neuromanifold.graph.footprint import FIRST_BITS, footprint
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.numbers import Rationals
from neuromanifold.graph.residues import ResidueArithmetic
from neuromanifold.graph.walk import walk
from neuromanifold.numerics import modular
from neuromanifold.runtime.memory import blocks, memory_budget

_BITS = (FIRST_BITS, 512, 2048, 8192)
_AT_ONCE, _BALLS_AT_ONCE = 256, 16


@dataclass(frozen=True, eq=False)
class Decisions:
    """The gates of a graph at every sample.

    `gates[k]` belongs to `graph.units[k]`: truth values, or places of the largest candidate; they
    are proved where `graph.units[k].exact`, else those of float64. `ties[k]` marks decisions about
    a quantity that is exactly zero, `kinks[k]` those of them at which f is not differentiable in θ:
    the two sides are different functions of θ. The other ties are harmless, whichever way they are
    decided. `escalated` samples needed balls.
    """

    graph: Graph
    gates: tuple[np.ndarray, ...]
    ties: tuple[np.ndarray, ...]
    kinks: tuple[np.ndarray, ...]
    escalated: int

    @property
    def samples(self) -> int:
        """How many samples were decided."""
        return len(self.gates[0]) if self.gates else 0

    @property
    def places(self) -> tuple[tuple[int, int, int], ...]:
        """(sample, units, index) of every kink, the index into the flattened units."""
        found = [
            (s, k, i)
            for k, mask in enumerate(self.kinks)
            for s, i in np.argwhere(mask.reshape(len(mask), -1)).tolist()
        ]
        return tuple(sorted(found))

    def rows(self) -> np.ndarray:
        """Return the gates of each sample as one row of bytes: equal rows, one region."""
        parts = [np.ascontiguousarray(g).reshape(len(g), -1).view(np.uint8) for g in self.gates]
        return np.concatenate(parts, axis=1) if parts else np.empty((0, 0), np.uint8)

    def take(self, samples: Any) -> "Decisions":
        """Return the decisions about some of the `samples`."""
        gates, ties, kinks = (
            tuple(a[samples] for a in part) for part in (self.gates, self.ties, self.kinks)
        )
        return Decisions(self.graph, gates, ties, kinks, self.escalated)


def decide(
    graph: Graph, params: Any, x: Any, *, balls_only: bool = False, memory: int | str | None = None
) -> Decisions:
    """Return the side of every bend at float parameters and float data, proved where nothing smooth
    comes before it. `balls_only` skips float64: the independent route.

    As many samples are walked at once as the `memory` budget allows, at least one.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    data = [np.asarray(leaf) for leaf in jax.tree.leaves(x)]
    n = len(data[0])
    if not graph.units:
        return Decisions(graph, (), (), (), 0)
    gates, records = _empty_records(graph, n)
    ties = [np.zeros(gate.shape, bool) for gate in gates]
    exact = [k for k, units in enumerate(graph.units) if units.exact]
    size, budget = footprint(graph), memory_budget(memory)
    most, rows = min(_AT_ONCE, size.samples(budget)), np.arange(0)
    if exact:
        given = graph, leaves, data
        kept = [gates[k] for k in exact], [records[k] for k in exact]
        undecided = np.ones(n, bool) if balls_only else _by_bounds(*given, *kept, most)
        rows = np.flatnonzero(undecided)
        _by_balls(*given, rows, *kept, lambda bits: size.samples(budget, bits=bits))
        for k in exact:
            ties[k] = _find_ties(graph.units[k], records[k])
    if len(exact) < len(gates):
        _by_floats(graph, leaves, data, gates, most)
    found = Decisions(graph, tuple(gates), tuple(ties), tuple(ties), len(rows))
    return found if not any(t.any() for t in ties) else _find_kinks(found, records, data, most)


def _by_floats(
    graph: Graph,
    leaves: Sequence[np.ndarray],
    data: Sequence[np.ndarray],
    gates: list[np.ndarray],
    most: int,
) -> None:
    """Fill in what cannot be proved, as float64 has it."""
    wide = [np.asarray(a, np.float64) if a.dtype.kind == "f" else a for a in leaves]
    with jax.enable_x64(True):
        for part, block in _blocks([*data, *gates], most):
            x = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in block[: len(data)]]
            known = [
                gate if units.exact else None
                for units, gate in zip(graph.units, block[len(data) :], strict=True)
            ]
            for gate, found in zip(gates, float_gates(graph, wide, x, known), strict=True):
                gate[part] = _trim(np.asarray(found), part)


@jax.jit(static_argnums=0)
def float_gates(graph: Graph, params: Any, x: Any, known: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the gates at every sample of `x` as floating point decides them; those in `known` that
    are not None stay as they are.
    """
    return jax.vmap(graph.decide, (None, 0, 0))(params, x, known)


def _empty_records(graph: Graph, n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    gates = [
        np.zeros((n, *u.shape), bool if u.candidates is None else np.int64) for u in graph.units
    ]
    records = [
        np.zeros((n, *u.shape), np.int8)
        if u.candidates is None
        else np.zeros((n, *u.shape, u.candidates), bool)
        for u in graph.units
    ]
    return gates, records


def _walk(
    graph: Graph, A: Arithmetic, leaves: Sequence[np.ndarray], data: Sequence[np.ndarray]
) -> tuple[list[Any], list[Any]]:
    record: list[Any] = []
    inputs = [
        *(A.lift(a) for a in leaves),
        *(A.lift(a) if a.dtype.kind == "f" else a for a in data),
    ]
    found = walk(programs.exact_decisions(graph, len(data[0])), A, inputs, record)
    return found, record


def _by_bounds(
    graph: Graph,
    leaves: Any,
    data: Any,
    gates: list[np.ndarray],
    records: list[np.ndarray],
    most: int,
) -> np.ndarray:
    """Fill in what float64 decides; which samples have a decision that it leaves open."""
    undecided = np.zeros(len(data[0]), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for part, block in _blocks(data, most):
            found, record = _walk(graph, Bounded(), leaves, block)
            for k, (gate, decision) in enumerate(zip(found, record, strict=True)):
                gates[k][part], records[k][part] = (
                    _trim(gate, part),
                    _trim(_signs_of(decision), part),
                )
                undecided[part] |= (
                    _trim(is_open(decision), part).reshape(part.stop - part.start, -1).any(axis=1)
                )
    return undecided


def _blocks(data: Sequence[np.ndarray], most: int) -> Iterator[tuple[slice, list[np.ndarray]]]:
    """Yield blocks of equal length, the last one filled up with repetitions, so that one program
    serves all.
    """
    n = len(data[0])
    size = -(-n // -(-n // most))
    for start in range(0, n, size):
        at = np.minimum(np.arange(start, start + size), n - 1)
        yield slice(start, min(start + size, n)), [a[at] for a in data]


def _trim(a: np.ndarray, part: slice) -> np.ndarray:
    return a[: part.stop - part.start]


def _signs_of(decision: Any) -> np.ndarray:
    return decision if isinstance(decision, np.ndarray) else decision[1]


def _by_balls(
    graph: Graph,
    leaves: Any,
    data: Any,
    rows: np.ndarray,
    gates: list[np.ndarray],
    records: list[np.ndarray],
    fitting: Callable[[int], int],
) -> None:
    """Fill in these samples, those that stay open with more bits; in the end over the rationals."""
    import flint

    for bits in (*_BITS, None):
        still = np.zeros(len(rows), bool)
        for part in blocks(len(rows), min(_BALLS_AT_ONCE, fitting(bits or _BITS[-1]))):
            at = rows[part]
            with flint.ctx.workprec(bits or _BITS[-1]):
                found, record = _walk(
                    graph, Balls() if bits else Rationals(), leaves, [a[at] for a in data]
                )
            for k, (gate, decision) in enumerate(zip(found, record, strict=True)):
                gates[k][at], records[k][at] = gate, _signs_of(decision)
                still[part] |= is_open(decision).reshape(len(at), -1).any(axis=1)
        rows = rows[still]


def _find_ties(units: Any, record: np.ndarray) -> np.ndarray:
    """Say which decisions are ties: a sign of zero, or several candidates that share the largest
    value.
    """
    if units.candidates is None:
        return record == 0
    real = record if units.inside is None else record & units.inside
    return real.sum(axis=-1) > 1


def _find_kinks(
    found: Decisions, records: Sequence[np.ndarray], data: Sequence[np.ndarray], most: int
) -> Decisions:
    """Kinks are ties whose two sides differ as functions of θ: not zero at random parameters
    modulo a random prime.
    """
    graph, rows = (
        found.graph,
        np.flatnonzero(np.any([t.reshape(len(t), -1).any(axis=1) for t in found.ties], axis=0)),
    )
    A = ResidueArithmetic(modular.random_prime())
    leaves = [A.random(leaf.shape) for leaf in jax.tree.leaves(graph.params)]
    kinks = [np.zeros_like(t) for t in found.ties]
    for part in blocks(len(rows), most):
        at = rows[part]
        inputs = [
            *leaves,
            *(A.lift(a[at]) if a.dtype.kind == "f" else a[at] for a in data),
            *(g[at] for g in found.gates),
        ]
        moved = walk(programs.exact_quantities(graph, len(at)), A, inputs)
        exact = [k for k, units in enumerate(graph.units) if units.exact]
        for k, quantity in zip(exact, moved, strict=True):
            differs = quantity.values != 0
            if graph.units[k].candidates is not None:
                differs = (differs & records[k][at]).any(axis=-1)
            kinks[k][at] = found.ties[k][at] & differs
    return Decisions(graph, found.gates, found.ties, tuple(kinks), found.escalated)
