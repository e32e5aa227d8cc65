"""The network of a `.pt2` file in PyTorch: its program, as our reader has read it, run by PyTorch's
own operations.

Nothing of the file is executed. The operations are those of the table, looked up by the table's
names; of the file's own words only the names of parameters, arguments and dictionary keys reach
PyTorch, which writes code with them, so that only plain ones are let through.
"""

import inspect
import keyword
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.adapters.torch.export import Given, write_graph
from neuromanifold.models.adapters.torch.graph_writer import Smaller, graph_module
from neuromanifold.models.adapters.torch.origin import Bounds, Fixed, Form, Origin
from neuromanifold.models.adapters.torch.program import Input, TorchNode, TorchProgram, resolve
from neuromanifold.models.adapters.torch.program_model import ProgramModel, check_leaves
from neuromanifold.models.adapters.torch.structure import leaves
from neuromanifold.models.adapters.torch.tensors import from_array, tensors_in
from neuromanifold.runtime.packages import need

_PLAIN = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
# The reader drops devices and memory layouts: constants are copied, and a view that may need a copy
# is a reshape.
_INSTEAD = {
    "aten.lift_fresh.default": "aten.clone.default",
    "aten.lift_fresh_copy.default": "aten.clone.default",
    "aten.view.default": "aten.reshape.default",
    "aten._unsafe_view.default": "aten.reshape.default",
}


def read_from_file(model: Any) -> bool:
    """Whether the model is a program from a `.pt2` file, which can be written again."""
    return (
        isinstance(model, AdaptedModel)
        and isinstance(model.apply, ProgramModel)
        and model.apply.origin is not None
    )


def program_graph(model: Any, smaller: Mapping[str, Smaller], example: Any) -> Any:
    """The file's network at fewer parameters (`fx.GraphModule`); `example` is one batch of its
    input.
    """
    check_leaves(model.apply.program, model.apply.takes, example)
    return graph_module(program_module(model), smaller, example_for(model, example))


def write_program(path: Path, model: Any, graph: Any, example: Any) -> Path:
    """A graph of the file's network as a `.pt2` file: the same arguments, names and free axes."""
    return write_graph(path, graph, example_for(model, example))


def program_module(model: Any, params: Mapping[str, Any] | None = None) -> Any:
    """The file's network as a PyTorch module in evaluation mode, with these parameters (zeros
    when absent) under the file's names.
    """
    torch = need("torch")
    runner, origin = model.apply, model.apply.origin
    _check_words(origin)
    _note_devices(origin.devices)
    module = torch.nn.Module()
    values = {**model.state, **(params or {})}
    for name, tensor, persistent in _tensors(runner.program, origin, values, torch):
        _register(module, name, tensor, persistent, torch)
    module.forward = _forward(module, runner.program, origin, torch)
    return module.eval()


def _tensors(
    program: TorchProgram, origin: Origin, values: Mapping[str, Any], torch: Any
) -> Iterator[tuple[str, Any, bool]]:
    """(name, tensor, whether it is saved); names that share a weight get one object."""
    made: dict[str, Any] = {}
    for place, first in {**program.parameters, **program.constants}.items():
        held = origin.held[place]
        if first not in made:
            tensor = from_array(
                np.asarray(values.get(first, np.zeros(held.shape))).astype(np.dtype(held.dtype))
            )
            made[first] = (
                torch.nn.Parameter(tensor, requires_grad=held.trained) if held.parameter else tensor
            )
        yield held.name, made[first], held.persistent


def _register(module: Any, name: str, tensor: Any, persistent: bool, torch: Any) -> None:
    *path, leaf = name.split(".")
    try:
        for part in path:
            if part not in dict(module.named_children()):
                module.add_module(part, torch.nn.Module())
            module = module.get_submodule(part)
        if isinstance(tensor, torch.nn.Parameter):
            module.register_parameter(leaf, tensor)
        else:
            module.register_buffer(leaf, tensor, persistent=persistent)
    except (KeyError, AttributeError):
        raise ValueError(
            f"`net` has a tensor named {name!r}, a name that PyTorch's modules have taken; rename "
            "it."
        ) from None


def _forward(module: Any, program: TorchProgram, origin: Origin, torch: Any) -> Any:
    """What the module does when it is called, with the signature that the file describes."""
    dtypes = _Dtypes(torch)
    operations = [_operation(node, torch) for node in program.nodes]

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = [leaf for _, leaf in leaves(origin.takes.template, (args, kwargs))]
        inputs = [
            leaf
            for leaf, slot in zip(given, origin.takes.slots, strict=True)
            if not isinstance(slot, Fixed)
        ]
        values = {
            place: reduce(getattr, held.name.split("."), module)
            for place, held in origin.held.items()
        }
        values |= {spec.name: leaf for spec, leaf in zip(program.inputs, inputs, strict=True)}
        for node, operation in zip(program.nodes, operations, strict=True):
            result = operation(
                *resolve(node.args, values, dtypes), **resolve(node.kwargs, values, dtypes)
            )
            results = result if node.many else (result,)[: len(node.outputs)]
            values.update(zip(node.outputs, results, strict=True))
        return origin.gives.filled(resolve(program.outputs, values, dtypes))

    forward.__signature__ = _signature(origin)  # pyright: ignore[reportFunctionMemberAccess]
    return forward


class _Dtypes:
    """PyTorch's dtypes by the names that a program has for them."""

    def __init__(self, torch: Any):
        self.torch = torch

    def __getitem__(self, name: str) -> Any:
        return getattr(self.torch, name)


def _operation(node: TorchNode, torch: Any) -> Any:
    """PyTorch's own operation of that name; every name is one of the table, or the reader would
    have refused it.
    """
    if node.target == "aten.to.device":
        return lambda x, _, *rest: torch.ops.aten.to.dtype(x, *rest)
    library, _, name = _INSTEAD.get(node.target, node.target).partition(".")
    if library == "aten":
        return operator.attrgetter(name)(torch.ops.aten)
    return getattr({"_operator": operator, "math": math, "torch": torch}[library], name)


def _signature(origin: Origin) -> inspect.Signature:
    args, named = origin.takes.template
    names = [*origin.names[: len(args)], *(f"arg{k}" for k in range(len(origin.names), len(args)))]
    positional = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names
    ]
    return inspect.Signature(
        [*positional, *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in named)]
    )


def _check_words(origin: Origin) -> None:
    """Names that are more than letters, digits, underscores and hyphens have no business in code
    that PyTorch writes.
    """
    words = [held.name for held in origin.held.values()]
    words += [word for form in (origin.takes, origin.gives) for word in _words(form)]
    for word in words:
        if not isinstance(word, str | int) or (
            isinstance(word, str) and not _PLAIN.fullmatch(word)
        ):
            raise ValueError(
                f"`net` has the name {str(word)[:60]!r} among its tensors or arguments; only "
                "plain names are written."
            )
    args, named = origin.takes.template
    for name in (*origin.names[: len(args)], *named):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(
                f"`net` has an argument named {name[:60]!r}, which Python has no room for; rename "
                "it."
            )


def _words(form: Form) -> Iterator[Any]:
    yield from _keys(form.template)
    yield from (
        slot.value for slot in form.slots if isinstance(slot, Fixed) and isinstance(slot.value, str)
    )


def _keys(template: Any) -> Iterator[Any]:
    if isinstance(template, dict):
        yield from template
    if isinstance(template, dict | tuple | list):
        for part in template.values() if isinstance(template, dict) else template:
            yield from _keys(part)


def _note_devices(devices: tuple[str, ...]) -> None:
    if others := sorted(set(devices) - {"cpu"}):
        warnings.warn(
            f"the network's tensors were on {', '.join(others)}; what is written is on the CPU.",
            stacklevel=3,
        )


def example_for(model: Any, example: Any) -> Given:
    """Three samples of the example (one where the program takes one), as the file's module is
    called; its free axes stay free.
    """
    torch, origin, program = need("torch"), model.apply.origin, model.apply.program
    tensors = _batch(
        model, example, lambda n: [0] if _takes_one(program) else [i % n for i in range(3)]
    )
    free = [
        (
            tensor,
            {axis: _free(torch, origin.bounds.get((spec.name, axis))) for axis in _free_axes(spec)},
        )
        for spec, tensor in zip(program.inputs, tensors, strict=True)
    ]
    args, kwargs = origin.takes.filled(tensors)
    return Given(args, kwargs, free)


def outputs_in_torch(model: Any, module: Any, x: Any) -> Iterator[np.ndarray]:
    """What a PyTorch module with the file's arguments gives on the samples, array by array, in
    float64.
    """
    torch, program = need("torch"), model.apply.program
    count = check_leaves(program, model.apply.takes, x)[0].shape[0]
    for rows in [[i] for i in range(count)] if _takes_one(program) else [list(range(count))]:
        args, kwargs = model.apply.origin.takes.filled(_batch(model, x, lambda _, rows=rows: rows))
        with torch.no_grad():
            given = [
                np.asarray(y.double())
                for y in tensors_in(module(*args, **kwargs))
                if torch.is_tensor(y)
            ]
        yield from given


def _batch(model: Any, x: Any, rows: Callable[[int], list[int]]) -> list[Any]:
    """These rows of the arrays of x as tensors of the program's dtypes, in its order."""
    torch, program = need("torch"), model.apply.program
    found = [np.asarray(leaf) for _, leaf in leaves(model.apply.takes, x)]
    return [
        from_array(np.ascontiguousarray(leaf[rows(len(leaf))])).to(getattr(torch, spec.dtype))
        for spec, leaf in zip(program.inputs, found, strict=True)
    ]


def _takes_one(program: TorchProgram) -> bool:
    return any(spec.shape[0] == 1 for spec in program.inputs)


def _free_axes(spec: Input) -> list[int]:
    return [axis for axis, length in enumerate(spec.shape) if length is None]


def _free(torch: Any, bounds: Bounds | None) -> Any:
    hint = torch.export.Dim.DYNAMIC
    return hint if bounds in (None, (0, None), (2, None)) else hint(min=bounds[0], max=bounds[1])
