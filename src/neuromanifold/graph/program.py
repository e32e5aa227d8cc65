"""`Program`: a JAX function as a list of operations on numbered values, with nothing of JAX left
to interpret.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


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
    """One operation: its name, the values it takes and gives, its static options, and how JAX
    computes it.

    `source` is the line of the user's code that asked for it.
    """

    operation: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    evaluate: Callable[..., Sequence[Any]]
    source: str = ""


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

    def depending(self, inputs: Sequence[int]) -> frozenset[int]:
        """The values that depend on these, themselves included."""
        found = set(inputs)
        for node in self.nodes:
            if not found.isdisjoint(node.inputs):
                found.update(node.outputs)
        return frozenset(found)

    def slice(self, outputs: Sequence[int]) -> "Program":
        """The part of the program that these values need."""
        needed, kept = set(outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                kept.append(node)
                needed |= set(node.inputs)
        constants = {i: a for i, a in self.constants.items() if i in needed}
        return replace(
            self, nodes=tuple(reversed(kept)), outputs=tuple(outputs), constants=constants
        )

    def last_uses(self) -> list[list[int]]:
        """For each node, the values that nobody needs after it."""
        kept, dying = set(self.outputs), []
        for node in reversed(self.nodes):
            mine = {i for i in (*node.inputs, *node.outputs) if i not in kept}
            dying.append(sorted(mine))
            kept |= mine
        return dying[::-1]
