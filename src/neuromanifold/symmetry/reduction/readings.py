"""What the channels of a network are on data: one pass keeps a few numbers for each channel and
each sum over the channels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.interpret import interpret
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
    with arithmetic():
        given = [jnp.asarray(leaf) for leaf in leaves]
        for number, batch in enumerate(batches):
            n = len(batch[0])
            key = jax.random.key(number)
            new = jax.tree.map(np.asarray, _read(graph, wanted, given, list(batch), key))
            total += n
            parts = (
                new if parts is None else [_joined(a, b) for a, b in zip(parts, new, strict=True)]
            )
    found = {}
    for at, (low, high, mean, square, projections, count) in zip(wanted, parts or (), strict=True):
        found[at] = Reading(low, high, mean / count, square / count, projections / count)
    return Readings(total, found)


def _joined(a: Any, b: Any) -> Any:
    low, high, *sums = zip(a, b, strict=True)
    return (np.minimum(*low), np.maximum(*high), *(x + y for x, y in sums))


@partial(jax.jit, static_argnums=(0, 1))
def _read(graph: Graph, wanted: Wanted, leaves: Any, batch: Any, key: Any) -> Any:
    values = tuple(dict.fromkeys(value for value, _ in wanted))

    def one(sample: Any) -> Any:
        found = interpret(graph.program, [*leaves, *sample], None, wanted=values)
        return found[len(graph.program.outputs) :]

    known = dict(zip(values, jax.vmap(one)(batch), strict=True))
    return [_reduced(known[value], axis + 1, key) for value, axis in wanted]


def _reduced(a: Any, axis: int, key: Any) -> Any:
    rows = jnp.moveaxis(a, axis, -1).reshape(-1, a.shape[axis])
    weights = jax.random.normal(key, (_PROJECTIONS, len(rows)), rows.dtype)
    return (
        rows.min(0),
        rows.max(0),
        rows.sum(0),
        jnp.square(rows).sum(0),
        weights @ rows,
        jnp.asarray(float(len(rows))),
    )
