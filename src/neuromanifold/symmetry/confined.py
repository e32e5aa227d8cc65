"""Directions inside one unit, one layer or two, that change nothing because what these receive and send is confined to a subspace.

The columns of J that belong to the incoming weights of unit i are signal_i(x)·(features(x), 1), where the unit is on and heard. A
direction orthogonal to these features moves nothing. The same holds for its outgoing weights, with the roles exchanged, for a whole
layer, whose columns are products of a signal and a feature, and for two layers in a row, where such products of one make up for
those of the other. The whole network is no such place: that would explain its kernel by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

LARGEST = 1200
"""Parameters that are looked at together; more are not."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Positions of parameters of one unit, one layer, and two layers that follow each other, none the whole network; what is too large."""

    units: tuple[np.ndarray, ...]
    layers: tuple[np.ndarray, ...]
    pairs: tuple[np.ndarray, ...]
    left_out: tuple[str, ...]

    @staticmethod
    def of(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> "Blocks":
        """Slices of leaves along every axis, each with the entry of a bias of that length; leaves whose names differ at the end only."""
        layers = dict(_layers(names, shapes))
        ordered = list(layers.items())
        pairs = {f"{a}, {b}": np.concatenate([p, q]) for (a, p), (b, q) in pairwise(ordered) if len(ordered) > 2}
        layers = layers if len(layers) > 1 else {}
        sizes = {name: len(block) for name, block in (*layers.items(), *pairs.items())}
        left_out = tuple(
            f"the {size:,} parameters of {name} together" for name, size in sizes.items() if size > LARGEST
        )
        whole, two = (tuple(b for b in part if 1 < len(b) <= LARGEST) for part in (layers.values(), pairs.values()))
        units = tuple(block for block in _units(names, shapes) if 1 < len(block) <= LARGEST)
        return Blocks(units, whole, two, left_out)


def _units(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> Iterator[np.ndarray]:
    places = _places(shapes)
    for name, place in zip(names, places, strict=True):
        beside = [b for other, b in zip(names, places, strict=True) if b.ndim == 1 and _layer(other) == _layer(name)]
        for axis in range(place.ndim if place.ndim > 1 else 0):
            for k, part in enumerate(np.moveaxis(place, axis, 0)):
                yield np.concatenate([part.ravel(), *(b[k : k + 1] for b in beside if len(b) == place.shape[axis])])


def _layers(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, np.ndarray]]:
    layers: dict[str, list[np.ndarray]] = {}
    for name, place in zip(names, _places(shapes), strict=True):
        layers.setdefault(_layer(name), []).append(place.ravel())
    yield from ((name, np.concatenate(parts)) for name, parts in layers.items())


def _layer(name: str) -> str:
    return name.rpartition(".")[0] or name


def _places(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    starts = np.cumsum([0, *(int(np.prod(shape, dtype=int)) for shape in shapes)])
    return [np.arange(a, b).reshape(s) for a, b, s in zip(starts[:-1], starts[1:], shapes, strict=True)]
