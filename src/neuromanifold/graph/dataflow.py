"""One pass forward and one backward over a program, for facts of any kind about its values.

A domain says what is known at the start, what is known of constants, and how a node carries facts
on. A program is a list of nodes in the order of computation, so one pass is enough: its time is
that of one transfer for each node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Fact = TypeVar("Fact")


def forward(
    program: Any,
    known: Mapping[int, Fact],
    default: Callable[[int], Fact],
    transfer: Callable[[Any, list[Fact]], Sequence[Fact]],
    *,
    wanted: Sequence[int] | None = None,
) -> dict[int, Fact]:
    """The fact of every value, from the facts `known` of some: those of its inputs, or of any
    others, whose nodes are passed over.

    `default(i)` is the fact of a constant, or of an input that is not among the known, asked for
    when it is first needed. `transfer(node, facts)` gives those of a node's outputs. With `wanted`
    only their facts are returned, and others are dropped after their last use.
    """
    facts = dict(known)

    def read(i: int) -> Fact:
        if i not in facts:
            facts[i] = default(i)
        return facts[i]

    kept = None if wanted is None else program.last_uses(wanted)
    for at, node in enumerate(program.nodes):
        if node.outputs[0] not in known:
            results = transfer(node, [read(i) for i in node.inputs])
            facts.update(zip(node.outputs, results, strict=True))
        if kept is not None:
            for i in kept[at]:
                facts.pop(i, None)
    found = {i: read(i) for i in (program.outputs if wanted is None else wanted)}
    return facts if wanted is None else found


def backward(
    program: Any,
    known: Mapping[int, Fact],
    transfer: Callable[[Any, list[Fact | None]], Iterable[Fact | None]],
    join: Callable[[Fact, Fact], Fact],
) -> dict[int, Fact]:
    """The facts of values that those with a fact in `known` are computed from.

    `transfer(node, facts)` gives one for each input of a node from those of its outputs (None
    where there is none); what several readers say of a value is joined.
    """
    facts = dict(known)
    for node in reversed(program.nodes):
        found = [facts.get(o) for o in node.outputs]
        if any(fact is not None for fact in found):
            for i, fact in zip(node.inputs, transfer(node, found), strict=True):
                if fact is not None:
                    facts[i] = join(facts[i], fact) if i in facts else fact
    return facts
