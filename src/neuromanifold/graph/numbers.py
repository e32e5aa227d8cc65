"""Arithmetics of which NumPy has none: rationals, by FLINT or by `Fraction` as the reference, in
arrays of Python numbers; and supports, which say what can be nonzero by the open paths alone.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic, NoExactAnswer


class Open(NamedTuple):
    """Truth values: may this entry be nonzero? Wrapped, so that they are not taken for truth
    values that stand for themselves.
    """

    flags: np.ndarray


class Support(Arithmetic):
    """Sums are open where a term is, products where both factors are, smooth functions
    everywhere.
    """

    name = "supports"

    def lift(self, a: np.ndarray) -> Open:
        return Open(np.asarray(a) != 0)

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Open) -> Open:
        return Open(fn(*(v.flags for v in values)).astype(bool))

    def shape(self, a: Open) -> tuple[int, ...]:
        return a.flags.shape

    def add(self, a: Open, b: Open) -> Open:
        return Open(a.flags | b.flags)

    def negate(self, a: Open) -> Open:
        return a

    def multiply(self, a: Open, b: Open) -> Open:
        return Open(a.flags & b.flags)

    def dot(self, a: Open, b: Open) -> Open:
        return Open(a.flags.astype(np.float32) @ b.flags.astype(np.float32) > 0)

    def divide(self, a: Open, b: Open) -> Open:
        return Open(np.broadcast_to(a.flags, np.broadcast_shapes(a.flags.shape, b.flags.shape)))

    def sum(self, a: Open, axes: tuple[int, ...]) -> Open:
        return Open(np.asarray(a.flags.any(axis=axes)))

    def smooth(self, primitive: Any, options: Any, *values: Open) -> Open:
        return Open(np.ones(np.broadcast_shapes(*(v.flags.shape for v in values)), bool))

    def scatter_add(self, base: Open, index: np.ndarray, updates: Open) -> Open:
        flags = base.flags.copy()
        np.logical_or.at(flags.reshape(-1), index.ravel(), updates.flags.ravel())
        return Open(flags)


class Rationals(Arithmetic):
    """Exact rational numbers in object arrays, by FLINT; signs and order are theirs. Slow,
    final.
    """

    name = "rationals"

    def number(self, numerator: int, denominator: int) -> Any:
        """Return one number."""
        import flint

        return flint.fmpq(numerator, denominator)

    def lift(self, a: np.ndarray) -> np.ndarray:
        if not np.isfinite(np.asarray(a, np.float64)).all():
            raise NoExactAnswer(
                "a constant of `f` is infinite or not a number, which no exact arithmetic has"
            )
        # Not by float64: integers and longer floats keep all their digits.
        flat = [self.number(*_ratio(v)) for v in np.asarray(a).ravel().tolist()]
        return object_array(flat, np.shape(a))

    def rearrange(self, fn: Callable[..., np.ndarray], *values: np.ndarray) -> np.ndarray:
        return fn(*values)

    def shape(self, a: np.ndarray) -> tuple[int, ...]:
        return a.shape

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a + b, object)

    def negate(self, a: np.ndarray) -> np.ndarray:
        return np.asarray(-a, object)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a * b, object)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a / b, object)

    def sum(self, a: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.asarray(a.sum(axis=axes), object)

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """By FLINT's matrices, one product for each leading index."""
        lead = a.shape[:-2]
        out = np.empty((*lead, a.shape[-2], b.shape[-1]), object)
        for at in np.ndindex(*lead):
            out[at] = self._product(a[at], b[at])
        return out

    def _product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        import flint

        if 0 in (*a.shape, *b.shape):
            return object_array(
                [self.number(0, 1)] * (a.shape[0] * b.shape[1]), (a.shape[0], b.shape[1])
            )
        product = flint.fmpq_mat(a.tolist()) * flint.fmpq_mat(b.tolist())
        return object_array(product.entries(), (a.shape[0], b.shape[1]))

    def scatter_add(self, base: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
        out = base.copy()
        flat = out.reshape(-1)
        for at, value in zip(index.ravel().tolist(), updates.ravel(), strict=True):
            flat[at] = flat[at] + value
        return out

    def sign(self, a: np.ndarray) -> np.ndarray:
        return np.array([(v > 0) - (v < 0) for v in a.ravel()], np.int8).reshape(a.shape)

    def largest(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = [list(row) for row in a.reshape(-1, a.shape[-1])]
        tied = np.array([[v == max(row) for v in row] for row in rows], bool).reshape(a.shape)
        return tied.argmax(axis=-1), tied


class Fractions(Rationals):
    """The same with Python's own `Fraction`: the reference that shares no code with FLINT."""

    name = "fractions"

    def number(self, numerator: int, denominator: int) -> Fraction:
        return Fraction(numerator, denominator)

    def _product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        rows = [
            [sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in b.T]
            for row in a
        ]
        return object_array([v for row in rows for v in row], (a.shape[0], b.shape[1]))


def _ratio(value: Any) -> tuple[int, int]:
    return (int(value), 1) if isinstance(value, bool | int) else value.as_integer_ratio()


def object_array(flat: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """An array of Python numbers."""
    out = np.empty(math.prod(shape), object)
    out[:] = flat
    return out.reshape(shape)
