"""What a table of operations is: ATen's names, each with the function that computes it in JAX."""

from collections.abc import Callable, Mapping
from typing import Any

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


def axes(dim: int | list[int] | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """The axes that ATen's `dim` names: all of them for None and for an empty list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(ndim))
    return tuple(d % ndim for d in ((dim,) if isinstance(dim, int) else dim)) if ndim else ()


def repeated(value: int | list[int] | tuple[int, ...], count: int) -> tuple[int, ...]:
    """One number per spatial axis, from a number or a list."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * count if len(values) == 1 else values
