"""Assigning the irreducible factors of an end-to-end filter to the layers, in all possible ways.

Over ℂ the end-to-end polynomial is a product of *places*: irreducible polynomials, among them the
coordinates x_m and y_m. A layer with dilation t owns products of *atoms*, the irreducible elements
of ℝ[(x, y)^t]: the orbit of a place under the t-th roots of unity, joined with its complex
conjugate, or t copies of a coordinate (which is where z ↦ z^t ramifies). Different choices of atoms
are different factorisations, because ℝ[(x, y)^t] has unique factorisation.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.functionspace.polynomial import product
from neuromanifold.numerics.results import Array

Counts = tuple[int, ...]


class Atom(NamedTuple):
    """An irreducible element of a layer's ring: how often it uses each place, its degree and its
    coefficients in z^t.
    """

    counts: Counts
    degree: Counts
    coefficients: np.ndarray


def factorisations(
    available: Counts, atoms: Sequence[Sequence[Atom]], degrees: Sequence[Counts], limit: int
) -> list[tuple[np.ndarray, ...]]:
    """All filter tuples, up to scalars, whose layers use every place exactly as often as it is
    available.

    `atoms[l]` are the atoms of layer l and `degrees[l]` = k_l − 1 is what the layer's atoms must
    add up to.
    """
    built: dict[tuple[int, Counts], np.ndarray] = {}
    found: list[tuple[np.ndarray, ...]] = []
    for choice in _choices(len(atoms) - 1, available, atoms, degrees):
        if len(found) == limit:
            raise ValueError(
                f"`v` has more than {limit} factorisations; raise `limit` to list them all."
            )
        found.append(tuple(_build(built, l, atoms[l], chosen) for l, chosen in enumerate(choice)))
    return found


def _choices(
    layer: int, remaining: Counts, atoms: Sequence[Sequence[Atom]], degrees: Sequence[Counts]
) -> Iterator[tuple[Counts, ...]]:
    """The multiplicities of the atoms of layers 0..layer that use up `remaining`."""
    for chosen, left in _selections(atoms[layer], remaining, degrees[layer]):
        if layer == 0:
            if not any(left):
                yield (chosen,)
        else:
            for rest in _choices(layer - 1, left, atoms, degrees):
                yield (*rest, chosen)


def _selections(
    atoms: Sequence[Atom], remaining: Counts, degree: Counts
) -> Iterator[tuple[Counts, Counts]]:
    if not atoms:
        if not any(degree):
            yield (), remaining
        return
    first, *rest = atoms
    times = 0
    while True:
        for chosen, left in _selections(rest, remaining, degree):
            yield (times, *chosen), left
        remaining = tuple(a - b for a, b in zip(remaining, first.counts, strict=True))
        degree = tuple(a - b for a, b in zip(degree, first.degree, strict=True))
        times += 1
        if min(remaining) < 0 or min(degree) < 0:
            return


def _build(
    built: dict[Any, Array], layer: int, atoms: Sequence[Atom], chosen: Counts
) -> np.ndarray:
    if (layer, chosen) not in built:
        parts = [
            atom.coefficients
            for atom, times in zip(atoms, chosen, strict=True)
            for _ in range(times)
        ]
        filter_ = product(parts, len(atoms[0].degree))
        built[layer, chosen] = filter_ / np.linalg.norm(filter_)
    return built[layer, chosen]
