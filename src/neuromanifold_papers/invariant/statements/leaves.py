"""invariant, Sec. 5: the leaves of two-layer networks as printed, and how many there are."""

import itertools
from collections.abc import Iterator
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np

from neuromanifold.orbits.lattice import leaf_count
from neuromanifold.orbits.partition import invariant_leaf
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.invariant.statements import cases as cast
from neuromanifold_papers.invariant.statements.algebra import Neurons
from neuromanifold_papers.invariant.statements.connected import Lattice
from neuromanifold_papers.invariant.statements.maps import Stabilised, signed_permutations
from neuromanifold_papers.statement import control, statement

Blocks = tuple[tuple[int, ...], ...]
Named = tuple[Blocks, tuple[int, ...]]


@lru_cache
def partitions(m: int) -> tuple[Blocks, ...]:
    """𝔓_m."""
    return tuple(cast.set_partitions(tuple(range(m))))


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
        yield cast.whole_neurons(rng, m, d, 2)


@statement(
    "P 5.1",
    _points,
    control(
        "without the second condition, different across blocks",
        lambda: ((1, 1), (1, 1)),
        apart=False,
    ),
    draws=30,
)
def partition(neurons: Neurons, apart: bool = True) -> Check:
    """The sets M_P of a partition P of the neurons, equal inside blocks and different across, are
    the leaves of G_per.

    In how many of the sets M_P a point lies; 0 also where the library's leaf has other
    blocks.
    """
    m, d = len(neurons), len(neurons[0]) - 1
    found = [P for P in partitions(m) if in_printed_set(neurons, P, apart=apart)]
    [library] = invariant_leaf(*cast.two_layer("exp", neurons)).partition
    same = len(found) == 1 and set(found[0]) == {block.neurons for block in library}
    return equal(len(found) if same or len(found) > 1 else 0, 1, m=m, d=d)


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
        for blocks in cast.set_partitions(tuple(range(m - size)))
    )


@statement(
    "P 5.1, 5.2 (count)",
    [Lattice(name, 1, m) for name in ("exp", "tanh") for m in (1, 2, 3, 4)],
    control("cos, which is even", lambda: Lattice("cos", 1, 2)),
)
def count(case: Lattice) -> Check:
    """For m = 1, 2, 3, 4 there are 1, 2, 5, 15 leaves of G_per (Bell) and 2, 6, 24, 116 of
    G_combine (type B).

    Leaves listed by the library against 1, 2, 5, 15 and 2, 6, 24, 116, and the recursions.
    """
    odd = case.name == "tanh"
    printed, formula = (TYPE_B if odd else BELL)[case.m - 1], (type_b if odd else bell)(case.m)
    listed = {leaf_count(case.net), len(case.leaves), formula}
    left = listed.pop() if len(listed) == 1 else -1
    return equal(left, printed, activation=case.name, m=case.m)


def leaf_dimension(odd: bool, d: int, s: int) -> int:
    """(d + 1)s without parity; (d + 1)(s − 1) for odd σ, the zero block, empty or not, counted
    in s.
    """
    return (d + 1) * (s - 1) if odd else (d + 1) * s


@statement(
    "P 5.1, 5.2 (dimension)",
    [*itertools.starmap(Lattice, itertools.product(("exp", "tanh"), (1, 2, 3), (1, 2, 3)))],
    control(
        "(d+1)s for odd σ, at m = 1",
        lambda: Lattice("tanh", 1, 1),
        dimension=lambda odd, d, s: (d + 1) * s,
    ),
)
def dimensions(case: Lattice, dimension: Any = leaf_dimension) -> Check:
    """A leaf with s blocks has dimension (d+1)s; for odd σ, B_1 counted, (d+1)(s−1).

    How many leaves have another dimension than that of their blocks.
    """
    odd = case.name == "tanh"
    wrong = 0
    for leaf in case.leaves:
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
        for k, first in enumerate(((), *blocks)):
            ordered = (first, *blocks[: max(k - 1, 0)], *blocks[k:])
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
    turned = [times(sign, neuron) for sign, neuron in zip(gamma, neurons, strict=True)]
    inside = [pair for block in others for pair in itertools.pairwise(block)]
    across = itertools.combinations((zero, *others), 2)
    apart = [pair for one, other in across for pair in itertools.product(one, other)]
    return (
        not any(any(neurons[i]) for i in zero)
        and all(turned[i] == turned[j] for i, j in inside)
        and all(neurons[i] not in (neurons[j], times(-1, neurons[j])) for i, j in apart)
        and not (nonzero and any(not any(neurons[i]) for b in others for i in b))
    )


def sets_with(neurons: Neurons, *, nonzero: bool, names: Any = signed_names) -> list[Named]:
    """The sets of P 5.2 that hold a point, as printed or with the condition added."""
    return [P for P in names(len(neurons)) if in_signed_set(neurons, P, nonzero=nonzero)]


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


_ALONE = control(
    "γ = (1, 1) alone, at opposite neurons",
    lambda: ((1, 1), (-1, -1)),
    names=lambda m: [named for named in signed_names(m) if min(named[1]) > 0],
)


@statement(
    "P 5.2",
    lambda rng, draws: itertools.chain([((0, 0),)], _points(rng, draws)),
    _ALONE,
    draws=30,
    show=lambda neurons: (
        "from neuromanifold_papers.invariant.statements.leaves import "
        f"sets_with\nlen(sets_with({neurons}, nonzero=False))"
    ),
    confirm=_stabilisers,
)
def signed(neurons: Neurons, *, nonzero: bool = False, names: Any = signed_names) -> Check:
    """The sets M_{P,γ}, zero in B_1 (possibly empty), equal up to signs γ in the other blocks,
    different up to sign across blocks, are the leaves of G_combine.
    """
    found = sets_with(neurons, nonzero=nonzero, names=names)
    zeros = sum(not any(neuron) for neuron in neurons)
    return equal(len(found), 1, m=len(neurons), zero_neurons=zeros, d=len(neurons[0]) - 1)


@signed.amend(
    control("without the condition, at θ = 0", lambda: ((0, 0),), nonzero=False),
    id="P 5.2, amended",
    cases=_points,
    draws=30,
)
def repaired(neurons: Neurons, nonzero: bool = True) -> Check:
    """With (a_i, w_i) ≠ 0 for i ∉ B_1 added, the sets M_{P,γ} are the leaves of G_combine.

    The amended set that holds a point, against the blocks of the library's leaf.
    """
    check = signed(neurons, nonzero=nonzero)
    [(blocks, gamma), *_] = sets_with(neurons, nonzero=nonzero) or [(((),), ())]
    [library] = invariant_leaf(*cast.two_layer("tanh", neurons)).partition
    zero = {i for block in library if block.zero for i in block.neurons}
    mine = {(block, tuple(gamma[i] for i in block)) for block in blocks[1:]}
    theirs = {(block.neurons, block.signs) for block in library if not block.zero}
    same = (set(blocks[0]), mine) == (zero, theirs)
    return check if same else equal(0, 1, hypotheses=check.hypotheses)


@statement("P 5.2 (cover)", _points, _ALONE, draws=30)
def cover(neurons: Neurons, names: Any = signed_names) -> Check:
    """Every θ lies in some M_{P,γ}: the sets cover parameter space."""
    return at_least(len(sets_with(neurons, nonzero=False, names=names)), 1, m=len(neurons))


def printed_stabiliser(named: Named) -> np.ndarray:
    """H: π keeps the blocks, δ_i is arbitrary in B_1 and γ_iγ_{π⁻¹(i)} elsewhere, as matrices.
    [invariant, proof of P 5.2]
    """
    (zero, *others), gamma = named
    block = {i: index for index, part in enumerate((zero, *others)) for i in part}
    every = signed_permutations(len(gamma))

    def keeps(g: np.ndarray) -> bool:
        moved = [(block[i] == block[j], g[i, j], i, j) for i, j in np.argwhere(g).tolist()]
        return all(same and (i in zero or s == gamma[i] * gamma[j]) for same, s, i, j in moved)

    return every[np.array([keeps(g) for g in every])]


@statement(
    "P 5.2 (stabiliser)",
    lambda rng, draws: (neurons for neurons in _points(rng, draws) if len(neurons) < 4),
    control(
        "γ left out, at opposite neurons",
        lambda: ((1, 1), (-1, -1)),
        law=lambda named: printed_stabiliser((named[0], (1,) * len(named[1]))),
    ),
    draws=30,
)
def stabiliser(neurons: Neurons, law: Any = printed_stabiliser) -> Check:
    """Neurons outside B_1 not zero: S(θ) is the printed H on M_{P,γ}, and every θ' that H fixes and
    no other element does vanishes on B_1, is equal up to γ in the other blocks and different
    across them.
    """
    [named] = sets_with(neurons, nonzero=True)
    H = {g.tobytes() for g in law(named)}
    values = sorted({*neurons, *(times(-1, n) for n in neurons), (0,) * len(neurons[0])})
    wrong = 0
    for point in itertools.product(values, repeat=len(neurons)):
        same = {g.tobytes() for g in Stabilised("tanh", point).stabiliser} == H
        wrong += same != in_signed_set(point, named, nonzero=True)
    return equal(wrong, 0, comparisons=len(values) ** len(neurons), m=len(neurons))
