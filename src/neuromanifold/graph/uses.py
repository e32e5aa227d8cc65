"""Where parameters enter linearly: each leaf is followed through index maps to the products that
use it.

A use is a product y = W′·a of the rearranged leaf W′ with another operand a (a dot or a
convolution), in canonical form y[b, t, c] = Σ_k a[b, t, k] W′[b, c, k] with t the positions that
share W′. Its part of the Jacobian is Σ_t d[o, b, t, c] a[b, t, k], d the cotangent of y: Gram
matrices, Jacobian blocks and sketches need no more than a and d. Several products that use the leaf
in the same arrangement W′ (the steps of a recurrent network) are one use with all their positions.
A table whose rows are looked up is a use too, y[t, c] = W[i_t, c]: its a is a unit vector, of which
only the index i_t is kept.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.discrete import DISCRETE
from neuromanifold.graph.program import Node, Program

_MOVES = {
    "reshape", "transpose", "squeeze", "expand_dims", "slice", "split", "unstack", "rev", "broadcast_in_dim",
    "convert_element_type", "copy", "copy_p",
}  # fmt: skip
_PRODUCTS = ("dot_general", "conv_general_dilated")

Path = tuple[tuple[Node, int], ...]
NOT_USED = "it is not used"


@dataclass(frozen=True, eq=False)
class Use:
    """A product that is linear in a leaf: its node, which operand the leaf is, and the index maps
    that brought it there.

    Canonical sizes: `batch` products side by side, `positions` that share the leaf, `inner` and
    `outer` sizes of each. `tied` are further products of the leaf in the same arrangement: their
    positions come after its own. `constant` names the leaf that is added to the product entry by
    entry, a bias, where it has the same cotangent.
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

    @property
    def products(self) -> tuple["Use", ...]:
        """Itself and the products tied to it."""
        return self, *self.tied

    @property
    def all_positions(self) -> int:
        """The positions of all its products."""
        return sum(use.positions for use in self.products)

    @property
    def is_lookup(self) -> bool:
        """Whether rows are looked up: the input is their indices."""
        return self.node.operation == "gather"

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
    consumers: dict[int, list[Node]] = defaultdict(list)
    for node in program.nodes:
        for i in dict.fromkeys(node.inputs):
            consumers[i].append(node)
    found = [_leaf(program, value, consumers) for value in program.inputs[:parameters]]
    return _with_constants(program, found, consumers)


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


def _leaf(program: Program, value: int, consumers: Mapping[int, list[Node]]) -> Leaf:
    size, uses = math.prod(program.values[value].shape), []
    front: list[tuple[int, Path]] = [(value, ())]
    while front:
        at, path = front.pop()
        if at in program.outputs:
            return Leaf(value, size, why="it is itself an output")
        for node in consumers[at]:
            if node.operation in _MOVES and _keeps(program, node):
                front += [(out, (*path, (node, k))) for k, out in enumerate(node.outputs)]
            elif (
                node.operation in _PRODUCTS
                and (found := _product(program, node, at, path)) is not None
            ):
                uses += found
            else:
                return Leaf(value, size, why=f"it enters through {node.operation}")
    if not uses:
        return Leaf(value, size, why=NOT_USED)
    if _disjoint(program, value, uses):
        return Leaf(value, size, tuple(uses))
    if _same_arrangement(program, value, uses):
        return Leaf(value, size, (replace(uses[0], tied=tuple(uses[1:])),))
    return Leaf(value, size, why="several products share it")


def _keeps(program: Program, node: Node) -> bool:
    """Whether an index map repeats no entry."""
    before, after = program.values[node.inputs[0]], program.values[node.outputs[0]]
    return node.operation != "broadcast_in_dim" or math.prod(before.shape) == math.prod(after.shape)


def _disjoint(program: Program, value: int, uses: list[Use]) -> bool:
    if len(uses) == 1:
        return True
    counts = np.zeros(math.prod(program.values[value].shape), np.int8)
    for use in uses:
        counts[entries(program, value, use.path).ravel()] += 1
    return bool((counts <= 1).all())


def _same_arrangement(program: Program, value: int, uses: list[Use]) -> bool:
    """Whether all products see the same W′[b, c, k]."""
    first, *others = (_arranged(use, entries(program, value, use.path)) for use in uses)
    return all(np.array_equal(first, other) for other in others)


def _arranged(use: Use, at: np.ndarray) -> np.ndarray:
    """The leaf's operand as W′[b, c, k]."""
    if use.node.operation == "dot_general":
        contracted, batched = (pair[use.operand] for pair in use.node.options["dimension_numbers"])
        free = [d for d in range(at.ndim) if d not in contracted and d not in batched]
        return np.transpose(at, [*batched, *free, *contracted]).reshape(
            use.batch, use.outer, use.inner
        )
    return np.transpose(at, use.node.options["dimension_numbers"].rhs_spec).reshape(
        use.batch, use.outer, use.inner
    )


def entries(program: Program, value: int, path: Path) -> np.ndarray:
    """Which entry of the leaf stands at each place after the index maps."""
    shape = program.values[value].shape
    return reduce(_moved, path, np.arange(math.prod(shape)).reshape(shape))


def _moved(a: np.ndarray, step: tuple[Node, int]) -> np.ndarray:
    node, output = step
    found = DISCRETE[node.operation](node.options, a)
    return found[output] if isinstance(found, list) else found


def _product(program: Program, node: Node, value: int, path: Path) -> list[Use] | None:
    shapes = [program.values[i].shape for i in node.inputs]
    sizes = _dot_sizes if node.operation == "dot_general" else _conv_sizes
    found = []
    for operand, i in enumerate(node.inputs):
        if i == value:
            canonical = sizes(node, shapes, operand)
            if canonical is None:
                return None
            found.append(Use(node, operand, path, *canonical))
    return found


def _dot_sizes(
    node: Node, shapes: list[tuple[int, ...]], operand: int
) -> tuple[int, int, int, int] | None:
    contracted, batched = node.options["dimension_numbers"]
    batch = math.prod(shapes[0][d] for d in batched[0])
    inner = math.prod(shapes[0][d] for d in contracted[0])
    free = [math.prod(s) // max(1, batch * inner) for s in shapes]
    return batch, free[1 - operand], inner, free[operand]


def _conv_sizes(
    node: Node, shapes: list[tuple[int, ...]], operand: int
) -> tuple[int, int, int, int] | None:
    if operand == 0 or node.options["batch_group_count"] != 1:
        return None
    spec, groups = node.options["dimension_numbers"], node.options["feature_group_count"]
    out, inner, *window = (shapes[1][d] for d in spec.rhs_spec)
    places = math.prod(_places(node, shapes))
    return groups, shapes[0][spec.lhs_spec[0]] * places, inner * math.prod(window), out // groups


def _places(node: Node, shapes: list[tuple[int, ...]]) -> list[int]:
    """How many windows fit, along each axis of space."""
    options, spec = node.options, node.options["dimension_numbers"]
    sizes = [
        (shapes[0][d] - 1) * dilation + 1 + lo + hi
        for d, dilation, (lo, hi) in zip(
            spec.lhs_spec[2:], options["lhs_dilation"], options["padding"], strict=True
        )
    ]
    reach = [
        (shapes[1][d] - 1) * w + 1
        for d, w in zip(spec.rhs_spec[2:], options["rhs_dilation"], strict=True)
    ]
    return [
        (n - r) // s + 1 for n, r, s in zip(sizes, reach, options["window_strides"], strict=True)
    ]


def _with_constants(
    program: Program, found: list[Leaf], consumers: Mapping[int, list[Node]]
) -> tuple[Leaf, ...]:
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
        if (
            leaf.why != "it enters through add"
            or (at := _sum(program, leaf, consumers)) is None
            or at not in owners
        ):
            continue
        k, j = owners[at]
        use = found[k].uses[j]
        if use.constant is None and len(consumers[at]) == 1:
            uses = tuple(replace(u, constant=leaf.value) if u is use else u for u in found[k].uses)
            found[k] = replace(found[k], uses=uses)
            found[index] = replace(leaf, why="it is added to a product")
    return tuple(found)


def _sum(program: Program, leaf: Leaf, consumers: Mapping[int, list[Node]]) -> int | None:
    """The value that the leaf is added to, where each of its entries meets exactly one of that
    value's.
    """
    at = leaf.value
    while True:
        if len(consumers[at]) != 1 or at in program.outputs:
            return None
        [node] = consumers[at]
        if node.operation == "add":
            [other] = [i for i in node.inputs if i != at] or [at]
            return (
                other
                if other != at and math.prod(program.values[other].shape) == leaf.size
                else None
            )
        if (
            node.operation not in _MOVES
            or len(node.outputs) != 1
            or math.prod(program.values[node.outputs[0]].shape) != leaf.size
        ):
            return None
        at = node.outputs[0]


def looked_up(program: Program, leaf: Leaf) -> Use | None:
    """The use of a table whose rows are looked up once, at indices that are inside it or moved
    there; `None` for any other leaf.
    """
    at = [node for node in program.nodes if leaf.value in node.inputs]
    if len(at) != 1 or at[0].operation != "gather" or leaf.value in program.outputs:
        return None
    [node], table, indices = (
        at,
        program.values[leaf.value].shape,
        program.values[at[0].inputs[1]].shape,
    )
    numbers, offset = node.options["dimension_numbers"], len(indices) - 1
    rows = (
        numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
        and numbers.offset_dims == tuple(range(offset, offset + len(table) - 1))
        and tuple(node.options["slice_sizes"]) == (1, *table[1:])
        and indices[-1] == 1
    )
    return Use(node, 0, (), 1, math.prod(indices), table[0], math.prod(table[1:])) if rows else None


def canonical_input(use: Use, other: Any, filters: tuple[int, ...]) -> Any:
    """The other operand as a[b, t, k], in JAX; `filters` is the shape of the leaf's operand."""
    if use.is_lookup:
        return _inside(use, other, filters[0]).reshape(1, use.positions, 1)
    if use.node.operation == "dot_general":
        contracted, batched = (
            pair[1 - use.operand] for pair in use.node.options["dimension_numbers"]
        )
        free = [d for d in range(other.ndim) if d not in contracted and d not in batched]
        return jnp.transpose(other, [*batched, *free, *contracted]).reshape(
            use.batch, use.positions, use.inner
        )
    patches = _patches(use.node, other, filters)
    n, _, *_, offsets = patches.shape
    grouped = patches.reshape(
        n, use.batch, -1, use.positions // n, offsets
    )  # (n, groups, channels, places, offsets)
    return jnp.transpose(grouped, (1, 0, 3, 2, 4)).reshape(use.batch, use.positions, use.inner)


def _inside(use: Use, indices: Any, rows: int) -> Any:
    """Which row is read; −1 for none."""
    if use.node.options["mode"] == jax.lax.GatherScatterMode.CLIP:
        return jnp.clip(indices, 0, rows - 1)
    return jnp.where((indices >= 0) & (indices < rows), indices, -1)


def _patches(node: Node, signal: Any, filters: tuple[int, ...]) -> Any:
    """(n, channels, *places, offsets): slices of the padded signal, one for each place in the
    window.
    """
    options, spec = node.options, node.options["dimension_numbers"]
    config = [(0, 0, 0)] * 2 + [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["lhs_dilation"], strict=True)
    ]
    full = jax.lax.pad(jnp.transpose(signal, spec.lhs_spec), jnp.zeros((), signal.dtype), config)
    places, strides = _places(node, [signal.shape, filters]), (1, 1, *options["window_strides"])
    window = [filters[d] for d in spec.rhs_spec[2:]]
    parts = []
    for offset in np.ndindex(*window):
        start = [0, 0, *(o * w for o, w in zip(offset, options["rhs_dilation"], strict=True))]
        stop = [
            *full.shape[:2],
            *(b + s * (n - 1) + 1 for b, s, n in zip(start[2:], strides[2:], places, strict=True)),
        ]
        parts.append(jax.lax.slice(full, start, stop, strides))
    return jnp.stack(parts, axis=-1)


def canonical_cotangent(use: Use, d: Any) -> Any:
    """The cotangents (o, *shape of the product) as d[o, b, t, c]."""
    o = d.shape[0]
    if use.is_lookup:
        return d.reshape(o, 1, use.positions, use.outer)
    if use.node.operation == "dot_general":
        shape = (
            (o, use.batch, use.positions, use.outer)
            if use.operand == 1
            else (o, use.batch, use.outer, use.positions)
        )
        arranged = d.reshape(shape)
        return arranged if use.operand == 1 else jnp.swapaxes(arranged, 2, 3)
    spec = use.node.options["dimension_numbers"]
    moved = jnp.transpose(d, [0, *(1 + s for s in spec.out_spec)])  # (o, n, channels, *places)
    n = moved.shape[1]
    grouped = moved.reshape(o, n, use.batch, use.outer, -1)
    return jnp.transpose(grouped, (0, 2, 1, 4, 3)).reshape(o, use.batch, use.positions, use.outer)
