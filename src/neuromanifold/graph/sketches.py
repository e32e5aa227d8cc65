"""J·R modulo a prime for a random R made of rank-one tensors: the rank of a wide Jacobian without
its columns.

For a product y[b, t, c] = Σ_k a[b, t, k] W[b, c, k] the column r of R is u_r ⊗ v_r for each b, and
(J·R)[o, r] = Σ_{b,t} (d[o, b, t]·u_br)(a[b, t]·v_br).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from neuromanifold.graph.bends import Gated
from neuromanifold.graph.factors import factors
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Program
from neuromanifold.graph.programs import gate_structs, stacked
from neuromanifold.graph.residues import Residue, Residues
from neuromanifold.graph.tracing import program_of
from neuromanifold.graph.uses import Entering, Use, entering, leaves
from neuromanifold.graph.walk import walk


@lru_cache(maxsize=128)
def entering_exactly(graph: Graph, wrt: tuple[int, ...]) -> Entering:
    """How the leaves `wrt` enter the exact program."""
    return entering(graph.program, leaves(graph.program, len(graph.parameters)), wrt)


@lru_cache(maxsize=64)
def factor_program(graph: Graph, n: int, wrt: tuple[int, ...]) -> Program:
    """(params, x, gates) ↦ inputs, cotangents and Jacobians of how the leaves `wrt` enter, at n
    samples.
    """
    how = entering_exactly(graph, wrt)
    uses, direct = [use for _, use in how.uses], [i for i, _ in how.direct]

    def one(params: Any, sample: Any, gates: Sequence[Any]) -> Any:
        return factors(graph, uses, direct, params, sample, Gated(gates))

    with jax.enable_x64(True):
        shapes = (graph.params, stacked(graph.sample, n), gate_structs(graph, n))
        return program_of(jax.vmap(one, (None, 0, 0)), *shapes)


class Sketch(NamedTuple):
    """Random tensors: for each use (u, v, u of the bias or None), for each leaf by itself a
    matrix.
    """

    uses: tuple[tuple[Residue, Residue, Residue | None], ...]
    direct: tuple[Residue, ...]
    columns: int


def draw_sketch(A: Residues, graph: Graph, wrt: tuple[int, ...], m: int) -> Sketch:
    """R with m columns."""
    how = entering_exactly(graph, wrt)
    sizes = [
        int(np.prod(graph.program.values[graph.program.inputs[i]].shape, dtype=int))
        for i, _ in how.direct
    ]
    return Sketch(
        tuple(_tensors(A, use, m) for _, use in how.uses),
        tuple(A.random((size, m)) for size in sizes),
        m,
    )


def _tensors(A: Residues, use: Use, m: int) -> tuple[Residue, Residue, Residue | None]:
    u, v = A.random((use.batch, use.outer, m)), A.random((use.batch, use.inner, m))
    return u, v, None if use.constant is None else A.random((use.batch, use.outer, m))


def sketched(
    A: Residues, graph: Graph, wrt: tuple[int, ...], sketch: Sketch, inputs: Sequence[Any], n: int
) -> np.ndarray:
    """(n·o, m) residues of J·R at n samples; `inputs` are those of `factor_program`."""
    *found, _ = walk(factor_program(graph, n, wrt), A, inputs)
    k = len(sketch.uses)
    total = Residue(np.zeros((n, graph.outputs, sketch.columns), np.int64))
    for a, d, tensors in zip(found[:k], found[k : 2 * k], sketch.uses, strict=True):
        total = A.add(total, _use_part(A, a, d, *tensors))
    for jacobian, matrix in zip(found[2 * k :], sketch.direct, strict=True):
        total = A.add(
            total, A.dot(jacobian, A.rearrange(lambda R: np.broadcast_to(R, (n, *R.shape)), matrix))
        )
    return total.values.reshape(-1, total.values.shape[-1])


def _use_part(
    A: Residues, a: Residue, d: Residue, u: Residue, v: Residue, w: Residue | None
) -> Residue:
    """Σ_{b,t} (d·u)(a·v + [bias's own]): a (n, b, t, k), d (n, o, b, t, c) → (n, o, m)."""
    n, o, batch, t, c = A.shape(d)
    cotangents = A.rearrange(lambda z: np.moveaxis(z, 2, 0).reshape(batch, n * o * t, c), d)
    signals = A.rearrange(lambda z: np.moveaxis(z, 1, 0).reshape(batch, n * t, -1), a)
    left = A.rearrange(lambda z: z.reshape(batch, n, o, t, -1), A.dot(cotangents, u))
    right = A.rearrange(lambda z: z.reshape(batch, n, 1, t, -1), A.dot(signals, v))
    part = A.sum(A.multiply(left, right), (0, 3))
    if w is None:
        return part
    return A.add(
        part,
        A.sum(A.rearrange(lambda z: z.reshape(batch, n, o, t, -1), A.dot(cotangents, w)), (0, 3)),
    )
