"""`.pt2`: what `torch.export.save` writes, read as data.

The archive holds the graph as JSON and the weights as raw bytes. PyTorch's own loader also
unpickles parts of it, and so runs whatever a file says; this reader opens nothing that is pickled.
"""

import itertools
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.adapters.torch.aliasing import functional
from neuromanifold.models.adapters.torch.export import IGNORED, source_line
from neuromanifold.models.adapters.torch.origin import Bounds, Fixed, Form, Held, Origin
from neuromanifold.models.adapters.torch.program import (
    Dtype,
    Input,
    Ref,
    Shape,
    TorchNode,
    TorchProgram,
    Untranslatable,
    unknown_operations,
)
from neuromanifold.models.adapters.torch.program_model import ProgramModel
from neuromanifold.models.adapters.torch.rewriting import as_parameters, settle, statistics_read
from neuromanifold.models.adapters.torch.ties import ties
from neuromanifold.models.files.layout import Layout
from neuromanifold.runtime.untrusted_files import (
    check_size,
    first_line,
    open_archive,
    read_json,
    read_member,
    unreadable,
)

_LARGEST_JSON = 32 * 2**20
_AGAIN = (
    "export it again with a current PyTorch: torch.export.save(exported.run_decompositions({}), "
    "path)"
)

Arrays = dict[str, np.ndarray]


def read_exported(path: Path, *, statistics: bool = False) -> tuple[AdaptedModel, Arrays]:
    """`(f, params)` of a `.pt2` archive, with nothing of it executed and PyTorch not needed.

    With `statistics` the running means and variances of batch normalisations are parameters too.
    """
    with open_archive(path) as archive:
        folder = _folder(path, archive)
        model = _json(path, archive, f"{folder}models/model.json")
        try:
            runner, params, state = _model(path, archive, folder, model)
        except (KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
            raise unreadable(
                path, f"damaged, or of an unknown version: {type(error).__name__} {error}"
            ) from None
    try:
        runner.check(params, state)
    except Untranslatable as error:
        raise ValueError(
            f"`path` is {str(path)!r}, whose {str(error).removeprefix('`').replace('`', '', 1)}"
        ) from None
    except Exception as error:
        raise unreadable(
            path, f"damaged: its program does not fit together, {first_line(error)}"
        ) from None
    if statistics:
        program = as_parameters(runner.program, statistics_read(runner.program))
        params = {name: {**state, **params}[name] for name in program.parameters.values()}
        runner, state = (
            replace(runner, program=program),
            {name: state[name] for name in program.constants.values()},
        )
    return AdaptedModel(
        runner, state, path.name, "not compared with the module it came from"
    ), params


def _folder(path: Path, archive: zipfile.ZipFile) -> str:
    names = archive.namelist()
    if any(
        name.endswith("serialized_exported_program.json")
        or re.search(r"data/weights/[^/]*\.pt$", name)
        for name in names
    ):
        raise ValueError(
            f"`path` is {str(path)!r}, an older export whose weights are pickled, that is, code; "
            f"{_AGAIN}."
        )
    found = [
        name.removesuffix("models/model.json")
        for name in names
        if name.endswith("models/model.json")
    ]
    if len(found) != 1:
        raise ValueError(
            f"`path` is {str(path)!r}, which holds {len(found)} graphs, where torch.export.save "
            f"writes one; {_AGAIN}."
        )
    order = f"{found[0]}byteorder"
    if order in names and read_member(path, archive, order, 20) != b"little":
        raise unreadable(path, "its numbers are not little-endian")
    return found[0]


def _json(path: Path, archive: zipfile.ZipFile, name: str) -> Any:
    if name not in archive.namelist():
        raise ValueError(
            f"`path` is {str(path)!r}, which has no {name.rpartition('/')[2]}; {_AGAIN}."
        )
    return read_json(path, read_member(path, archive, name, _LARGEST_JSON), name.rpartition("/")[2])


def _model(
    path: Path, archive: zipfile.ZipFile, folder: str, model: Any
) -> tuple[ProgramModel, Arrays, Arrays]:
    graph, signature = model["graph_module"]["graph"], model["graph_module"]["signature"]
    weights = _json(path, archive, f"{folder}data/weights/model_weights_config.json")["config"]
    constants = _json(path, archive, f"{folder}data/constants/model_constants_config.json")[
        "config"
    ]
    specs = [next(iter(spec.items())) for spec in signature["input_specs"]]
    kinds = {
        spec["arg"]["name"]: spec
        for kind, spec in specs
        if kind in ("parameter", "buffer", "tensor_constant")
    }
    parameters = {
        spec["arg"]["name"]: spec["parameter_name"] for kind, spec in specs if kind == "parameter"
    }
    fixed = {
        spec["arg"]["name"]: spec[f"{kind}_name"]
        for kind, spec in specs
        if kind in ("buffer", "tensor_constant")
    }
    entries = {**weights, **constants}
    layouts = {name: _layout(entries[name]) for name in (*parameters.values(), *fixed.values())}
    places = {name: layout.place(entries[name]["path_name"]) for name, layout in layouts.items()}
    tied = ties({n: places[n] for n in parameters.values()}, {n: places[n] for n in fixed.values()})
    check_size(path, sum(layout.nbytes for layout in layouts.values()))
    needed = {*tied.values(), *fixed.values()}
    arrays = {
        name: _tensor(path, archive, folder, name, entries[name], layouts[name]) for name in needed
    }
    params = {name: arrays[name] for name in dict.fromkeys(tied.values())}
    state = {name: arrays[name] for name in fixed.values()}
    if not params:
        raise ValueError(
            f"`path` is {str(path)!r}, a program without parameters; there is nothing to "
            "differentiate by."
        )
    program = _program(
        path,
        graph,
        signature,
        {place: tied[name] for place, name in parameters.items()},
        fixed,
        arrays,
    )
    held = {
        place: _read_held(name, kinds[place], entries[name], layouts[name])
        for place, name in {**parameters, **fixed}.items()
    }
    origin = _origin(path, model, held, program, entries.values())
    return (
        ProgramModel(program, read_form(origin.takes, origin.names), origin.gives.arrays, origin),
        params,
        state,
    )


def _read_held(
    name: str, spec: Mapping[str, Any], entry: Mapping[str, Any], layout: Layout
) -> Held:
    return Held(
        name,
        layout.shape,
        layout.dtype.name,
        parameter="parameter_name" in spec,
        trained=entry["tensor_meta"]["requires_grad"] is True,
        persistent=spec.get("persistent") is True,
    )


def _origin(
    path: Path, model: Any, held: Mapping[str, Held], program: TorchProgram, entries: Iterable[Any]
) -> Origin:
    whole, signature = model["graph_module"], model["graph_module"]["signature"]
    call = next(entry["signature"] for entry in whole["module_call_graph"] if entry["fqn"] == "")
    ranges, bounds = model["range_constraints"], dict[tuple[str, int], Bounds]()
    for given in program.inputs:
        bounds |= bounds_of(whole["graph"], ranges, given.name)
    return Origin(
        held=held,
        takes=inputs_of(path, call, signature),
        gives=outputs_of(path, call, signature),
        names=tuple(call.get("forward_arg_names") or ()),
        bounds=bounds,
        devices=tuple({str(entry["tensor_meta"]["device"]["type"]) for entry in entries}),
    )


def _program(
    path: Path,
    graph: Mapping[str, Any],
    signature: Mapping[str, Any],
    parameters: Mapping[str, str],
    fixed: Mapping[str, str],
    arrays: Mapping[str, np.ndarray],
) -> TorchProgram:
    recorded = graph["tensor_values"]
    names = [
        spec["user_input"]["arg"]["as_tensor"]["name"]
        for spec in signature["input_specs"]
        if "user_input" in spec
    ]
    inputs = tuple(
        Input(name, shape_of(recorded[name]), scalar_type(recorded[name]["dtype"]))
        for name in names
    )
    _check_batch(path, inputs)
    outputs = tuple(_output(path, spec) for spec in signature["output_specs"])
    outputs = tuple(output for output in outputs if isinstance(output, Ref))
    nodes, outputs = functional(nodes_of(graph), outputs, {**parameters, **fixed})
    shapes = {name: shape_of(meta) for name, meta in recorded.items()}
    widest = max(
        (arrays[name].dtype for name in parameters.values()),
        key=lambda d: d.itemsize,
        default=np.dtype("float32"),
    )
    program = TorchProgram(settle(nodes, shapes), parameters, fixed, inputs, outputs, widest.name)
    for node in unknown_operations(program):
        raise ValueError(
            f"`path` is {str(path)!r}, whose program uses {node.target} at {node.where}, which is "
            "not in the table; take it apart: "
            "torch.export.save(exported.run_decompositions(), path)."
        )
    return program


def _check_batch(path: Path, inputs: tuple[Input, ...]) -> None:
    first = {given.shape[0] if given.shape else 0 for given in inputs}
    if len(first) != 1 or not first & {None, 1}:
        raise ValueError(
            f"`path` is {str(path)!r}, a program for inputs of shapes "
            f"{[given.shape for given in inputs]}; the first axis must be "
            "free, or 1: torch.export.export(module, (x,), dynamic_shapes=({0: "
            "torch.export.Dim('n')},))."
        )


def _output(path: Path, spec: Mapping[str, Any]) -> Any:
    if "user_output" not in spec:
        raise ValueError(
            f"`path` is {str(path)!r}, a program that changes its state when it runs "
            f"({next(iter(spec))}); "
            "call `module.eval()` before exporting."
        )
    return argument(spec["user_output"]["arg"])


def _layout(entry: Mapping[str, Any]) -> Layout:
    meta = entry["tensor_meta"]
    shape, strides = (tuple(step["as_int"] for step in meta[key]) for key in ("sizes", "strides"))
    return Layout(
        np.dtype(scalar_type(meta["dtype"])), meta["storage_offset"]["as_int"], shape, strides
    )


def _tensor(
    path: Path,
    archive: zipfile.ZipFile,
    folder: str,
    name: str,
    entry: Mapping[str, Any],
    layout: Layout,
) -> np.ndarray:
    if entry["use_pickle"]:
        raise ValueError(
            f"`path` is {str(path)!r}, whose tensor {name!r} is pickled, that is, code; {_AGAIN}."
        )
    part = "weights" if entry["path_name"].startswith("weight") else "constants"
    return layout.read(path, name, archive.read(f"{folder}data/{part}/{entry['path_name']}"))


_DICTIONARIES = (
    "builtins.dict",
    "collections.OrderedDict",
    "torch.fx.immutable_collections.immutable_dict",
)


def inputs_of(path: Path, call: Mapping[str, Any], signature: Mapping[str, Any]) -> Form:
    """The form of (positional arguments, named arguments); what the file calls a constant input
    is fixed.
    """
    specs = [next(iter(spec.items())) for spec in signature["input_specs"]]
    given = [(kind, spec) for kind, spec in specs if kind in ("user_input", "constant_input")]
    values = [Ref("") if kind == "user_input" else argument(spec["value"]) for kind, spec in given]
    return _form(_tree(path, call["in_spec"]), values)


def outputs_of(path: Path, call: Mapping[str, Any], signature: Mapping[str, Any]) -> Form:
    """The form of the output; numbers among it and None are fixed."""
    return _form(
        _tree(path, call["out_spec"]),
        (argument(spec["user_output"]["arg"]) for spec in signature["output_specs"]),
    )


def read_form(form: Form, names: tuple[str, ...]) -> Any:
    """The structure of x: one array, a tuple of positional arguments, or a dictionary of named
    ones.
    """
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
        f"`path` holds a program with a {kind} among its inputs or outputs; use tuples, lists and "
        "dictionaries."
    )


def _tree(path: Path, text: str) -> Any:
    """A structure as PyTorch writes it: JSON in a string, whose dictionaries hold their keys as
    JSON in strings.
    """
    [_, spec] = read_json(path, text.encode(), "the form of its inputs")
    return _with_keys(path, spec)


def _with_keys(path: Path, spec: Mapping[str, Any]) -> dict[str, Any]:
    context = spec["context"]
    return {
        "type": spec["type"],
        "context": read_json(path, context.encode(), "the form of its inputs")
        if isinstance(context, str)
        else None,
        "children_spec": [_with_keys(path, child) for child in spec["children_spec"]],
    }


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
_PLAIN = frozenset(
    {"as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings", "as_int_lists"}
)


def scalar_type(number: int) -> str:
    """The dtype that PyTorch's schema gives this number."""
    return _SCALAR_TYPES[number]


def shape_of(meta: Mapping[str, Any]) -> Shape:
    """The recorded shape, None where any length will do."""
    return tuple(size.get("as_int") for size in meta["sizes"])


def nodes_of(graph: Mapping[str, Any]) -> tuple[TorchNode, ...]:
    """The operations in order."""
    return tuple(_node(node, graph["tensor_values"]) for node in graph["nodes"])


def _node(node: Mapping[str, Any], recorded: Mapping[str, Any]) -> TorchNode:
    given = [(part["name"], argument(part["arg"]), part.get("kind", 1)) for part in node["inputs"]]
    names = [name for output in node["outputs"] for name in _names(output)]
    return TorchNode(
        target=node["target"].removeprefix("torch.ops."),
        args=tuple(value for _, value, kind in given if kind == 1),
        kwargs={name: value for name, value, kind in given if kind != 1 and name not in IGNORED},
        outputs=tuple(names),
        dtypes=tuple(
            scalar_type(recorded[name]["dtype"]) if name in recorded else None for name in names
        ),
        many=len(node["outputs"]) > 1 or any("as_tensors" in output for output in node["outputs"]),
        where=_where(node.get("metadata", {})),
    )


def _names(output: Mapping[str, Any]) -> list[str]:
    [(kind, value)] = output.items()
    if kind == "as_tensors":
        return [part["name"] for part in value]
    return [value["name"] if kind == "as_tensor" else value["as_name"]]


def argument(given: Mapping[str, Any]) -> Any:
    """An argument of an operation; devices, layouts and memory formats mean nothing here and
    become None.
    """
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
        f"{path or 'the module itself'} ({kind.rpartition('.')[2] or 'module'})",
        metadata.get("stack_trace", ""),
    )


def bounds_of(
    graph: Mapping[str, Any], ranges: Mapping[str, Any], name: str
) -> dict[tuple[str, int], Bounds]:
    """Between which lengths the free axes of an input may lie, where the file says; by (input,
    axis).
    """
    found = {}
    for axis, size in enumerate(graph["tensor_values"][name]["sizes"]):
        symbol = _SYMBOL.fullmatch(size.get("as_expr", {}).get("expr_str", ""))
        limits = ranges.get(symbol[1] or symbol[2]) if symbol else None
        if limits is not None:
            found[name, axis] = _read_bound(limits["min_val"]), _read_bound(limits["max_val"])
    return found


def _read_bound(value: Any) -> int | None:
    """A length; PyTorch writes infinity as nothing, or as its largest integer."""
    return value if type(value) is int and 0 <= value < 2**62 else None
