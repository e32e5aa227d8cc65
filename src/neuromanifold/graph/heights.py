"""Heights: how large the exact numbers of a program can be, and how small without being zero.

A value is a family of rationals n/d with |n/d| ≤ 2^magnitude and d a divisor of 2^bits·e, e ≤
2^other. Two uses: a nonzero member is at least 2^(−bits − other) in size (separation), and a
nonzero minor of a matrix of such numbers has few prime divisors.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.runtime.memory import blocks

_AT_ONCE = 2**18


class Height(NamedTuple):
    """The size of a family of rationals. Denominators that are powers of two (`bits`) are shared
    by sums, others multiply.
    """

    array: np.ndarray
    magnitude: float
    bits: float
    other: float

    @property
    def separation(self) -> float:
        """log₂ of a lower bound on a nonzero member."""
        return -self.bits - self.other


class Heights(Arithmetic):
    """Bounds for whole arrays; the array itself is only a shape (a broadcast zero), so that a
    walk costs next to nothing.
    """

    name = "heights"

    def lift(self, a: np.ndarray) -> Height:
        return Height(_shape(np.shape(a)), *size_of(a), 0.0)

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Height) -> Height:
        return Height(_shape(fn(*(v.array for v in values)).shape), *_largest(values))

    def shape(self, a: Height) -> tuple[int, ...]:
        return a.array.shape

    def add(self, a: Height, b: Height) -> Height:
        shape = np.broadcast_shapes(a.array.shape, b.array.shape)
        other = a.other + b.other
        return Height(_shape(shape), max(a.magnitude, b.magnitude) + 1, max(a.bits, b.bits), other)

    def negate(self, a: Height) -> Height:
        return a

    def multiply(self, a: Height, b: Height) -> Height:
        shape = np.broadcast_shapes(a.array.shape, b.array.shape)
        return Height(_shape(shape), a.magnitude + b.magnitude, a.bits + b.bits, a.other + b.other)

    def dot(self, a: Height, b: Height) -> Height:
        k = a.array.shape[-1]
        shape = (*a.array.shape[:-1], b.array.shape[-1])
        return _sum_heights(
            self.multiply(a._replace(array=np.zeros(())), b._replace(array=np.zeros(()))), k, shape
        )

    def divide(self, a: Height, b: Height) -> Height:
        """|b| ≥ 2^(−bits − other) and its numerator is at most 2^(magnitude + bits + other),
        which becomes a denominator.
        """
        shape = np.broadcast_shapes(a.array.shape, b.array.shape)
        numerator = max(0.0, b.magnitude + b.bits + b.other)
        return Height(_shape(shape), a.magnitude - b.separation, a.bits, a.other + numerator)

    def sum(self, a: Height, axes: tuple[int, ...]) -> Height:
        shape = a.array.sum(axis=axes).shape
        return _sum_heights(a, max(1, math.prod(a.array.shape) // max(1, math.prod(shape))), shape)

    def scatter_add(self, base: Height, index: np.ndarray, updates: Height) -> Height:
        return _sum_heights(
            self.add(base, updates._replace(array=np.zeros(()))), len(index) + 1, base.array.shape
        )

    def sign(self, a: Height) -> np.ndarray:
        return np.broadcast_to(np.zeros((), np.int8), a.array.shape)

    def largest(self, a: Height) -> tuple[np.ndarray, np.ndarray]:
        places = np.broadcast_to(np.zeros((), np.int64), a.array.shape[:-1])
        return places, np.broadcast_to(np.zeros((), bool), a.array.shape)


def size_of(a: np.ndarray) -> tuple[float, float]:
    """log₂ of the largest size (at least 0), and the least e ≥ 0 for which every 2^e·a is a
    whole number.
    """
    a = np.asarray(a)
    if a.dtype.kind in "iub":
        return math.log2(max(1, int(np.abs(a.astype(object)).max(initial=1)))), 0.0
    nonzero = np.asarray(a, np.float64)[a != 0]
    sizes = [_size_of(nonzero[part]) for part in blocks(nonzero.size, _AT_ONCE)]
    return max((0.0, *(high for high, _ in sizes))), max((0.0, *(low for _, low in sizes)))


def _size_of(nonzero: np.ndarray) -> tuple[float, float]:
    mantissas, exponents = np.frexp(nonzero)
    integers = np.abs(mantissas * 2.0**53).astype(np.int64)
    trailing = np.log2((integers & -integers).astype(np.float64)).astype(np.int64)
    return float(exponents.max()), float((53 - exponents - trailing).max())


def _shape(shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.zeros(()), shape)


def _largest(values: tuple[Height, ...]) -> tuple[float, float, float]:
    return (
        max(v.magnitude for v in values),
        max(v.bits for v in values),
        max(v.other for v in values),
    )


def _sum_heights(a: Height, terms: int, shape: tuple[int, ...]) -> Height:
    return Height(_shape(shape), a.magnitude + math.log2(max(1, terms)), a.bits, a.other * terms)
