"""What a network does with the places of a hidden axis, read from its operations: why a reduction
holds at every input.

Let w_i be all parameters that write channel i, r_i all that read it. Operation by operation, a
value that has the axis is at place i a function φ(w_i, …) of what writes this place and of values
without the axis, with the same φ at every place (*apart*): entrywise functions, products with
values without the axis, sums and maxima over other axes. It is *homogeneous* where φ(tw) = tφ(w)
for t > 0, *linear* where it is linear in w. The axis ends in products with parameters, Σ_i r_i
φ(w_i, …), and nowhere else.

Then, by induction over the operations, all values without the axis stay the same at every input
when
- a channel with r_i = 0 goes (apart), or one with w_i = 0 (homogeneous: φ(0) = 0);
- w_i = t w_j, t > 0, and r_j + t r_i takes the place of r_j (apart for t = 1, else homogeneous);
- W and R are replaced by others with the same RᵀW (linear: f sees Σ_i r_i ⊗ w_i alone).
Where no value of the data meets a channel but by its weights (*steady*), one whose weights are zero
is a function of its biases: where it is zero at one sample it is at all. Any operation that is not
known here leaves the axis without a nature: nothing is claimed then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.axes import Labels, axis_labels
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.program import Node, Program
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.discovery.channels import Arrays, Channels, slots_of


class Kind(IntEnum):
    """How φ depends on what writes the channel, from the weakest to the strongest."""

    APART = 0
    HOMOGENEOUS = 1
    LINEAR = 2


@dataclass(frozen=True)
class Nature:
    """The kind of a value that has the axis (the weakest of all of them), and whether data meet it
    by weights alone.

    `exits` are the values that are read, where the axis ends.
    """

    kind: Kind
    steady: bool
    exits: tuple[int, ...] = ()

    def __and__(self, other: "Nature") -> "Nature":
        return Nature(min(self.kind, other.kind), self.steady and other.steady)

    def at_most(self, kind: Kind) -> "Nature":
        """Weakened to a kind."""
        return replace(self, kind=min(self.kind, kind))


@dataclass(frozen=True)
class _Gate:
    """Truth values at each place: homogeneous where they do not change when w is multiplied by t
    > 0.
    """

    nature: Nature


SOURCE = Nature(Kind.LINEAR, True)
_READER, _SAME, _DATA, _ZERO = "reads the axis", "the same at every place", "of the data", "zero"
"""What else an operand can be: parameters whose product sums over the axis; a value without the
axis, or constant along it.
"""
Operand = Nature | _Gate | str
_MOVES = {
    "reshape", "transpose", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "slice", "rev", "neg", "reduce_sum",
    "reduce_window_sum", "cumsum",
}  # fmt: skip
_CURVED = {
    "tanh", "logistic", "exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "erf", "erfc", "sqrt", "rsqrt", "cbrt", "square",
    "integer_pow", "sinh", "cosh", "atan", "asinh",
}  # fmt: skip
_BENT = {"abs", "reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min"}
_COMPARED = {"gt", "lt", "ge", "le", "eq", "ne", "max", "min", "clamp"}
_LOGICAL = {"and", "or", "not", "xor"}


class _Unknown(Exception):
    """An operation does something else with the axis."""


def nature_of(graph: Graph, channels: Channels) -> Nature | None:
    """The nature of an axis of channels; None where an operation does more than is known here."""
    try:
        return _Reading(graph, channels).nature()
    except _Unknown:
        return None


def zero_channels(
    graph: Graph, channels: Channels, nature: Nature, arrays: Arrays, sample: Arrays
) -> np.ndarray:
    """Which channels are zero wherever they are read, at one sample."""
    labels = axis_labels(graph.program)
    with arithmetic():
        found = interpret(
            graph.program,
            [*map(jnp.asarray, arrays), *map(jnp.asarray, sample)],
            None,
            wanted=nature.exits,
        )
    loud = np.zeros(channels.size, bool)
    for value, a in zip(nature.exits, found[len(graph.program.outputs) :], strict=True):
        for axis, atoms in enumerate(labels.values[value]):
            for atom, slot in slots_of(0, axis, atoms, labels.sizes, False):
                loud |= slot.slices([np.asarray(a)]).any(axis=1) if atom == channels.atom else False
    return ~loud


class _Reading:
    """One pass through the program, with what is known of each value that has the axis."""

    def __init__(self, graph: Graph, channels: Channels) -> None:
        self.program: Program = graph.program
        self.labels: Labels = axis_labels(graph.program)
        self.atom = channels.atom
        self.of_sample = self.program.depending(self.program.inputs[len(graph.parameters) :])
        self.known: dict[int, Operand] = {}
        self.exits: list[int] = []
        for slot in channels.slots:
            leaf = self.program.inputs[slot.leaf]
            self.known[leaf] = _READER if slot.reads or self.known.get(leaf) == _READER else SOURCE

    def nature(self) -> Nature:
        for node in self.program.nodes:
            before, after = (sum(map(self.places, ids)) for ids in (node.inputs, node.outputs))
            if before or after:
                self.known |= dict.fromkeys(
                    node.outputs, self.result(node) if before else self.spread(node)
                )
        found = [value for value in self.known.values() if isinstance(value, Nature)]
        return Nature(
            min(each.kind for each in found), all(each.steady for each in found), tuple(self.exits)
        )

    def places(self, value: int) -> int:
        """On how many axes of a value the channels are."""
        return sum(axis.count(self.atom) for axis in self.labels.values[value])

    def operand(self, value: int) -> Operand:
        if self.places(value) and value not in self.program.constants:
            return self.known[value]
        zero = value in self.program.constants and not np.any(self.program.constants[value])
        return _ZERO if zero else _DATA if value in self.of_sample else _SAME

    def spread(self, node: Node) -> Operand:
        """A value without the axis that is repeated along it."""
        if node.operation != "broadcast_in_dim":
            raise _Unknown
        return self.operand(node.inputs[0])

    def result(self, node: Node) -> Operand:
        """What a node with the axis among its operands gives."""
        if node.operation in ("dot_general", "conv_general_dilated"):
            return self.product(node)
        if any(self.places(o) != max(map(self.places, node.inputs)) for o in node.outputs):
            raise _Unknown  # summed over, or taken apart
        rule = _RULES.get(node.operation)
        if rule is None:
            raise _Unknown
        return rule(self, node, [self.operand(i) for i in node.inputs])

    def multiplied(self, channel: Nature, others: Sequence[int]) -> Nature:
        """Steady no more where a factor depends on the data."""
        return replace(channel, steady=channel.steady and self.of_sample.isdisjoint(others))

    def product(self, node: Node) -> Operand:
        contracted, free = self.summed(node)
        (left, right), (a, b) = node.inputs, [self.operand(i) for i in node.inputs]
        if any(contracted):
            reader, channel = (b, a) if b == _READER else (a, b)
            exits = all(contracted) and reader == _READER and isinstance(channel, Nature)
            if not exits or sum(free) > 1 or free[int(reader is a)]:
                raise _Unknown
            self.exits.append(right if reader is a else left)
            return SOURCE
        if sum(free) != 1:
            raise _Unknown
        channel, other = (a, right) if free[0] else (b, left)
        if not isinstance(channel, Nature):
            raise _Unknown
        writes = (left if free[0] else right) not in self.of_sample
        return channel if writes else self.multiplied(channel, [other])

    def summed(self, node: Node) -> tuple[list[int], list[int]]:
        """For each operand: on how many summed axes the channels are, and on how many others."""
        axes = [self.labels.values[i] for i in node.inputs]
        if node.operation == "dot_general":
            sums, batch = node.options["dimension_numbers"]
            if any(self.atom in axes[k][d] for k in (0, 1) for d in batch[k]):
                raise _Unknown
        else:
            numbers = node.options["dimension_numbers"]
            sums = ((numbers.lhs_spec[1],), (numbers.rhs_spec[1],))
            if node.options["feature_group_count"] != 1 or node.options["batch_group_count"] != 1:
                raise _Unknown
        gone = [sum(axes[k][d].count(self.atom) for d in sums[k]) for k in (0, 1)]
        return gone, [self.places(i) - n for i, n in zip(node.inputs, gone, strict=True)]


Rule = Callable[[_Reading, Node, list[Operand]], Operand]


def _moved(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
    return operands[0]


def _weakened(kind: Kind) -> Rule:
    def rule(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
        return _channel(operands[0]).at_most(kind)

    return rule


def _channel(operand: Operand) -> Nature:
    if not isinstance(operand, Nature):
        raise _Unknown
    return operand


def _joined(operands: Sequence[Operand], kind: Kind = Kind.LINEAR) -> Nature:
    """That of a sum or a choice of values: homogeneous still beside zero, no more than apart
    beside another constant.
    """
    found = SOURCE.at_most(kind)
    for operand in operands:
        if operand != _ZERO:
            found &= (
                Nature(Kind.APART, operand == _SAME)
                if operand in (_SAME, _DATA)
                else _channel(operand)
            )
    return found


def _added(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
    return _joined(operands)


def _converted(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
    gate = operands[0]
    real = at.program.values[node.outputs[0]].real
    return gate.nature.at_most(Kind.APART) if isinstance(gate, _Gate) and real else gate


def _compared(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
    found = _joined(operands, Kind.HOMOGENEOUS)
    return found if at.program.values[node.outputs[0]].real else _Gate(found)


def _combined(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
    gates = [operand.nature for operand in operands if isinstance(operand, _Gate)]
    if len(gates) < len(operands):
        raise _Unknown
    return _Gate(_joined(gates))


def _chosen(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
    which, *cases = operands
    if at.program.values[node.outputs[0]].real:
        found = _joined(cases)
        return (
            found & which.nature
            if isinstance(which, _Gate)
            else at.multiplied(found, [node.inputs[0]])
        )
    raise _Unknown


def _scaled(at: _Reading, node: Node, operands: list[Operand]) -> Operand:
    channels = [operand for operand in operands if isinstance(operand, Nature)]
    if len(channels) + sum(operand in (_SAME, _DATA, _ZERO) for operand in operands) < 2:
        raise _Unknown
    if len(channels) == 2 or (node.operation == "div" and not isinstance(operands[0], Nature)):
        return _joined([_SAME, *channels])
    return at.multiplied(
        channels[0], [i for i, o in zip(node.inputs, operands, strict=True) if o is not channels[0]]
    )


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVES, _moved),
    **dict.fromkeys(_CURVED, _weakened(Kind.APART)),
    **dict.fromkeys(_BENT, _weakened(Kind.HOMOGENEOUS)),
    **dict.fromkeys(_COMPARED, _compared),
    **dict.fromkeys(_LOGICAL, _combined),
    **dict.fromkeys(("add", "add_any", "sub", "concatenate", "pad"), _added),
    **dict.fromkeys(("mul", "div"), _scaled),
    "convert_element_type": _converted,
    "select_n": _chosen,
}
