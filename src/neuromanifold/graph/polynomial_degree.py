"""How every value of a program depends on data and parameters: of which degree, and through what."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from neuromanifold.graph.dataflow import forward
from neuromanifold.graph.primitives import Kind
from neuromanifold.graph.program import Node, Program

_CURVED = 2


@dataclass(frozen=True)
class Degree:
    """The degree of a value in the `data` once every bend is decided (0, 1, or 2 for anything
    else), and in the `parameters`.

    `lowest` is the lowest degree in the data of any term: 0 where there may be a constant one.
    The others say what the value went through: `bends`, a decision; `divides`, a division by
    something that varies; `smooth`, a function without an exact value; `jumps`, one that jumps;
    `infinite`, a choice between numbers and an infinite constant, as masks have it.
    """

    data: int = 0
    parameters: int = 0
    lowest: int = 0
    bends: bool = False
    divides: bool = False
    smooth: bool = False
    jumps: bool = False
    infinite: bool = False

    @property
    def constant(self) -> bool:
        """Whether the value depends on nothing."""
        return self.data == 0 and self.parameters == 0

    @property
    def exact(self) -> bool:
        """Whether the value at rational numbers is one."""
        return not (self.smooth or self.jumps or self.infinite)


_DISCRETE = Degree(lowest=_CURVED)
_LINEAR = {Kind.MOVES, Kind.SELECTS, Kind.ADDS}
_SMOOTH = {Kind.CURVES, Kind.CALLS}


def degrees(program: Program, parameters: int) -> dict[int, Degree]:
    """The degree of every value; the first `parameters` inputs are parameters, the others data."""
    values = program.values
    start = {
        i: Degree(parameters=1)
        if at < parameters
        else Degree(data=1, lowest=1)
        if values[i].real
        else _DISCRETE
        for at, i in enumerate(program.inputs)
    }

    def constant(i: int) -> Degree:
        zero = not (values[i].real and np.any(program.constants[i]))
        infinite = values[i].real and not np.isfinite(program.constants[i]).all()
        return Degree(lowest=_CURVED if zero else 0, infinite=bool(infinite))

    return forward(program, start, constant, lambda node, given: _carry(program, node, given))


def join(a: Degree, b: Degree) -> Degree:
    """The degree of a sum, or of a choice."""
    return Degree(
        max(a.data, b.data),
        max(a.parameters, b.parameters),
        min(a.lowest, b.lowest),
        a.bends or b.bends,
        a.divides or b.divides,
        a.smooth or b.smooth,
        a.jumps or b.jumps,
        a.infinite or b.infinite,
    )


def _carry(program: Program, node: Node, given: Sequence[Degree]) -> list[Degree]:
    joint, kind = reduce(join, given), node.primitive.kind
    of_reals = any(program.values[i].real for i in node.inputs)
    found = _of_reals(program, node, given, joint) if of_reals else replace(joint, lowest=0)
    gate = replace(
        _DISCRETE,
        bends=joint.bends or of_reals,
        smooth=joint.smooth or (of_reals and kind in _SMOOTH),
        jumps=joint.jumps or (of_reals and kind not in _SMOOTH and not program.bends(node)),
    )
    return [found if program.values[o].real else gate for o in node.outputs]


def _of_reals(program: Program, node: Node, given: Sequence[Degree], joint: Degree) -> Degree:
    kind = node.primitive.kind
    if kind in _LINEAR:
        return joint
    if program.bends(node):
        return replace(joint, bends=True)
    if kind is Kind.MULTIPLIES:
        return replace(
            joint,
            data=_sum(a.data for a in given),
            parameters=_sum(a.parameters for a in given),
            lowest=_sum(a.lowest for a in given),
        )
    if node.primitive.exponent is not None:
        times = node.primitive.exponent(node.options, program.values[node.inputs[0]].shape)
        return replace(
            joint,
            data=min(_CURVED, joint.data * abs(times)),
            parameters=min(_CURVED, joint.parameters * abs(times)),
            lowest=min(_CURVED, joint.lowest * abs(times)),
            divides=joint.divides or times < 0,
        )
    if kind is Kind.DIVIDES:
        return given[0] if given[1].constant else replace(_curved(joint), divides=True)
    if kind in _SMOOTH:
        return replace(_curved(joint), smooth=True)
    return replace(_curved(joint), jumps=True)


def _sum(degrees: Iterable[int]) -> int:
    return min(_CURVED, sum(degrees))


def _curved(a: Degree) -> Degree:
    return replace(
        a, data=_CURVED if a.data else 0, parameters=_CURVED if a.parameters else 0, lowest=0
    )
