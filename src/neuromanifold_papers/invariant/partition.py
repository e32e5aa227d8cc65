"""The sets of Propositions 5.1 and 5.2 as they are printed: in how many of them does a point
lie?
"""

import itertools
from collections.abc import Iterator

import numpy as np

Blocks = tuple[tuple[int, ...], ...]
Named = tuple[Blocks, tuple[int, ...]]


def printed_sets(
    a: np.ndarray, w: np.ndarray, *, signed: bool, repaired: bool = False
) -> list[Named]:
    """All (P, γ) with (a_i, w_i) ∈ M_P [invariant, P 5.1], or ∈ M_{P,γ} where `signed` [P 5.2], as
    distinct sets.

    In P 5.2 the first block is the zero block and may be empty. Two γ that agree up to a sign on
    each of the other blocks name the same set, so the first neuron of a block has sign 1, and zero
    neurons have sign 1. `repaired` adds what the proof uses and the definition does not say:
    neurons outside the first block are not zero.

    >>> [len(printed_sets(np.zeros((1, 1)), np.zeros((1, 1)), signed=True, repaired=r)) for r in (False, True)]
    [2, 1]
    """
    neurons = np.concatenate([a, w], axis=1)
    return [
        named
        for named in _candidates(len(neurons), signed)
        if _holds(neurons, *named, signed, repaired)
    ]


def _candidates(m: int, signed: bool) -> Iterator[Named]:
    for blocks in _partitions(tuple(range(m))):
        if not signed:
            yield blocks, (1,) * m
            continue
        for first in range(-1, len(blocks)):
            ordered = (
                ((), *blocks)
                if first < 0
                else (blocks[first], *blocks[:first], *blocks[first + 1 :])
            )
            free = [
                (1,) if i in ordered[0] or any(i == b[0] for b in ordered[1:]) else (1, -1)
                for i in range(m)
            ]
            for signs in itertools.product(*free):
                yield ordered, signs


def _partitions(members: tuple[int, ...]) -> Iterator[Blocks]:
    if not members:
        yield ()
        return
    first, rest = members[0], members[1:]
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            for further in _partitions(tuple(i for i in rest if i not in others)):
                yield ((first, *others), *further)


def _holds(
    neurons: np.ndarray, blocks: Blocks, signs: tuple[int, ...], signed: bool, repaired: bool
) -> bool:
    """The conditions of the definition, one by one."""
    zero, others = (blocks[0], blocks[1:]) if signed else ((), blocks)
    if any(neurons[i].any() for i in zero):
        return False
    if repaired and any(not neurons[i].any() for block in others for i in block):
        return False
    for block in others:
        if any(
            (signs[i] * neurons[i] != signs[j] * neurons[j]).any()
            for i, j in itertools.pairwise(block)
        ):
            return False
    for one, other in itertools.combinations(blocks, 2):
        for i, j in itertools.product(one, other):
            same = (neurons[i] == neurons[j]).all() or (
                signed and (neurons[i] == -neurons[j]).all()
            )
            if same:
                return False
    return True
