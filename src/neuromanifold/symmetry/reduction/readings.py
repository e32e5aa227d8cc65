"""What the channels of a network are on data: one pass keeps a few numbers for each channel and
each sum over the channels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.interpret import interpret
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import arithmetic

_PROJECTIONS = 8
Wanted = tuple[tuple[int, int], ...]
"""Values of a program, each with the axis whose places are asked for."""
Data = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Reading:
    """The smallest and the largest number that each place of an axis had on the data, its mean, the
    mean of its squares, and its means with random weights, (projections, places), the same weights
    for every place.
    """

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    projections: np.ndarray


@dataclass(frozen=True, eq=False)
class Readings:
    """The readings of values on `samples` samples."""

    samples: int
    found: dict[tuple[int, int], Reading]

    def __getitem__(self, at: tuple[int, int]) -> Reading:
        return self.found[at]


def read_channels(
    graph: Graph, leaves: Sequence[np.ndarray], batches: Iterable[Data], wanted: Wanted
) -> Readings:
    """The readings of the values `wanted`, batch by batch, at these parameters."""
    total, parts = 0, None
    values = tuple(dict.fromkeys(value for value, _ in wanted))
    with arithmetic():
        given = [jax.device_put(leaf, may_alias=True) for leaf in leaves]
        for number, batch in enumerate(batches):
            known = dict(zip(values, _values(graph, values, given, list(batch)), strict=True))
            rng = np.random.default_rng(number)
            new = [_reduce(np.asarray(known[value]), axis + 1, rng) for value, axis in wanted]
            total += len(batch[0])
            parts = new if parts is None else [_join(a, b) for a, b in zip(parts, new, strict=True)]
    found = {}
    for at, (low, high, mean, square, projections, count) in zip(wanted, parts or (), strict=True):
        found[at] = Reading(low, high, mean / count, square / count, projections / count)
    return Readings(total, found)


def _join(a: Any, b: Any) -> Any:
    low, high, *sums = zip(a, b, strict=True)
    return (np.minimum(*low), np.maximum(*high), *(x + y for x, y in sums))


@compiled("graph", "values")
def _values(graph: Graph, values: tuple[int, ...], leaves: Any, batch: Any) -> Any:
    """The values of the program at every sample. Numbers are made of them on the host: a program
    with all the sums takes four times as long to compile.
    """

    def one(sample: Any) -> Any:
        found = interpret(graph.program, [*leaves, *sample], None, wanted=values)
        return found[len(graph.program.outputs) :]

    return jax.vmap(one)(batch)


def _reduce(a: np.ndarray, axis: int, rng: np.random.Generator) -> Any:
    rows = np.moveaxis(a, axis, -1).reshape(-1, a.shape[axis])
    return (
        rows.min(0),
        rows.max(0),
        rows.sum(0),
        np.einsum("ij,ij->j", rows, rows),
        rng.standard_normal((_PROJECTIONS, len(rows))) @ rows,
        float(len(rows)),
    )
