"""Support: which numbers can be nonzero, by the open paths alone. What is off here is zero
whatever the weights on the paths.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic


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
