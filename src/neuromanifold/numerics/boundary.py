"""The public boundary: options of the wrong kind end in one sentence."""

import dis
import functools
import inspect
import numbers
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.validation import check_rtol

_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    type(None): "None",
    Callable: "a function",
    Path: "a path",
}


def guard(*rooms: ModuleType | type) -> None:
    """Have the public functions of these rooms speak of arguments of the wrong kind, where they are
    defined and where they are offered; of a class, its constructor.
    """
    for room in rooms:
        if isinstance(room, type):
            room.__init__ = _guard(room.__init__)
            continue
        for name in room.__all__:
            function = getattr(room, name)
            if inspect.isfunction(function) and _is_verb(inspect.unwrap(function)):
                home = sys.modules[function.__module__]
                if getattr(home, name, None) is function:
                    setattr(home, name, _guard(function))
                setattr(room, name, getattr(home, name, function))


def _is_verb(function: Any) -> bool:
    """Whether a function is more than a probe f, params, x, y: those go to other processes."""
    return list(inspect.signature(function).parameters) != ["f", "params", "x", "y"]


def _guard(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    hints = {
        name: kinds
        for name, parameter in signature.parameters.items()
        if (kinds := _kinds(name, parameter))
    }

    # Before the call, since NumPy would make numbers of what is none: dates, real parts.
    arrays = {at: name for at, name in enumerate(signature.parameters) if name in _ARRAYS}

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        for at, name in arrays.items():
            if at < len(args) or name in options:
                check(name, args[at] if at < len(args) else options[name], hints[name])
        for name in hints.keys() & options.keys():
            value = options[name]
            number = isinstance(value, float) and not np.isfinite(value)
            if {*hints[name]} <= {bool, type(None)} or number or "rtol" in name:
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
    odd = odd or [name for name, value in free.items() if _is_missing(value)]
    odd = odd or [name for name in _DATA if callable(free.get(name))]
    odd = [name for name, value in given.items() if _is_about(error, value)] or odd
    if isinstance(error, MemoryError):
        odd = [name for name, value in given.items() if _is_huge(value)]
    if len(odd) == 1:
        first = next(iter(str(error).splitlines()), "").rstrip(".")
        raise TypeError(
            f"`{odd[0]}` is {_show(given[odd[0]])}, which cannot be used here "
            f"({type(error).__name__}: {first}); pass what the function's documentation names."
        ) from error


def _is_missing(value: Any) -> bool:
    """Whether there is no array in a value."""
    return isinstance(value, numbers.Real) or not jax.tree.leaves(value)


def _is_about(error: Exception, value: Any) -> bool:
    """Whether Python says that a function was called with other arguments than it takes."""
    name = getattr(value, "__qualname__", None)
    return isinstance(error, TypeError) and name is not None and f"{name}() " in str(error)


def _is_huge(value: Any) -> bool:
    """Whether a number of things would not fit in memory."""
    return isinstance(value, (int, float, np.integer)) and bool(value >= 10**6)


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
    if name in _NAMED:
        kind = _NAMED[name]
        return (kind, type(None)) if parameter.default is None else (kind,)
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


class _Numbers:
    """An array of real numbers, Fractions among them."""


class _Dtype:
    """A floating-point dtype of NumPy or JAX, or its name."""


_WORDS[_Key] = "a JAX key such as jax.random.key(0)"
_WORDS[_Numbers] = "an array of real numbers"
_WORDS[_Dtype] = "a floating-point dtype such as 'float64'"
_ARRAYS = ("v", "W", "delta", "saveat")
_DATA = ("params", "x", "x1", "x2", "y")
_NAMED: dict[str, type] = {"key": _Key, "dtype": _Dtype, **dict.fromkeys(_ARRAYS, _Numbers)}


def check(name: str, value: Any, kinds: tuple[Any, ...], cause: Exception | None = None) -> None:
    """Refuse an option that is none of these plain types.

    >>> check("exact", "no", (bool,))
    Traceback (most recent call last):
    TypeError: `exact` is 'no'; pass True or False.
    """
    if "rtol" in name and isinstance(value, numbers.Real):
        check_rtol(value, name)
    if "tol" in name and isinstance(value, numbers.Real) and not 0 <= float(value) < np.inf:
        raise ValueError(f"`{name}` is {value}; pass a finite number, 0 or more.") from cause
    if any(_is(value, kind) for kind in kinds):
        return
    words = [
        _WORDS.get(kind, f"an nm.{getattr(kind, '__name__', kind)}")
        for kind in kinds
        if kind is not int or float not in kinds
    ]
    raise TypeError(f"`{name}` is {_show(value)}; pass {' or '.join(words)}.") from cause


def _show(value: Any) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def _is(value: Any, kind: Any) -> bool:
    if kind is Callable:
        return callable(value) and not isinstance(value, type)
    if kind is _Key:
        kinds = (jax.dtypes.prng_key, np.uint32)
        return hasattr(value, "dtype") and any(jnp.issubdtype(value.dtype, k) for k in kinds)
    if kind is _Numbers:
        return is_traced(value) or _are_numbers(value)
    if kind is _Dtype:
        return _is_dtype(value)
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


def _are_numbers(value: Any) -> bool:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # keys; ragged lists; PyTorch's with gradients
        return False
    if array.dtype == object:
        return all(isinstance(entry, (numbers.Real, Decimal)) for entry in array.ravel())
    return array.dtype.kind in "biu" or jnp.issubdtype(array.dtype, jnp.floating)


def _is_dtype(value: Any) -> bool:
    try:
        return value is not None and jnp.issubdtype(np.dtype(value), jnp.floating)
    except (TypeError, ValueError):
        return False
