"""Scales and shifts of parameters alone, folded into the weights beside them: normalisation in
evaluation mode, gains of any norm.

An affine chain of a graph is v = A ⊙ n + B, n a value that depends on the sample, A and B functions
of parameters alone (gain, shift, mean, variance). Where n is the product with a weight W, or where
all readers of v are products with weights W_j, the chain can stand at neutral values (gain 1,
variance 1, mean 0): W takes over A / A_neutral, the chain's last shift b what is missing of B.
Where a shift is added to each of the products W_j v, these take over W_j b, and b can be zero. The
leaves at neutral values are no parameters any more.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.uses import Leaf, Path, Use, carry, leaves
from neuromanifold.models.arguments import Model
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.discovery.channels import Arrays, Slot
from neuromanifold.symmetry.discovery.dependence import Exit

_MOVES = (
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "convert_element_type",
    "copy",
)
_SCALES, _SHIFTS = ("mul", "div"), ("add", "sub", "add_any")
_SAME = 1e-12


@dataclass(frozen=True, eq=False)
class Folded:
    """A model whose leaves in `neutral` are constants: parameters have None there. A pure
    function of its parameters.
    """

    f: Model
    structure: Any
    neutral: Mapping[int, np.ndarray]

    def __call__(self, params: Any, x: Any) -> Any:
        """f with the neutral values in place."""
        given = iter(jax.tree.leaves(params))
        count = self.structure.num_leaves
        full = [
            jnp.asarray(self.neutral[k]) if k in self.neutral else next(given) for k in range(count)
        ]
        return self.f(self.structure.unflatten(full), x)

    def parameters(self, arrays: Sequence[Any]) -> Any:
        """The tree of all leaves without the neutral ones."""
        return self.structure.unflatten(
            [None if k in self.neutral else a for k, a in enumerate(arrays)]
        )


@dataclass(frozen=True, eq=False)
class Chain:
    """The value where it starts, the nodes of which each reads the last, and the value where it
    ends.
    """

    start: int
    nodes: tuple[tuple[Node, int], ...]
    end: int


@dataclass(frozen=True, eq=False)
class Folding:
    """The affine chains of a graph, asked at numbers; the leaves in `neutral` are no shifts that
    could take anything over.
    """

    graph: Graph
    neutral: frozenset[int] = frozenset()

    @property
    def program(self) -> Program:
        """The network's program."""
        return self.graph.program

    @cached_property
    def uses(self) -> tuple[Leaf, ...]:
        """How the leaves enter."""
        return leaves(self.program, len(self.graph.parameters))

    @cached_property
    def products(self) -> dict[int, tuple[int, Use]]:
        """The products that one leaf makes once, by the value they give."""
        found = [(k, leaf.uses[0]) for k, leaf in enumerate(self.uses) if len(leaf.uses) == 1]
        return {use.output: (k, use) for k, use in found}

    @cached_property
    def products_of(self) -> dict[int, Use]:
        """The one product of each leaf that makes one."""
        return dict(self.products.values())

    @cached_property
    def consumers(self) -> dict[int, list[Node]]:
        """The nodes that read each value."""
        found: dict[int, list[Node]] = defaultdict(list)
        for node in self.program.nodes:
            for i in dict.fromkeys(node.inputs):
                found[i].append(node)
        return found

    @cached_property
    def of_sample(self) -> frozenset[int]:
        """The values that depend on the sample."""
        return self.program.depending(self.program.inputs[len(self.graph.parameters) :])

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """All longest chains."""
        found, inside = [], set[int]()
        for node in self.program.nodes:
            for value in node.outputs:
                if value in self.of_sample and value not in inside:
                    chain = self.starting(value)
                    inside |= {n.outputs[0] for n, _ in chain.nodes}
                    found += (
                        [chain]
                        if any(n.operation in (*_SCALES, *_SHIFTS) for n, _ in chain.nodes)
                        else []
                    )
        return tuple(found)

    def starting(self, value: int) -> Chain:
        """The longest chain that starts at a value."""
        start, nodes = value, list[tuple[Node, int]]()
        while len(after := self.consumers[value]) == 1 and value not in self.program.outputs:
            node = after[0]
            at = self._position(node, value)
            if at is None:
                break
            nodes.append((node, at))
            value = node.outputs[0]
        return Chain(start, tuple(nodes), value)

    def _position(self, node: Node, value: int) -> int | None:
        """Which operand the chain is, where the node is affine in it and its other operand a
        matter of parameters.
        """
        if node.operation in _MOVES or node.operation == "neg":
            return 0
        if node.operation not in (*_SCALES, *_SHIFTS) or node.inputs[0] == node.inputs[1]:
            return None
        at = node.inputs.index(value)
        fits = (
            not (node.operation == "div" and at == 1) and node.inputs[1 - at] not in self.of_sample
        )
        return at if fits else None

    def leaves_of(self, chain: Chain) -> list[int]:
        """The leaves that A and B are made of, in the order in which the chain meets them."""
        found: list[int] = []
        for node, at in chain.nodes:
            for other in (
                i for k, i in enumerate(node.inputs) if k != at and i not in self.program.constants
            ):
                needed = {i for n in self.program.slice([other]).nodes for i in n.inputs} | {other}
                found += [
                    k
                    for k, i in enumerate(self.program.inputs[: len(self.uses)])
                    if i in needed and k not in found
                ]
        return found

    def affine(self, chain: Chain, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """A and B at these parameters, in the shape of the chain's end."""
        others = [i for node, at in chain.nodes for k, i in enumerate(node.inputs) if k != at]
        known = dict(zip(others, self._at(others, arrays), strict=True))
        shape = self.program.values[chain.start].shape
        A, B = jnp.ones(shape), jnp.zeros(shape)
        for node, at in chain.nodes:
            if node.operation in _SHIFTS:
                A = _apply(node, at, A, known) - _apply(node, at, 0 * A, known)
                B = _apply(node, at, B, known)
            else:
                A, B = _apply(node, at, A, known), _apply(node, at, B, known)
        return np.asarray(A), np.asarray(B)

    def parameter(self, value: int, arrays: Arrays) -> Any:
        """A value that depends on parameters alone, in JAX."""
        return self._at([value], arrays)[0]

    def _at(self, values: Sequence[int], arrays: Arrays) -> list[Any]:
        """Values that depend on parameters alone; only those that they need go to the device."""
        part = self.program.slice(values)
        needed = {*values, *(i for node in part.nodes for i in node.inputs)}
        leaves = [
            jnp.asarray(a) if i in needed else a for i, a in zip(part.inputs, arrays, strict=False)
        ]
        sample = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(self.graph.sample)]
        return interpret(part, [*leaves, *sample], None)

    def moved(self, chain: Chain, index: np.ndarray) -> np.ndarray:
        """An array of the start's shape in the shape of the end."""
        a = jnp.asarray(index)
        for node, _ in chain.nodes:
            a = node.evaluate(a)[0] if node.operation in _MOVES else a
        return np.asarray(a)

    def writer(self, chain: Chain) -> "Weight | None":
        """The weight whose product starts the chain."""
        if chain.start not in self.products:
            return None
        leaf, use = self.products[chain.start]
        shape = self.program.values[chain.start].shape
        places = _own_axis(use, len(shape), len(self._operand(use)))
        if places is None:
            return None
        grid = np.indices(shape)[places[0]].astype(np.float64)
        place = np.rint(self.moved(chain, grid)).astype(int)
        return Weight(leaf, use.path, places[1], place)

    def readers(self, chain: Chain) -> "list[Weight] | None":
        """The weights of all products that read the end; None where something else does."""
        found = []
        shape = self.program.values[chain.end].shape
        for node in self.consumers[chain.end]:
            leaf, use = self.products.get(node.outputs[0], (-1, None))
            places = _summed_axis(use) if use is not None and use.node is node else None
            if use is None or places is None:
                return None
            found.append(Weight(leaf, use.path, places[1], np.indices(shape)[places[0]]))
        return found if found and chain.end not in self.program.outputs else None

    def _operand(self, use: Use) -> tuple[int, ...]:
        return self.program.values[use.node.inputs[use.operand]].shape


@dataclass(frozen=True, eq=False)
class Weight:
    """A leaf, the index maps after which its product has it, the axis that meets the chain then, and
    the place on it of each entry of the end.
    """

    leaf: int
    path: Path
    axis: int
    place: np.ndarray

    def moved(self, a: np.ndarray) -> np.ndarray:
        """An array like the leaf, as the product has it."""
        return carry(self.path, a)

    def scaled(self, a: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
        """The leaf times the factors of the chain's end, or None where entries of one place
        differ.
        """
        entries = self.moved(np.arange(a.size).reshape(a.shape))
        scale = np.ones(entries.shape[self.axis])
        scale[self.place.ravel()] = factor.ravel()
        if not (np.abs(scale[self.place] - factor) <= _SAME * np.abs(factor)).all():
            return None
        flat = a.ravel().copy()
        shape = [-1 if k == self.axis else 1 for k in range(entries.ndim)]
        flat[entries] *= np.broadcast_to(scale.reshape(shape), entries.shape)
        return flat.reshape(a.shape)


def _apply(node: Node, at: int, a: Any, known: Mapping[int, Any]) -> Any:
    """The node's result where the chain has the value `a`, in float64: what the network rounds to
    in between is left to the test that
    follows."""
    if node.operation == "convert_element_type":
        return a
    others = {k: jnp.asarray(known[i], a.dtype) for k, i in enumerate(node.inputs) if k != at}
    return node.evaluate(*(others.get(k, a) for k in range(len(node.inputs))))[0]


def _own_axis(use: Use, count: int, axes: int) -> tuple[int, int] | None:
    """(axis of the product, axis of the weight) where the product has one axis of the weight's
    own.
    """
    if use.node.operation == "conv_general_dilated":
        numbers = use.node.options["dimension_numbers"]
        return (numbers.out_spec[1], numbers.rhs_spec[0]) if use.operand == 1 else None
    contracted, batch = (pair[use.operand] for pair in use.node.options["dimension_numbers"])
    free = [axis for axis in range(axes) if axis not in (*contracted, *batch)]
    if len(free) != 1:
        return None
    return (count - 1 if use.operand == 1 else len(batch)), free[0]


def _summed_axis(use: Use) -> tuple[int, int] | None:
    """(axis of the other operand, axis of the weight) where one pair is summed."""
    if use.node.operation == "conv_general_dilated":
        numbers = use.node.options["dimension_numbers"]
        plain = use.operand == 1 and use.node.options["feature_group_count"] == 1
        return (numbers.lhs_spec[1], numbers.rhs_spec[1]) if plain else None
    contracted = use.node.options["dimension_numbers"][0]
    return (
        (contracted[1 - use.operand][0], contracted[use.operand][0])
        if len(contracted[0]) == 1
        else None
    )


def fold_chain(
    folding: Folding, chain: Chain, arrays: Arrays
) -> tuple[Arrays, dict[int, np.ndarray]] | None:
    """The parameters with the chain at neutral values, and those of its leaves that are neutral
    now; None where it cannot be.
    """
    own = folding.leaves_of(chain)
    written = folding.writer(chain)
    read = None if written else folding.readers(chain)
    if not own or (written is None and read is None):
        return None
    A, B = folding.affine(chain, arrays)
    shift = _shift(folding, chain, arrays, own, A)
    rest = [k for k in own if k != shift]
    if not rest:
        return None
    found = list(arrays)
    for k in rest:
        scales = not np.allclose(
            folding.affine(chain, _put(arrays, k, arrays[k] + 1.0))[0], A, rtol=_SAME
        )
        found[k] = np.full_like(arrays[k], 1.0 if scales else 0.0)
    neutral = {k: found[k] for k in rest}
    A_neutral, B_neutral = folding.affine(chain, found)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # a gain of zero cannot be taken out; refused below
        factor = A / A_neutral
        target = B if written else B / factor
    if not np.isfinite(factor).all() or not np.isfinite(target).all():
        return None
    if shift is not None:
        found[shift] = _solve_shift(folding, chain, found, shift, target)
        B_neutral = folding.affine(chain, found)[1]
    size = np.abs(target).max(initial=0.0) + np.abs(B).max(initial=0.0)
    if not (np.abs(B_neutral - target) <= _SAME * size).all():
        return None
    for weight in [written] if written else read or []:
        scaled = weight.scaled(found[weight.leaf], factor)
        if scaled is None:
            return None
        found[weight.leaf] = scaled
    return found, neutral


def remove_shift(
    folding: Folding, chain: Chain, arrays: Arrays
) -> tuple[Arrays, dict[int, np.ndarray]] | None:
    """The parameters with the chain's shift at zero, where every product that reads the chain is
    followed by a shift that takes it over.
    """
    own, read = folding.leaves_of(chain), folding.readers(chain)
    A, B = folding.affine(chain, arrays)
    shift = (
        _shift(folding, chain, arrays, own, A)
        if own and read and chain.start not in folding.products
        else None
    )
    if shift is None or read is None:
        return None
    found = _put(arrays, shift, np.zeros_like(arrays[shift]))
    rest = B - folding.affine(chain, found)[1]
    for weight in read:
        node = folding.products_of[weight.leaf].node
        operand = weight.moved(arrays[weight.leaf])
        given = [rest if i == chain.end else operand for i in node.inputs]
        taken = absorb(folding, found, node, given)
        if taken is None:
            return None
        found = taken
    return found, {shift: found[shift]}


def absorb(folding: Folding, arrays: Arrays, node: Node, given: Sequence[Any]) -> Arrays | None:
    """The parameters where the shift after a product takes over what the product makes of a
    constant: `node` with `given` for its operands.

    None where there is no such shift, or it is not the same everywhere (at the edge of an image).
    """
    moved = jnp.asarray(node.evaluate(*map(jnp.asarray, given))[0])
    after = folding.starting(node.outputs[0])
    A, B = folding.affine(after, arrays)
    return shift_to(folding, after, arrays, B + A * folding.moved(after, np.asarray(moved)))


def shift_to(folding: Folding, chain: Chain, arrays: Arrays, target: np.ndarray) -> Arrays | None:
    """The parameters where the last shift of a chain makes B the target; None where it has none, or
    none that is so everywhere.
    """
    A = folding.affine(chain, arrays)[0]
    shift = _shift(folding, chain, arrays, folding.leaves_of(chain), A)
    if shift is None:
        return None
    found = _put(arrays, shift, _solve_shift(folding, chain, arrays, shift, target))
    size = np.abs(target).max(initial=0.0)
    fits = np.abs(folding.affine(chain, found)[1] - target) <= _SAME * size
    return found if fits.all() else None


def take_over(folding: Folding, arrays: Arrays, exit: Exit, constants: np.ndarray) -> Arrays | None:
    """The parameters where the shift after a sum over channels takes over what these add to it,
    (channels, places of each) of constants; None where there is no such shift.
    """
    place, shape = exit.place, folding.graph.program.values[exit.value].shape
    slot = Slot(0, 0, place.before, place.size, place.after, place.start)
    vector = [np.zeros(shape[exit.axis])]
    if slot.slices(vector).shape != constants.shape:
        return None
    slot.put(vector, constants)
    lengths = [-1 if d == exit.axis else 1 for d in range(len(shape))]
    constant = np.broadcast_to(vector[0].reshape(lengths), shape)
    reader = folding.parameter(exit.partner, arrays)
    given = [constant if i == exit.value else reader for i in exit.node.inputs]
    return absorb(folding, arrays, exit.node, given)


@dataclass(frozen=True, eq=False)
class Folds:
    """Parameters with scales and shifts at neutral values: which leaves these are with what they
    are now, and which of them went together.
    """

    arrays: Arrays
    neutral: dict[int, np.ndarray]
    together: tuple[tuple[int, ...], ...]


def fold_scales(graph: Graph, arrays: Arrays, same: Callable[[Arrays], bool]) -> Folds:
    """Every scale and shift that the weights beside it take over; `same` says whether f is what it
    was: all of them are asked about at once, one by one where that fails.
    """
    folding = Folding(graph)
    steps = tuple(itertools.product((fold_chain, remove_shift), folding.chains))
    with arithmetic():
        found = _fold(folding, arrays, steps, None)
        return found if same(found.arrays) else _fold(folding, arrays, steps, same)


def _fold(
    folding: Folding,
    arrays: Arrays,
    steps: Sequence[tuple[Callable[..., Any], Chain]],
    same: Callable[[Arrays], bool] | None,
) -> Folds:
    neutral, together = dict[int, np.ndarray](), []
    for fold, chain in steps:
        taken = fold(folding, chain, arrays)
        if taken is None or neutral.keys() & taken[1].keys() or (same and not same(taken[0])):
            continue
        arrays = taken[0]
        neutral |= taken[1]
        together.append(tuple(taken[1]))
    return Folds(arrays, neutral, tuple(together))


def _put(arrays: Arrays, k: int, a: np.ndarray) -> Arrays:
    return [a if i == k else other for i, other in enumerate(arrays)]


def _shift(
    folding: Folding, chain: Chain, arrays: Arrays, own: list[int], A: np.ndarray
) -> int | None:
    """The last leaf that is added to the chain and nothing else."""
    for k in (k for k in reversed(own) if k not in folding.neutral):
        at = [folding.affine(chain, _put(arrays, k, arrays[k] + step)) for step in (0.0, 1.0, 2.0)]
        once, twice = at[1][1] - at[0][1], at[2][1] - at[0][1]
        alike = all(np.allclose(a, A, rtol=_SAME) for a, _ in at) and np.allclose(
            twice, 2 * once, rtol=1e-9
        )
        if alike and (once != 0).all():
            return k
    return None


def _solve_shift(
    folding: Folding, chain: Chain, arrays: Arrays, k: int, target: np.ndarray
) -> np.ndarray:
    """The shift with which B is the target, as the mean over the entries that it reaches."""
    index = np.arange(arrays[k].size, dtype=np.float64).reshape(arrays[k].shape)
    none, ones, numbered = (
        folding.affine(chain, _put(arrays, k, a))[1] for a in (0 * index, 0 * index + 1, index)
    )
    slope = ones - none
    place = np.rint((numbered - none) / slope).astype(int).ravel()
    wanted = ((target - none) / slope).ravel()
    sums, counts = np.bincount(place, wanted, index.size), np.bincount(place, minlength=index.size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), arrays[k].ravel()).reshape(
        index.shape
    )
