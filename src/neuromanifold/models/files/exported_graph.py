"""The JSON of an exported graph, in the terms of a program."""

import re
from collections.abc import Mapping
from typing import Any

from neuromanifold.models.adapters.origin import Bounds
from neuromanifold.models.adapters.program import Dtype, Node, Ref, Shape
from neuromanifold.models.adapters.torch_export import IGNORED, source_line

# PyTorch numbers its dtypes so in every archive (torch/_export/serde/schema.py).
_SCALAR_TYPES = dict(
    enumerate(
        [
            "uint8",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "float32",
            "float64",
            "complex32",
            "complex64",
            "complex128",
            "bool",
            "bfloat16",
        ],
        1,
    )
)
# The name of a free axis; a sum or a product of such has no bounds of its own.
_SYMBOL = re.compile(r"Symbol\('(\w+)'[^']*\)|(\w+)")
_PLAIN = frozenset({"as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings", "as_int_lists"})


def scalar_type(number: int) -> str:
    """The dtype that PyTorch's schema gives this number."""
    return _SCALAR_TYPES[number]


def shape_of(meta: Mapping[str, Any]) -> Shape:
    """The recorded shape, None where any length will do."""
    return tuple(size.get("as_int") for size in meta["sizes"])


def nodes_of(graph: Mapping[str, Any]) -> tuple[Node, ...]:
    """The operations in order."""
    return tuple(_node(node, graph["tensor_values"]) for node in graph["nodes"])


def _node(node: Mapping[str, Any], recorded: Mapping[str, Any]) -> Node:
    given = [(part["name"], argument(part["arg"]), part.get("kind", 1)) for part in node["inputs"]]
    names = [name for output in node["outputs"] for name in _names(output)]
    return Node(
        target=node["target"].removeprefix("torch.ops."),
        args=tuple(value for _, value, kind in given if kind == 1),
        kwargs={name: value for name, value, kind in given if kind != 1 and name not in IGNORED},
        outputs=tuple(names),
        dtypes=tuple(scalar_type(recorded[name]["dtype"]) if name in recorded else None for name in names),
        many=len(node["outputs"]) > 1 or any("as_tensors" in output for output in node["outputs"]),
        where=_where(node.get("metadata", {})),
    )


def _names(output: Mapping[str, Any]) -> list[str]:
    [(kind, value)] = output.items()
    if kind == "as_tensors":
        return [part["name"] for part in value]
    return [value["name"] if kind == "as_tensor" else value["as_name"]]


def argument(given: Mapping[str, Any]) -> Any:
    """An argument of an operation; devices, layouts and memory formats mean nothing here and become None."""
    [(kind, value)] = given.items()
    if kind in _PLAIN:
        return value
    if kind in ("as_float", "as_floats"):
        return float(value) if kind == "as_float" else [float(part) for part in value]
    if kind == "as_tensor":
        return Ref(value["name"])
    if kind == "as_tensors":
        return tuple(Ref(part["name"]) for part in value)
    if kind in ("as_optional_tensor", "as_sym_int", "as_sym_bool", "as_sym_float", "as_name"):
        return Ref(value) if isinstance(value, str) else argument(value)
    if kind in ("as_optional_tensors", "as_sym_ints", "as_sym_bools", "as_sym_floats"):
        return tuple(argument(part) for part in value)
    return Dtype(scalar_type(value)) if kind == "as_scalar_type" else None


def _where(metadata: Mapping[str, str]) -> str:
    """The path of the submodule and the line of the source, where they were recorded."""
    *_, path, kind = (",," + metadata.get("nn_module_stack", "").rpartition(";")[2]).split(",")[-3:]
    return source_line(
        f"{path or 'the module itself'} ({kind.rpartition('.')[2] or 'module'})", metadata.get("stack_trace", "")
    )


def bounds_of(graph: Mapping[str, Any], ranges: Mapping[str, Any], name: str) -> dict[tuple[str, int], Bounds]:
    """Between which lengths the free axes of an input may lie, where the file says; by (input, axis)."""
    found = {}
    for axis, size in enumerate(graph["tensor_values"][name]["sizes"]):
        symbol = _SYMBOL.fullmatch(size.get("as_expr", {}).get("expr_str", ""))
        limits = ranges.get(symbol[1] or symbol[2]) if symbol else None
        if limits is not None:
            found[name, axis] = _bound(limits["min_val"]), _bound(limits["max_val"])
    return found


def _bound(value: Any) -> int | None:
    """A length; PyTorch writes infinity as nothing, or as its largest integer."""
    return value if type(value) is int and 0 <= value < 2**62 else None
