"""Small wrong changes to the functions and constants of a statement: index ± 1, sign, factor
1.1, transpose, ≤ for <, and others.
"""

import ast
import copy
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from reachable import Function, constants, rebind

# What these names hold is how exactly, or on how many draws, something is measured, not what.
TOLERANT = re.compile(
    "toleran|rounding|eps|rtol|atol|hypotheses|covered|trials|time|draws|samples|seed|few|prime|^cases$|comparisons",
    re.IGNORECASE,
)
_SWAPPED = {"max": "min", "min": "max", "all": "any", "any": "all"}
_SIDES = ("at_most", "at_least", "equal")
_RELATIONS = {"<=": ">=", ">=": "<="}
_OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip

Position = tuple[int, int, int, int]


@dataclass(frozen=True)
class Mutant:
    """One change: of which kind, where, and from what to what; `apply` makes it and returns what
    undoes it.
    """

    kind: str
    place: str
    change: str
    apply: Callable[[], Callable[[], None]]

    @property
    def name(self) -> str:
        return f"{self.place}: {self.change}"


def mutants(reached: list[Function], prefix: str) -> Iterator[Mutant]:
    """Every mutant of the functions, nearest first, and of the constants they use."""
    for function in reached:
        if "hypotheses" not in function.__name__:
            yield from _of_function(function, reached)
            yield from _of_bound(function)
    for name, space, value in constants(reached, prefix):
        if not TOLERANT.search(name):
            yield from _of_constant(name, space, value, reached)


def _of_bound(function: Function) -> Iterator[Mutant]:
    """Numbers and relations that a function holds in its closure or as defaults."""
    code, place = (
        function.__code__,
        f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}",
    )
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        for change, new in _changed_values(cell.cell_contents):
            yield Mutant(
                "constant", place, f"{name}: {change}", partial(_set, cell, "cell_contents", new)
            )
    first = code.co_argcount - len(function.__defaults__ or ())
    for index, value in enumerate(function.__defaults__ or ()):
        name = code.co_varnames[first + index]
        if not TOLERANT.search(name):
            for change, new in _changed_values(value):
                changed = (*function.__defaults__[:index], new, *function.__defaults__[index + 1 :])  # pyright: ignore[reportOptionalSubscript]
                yield Mutant(
                    "constant",
                    place,
                    f"{name}: {change}",
                    partial(_set, function, "__defaults__", changed),
                )


def _set(owner: Any, name: str, new: Any) -> Callable[[], None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    return partial(setattr, owner, name, old)


def _of_constant(
    name: str, space: dict[str, Any], value: Any, reached: list[Function]
) -> Iterator[Mutant]:
    module = str(space["__name__"]).rpartition(".")[2]
    for change, new in _changed_values(value):

        def apply(new: Any = new) -> Callable[[], None]:
            spaces = {
                id(f.__globals__): f.__globals__
                for f in reached
                if f.__globals__.get(name) is value
            }
            spaces[id(space)] = space
            for each in spaces.values():
                each[name] = new
            undo = rebind(reached, value, new)

            def restore() -> None:
                for each in spaces.values():
                    each[name] = value
                undo()

            return restore

        yield Mutant("constant", f"{module}.{name}", change, apply)


def _changed_values(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str) and value in _RELATIONS:
        yield f"{value} → {_RELATIONS[value]}", _RELATIONS[value]
    elif isinstance(value, bool):
        yield f"{value} → {not value}", not value
    elif isinstance(value, int):
        yield from ((f"{value} → {value + step}", value + step) for step in (1, -1))
    elif isinstance(value, float):
        yield from (
            (f"{value:g} → {new:g}", new) for new in ((1.1 * value,) if value else (1.0, -1.0))
        )
    elif isinstance(value, dict):
        for key, entry in list(value.items())[:3]:
            yield from (
                (f"[{key!r}] {text}", {**value, key: new})
                for text, new in list(_changed_values(entry))[:1]
            )
    elif isinstance(value, tuple | list):
        for index, entry in list(enumerate(value))[:3]:
            for text, new in list(_changed_values(entry))[:1]:
                yield f"[{index}] {text}", type(value)([*value[:index], new, *value[index + 1 :]])


def _of_function(function: Function, reached: list[Function]) -> Iterator[Mutant]:
    path = function.__code__.co_filename
    tree, code, labels = _module(path)
    spots = positions(function.__code__)
    place = f"{Path(path).stem}.{function.__qualname__}"
    for node in _eligible(tree, spots, labels):
        for kind, new in _changes(node):
            change = " → ".join(f"`{_text(part)}`" for part in _shown(kind, node, new))
            yield Mutant(kind, place, change, _swap(tree, code, node, new, reached))


def _shown(kind: str, node: Any, new: Any) -> tuple[ast.AST, ast.AST]:
    """What of a change is worth reading: of a scaled check its left side."""
    return (
        (node.args[0], new.args[0])
        if kind in ("factor 1.1", "offset") and isinstance(node, ast.Call)
        else (node, new)
    )


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


@lru_cache(maxsize=64)
def _module(path: str) -> tuple[ast.Module, types.CodeType, frozenset[str]]:
    """The tree, the code, and the names that only label a case: those passed as hypotheses."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    words = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "hypotheses"
    ]
    words += [
        word
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) in _SIDES
        for word in node.keywords
        if word.arg not in ("drops", "cases", "comparisons")
    ]
    labels = {
        name.id for word in words for name in ast.walk(word.value) if isinstance(name, ast.Name)
    }
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return tree, compile(tree, path, "exec", dont_inherit=True), frozenset(labels - called)


def positions(code: types.CodeType) -> set[Position]:
    """Where the instructions of a function stand in its file; a nested function's too."""
    found = {entry for entry in code.co_positions() if None not in entry}
    nested = [positions(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return found.union(*nested)  # pyright: ignore[reportReturnType]


def _eligible(tree: ast.Module, spots: set[Position], labels: frozenset[str]) -> Iterator[ast.AST]:
    """The nodes that the instructions come from, less those that only name, count, draw or bound
    what is measured.
    """
    for node in _relevant(tree, labels):
        if isinstance(node, ast.expr) and _position(node) in spots:
            yield node


def _position(node: ast.expr) -> Any:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _relevant(node: ast.AST, labels: frozenset[str]) -> Iterator[ast.AST]:
    for child in _parts(node):
        if not (
            isinstance(child, ast.Assert | ast.Raise | ast.JoinedStr)
            or _tolerant(child)
            or _labels(child, labels)
        ):
            yield child
            yield from _relevant(child, labels)


def _parts(node: ast.AST) -> Iterable[ast.AST]:
    """`Check(left, right, relation, tolerance, …)` and `compare(left, relation, right,
    rounding)` count to their third argument, `equal(left, right, tolerance, …)` and its like to
    their second.
    """
    if not isinstance(node, ast.Call):
        return ast.iter_child_nodes(node)
    name = _called(node)
    if name in ("default_rng", "key") or name.startswith("_hypotheses") or _left_out(node):
        return ()
    if name in ("outside", "inside"):
        return [word for word in node.keywords if word.arg == "when"]
    if name in _SIDES:
        return [*node.args[:2], *(word for word in node.keywords if word.arg == "drops")]
    return [
        node.func,
        *(node.args[:3] if name in ("Check", "compare") else node.args),
        *node.keywords,
    ]


def _tolerant(node: ast.AST) -> bool:
    names: list[str] = []
    if isinstance(node, ast.keyword):
        names = [node.arg or ""]
    elif isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    return any(TOLERANT.search(name) for name in names)


def _labels(node: ast.AST, labels: frozenset[str]) -> bool:
    """A name for a case, or a draw from `rng`."""
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id in labels for target in node.targets)
    operands = (node.left, node.right) if isinstance(node, ast.BinOp) else (node,)
    calls = (operand.func for operand in operands if isinstance(operand, ast.Call))
    return any(
        isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "rng"
        for f in calls
    )


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """(kind, changed node) for every way in which a node can be made wrong."""
    if isinstance(node, ast.Constant):
        yield from _of_literal(node)
    elif isinstance(node, ast.BinOp):
        yield from _of_operation(node)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATORS:
        yield "≤ for <", _with(node, ops=[_OPERATORS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BoolOp):
        yield "and for or", _with(node, op=_OPERATORS[type(node.op)]())
        yield from (("dropped condition", node.values[1 - keep]) for keep in (0, 1))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield "sign" if isinstance(node.op, ast.USub) else "negation", node.operand
    elif isinstance(node, ast.Attribute) and node.attr == "T":
        yield "transpose", node.value
    elif isinstance(node, ast.IfExp):
        yield "negation", _with(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _of_literal(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, str) and value in _RELATIONS:
        yield "relation", ast.Constant(_RELATIONS[value])
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (("index ± 1", ast.Constant(value + step)) for step in (1, -1))
    elif isinstance(value, float):
        yield from (
            ("factor 1.1", ast.Constant(new)) for new in ((1.1 * value,) if value else (1.0, -1.0))
        )


def _of_operation(node: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.op, ast.MatMult):
        yield "transpose", _with(node, left=node.right, right=node.left)
    elif type(node.op) in _OPERATORS and not isinstance(node.left, ast.JoinedStr):
        yield (
            "sign" if isinstance(node.op, ast.Add | ast.Sub) else "operator",
            _with(node, op=_OPERATORS[type(node.op)]()),
        )


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = _called(node)
    if name in _SWAPPED and isinstance(node.func, ast.Name):
        yield "operator", _with(node, func=ast.Name(_SWAPPED[name], ast.Load()))
    if name in ("at_most", "at_least") and not _left_out(node):
        yield "relation", _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
    if name in ("Check", "compare", *_SIDES) and len(node.args) > 1 and not _left_out(node):
        yield from _of_check(node)
    if name in ("outside", "inside"):
        kept = [
            word if word.arg != "when" else ast.keyword("when", ast.Constant(False))
            for word in node.keywords
        ]
        if any(word.arg == "when" for word in node.keywords):
            yield "dropped hypothesis", _with(node, keywords=kept)


def _of_check(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """The left side made larger, or smaller where it should be the larger one; a relation that
    is a variable is asked.
    """
    relations = [
        part.value
        for part in node.args
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    asked = [part for part in node.args if isinstance(part, ast.Name) and part.id == "relation"]
    least, left = ">=" in relations or _called(node) == "at_least", node.args[0]
    sides: list[tuple[str, Any]] = [
        ("offset", lambda down: ast.BinOp(left, ast.Sub() if down else ast.Add(), ast.Constant(1)))
    ]
    if not _zero(node.args):
        sides.append(
            (
                "factor 1.1",
                lambda down: ast.BinOp(left, ast.Sub() if down else ast.Add(), _tenth(left)),
            )
        )
    for kind, moved in sides:
        new = (
            _where_least(asked[0], moved(True), moved(False))
            if asked and not relations
            else moved(least)
        )
        yield kind, _with(node, args=[new, *node.args[1:]])


def _tenth(side: ast.expr) -> ast.expr:
    return ast.BinOp(ast.Call(ast.Name("abs", ast.Load()), [side], []), ast.Div(), ast.Constant(10))


def _where_least(relation: ast.expr, smaller: ast.expr, larger: ast.expr) -> ast.expr:
    return ast.IfExp(ast.Compare(relation, [ast.Eq()], [ast.Constant(">=")]), smaller, larger)


def _left_out(node: ast.Call) -> bool:
    """Whether a check stands for a case that is dropped whatever it measures: its sides play no
    part.
    """
    drops = [
        word.value
        for word in node.keywords
        if word.arg == "drops" and isinstance(word.value, ast.Call)
    ]
    words = [
        word.arg
        for call in drops
        if _called(call) in ("outside", "inside")
        for word in call.keywords
    ]
    return (
        bool(drops)
        and _called(drops[0]) in ("outside", "inside")
        and not {"when", "parts"} & {*words}
    )


def _zero(parts: list[ast.expr]) -> bool:
    """Whether a side is the number 0, which no factor changes."""
    return any(isinstance(part, ast.Constant) and part.value == 0 for part in parts)


def _with(node: ast.AST, **fields: Any) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _swap(
    tree: ast.Module, code: types.CodeType, node: ast.AST, new: ast.AST, reached: list[Function]
) -> Callable[[], Callable[[], None]]:
    """Give every reached function of the module the code it has when `node` is replaced by
    `new`.
    """

    def apply() -> Callable[[], None]:
        path = code.co_filename
        changed = _Replace(node, new).visit(copy.deepcopy(tree, {id(node): node}))
        mutated = compile(ast.fix_missing_locations(changed), path, "exec", dont_inherit=True)
        pairs = _paired(code, mutated)
        before = []
        for function in reached:
            if (
                function.__code__.co_filename == path
                and pairs.get(function.__code__, function.__code__) != function.__code__
            ):
                before.append((function, function.__code__))
                function.__code__ = pairs[function.__code__]

        def restore() -> None:
            for function, old in before:
                function.__code__ = old

        return restore

    return apply


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return (
            ast.copy_location(copy.deepcopy(self.new), self.old)
            if node is self.old
            else self.generic_visit(node)
        )


def _paired(code: types.CodeType, mutated: types.CodeType) -> dict[types.CodeType, types.CodeType]:
    """Each function's code with what became of it: in order, or by name and line where a change
    took a nested function away.
    """
    before, after = list(_codes(code)), list(_codes(mutated))
    if len(before) == len(after):
        return dict(zip(before, after, strict=True))
    named = {(c.co_qualname, c.co_firstlineno): c for c in after}
    return {
        c: named[c.co_qualname, c.co_firstlineno]
        for c in before
        if (c.co_qualname, c.co_firstlineno) in named
    }


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)
