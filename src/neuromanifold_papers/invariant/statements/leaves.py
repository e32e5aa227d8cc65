"""invariant, Sec. 5: the leaves of two-layer networks as printed, and how many there are."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from neuromanifold.models.mlp import MLP
from neuromanifold.orbits.lattice import invariant_leaves, leaf_count
from neuromanifold.orbits.partition import invariant_leaf
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.invariant.statements.algebra import Neurons
from neuromanifold_papers.invariant.statements.cases import (
    ANALYTIC,
    set_partitions,
    two_layer,
    whole_neurons,
)
from neuromanifold_papers.invariant.statements.maps import Stabilised
from neuromanifold_papers.statement import Statement, control, statement

Blocks = tuple[tuple[int, ...], ...]
Named = tuple[Blocks, tuple[int, ...]]


@lru_cache
def partitions(m: int) -> tuple[Blocks, ...]:
    """𝔓_m."""
    return tuple(set_partitions(tuple(range(m))))


def in_printed_set(neurons: Neurons, blocks: Blocks, *, apart: bool = True) -> bool:
    """(a_i, w_i) ∈ M_P: equal in a block and, where `apart`, different across blocks.
    [invariant, P 5.1]
    """
    equal = all(neurons[i] == neurons[j] for block in blocks for i, j in itertools.pairwise(block))
    across = itertools.combinations(blocks, 2)
    return equal and not (
        apart and any(neurons[i] == neurons[j] for one, other in across for i in one for j in other)
    )


def _points(rng: np.random.Generator, draws: int) -> Iterator[Neurons]:
    for m in (1, 2):
        yield from itertools.product(itertools.product((-1, 0, 1), repeat=2), repeat=m)
    yield from itertools.product(itertools.product((0, 1), repeat=2), repeat=3)
    for _ in range(draws):
        m, d = (int(k) for k in rng.integers([2, 1], [5, 3]))
        yield whole_neurons(rng, m, d, 2)


def show_points(neurons: Neurons) -> str:
    return f"neurons = np.array({[list(neuron) for neuron in neurons]})   # rows (a_i, w_i)"


@statement(
    "P 5.1",
    _points,
    control(
        "without the second condition, different across blocks",
        lambda: ((1, 1), (1, 1)),
        apart=False,
    ),
    draws=30,
    show=show_points,
)
def partition(neurons: Neurons, apart: bool = True) -> Check:
    """The sets M_P of a partition P of the neurons, equal inside blocks and different across, are
    the leaves of G_per.

    In how many of the sets M_P a point lies; 0 also where the library's leaf has other
    blocks.
    """
    found = [
        blocks
        for blocks in partitions(len(neurons))
        if in_printed_set(neurons, blocks, apart=apart)
    ]
    [library] = invariant_leaf(*two_layer("exp", neurons)).partition
    same = len(found) == 1 and set(found[0]) == {block.neurons for block in library}
    return equal(
        len(found) if same or len(found) > 1 else 0, 1, m=len(neurons), d=len(neurons[0]) - 1
    )


BELL = (1, 2, 5, 15)
TYPE_B = (2, 6, 24, 116)


def bell(m: int) -> int:
    """B(m) = Σ C(m−1, k) B(k)."""
    return 1 if m == 0 else sum(comb(m - 1, k) * bell(k) for k in range(m))


def type_b(m: int) -> int:
    """Σ over the zero block and the other blocks of 2^(neurons − blocks)."""
    return sum(
        2 ** (m - size - len(blocks)) * comb(m, size)
        for size in range(m + 1)
        for blocks in set_partitions(tuple(range(m - size)))
    )


@dataclass(frozen=True)
class Family:
    """All leaves of a two-layer network."""

    name: str
    d: int
    m: int

    @property
    def net(self) -> MLP:
        """Without biases."""
        return MLP((self.d, self.m, 1), ANALYTIC[self.name], bias=False)


@statement(
    "P 5.1, 5.2 (count)",
    lambda rng, draws: [Family(name, 1, m) for name in ("exp", "tanh") for m in (1, 2, 3, 4)],
    control("cos, which is even", lambda: Family("cos", 1, 2)),
)
def count(case: Family) -> Check:
    """For m = 1, 2, 3, 4 there are 1, 2, 5, 15 leaves of G_per (Bell) and 2, 6, 24, 116 of
    G_combine (type B).

    Leaves listed by the library against 1, 2, 5, 15 and 2, 6, 24, 116, and the recursions.
    """
    odd = case.name == "tanh"
    printed, formula = (TYPE_B if odd else BELL)[case.m - 1], (type_b if odd else bell)(case.m)
    listed = {leaf_count(case.net), len(invariant_leaves(case.net)), formula}
    left = listed.pop() if len(listed) == 1 else -1
    return equal(left, printed, activation=case.name, m=case.m)


def leaf_dimension(odd: bool, d: int, s: int) -> int:
    """(d + 1)s without parity; (d + 1)(s − 1) for odd σ, the zero block, empty or not, counted
    in s.
    """
    return (d + 1) * (s - 1) if odd else (d + 1) * s


@statement(
    "P 5.1, 5.2 (dimension)",
    lambda rng, draws: [
        Family(name, d, m) for name in ("exp", "tanh") for d in (1, 2, 3) for m in (1, 2, 3)
    ],
    control(
        "(d+1)s for odd σ, at m = 1",
        lambda: Family("tanh", 1, 1),
        dimension=lambda odd, d, s: (d + 1) * s,
    ),
)
def dimensions(case: Family, dimension: Callable[[bool, int, int], int] = leaf_dimension) -> Check:
    """A leaf with s blocks has dimension (d+1)s; for odd σ, B_1 counted, (d+1)(s−1).

    How many leaves have another dimension than that of their blocks.
    """
    odd = case.name == "tanh"
    wrong = 0
    for leaf in invariant_leaves(case.net):
        s = sum(not block.zero for block in leaf.partition[0]) + odd
        wrong += len(leaf.basis) != dimension(odd, case.d, s)
    return equal(wrong, 0, activation=case.name, m=case.m, d=case.d)


@lru_cache
def signed_names(m: int) -> tuple[Named, ...]:
    """(P, γ), the first block being B_1, which may be empty; one γ for each set: 1 on B_1 and at
    the first neuron of a block.
    """
    found = []
    for blocks in partitions(m):
        for first in range(-1, len(blocks)):
            ordered = (
                ((), *blocks)
                if first < 0
                else (blocks[first], *blocks[:first], *blocks[first + 1 :])
            )
            leading = {block[0] for block in ordered[1:]} | {*ordered[0]}
            signs = itertools.product(*((1,) if i in leading else (1, -1) for i in range(m)))
            found += [(ordered, gamma) for gamma in signs]
    return tuple(found)


def times(sign: int, neuron: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sign * entry for entry in neuron)


def in_signed_set(neurons: Neurons, named: Named, *, nonzero: bool) -> bool:
    """(a_i, w_i) ∈ M_{P,γ}; `nonzero` adds that neurons outside B_1 are not zero.
    [invariant, P 5.2]
    """
    (zero, *others), gamma = named
    silent = all(not any(neurons[i]) for i in zero)
    aligned = all(
        times(gamma[i], neurons[i]) == times(gamma[j], neurons[j])
        for block in others
        for i, j in itertools.pairwise(block)
    )
    apart = all(
        neurons[i] not in (neurons[j], times(-1, neurons[j]))
        for one, other in itertools.combinations((zero, *others), 2)
        for i in one
        for j in other
    )
    return (
        silent
        and aligned
        and apart
        and not (nonzero and any(not any(neurons[i]) for b in others for i in b))
    )


Names = Callable[[int], Iterable[Named]]


def sets_with(neurons: Neurons, *, nonzero: bool, names: Names = signed_names) -> list[Named]:
    """The sets of P 5.2 that hold a point, as printed or with the condition added."""
    return [
        named for named in names(len(neurons)) if in_signed_set(neurons, named, nonzero=nonzero)
    ]


def _signed(neurons: Neurons, *, nonzero: bool = False, names: Names = signed_names) -> Check:
    found = sets_with(neurons, nonzero=nonzero, names=names)
    zeros = sum(not any(neuron) for neuron in neurons)
    return equal(len(found), 1, m=len(neurons), zero_neurons=zeros, d=len(neurons[0]) - 1)


def _stabilisers(neurons: Neurons) -> Check:
    """How many different stabilisers, by trying every signed permutation, the points of one
    printed set through θ have.
    """
    named = sets_with(neurons, nonzero=False)[0]
    values = sorted({*neurons, *(times(-1, n) for n in neurons), (1,) * len(neurons[0])})
    points = itertools.product(values, repeat=len(neurons))
    inside = [point for point in points if in_signed_set(point, named, nonzero=False)]
    orders = {Stabilised("tanh", point).stabiliser.tobytes() for point in inside}
    return equal(len(orders), 1)


@statement(
    "P 5.2, amended",
    _points,
    control("without the condition, at θ = 0", lambda: ((0, 0),), nonzero=False),
    amends="P 5.2",
    draws=30,
    show=show_points,
)
def repaired(neurons: Neurons, nonzero: bool = True) -> Check:
    """With (a_i, w_i) ≠ 0 for i ∉ B_1 added, the sets M_{P,γ} are the leaves of G_combine.

    The amended set that holds a point, against the blocks of the library's leaf.
    """
    check = _signed(neurons, nonzero=nonzero)
    [(blocks, gamma), *_] = sets_with(neurons, nonzero=nonzero) or [(((),), ())]
    [library] = invariant_leaf(*two_layer("tanh", neurons)).partition
    zero = {i for block in library if block.zero for i in block.neurons}
    mine = {(block, tuple(gamma[i] for i in block)) for block in blocks[1:]}
    theirs = {(block.neurons, block.signs) for block in library if not block.zero}
    return (
        check
        if (set(blocks[0]), mine) == (zero, theirs)
        else equal(0, 1, hypotheses=check.hypotheses)
    )


signed = statement(
    "P 5.2",
    lambda rng, draws: itertools.chain([((0, 0),)], _points(rng, draws)),
    control(
        "γ = (1, 1) alone, at opposite neurons",
        lambda: ((1, 1), (-1, -1)),
        names=lambda m: [named for named in signed_names(m) if min(named[1]) > 0],
    ),
    draws=30,
    show=lambda neurons: (
        "from neuromanifold_papers.invariant.statements.leaves import "
        f"sets_with\nlen(sets_with({neurons}, nonzero=False))"
    ),
    confirm=_stabilisers,
    says="the sets M_{P,γ}, zero in B_1 (possibly empty), equal up to signs γ in the other blocks, different up to sign across blocks, are the leaves of G_combine",
)(_signed)


LEAVES: tuple[Statement, ...] = (partition, signed, count, dimensions)
