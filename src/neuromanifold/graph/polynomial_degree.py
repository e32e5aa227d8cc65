"""What is known of every value of a program: does it depend on parameters, on data, how, and
what was done on the way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from neuromanifold.graph.bends import BENDS
from neuromanifold.graph.discrete import DISCRETE
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.rules import RULES

DISCONTINUOUS = {
    "sign",
    "floor",
    "ceil",
    "round",
    "sort",
    "top_k",
    "approx_top_k",
    "argmax",
    "argmin",
    "rem",
    "nextafter",
    "is_finite",
}
_PRODUCTS = {"mul", "dot_general", "conv_general_dilated"}
_CURVED = 2


@dataclass(frozen=True)
class Character:
    """`degree` in the data once every bend is decided (0, 1, or 2 for anything else); `weights`,
    the same in the parameters.

    `lowest` is the lowest degree in the data of any term: 0 where there may be a constant one.
    `bends`: it went through a decision. `rational`: through a division by something that varies.
    `smooth`: through a function without an exact value. `broken`: through a function that jumps.
    """

    degree: int = 0
    weights: int = 0
    lowest: int = 0
    bends: bool = False
    rational: bool = False
    smooth: bool = False
    broken: bool = False

    @property
    def constant(self) -> bool:
        """Whether it depends on nothing."""
        return self.degree == 0 and self.weights == 0

    @property
    def exact(self) -> bool:
        """Whether its value at rational numbers is one."""
        return not (self.smooth or self.broken)


_DISCRETE = Character(lowest=_CURVED)


def characters(program: Program, parameters: int) -> dict[int, Character]:
    """The character of every value; the first `parameters` inputs are parameters, the others
    data.
    """
    known = {
        i: Character(lowest=0 if program.values[i].real and np.any(a) else _CURVED)
        for i, a in program.constants.items()
    }
    for at, i in enumerate(program.inputs):
        real = program.values[i].real
        known[i] = (
            Character(weights=1)
            if at < parameters
            else Character(degree=1, lowest=1)
            if real
            else _DISCRETE
        )
    for node in program.nodes:
        found = character(program, node, [known[i] for i in node.inputs])
        known |= dict.fromkeys(node.outputs, found)
    return known


def character(program: Program, node: Node, inputs: Sequence[Character]) -> Character:
    """That of a node's values, from those of its inputs."""
    name = node.operation
    joint = reduce(merged, inputs)
    real = any(program.values[i].real for i in node.inputs)
    if not program.values[node.outputs[0]].real and (name in BENDS or name in DISCRETE):
        return replace(
            _DISCRETE, bends=joint.bends or real, smooth=joint.smooth, broken=joint.broken
        )
    if not real:
        return replace(joint, lowest=0)
    if name in _PRODUCTS:
        return replace(
            joint,
            degree=_sum(a.degree for a in inputs),
            weights=_sum(a.weights for a in inputs),
            lowest=_sum(a.lowest for a in inputs),
        )
    if name in ("square", "integer_pow"):
        times = 2 if name == "square" else node.options["y"]
        powers = {
            name: min(_CURVED, getattr(joint, name) * abs(times))
            for name in ("degree", "weights", "lowest")
        }
        curved = replace(joint, **powers)
        return curved if times >= 0 else replace(curved, rational=True)
    if name == "div":
        return replace(inputs[0]) if inputs[1].constant else replace(_curved(joint), rational=True)
    if name in BENDS and real:
        return replace(joint, bends=True)
    if name in RULES:
        return joint
    return (
        replace(_curved(joint), broken=True)
        if name in DISCONTINUOUS
        else replace(_curved(joint), smooth=True)
    )


def merged(a: Character, b: Character) -> Character:
    """That of a sum, or of a choice."""
    return Character(
        max(a.degree, b.degree),
        max(a.weights, b.weights),
        min(a.lowest, b.lowest),
        a.bends or b.bends,
        a.rational or b.rational,
        a.smooth or b.smooth,
        a.broken or b.broken,
    )


def _sum(degrees: Iterable[int]) -> int:
    return min(_CURVED, sum(degrees))


def _curved(a: Character) -> Character:
    return replace(
        a, degree=_CURVED if a.degree else 0, weights=_CURVED if a.weights else 0, lowest=0
    )
