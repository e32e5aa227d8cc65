"""How an exported program is called and what it returns: tuples, lists and dictionaries of arrays."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from neuromanifold.models.adapters.origin import Fixed, Form
from neuromanifold.models.adapters.program import Ref
from neuromanifold.models.files.exported_graph import argument
from neuromanifold.numerics.archives import read_json

_DICTIONARIES = ("builtins.dict", "collections.OrderedDict", "torch.fx.immutable_collections.immutable_dict")


def inputs_of(path: Path, call: Mapping[str, Any], signature: Mapping[str, Any]) -> Form:
    """The form of (positional arguments, named arguments); what the file calls a constant input is fixed."""
    specs = [next(iter(spec.items())) for spec in signature["input_specs"]]
    given = [(kind, spec) for kind, spec in specs if kind in ("user_input", "constant_input")]
    values = [Ref("") if kind == "user_input" else argument(spec["value"]) for kind, spec in given]
    return _form(_tree(path, call["in_spec"]), values)


def outputs_of(path: Path, call: Mapping[str, Any], signature: Mapping[str, Any]) -> Form:
    """The form of the output; numbers among it and None are fixed."""
    return _form(
        _tree(path, call["out_spec"]), (argument(spec["user_output"]["arg"]) for spec in signature["output_specs"])
    )


def taken(form: Form, names: tuple[str, ...]) -> Any:
    """The structure of x: one array, a tuple of positional arguments, or a dictionary of named ones."""
    args, named = form.arrays
    if named and args:
        return {**dict(zip(names, args, strict=False)), **named}
    return named or (args[0] if len(args) == 1 and isinstance(args[0], int) else args)


def _form(spec: Mapping[str, Any], values: Iterable[Any]) -> Form:
    numbers = itertools.count()
    slots = tuple(next(numbers) if isinstance(value, Ref) else Fixed(value) for value in values)
    return Form(_template(spec, itertools.count()), slots)


def _template(spec: Mapping[str, Any], numbers: Iterator[int]) -> Any:
    """A tree of tuples, lists and dictionaries with consecutive numbers where it has leaves."""
    kind = spec["type"]
    if kind is None:
        return next(numbers)
    children = [_template(child, numbers) for child in spec["children_spec"]]
    if kind in ("builtins.tuple", "builtins.list"):
        return tuple(children) if kind == "builtins.tuple" else children
    if kind in _DICTIONARIES:
        return dict(zip(spec["context"], children, strict=True))
    raise ValueError(
        f"`path` holds a program with a {kind} among its inputs or outputs; use tuples, lists and dictionaries."
    )


def _tree(path: Path, text: str) -> Any:
    """A structure as PyTorch writes it: JSON in a string, whose dictionaries hold their keys as JSON in strings."""
    [_, spec] = read_json(path, text.encode(), "the form of its inputs")
    return _with_keys(path, spec)


def _with_keys(path: Path, spec: Mapping[str, Any]) -> dict[str, Any]:
    context = spec["context"]
    return {
        "type": spec["type"],
        "context": read_json(path, context.encode(), "the form of its inputs") if isinstance(context, str) else None,
        "children_spec": [_with_keys(path, child) for child in spec["children_spec"]],
    }
