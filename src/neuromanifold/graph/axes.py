"""Which axes of parameters, samples and outputs are the same axis: labels carried through the
program.

An axis is a product of *atoms*, written from the slow index to the fast one; a reshape splits and
joins atoms. Atoms that meet in a sum, a product or a contraction become one. An atom whose places
are taken apart or put together (slices, splitting, concatenation, padding) is a *direct sum*: it
has pieces, which are axes of their own. Where one place of a slow atom is taken of a product
(queries, keys and values of a weight that holds all three), what is faster is a piece for each of
its places. An atom is *rigid* where an operation treats its places differently (windows, masks,
slices); the others may be permuted, in all places at once, without changing what is computed: a
proposal, which `symmetry.discover` verifies.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from neuromanifold.graph.program import Node, Program

Axis = tuple[int, ...]
Axes = tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Labels:
    """The atoms of the axes of every input, output and other value of a program, their sizes,
    and which of them are rigid.

    `pieces` has the axes whose direct sum an atom is. `copies[s][i]` says which atoms are taken
    for others where place i of atom s is selected: s and they are a direct sum together.
    """

    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    values: dict[int, Axes]
    sizes: dict[int, int]
    rigid: frozenset[int]
    pieces: dict[int, tuple[Axis, ...]]
    copies: dict[int, tuple[dict[int, int], ...]]

    @property
    def outer(self) -> frozenset[int]:
        """The atoms of inputs and outputs."""
        return frozenset(a for axes in (*self.inputs, *self.outputs) for axis in axes for a in axis)

    def length(self, axis: Axis) -> int:
        """How many places an axis has."""
        return math.prod(self.sizes[a] for a in axis)

    def places(self, axis: Axis) -> list["Place"]:
        """Where the atoms of an axis are on it, those inside of direct sums too.

        A direct sum of which a part is reached in two ways (a leaf that is selected from, and
        read as a whole) is told with its atoms, not with its parts.
        """
        found: list[Place] = []
        total = self.length(axis)
        for k, atom in enumerate(axis):
            before, after = self.length(axis[:k]), self.length(axis[k + 1 :])
            copied = self.copies.get(atom)
            inner = axis[k + 1 :]
            if copied and inner and before == 1 and all(a in copied[0] for a in inner):
                for i, names in enumerate(copied):
                    piece = tuple(names[a] for a in inner)
                    found += [p.inside(i * after, total) for p in self.places(piece)]
                return found
            found.append(Place(atom, before, self.sizes[atom], after, 0, total))
            start = 0
            for piece in self.pieces.get(atom, ()):
                if before == 1:
                    offset = start * after
                    found += [p.followed(after).inside(offset, total) for p in self.places(piece)]
                start += self.length(piece)
        return found


@dataclass(frozen=True)
class Place:
    """Where an atom is on an axis of `total` places: from `start` on, `before` slower and `after`
    faster ones around each of its `size`.
    """

    atom: int
    before: int
    size: int
    after: int
    start: int
    total: int

    @property
    def whole(self) -> bool:
        """Whether every place of the axis is one of the atom."""
        return self.before * self.size * self.after == self.total

    def inside(self, start: int, total: int) -> "Place":
        """The same where its axis is a piece of another, from `start` on."""
        return replace(self, start=self.start + start, total=total)

    def followed(self, after: int) -> "Place":
        """The same where each place of its axis is `after` places of another."""
        return replace(
            self, after=self.after * after, start=self.start * after, total=self.total * after
        )


def axis_labels(program: Program) -> Labels:
    """The labels of a program's axes.

    >>> net = nm.MLP((2, 3, 1))
    >>> labels = axis_labels(nm.trace(net, net.init(key=jax.random.key(0)), np.ones((5, 2))).program)
    >>> W, b, V = labels.inputs[:3]
    >>> W[0] == b[0] == V[1], W[1] == V[1]
    (True, False)
    """
    table = _Atoms()
    known: dict[int, Axes] = {i: table.fresh(program.values[i].shape) for i in program.inputs}

    def read(i: int) -> Axes:
        if i not in known:
            known[i] = table.of_constant(program.constants[i])
        return known[i]

    for node in program.nodes:
        shapes = (
            [program.values[i].shape for i in node.inputs],
            [program.values[o].shape for o in node.outputs],
        )
        results = _propagate(table, node, [read(i) for i in node.inputs], *shapes)
        known.update(zip(node.outputs, results, strict=True))
    table.settle_copies([known[i] for i in program.inputs])
    inputs, outputs = (
        tuple(table.resolved(read(i)) for i in ids) for ids in (program.inputs, program.outputs)
    )
    values = {i: table.resolved(axes) for i, axes in known.items()}
    return table.labels(inputs, outputs, values)


@dataclass
class _Atoms:
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
        return tuple(self.atom(n, rigid) for n in shape)

    def of_constant(self, a: np.ndarray) -> Axes:
        """A constant holds an axis still unless it is the same everywhere along it."""
        same = [
            np.array_equiv(_bits(a), _bits(np.take(a, [0], axis))) if a.size else True
            for axis in range(a.ndim)
        ]
        return tuple(self.atom(n, not same[axis]) for axis, n in enumerate(a.shape))

    def root(self, a: int) -> int:
        while self.parent[a] != a:
            a = self.parent[a]
        return a

    def resolve(self, axis: Axis) -> Axis:
        """The axis in atoms that are not split into products."""
        found: list[int] = []
        for a in map(self.root, axis):
            found.extend(self.resolve(self.parts[a]) if a in self.parts else (a,))
        return tuple(found)

    def resolved(self, axes: Axes) -> Axes:
        return tuple(map(self.resolve, axes))

    def length(self, axis: Axis) -> int:
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
            one, other = self._aligned(a, b), self._aligned(b, a)
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

    def _aligned(self, a: int, b: int) -> list[Axis]:
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
                found.append(self.cut(piece, low - at, high - at))
            at += self.length(piece)
        return found

    def cut(self, axis: Axis, start: int, stop: int) -> Axis:
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

    def labels(self, inputs: tuple[Axes, ...], outputs: tuple[Axes, ...], values: Any) -> Labels:
        """What was found, in atoms that are not split into products."""
        seen = {a for axes in values.values() for axis in axes for a in axis}
        pieces: dict[int, tuple[Axis, ...]] = {}
        todo, atoms = list(seen), set[int]()
        while todo:
            a = todo.pop()
            if a in atoms:
                continue
            atoms.add(a)
            if a in self.pieces:
                pieces[a] = tuple(map(self.resolve, self.pieces[a]))
                todo += [b for piece in pieces[a] for b in piece]
        copies = {
            slow: tuple({self.root(a): self.root(b) for a, b in each.items()} for each in names)
            for slow, names in self.copies.items()
        }
        atoms |= {b for names in copies.values() for each in names for b in each.values()}
        return Labels(
            inputs,
            outputs,
            values,
            {a: self.size[a] for a in atoms},
            frozenset(atoms & (self.rigid | pieces.keys())),
            pieces,
            copies,
        )


def _bits(a: np.ndarray) -> np.ndarray:
    """Numbers among which nan equals itself."""
    return np.nan_to_num(a.astype(np.float64), nan=np.inf) if a.dtype.kind == "f" else a


def _propagate(
    table: _Atoms, node: Node, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    rule = _RULES.get(node.operation)
    if rule is None and node.operation.startswith(("reduce_window", "select_and")):
        rule = _window
    if rule is None and node.operation.startswith(("reduce_", "argm")):
        rule = _reduce
    if (
        rule is None
        and len(set(results)) == 1
        and all(_spreads(shape, results[0]) for shape in shapes)
    ):
        rule = _entrywise
    found = None if rule is None else rule(table, node.options, axes, shapes, results)
    if found is not None:
        return found
    for axis in (axis for each in axes for axis in each):
        table.freeze(axis)
    return [table.fresh(shape, rigid=True) for shape in results]


def _spreads(shape: Sequence[int], result: Sequence[int]) -> bool:
    return not shape or (
        len(shape) == len(result) and all(n in (1, m) for n, m in zip(shape, result, strict=True))
    )


def _entrywise(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    found = []
    for at, n in enumerate(results[0]):
        same = [
            each[at] for each, shape in zip(axes, shapes, strict=True) if shape and shape[at] == n
        ]
        for other in same[1:]:
            table.unite(same[0], other)
        found.append(same[0] if same else table.atom(n))
    return [tuple(found)] * len(results)


def _broadcast(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    found = list(table.fresh(results[0]))
    for axis, n, at in zip(axes[0], shapes[0], options["broadcast_dimensions"], strict=True):
        if n == results[0][at]:
            found[at] = axis
    return [tuple(found)]


def _reshape(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> Any:
    return None if options.get("dimensions") is not None else [table.regroup(axes[0], results[0])]


def _squeeze(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    return [tuple(axis for i, axis in enumerate(axes[0]) if i not in options["dimensions"])]


def _transpose(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    return [tuple(axes[0][i] for i in options["permutation"])]


def _reduce(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> Any:
    if "axes" not in options:
        return None
    gone = options["axes"]
    kept = tuple(axis for at, axis in enumerate(axes[0]) if at not in gone)
    if results[0] and results[0] != tuple(n for at, n in enumerate(shapes[0]) if at not in gone):
        return None
    return [kept] * len(results)


def _place_on_axis(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    """Sorting, reversing, running sums: the axes stay, those acted on are rigid."""
    acted = [options[name] for name in ("axis", "dimension", "dimensions") if name in options]
    for at in np.ravel(acted[0]) if acted else range(len(axes[0])):
        table.freeze(axes[0][int(at)])
    return [axes[0]] * len(results)


def _argument(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    for at in options["axes"]:
        table.freeze(axes[0][at])
    return [tuple(axis for at, axis in enumerate(axes[0]) if at not in options["axes"])]


def _slice(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    """A part of an axis is a piece of it; a part with gaps is rigid."""
    starts, strides = options["start_indices"], options["strides"] or (1,) * len(shapes[0])
    found = list(axes[0])
    for at, (n, m, start, stride) in enumerate(
        zip(shapes[0], results[0], starts, strides, strict=True)
    ):
        if n == m:
            continue
        if stride == 1 or m == 1:
            axis, others = found[at], tuple(found[:at] + found[at + 1 :])
            found[at] = table.cut(axis, start, start + m)
            if m == 1:
                moved = list(table.selected(axis, start, others))
                found = [*moved[:at], found[at], *moved[at:]]
        else:
            table.freeze(found[at])
            found[at] = table.atom(m, True)
    return [tuple(found)]


def _split(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    at, stops = options["axis"], np.cumsum([0, *options["sizes"]]).tolist()
    return [
        (*axes[0][:at], table.cut(axes[0][at], start, stop), *axes[0][at + 1 :])
        for start, stop in itertools.pairwise(stops)
    ]


def _concatenate(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    at = options["dimension"]
    found = list(axes[0])
    for other in axes[1:]:
        for d, axis in enumerate(other):
            if d != at:
                table.unite(found[d], axis)
    found[at] = table.joined([each[at] for each in axes])
    return [tuple(found)]


def _pad(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    """What is put before and after an axis are pieces beside it; what is put between is rigid."""
    found = list(axes[0])
    for at, (low, high, between) in enumerate(options["padding_config"]):
        if between or low < 0 or high < 0:
            table.freeze(found[at])
            found[at] = table.atom(results[0][at], True)
        elif low or high:
            ends = [[table.atom(n, True)] if n else [] for n in (low, high)]
            found[at] = table.joined([*ends[0], found[at], *ends[1]])
    return [tuple(found)]


def _dynamic_slice(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    found = list(axes[0])
    for at, (n, m) in enumerate(zip(shapes[0], results[0], strict=True)):
        if n != m:
            table.freeze(found[at])
            found[at] = table.atom(m, True)
    return [tuple(found)]


def _dot(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    ((left, right), (left_batch, right_batch)) = options["dimension_numbers"]
    for i, j in (*zip(left, right, strict=True), *zip(left_batch, right_batch, strict=True)):
        table.unite(axes[0][i], axes[1][j])
    batch = [axes[0][i] for i in left_batch]
    free = [axis for i, axis in enumerate(axes[0]) if i not in (*left, *left_batch)]
    return [
        (
            *batch,
            *free,
            *(axis for j, axis in enumerate(axes[1]) if j not in (*right, *right_batch)),
        )
    ]


def _convolution(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> Any:
    """Batch and channels go on; places in the image and in the filter are rigid."""
    numbers = options["dimension_numbers"]
    (batch, channels, *places), (out, into, *filter_places) = numbers.lhs_spec, numbers.rhs_spec
    groups = options["feature_group_count"]
    if options["batch_group_count"] != 1:
        return None
    for axis in [*(axes[0][i] for i in places), *(axes[1][i] for i in filter_places)]:
        table.freeze(axis)
    given, written = axes[0][channels], axes[1][out]
    if groups > 1:
        slow, given = table.regroup((given,), (groups, shapes[0][channels] // groups))
        own, rest = table.regroup((written,), (groups, shapes[1][out] // groups))
        table.unite(slow, own)
        written = (*own, *rest)
    table.unite(given, axes[1][into])
    found = [table.atom(n, True) for n in results[0]]
    found[numbers.out_spec[0]], found[numbers.out_spec[1]] = axes[0][batch], written
    return [tuple(found)]


def _window(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    found = []
    for axis, size, n, m in zip(
        axes[0], options["window_dimensions"], shapes[0], results[0], strict=True
    ):
        passes = size == 1 and n == m
        if not passes:
            table.freeze(axis)
        found.append(axis if passes else table.atom(m, True))
    return [tuple(found)]


def _gather(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    """Axes taken whole go on, those looked up in are rigid; the others are those of the indices."""
    numbers, sizes = options["dimension_numbers"], options["slice_sizes"]
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    for at, (axis, n) in enumerate(zip(axes[0], shapes[0], strict=True)):
        if sizes[at] != n or at in gone:
            table.freeze(axis)
    kept = [at for at in range(len(shapes[0])) if at not in gone]
    offset = iter(kept)
    looked = iter(axes[1][:-1])
    found = []
    for at, n in enumerate(results[0]):
        if at in numbers.offset_dims:
            source = next(offset)
            found.append(
                axes[0][source] if sizes[source] == shapes[0][source] else table.atom(n, True)
            )
        else:
            found.append(next(looked))
    return [tuple(found)]


_RULES = (
    {
        "broadcast_in_dim": _broadcast,
        "reshape": _reshape,
        "squeeze": _squeeze,
        "expand_dims": _reshape,
        "transpose": _transpose,
        "dot_general": _dot,
        "conv_general_dilated": _convolution,
        "gather": _gather,
        "argmax": _argument,
        "argmin": _argument,
    }
    | dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "rev", "sort"), _place_on_axis
    )
    | {"slice": _slice, "split": _split, "concatenate": _concatenate, "pad": _pad}
    | {"dynamic_slice": _dynamic_slice}
)
