"""float64 with a running error bound: numbers known to lie within `radius` of `middle`.

Standard running analysis: a sum of m products in any order is off by at most γ_m Σ|a||b|, γ_m =
m·u/(1 − m·u), u = 2⁻⁵³, and each operation that underflows loses at most 2⁻¹⁰²², which covers
machines that flush subnormal numbers. Bounds are themselves computed in float64 and inflated by 1
%, with one more underflow for each term. A radius of zero means that the number is exact.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.runtime.memory import blocks

UNIT = 2.0**-53
TINY = 2.0**-1022
_ENTRIES_AT_ONCE, _FEWEST_ROWS = 2**18, 64  # of the left factor of a product
OPEN = 2
"""What stands for a sign that the bound leaves open."""


class Ball(NamedTuple):
    """The numbers within `radius` of `middle`, entrywise."""

    middle: np.ndarray
    radius: np.ndarray


class Bounded(Arithmetic):
    """float64 with error bounds. Signs that the bound does not decide are `OPEN`, and places of
    a largest entry −1.
    """

    name = "float64 bounds"

    def lift(self, a: np.ndarray) -> Ball:
        a = np.asarray(a, np.float64)
        return Ball(a, np.broadcast_to(np.zeros(()), a.shape))

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Ball) -> Ball:
        return Ball(fn(*(v.middle for v in values)), fn(*(v.radius for v in values)))

    def shape(self, a: Ball) -> tuple[int, ...]:
        return a.middle.shape

    def add(self, a: Ball, b: Ball) -> Ball:
        middle = a.middle + b.middle
        exact = (a.middle == 0) | (b.middle == 0)
        return Ball(
            middle, _up(a.radius + b.radius + np.where(exact, 0.0, UNIT * np.abs(middle) + TINY))
        )

    def negate(self, a: Ball) -> Ball:
        return Ball(-a.middle, a.radius)

    def multiply(self, a: Ball, b: Ball) -> Ball:
        middle = a.middle * b.middle
        x, y = np.abs(a.middle), np.abs(b.middle)
        spread = x * b.radius + y * a.radius + a.radius * b.radius
        zero = (x + a.radius == 0) | (y + b.radius == 0)
        exact = zero | (((x == 1) & (a.radius == 0)) | ((y == 1) & (b.radius == 0)))
        rounding = np.where(exact, 0.0, UNIT * np.abs(middle) + 4 * TINY)
        return Ball(middle, np.where(zero, 0.0, _up(spread + rounding)))

    def dot(self, a: Ball, b: Ball) -> Ball:
        """Some rows of `a` after the other, so that their magnitudes take little beside the
        factors.
        """
        y, rows = np.abs(b.middle), a.middle.shape[-2]
        reach = y + b.radius if b.radius.any() else y
        given = b, y, reach, (reach != 0).astype(np.float64)
        parts = list(
            blocks(rows, max(_FEWEST_ROWS, _ENTRIES_AT_ONCE * rows // max(1, a.middle.size)))
        ) or [slice(0, 0)]
        found = [
            _dot(Ball(a.middle[..., part, :], a.radius[..., part, :]), *given) for part in parts
        ]
        return (
            found[0]
            if len(found) == 1
            else Ball(*(np.concatenate(z, axis=-2) for z in zip(*found, strict=True)))
        )

    def divide(self, a: Ball, b: Ball) -> Ball:
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = a.middle / b.middle
            below = np.maximum(np.abs(b.middle) - b.radius, 0.0) * (1 - 4 * UNIT)
            spread = (a.radius + np.abs(middle) * b.radius) / below
        power_of_two = (
            (np.abs(np.frexp(b.middle)[0]) == 0.5) & (b.radius == 0) & (np.abs(middle) > 4 * TINY)
        )
        rounding = np.where(power_of_two, 0.0, 4 * UNIT * np.abs(middle) + 4 * TINY)
        zero = (a.middle == 0) & (a.radius == 0) & (below > 0)
        return Ball(np.where(zero, 0.0, middle), np.where(zero, 0.0, _up(spread + rounding)))

    def sum(self, a: Ball, axes: tuple[int, ...]) -> Ball:
        middle = a.middle.sum(axis=axes)
        m = max(1, a.middle.size // max(1, middle.size))
        gamma = (m + 2) * UNIT
        terms = np.count_nonzero(a.middle, axis=axes)
        rounding = np.where(terms > 1, gamma * np.abs(a.middle).sum(axis=axes) + TINY, 0.0)
        return Ball(middle, _up(a.radius.sum(axis=axes) + rounding))

    def scatter_add(self, base: Ball, index: np.ndarray, updates: Ball) -> Ball:
        sizes = Ball(np.abs(base.middle), np.abs(updates.middle))
        middle, radius, size = (
            _add_at(*pair, index)
            for pair in (
                (base.middle, updates.middle),
                (base.radius, updates.radius),
                (sizes.middle, sizes.radius),
            )
        )
        return Ball(middle, _up(radius + (len(index) + 2) * UNIT * size + TINY * (size > 0)))

    def sign(self, a: Ball) -> np.ndarray:
        signs = np.sign(a.middle)
        decided = (np.abs(a.middle) > a.radius) | (a.radius == 0)
        return np.where(decided & np.isfinite(a.middle), signs, OPEN).astype(np.int8)

    def largest(self, a: Ball) -> tuple[np.ndarray, np.ndarray]:
        """Decided where all entries that could be the largest are known exactly, or only one
        could.
        """
        with np.errstate(invalid="ignore"):
            reach = np.where(a.radius > 0, a.radius + 4 * UNIT * (np.abs(a.middle) + a.radius), 0.0)
            low = (a.middle - reach).max(axis=-1, keepdims=True)
            candidate = ~(a.middle + reach < low)
        exact = ((a.radius == 0) | ~candidate).all(axis=-1)
        decided = (exact | (candidate.sum(axis=-1) == 1)) & np.isfinite(a.middle + a.radius).all(
            axis=-1
        )
        return np.where(decided, candidate.argmax(axis=-1), -1), candidate


def _dot(a: Ball, b: Ball, y: np.ndarray, reach: np.ndarray, present: np.ndarray) -> Ball:
    """a @ b, with |b|, how far the numbers of b reach, and where they are not zero."""
    m, x = a.middle.shape[-1], np.abs(a.middle)
    gamma = (m + 2) * UNIT / (1 - (m + 2) * UNIT)
    bound = gamma * (x @ y)
    if a.radius.any():
        bound = bound + a.radius @ reach
    if reach is not y:
        bound = bound + x @ b.radius
    terms = (x + a.radius != 0).astype(np.float64) @ present
    return Ball(a.middle @ b.middle, _up(bound + 8 * TINY * terms))


def _up(bound: np.ndarray) -> np.ndarray:
    """Inflated against the roundings of the bound itself."""
    return 1.01 * bound


def _add_at(base: np.ndarray, updates: np.ndarray, index: np.ndarray) -> np.ndarray:
    out = np.array(base)
    np.add.at(out.reshape(-1), index.ravel(), updates.ravel())
    return out


def is_open(decision: Any) -> np.ndarray:
    """Where a recorded decision (signs, or place and who shares it) is open."""
    return decision == OPEN if isinstance(decision, np.ndarray) else decision[0] < 0
