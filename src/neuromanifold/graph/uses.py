"""Where parameters enter linearly: each leaf is followed through index maps to the products that
use it.

A use is a product y = W′·a of the rearranged leaf W′ with another operand a (a dot or a
convolution), in canonical form y[b, t, c] = Σ_k a[b, t, k] W′[b, c, k] with t the positions that
share W′. Its part of the Jacobian is Σ_t d[o, b, t, c] a[b, t, k], d the cotangent of y: Gram
matrices, Jacobian blocks and sketches need no more than a and d. Several products that use the leaf
in the same arrangement W′ (the steps of a recurrent network) are one use with all their positions.
A table whose rows are looked up is a use too, y[t, c] = W[i_t, c]: its a is a unit vector, of which
only the index i_t is kept. A product with some rows of the same table (the head of a language model,
few of whose logits are looked at) is tied to it: to Σ_t d[o, t, r] a[t, c], the derivative by row r,
belongs the unit vector of r.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from neuromanifold.graph.products import Canonical, Lookup, Product
from neuromanifold.graph.program import Node, Program

Path = tuple[tuple[Node, int], ...]
NOT_USED = "it is not used"


@dataclass(frozen=True, eq=False)
class Use:
    """A product that is linear in a leaf: its node, which operand the leaf is, and the index maps
    that brought it there.

    Canonical sizes: `batch` products side by side, `positions` that share the leaf, `inner` and
    `outer` sizes of each. `tied` are further products of the leaf in the same arrangement: their
    positions come after its own. `constant` names the leaf that is added to the product entry by
    entry, a bias, where it has the same cotangent. `rows` is the product that stands for looked-up
    rows, and which they are.
    """

    node: Node
    operand: int
    path: Path
    batch: int
    positions: int
    inner: int
    outer: int
    constant: int | None = None
    tied: tuple["Use", ...] = ()
    rows: tuple["Use", np.ndarray] | None = None

    @property
    def products(self) -> tuple["Use", ...]:
        """Itself and the products tied to it."""
        return self, *self.tied

    @property
    def all_positions(self) -> int:
        """The positions of all its products."""
        return sum(use.positions for use in self.products)

    @property
    def product(self) -> Product:
        """How it comes to its canonical form."""
        assert self.node.primitive.product is not None
        return self.node.primitive.product

    @property
    def sizes(self) -> Canonical:
        """The canonical sizes."""
        return Canonical(self.batch, self.positions, self.inner, self.outer)

    @property
    def is_lookup(self) -> bool:
        """Whether rows are looked up: the input is their indices."""
        return isinstance(self.product, Lookup)

    @property
    def other(self) -> int:
        """The value of the other operand."""
        return self.node.inputs[1 - self.operand]

    @property
    def output(self) -> int:
        """The value of the product."""
        return self.node.outputs[0]


@dataclass(frozen=True, eq=False)
class Leaf:
    """A parameter leaf with its uses. Without uses `why` says how it enters instead."""

    value: int
    size: int
    uses: tuple[Use, ...] = ()
    why: str = ""


def leaves(program: Program, parameters: int) -> tuple[Leaf, ...]:
    """How the first `parameters` inputs enter."""
    found = [_leaf(program, value) for value in program.inputs[:parameters]]
    return _with_constants(program, found)


@dataclass(frozen=True, eq=False)
class Entering:
    """How some of the leaves enter: (leaf, use) for each use, and the leaves that must be
    differentiated by themselves, with the reason.

    A bias counts with the product it is added to where both are among them.
    """

    uses: tuple[tuple[int, Use], ...]
    direct: tuple[tuple[int, str], ...]


def entering(program: Program, found: Sequence[Leaf], chosen: Sequence[int]) -> Entering:
    """How the leaves `chosen` enter."""
    mine = {program.inputs[i] for i in chosen}
    uses = [
        (i, u if u.constant in mine else replace(u, constant=None))
        for i in chosen
        for u in found[i].uses
    ]
    counted = {use.constant for _, use in uses}
    direct = [
        (i, found[i].why) for i in chosen if not found[i].uses and found[i].value not in counted
    ]
    return Entering(tuple(uses), tuple(entry for entry in direct if entry[1] != NOT_USED))


def _leaf(program: Program, value: int) -> Leaf:
    size, uses = math.prod(program.values[value].shape), _follow(program, value)
    if isinstance(uses, str):
        return Leaf(value, size, why=uses)
    if not uses:
        return Leaf(value, size, why=NOT_USED)
    if _disjoint(program, value, uses):
        return Leaf(value, size, tuple(uses))
    if _same_arrangement(program, value, uses):
        return Leaf(value, size, (replace(uses[0], tied=tuple(uses[1:])),))
    return Leaf(value, size, why="several products share it")


def _follow(program: Program, value: int, beside: Sequence[Node] = ()) -> list[Use] | str:
    """The products that a value comes to through index maps, without its readers `beside`; or how
    else it enters.
    """
    uses: list[Use] = []
    front: list[tuple[int, Path]] = [(value, ())]
    while front:
        at, path = front.pop()
        if at in program.outputs:
            return "it is itself an output"
        for node in program.consumers.get(at, ()):
            if node in beside:
                continue
            if node.primitive.carries and _keeps(program, node):
                front += [(out, (*path, (node, k))) for k, out in enumerate(node.outputs)]
            elif (found := _products(program, node, at, path)) is not None:
                uses += found
            else:
                return f"it enters through {node.operation}"
    return uses


def _keeps(program: Program, node: Node) -> bool:
    """Whether an index map repeats no entry."""
    before, after = program.values[node.inputs[0]], program.values[node.outputs[0]]
    return math.prod(after.shape) <= math.prod(before.shape)


def _disjoint(program: Program, value: int, uses: list[Use]) -> bool:
    if len(uses) == 1:
        return True
    counts = np.zeros(math.prod(program.values[value].shape), np.int8)
    for use in uses:
        counts[entries(program, value, use.path).ravel()] += 1
    return bool((counts <= 1).all())


def _same_arrangement(program: Program, value: int, uses: list[Use]) -> bool:
    """Whether all products see the same W′[b, c, k]."""
    first, *others = (_arrange(use, entries(program, value, use.path)) for use in uses)
    return all(np.array_equal(first, other) for other in others)


def _arrange(use: Use, at: np.ndarray) -> np.ndarray:
    """The leaf's operand as W′[b, c, k]."""
    return use.product.weight(use.node.options, use.operand, use.sizes, at)


def entries(program: Program, value: int, path: Path) -> np.ndarray:
    """Which entry of the leaf stands at each place after the index maps."""
    shape = program.values[value].shape
    return carry(path, np.arange(math.prod(shape)).reshape(shape))


def carry(path: Path, a: np.ndarray) -> np.ndarray:
    """An array like a leaf, after the index maps."""
    return reduce(_move, path, a)


def _move(a: np.ndarray, step: tuple[Node, int]) -> np.ndarray:
    node, output = step
    assert node.primitive.numpy is not None
    found = node.primitive.numpy(node.options, a)
    return found[output] if node.primitive.several else found


def _products(program: Program, node: Node, value: int, path: Path) -> list[Use] | None:
    """The products of a node that are linear in a value; None where it is none of them."""
    product = node.primitive.product
    if product is None or isinstance(product, Lookup):
        return None
    shapes, found = [program.values[i].shape for i in node.inputs], []
    for operand, i in enumerate(node.inputs):
        if i == value:
            sizes = product.sizes(node.options, shapes, operand)
            if sizes is None:
                return None
            found.append(Use(node, operand, path, *sizes))
    return found


def _with_constants(program: Program, found: list[Leaf]) -> tuple[Leaf, ...]:
    """Leaves that are only added, entry by entry, to the product of another leaf at one position
    share its cotangent.
    """
    owners = {
        use.output: (k, j)
        for k, leaf in enumerate(found)
        for j, use in enumerate(leaf.uses)
        if use.positions == 1
    }
    for index, leaf in enumerate(found):
        if leaf.uses or (at := _sum(program, leaf)) is None or at not in owners:
            continue
        k, j = owners[at]
        use = found[k].uses[j]
        if use.constant is None and len(program.consumers[at]) == 1:
            uses = tuple(replace(u, constant=leaf.value) if u is use else u for u in found[k].uses)
            found[k] = replace(found[k], uses=uses)
            found[index] = replace(leaf, why="it is added to a product")
    return tuple(found)


def _sum(program: Program, leaf: Leaf) -> int | None:
    """The value that the leaf is added to, where each of its entries meets exactly one of that
    value's.
    """
    at = leaf.value
    while True:
        readers = program.consumers.get(at, ())
        if len(readers) != 1 or at in program.outputs:
            return None
        [node] = readers
        if node.primitive.signs == (1, 1):
            [other] = [i for i in node.inputs if i != at] or [at]
            fits = other != at and math.prod(program.values[other].shape) == leaf.size
            return other if fits else None
        if (
            not node.primitive.carries
            or len(node.outputs) != 1
            or math.prod(program.values[node.outputs[0]].shape) != leaf.size
        ):
            return None
        at = node.outputs[0]


def find_lookup(program: Program, leaf: Leaf) -> Use | None:
    """The use of a table whose rows are looked up, at indices that are inside it or moved there, or
    multiplied as they are; `None` for any other leaf.
    """
    tables = [
        Use(node, 0, (), *sizes)
        for node in program.consumers.get(leaf.value, ())
        if isinstance(node.primitive.product, Lookup)
        and (shapes := [program.values[i].shape for i in node.inputs])
        and (sizes := node.primitive.product.sizes(node.options, shapes, 0)) is not None
        and node.inputs.index(leaf.value) == 0
    ]
    products = _follow(program, leaf.value, [use.node for use in tables])
    if not tables or isinstance(products, str):
        return None
    first, *others = tables
    rows = [_as_rows(program, leaf.value, first, use) for use in products]
    return None if None in rows else replace(first, tied=(*others, *filter(None, rows)))


def _as_rows(program: Program, value: int, table: Use, use: Use) -> Use | None:
    """A product with whole rows of a table as if these were looked up; None where it is of others."""
    at = _arrange(use, entries(program, value, use.path))
    rows = at[0, :, 0] // table.outer
    if not np.array_equal(at[0], rows[:, None] * table.outer + np.arange(at.shape[2])):
        return None
    if len(at) != 1 or use.inner != table.outer:
        return None
    sizes = {"positions": use.outer, "inner": table.inner, "outer": table.outer}
    return replace(use, **sizes, rows=(use, rows))


def canonical_input(use: Use, other: Any, shape: tuple[int, ...]) -> Any:
    """The other operand as a[b, t, k], in JAX; `shape` is that of the leaf's operand."""
    return use.product.signal(use.node.options, use.operand, use.sizes, other, shape)


def canonical_cotangent(use: Use, d: Any) -> Any:
    """The cotangents (o, *shape of the product) as d[o, b, t, c]."""
    return use.product.cotangent(use.node.options, use.operand, use.sizes, d)
