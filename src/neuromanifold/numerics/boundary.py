"""The public boundary: options of the wrong kind end in one sentence."""

import dis
import functools
import inspect
import numbers
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.precision import is_traced

_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    type(None): "None",
    Callable: "a function",
    Path: "a path",
}


def guard(*rooms: ModuleType) -> None:
    """Have the public functions of these rooms speak of arguments of the wrong kind, where they are
    defined and where they are offered.
    """
    for room in rooms:
        for name in room.__all__:
            function = getattr(room, name)
            if inspect.isfunction(function) and _is_verb(inspect.unwrap(function)):
                home = sys.modules[function.__module__]
                if getattr(home, name, None) is function:
                    setattr(home, name, _guarded(function))
                setattr(room, name, getattr(home, name, function))


def _is_verb(function: Any) -> bool:
    """Whether a function is more than a probe f, params, x, y: those go to other processes."""
    return list(inspect.signature(function).parameters) != ["f", "params", "x", "y"]


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    hints = {
        name: kinds
        for name, parameter in signature.parameters.items()
        if (kinds := _kinds(name, parameter))
    }

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        for name in hints.keys() & options.keys():
            value = options[name]
            number = isinstance(value, float) and not np.isfinite(value)
            if {*hints[name]} <= {bool, type(None)} or number:
                check(name, value, hints[name])
        try:
            result = function(*args, **options)
        except Exception as error:
            said = str(error)
            if not said.startswith("`") and not _is_ours(error):
                _explain(signature, hints, args, options, error)
            elif "\n" in said:
                raise type(error)(" ".join(said.split())) from error.__cause__
            raise
        for name in hints.keys() & options.keys():  # what was not read is wrong all the same
            check(name, options[name], hints[name])
        return result

    return checked


def _is_ours(error: Exception) -> bool:
    """Whether a `raise` of this package ended the call: its sentence is about the right thing."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or not at.tb_frame.f_globals.get("__name__", "").startswith("neuromanifold"):
        return False
    return at.tb_frame.f_code.co_code[at.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _explain(
    signature: inspect.Signature,
    hints: dict[str, tuple[Any, ...]],
    args: tuple[Any, ...],
    options: dict[str, Any],
    error: Exception,
) -> None:
    """Say of an error that is not ours which argument it is about, if one is of the wrong kind."""
    try:
        given = signature.bind(*args, **options).arguments
    except TypeError:
        return
    for name in hints.keys() & given.keys():
        check(name, given[name], hints[name], error)
    free = {name: value for name, value in given.items() if name not in hints}
    odd = [name for name, value in free.items() if not _ordinary(value)]
    odd = odd or [
        name for name, value in free.items() if isinstance(value, (numbers.Real, type(None)))
    ]
    if len(odd) == 1:
        first = next(iter(str(error).splitlines()), "").rstrip(".")
        raise TypeError(
            f"`{odd[0]}` is {_shown(given[odd[0]])}, which cannot be used here "
            f"({type(error).__name__}: {first}); pass what the function's documentation names."
        ) from error


def _ordinary(value: Any) -> bool:
    """Whether a value is made of numbers and functions."""
    leaves = jax.tree.leaves(value)
    return isinstance(value, type(None)) or all(
        (callable(leaf) and not isinstance(leaf, type))
        or isinstance(leaf, (numbers.Real, jax.Array))
        or (isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biuf")
        for leaf in leaves
    )


def _kinds(name: str, parameter: inspect.Parameter) -> tuple[Any, ...]:
    if name == "key":
        return (_Key, type(None)) if parameter.default is None else (_Key,)
    return _plain(parameter.annotation)


def _plain(hint: Any) -> tuple[Any, ...]:
    """The plain types of an annotation, functions and networks among them; none where it allows
    anything else.
    """
    if get_origin(hint) is Callable:
        return (Callable,)
    if get_origin(hint) is None:
        own = isinstance(hint, type) and hint.__module__.startswith("neuromanifold.models")
        return (hint,) if own or (isinstance(hint, type) and hint in _WORDS) else ()
    parts = [_plain(part) for part in get_args(hint)]
    plain = get_origin(hint) is UnionType and () not in parts
    return tuple(kind for part in parts for kind in part) if plain else ()


class _Key:
    """A key of `jax.random`."""


_WORDS[_Key] = "a JAX key such as jax.random.key(0)"


def check(name: str, value: Any, kinds: tuple[Any, ...], cause: Exception | None = None) -> None:
    """Refuse an option that is none of these plain types.

    >>> check("exact", "no", (bool,))
    Traceback (most recent call last):
    TypeError: `exact` is 'no'; pass True or False.
    """
    if "tol" in name and isinstance(value, numbers.Real) and not 0 <= float(value) < np.inf:
        raise ValueError(f"`{name}` is {value}; pass a finite number from zero on.") from cause
    if any(_is(value, kind) for kind in kinds):
        return
    words = [
        _WORDS.get(kind, f"an nm.{getattr(kind, '__name__', kind)}")
        for kind in kinds
        if kind is not int or float not in kinds
    ]
    raise TypeError(f"`{name}` is {_shown(value)}; pass {' or '.join(words)}.") from cause


def _shown(value: Any) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def _is(value: Any, kind: Any) -> bool:
    if kind is Callable:
        return callable(value) and not isinstance(value, type)
    if kind is _Key:
        kinds = (jax.dtypes.prng_key, np.uint32)
        return hasattr(value, "dtype") and any(jnp.issubdtype(value.dtype, k) for k in kinds)
    if kind not in (bool, int, float):
        return isinstance(value, kind)
    if is_traced(value):
        return kind is not bool and np.ndim(value) == 0
    if isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, (numbers.Real, np.bool_)):
        return False
    if kind is float:
        return value == value
    return value in (0, 1) if kind is bool else float(value).is_integer()
