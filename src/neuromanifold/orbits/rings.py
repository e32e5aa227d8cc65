"""The two rings that brackets are computed over: float64, and the residues modulo a 61-bit
prime.
"""

import abc
from dataclasses import dataclass

import numpy as np

from neuromanifold.numerics import modular

_HALF = 30
_HALF_MASK = (1 << _HALF) - 1


class Ring(abc.ABC):
    """Entrywise and matrix arithmetic on NumPy arrays."""

    @abc.abstractmethod
    def embed(self, a: np.ndarray) -> np.ndarray:
        """Floats as elements of the ring."""

    @abc.abstractmethod
    def embed_whole(self, a: list[int]) -> np.ndarray:
        """A vector of whole numbers of any size, up to a common factor."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Draw random elements."""

    @abc.abstractmethod
    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return a + b, entrywise."""

    @abc.abstractmethod
    def negate(self, a: np.ndarray) -> np.ndarray:
        """Return −a."""

    @abc.abstractmethod
    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a·b, entrywise, broadcasting."""

    @abc.abstractmethod
    def inverse(self, a: np.ndarray) -> np.ndarray:
        """1/a, entrywise; `ZeroDivisionError` where an entry is zero."""

    @abc.abstractmethod
    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The matrix product over the last two axes."""

    @abc.abstractmethod
    def sum_runs(self, a: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Sums of the runs of the first axis that begin at `starts`."""


@dataclass(frozen=True)
class Reals(Ring):
    """float64."""

    def embed(self, a: np.ndarray) -> np.ndarray:
        return np.asarray(a, np.float64)

    def embed_whole(self, a: list[int]) -> np.ndarray:
        largest = max(1, *map(abs, a))
        return np.array([value / largest for value in a])

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def negate(self, a: np.ndarray) -> np.ndarray:
        return -a

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    def inverse(self, a: np.ndarray) -> np.ndarray:
        _refuse_zeros(a)
        return 1.0 / a

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a @ b

    def sum_runs(self, a: np.ndarray, starts: np.ndarray) -> np.ndarray:
        return np.add.reduceat(a, starts, axis=0)


@dataclass(frozen=True)
class Residues(Ring):
    """The integers modulo a prime p with 2⁶⁰ < p < 2⁶¹; floats are dyadic rationals, so they have
    residues.

    >>> ring = Residues(2**61 - 1)
    >>> int(ring.multiply(ring.embed(np.array([0.5])), ring.embed(np.array([6.0])))[0])
    3
    """

    p: int

    def embed(self, a: np.ndarray) -> np.ndarray:
        return modular.from_floats(np.asarray(a, np.float64), self.p)

    def embed_whole(self, a: list[int]) -> np.ndarray:
        return np.array([value % self.p for value in a], np.int64)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(0, self.p, shape, dtype=np.int64)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return modular.add(a, b, self.p)

    def negate(self, a: np.ndarray) -> np.ndarray:
        return np.where(a == 0, a, self.p - a)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return modular.multiply(a, b, self.p)

    def inverse(self, a: np.ndarray) -> np.ndarray:
        _refuse_zeros(a)
        return modular.inverse(a, self.p)

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return modular.matmul(a, b, self.p)

    def sum_runs(self, a: np.ndarray, starts: np.ndarray) -> np.ndarray:
        # Halves of 31 and 30 bits: runs of up to 2³² terms sum without overflow.
        high, low = (np.add.reduceat(half, starts, axis=0) for half in (a >> _HALF, a & _HALF_MASK))
        return modular.add(
            modular.multiply(high % self.p, np.array(1 << _HALF), self.p), low % self.p, self.p
        )


def _refuse_zeros(a: np.ndarray) -> None:
    if not np.all(a):
        raise ZeroDivisionError("a field of `f` divides by zero at these parameters and inputs")
