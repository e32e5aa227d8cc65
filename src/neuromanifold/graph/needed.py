"""`keep_needed_parts`: the program of the same outputs that computes of every value only what they need.

Of a language model's logits a user may look at few: the product with the table of all words, and
what comes after the last mixing of tokens, are then computed for these few alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from neuromanifold.graph.dataflow import backward
from neuromanifold.graph.index_maps import slice_entries
from neuromanifold.graph.parts import Part, hull, whole, within
from neuromanifold.graph.primitives import PRIMITIVES
from neuromanifold.graph.program import Node, Program, Value

_SLICE = "slice"
_RESIZED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "reshape": ("new_sizes", lambda options, a: jax.lax.reshape(a, options["new_sizes"])),
    "broadcast_in_dim": (
        "shape",
        lambda options, a: jax.lax.broadcast_in_dim(
            a, options["shape"], options["broadcast_dimensions"]
        ),
    ),
}
"""Operations that name the shape of their result: under which name, and what JAX computes then."""


def keep_needed_parts(program: Program) -> Program:
    """The program without those parts of values that its outputs do not need, as far as slices can
    be told from the operations; itself where all is needed.

    >>> from neuromanifold.graph.tracing import program_of
    >>> f = lambda w, x: (x @ w)[-1:, :2]
    >>> program = program_of(f, jax.ShapeDtypeStruct((3, 9), "float32"), jax.ShapeDtypeStruct((5, 3), "float32"))
    >>> narrow = keep_needed_parts(program)
    >>> [narrow.values[node.outputs[0]].shape for node in narrow.nodes]
    [(1, 3), (3, 2), (1, 2)]
    """
    asked = {i: whole(program.values[i].shape) for i in program.outputs}
    parts = backward(
        program,
        asked,
        lambda node, given: _ask_operands(program, node, given[0]) or _wholes(program, node.inputs),
        hull,
    )
    if all(part == whole(program.values[i].shape) for i, part in parts.items()):
        return program
    return _Narrowing(program, parts).program()


def _wholes(program: Program, values: Sequence[int]) -> list[Part]:
    return [whole(program.values[i].shape) for i in values]


def _ask_operands(program: Program, node: Node, part: Part | None) -> list[Part] | None:
    """What the part of a node's result needs of its operands; `None` where the result is computed
    as a whole.
    """
    shapes = [program.values[i].shape for i in node.inputs]
    out, rule = program.values[node.outputs[0]].shape, node.primitive.parts
    if part is None or rule is None or len(node.outputs) > 1:
        return None
    if part == whole(out) and node.operation != _SLICE:
        return None
    return rule(node.options, shapes, out, part)


@dataclass
class _Narrowing:
    """Builds the program anew: each value under its own number, at the part that is needed."""

    given: Program
    parts: dict[int, Part]

    def __post_init__(self) -> None:
        self.values, self.nodes = list(self.given.values), list[Node]()
        self.constants = dict(self.given.constants)
        self.held = {i: (i, whole(self.given.values[i].shape)) for i in self.given.inputs}
        self.cut: dict[tuple[int, Part], int] = {}

    def program(self) -> Program:
        """The program of the parts."""
        for node in self.given.nodes:
            self._add(node)
        outputs = [self._read(i, whole(self.given.values[i].shape)) for i in self.given.outputs]
        made = replace(
            self.given,
            nodes=tuple(self.nodes),
            values=tuple(self.values),
            constants=self.constants,
            outputs=tuple(outputs),
        )
        return made.slice(outputs)

    def _add(self, node: Node) -> None:
        out = node.outputs[0]
        part = self.parts.get(out)
        wanted = _ask_operands(self.given, node, part)
        every = wanted or _wholes(self.given, node.inputs)
        inputs = [self._read(i, each) for i, each in zip(node.inputs, every, strict=True)]
        if wanted is None or part is None:
            self.held |= {i: (i, whole(self.given.values[i].shape)) for i in node.outputs}
        elif node.operation == _SLICE:
            self.held[out] = inputs[0], part
            return
        else:
            self.held[out] = out, part
            node = self._resize(node, part)
        self.nodes.append(replace(node, inputs=tuple(inputs)))

    def _resize(self, node: Node, part: Part) -> Node:
        shape = tuple(map(len, part))
        self.values[node.outputs[0]] = replace(self.given.values[node.outputs[0]], shape=shape)
        if node.operation not in _RESIZED:
            return node
        name, compute = _RESIZED[node.operation]
        options = {**node.options, name: shape}
        return replace(node, options=options, evaluate=lambda a: [compute(options, a)])

    def _read(self, value: int, part: Part) -> int:
        """The number of a value's part."""
        if value in self.constants:
            at, held = value, whole(self.given.values[value].shape)
        else:
            at, held = self.held[value]
        if part == held:
            return at
        if (value, part) not in self.cut:
            self.cut[value, part] = self._slice(at, within(part, held))
        return self.cut[value, part]

    def _slice(self, value: int, part: Part) -> int:
        options = {
            "start_indices": tuple(r.start if r else 0 for r in part),
            "limit_indices": tuple(r.stop if r else 0 for r in part),
            "strides": tuple(r.step for r in part),
        }
        self.values.append(Value(tuple(map(len, part)), self.values[value].dtype))
        made = len(self.values) - 1
        if value in self.constants:
            self.constants[made] = slice_entries(options, self.constants[value])
            return made
        cut = tuple(options.values())
        node = Node(
            PRIMITIVES[_SLICE], (value,), (made,), options, lambda a: [jax.lax.slice(a, *cut)]
        )
        self.nodes.append(node)
        return made
