"""Which axes of parameters, samples and outputs are the same axis: labels carried through the
program.

An axis is a product of *atoms*, written from the slow index to the fast one; a reshape splits and
joins atoms. Atoms that meet in a sum, a product or a contraction become one. An atom is *rigid*
where an operation treats its places differently (windows, slices, masks); the others may be
permuted, in all places at once, without changing what is computed: a proposal, which
`symmetry.discover` verifies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neuromanifold.graph.program import Node, Program

Axis = tuple[int, ...]
Axes = tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Labels:
    """The atoms of the axes of every input, output and other value of a program, their sizes,
    and which of them are rigid.
    """

    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    values: dict[int, Axes]
    sizes: dict[int, int]
    rigid: frozenset[int]

    @property
    def outer(self) -> frozenset[int]:
        """The atoms of inputs and outputs."""
        return frozenset(a for axes in (*self.inputs, *self.outputs) for axis in axes for a in axis)


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
    inputs, outputs = (
        [table.resolved(read(i)) for i in ids] for ids in (program.inputs, program.outputs)
    )
    values = {i: table.resolved(axes) for i, axes in known.items()}
    atoms = {a for axes in values.values() for axis in axes for a in axis}
    sizes = {a: table.size[a] for a in atoms}
    return Labels(
        tuple(inputs),
        tuple(outputs),
        values,
        sizes,
        frozenset(a for a in atoms if a in table.rigid),
    )


@dataclass
class _Atoms:
    """Union–find over atoms, with splits."""

    size: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    parts: dict[int, Axis] = field(default_factory=dict)
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
        """The axis in atoms that are not split."""
        found: list[int] = []
        for a in map(self.root, axis):
            found.extend(self.resolve(self.parts[a]) if a in self.parts else (a,))
        return tuple(found)

    def resolved(self, axes: Axes) -> Axes:
        return tuple(map(self.resolve, axes))

    def freeze(self, axis: Axis) -> None:
        self.rigid.update(self.resolve(axis))

    def split(self, a: int, first: int) -> Axis:
        """Atom `a` as `first` slow places times the rest."""
        self.parts[a] = (
            *self.atom(first, a in self.rigid),
            *self.atom(self.size[a] // first, a in self.rigid),
        )
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
        self.parent[a] = b
        if a in self.rigid:
            self.rigid.add(b)

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


def _cut(
    table: _Atoms, options: Any, axes: list[Axes], shapes: list[Any], results: list[Any]
) -> list[Axes]:
    """Slices, padding, concatenation, splitting: an axis whose length changes is rigid, the
    others go on.
    """
    for shape in results:
        for each, its in zip(axes, shapes, strict=True):
            for a, n, m in zip(each, its, shape, strict=False):
                if n != m:
                    table.freeze(a)
    found = []
    for shape in results:
        whole = [
            [
                each[at]
                for each, its in zip(axes, shapes, strict=True)
                if len(its) == len(shape) and its[at] == n
            ]
            for at, n in enumerate(shape)
        ]
        for same in whole:
            for other in same[1:]:
                table.unite(same[0], other)
        found.append(
            tuple(
                same[0] if same else table.atom(n, True)
                for same, n in zip(whole, shape, strict=True)
            )
        )
    return found


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
    if options["batch_group_count"] != 1 or groups not in (1, shapes[1][out]):
        return None
    for axis in [*(axes[0][i] for i in places), *(axes[1][i] for i in filter_places)]:
        table.freeze(axis)
    table.unite(axes[0][channels], axes[1][into if groups == 1 else out])
    found = [table.atom(n, True) for n in results[0]]
    found[numbers.out_spec[0]], found[numbers.out_spec[1]] = axes[0][batch], axes[1][out]
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
    | dict.fromkeys(("slice", "pad", "concatenate", "split", "dynamic_slice"), _cut)
)
