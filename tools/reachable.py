"""Which functions and constants a statement's `measure` uses, found by walking live objects from
it.
"""

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any

Function = types.FunctionType


def functions(start: Any, prefix: str, classes: Iterable[type] = ()) -> list[Function]:
    """The functions that `start` can reach in modules whose name begins with `prefix`, nearest
    first.

    From a function one reaches what its code names among its globals, its closure, its defaults,
    and the methods and properties that its code names on `classes` (those of the cases) and on the
    classes it names itself. What takes an `rng` draws cases and measures nothing: it is passed
    over.
    """
    found: dict[int, Function] = {}
    queue = deque(_plain(start))
    while queue:
        function = queue.popleft()
        if (
            id(function) in found
            or not (function.__module__ or "").startswith(prefix)
            or _draws(function)
        ):
            continue
        found[id(function)] = function
        queue.extend(_next(function, prefix, tuple(classes)))
    return list(found.values())


def _draws(function: Function) -> bool:
    return "rng" in function.__code__.co_varnames[: function.__code__.co_argcount]


def classes_of(value: Any) -> set[type]:
    """The class of a case and of what it holds."""
    held = (getattr(value, field.name) for field in fields(value)) if is_dataclass(value) else ()
    listed = _entries(value) if isinstance(value, dict | list | tuple) else list(held)
    return {type(value)}.union(*map(classes_of, listed))


def constants(reached: list[Function], prefix: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(name, the globals that hold it, value) of the numbers, and collections of numbers, that
    the functions name.
    """
    seen = set()
    for function in reached:
        named = sorted(names_in(function.__code__))
        held = [function.__globals__.get(name) for name in named]
        modules = [vars(value) for value in held if isinstance(value, types.ModuleType)]
        for space, name in product((function.__globals__, *modules), named):
            value = space.get(name)
            if (
                (name, id(space)) not in seen
                and str(space["__name__"]).startswith(prefix)
                and _numeric(value)
            ):
                seen.add((name, id(space)))
                yield name, space, value


def names_in(code: types.CodeType) -> set[str]:
    """The names and attributes that the code uses, nested functions included."""
    nested = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return {*code.co_names}.union(*map(names_in, nested)) if nested else {*code.co_names}


def rebind(reached: list[Function], old: Any, new: Any) -> Callable[[], None]:
    """Let the functions whose default is `old` have `new` instead; returns what undoes it."""
    undo = []
    for function in reached:
        before = function.__defaults__, function.__kwdefaults__
        positional = tuple(new if value is old else value for value in before[0] or ())
        keyword = {
            name: new if value is old else value for name, value in (before[1] or {}).items()
        }
        if any(value is old for value in (*(before[0] or ()), *(before[1] or {}).values())):
            function.__defaults__, function.__kwdefaults__ = positional or None, keyword or None
            undo.append((function, before))

    def restore() -> None:
        for function, before in undo:
            function.__defaults__, function.__kwdefaults__ = before

    return restore


def _next(function: Function, prefix: str, classes: tuple[type, ...]) -> Iterator[Function]:
    names = sorted(names_in(function.__code__))
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    values += [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    values += [
        vars(value)[name]
        for value in values
        if isinstance(value, types.ModuleType) and value.__name__.startswith(prefix)
        for name in names
        if name in vars(value)
    ]
    values += [
        entry
        for value in values
        if isinstance(value, dict | list | tuple)
        for entry in _entries(value)
    ]
    for value in values:
        yield from _plain(value)
    named = [value for value in values if isinstance(value, type)]
    for owner in dict.fromkeys([*classes, *named, *map(type, values)]):
        if owner.__module__.startswith(prefix):
            yield from (other for name in names for other in _plain(owner.__dict__.get(name)))


def _entries(value: Any) -> list[Any]:
    return list(value.values() if isinstance(value, dict) else value)[:64]


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _plain(value: Any) -> list[Function]:
    """The function inside a partial, a method, a property, a statement (its measure), or what a cache
    or `jax.jit` wraps.
    """
    if isinstance(value, Function):
        inner = getattr(value, "__wrapped__", None)
        return [value, *(_plain(inner) if inner is not None else [])]
    if isinstance(value, functools.partial):
        return [
            other
            for part in (value.func, *value.args, *value.keywords.values())
            for other in _plain(part)
        ]
    for name in ("__wrapped__", "__func__", "fget", "func", "measure"):
        inner = (
            getattr(value, name, None) if not isinstance(value, type | types.ModuleType) else None
        )
        if isinstance(inner, Function):
            return [inner]
    return []


def _numeric(value: Any) -> bool:
    if isinstance(value, dict | tuple | list):
        return (
            bool(value) and len(value) <= 64 and all(_numeric(entry) for entry in _entries(value))
        )
    return isinstance(value, int | float) and not isinstance(value, bool)
