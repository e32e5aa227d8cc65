"""Residues modulo a prime: floats are dyadic rationals m·2^e, so polynomials of floats are exact
here, whatever their size.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic, NoExactAnswer
from neuromanifold.numerics import modular


class Residue(NamedTuple):
    """Integers in [0, p); wrapped, so that they are not taken for integers that stand for
    themselves.
    """

    values: np.ndarray


class ResidueArithmetic(Arithmetic):
    """Arithmetic modulo the prime `p`; no signs, no order. A division by a number that p divides
    raises `ZeroDivisionError`.
    """

    name = "residues"

    def __init__(self, p: int):
        self.p = p

    def lift(self, a: np.ndarray) -> Residue:
        if a.dtype.kind in "iub":
            return Residue(np.mod(a.astype(np.int64), self.p))
        if not np.isfinite(a).all():
            raise NoExactAnswer(
                "a constant of `f` is infinite or not a number, which no exact arithmetic has"
            )
        return Residue(modular.from_floats(a, self.p))

    def random(self, shape: tuple[int, ...]) -> Residue:
        """Independent uniform residues."""
        return Residue(modular.random_residues(shape, self.p))

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Residue) -> Residue:
        return Residue(fn(*(v.values for v in values)))

    def shape(self, a: Residue) -> tuple[int, ...]:
        return a.values.shape

    def add(self, a: Residue, b: Residue) -> Residue:
        return Residue(modular.add(a.values, b.values, self.p))

    def negate(self, a: Residue) -> Residue:
        return Residue(np.where(a.values == 0, 0, self.p - a.values))

    def multiply(self, a: Residue, b: Residue) -> Residue:
        return Residue(modular.multiply(a.values, b.values, self.p))

    def dot(self, a: Residue, b: Residue) -> Residue:
        return Residue(modular.matmul(a.values, b.values, self.p))

    def divide(self, a: Residue, b: Residue) -> Residue:
        if not b.values.all():
            raise ZeroDivisionError("a divisor is zero modulo the prime")
        return self.multiply(a, Residue(modular.inverse(b.values, self.p)))

    def sum(self, a: Residue, axes: tuple[int, ...]) -> Residue:
        return Residue(modular.sum_over(a.values, axes, self.p))

    def scatter_add(self, base: Residue, index: np.ndarray, updates: Residue) -> Residue:
        return Residue(modular.scatter_add(base.values, index, updates.values, self.p))
