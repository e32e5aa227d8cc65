"""What operations do to axes: atoms that meet, part and join, and one short rule for each operation.

A rule takes the axes that meet at a node and gives those of its results; None where it does not
understand them, and then all of them are rigid.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from neuromanifold.graph.index_maps import Options

Axis = tuple[int, ...]
Axes = tuple[Axis, ...]


@dataclass
class Atoms:
    """Union–find over atoms, with splits into products and into direct sums.

    `halves[s]` are the atoms that were split together with s, faster than it; `copies[s][i]` what
    stands for them where place i of s was selected.
    """

    size: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    parts: dict[int, Axis] = field(default_factory=dict)
    pieces: dict[int, tuple[Axis, ...]] = field(default_factory=dict)
    halves: dict[int, Axis] = field(default_factory=dict)
    copies: dict[int, list[dict[int, int]]] = field(default_factory=dict)
    rigid: set[int] = field(default_factory=set)

    def atom(self, size: int, rigid: bool = False) -> Axis:
        """A new axis of one atom, of none where it has one place or none."""
        if size < 2:
            return ()
        self.size.append(size)
        self.parent.append(len(self.parent))
        if rigid:
            self.rigid.add(len(self.parent) - 1)
        return (len(self.parent) - 1,)

    def fresh(self, shape: Sequence[int], rigid: bool = False) -> Axes:
        """Return new axes of these sizes."""
        return tuple(self.atom(n, rigid) for n in shape)

    def of_constant(self, a: np.ndarray) -> Axes:
        """A constant holds an axis still unless it is the same everywhere along it."""
        return tuple(self.atom(n, not _is_same_along(a, axis)) for axis, n in enumerate(a.shape))

    def root(self, a: int) -> int:
        """The atom that stands for `a` and all that it was united with."""
        root = a
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[a] != root:
            self.parent[a], a = root, self.parent[a]
        return root

    def resolve(self, axis: Axis) -> Axis:
        """The axis in atoms that are not split into products."""
        found: list[int] = []
        for a in map(self.root, axis):
            found.extend(self.resolve(self.parts[a]) if a in self.parts else (a,))
        return tuple(found)

    def resolved(self, axes: Axes) -> Axes:
        """All axes in such atoms."""
        return tuple(map(self.resolve, axes))

    def length(self, axis: Axis) -> int:
        """How many places an axis has."""
        return math.prod(self.size[self.root(a)] for a in axis)

    def freeze(self, axis: Axis) -> None:
        """Make all atoms of an axis rigid, those of its pieces too."""
        for a in self.resolve(axis):
            self.rigid.add(a)
            for piece in self.pieces.get(a, ()):
                self.freeze(piece)

    def split(self, a: int, first: int) -> Axis:
        """Atom `a` as `first` slow places times the rest."""
        rigid = a in self.rigid or a in self.pieces
        for piece in self.pieces.pop(a, ()):
            self.freeze(piece)
        slow, fast = self.atom(first, rigid), self.atom(self.size[a] // first, rigid)
        self.parts[a] = (*slow, *fast)
        if slow and fast:
            self.halves[slow[0]] = fast
        return self.parts[a]

    def unite(self, one: Axis, other: Axis) -> None:
        """Make two axes of equal size the same axis."""
        left, right = list(self.resolve(one)), list(self.resolve(other))
        while left and right:
            a, b = self.root(left[0]), self.root(right[0])
            if a in self.parts or b in self.parts:
                left, right = list(self.resolve(tuple(left))), list(self.resolve(tuple(right)))
            elif self.size[a] == self.size[b]:
                self._merge(a, b)
                left, right = left[1:], right[1:]
            elif max(self.size[a], self.size[b]) % min(self.size[a], self.size[b]) == 0:
                self.split(
                    *((a, self.size[b]) if self.size[a] > self.size[b] else (b, self.size[a]))
                )
            else:
                break
        self.freeze(tuple(left))
        self.freeze(tuple(right))

    def _merge(self, a: int, b: int) -> None:
        if a == b:
            return
        if a in self.pieces and b in self.pieces:
            one, other = self._align(a, b), self._align(b, a)
            for x, y in zip(one, other, strict=True):
                self.unite(x, y)
        elif a in self.pieces:
            a, b = b, a
        self.parent[a] = b
        if b in self.rigid or a in self.rigid:
            self.freeze((b,))
        for table in (self.halves, self.copies):
            if a in table:
                table.setdefault(b, table.pop(a))  # pyright: ignore[reportArgumentType]

    def _align(self, a: int, b: int) -> list[Axis]:
        """The pieces of a, cut where those of b end."""
        stops = np.cumsum([self.length(piece) for piece in self.pieces[b]]).tolist()
        return [axis for i, j in itertools.pairwise([0, *stops]) for axis in self._between(a, i, j)]

    def _between(self, a: int, start: int, stop: int) -> list[Axis]:
        """The pieces of atom `a` from one place to another, cut there."""
        known, found, at = self.pieces.get(a), [], 0
        if known is None:
            bounds = sorted({0, start, stop, self.size[a]})
            rigid = a in self.rigid
            known = tuple(self.atom(j - i, rigid) for i, j in itertools.pairwise(bounds))
            self.pieces[a] = known
        for piece in known:
            low, high = max(start, at), min(stop, at + self.length(piece))
            if low < high:
                found.append(self.part(piece, low - at, high - at))
            at += self.length(piece)
        return found

    def part(self, axis: Axis, start: int, stop: int) -> Axis:
        """A part of an axis; a rigid one where it goes through a place of a slower atom."""
        atoms, n = self.resolve(axis), self.length(axis)
        if (start, stop) == (0, n):
            return atoms
        inner = self.length(atoms[1:])
        if start % inner or stop % inner:
            self.freeze(atoms)
            return self.atom(stop - start, True)
        found = self._between(atoms[0], start // inner, stop // inner)
        first = found[0] if len(found) == 1 else self.joined(found)
        return (*first, *atoms[1:])

    def joined(self, pieces: Sequence[Axis]) -> Axis:
        """A new axis, the direct sum of others."""
        found = self.atom(sum(self.length(piece) for piece in pieces))
        for a in found:
            self.pieces[a] = tuple(pieces)
        return found

    def selected(self, axis: Axis, place: int, others: Axes) -> Axes:
        """What other axes are where one place of an axis is selected: copies of the atoms that
        were split from the same axis, one for each place.
        """
        atoms = self.resolve(axis)
        if len(atoms) != 1 or atoms[0] not in self.halves:
            return others
        slow, fast = atoms[0], self.resolve(self.halves[atoms[0]])
        if slow not in self.copies:
            self.copies[slow] = [
                {a: self.atom(self.size[a], a in self.rigid)[0] for a in fast}
                for _ in range(self.size[slow])
            ]
        names = self.copies[slow][place]
        return tuple(tuple(names.get(a, a) for a in self.resolve(other)) for other in others)

    def settle_copies(self, inputs: Sequence[Axes]) -> None:
        """Take copies back whose atoms an input has without what they were split from, or that
        were split on after they were copied.
        """
        alone = {
            a
            for axes in map(self.resolved, inputs)
            for axis in axes
            for k, a in enumerate(axis)
            if not any(a in self.resolve(self.halves.get(s, ())) for s in axis[:k])
        }
        for slow, names in list(self.copies.items()):
            fast = self.resolve(self.halves[slow])
            if set(fast) != {self.root(a) for a in names[0]} or alone & set(fast):
                del self.copies[slow]
                for each in names:
                    for a, copy in each.items():
                        self.unite((a,), (copy,))

    def regroup(self, axes: Axes, shape: Sequence[int]) -> Axes:
        """The atoms of a reshaped array."""
        rest, found = list(self.resolve(tuple(a for axis in axes for a in axis))), []
        for n in shape:
            taken: list[int] = []
            while (size := math.prod(self.size[a] for a in taken)) < n:
                needed, a = n // size, self.root(rest[0])
                if (
                    n % size
                    or (self.size[a] > needed and self.size[a] % needed)
                    or needed % self.size[a] * (self.size[a] <= needed)
                ):
                    self.freeze((*taken, *rest))
                    return tuple(found) + self.fresh(shape[len(found) :], rigid=True)
                rest = [*(self.split(a, needed) if self.size[a] > needed else (a,)), *rest[1:]]
                taken.append(rest.pop(0))
            found.append(tuple(taken))
        return tuple(found)


def _is_same_along(a: np.ndarray, axis: int) -> bool:
    """Whether a constant is the same everywhere along an axis; nan equals itself."""
    if a.shape[axis] < 2 or a.strides[axis] == 0 or not a.size:
        return True
    first, nans = a.take([0], axis), a.dtype.kind == "f"
    # Most constants that differ do so at the next place.
    return all(
        np.array_equal(part, np.broadcast_to(first, part.shape), equal_nan=nans)
        for part in (a.take([1], axis), a)
    )


class Meeting(NamedTuple):
    """The axes of a node's operands, the atoms they are made of, the node's options, and the shapes
    of its operands and results.
    """

    atoms: Atoms
    options: Options
    axes: list[Axes]
    shapes: list[tuple[int, ...]]
    results: list[tuple[int, ...]]

    def rigid(self, at: int) -> Axis:
        """A rigid axis of the first result."""
        return self.atoms.atom(self.results[0][at], True)


AxisRule = Callable[[Meeting], list[Axes] | None]


def propagate(rule: AxisRule | None, given: Meeting) -> list[Axes]:
    """The axes of a node's results. Of an operation without a rule the options and shapes may
    tell what it is.
    """
    found = (rule or _guess_axes)(given)
    if found is not None:
        return found
    for axis in (axis for each in given.axes for axis in each):
        given.atoms.freeze(axis)
    return [given.atoms.fresh(shape, rigid=True) for shape in given.results]


def _guess_axes(given: Meeting) -> list[Axes] | None:
    if "window_dimensions" in given.options:
        return window(given)
    if "axes" in given.options:
        return reduce(given)
    same = len(set(given.results)) == 1
    if same and all(_spreads(shape, given.results[0]) for shape in given.shapes):
        return entrywise(given)
    return None


def _spreads(shape: Sequence[int], result: Sequence[int]) -> bool:
    return not shape or (
        len(shape) == len(result) and all(n in (1, m) for n, m in zip(shape, result, strict=True))
    )


def rigid(given: Meeting) -> None:
    """Operations that treat places differently on every axis."""


def entrywise(given: Meeting) -> list[Axes]:
    """Axes of equal size become one; scalars and axes of size one go along."""
    found = []
    for at, n in enumerate(given.results[0]):
        same = [
            each[at]
            for each, shape in zip(given.axes, given.shapes, strict=True)
            if shape and shape[at] == n
        ]
        for other in same[1:]:
            given.atoms.unite(same[0], other)
        found.append(same[0] if same else given.atoms.atom(n))
    return [tuple(found)] * len(given.results)


def each(given: Meeting) -> list[Axes]:
    """Every operand is a result."""
    return given.axes


def broadcast(given: Meeting) -> list[Axes]:
    """`lax.broadcast_in_dim`: axes that are repeated are new."""
    found = list(given.atoms.fresh(given.results[0]))
    for axis, n, at in zip(
        given.axes[0], given.shapes[0], given.options["broadcast_dimensions"], strict=True
    ):
        if n == given.results[0][at]:
            found[at] = axis
    return [tuple(found)]


def reshape(given: Meeting) -> list[Axes] | None:
    """Split and join atoms."""
    if given.options.get("dimensions") is not None:
        return None
    return [given.atoms.regroup(given.axes[0], given.results[0])]


def expand(given: Meeting) -> list[Axes]:
    """Axes of size one come or go."""
    return [given.atoms.regroup(given.axes[0], given.results[0])]


def transpose(given: Meeting) -> list[Axes]:
    """Return the axes in another order."""
    return [tuple(given.axes[0][i] for i in given.options["permutation"])]


def reduce(given: Meeting) -> list[Axes] | None:
    """Drop the axes that are summed over."""
    gone = given.options["axes"]
    kept = [at for at in range(len(given.shapes[0])) if at not in gone]
    if given.results[0] and given.results[0] != tuple(given.shapes[0][at] for at in kept):
        return None
    return [tuple(given.axes[0][at] for at in kept)] * len(given.results)


def arguments(given: Meeting) -> list[Axes] | None:
    """The place on an axis is told: the axis is rigid and goes."""
    for at in given.options["axes"]:
        given.atoms.freeze(given.axes[0][at])
    return reduce(given)


def along_axis(given: Meeting) -> list[Axes]:
    """Sorting, reversing, running sums: the axes stay, those acted on are rigid."""
    names = [name for name in ("axis", "dimension", "dimensions") if name in given.options]
    for at in np.ravel(given.options[names[0]]):
        given.atoms.freeze(given.axes[0][int(at)])
    return [given.axes[0]] * len(given.results)


def slice_axes(given: Meeting) -> list[Axes]:
    """A part of an axis is a piece of it; a part with gaps is rigid."""
    atoms, found = given.atoms, list(given.axes[0])
    strides = given.options["strides"] or (1,) * len(found)
    for at, (n, m, start, stride) in enumerate(
        zip(given.shapes[0], given.results[0], given.options["start_indices"], strides, strict=True)
    ):
        if n == m:
            continue
        if stride == 1 or m == 1:
            axis, others = found[at], tuple(found[:at] + found[at + 1 :])
            found[at] = atoms.part(axis, start, start + m)
            if m == 1:
                moved = list(atoms.selected(axis, start, others))
                found = [*moved[:at], found[at], *moved[at:]]
        else:
            atoms.freeze(found[at])
            found[at] = given.rigid(at)
    return [tuple(found)]


def split(given: Meeting) -> list[Axes]:
    """Split an axis into pieces."""
    at, stops = given.options["axis"], np.cumsum([0, *given.options["sizes"]]).tolist()
    axes = given.axes[0]
    return [
        (*axes[:at], given.atoms.part(axes[at], start, stop), *axes[at + 1 :])
        for start, stop in itertools.pairwise(stops)
    ]


def concatenate(given: Meeting) -> list[Axes]:
    """The operands' axes are pieces of the result's."""
    at, found = given.options["dimension"], list(given.axes[0])
    for other in given.axes[1:]:
        for d, axis in enumerate(other):
            if d != at:
                given.atoms.unite(found[d], axis)
    found[at] = given.atoms.joined([axes[at] for axes in given.axes])
    return [tuple(found)]


def pad(given: Meeting) -> list[Axes]:
    """What is put before and after an axis are pieces beside it; what is put between is rigid."""
    atoms, found = given.atoms, list(given.axes[0])
    for at, (low, high, between) in enumerate(given.options["padding_config"]):
        if between or low < 0 or high < 0:
            atoms.freeze(found[at])
            found[at] = given.rigid(at)
        elif low or high:
            ends = [[atoms.atom(n, True)] if n else [] for n in (low, high)]
            found[at] = atoms.joined([*ends[0], found[at], *ends[1]])
    return [tuple(found)]


def dynamic_slice_axes(given: Meeting) -> list[Axes]:
    """An axis of which a part is taken, wherever it starts, is rigid."""
    found = list(given.axes[0])
    for at, (n, m) in enumerate(zip(given.shapes[0], given.results[0], strict=True)):
        if n != m:
            given.atoms.freeze(found[at])
            found[at] = given.rigid(at)
    return [tuple(found)]


def cut_sorted(given: Meeting) -> list[Axes]:
    """`lax.top_k`: the axis is rigid, before and after."""
    at = given.options.get("axis", len(given.axes[0]) - 1)
    given.atoms.freeze(given.axes[0][at])
    kept = (*given.axes[0][:at], given.rigid(at), *given.axes[0][at + 1 :])
    return [kept] * len(given.results)


def update(given: Meeting) -> list[Axes]:
    """Axes of which a part is replaced are rigid, the others those of the update."""
    for axis, new, n, m in zip(*given.axes[:2], *given.shapes[:2], strict=True):
        if n == m:
            given.atoms.unite(axis, new)
        else:
            given.atoms.freeze(axis)
            given.atoms.freeze(new)
    return [given.axes[0]]


def dot(given: Meeting) -> list[Axes]:
    """`lax.dot_general`: summed and batch axes meet in pairs; the others go on."""
    (left, right), ((summed, their), (batch, theirs)) = (
        given.axes,
        given.options["dimension_numbers"],
    )
    for i, j in (*zip(summed, their, strict=True), *zip(batch, theirs, strict=True)):
        given.atoms.unite(left[i], right[j])
    free = [axis for i, axis in enumerate(left) if i not in (*summed, *batch)]
    other = [axis for j, axis in enumerate(right) if j not in (*their, *theirs)]
    return [(*(left[i] for i in batch), *free, *other)]


def convolution(given: Meeting) -> list[Axes] | None:
    """Batch and channels go on; places in the image and in the filter are rigid."""
    (signal, filters), atoms, options = given.axes, given.atoms, given.options
    numbers, groups = options["dimension_numbers"], options["feature_group_count"]
    (batch, channels, *places), (out, into, *window) = numbers.lhs_spec, numbers.rhs_spec
    if options["batch_group_count"] != 1:
        return None
    for axis in [*(signal[i] for i in places), *(filters[i] for i in window)]:
        atoms.freeze(axis)
    read, written = signal[channels], filters[out]
    if groups > 1:
        slow, read = atoms.regroup((read,), (groups, given.shapes[0][channels] // groups))
        own, rest = atoms.regroup((written,), (groups, given.shapes[1][out] // groups))
        atoms.unite(slow, own)
        written = (*own, *rest)
    atoms.unite(read, filters[into])
    found = [given.rigid(at) for at in range(len(signal))]
    found[numbers.out_spec[0]], found[numbers.out_spec[1]] = signal[batch], written
    return [tuple(found)]


def window(given: Meeting) -> list[Axes]:
    """Axes that windows run over are rigid."""
    found = []
    for at, (axis, size) in enumerate(
        zip(given.axes[0], given.options["window_dimensions"], strict=True)
    ):
        passes = size == 1 and given.shapes[0][at] == given.results[0][at]
        if not passes:
            given.atoms.freeze(axis)
        found.append(axis if passes else given.rigid(at))
    return [tuple(found)]


def gather(given: Meeting) -> list[Axes]:
    """Axes taken whole go on, those looked up in are rigid; the others are those of the indices."""
    numbers, sizes = given.options["dimension_numbers"], given.options["slice_sizes"]
    (table, indices), shape = given.axes, given.shapes[0]
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    for at, (axis, n) in enumerate(zip(table, shape, strict=True)):
        if sizes[at] != n or at in gone:
            given.atoms.freeze(axis)
    kept, looked = iter(at for at in range(len(shape)) if at not in gone), iter(indices[:-1])
    found = []
    for at in range(len(given.results[0])):
        if at in numbers.offset_dims:
            source = next(kept)
            found.append(table[source] if sizes[source] == shape[source] else given.rigid(at))
        else:
            found.append(next(looked))
    return [tuple(found)]
