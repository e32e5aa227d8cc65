"""What the channels of a network can be on a box of inputs: lower and upper bounds of every value,
carried through the program in float64.

Sums and monotone functions take bounds to bounds; a product of A ± a with B ± b lies within AB ±
(|A|b + a|B| + ab). Bounds of products are widened by more than rounding can move them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from neuromanifold.graph.dataflow import forward
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.primitives import Kind
from neuromanifold.graph.program import Node
from neuromanifold.numerics.precision import arithmetic, is_floating
from neuromanifold.symmetry.reduction.readings import Data, Reading, Readings, Wanted

_WIDER = 1e-12


class Bounds(NamedTuple):
    """Numbers between which each entry of a value lies; truth values are 0 or 1."""

    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs whose entries lie between `low` and `high`, arrays of one sample's shape."""

    low: Data
    high: Data

    @staticmethod
    def of(domain: Any, graph: Graph) -> "Box":
        """The box that a pair (low, high) of numbers, arrays or trees like one sample means."""
        if not isinstance(domain, tuple) or len(domain) != 2:
            raise TypeError(
                f"`domain` is a {type(domain).__name__}; pass a pair (low, high) of numbers or of "
                "arrays in the shape of one sample."
            )
        sample = jax.tree.leaves(graph.sample)
        if not all(is_floating(leaf) for leaf in sample):
            raise TypeError(
                "`domain` is a box of real numbers but `x` has whole numbers; leave `domain` out."
            )
        low, high = (tuple(_fill(side, sample)) for side in domain)
        if not all((a <= b).all() for a, b in zip(low, high, strict=True)):
            raise ValueError("`domain` has a lower bound above the upper one; pass (low, high).")
        return Box(low, high)

    def drawn(self, count: int, rng: np.random.Generator) -> Data:
        """Random inputs in the box."""
        return tuple(
            a + (b - a) * rng.random((count, *a.shape))
            for a, b in zip(self.low, self.high, strict=True)
        )


def _fill(side: Any, sample: Sequence[Any]) -> list[np.ndarray]:
    given = [side] * len(sample) if np.ndim(side) == 0 else jax.tree.leaves(side)
    try:
        return [
            np.array(np.broadcast_to(np.asarray(a, np.float64), leaf.shape))
            for a, leaf in zip(given, sample, strict=True)
        ]
    except ValueError:
        shapes = [tuple(leaf.shape) for leaf in sample]
        raise ValueError(
            f"`domain` has arrays of shapes {[np.shape(a) for a in given]}; one sample has "
            f"{shapes}: pass numbers or arrays of that shape."
        ) from None


def read_box(graph: Graph, leaves: Sequence[np.ndarray], box: Box, wanted: Wanted) -> Readings:
    """What the channels of the values `wanted` can be on a box, as readings without means."""
    program, count = graph.program, len(leaves)
    start = {i: Bounds(a, a) for i, a in zip(program.inputs, leaves, strict=False)}
    ends = zip(program.inputs[count:], box.low, box.high, strict=True)
    start |= {i: Bounds(a, b) for i, a, b in ends}

    def constant(i: int) -> Bounds:
        return Bounds(program.constants[i], program.constants[i])

    with arithmetic(), np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        values = tuple(value for value, _ in wanted)
        found = forward(
            program,
            start,
            constant,
            lambda node, facts: _carry(graph, node, facts),
            wanted=values,
        )
    readings = {}
    for value, axis in wanted:
        low, high = (
            np.moveaxis(side, axis, 0).reshape(side.shape[axis], -1) for side in found[value]
        )
        nothing = np.full(len(low), np.nan)
        readings[value, axis] = Reading(
            low.min(1), high.max(1), nothing, nothing, np.zeros((0, len(low)))
        )
    return Readings(2, readings)


def _carry(graph: Graph, node: Node, facts: list[Bounds]) -> list[Bounds]:
    """Bounds of a node's results; none at all where nothing is known of it."""
    if all(fact.low is fact.high or np.array_equal(*fact) for fact in facts):
        values = _evaluate(node, [fact.low for fact in facts])
        return [Bounds(a, a) for a in values]
    row = node.primitive
    if any(fact.low.dtype.kind in "iu" and not np.array_equal(*fact) for fact in facts):
        return _without_bounds(graph, node)  # it may choose other entries
    if row.kind is Kind.MULTIPLIES and len(facts) == 2:
        return [_product(node, *facts)]
    if row.kind is Kind.ADDS and row.entrywise:
        return [_bound_by_signs(node, facts, row.signs)]
    if row.kind is Kind.BENDS and not graph.program.values[node.outputs[0]].real:
        return [_compare(node, *facts)]
    if row.kind is Kind.SELECTS:
        return [_select(node, *facts)]
    if row.kind is Kind.DIVIDES:
        return [_divide(*facts)]
    if (row.kind is Kind.RAISES and row.entrywise) or (row.kind is Kind.BENDS and row.parity):
        return [_power(node, facts[0])]
    if row.kind in (Kind.MOVES, Kind.ADDS) or row.monotone:
        low, high = (_evaluate(node, [fact[k] for fact in facts]) for k in (0, 1))
        low, high = (high, low) if row.monotone < 0 else (low, high)
        return [_order(a, b) for a, b in zip(low, high, strict=True)]
    return _without_bounds(graph, node)


def _without_bounds(graph: Graph, node: Node) -> list[Bounds]:
    values = [graph.program.values[o] for o in node.outputs]
    return [Bounds(np.full(v.shape, -np.inf), np.full(v.shape, np.inf)) for v in values]


def _evaluate(node: Node, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(a) for a in node.evaluate(*arrays)]


def _order(low: np.ndarray, high: np.ndarray) -> Bounds:
    """Bounds; where a function is not defined, none."""
    if low.dtype.kind != "f":
        return Bounds(low, high)
    undefined = np.isnan(low) | np.isnan(high)
    return Bounds(np.where(undefined, -np.inf, low), np.where(undefined, np.inf, high))


def _bound_by_signs(node: Node, facts: Sequence[Bounds], signs: Sequence[int]) -> Bounds:
    low = [fact.low if sign > 0 else fact.high for fact, sign in zip(facts, signs, strict=True)]
    high = [fact.high if sign > 0 else fact.low for fact, sign in zip(facts, signs, strict=True)]
    return _order(_evaluate(node, low)[0], _evaluate(node, high)[0])


def _product(node: Node, one: Bounds, two: Bounds) -> Bounds:
    (A, a), (B, b) = (((f.low + f.high) / 2, (f.high - f.low) / 2) for f in (one, two))
    [middle] = _evaluate(node, [A, B])
    parts = [(np.abs(A) * (1 + _WIDER) + a, b), (a, np.abs(B)), (np.abs(A), _WIDER * np.abs(B))]
    reach = sum(_evaluate(node, part)[0] for part in parts)
    return _order(middle - reach, middle + reach)


def _compare(node: Node, one: Bounds, two: Bounds) -> Bounds:
    """A comparison: false, true or either, by those of the bounds that are farthest apart."""
    answers = [_evaluate(node, [a, b])[0] for a in (one.low, one.high) for b in (two.low, two.high)]
    inner = node.operation in ("eq", "ne")
    apart = (one.high < two.low) | (two.high < one.low)
    if inner:
        same = np.asarray(node.operation == "eq")
        return Bounds(np.where(apart, ~same, False), np.where(apart, ~same, True))
    return Bounds(np.logical_and.reduce(answers), np.logical_or.reduce(answers))


def _select(node: Node, which: Bounds, *cases: Bounds) -> Bounds:
    shape = cases[0].low.shape
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for k, case in enumerate(cases):
        may = (which.low <= k) & (which.high >= k)
        low = np.where(may, np.minimum(low, case.low), low)
        high = np.where(may, np.maximum(high, case.high), high)
    return Bounds(low, high)


def _divide(one: Bounds, two: Bounds) -> Bounds:
    ends = [a / b for a in one for b in two]
    around = (two.low <= 0) & (two.high >= 0)
    low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
    return _order(np.where(around, -np.inf, low), np.where(around, np.inf, high))


def _power(node: Node, fact: Bounds) -> Bounds:
    """A power, or the absolute value: what it is at the ends, and at zero where that is inside; a
    negative power has no bounds there.
    """
    ends = [_evaluate(node, [a])[0] for a in fact]
    low, high = np.minimum(*ends), np.maximum(*ends)
    around = (fact.low <= 0) & (fact.high >= 0)
    [at_zero] = _evaluate(node, [np.zeros_like(fact.low)])
    finite = np.isfinite(at_zero)
    low = np.where(around, np.where(finite, np.minimum(low, at_zero), -np.inf), low)
    return _order(low, np.where(around & ~finite, np.inf, high))
