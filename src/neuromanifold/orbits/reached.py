"""Default inputs of a closure: where f bends, enough in every region that a search finds."""

import numpy as np

from neuromanifold.graph.graph import trace
from neuromanifold.models.arguments import Model
from neuromanifold.numerics.spaces import exact_spaces
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.reach import gate_rows, known_regions, wide_inputs
from neuromanifold.symmetry.account.chain import ExactRows, inputs_between

_BATCH = 256
_PATIENCE = 4  # batches without a new region
_MOST_BATCHES = 40
_NEARER = 6  # times that neighbours of an input are drawn closer before its region is taken to be too thin for them


def regions_met(f: Model, params: object, inputs: np.ndarray) -> int | None:
    """How many regions of f the inputs meet; `None` where f does not bend or cannot be decided
    exactly.
    """
    graph = trace(f, params, inputs)
    if not (graph.units and graph.exact):
        return None
    problem = Problem.of(f, params, inputs)
    return known_regions(problem.data, problem.decisions.gates)[0].count


def reaching_inputs(
    f: Model, params: object, inputs: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The inputs, and n_0 + 1 more in every further region that wide draws and segments between
    known inputs find.

    Kinks may lie anywhere: inputs of one size miss the regions beyond, and the closure is then that
    of a smaller family.
    """
    graph = trace(f, params, inputs)
    if not (graph.units and graph.exact):
        return inputs
    problem = Problem.of(f, params, inputs)
    rows = ExactRows(problem, exact_spaces())
    known, first = known_regions(problem.data, problem.decisions.gates)
    met, idle, most = tuple(g[first] for g in problem.decisions.gates), 0, len(inputs)
    sampled = known.count
    for batch in range(_MOST_BATCHES):
        if idle == _PATIENCE or known.count - sampled >= most:
            break
        drawn = (
            inputs_between(rows, known, met, rng)
            if batch % 2
            else wide_inputs(problem.data, _BATCH, rng)
        )
        data, gates = rows.decided(drawn)
        known, fresh = known.with_new(data, gate_rows(gates, data), most)
        met = tuple(np.concatenate([g, new[fresh]]) for g, new in zip(met, gates, strict=True))
        idle = 0 if len(fresh) else idle + 1
    new = known.data[0][sampled:]
    return np.concatenate([inputs, new, _neighbours(rows, new, known.rows[sampled:], rng)])


def _neighbours(
    rows: ExactRows, new: np.ndarray, names: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """n_0 further inputs in the region of each, as far away as it allows."""
    wanted = np.repeat(np.arange(len(new)), new[0].size if len(new) else 0)
    found, size = [new[:0]], 0.25
    for _ in range(_NEARER):
        if not len(wanted):
            break
        base = new[wanted]
        lengths = np.maximum(1.0, np.abs(base).max(axis=tuple(range(1, base.ndim)), keepdims=True))
        moved = base + size * lengths * rng.standard_normal(base.shape)
        gates = rows.decided_all((moved,))
        same = (gate_rows(gates, (moved,)) == names[wanted]).all(axis=1)
        found.append(moved[same])
        wanted, size = wanted[~same], size / 8
    return np.concatenate(found)
