"""What a table of operations is: ATen's names, each with the function that computes it in JAX."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

Table = dict[str, Callable[..., Any]]
Scalar = float | int


class Refusal(Exception):
    """Why an operation cannot be translated; whoever catches it adds the operation's name and
    place.
    """


def table(entries: Mapping[str, Callable[..., Any]]) -> Table:
    """One entry for each name of each key: `{"add.Tensor add.Scalar": f}` has two.

    >>> sorted(table({"add.Tensor add.Scalar": max}))
    ['aten.add.Scalar', 'aten.add.Tensor']
    """
    return {
        f"aten.{name}": function for names, function in entries.items() for name in names.split()
    }


def with_slopes(function: Callable[..., Any], *slopes: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the differential Σ slopeᵢ(y, *x) dxᵢ, for y = function(*x).

    Where JAX's own derivative at a kink is not PyTorch's, `slopes` are what PyTorch's backward
    pass multiplies by.

    >>> jax.grad(jnp.abs)(0.0), jax.grad(with_slopes(jnp.abs, lambda y, x: jnp.sign(x)))(0.0)
    (Array(1., dtype=float32, weak_type=True), Array(0., dtype=float32, weak_type=True))
    """

    def derivative(x: tuple[Any, ...], dx: tuple[Any, ...]) -> tuple[Any, Any]:
        y = wrapped(*x)
        terms = [
            jnp.broadcast_to(slope(y, *x) * change, y.shape)
            for slope, change in zip(slopes, dx, strict=True)
            if not isinstance(change, SymbolicZero)
        ]
        return y, sum(terms[1:], start=terms[0])

    wrapped = jax.custom_jvp(function)
    wrapped.defjvp(derivative, symbolic_zeros=True)
    return wrapped


def quotient(a: Any, b: Any) -> Any:
    """a / b, and zero where b is: the value of many of PyTorch's derivatives at a kink."""
    return jnp.where(b == 0, 0.0, a / jnp.where(b == 0, 1.0, b))


def axes(dim: int | list[int] | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """The axes that ATen's `dim` names: all of them for None and for an empty list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(ndim))
    return tuple(d % ndim for d in ((dim,) if isinstance(dim, int) else dim)) if ndim else ()


def repeat(value: int | list[int] | tuple[int, ...], count: int) -> tuple[int, ...]:
    """One number per spatial axis, from a number or a list."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * count if len(values) == 1 else values
