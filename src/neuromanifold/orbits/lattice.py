"""`invariant_leaves`: all leaves of a two-layer network, ordered by inclusion."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics.results import Shown
from neuromanifold.orbits.partition import (
    Block,
    InvariantLeaf,
    generic_point,
    invariant_leaf,
    leaf_of,
)
from neuromanifold.symmetry.groups.monomial import Monomial, monomial
from neuromanifold.symmetry.groups.neurons import by_neuron
from neuromanifold.symmetry.groups.permutation import PermutationGroup

Pieces = tuple[Block, ...]

_CROWDED = 9


@dataclass(frozen=True, eq=False, repr=False)
class LeafLattice(Shown):
    """The leaves of a two-layer network, largest first, with their inclusion order.
    [invariant, P 5.1, P 5.2]

    They are a partition of parameter space: `leaf(params)` is the one a point lies on. One leaf is
    below another when its points are limits of the other's: then the stabiliser has grown. `covers`
    are the pairs (lower, upper) with nothing between.
    """

    net: MLP
    leaves: tuple[InvariantLeaf, ...]

    def headline(self) -> str:
        """Return how many leaves, and between which dimensions."""
        return (
            f"{len(self)} leaves of {self.net}, dimensions {self.dimensions.min()} to "
            f"{self.dimensions.max()}"
        )

    def __len__(self) -> int:
        return len(self.leaves)

    def __iter__(self) -> Iterator[InvariantLeaf]:
        return iter(self.leaves)

    def __getitem__(self, index: int) -> InvariantLeaf:
        return self.leaves[index]

    @cached_property
    def dimensions(self) -> np.ndarray:
        """The dimension of each leaf."""
        return np.array([leaf.dimension for leaf in self.leaves])

    @cached_property
    def below(self) -> np.ndarray:
        """below[i, j]: leaf i lies in the closure of leaf j."""
        points = np.stack([generic_point(leaf) for leaf in self.leaves])
        return np.stack([leaf.holds(points) for leaf in self.leaves], axis=1)

    @cached_property
    def covers(self) -> tuple[tuple[int, int], ...]:
        """The pairs (i, j) with leaf i below leaf j and no leaf between."""
        strict = self.below & ~np.eye(len(self), dtype=bool)
        between = (strict.astype(np.int64) @ strict.astype(np.int64)) > 0
        return tuple((int(i), int(j)) for i, j in np.argwhere(strict & ~between))

    def index(self, params: Params) -> int:
        """Return the number of the leaf on which θ lies."""
        return self._numbers[invariant_leaf(self.net, params)]

    @cached_property
    def _numbers(self) -> dict[InvariantLeaf, int]:
        return {leaf: number for number, leaf in enumerate(self.leaves)}

    def meet(self, i: int, j: int) -> int:
        """Return the largest leaf below the leaves `i` and `j`: its closure is the intersection of the closures."""
        return int(np.flatnonzero(self.below[:, i] & self.below[:, j])[0])

    def join(self, i: int, j: int) -> int:
        """Return the smallest leaf above the leaves `i` and `j`."""
        return int(np.flatnonzero(self.below[i] & self.below[j])[-1])

    def set(self, members: Iterable[Any]) -> "InvariantSet":
        """Return the union of the leaves with the numbers `members`."""
        return InvariantSet(self, frozenset(int(i) for i in members))

    def draw(self, axes: Any = None) -> Any:
        """Draw the order as a picture: leaves at the height of their dimension, lines for `covers`.
        Returns the axes.
        """
        from matplotlib.figure import Figure

        axes = Figure(figsize=(9, 6)).add_subplot() if axes is None else axes
        x = _positions(self)
        for i, j in self.covers:
            axes.plot([x[i], x[j]], self.dimensions[[i, j]], color="0.75", linewidth=0.8, zorder=1)
        for i, leaf in enumerate(self.leaves):
            crowded = (self.dimensions == leaf.dimension).sum() > _CROWDED
            label = ("\n" if crowded else " ").join(map(str, leaf.partition[0]))
            box = {"facecolor": "white", "edgecolor": "0.5", "boxstyle": "round,pad=0.2"}
            axes.text(
                x[i],
                leaf.dimension,
                label,
                ha="center",
                va="center",
                fontsize=7,
                bbox=box,
                zorder=2,
            )
        axes.set(
            xlim=(-0.54, 0.54),
            ylabel="dimension of the leaf",
            xticks=[],
            yticks=sorted({*self.dimensions.tolist()}),
        )
        return axes


@dataclass(frozen=True, repr=False)
class InvariantSet(Shown):
    """A union of leaves. Complements, unions and intersections are invariant again.
    [invariant, P 3.2]

    >>> lattice = invariant_leaves(nm.MLP((1, 2, 1), "exp", bias=False))
    >>> equal = lattice.set([1])
    >>> (~equal).members, (equal | ~equal).is_everything, len(equal & ~equal)
    (frozenset({0}), True, 0)
    """

    lattice: LeafLattice
    members: frozenset[int]

    def headline(self) -> str:
        """Return how many leaves, and which."""
        return (
            f"{len(self)} of {len(self.lattice)} leaves: "
            f"{', '.join(map(str, sorted(self.members))) or 'none'}"
        )

    def __len__(self) -> int:
        return len(self.members)

    def __or__(self, other: "InvariantSet") -> "InvariantSet":
        return InvariantSet(self.lattice, self.members | other.members)

    def __and__(self, other: "InvariantSet") -> "InvariantSet":
        return InvariantSet(self.lattice, self.members & other.members)

    def __invert__(self) -> "InvariantSet":
        return InvariantSet(self.lattice, frozenset(range(len(self.lattice))) - self.members)

    @property
    def is_everything(self) -> bool:
        """Whether it is the whole parameter space."""
        return len(self.members) == len(self.lattice)

    @property
    def is_closed(self) -> bool:
        """Whether it contains its limits, that is: every leaf below one of its own."""
        below = self.lattice.below[:, sorted(self.members)].any(axis=1)
        return frozenset(np.flatnonzero(below).tolist()) <= self.members

    def contains(self, params: Params) -> bool:
        """Return whether θ lies in the leaf."""
        return self.lattice.index(params) in self.members


def invariant_leaves(net: MLP, *, limit: int = 5000) -> LeafLattice:
    """Return all invariant leaves of a two-layer network.   [invariant, P 5.1, P 5.2]

    Without parity they are the partitions of the neurons (Bell numbers 1, 2, 5, 15, …), a block of
    equal neurons each; for odd σ the signed partitions with a zero block that may be empty (2, 6,
    24, 116, …); for even σ the signed partitions any blocks of which may have zero incoming weights
    (2, 7, 31, 164, …). Neurons of different activations are never equal. A leaf with s blocks has
    dimension (d+1)s (d inputs, no biases, one output); zero blocks add 0 for odd, 1 for even σ.

    A lattice of more than `limit` leaves is refused.

    >>> tuple(len(invariant_leaves(nm.MLP((1, m, 1), "exp"))) for m in (1, 2, 3, 4))
    (1, 2, 5, 15)
    >>> tuple(len(invariant_leaves(nm.MLP((1, m, 1), "tanh"))) for m in (1, 2, 3))
    (2, 6, 24)
    """
    count = leaf_count(net)
    if count > limit:
        raise ValueError(
            f"`net` has {count} leaves, more than `limit` = {limit}; take fewer neurons or raise "
            "`limit`."
        )
    leaves = [_leaf(net, pieces) for pieces in _all_pieces(net)]
    return LeafLattice(net, tuple(sorted(leaves, key=lambda leaf: -leaf.dimension)))


def leaf_count(net: MLP) -> int:
    """Return how many leaves a two-layer network has, by recursion on the block of the first
    neuron.

    N(m) = Σ_b C(m−1, b−1) f(b) N(m−b) with f(b) = 1 without parity, 2^(b−1) signs for odd and
    2^(b−1) + 1 for even σ; for odd σ the zero block is chosen first, Σ_z C(m, z) N(m−z).

    >>> leaf_count(nm.MLP((1, 10, 1), "exp")), leaf_count(nm.MLP((1, 4, 1), "tanh"))
    (115975, 116)
    """
    _check(net)
    return math.prod(_count(len(neurons), parity) for neurons, parity in _classes(net))


def _check(net: Any) -> None:
    require_perceptron(net, "pass an nm.MLP with one hidden layer")
    if net.depth != 2:
        raise ValueError(
            f"`net` has {net.depth - 1} hidden layers; all leaves are enumerated for one, take "
            "`invariant_leaf` at a point."
        )
    if net.output_activation.parity == "even":
        raise ValueError(
            f"`net` has the even output activation {net.output_activation}, whose flips are not "
            "enumerated; "
            "use a linear output."
        )


def _classes(net: MLP) -> list[tuple[np.ndarray, str]]:
    parity = by_neuron(net.activation[0], net.widths[1], lambda a: a.parity or "")
    return [(neurons, str(parity[neurons[0]])) for neurons in PermutationGroup(net).classes[0]]


def _count(m: int, parity: str) -> int:
    signs = {"": lambda b: 1, "odd": lambda b: 2 ** (b - 1), "even": lambda b: 2 ** (b - 1) + 1}[
        parity
    ]
    ways = [1]
    for n in range(1, m + 1):
        ways.append(sum(math.comb(n - 1, b - 1) * signs(b) * ways[n - b] for b in range(1, n + 1)))
    return sum(math.comb(m, z) * ways[m - z] for z in range(m + 1)) if parity == "odd" else ways[m]


def _all_pieces(net: MLP) -> Iterator[Pieces]:
    """Every choice of blocks, a product over the sets of neurons of equal activation."""
    choices = [list(_pieces(tuple(neurons.tolist()), parity)) for neurons, parity in _classes(net)]
    for choice in itertools.product(*choices):
        yield tuple(itertools.chain.from_iterable(choice))


def _pieces(neurons: tuple[int, ...], parity: str) -> Iterator[Pieces]:
    if parity != "odd":
        yield from _split(neurons, parity)
        return
    for size in range(len(neurons) + 1):
        for zero in itertools.combinations(neurons, size):
            block = (Block(zero, (1,) * size, zero=True),) if size else ()
            for rest in _split(tuple(i for i in neurons if i not in zero), parity):
                yield (*block, *rest)


def _split(neurons: tuple[int, ...], parity: str) -> Iterator[Pieces]:
    """Partitions into blocks with signs, the first neuron of a block having sign 1; for even σ
    also zero blocks.
    """
    if not neurons:
        yield ()
        return
    first, rest = neurons[0], neurons[1:]
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            remaining = tuple(i for i in rest if i not in others)
            for block in _with_signs((first, *others), parity):
                for further in _split(remaining, parity):
                    yield (block, *further)


def _with_signs(neurons: tuple[int, ...], parity: str) -> Iterator[Block]:
    free = ((1,), *([(1, -1) if parity else (1,)] * (len(neurons) - 1)))
    for signs in itertools.product(*free):
        yield Block(neurons, signs)
    if parity == "even":
        yield Block(neurons, (1,) * len(neurons), zero=True)


def _leaf(net: MLP, pieces: Pieces) -> InvariantLeaf:
    exchanges = [
        exchange(net, 0, i, j, s * t)
        for block in pieces
        for (i, s), (j, t) in itertools.pairwise(zip(block.neurons, block.signs, strict=True))
    ]
    flips = [exchange(net, 0, i, i, -1) for block in pieces if block.zero for i in block.neurons]
    return leaf_of(net, (*exchanges, *flips))


def exchange(net: MLP, layer: int, i: int, j: int, sign: int = 1) -> Monomial:
    """The element that exchanges neurons i and j of a hidden layer, with a flip of both where
    `sign` is −1; i = j flips one.

    A flip needs parity: odd neurons change their outgoing weights too, even ones do not.
    """
    orders = [np.arange(width) for width in net.widths[1:-1]]
    into = [np.ones(width) for width in net.widths[1:]]
    out = [np.ones(width) for width in net.widths[1:-1]]
    odd = by_neuron(net.activation[layer], net.widths[1 + layer], lambda a: a.parity == "odd")
    orders[layer][[i, j]] = [j, i]
    into[layer][[i, j]] = sign
    out[layer][[i, j]] = np.where(odd[[i, j]], sign, 1)
    return monomial(net, order=orders, into=into, out=out)


def _positions(lattice: LeafLattice) -> np.ndarray:
    """Horizontal places: each level spread evenly, its leaves ordered by the mean place of what
    covers them.
    """
    x = np.zeros(len(lattice))
    above = {i: [] for i in range(len(lattice))}
    for lower, upper in lattice.covers:
        above[lower].append(upper)
    for dimension in sorted({*lattice.dimensions.tolist()}, reverse=True):
        level = sorted(
            np.flatnonzero(lattice.dimensions == dimension).tolist(),
            key=lambda i: float(np.mean([x[j] for j in above[i]])) if above[i] else 0.0,
        )
        x[level] = (np.arange(len(level)) + 0.5) / len(level) - 0.5
    return x
