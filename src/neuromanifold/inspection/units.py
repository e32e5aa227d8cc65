"""The units of a network by what they do on a sample: on everywhere, off everywhere, or
switching.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.models.model_kind import perceptron


@dataclass(frozen=True)
class LayerUnits:
    """The units of one hidden layer (of one bend, where the network is no perceptron) on the
    sample.

    `channels` counts the slices along the axis that parameters tell apart where units lie in space,
    as (channels, height, width) or (height, width, channels), and `dead_channels` those that are
    off at every position and every sample; both are 0 for other units. `shares` says at which share of
    samples (and positions) each unit, channel or feature (`kind`) is on: 0 and 1 only where it is so
    everywhere.
    """

    width: int
    active: int
    inactive: int
    name: str = ""
    channels: int = 0
    dead_channels: int = 0
    kind: str = "unit"
    shares: np.ndarray = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)

    @property
    def dead(self) -> tuple[int, ...]:
        """Which units, channels or features (`kind`) are off at every sample and every position, by
        their numbers.

        >>> LayerUnits(3, 0, 2, shares=np.array([0.0, 0.4, 0.0])).dead
        (0, 2)
        """
        return tuple(map(int, np.flatnonzero(self.shares == 0)))

    @property
    def cells(self) -> int:
        """How many units, channels or features (`kind`) the layer has."""
        return len(self.shares)

    @property
    def on(self) -> int:
        """How many of them are on at every sample and every position."""
        return int((self.shares == 1).sum())

    @property
    def off(self) -> int:
        """How many of them are off at every sample and every position."""
        return len(self.dead)

    @property
    def switching(self) -> int:
        """Units that are on at some samples and off at others."""
        return self.width - self.active - self.inactive


def kinds_of(layers: Sequence[LayerUnits]) -> str:
    """What the cells of the layers are, in the plural: units, channels, features."""
    found = list(dict.fromkeys(f"{status.kind}s" for status in layers))
    return " and ".join(found)


def statuses(
    f: Any,
    graph: Graph,
    patterns: Sequence[np.ndarray],
    others: Iterable[Sequence[np.ndarray]] = (),
) -> tuple[LayerUnits, ...]:
    """From the activation pattern (samples, units) of each layer, and those of `others`, further
    batches of samples. Places in the windows of a maximum are not counted: one always wins.

    A unit that bends twice, as that of ReLU6, is one unit, which is on where it passes its signal.
    """
    named = _name_units(f, graph, len(patterns))
    stages = (
        graph.stages
        if len(patterns) == len(graph.units) and not perceptron(f)
        else [(i,) for i in range(len(patterns))]
    )
    shown = [mine for mine in stages if named[mine[0]][3] and patterns[mine[0]].shape[1]]
    counts, n = [np.zeros(patterns[mine[0]].shape[1], int) for mine in shown], 0
    for batch in itertools.chain((patterns,), others):
        n += len(batch[0])
        for count, mine in zip(counts, shown, strict=True):
            count += np.logical_and.reduce([batch[i] for i in mine]).sum(axis=0)
    return tuple(
        _status(count, n, *named[mine[0]][:3]) for count, mine in zip(counts, shown, strict=True)
    )


def _name_units(
    f: Any, graph: Graph, count: int
) -> list[tuple[str, tuple[int, ...], int | None, bool]]:
    """Name, shape without the axis of the one sample, the axis of the channels, and whether its
    places are units, of each bend.
    """
    if perceptron(f) or count != len(graph.units):
        return [(f"layer {i + 1}", (), None, True) for i in range(count)]
    return [
        (
            u.name.removesuffix(".bias").removesuffix(".weight"),
            u.shape[1:] if u.shape[:1] == (1,) else u.shape,
            u.channels if u.channels is None or u.shape[:1] != (1,) else u.channels - 1,
            u.switches,
        )
        for u in graph.units
    ]


def _status(
    count: np.ndarray, n: int, name: str, shape: tuple[int, ...], axis: int | None
) -> LayerUnits:
    """Of the number of samples, of `n`, at which each unit is on."""
    on, off = count == n, count == 0
    channels = shape[axis] if len(shape) == 3 and axis is not None else 0
    dead = int(_by(axis or 0, off, shape).all(axis=1).sum()) if channels else 0
    kind, shares = _shares(count / n, shape, axis)
    return LayerUnits(len(count), int(on.sum()), int(off.sum()), name, channels, dead, kind, shares)


def _shares(on: np.ndarray, shape: tuple[int, ...], axis: int | None) -> tuple[str, np.ndarray]:
    """By channel where units lie in space, by feature where they belong to tokens, else one by
    one.
    """
    if len(shape) == 2:
        return "feature", _by(1 if axis is None else axis, on, shape).mean(axis=1)
    return (
        ("unit", on)
        if len(shape) != 3 or axis is None
        else ("channel", _by(axis, on, shape).mean(axis=1))
    )


def _by(axis: int, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The values of each channel, (channels, places)."""
    return np.moveaxis(values.reshape(shape), axis, 0).reshape(shape[axis], -1)
