"""A program back in JAX: to be differentiated, vectorised and compiled, with every bend put to
an oracle.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from neuromanifold.graph.bends import Choosing, Oracle
from neuromanifold.graph.dataflow import forward
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.reading import is_fused, tanh


def interpret(
    program: Program,
    inputs: Sequence[Any],
    ask: Oracle | None,
    *,
    added: Mapping[int, Any] | None = None,
    wanted: Sequence[int] = (),
) -> list[Any]:
    """The program's outputs in JAX, then the values `wanted`. Without an oracle every bend is JAX's
    own, but pooling is written as a choice in each window: its derivative then is one as well,
    several times faster than XLA's search of the windows for each cotangent.

    `added[i]` is added to value i as soon as it is computed.
    """
    added = added or {}

    def transfer(node: Node, values: list[Any]) -> list[Any]:
        results = _results(program, node, values, ask)
        return [
            r + added[i] if i in added else r for i, r in zip(node.outputs, results, strict=True)
        ]

    known = {
        i: _cast_indices(program, i, value) for i, value in zip(program.inputs, inputs, strict=True)
    }
    wanted = (*program.outputs, *wanted)
    found = forward(program, known, lambda i: _constant(program, i), transfer, wanted=wanted)
    return [found[i] for i in wanted]


def _constant(program: Program, i: int) -> Any:
    return jnp.asarray(program.constants[i], program.values[i].dtype)


def _cast_indices(program: Program, i: int, value: Any) -> Any:
    """Indices of the width the program was traced with."""
    integer = jnp.issubdtype(program.values[i].dtype, jnp.integer)
    return jnp.asarray(value, program.values[i].dtype) if integer else value


def _results(program: Program, node: Node, values: list[Any], ask: Oracle | None) -> Sequence[Any]:
    bend = node.primitive.bend if program.bends(node) else None
    if bend is not None and bend.pools and ask is None:
        return [bend.choose(Choosing(), node.options, *values)]
    if is_fused(node.primitive, program.values[node.outputs[0]].dtype):
        return [tanh(*values)]
    if bend is None or ask is None:
        return node.evaluate(*values)
    if bend.of_equals is not None and node.inputs[0] == node.inputs[1]:
        return [jnp.full(values[0].shape, bend.of_equals)]
    if bend.commutes and node.inputs[0] in program.constants:
        values = values[::-1]  # at a tie the constant wins: relu is off at zero
    found = bend.choose(ask, node.options, *values)
    return found if node.primitive.several else [found]
