"""Ball arithmetic (`flint.arb`) with a separation bound: a ball that is smaller than any nonzero
number of its height is zero.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.bounded import OPEN
from neuromanifold.graph.heights import Height, Heights
from neuromanifold.graph.numbers import Rationals, object_array
from neuromanifold.runtime.memory import blocks

_HEIGHTS = Heights()
_ENTRIES_AT_ONCE = 2**18  # of the right factor of a product


class Enclosure(NamedTuple):
    """Balls that contain the exact numbers, and the height of those numbers.

    Floats that nothing was computed with yet are kept as they are in `entries`: they are exact, and
    a tenth as large.
    """

    entries: np.ndarray
    height: Height

    @property
    def balls(self) -> np.ndarray:
        """The entries, each a ball."""
        return self.entries if self.entries.dtype == object else _Arbs().lift(self.entries)


class _Arbs(Rationals):
    """Object arrays of `flint.arb` at the precision of FLINT's context."""

    name = "balls"

    def number(self, numerator: int, denominator: int) -> Any:
        import flint

        return flint.arb(flint.fmpq(numerator, denominator))

    def _product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        import flint

        if 0 in (*a.shape, *b.shape):
            return object_array(
                [flint.arb(0)] * (a.shape[0] * b.shape[1]), (a.shape[0], b.shape[1])
            )
        left, out = flint.arb_mat(a.tolist()), np.empty((a.shape[0], b.shape[1]), object)
        for part in blocks(b.shape[1], _ENTRIES_AT_ONCE // len(b)):
            product = left * flint.arb_mat(b[:, part].tolist())
            out[:, part] = object_array(product.entries(), (len(a), part.stop - part.start))
        return out


class Balls(Arithmetic):
    """Balls of so many bits. Signs that neither the ball nor the separation bound decides are
    `OPEN`: ask for more bits.

    Walk inside `with flint.ctx.workprec(bits)`.
    """

    name = "balls"

    def __init__(self):
        self._balls = _Arbs()

    def lift(self, a: np.ndarray) -> Enclosure:
        kept = a.dtype == np.float64 and np.isfinite(a).all()
        return Enclosure(a if kept else self._balls.lift(a), _HEIGHTS.lift(a))

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Enclosure) -> Enclosure:
        height = _HEIGHTS.rearrange(fn, *(v.height for v in values))
        floats = all(v.entries.dtype != object for v in values)
        return Enclosure(fn(*(v.entries if floats else v.balls for v in values)), height)

    def shape(self, a: Enclosure) -> tuple[int, ...]:
        return a.entries.shape

    def add(self, a: Enclosure, b: Enclosure) -> Enclosure:
        return Enclosure(self._balls.add(a.balls, b.balls), _HEIGHTS.add(a.height, b.height))

    def negate(self, a: Enclosure) -> Enclosure:
        return Enclosure(self._balls.negate(a.balls), a.height)

    def multiply(self, a: Enclosure, b: Enclosure) -> Enclosure:
        return Enclosure(
            self._balls.multiply(a.balls, b.balls), _HEIGHTS.multiply(a.height, b.height)
        )

    def dot(self, a: Enclosure, b: Enclosure) -> Enclosure:
        return Enclosure(self._balls.dot(a.entries, b.entries), _HEIGHTS.dot(a.height, b.height))

    def divide(self, a: Enclosure, b: Enclosure) -> Enclosure:
        return Enclosure(self._balls.divide(a.balls, b.balls), _HEIGHTS.divide(a.height, b.height))

    def sum(self, a: Enclosure, axes: tuple[int, ...]) -> Enclosure:
        return Enclosure(self._balls.sum(a.balls, axes), _HEIGHTS.sum(a.height, axes))

    def scatter_add(self, base: Enclosure, index: np.ndarray, updates: Enclosure) -> Enclosure:
        height = _HEIGHTS.scatter_add(base.height, index, updates.height)
        return Enclosure(self._balls.scatter_add(base.balls, index, updates.balls), height)

    def sign(self, a: Enclosure) -> np.ndarray:
        smallest = _power_of_two(a.height.separation)
        return np.array([_sign(ball, smallest) for ball in a.balls.ravel()], np.int8).reshape(
            self.shape(a)
        )

    def largest(self, a: Enclosure) -> tuple[np.ndarray, np.ndarray]:
        """By differences from a candidate, each decided as a sign is."""
        rows = a.balls.reshape(-1, self.shape(a)[-1])
        smallest = _power_of_two(_HEIGHTS.add(a.height, a.height).separation)
        tied = np.array([_find_ties(list(row), smallest) for row in rows], bool).reshape(
            self.shape(a)
        )
        return np.where(tied.any(axis=-1), tied.argmax(axis=-1), -1), tied


def _power_of_two(exponent: float) -> Any:
    import flint

    return flint.arb((1, math.floor(exponent)))


def _sign(ball: Any, smallest: Any) -> int:
    if ball > 0:
        return 1
    if ball < 0:
        return -1
    return 0 if abs(ball) < smallest else OPEN


def _find_ties(row: list[Any], smallest: Any) -> list[bool]:
    """Which entries are the largest; none where that is open."""
    best = 0
    for i, ball in enumerate(row):
        if ball > row[best]:
            best = i
    signs = [0 if i == best else _sign(ball - row[best], smallest) for i, ball in enumerate(row)]
    return [sign == 0 and not {1, OPEN} & set(signs) for sign in signs]
