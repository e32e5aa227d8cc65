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

import math
from dataclasses import dataclass, replace

from neuromanifold.graph.axis_rules import Atoms, Axes, Axis, Meeting, propagate
from neuromanifold.graph.dataflow import forward
from neuromanifold.graph.program import Node, Program


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

    def outside(self, count: int) -> set[int]:
        """Return the atoms, those inside of direct sums too, that outputs have, or inputs after the
        first `count`.
        """
        given = (*self.inputs[count:], *self.outputs)
        return {place.atom for axes in given for axis in axes for place in self.places(axis)}

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
    >>> labels = axis_labels(nm.graph.trace(net, net.init(key=jax.random.key(0)), np.ones((5, 2))).program)
    >>> W, b, V = labels.inputs[:3]
    >>> W[0] == b[0] == V[1], W[1] == V[1]
    (True, False)
    """
    atoms, values = Atoms(), program.values

    def carry(node: Node, axes: list[Axes]) -> list[Axes]:
        shapes, results = ([values[i].shape for i in ids] for ids in (node.inputs, node.outputs))
        given = Meeting(atoms, node.options, axes, shapes, results)
        return propagate(node.primitive.axes, given)

    start = {i: atoms.fresh(values[i].shape) for i in program.inputs}
    found = forward(program, start, lambda i: atoms.of_constant(program.constants[i]), carry)
    atoms.settle_copies([found[i] for i in program.inputs])
    return _labels(program, atoms, {i: atoms.resolved(axes) for i, axes in found.items()})


def _labels(program: Program, atoms: Atoms, values: dict[int, Axes]) -> Labels:
    """What was found, in atoms that are not split into products."""
    pieces: dict[int, tuple[Axis, ...]] = {}
    todo, known = [a for axes in values.values() for axis in axes for a in axis], set[int]()
    while todo:
        a = todo.pop()
        if a not in known and a in atoms.pieces:
            pieces[a] = tuple(map(atoms.resolve, atoms.pieces[a]))
            todo += [b for piece in pieces[a] for b in piece]
        known.add(a)
    copies = {
        slow: tuple({atoms.root(a): atoms.root(b) for a, b in each.items()} for each in names)
        for slow, names in atoms.copies.items()
    }
    known |= {b for names in copies.values() for each in names for b in each.values()}
    return Labels(
        tuple(values[i] for i in program.inputs),
        tuple(values[i] for i in program.outputs),
        values,
        {a: atoms.size[a] for a in known},
        frozenset(known & (atoms.rigid | pieces.keys())),
        pieces,
        copies,
    )
