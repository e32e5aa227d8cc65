"""Maxima of windows whose derivative is a choice.

JAX's own forward derivative of a windowed maximum packs the entry and its tangent into one word on
a GPU: in float64 20 bits are left of each, and entries that agree to 20 bits are taken for equal
(JAX 0.10 to 0.12). Here the place of the largest entry is looked up, of equal ones the first, and
the tangent is read there: all bits on every device, whatever the window's dilation.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import numpy as np

from neuromanifold.graph.bends import Choosing, picked, windowed

POOLINGS = ("reduce_window_max", "reduce_window_min")


def pooled(operation: str, options: Mapping[str, Any], a: Any) -> Any:
    """The windowed maximum or minimum of real numbers, as `jax.lax.reduce_window` has it."""
    return _pooling(operation, tuple((name, options[name]) for name in sorted(options)))(a)


@cache
def _pooling(operation: str, options: tuple[tuple[str, Any], ...]) -> Callable[[Any], Any]:
    sign, window = 1 if operation == "reduce_window_max" else -1, dict(options)

    @jax.custom_jvp
    def value(a: Any) -> Any:
        fold = jax.lax.max if sign > 0 else jax.lax.min
        return jax.lax.reduce_window(a, np.array(-sign * np.inf, a.dtype), fold, **window)

    @value.defjvp
    def derivative(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        (a,), (change,) = primals, tangents
        place = Choosing().largest(windowed(window, sign * a))
        return value(a), picked(place, windowed(window, change))

    return value


def pools(closed: Any) -> bool:
    """Whether the program is one windowed maximum or minimum and nothing else."""
    return [equation.primitive.name in POOLINGS for equation in closed.jaxpr.eqns] == [True]
