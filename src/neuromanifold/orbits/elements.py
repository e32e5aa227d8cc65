"""Elements of R[ε₁, …, ε_N]/(ε_i²) as numbers of a walk: any program without bends has its brackets from one walk."""

from collections.abc import Callable
from math import factorial
from typing import NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.orbits import nilpotent
from neuromanifold.orbits.derivatives import named_derivatives
from neuromanifold.orbits.rings import Ring


class Element(NamedTuple):
    """Entries (2ⁿ, lanes, *shape): the coefficients of ε_S, for many points at once."""

    entries: np.ndarray


class Elements(Arithmetic):
    """Arithmetic over `ring` with nilpotents. Programs do not see subsets and lanes: their axes stand in front of all others."""

    name = "nilpotent elements"

    def __init__(self, ring: Ring):
        self.ring = ring

    def lift(self, a: np.ndarray) -> Element:
        return Element(self.ring.embed(np.asarray(a, np.float64)[None, None]))

    def shape(self, a: Element) -> tuple[int, ...]:
        return a.entries.shape[2:]

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Element) -> Element:
        """The map is read off from places: place 0 is a zero, the others count through the values."""
        places, count = [], 1
        for value in values:
            size = int(np.prod(self.shape(value), dtype=int))
            places.append(np.arange(count, count + size).reshape(self.shape(value)))
            count += size
        moved = np.asarray(fn(*places))
        pool = _side_by_side(values)
        if (moved == 0).any():
            pool = np.concatenate([np.zeros((*pool.shape[:2], 1), pool.dtype), pool], axis=2)
        else:
            moved = moved - 1
        whole = moved.size == pool.shape[2] and np.array_equal(moved.ravel(), np.arange(moved.size))
        return Element((pool if whole else pool[:, :, moved.ravel()]).reshape(*pool.shape[:2], *moved.shape))

    def add(self, a: Element, b: Element) -> Element:
        return Element(nilpotent.add(self.ring, *_alike(a, b)))

    def negate(self, a: Element) -> Element:
        return Element(self.ring.negate(a.entries))

    def multiply(self, a: Element, b: Element) -> Element:
        return Element(nilpotent.multiply(self.ring, *_alike(a, b)))

    def dot(self, a: Element, b: Element) -> Element:
        return Element(nilpotent.matmul(self.ring, a.entries, b.entries))

    def divide(self, a: Element, b: Element) -> Element:
        """a·(1/b), from the derivatives (−1)ᵏ k! / b^(k+1) of the reciprocal at the constant term."""
        inverse = self.ring.inverse(b.entries[0])
        tower, power = [], inverse
        for k in range(nilpotent.generators(b.entries) + 2):
            tower.append(self.ring.multiply(power, self.ring.embed(np.array([(-1.0) ** k * factorial(k)]))))
            power = self.ring.multiply(power, inverse)
        return self.multiply(a, Element(nilpotent.compose(self.ring, tower, b.entries)[0]))

    def sum(self, a: Element, axes: tuple[int, ...]) -> Element:
        shape = self.shape(a)
        axes = tuple(axis % len(shape) for axis in axes)
        kept = tuple(shape[d] for d in range(len(shape)) if d not in axes)
        rows = self.rearrange(lambda v: np.moveaxis(v, axes, range(-len(axes), 0)).reshape(*kept, 1, -1), a)
        ones = self.ring.embed(np.ones((1, 1, *[1] * len(kept), self.shape(rows)[-1], 1)))
        total = nilpotent.matmul(self.ring, rows.entries, ones)
        return Element(total.reshape(*total.shape[:2], *kept))

    def scatter_add(self, base: Element, index: np.ndarray, updates: Element) -> Element:
        order = np.argsort(index, axis=None, kind="stable")
        places, starts = np.unique(index.ravel()[order], return_index=True)
        if not len(places):
            return base
        flat = self.rearrange(lambda v: v.reshape(-1)[order], updates).entries
        sums = np.moveaxis(self.ring.sum_runs(np.moveaxis(flat, 2, 0), starts), 0, 2)
        zero, size = np.zeros((1, 1, 1), sums.dtype), int(np.prod(self.shape(base), dtype=int))
        places_of = np.zeros(size, int)
        places_of[places] = 1 + np.arange(len(places))
        spread = np.concatenate([np.broadcast_to(zero, (*sums.shape[:2], 1)), sums], axis=2)[:, :, places_of]
        return self.add(base, Element(spread.reshape(*spread.shape[:2], *self.shape(base))))

    def smooth(self, operation: str, options: object, *values: Element) -> Element:
        if len(values) != 1:
            return super().smooth(operation, options, *values)
        [z] = values
        tower = named_derivatives(self.ring, operation, z.entries[0], nilpotent.generators(z.entries) + 1)
        return Element(nilpotent.compose(self.ring, tower, z.entries)[0])


def _alike(a: Element, b: Element) -> tuple[np.ndarray, np.ndarray]:
    """Entries with as many axes: a scalar meets any shape."""
    ndim = max(a.entries.ndim, b.entries.ndim)
    first, second = (v.entries.reshape(*v.entries.shape, *[1] * (ndim - v.entries.ndim)) for v in (a, b))
    return first, second


def _side_by_side(values: tuple[Element, ...]) -> np.ndarray:
    """All entries flat behind subsets and lanes, (2ⁿ, lanes, total)."""
    n = max(nilpotent.generators(v.entries) for v in values)
    lanes = max(v.entries.shape[1] for v in values)
    flat = [nilpotent.extend(v.entries.reshape(*v.entries.shape[:2], -1), n) for v in values]
    if len(flat) == 1:
        return flat[0]
    return np.concatenate([np.broadcast_to(a, (a.shape[0], lanes, a.shape[2])) for a in flat], axis=2)
