"""One walk through a program, in any arithmetic."""

from collections.abc import Sequence
from typing import Any

from neuromanifold.graph.arithmetic import Arithmetic, NoExactAnswer
from neuromanifold.graph.dataflow import forward
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.rules import is_discrete


def walk(
    program: Program, arithmetic: Arithmetic, inputs: Sequence[Any], record: list[Any] | None = None
) -> list[Any]:
    """Return the program's outputs at these inputs: real ones are values of the arithmetic, the
    others NumPy arrays.

    Constants are lifted when they are needed; a value is dropped after its last use. Decisions
    (`gt`, `argmax`) are appended to `record` in the order in which they are made: signs, or (place,
    which candidates share it).
    """

    def lift(i: int) -> Any:
        a = program.constants[i]
        return arithmetic.lift(a) if program.values[i].real else a

    def transfer(node: Node, values: list[Any]) -> Sequence[Any]:
        real = program.values[node.outputs[0]].real
        if len(node.outputs) > 1 and not node.primitive.several:
            raise NoExactAnswer(f"{arithmetic.name} have no rule for `{node.operation}`")
        found = _apply(arithmetic, node, values, real, record)
        return found if node.primitive.several else [found]

    known = dict(zip(program.inputs, inputs, strict=True))
    found = forward(program, known, lift, transfer, wanted=program.outputs)
    return [found[i] for i in program.outputs]


def _apply(
    A: Arithmetic, node: Node, values: list[Any], real: bool, record: list[Any] | None
) -> Any:
    primitive, options = node.primitive, node.options
    if all(is_discrete(v) for v in values) and not real and primitive.numpy is not None:
        return primitive.numpy(options, *values)
    if primitive.decides is not None:
        found, decision = primitive.decides(A, options, *values)
        if record is not None:
            record.append(decision)
        return found
    if primitive.arithmetic is not None:
        return primitive.arithmetic(A, options, *values)
    return A.smooth(primitive, options, *values)


def refuse_inexact(graph: Graph, what: str) -> None:
    """Refuse, before anything runs, a network with an operation that has no exact meaning,
    naming it and its line.
    """
    if graph.exact:
        return
    program, known = graph.program, graph.degrees
    node = next(
        n
        for n in program.nodes
        if not known[n.outputs[0]].exact
        and all(known[i].exact or i in program.constants for i in n.inputs)
    )
    where = f" ({node.source})" if node.source else ""
    found = known[node.outputs[0]]
    kind = (
        "jumps"
        if found.jumps
        else "has no exact value at rational numbers"
        if found.smooth
        else "takes an infinite constant (a mask of −∞, say)"
    )
    raise NoExactAnswer(
        f"{what} rational operations, and `f` uses {node.operation}{where}, which {kind}; "
        "pass `exact=False` where the function takes it, or a network of rational operations and "
        "comparisons."
    )
