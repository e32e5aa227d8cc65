"""How results show themselves: the answer first, arrays by their size and range, and a way out
as plain data.
"""

import dataclasses
import html
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from neuromanifold.numerics.precision import follower, is_traced

P = ParamSpec("P")
R = TypeVar("R")
Array = Any
"""What a result holds: a NumPy array, or a JAX array where its inputs were."""

_MOST_SHOWN = 6
_LONGEST = 240
"""Characters of a `repr` between the brackets; what is longer ends in an ellipsis, and `str` has
all of it.
"""


class Shown:
    """A base for what is looked at.

    `repr` is the class with its `headline`, `str` the table where a class writes one; a notebook
    shows `str`.
    """

    def headline(self) -> str:
        """What it says, in a line: the first of its `str` where it has one of its own."""
        if type(self).__str__ is not Shown.__str__:
            return str(self).partition("\n")[0]
        return ", ".join(
            f"{name.replace('_', ' ')} {brief(value)}"
            for name, value in _fields(self)
            if value is not None
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shorten(self.headline())})"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class Result(Shown):
    """A base for results, which are dataclasses (`repr=False`) or Equinox modules; `to_dict` gives
    the fields as plain data.

    >>> @dataclasses.dataclass(frozen=True, repr=False)
    ... class Found(Result):
    ...     count: int
    ...     values: np.ndarray
    >>> Found(3, np.arange(12.0))
    Found(count 3, values 12 numbers from 0 to 11)
    """

    def to_dict(self) -> dict[str, Any]:
        """The fields as NumPy arrays, numbers, text and dictionaries."""
        return {name: _plain(value) for name, value in _fields(self)}


def _fields(result: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(result, field.name)) for field in dataclasses.fields(result)]


def show_record(record: Any) -> str:
    """A named tuple in a line."""
    fields = zip(record._fields, record, strict=True)
    text = ", ".join(f"{name} {brief(value)}" for name, value in fields if value is not None)
    return f"{type(record).__name__}({shorten(text)})"


def shorten(text: str, most: int = _LONGEST) -> str:
    """The text, or as much of it as fits with an ellipsis.

    >>> shorten("1 + 1 + 1", 6)
    '1 + 1…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def count_of(count: int, what: str) -> str:
    """Return a number with the noun that it counts, in the plural where there are several.

    >>> count_of(1, "sample"), count_of(1200, "sample")
    ('1 sample', '1,200 samples')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def brief(value: Any) -> str:
    """A value in a few words: numbers to four digits, arrays by size and range, trees by how
    many numbers they hold.
    """
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, np.ndarray | jax.Array):
        return _of_array(value)
    if isinstance(value, dict | tuple | list) and any(
        isinstance(a, np.ndarray | jax.Array) for a in jax.tree.leaves(value)
    ):
        return _of_arrays(jax.tree.leaves(value))
    if isinstance(value, tuple | list) and len(value) > _MOST_SHOWN:
        return f"{len(value)} of them"
    if inspect.isfunction(value):
        return value.__name__
    return repr(value) if isinstance(value, str | Shown) else str(value)


def _of_arrays(leaves: list[Any]) -> str:
    size = sum(np.size(a) for a in leaves)
    if not is_traced(leaves) and all(np.asarray(a).dtype.kind == "b" for a in leaves):
        return f"{sum(int(np.sum(a)) for a in leaves):,} of {size:,}"
    return f"{size:,} numbers"


def _of_array(a: Any) -> str:
    if is_traced(a) or not a.size:
        return f"{a.dtype}{list(a.shape)}"
    if a.size == 1:
        return brief(np.asarray(a).item())
    if a.dtype.kind == "b":
        return f"{int(np.sum(a)):,} of {a.size:,}"
    shape = f"{a.size:,}" if a.ndim == 1 else "×".join(map(str, a.shape))
    return f"{shape} numbers from {np.min(a):.4g} to {np.max(a):.4g}"


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, dict):
        return {
            key if isinstance(key, str | int) else str(key): _plain(item)
            for key, item in value.items()
        }
    if isinstance(value, np.ndarray | jax.Array):
        return np.asarray(value)
    if value is None or isinstance(value, str | bool | int | float | np.generic):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type | Shown)
        and not callable(value)
    ):
        return {name: _plain(item) for name, item in _fields(value)}
    return repr(value)


def follows(verb: Callable[P, R]) -> Callable[P, R]:
    """A verb that computes on the host and whose floating-point results leave as its inputs came
    (see `precision`).

    >>> with jax.enable_x64(True):
    ...     type(follows(lambda a: np.asarray(a) + 1)(jnp.ones(2))).__name__
    'ArrayImpl'
    """

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        follow = follower(args, kwargs)

        def leave(leaf: Any) -> Any:
            if isinstance(leaf, Result) and dataclasses.is_dataclass(leaf):
                fields = {name: _in_order(leave, value) for name, value in _fields(leaf)}
                moved = {
                    name: value
                    for name, value in fields.items()
                    if value is not getattr(leaf, name)
                }
                return dataclasses.replace(leaf, **moved) if moved else leaf
            return follow(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" else leaf

        return _in_order(leave, verb(*args, **kwargs))

    return call


def _in_order(change: Callable[[Any], Any], tree: Any) -> Any:
    """`jax.tree.map`, which would sort the keys of dictionaries."""
    if type(tree) is dict:
        return {name: _in_order(change, value) for name, value in tree.items()}
    return jax.tree.map(
        lambda leaf: _in_order(change, leaf) if type(leaf) is dict else change(leaf),
        tree,
        is_leaf=lambda t: type(t) is dict,
    )
