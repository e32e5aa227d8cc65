"""`Program`: a JAX function as a list of operations on numbered values, with nothing of JAX left
to interpret.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import or_
from typing import Any

import numpy as np

from neuromanifold.graph.dataflow import backward, forward
from neuromanifold.graph.primitives import Primitive


@dataclass(frozen=True, eq=False)
class Value:
    """The shape and dtype of one numbered value."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def real(self) -> bool:
        """Whether it holds real numbers; otherwise integers or truth values, which every
        arithmetic takes as they are.
        """
        return self.dtype.kind not in "iub"


@dataclass(frozen=True, eq=False)
class Node:
    """One operation: its row of the table, the values it takes and gives, its static options, and
    how JAX computes it.

    `source` is the line of the user's code that asked for it.
    """

    primitive: Primitive
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    evaluate: Callable[..., Sequence[Any]]
    source: str = ""

    @property
    def operation(self) -> str:
        """The name that JAX calls it by."""
        return self.primitive.name


@dataclass(frozen=True, eq=False)
class Program:
    """Operations in the order of computation. `values[i]` describes value i; `constants` holds
    those known beforehand.

    `rounded` lists what was computed once in float64 from constants alone, and casts taken as the
    identity: the only places where an exact walk is not exact.
    """

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, np.ndarray]
    rounded: tuple[str, ...] = ()

    @cached_property
    def consumers(self) -> Mapping[int, list[Node]]:
        """The nodes that read each value."""
        found: dict[int, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for i in dict.fromkeys(node.inputs):
                found[i].append(node)
        return found

    def depending(self, inputs: Sequence[int]) -> frozenset[int]:
        """The values that depend on these, themselves included."""
        facts = forward(
            self,
            dict.fromkeys(inputs, True),
            lambda i: False,
            lambda node, given: [any(given)] * len(node.outputs),
        )
        return frozenset(i for i, depends in facts.items() if depends)

    def needed(self, outputs: Sequence[int]) -> frozenset[int]:
        """The values that these are computed from, themselves included."""
        start = dict.fromkeys(outputs, True)
        return frozenset(backward(self, start, lambda node, given: [True] * len(node.inputs), or_))

    def slice(self, outputs: Sequence[int]) -> "Program":
        """The part of the program that these values need."""
        needed = self.needed(outputs)
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if not needed.isdisjoint(node.outputs)),
            outputs=tuple(outputs),
            constants={i: a for i, a in self.constants.items() if i in needed},
        )

    def last_uses(self, kept: Sequence[int] | None = None) -> list[list[int]]:
        """For each node, the values that nobody needs after it; the outputs (or those `kept`) are
        always needed.
        """
        alive, dying = set(self.outputs if kept is None else kept), []
        for node in reversed(self.nodes):
            mine = {i for i in (*node.inputs, *node.outputs) if i not in alive}
            dying.append(sorted(mine))
            alive |= mine
        return dying[::-1]

    def bends(self, node: Node) -> bool:
        """Whether the node makes a decision about real numbers."""
        bend = node.primitive.bend
        if bend is None or not node.inputs:
            return False
        return self.values[node.inputs[0]].real and bend.applies(node.options)
