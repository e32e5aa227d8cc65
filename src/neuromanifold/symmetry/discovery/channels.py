"""Channels of any network: axes of parameters that are one hidden axis, the slices that write
each channel and those that read it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from neuromanifold.graph.axes import Axis, axis_labels
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Program
from neuromanifold.graph.uses import Leaf, entries, leaves

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Slot:
    """An axis of a leaf that holds the channels, `before` slower and `after` faster places around
    each; whether it reads them, and
    whether the leaf enters by products alone (a weight, no bias)."""

    leaf: int
    axis: int
    before: int
    size: int
    after: int
    reads: bool
    weighs: bool = False

    def slices(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The entries of each channel, (size, rest)."""
        return self._viewed(arrays[self.leaf]).reshape(self.size, -1)

    def put(self, arrays: Arrays, slices: np.ndarray) -> None:
        """Other entries in their place."""
        a = arrays[self.leaf]
        shape = self._viewed(a).shape
        split = (
            *a.shape[: self.axis],
            self.before,
            self.size,
            self.after,
            *a.shape[self.axis + 1 :],
        )
        back = np.moveaxis(
            slices.reshape(shape).reshape(self.size, *_without(split, self.axis + 1)),
            0,
            self.axis + 1,
        )
        arrays[self.leaf] = back.reshape(a.shape)

    def kept(self, which: np.ndarray) -> np.ndarray:
        """The places of the axis where these channels are (a mask, or numbers in some order)."""
        places = np.arange(self.before * self.size * self.after).reshape(
            self.before, self.size, self.after
        )
        return places[:, which].ravel()

    def spread(self, values: np.ndarray) -> np.ndarray:
        """One number for each channel as one for each place of the axis."""
        return np.tile(np.repeat(values, self.after), self.before)

    def _viewed(self, a: np.ndarray) -> np.ndarray:
        split = a.reshape(
            *a.shape[: self.axis], self.before, self.size, self.after, *a.shape[self.axis + 1 :]
        )
        return np.moveaxis(split, self.axis + 1, 0)


def _without(shape: Sequence[int], at: int) -> tuple[int, ...]:
    return (*shape[:at], *shape[at + 1 :])


@dataclass(frozen=True)
class Channels:
    """One hidden axis: its name (the first leaf that writes it), its label, how many channels,
    and where parameters meet them.
    """

    name: str
    atom: int
    size: int
    slots: tuple[Slot, ...]

    def written(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """What makes each channel, (size, rest)."""
        return self._joined(arrays, False)

    def unweighted(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Which channels have no weights, biases at most."""
        weights = [s.slices(arrays) for s in self.slots if s.weighs and not s.reads]
        return np.asarray(~np.concatenate([np.zeros((self.size, 1)), *weights], axis=1).any(axis=1))

    def read(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """What is made of each channel, (size, rest)."""
        return self._joined(arrays, True)

    def _joined(self, arrays: Sequence[np.ndarray], reads: bool) -> np.ndarray:
        return np.concatenate([s.slices(arrays) for s in self.slots if s.reads == reads], axis=1)

    def changed(
        self, arrays: Sequence[np.ndarray], which: np.ndarray, value: float, *, reads_only: bool
    ) -> Arrays:
        """The parameters with the chosen channels' slices set to a number."""
        found = list(arrays)
        for slot in self.slots:
            if slot.reads or not reads_only:
                slices = slot.slices(found).copy()
                slices[which] = value
                slot.put(found, slices)
        return found

    def rewritten(
        self, arrays: Sequence[np.ndarray], written: np.ndarray, read: np.ndarray
    ) -> Arrays:
        """The parameters with other entries of all channels."""
        found, starts = list(arrays), [0, 0]
        for slot in self.slots:
            whole, start = (read, starts[1]) if slot.reads else (written, starts[0])
            width = slot.slices(found).shape[1]
            slot.put(found, whole[:, start : start + width])
            starts[int(slot.reads)] += width
        return found

    def merged(self, arrays: Sequence[np.ndarray], into: np.ndarray, factor: np.ndarray) -> Arrays:
        """Where channel i is factor[i] times channel into[i]: the readers of the latter take
        over those of i, which goes.
        """
        found, gone = list(arrays), into != np.arange(self.size)
        for slot in self.slots:
            slices = slot.slices(found).copy()
            if slot.reads:
                np.add.at(slices, into[gone], factor[gone, None] * slices[gone])
            slices[gone] = 0.0
            slot.put(found, slices)
        return found


def channels_of(graph: Graph) -> tuple[Channels, ...]:
    """The hidden axes that parameters write and read by products alone, and that neither sample
    nor output shares.
    """
    program, count = graph.program, len(graph.parameters)
    labels, uses = axis_labels(program), leaves(program, count)
    outside = {
        a for axes in (*labels.inputs[count:], *labels.outputs) for axis in axes for a in axis
    }
    found: dict[int, list[Slot]] = {}
    twice = set(labels.rigid) | outside
    for index in range(count):
        reading = _reading_axes(program, uses[index])
        for axis, atoms in enumerate(labels.inputs[index]):
            for atom, slot in slots_of(
                index, axis, atoms, labels.sizes, axis in reading, bool(uses[index].uses)
            ):
                known = found.setdefault(atom, [])
                twice |= (
                    {atom}
                    if any(s.leaf == index and s.reads == slot.reads for s in known)
                    else set()
                )
                known.append(slot)
    usable = {
        a: slots
        for a, slots in found.items()
        if a not in twice and len({s.reads for s in slots}) == 2
    }
    return tuple(
        Channels(_writer(graph, uses, slots), atom, slots[0].size, tuple(slots))
        for atom, slots in usable.items()
        if slots[0].size > 1
    )


def _writer(graph: Graph, uses: Sequence[Leaf], slots: Sequence[Slot]) -> str:
    """The name of the leaf whose product writes the channels first, else of the first that
    touches them.
    """
    order = {id(node): at for at, node in enumerate(graph.program.nodes)}
    first = {
        s.leaf: min((order[id(use.node)] for use in uses[s.leaf].uses), default=len(order))
        for s in slots
        if not s.reads
    }
    return graph.parameters[min(first, key=lambda leaf: (first[leaf], leaf))]


def slots_of(
    leaf: int, axis: int, atoms: Axis, sizes: dict[int, int], reads: bool, weighs: bool = False
) -> Iterator[tuple[int, Slot]]:
    """The atoms of an axis of a leaf, each with where it is."""
    lengths = [sizes[a] for a in atoms]
    for k, atom in enumerate(atoms):
        before, after = math.prod(lengths[:k]), math.prod(lengths[k + 1 :])
        yield atom, Slot(leaf, axis, before, lengths[k], after, reads, weighs)


def _reading_axes(program: Program, leaf: Leaf) -> set[int]:
    """The axes of a leaf that its product sums over; none of a leaf that several products share,
    whose channels stay.
    """
    shape, found = program.values[leaf.value].shape, set()
    for use in (use for use in leaf.uses if not use.tied):
        places = np.unravel_index(entries(program, leaf.value, use.path), shape)
        numbers = use.node.options["dimension_numbers"]
        summed = (
            numbers[0][use.operand] if use.node.operation == "dot_general" else numbers.rhs_spec[1:]
        )
        for axis, place in enumerate(places):
            if any(place.shape[d] > 1 and np.ptp(place, axis=d).any() for d in summed):
                found.add(axis)
    return found
