"""Channels of any network: axes of parameters that are one hidden axis, and the slices of the
parameters that belong to each channel.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.graph.axes import Labels, Place

Arrays = list[np.ndarray]
_PIECE = 2**21  # entries that are copied at once


@dataclass(frozen=True)
class Slot:
    """An axis of a leaf that holds the channels: from place `start` on, `before` slower and `after`
    faster places around each of `size` channels; whether its product sums over them (`reads`).
    """

    leaf: int
    axis: int
    before: int
    size: int
    after: int
    start: int = 0
    reads: bool = False

    @staticmethod
    def at(leaf: int, axis: int, place: Place) -> "Slot":
        """Return the slot of a leaf where an axis of it has a place of the channels."""
        return Slot(leaf, axis, place.before, place.size, place.after, place.start)

    @property
    def length(self) -> int:
        """How many places of the axis it has."""
        return self.before * self.size * self.after

    def slices(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the entries of each channel, (size, rest)."""
        return self._view(arrays[self.leaf]).reshape(self.size, -1)

    def width(self, arrays: Sequence[np.ndarray]) -> int:
        """Return how many entries each channel has."""
        return math.prod(self._view(arrays[self.leaf]).shape[1:])

    def pieces(self, arrays: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the entries of each channel in parts, (size, some of the rest): no second copy of a
        large leaf.
        """
        for part in _cut(self._view(arrays[self.leaf])):
            yield part.reshape(self.size, -1)

    def squares(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sum of the squares of each channel's entries."""
        sums = (np.einsum("ij,ij->i", own, own) for own in self.pieces(arrays))
        return sum(sums, np.zeros(self.size))

    def rows(self, arrays: Sequence[np.ndarray], which: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the entries of some channels, (chosen, rest)."""
        return self._view(arrays[self.leaf])[which].reshape(len(which), -1)

    def add(self, arrays: Arrays, which: Sequence[int], rows: np.ndarray) -> None:
        """Add `rows` to the entries of some channels, one after another; the leaf is copied."""
        a = align(arrays[self.leaf])
        view = self._view(a)
        np.add.at(view, which, rows.reshape(-1, *view.shape[1:]))
        arrays[self.leaf] = a

    def put_rows(self, arrays: Arrays, which: Sequence[int] | np.ndarray, rows: np.ndarray) -> None:
        """Put `rows` in the place of the entries of some channels; the leaf is copied."""
        a = align(arrays[self.leaf])
        view = self._view(a)
        view[which] = rows.reshape(-1, *view.shape[1:])
        arrays[self.leaf] = a

    def put(self, arrays: Arrays, slices: np.ndarray) -> None:
        """Put `slices` in the place of the channels' entries; the leaf is copied."""
        a = align(arrays[self.leaf])
        view = self._view(a)
        view[...] = slices.reshape(view.shape)
        arrays[self.leaf] = a

    def change(self, arrays: Arrays, function: Callable[[np.ndarray], np.ndarray]) -> None:
        """Put what `function` makes of each of the `pieces` in its place; the leaf is copied."""
        a = align(arrays[self.leaf])
        for part in _cut(self._view(a)):
            part[...] = function(part.reshape(self.size, -1)).reshape(part.shape)
        arrays[self.leaf] = a

    def clear(self, arrays: Arrays, which: np.ndarray) -> None:
        """Zeros in place of the entries of these channels; the leaf is copied."""
        a = align(arrays[self.leaf])
        self._view(a)[which] = 0.0
        arrays[self.leaf] = a

    def kept(self, which: np.ndarray) -> np.ndarray:
        """Return the places of the axis where these channels are (a mask, or numbers in some
        order).
        """
        places = self.start + np.arange(self.length)
        return places.reshape(self.before, self.size, self.after)[:, which].ravel()

    def spread(self, values: np.ndarray, total: int, fill: float = 1.0) -> np.ndarray:
        """Return one number for each channel as one for each of `total` places of the axis, `fill`
        where it has none.
        """
        found = np.full(total, fill, np.result_type(values, np.float64))
        found[self.start : self.start + self.length] = np.tile(
            np.repeat(values, self.after), self.before
        )
        return found

    def by_head(self, each: "Slot | None", a: np.ndarray) -> np.ndarray:
        """Return a view of the leaf with the heads in front, whose slot is `each` (one head where
        it is None), then the channels.
        """
        if each is None:
            return self._view(a)[None]
        if each.axis == self.axis:
            part = np.moveaxis(a, self.axis, 0)[self.start : self.start + self.length]
            slow, fast = (each, self) if each.before < self.before else (self, each)
            between = fast.before // (slow.before * slow.size)
            lengths = (slow.before, slow.size, between, fast.size, fast.after)
            split = part.reshape(*lengths, *part.shape[1:])
            return np.moveaxis(split, (1, 3) if slow is each else (3, 1), (0, 1))
        both = np.moveaxis(a, (each.axis, self.axis), (0, 1))
        part = both[each.start : each.start + each.length, self.start : self.start + self.length]
        lengths = (each.before, each.size, each.after, self.before, self.size, self.after)
        return np.moveaxis(part.reshape(*lengths, *part.shape[2:]), (1, 4), (0, 1))

    def beside(self, others: Sequence["Slot"]) -> "Slot | None":
        """Return the one of another atom's slots that the same entries have; None where there is
        none.
        """
        for other in others:
            around = (other.axis, other.start, other.length) == (self.axis, self.start, self.length)
            if other.leaf == self.leaf and (around or other.axis != self.axis):
                return other
        return None

    def _view(self, a: np.ndarray) -> np.ndarray:
        """Return a view of the leaf with the channels in front."""
        part = np.moveaxis(a, self.axis, 0)[self.start : self.start + self.length]
        # Splitting the first axis of a view copies nothing.
        split = part.reshape(self.before, self.size, self.after, *part.shape[1:])
        return np.moveaxis(split, 1, 0)


def _cut(view: np.ndarray) -> Iterator[np.ndarray]:
    """Yield parts of an array along the longest axis but the first."""
    axis = 1 + int(np.argmax(view.shape[1:]))
    count = view.shape[axis]
    step = max(1, _PIECE * count // max(1, view.size))
    for start in range(0, count, step):
        yield view[(*[slice(None)] * axis, slice(start, start + step))]


def align(a: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Return a copy that begins at a multiple of 64 bytes, so that JAX can read it where it is."""
    dtype = np.dtype(a.dtype if dtype is None else dtype)
    buffer = np.empty(a.size * dtype.itemsize + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    found = buffer[start : start + a.size * dtype.itemsize].view(dtype).reshape(a.shape)
    found[...] = a
    return found


def scale_slots(arrays: Sequence[np.ndarray], slots: Sequence[Slot], factors: np.ndarray) -> Arrays:
    """Return the arrays with channel i of slot s multiplied by `factors[s, i]`."""
    found = list(arrays)
    for slot, row in zip(slots, factors, strict=True):
        slot.change(found, lambda own, row=row: own * row[:, None])
    return found


@dataclass(frozen=True)
class Channels:
    """One hidden axis: its name (the first leaf that writes it), its atom, how many channels, and
    where parameters meet them.
    """

    name: str
    atom: int
    size: int
    slots: tuple[Slot, ...]

    def written(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return what makes each channel, (size, rest)."""
        return self._join(arrays, False)

    def read(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return what is made of each channel, (size, rest)."""
        return self._join(arrays, True)

    def _join(self, arrays: Sequence[np.ndarray], reads: bool) -> np.ndarray:
        own = [slot.slices(arrays) for slot in self.slots if slot.reads == reads]
        return np.concatenate([np.zeros((self.size, 0)), *own], axis=1)

    def changed(
        self, arrays: Sequence[np.ndarray], which: np.ndarray, value: float = 0.0
    ) -> Arrays:
        """Return the parameters with the chosen channels' slices set to a number."""
        found = list(arrays)
        for slot in self.slots:
            slices = slot.slices(found).copy()
            slices[which] = value
            slot.put(found, slices)
        return found

    def rewritten(
        self, arrays: Sequence[np.ndarray], written: np.ndarray, read: np.ndarray
    ) -> Arrays:
        """Return the parameters with other entries of all channels."""
        found, starts = list(arrays), [0, 0]
        for slot in self.slots:
            whole, start = (read, starts[1]) if slot.reads else (written, starts[0])
            width = slot.slices(found).shape[1]
            slot.put(found, whole[:, start : start + width])
            starts[int(slot.reads)] += width
        return found


def slots_by_atom(labels: Labels, leaves: int) -> dict[int, tuple[Slot, ...]]:
    """Return for each atom that the first `leaves` inputs have, where they have it."""
    found: dict[int, list[Slot]] = {}
    for leaf, axes in enumerate(labels.inputs[:leaves]):
        for axis, atoms in enumerate(axes):
            for place in labels.places(atoms):
                found.setdefault(place.atom, []).append(Slot.at(leaf, axis, place))
    return {atom: tuple(slots) for atom, slots in sorted(found.items())}
