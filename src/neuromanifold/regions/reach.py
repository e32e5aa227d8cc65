"""Inputs that reach regions a sample does not: wide draws, and points between inputs of
different regions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_DECADES = (-1.0, 3.0)  # how far beyond the sample's spread wide draws go, in powers of ten
_MODERATE = (-0.5, 0.5)

Data = tuple[np.ndarray, ...]


def wide_inputs(data: Data, count: int, rng: np.random.Generator, *, bent: bool = True) -> Data:
    """Return inputs around the sample, from inside its spread to a thousand times beyond it; whole
    numbers from the range that it has.

    Each input has its own scale, drawn evenly in its logarithm: kinks may lie anywhere. Without
    bends three times the spread is enough, since any open set shows all that an analytic function
    does.
    """
    low, high = _DECADES if bent else _MODERATE
    scales = 10.0 ** rng.uniform(low, high, count)
    return tuple(_draw(leaf, scales, rng) for leaf in data)


def _draw(leaf: np.ndarray, scales: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shape = (len(scales), *leaf.shape[1:])
    if leaf.dtype.kind in "iu":
        return rng.choice(np.unique(leaf), shape)
    if leaf.dtype.kind != "f":
        return leaf[rng.integers(0, len(leaf), len(scales))]
    spread = float(np.abs(leaf - leaf.mean()).max()) or max(
        1.0, float(np.abs(leaf).max(initial=0.0))
    )
    return leaf.mean() + spread * scales.reshape(-1, *[1] * (leaf.ndim - 1)) * rng.standard_normal(
        shape
    )


@dataclass(frozen=True, eq=False)
class KnownRegions:
    """One input for every region met, with the gates there as one row of bytes."""

    data: Data
    rows: np.ndarray

    @property
    def count(self) -> int:
        """Return how many regions there are."""
        return len(self.rows)

    def with_new(
        self, data: Data, rows: np.ndarray, most: int | None = None
    ) -> tuple["KnownRegions", np.ndarray]:
        """Also the regions (at most so many) of other inputs that were not met before, and which
        inputs are the first in them.
        """
        seen = {row.tobytes() for row in self.rows}
        fresh = []
        for i, row in enumerate(rows):
            if (name := row.tobytes()) not in seen:
                seen.add(name)
                fresh.append(i)
        chosen = np.array(fresh[:most], np.int64)
        joined = tuple(np.concatenate([a, b[chosen]]) for a, b in zip(self.data, data, strict=True))
        return KnownRegions(joined, np.concatenate([self.rows, rows[chosen]])), chosen


def between(
    known: KnownRegions, quantities: np.ndarray, count: int, rng: np.random.Generator
) -> Data:
    """Return points on segments between inputs of different regions, between two crossings that
    follow each other.

    `quantities` (regions, units) are what decides the units at the known inputs. Where they are
    affine on a segment, unit k changes its sign at the share q_k(a)/(q_k(a) − q_k(b)), so that each
    part between two such shares lies in a region of its own.
    """
    if known.count < 2:
        return tuple(a[:0] for a in known.data)
    first, second = rng.integers(0, known.count, (2, count))
    share = np.array(
        [_part(quantities[i], quantities[j], rng) for i, j in zip(first, second, strict=True)]
    )
    apart = first != second  # the others are known
    return tuple(_mix(a, first[apart], second[apart], share[apart]) for a in known.data)


def _part(a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> float:
    """Return a point well inside a random part of the segment."""
    flipped = (a > 0) != (b > 0)
    cuts = np.sort(np.concatenate([[0.0, 1.0], a[flipped] / (a[flipped] - b[flipped])]))
    k = int(rng.integers(0, len(cuts) - 1))
    return float(cuts[k] + rng.uniform(0.25, 0.75) * (cuts[k + 1] - cuts[k]))


def _mix(a: np.ndarray, first: np.ndarray, second: np.ndarray, share: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return a[first]
    t = share.reshape(-1, *[1] * (a.ndim - 1))
    return (1 - t) * a[first] + t * a[second]


def known_regions(data: Data, gates: Sequence[np.ndarray]) -> tuple[KnownRegions, np.ndarray]:
    """Return the regions of a sample, and the first input in each."""
    rows = gate_rows(gates, data)
    none = KnownRegions(tuple(a[:0] for a in data), rows[:0])
    return none.with_new(data, rows)


def gate_rows(gates: Sequence[np.ndarray], data: Data) -> np.ndarray:
    """Return the gates of each sample, and its whole numbers, as one row of bytes: equal rows, one
    region.
    """
    whole = [a for a in data if a.dtype.kind != "f"]
    flat = [
        np.ascontiguousarray(g).reshape(len(g), math.prod(g.shape[1:])) for g in (*gates, *whole)
    ]
    parts = [g.view(np.uint8) for g in flat]
    return np.concatenate([np.zeros((len(data[0]), 0), np.uint8), *parts], axis=1)
