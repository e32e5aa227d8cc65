"""A program as a list of instructions that anyone can run: the walk, writing down what it would do.

Nine operations on flat arrays of exact numbers are left. An index map is written as the list of places it reads, counted from 1
through its arguments one after the other; place 0 reads a zero.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic

OPERATIONS = ("number", "gather", "add", "negate", "multiply", "divide", "dot", "sum", "scatter")


class Entry(NamedTuple):
    """The array that an instruction makes: its number in the list, and its shape."""

    index: int
    shape: tuple[int, ...]


class Listing(Arithmetic):
    """Collects `instructions`: lists [operation, arguments, details…], where arguments are numbers of earlier instructions."""

    name = "instructions"

    def __init__(self) -> None:
        self.instructions: list[list[Any]] = []

    def _add(self, shape: tuple[int, ...], *instruction: Any) -> Entry:
        self.instructions.append(list(instruction))
        return Entry(len(self.instructions) - 1, tuple(int(n) for n in shape))

    def lift(self, a: np.ndarray) -> Entry:
        """Numbers as hexadecimal floats, which are exact, or as integers."""
        flat = np.asarray(a).ravel()
        shown = [int(v) for v in flat] if flat.dtype.kind in "iub" else [float(v).hex() for v in flat]
        return self._add(np.shape(a), "number", shown)

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Entry) -> Entry:
        starts = np.cumsum([1, *(math.prod(v.shape) for v in values)])
        places = fn(
            *(int(s) + np.arange(math.prod(v.shape)).reshape(v.shape) for s, v in zip(starts, values, strict=False))
        )
        if len(values) == 1 and places.size == starts[1] - 1 and (places.ravel() == np.arange(1, starts[1])).all():
            return Entry(values[0].index, places.shape)
        return self._add(places.shape, "gather", [v.index for v in values], places.ravel().tolist())

    def shape(self, a: Entry) -> tuple[int, ...]:
        return a.shape

    def _together(self, a: Entry, b: Entry) -> tuple[Entry, Entry]:
        shape = np.broadcast_shapes(a.shape, b.shape)
        spread = lambda v: v if v.shape == shape else self.rearrange(lambda z: np.broadcast_to(z, shape), v)  # noqa: E731
        return spread(a), spread(b)

    def add(self, a: Entry, b: Entry) -> Entry:
        a, b = self._together(a, b)
        return self._add(a.shape, "add", [a.index, b.index])

    def negate(self, a: Entry) -> Entry:
        return self._add(a.shape, "negate", [a.index])

    def multiply(self, a: Entry, b: Entry) -> Entry:
        a, b = self._together(a, b)
        return self._add(a.shape, "multiply", [a.index, b.index])

    def divide(self, a: Entry, b: Entry) -> Entry:
        a, b = self._together(a, b)
        return self._add(a.shape, "divide", [a.index, b.index])

    def dot(self, a: Entry, b: Entry) -> Entry:
        lead, (m, k), n = a.shape[:-2], a.shape[-2:], b.shape[-1]
        return self._add((*lead, m, n), "dot", [a.index, b.index], [math.prod(lead), m, k, n])

    def sum(self, a: Entry, axes: tuple[int, ...]) -> Entry:
        axes = tuple(d % len(a.shape) for d in axes)
        kept = [d for d in range(len(a.shape)) if d not in axes]
        last = self.rearrange(lambda z: z.transpose([*kept, *axes]), a)
        return self._add(tuple(a.shape[d] for d in kept), "sum", [last.index], math.prod(a.shape[d] for d in axes))

    def scatter_add(self, base: Entry, index: np.ndarray, updates: Entry) -> Entry:
        return self._add(base.shape, "scatter", [base.index, updates.index], index.ravel().tolist())
