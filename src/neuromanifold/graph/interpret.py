"""A program back in JAX: to be differentiated, vectorised and compiled, with every bend put to
an oracle.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from neuromanifold.graph.bends import BENDS, Choosing, Oracle
from neuromanifold.graph.gpu_precision import fused, tanh
from neuromanifold.graph.pooling import POOLINGS
from neuromanifold.graph.program import Node, Program

_COMMUTATIVE = ("max", "min")
_REFLEXIVE = {"eq": True, "ge": True, "le": True, "ne": False, "gt": False, "lt": False}


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
    known = {i: _typed(program, i, value) for i, value in zip(program.inputs, inputs, strict=True)}
    added = added or {}

    def read(i: int) -> Any:
        if i not in known:
            known[i] = jnp.asarray(program.constants[i], program.values[i].dtype)
        return known[i]

    for node in program.nodes:
        results = _results(program, node, [read(i) for i in node.inputs], ask)
        known.update(zip(node.outputs, results, strict=True))
        known.update({i: known[i] + added[i] for i in node.outputs if i in added})
    return [read(i) for i in (*program.outputs, *wanted)]


def _typed(program: Program, i: int, value: Any) -> Any:
    """Indices of the width the program was traced with."""
    integer = jnp.issubdtype(program.values[i].dtype, jnp.integer)
    return jnp.asarray(value, program.values[i].dtype) if integer else value


def bends(program: Program, node: Node) -> bool:
    """Whether the node makes a decision about real numbers."""
    real = program.values[node.inputs[0]].real if node.inputs else False
    return real and node.operation in BENDS


def _results(program: Program, node: Node, values: list[Any], ask: Oracle | None) -> Sequence[Any]:
    if ask is None and node.operation in POOLINGS and bends(program, node):
        return [BENDS[node.operation](Choosing(), node.options, *values)]
    if fused(node.operation, program.values[node.outputs[0]].dtype):
        return [tanh(*values)]
    if ask is None or not bends(program, node):
        return node.evaluate(*values)
    if node.operation in _REFLEXIVE and node.inputs[0] == node.inputs[1]:
        return [jnp.full(values[0].shape, _REFLEXIVE[node.operation])]
    if node.operation in _COMMUTATIVE and node.inputs[0] in program.constants:
        values = values[::-1]  # at a tie the constant wins: relu is off at zero
    return [BENDS[node.operation](ask, node.options, *values)]
