"""`from_torch`: a PyTorch module as `(f, params)`."""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.models.adapters.comparison import compare
from neuromanifold.models.adapters.model import AdaptedModel, arguments
from neuromanifold.models.adapters.packages import need
from neuromanifold.models.adapters.program import Program, Untranslatable, unknown, unknown_operations
from neuromanifold.models.adapters.program_model import ProgramModel
from neuromanifold.models.adapters.structure import filled, numbered
from neuromanifold.models.adapters.torch_export import export, exported_whole, program_of, quiet, unfused
from neuromanifold.models.adapters.torch_graph import Smaller, graph_module
from neuromanifold.models.adapters.torch_resizing import resized, statistics_of
from neuromanifold.models.adapters.torch_tensors import constants_of, own_parameters, to_numpy, to_tensor
from neuromanifold.numerics.files import write_atomically
from neuromanifold.numerics.validation import indefinite

_PREFIX = "module."


def from_torch(
    module: Any,
    *,
    example: Any,
    kwargs: Mapping[str, Any] | None = None,
    output: Callable[[Any], Any] | None = None,
    statistics: bool = False,
) -> tuple[AdaptedModel, dict[str, np.ndarray]]:
    """`(f, params)` of a PyTorch module: `f(params, x)` computes what the module does, in JAX.

    `example` is one batch: a tensor, a tuple of the module's positional arguments, or a dictionary of its keyword
    arguments, every array with the sample axis first. `x` has the same form, with any number of samples. `kwargs` are
    further arguments that stay fixed (`{"use_cache": False}`). `output` picks what is meant from the module's output.

    `params` is a dictionary with the module's own names; weights that share memory appear once. Buffers are constants; with
    `statistics=True` the running means and variances of batch normalisations are parameters too, so that they follow their channels
    when `nm.reduce_width` removes some.
    The module must be in evaluation mode where that matters. It is not changed, and before `f` is handed out its outputs
    and a directional derivative are compared with the module's in float64 on random inputs (`f.evidence`).
    """
    torch = need("torch")
    module = _checked(module, torch)
    own, tied = own_parameters(module)
    flat, leaves, takes = _flat(module, example, dict(kwargs or {}), output, torch)
    params = {name: to_numpy(parameter) for name, parameter in own.items()}
    with unfused():
        twin = _copied(flat).requires_grad_(True)
        gives = _form_of_output(twin, leaves)
        exported = export(flat, leaves)
        program = program_of(exported, tied, _PREFIX)
        for node in unknown_operations(program):
            raise Untranslatable(unknown(node))
        constants, runner = constants_of(exported, program), ProgramModel(program, takes, gives)
        runner.check(params, constants)
        evidence = compare(twin, runner, params, constants, leaves, tied)
    if statistics:
        program, moved = _with_statistics(program, module, torch)
        runner, params = ProgramModel(program, takes, gives), params | moved
        constants = {name: constants[name] for name in dict.fromkeys(program.constants.values())}
    return AdaptedModel(runner, constants, f"{type(module).__name__} from PyTorch", evidence), params


def _with_statistics(program: Program, module: Any, torch: Any) -> tuple[Program, dict[str, np.ndarray]]:
    """The program with running statistics among its parameters, and their values."""
    names, buffers = {_PREFIX + name: name for name in statistics_of(module, torch)}, dict(module.named_buffers())
    moved = {place: names[name] for place, name in program.constants.items() if name in names}
    rest = {place: name for place, name in program.constants.items() if place not in moved}
    values = {name: to_numpy(buffers[name]) for name in moved.values()}
    return replace(program, parameters={**program.parameters, **moved}, constants=rest), values


def _checked(module: Any, torch: Any) -> Any:
    module = getattr(module, "_orig_mod", module)
    if isinstance(module, torch.nn.DataParallel):
        module = module.module
    if isinstance(module, torch.jit.ScriptModule) or not isinstance(module, torch.nn.Module):
        raise TypeError(f"`module` is {indefinite(module)}; pass a torch.nn.Module in ordinary Python.")
    return module


def _flat(
    module: Any, example: Any, kwargs: dict[str, Any], output: Callable[[Any], Any] | None, torch: Any
) -> tuple[Any, list[Any], Any]:
    """The module with tensors in and a tuple of tensors out, three samples of the example, and the form of x."""
    leaves: list[Any] = []
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    try:
        takes = numbered(example, lambda leaf: hasattr(leaf, "shape"), leaves, "`example`")
    except TypeError as error:
        raise TypeError(f"{error}; pass tensors, and put what stays fixed into `kwargs`.") from None
    samples = _three_samples([to_tensor(leaf, dtype, device) for leaf in leaves])
    return _flat_class(torch)(module, takes, kwargs, output), samples, takes


def _three_samples(leaves: list[Any]) -> list[Any]:
    counts = {tuple(leaf.shape[:1]) for leaf in leaves}
    if len(counts) != 1 or counts & {(), (0,)}:
        raise ValueError(
            f"`example` has arrays of shapes {[tuple(leaf.shape) for leaf in leaves]}; "
            "the first axis of each must count the samples, at least one."
        )
    return [leaf[[i % len(leaf) for i in range(3)]].detach().clone() for leaf in leaves]


def _flat_class(torch: Any) -> type:
    class Flat(torch.nn.Module):
        def __init__(self, module: Any, takes: Any, kwargs: dict[str, Any], output: Any):
            super().__init__()
            self.module, self.takes, self.kwargs, self.output = module, takes, kwargs, output
            self.training = module.training

        def structured(self, *leaves: Any) -> Any:
            args, named = arguments(filled(self.takes, leaves))
            y = self.module(*args, **named, **self.kwargs)
            return y if self.output is None else self.output(y)

        def forward(self, *leaves: Any) -> tuple[Any, ...]:
            found: list[Any] = []
            numbered(self.structured(*leaves), torch.is_tensor, found, "")
            return tuple(found)

    return Flat


def _form_of_output(twin: Any, leaves: list[Any]) -> Any:
    torch = need("torch")

    try:
        with torch.no_grad():
            y = twin.structured(*leaves)
    except Exception as error:
        said, shapes = str(error).partition("\n")[0], ", ".join(str(tuple(leaf.shape[1:])) for leaf in leaves)
        kinds = ", ".join(sorted({str(leaf.dtype) for leaf in leaves}))
        raise ValueError(
            f"`module` does not run on `example`, three samples of shape {shapes} in {kinds} ({type(error).__name__}: {said}); "
            "pass one batch of its input, samples first, in its shape and dtype."
        ) from None
    found: list[Any] = []
    try:
        gives = numbered(y, torch.is_tensor, found, "the output of `module`")
    except TypeError as error:
        raise TypeError(
            f"{error}, which is no array; pass `output=`, a function that picks the arrays that are meant."
        ) from None
    for tensor in found:
        if tensor.shape[:1] != (len(leaves[0]),):
            raise ValueError(
                f"`module` maps {len(leaves[0])} samples to an output of shape {tuple(tensor.shape)}; the first axis must count the "
                "samples: pass `output=`, a function that picks or transposes what is meant."
            )
    return gives


def to_torch(module: Any, params: Mapping[str, Any], *, resize: bool = False) -> Any:
    """A copy of the module with these parameters, named as `from_torch` names them.

    Devices, dtypes and shared weights stay as they are in `module`, which is not touched; values are rounded to its dtypes. With
    `resize=True` linear layers, convolutions and batch normalisations take the widths of parameters of other shapes (`nm.reduce_width`
    gives such); running statistics are written where `params` has them.
    """
    torch = need("torch")
    module = _checked(module, torch)
    own, tied = own_parameters(module)
    statistics = statistics_of(module, torch)
    _check_names(params, own, statistics)
    if folded := [name for name in own if params[name] is None]:
        raise ValueError(
            f"`params` has None for {', '.join(folded)}, folded into others; reduce with `fold=False` for PyTorch."
        )
    twin, given = _copied(module), [*own, *(name for name in statistics if name in params)]
    if resize:
        resized(twin, {name: np.shape(params[name]) for name in given}, tied, torch)
    written = {**dict(twin.named_buffers()), **dict(twin.named_parameters(remove_duplicate=False))}
    with torch.no_grad():
        for name in given:
            written[name].copy_(_fitting(torch, name, params[name], written[name]))
    for name, first in tied.items():
        # Copying separates parameters that share memory without being one object.
        written[name].data = written[first].data
    return twin


def _check_names(params: Any, own: Collection[str], statistics: Collection[str]) -> None:
    if not isinstance(params, Mapping):
        raise TypeError(f"`params` is {indefinite(params)}; pass a dictionary by name (of a reduction: its `.params`).")
    missing, unknown = [name for name in own if name not in params], sorted({*params} - {*own} - {*statistics})
    if missing or unknown:
        raise ValueError(
            f"`params` are not this module's: missing {', '.join(missing[:4]) or 'nothing'}, "
            f"unknown {', '.join(map(str, unknown[:4])) or 'nothing'}; pass one array for each of its {len(own)} parameters."
        )


def to_graph_module(module: Any, smaller: Mapping[str, Smaller], example: Any) -> Any:
    """A copy of the module's graph at fewer parameters (`fx.GraphModule`); `example` is one batch, as for `from_torch`."""
    module = _copied(_checked(module, need("torch")))
    return graph_module(module, smaller, *_given(module, example))


def save_graph(path: Path, module: Any, example: Any) -> Path:
    """The module as a `.pt2` file, for any number of samples."""
    exported = exported_whole(module, *_given(module, example))
    with quiet():
        return write_atomically(path, lambda place: need("torch").export.save(exported, str(place)))


def _given(module: Any, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Three samples of the example as positional and as named arguments."""
    parts = example.values() if isinstance(example, Mapping) else example if isinstance(example, tuple) else (example,)
    if not all(hasattr(part, "shape") for part in parts):
        raise TypeError(
            "`example` has arguments that are no arrays; pass a tensor, or a tuple or a dictionary of tensors."
        )
    first = next(module.parameters())
    leaves = _three_samples([to_tensor(part, first.dtype, first.device) for part in parts])
    return ((), dict(zip(example, leaves, strict=True))) if isinstance(example, Mapping) else (tuple(leaves), {})


def _fitting(torch: Any, name: str, value: Any, parameter: Any) -> Any:
    array = np.asarray(value, np.float64)
    if array.shape != tuple(parameter.shape):
        raise ValueError(f"`params[{name!r}]` has shape {array.shape}; the module needs {tuple(parameter.shape)}.")
    tensor = torch.from_numpy(array.copy()).to(parameter)
    if not torch.isfinite(tensor).all():
        raise ValueError(
            f"`params[{name!r}]` has entries that are not finite in {parameter.dtype}; give the module a wider dtype."
        )
    return tensor


def _copied(module: Any) -> Any:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(f"`module` cannot be copied ({error}); build it anew and load its state_dict.") from None
