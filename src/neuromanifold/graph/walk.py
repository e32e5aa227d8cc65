"""One walk through a program, in any arithmetic."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic, NoExactAnswer
from neuromanifold.graph.discrete import DISCRETE
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.rules import RULES, SEVERAL, is_discrete


def walk(
    program: Program, arithmetic: Arithmetic, inputs: Sequence[Any], record: list[Any] | None = None
) -> list[Any]:
    """The program's outputs at these inputs: real ones are values of the arithmetic, the others
    NumPy arrays.

    Constants are lifted when they are needed; a value is dropped after its last use. Decisions
    (`gt`, `argmax`) are appended to `record` in the order in which they are made: signs, or (place,
    which candidates share it).
    """
    known: dict[int, Any] = dict(zip(program.inputs, inputs, strict=True))

    def read(i: int) -> Any:
        if i not in known:
            a = program.constants[i]
            known[i] = arithmetic.lift(a) if program.values[i].real else a
        return known[i]

    for node, dying in zip(program.nodes, program.last_uses(), strict=True):
        real = program.values[node.outputs[0]].real
        results = _apply(arithmetic, node, [read(i) for i in node.inputs], real, record)
        known.update(zip(node.outputs, results, strict=True))
        for i in dying:
            known.pop(i, None)
    return [read(i) for i in program.outputs]


def _apply(
    A: Arithmetic, node: Node, values: list[Any], real: bool, record: list[Any] | None
) -> Sequence[Any]:
    name = node.operation
    found: Any
    if all(is_discrete(v) for v in values):
        found = (
            A.lift(values[0])
            if real and name == "convert_element_type"
            else DISCRETE[name](node.options, *values)
        )
    elif name in _DECISIONS:
        found, decision = _DECISIONS[name](A, *values)
        if record is not None:
            record.append(decision)
    elif name in RULES:
        found = RULES[name](A, node.options, *values)
    else:
        found = A.smooth(name, node.options, *values)
    return found if name in SEVERAL else [found]


def _greater(A: Arithmetic, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    signs = A.sign(A.subtract(a, b))
    return signs == 1, signs


def _argmax(A: Arithmetic, a: Any) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    place, tied = A.largest(a)
    return np.maximum(place, 0).astype(np.int64), (place, tied)


_DECISIONS = {"gt": _greater, "argmax": _argmax}


def refuse_inexact(graph: Graph, what: str) -> None:
    """Refuse, before anything runs, a network with an operation that has no exact meaning,
    naming it and its line.
    """
    if graph.exact:
        return
    program, known = graph.program, graph.characters
    node = next(
        n
        for n in program.nodes
        if not known[n.outputs[0]].exact and all(known[i].exact for i in n.inputs)
    )
    where = f" ({node.source})" if node.source else ""
    kind = "jumps" if known[node.outputs[0]].broken else "has no exact value at rational numbers"
    raise NoExactAnswer(
        f"{what} rational operations, and `f` uses {node.operation}{where}, which {kind}; "
        "pass `exact=False` where the function takes it, or a network of rational operations and "
        "comparisons."
    )
