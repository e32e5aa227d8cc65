"""How far apart the sizes of numbers are that a network adds: terms beyond the precision of float64 are lost in silence."""

from collections.abc import Sequence

import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.arithmetic import Floats
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.walk import walk

_SHARE = 0.02
_FEW_ROWS = 64


class Scales(Floats):
    """Plain float64 that remembers, in `bits`, the widest spread among the terms of a sum: log₂ of largest over smallest.

    In sums of many terms the smallest 2 % do not count: a few tiny products are everywhere.
    """

    name = "scales"

    def __init__(self) -> None:
        self.bits = 0.0

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        one, two = np.broadcast_arrays(np.abs(a), np.abs(b))
        both = (one > 0) & (two > 0) & np.isfinite(one) & np.isfinite(two)
        if both.any():
            self._note(float(np.abs(np.log2(one[both]) - np.log2(two[both])).max()))
        return a + b

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        rows = np.abs(a).reshape(-1, *a.shape[-2:])[:1, :_FEW_ROWS]
        columns = np.abs(b).reshape(-1, *b.shape[-2:])[:1, :, :_FEW_ROWS]
        terms = rows[0][:, :, None] * columns[0][None]
        with np.errstate(divide="ignore"):
            logs = np.sort(np.where((terms > 0) & np.isfinite(terms), np.log2(terms), np.nan), axis=1)
        counts = np.isfinite(logs).sum(axis=1, keepdims=True)
        if (counts > 1).any():
            low = np.take_along_axis(logs, np.floor(_SHARE * counts).astype(int), axis=1)
            high = np.take_along_axis(logs, np.maximum(counts - 1, 0), axis=1)
            self._note(float(np.nanmax(high - low)))
        return a @ b

    def _note(self, bits: float) -> None:
        self.bits = max(self.bits, bits)


def spread(graph: Graph, leaves: Sequence[np.ndarray], data: Sequence[np.ndarray]) -> float:
    """The widest spread, in bits, among the terms that f adds at a few samples; nan where an operation is not known."""
    A, n = Scales(), min(4, len(data[0]))
    inputs = [*(A.lift(a) for a in leaves), *(A.lift(a[:n]) if a.dtype.kind == "f" else a[:n] for a in data)]
    try:
        with np.errstate(all="ignore"):
            gates = walk(programs.decisions(graph, n), A, inputs) if graph.units else []
            walk(programs.values(graph, n), A, [*inputs, *gates])
    except (AttributeError, TypeError):
        return float("nan")
    return A.bits
