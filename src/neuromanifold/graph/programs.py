"""The programs that a graph's questions are walked on, for many samples at once; made once for
each number of samples.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Program
from neuromanifold.graph.tracing import program_of

_MANY = (None, 0, 0)


def stack_shapes(tree: Any, n: int) -> Any:
    """Shapes with a leading axis of n samples."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape), leaf.dtype), tree)


def gate_structs(graph: Graph, n: int) -> Any:
    """The shapes of the gates at n samples."""
    with jax.enable_x64(True):
        return stack_shapes(jax.eval_shape(graph.decide, graph.params, graph.sample), n)


def _program(function: Callable[..., Any], graph: Graph, n: int, *more: Any) -> Program:
    """Return the program of a function of params, n samples and `more`."""
    with jax.enable_x64(True):
        return program_of(function, graph.params, stack_shapes(graph.sample, n), *more)


def _of_leaves(
    function: Callable[[Any], Any], tree: Any, wrt: Sequence[int]
) -> tuple[Callable[[list[Any]], Any], list[Any]]:
    """Return `function(tree)` as a function of the leaves `wrt`, and those leaves."""
    leaves, structure = jax.tree.flatten(tree)

    def of_chosen(chosen: list[Any]) -> Any:
        mine = dict(zip(wrt, chosen, strict=True))
        return function(structure.unflatten([mine.get(i, leaf) for i, leaf in enumerate(leaves)]))

    return of_chosen, [leaves[i] for i in wrt]


def _columns(blocks: list[Any]) -> Any:
    """Return Jacobians by leaves side by side, one row for each output."""
    return jnp.concatenate([block.reshape(block.shape[0], -1) for block in blocks], axis=1)


def _flat(leaves: list[Any]) -> Any:
    return jnp.concatenate([leaf.reshape(-1) for leaf in leaves])


def _cotangent(graph: Graph, n: int, more: int = 0) -> Any:
    return jax.ShapeDtypeStruct((n, graph.outputs + more), jnp.float64)


@lru_cache(maxsize=64)
def decisions(graph: Graph, n: int) -> Program:
    """(params, x) ↦ the gates at n samples."""
    return _program(jax.vmap(graph.decide, (None, 0)), graph, n)


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
    return _program(jax.vmap(graph.gated, _MANY), graph, n, gate_structs(graph, n))


@lru_cache(maxsize=64)
def quantities(graph: Graph, n: int) -> Program:
    """(params, x, gates) ↦ what each decision was about, at n samples."""
    return _program(jax.vmap(graph.quantities, _MANY), graph, n, gate_structs(graph, n))


@lru_cache(maxsize=64)
def jacobians(graph: Graph, n: int, wrt: tuple[int, ...]) -> Program:
    """(params, x, gates) ↦ the Jacobians (n, o, D) by the parameter leaves `wrt`, by reverse
    mode.
    """

    def one(params: Any, sample: Any, gates: Any) -> Any:
        output, mine = _of_leaves(lambda p: graph.gated(p, sample, gates).ravel(), params, wrt)
        return _columns(jax.jacrev(output)(mine))

    return _program(jax.vmap(one, _MANY), graph, n, gate_structs(graph, n))


@lru_cache(maxsize=64)
def pullbacks(graph: Graph, n: int, wrt: tuple[int, ...]) -> Program:
    """(params, x, gates, c) ↦ Σ_i J_iᵀ c_i at n samples by the parameter leaves `wrt`, flat:
    what `jacobians` sums up to, without them.
    """

    def pull(params: Any, x: Any, gates: Any, c: Any) -> Any:
        def pair(params: Any) -> Any:
            outputs = lambda sample, gate: graph.gated(params, sample, gate).ravel()  # noqa: E731
            return (c * jax.vmap(outputs)(x, gates)).sum()

        paired, mine = _of_leaves(pair, params, wrt)
        return _flat(jax.grad(paired)(mine))

    return _program(pull, graph, n, gate_structs(graph, n), _cotangent(graph, n))


@lru_cache(maxsize=64)
def gradients(graph: Graph, n: int) -> Program:
    """(params, x, c) ↦ ∇_θ Σ_i ⟨c_i, f_θ(x_i)⟩ at n samples, flat, of a graph without bends."""

    def gradient(params: Any, x: Any, c: Any) -> Any:
        def pair(params: Any) -> Any:
            return (c * jax.vmap(lambda sample: graph.gated(params, sample, ()))(x)).sum()

        return _flat(jax.tree.leaves(jax.grad(pair)(params)))

    return _program(gradient, graph, n, _cotangent(graph, n))


@lru_cache(maxsize=64)
def input_jacobians(graph: Graph, n: int) -> Program:
    """(params, x, gates) ↦ the Jacobians (n, o, d) by the real entries of a sample, by reverse
    mode.
    """
    kinds = [leaf.dtype for leaf in jax.tree.leaves(graph.sample)]
    real = [i for i, dtype in enumerate(kinds) if jnp.issubdtype(dtype, jnp.floating)]

    def one(params: Any, sample: Any, gates: Any) -> Any:
        output, mine = _of_leaves(lambda x: graph.gated(params, x, gates), sample, real)
        return _columns(jax.jacrev(output)(mine))

    return _program(jax.vmap(one, _MANY), graph, n, gate_structs(graph, n))


@lru_cache(maxsize=64)
def products(graph: Graph, n: int, directions: int) -> Program:
    """(params, x, gates, v) ↦ J·v for stacked directions v, shape (directions, n, o), by forward
    mode.
    """

    def along(params: Any, x: Any, gates: Any, v: Any) -> Any:
        value = lambda p: jax.vmap(graph.gated, _MANY)(p, x, gates).reshape(n, -1)  # noqa: E731
        return jax.vmap(lambda v: jax.jvp(value, (params,), (v,))[1])(v)

    return _program(along, graph, n, gate_structs(graph, n), stack_shapes(graph.params, directions))


@lru_cache(maxsize=64)
def segment_gradients(graph: Graph, n: int) -> Program:
    """(params, x, gates, added, c) ↦ `Graph.segment_gradient` for n samples."""
    gates = gate_structs(graph, n)
    added = tuple(jax.ShapeDtypeStruct(gate.shape, jnp.float64) for gate in gates)
    cotangent = _cotangent(graph, n, graph.decisions)
    many = jax.vmap(graph.segment_gradient, (None, 0, 0, 0, 0))
    return _program(many, graph, n, gates, added, cotangent)
