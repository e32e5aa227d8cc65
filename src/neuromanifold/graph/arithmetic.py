"""`Arithmetic`: what numbers are, and what the few operations mean that every other one is made
of.
"""

import abc
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # a NumPy array or scalar


class NoExactAnswer(ValueError):
    """An operation has no meaning in an arithmetic, or a comparison stays open in it."""


class Arithmetic(abc.ABC):
    """Numbers on which a program can be walked. A value `V` is whatever `lift` makes; only the
    arithmetic looks inside.

    `name` is what messages call it.
    """

    name: str

    @abc.abstractmethod
    def lift(self, a: np.ndarray) -> Any:
        """Turn floats, integers and truth values `a` into numbers of this arithmetic, without rounding."""

    @abc.abstractmethod
    def rearrange(self, fn: Callable[..., np.ndarray], *values: Any) -> Any:
        """Apply an index map: `fn` moves entries of `values` and computes nothing."""

    @abc.abstractmethod
    def shape(self, a: Any) -> tuple[int, ...]:
        """Return the shape of a value."""

    @abc.abstractmethod
    def add(self, a: Any, b: Any) -> Any:
        """Return a + b, equal shapes or a scalar."""

    @abc.abstractmethod
    def negate(self, a: Any) -> Any:
        """Return −a."""

    @abc.abstractmethod
    def multiply(self, a: Any, b: Any) -> Any:
        """Return a·b, entrywise."""

    @abc.abstractmethod
    def dot(self, a: Any, b: Any) -> Any:
        """Return the matrix products `a` @ `b` of (…, m, k) and (…, k, n), equal leading axes."""

    @abc.abstractmethod
    def divide(self, a: Any, b: Any) -> Any:
        """Return a / b, entrywise."""

    @abc.abstractmethod
    def sum(self, a: Any, axes: tuple[int, ...]) -> Any:
        """Return the sum of `a` over `axes`."""

    @abc.abstractmethod
    def scatter_add(self, base: Any, index: np.ndarray, updates: Any) -> Any:
        """Return `base` with `updates` added at the flat positions `index` (repeated positions add up)."""

    def subtract(self, a: Any, b: Any) -> Any:
        """Return a − b."""
        return self.add(a, self.negate(b))

    def power(self, a: Any, exponent: int) -> Any:
        """Return a^exponent for a whole number, by repeated squaring."""
        if exponent < 0:
            return self.divide(self.lift(np.ones(())), self.power(a, -exponent))
        if exponent == 0:
            return self.rearrange(
                lambda one: np.broadcast_to(one, self.shape(a)), self.lift(np.ones(()))
            )
        half = self.power(a, exponent // 2) if exponent > 1 else None
        if half is None:
            return a
        square = self.multiply(half, half)
        return self.multiply(square, a) if exponent % 2 else square

    def sign(self, a: Any) -> np.ndarray:
        """Return −1, 0 or 1 for each entry of `a`, proved."""
        raise NoExactAnswer(f"{self.name} have no signs")

    def largest(self, a: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the position of the first largest entry of `a` on the last axis (−1 where that is
        open), and
        which entries equal it.
        """
        raise NoExactAnswer(f"{self.name} have no order")

    def smooth(self, primitive: Any, options: Any, *values: Any) -> Any:
        """Return the transcendental or algebraic function `primitive` of `values`, by its row of the table."""
        raise NoExactAnswer(f"{self.name} know no {primitive.name}")


class Floats(Arithmetic):
    """Plain float64: what constants are folded with, and the reference for the rules themselves."""

    name = "floats"

    def lift(self, a: Array) -> Array:
        return np.asarray(a, np.float64)

    def rearrange(self, fn: Callable[..., Array], *values: Array) -> Array:
        return fn(*values)

    def shape(self, a: Array) -> tuple[int, ...]:
        return np.shape(a)

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def negate(self, a: Array) -> Array:
        return -a

    def multiply(self, a: Array, b: Array) -> Array:
        return a * b

    def dot(self, a: Array, b: Array) -> Array:
        return a @ b

    def divide(self, a: Array, b: Array) -> Array:
        return a / b

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return np.sum(a, axis=axes)

    def scatter_add(self, base: Array, index: Array, updates: Array) -> Array:
        out = base.copy()
        np.add.at(out.reshape(-1), index.ravel(), updates.ravel())
        return out

    def sign(self, a: Array) -> Array:
        return np.sign(a).astype(np.int8)

    def largest(self, a: Array) -> tuple[Array, Array]:
        return np.argmax(a, axis=-1), a == a.max(axis=-1, keepdims=True)

    def smooth(self, primitive: Any, options: Any, *values: Array) -> Array:
        if primitive.numpy is None:
            return super().smooth(primitive, options, *values)
        return primitive.numpy(options, *values)
