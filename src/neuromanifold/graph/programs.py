"""The programs that a graph's questions are walked on, for many samples at once; made once for
each number of samples.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Program
from neuromanifold.graph.tracing import program_of

_MANY = (None, 0, 0)


def stacked(tree: Any, n: int) -> Any:
    """Shapes with a leading axis of n samples."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape), leaf.dtype), tree)


def gate_structs(graph: Graph, n: int) -> Any:
    """The shapes of the gates at n samples."""
    with jax.enable_x64(True):
        return stacked(jax.eval_shape(graph.decide, graph.params, graph.sample), n)


@lru_cache(maxsize=64)
def decisions(graph: Graph, n: int) -> Program:
    """(params, x) ↦ the gates at n samples."""
    with jax.enable_x64(True):
        return program_of(jax.vmap(graph.decide, (None, 0)), graph.params, stacked(graph.sample, n))


@lru_cache(maxsize=64)
def exact_decisions(graph: Graph, n: int) -> Program:
    """(params, x) ↦ those gates at n samples that can be proved."""
    return _exact_units(graph, decisions(graph, n))


@lru_cache(maxsize=64)
def exact_quantities(graph: Graph, n: int) -> Program:
    """(params, x, gates) ↦ what each decision was about that can be proved, at n samples."""
    return _exact_units(graph, quantities(graph, n))


def _exact_units(graph: Graph, program: Program) -> Program:
    pairs = zip(graph.units, program.outputs, strict=True)
    return program.slice([value for units, value in pairs if units.exact])


@lru_cache(maxsize=64)
def values(graph: Graph, n: int) -> Program:
    """(params, x, gates) ↦ f at n samples."""
    with jax.enable_x64(True):
        return program_of(
            jax.vmap(graph.gated, _MANY),
            graph.params,
            stacked(graph.sample, n),
            gate_structs(graph, n),
        )


@lru_cache(maxsize=64)
def quantities(graph: Graph, n: int) -> Program:
    """(params, x, gates) ↦ what each decision was about, at n samples."""
    with jax.enable_x64(True):
        return program_of(
            jax.vmap(graph.quantities, _MANY),
            graph.params,
            stacked(graph.sample, n),
            gate_structs(graph, n),
        )


@lru_cache(maxsize=64)
def jacobians(graph: Graph, n: int, wrt: tuple[int, ...]) -> Program:
    """(params, x, gates) ↦ the Jacobians (n, o, D) by the parameter leaves `wrt`, by reverse
    mode.
    """

    def one(params: Any, sample: Any, gates: Any) -> Any:
        leaves, structure = jax.tree.flatten(params)

        def output(chosen: list[Any]) -> Any:
            mine = dict(zip(wrt, chosen, strict=True))
            return graph.gated(
                structure.unflatten([mine.get(i, leaf) for i, leaf in enumerate(leaves)]),
                sample,
                gates,
            ).ravel()

        blocks = jax.jacrev(output)([leaves[i] for i in wrt])
        return jnp.concatenate([block.reshape(block.shape[0], -1) for block in blocks], axis=1)

    with jax.enable_x64(True):
        return program_of(
            jax.vmap(one, _MANY), graph.params, stacked(graph.sample, n), gate_structs(graph, n)
        )


@lru_cache(maxsize=64)
def pullbacks(graph: Graph, n: int, wrt: tuple[int, ...]) -> Program:
    """(params, x, gates, c) ↦ Σ_i J_iᵀ c_i at n samples by the parameter leaves `wrt`, flat:
    what `jacobians` sums up to, without them.
    """

    def pulled(params: Any, x: Any, gates: Any, c: Any) -> Any:
        leaves, structure = jax.tree.flatten(params)

        def paired(chosen: list[Any]) -> Any:
            mine = dict(zip(wrt, chosen, strict=True))
            params = structure.unflatten([mine.get(i, leaf) for i, leaf in enumerate(leaves)])
            outputs = jax.vmap(lambda sample, gate: graph.gated(params, sample, gate).ravel())(
                x, gates
            )
            return (c * outputs).sum()

        return jnp.concatenate(
            [leaf.reshape(-1) for leaf in jax.grad(paired)([leaves[i] for i in wrt])]
        )

    with jax.enable_x64(True):
        cotangent = jax.ShapeDtypeStruct((n, graph.outputs), jnp.float64)
        return program_of(
            pulled, graph.params, stacked(graph.sample, n), gate_structs(graph, n), cotangent
        )


@lru_cache(maxsize=64)
def gradients(graph: Graph, n: int) -> Program:
    """(params, x, c) ↦ ∇_θ Σ_i ⟨c_i, f_θ(x_i)⟩ at n samples, flat, of a graph without bends."""

    def gradient(params: Any, x: Any, c: Any) -> Any:
        def paired(params: Any) -> Any:
            return (c * jax.vmap(lambda sample: graph.gated(params, sample, ()))(x)).sum()

        return jnp.concatenate(
            [leaf.reshape(-1) for leaf in jax.tree.leaves(jax.grad(paired)(params))]
        )

    with jax.enable_x64(True):
        cotangent = jax.ShapeDtypeStruct((n, graph.outputs), jnp.float64)
        return program_of(gradient, graph.params, stacked(graph.sample, n), cotangent)


@lru_cache(maxsize=64)
def input_jacobians(graph: Graph, n: int) -> Program:
    """(params, x, gates) ↦ the Jacobians (n, o, d) by the real entries of a sample, by reverse
    mode.
    """

    def one(params: Any, sample: Any, gates: Any) -> Any:
        leaves, structure = jax.tree.flatten(sample)
        real = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

        def output(chosen: list[Any]) -> Any:
            mine = dict(zip(real, chosen, strict=True))
            return graph.gated(
                params,
                structure.unflatten([mine.get(i, leaf) for i, leaf in enumerate(leaves)]),
                gates,
            )

        blocks = jax.jacrev(output)([leaves[i] for i in real])
        return jnp.concatenate([block.reshape(block.shape[0], -1) for block in blocks], axis=1)

    with jax.enable_x64(True):
        return program_of(
            jax.vmap(one, _MANY), graph.params, stacked(graph.sample, n), gate_structs(graph, n)
        )


@lru_cache(maxsize=64)
def products(graph: Graph, n: int, directions: int) -> Program:
    """(params, x, gates, v) ↦ J·v for stacked directions v, shape (directions, n, o), by forward
    mode.
    """

    def along(params: Any, x: Any, gates: Any, v: Any) -> Any:
        value = lambda p: jax.vmap(graph.gated, _MANY)(p, x, gates).reshape(n, -1)  # noqa: E731
        return jax.vmap(lambda v: jax.jvp(value, (params,), (v,))[1])(v)

    with jax.enable_x64(True):
        shapes = (
            graph.params,
            stacked(graph.sample, n),
            gate_structs(graph, n),
            stacked(graph.params, directions),
        )
        return program_of(along, *shapes)


@lru_cache(maxsize=64)
def segment_gradients(graph: Graph, n: int) -> Program:
    """(params, x, gates, added, c) ↦ `Graph.segment_gradient` for n samples."""
    gates = gate_structs(graph, n)
    with jax.enable_x64(True):
        added = tuple(jax.ShapeDtypeStruct(gate.shape, jnp.float64) for gate in gates)
        cotangent = jax.ShapeDtypeStruct((n, graph.outputs + graph.decisions), jnp.float64)
        many = jax.vmap(graph.segment_gradient, (None, 0, 0, 0, 0))
        return program_of(many, graph.params, stacked(graph.sample, n), gates, added, cotangent)
