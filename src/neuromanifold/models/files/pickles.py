"""A pickle read as data: nothing it names is imported, nothing it calls is called.

A pickle is a program for a small stack machine. Python's own machine looks names up and calls what it finds; this one
writes down the name and the arguments, so that a file can only ever say what it would like to be done.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_MOST_OPERATIONS = 500_000


@dataclass(frozen=True)
class Name:
    """What the pickle would import."""

    text: str


@dataclass(frozen=True)
class Stored:
    """What the pickle keeps outside itself, by its identifier."""

    identifier: Any


@dataclass(frozen=True, eq=False)
class Call:
    """What the pickle would call, on what, and what it would then put into the result."""

    name: str
    args: Any
    items: dict[Any, Any] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)


class _Mark:
    """Where on the stack a collection begins."""


def parse(pickled: bytes) -> Any:
    """The tree that the pickle describes, of numbers, strings, tuples, lists, dictionaries, names and calls.

    >>> import pickle, os
    >>> parse(pickle.dumps({"run": os.getcwd, "n": [1, 2]}, protocol=2))
    {'run': Name(text='posix.getcwd'), 'n': [1, 2]}
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if count > _MOST_OPERATIONS:
            raise ValueError(f"more than {_MOST_OPERATIONS:,} operations")
        if opcode.name == "STOP":
            return stack.pop()
        _step(opcode.name, argument, stack, memo)
    raise ValueError("no end")


def _step(opcode: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if opcode in _IGNORED:
        return
    if opcode in _VALUES:
        stack.append(argument)
    elif opcode in _FRESH:
        stack.append(_FRESH[opcode]())
    elif opcode in _ACTIONS:
        _ACTIONS[opcode](stack)
    elif opcode in ("PUT", "BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif opcode == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif opcode in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif opcode == "GLOBAL":
        stack.append(Name(argument.replace(" ", ".", 1)))
    else:
        raise ValueError(f"the operation {opcode}")


def _since_mark(stack: list[Any]) -> list[Any]:
    found = []
    while not isinstance(top := stack.pop(), _Mark):
        found.append(top)
    return found[::-1]


def _tuple(count: int) -> Callable[[list[Any]], None]:
    def action(stack: list[Any]) -> None:
        parts = tuple(stack[-count:])
        del stack[-count:]
        stack.append(parts)

    return action


def _call(stack: list[Any]) -> None:
    args, name = stack.pop(), stack.pop()
    stack.append(Call(name.text if isinstance(name, Name) else "something computed", args))


def _imported(stack: list[Any]) -> None:
    name, module = stack.pop(), stack.pop()
    stack.append(Name(f"{module}.{name}"))


def _extend(stack: list[Any], parts: list[Any]) -> None:
    (stack[-1].parts if isinstance(stack[-1], Call) else stack[-1]).extend(parts)


def _update(stack: list[Any], pairs: list[Any]) -> None:
    target = stack[-1].items if isinstance(stack[-1], Call) else stack[-1]
    target.update(zip(pairs[::2], pairs[1::2], strict=True))


def _set_item(stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    _update(stack, [key, value])


def _append(stack: list[Any]) -> None:
    value = stack.pop()
    _extend(stack, [value])


_IGNORED = frozenset({"PROTO", "FRAME"})
_VALUES = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    ]
)
_FRESH: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,
    "MARK": _Mark,
}
_ACTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "LIST": lambda stack: stack.append(_since_mark(stack)),
    "STACK_GLOBAL": _imported,
    "BINPERSID": lambda stack: stack.append(Stored(stack.pop())),
    "REDUCE": _call,
    "NEWOBJ": _call,
    "BUILD": lambda stack: stack.pop(),
    "POP": lambda stack: stack.pop(),
    "APPEND": _append,
    "APPENDS": lambda stack: _extend(stack, _since_mark(stack)),
    "ADDITEMS": lambda stack: _extend(stack, _since_mark(stack)),
    "SETITEM": _set_item,
    "SETITEMS": lambda stack: _update(stack, _since_mark(stack)),
}
