"""`from_torch`: a PyTorch module as `(f, params)`."""

import contextlib
import copy
import warnings
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.adapters.model import AdaptedModel, arguments
from neuromanifold.models.adapters.torch.export import (
    Given,
    as_written,
    export,
    program_of,
    write_graph,
)
from neuromanifold.models.adapters.torch.graph_writer import Smaller, graph_module
from neuromanifold.models.adapters.torch.program import (
    TorchProgram,
    Untranslatable,
    unknown,
    unknown_operations,
)
from neuromanifold.models.adapters.torch.program_model import ProgramModel
from neuromanifold.models.adapters.torch.rewriting import as_constants, as_parameters
from neuromanifold.models.adapters.torch.structure import fill, number_leaves
from neuromanifold.models.adapters.torch.substitutes import own_gradients
from neuromanifold.models.adapters.torch.tensors import (
    constants_of,
    frozen_parameters,
    own_parameters,
    to_numpy,
    to_tensor,
)
from neuromanifold.models.arguments import Params
from neuromanifold.numerics.compiling import run_once
from neuromanifold.numerics.precision import arithmetic, is_floating, promote
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.packages import need
from neuromanifold.runtime.untrusted_files import first_line

_PREFIX = "module."


def from_torch(
    module: Any,
    *,
    example: Any,
    kwargs: Mapping[str, Any] | None = None,
    output: Callable[[Any], Any] | None = None,
    statistics: bool = False,
    whole: bool = False,
) -> tuple[AdaptedModel, dict[str, np.ndarray]]:
    """Return `(f, params)` of a PyTorch module: `f(params, x)` computes what the module does, in
    JAX.

    `example` is one batch: a tensor, a tuple of the module's positional arguments, or a dictionary
    of its keyword arguments, every array with the sample axis first. `x` has the same form, with
    any number of samples. `kwargs` are further arguments that stay fixed (`{"use_cache": False}`).
    `output` picks one of the module's outputs.

    With `whole=True` the example is one input, whose first axis counts no samples (the nodes of a
    graph): f takes a stack of such inputs, `x[None]` for one, and maps each as a whole.

    `params` is a dictionary with the module's own names; weights that share memory appear once.
    Buffers are constants, and so are parameters with `requires_grad=False`. With `statistics=True`
    the running means and variances of batch normalisations are parameters too, so that they follow
    their channels when `nm.reduce_width` removes some.

    The module must be in evaluation mode where that matters. It is not changed. Before it returns,
    `from_torch` compares the outputs of `f` and a directional derivative with the module's, in
    float64 on random inputs (`f.evidence`).
    """
    torch = need("torch")
    module = _check_module(module, torch)
    own, tied = own_parameters(module)
    params = {name: to_numpy(parameter) for name, parameter in own.items()}
    with as_written():
        flat, leaves, takes = _flat(module, example, dict(kwargs or {}), output, whole, torch)
        twin = _copy(flat).requires_grad_(True)
        gives = _form_of_output(twin, leaves)
        translated = _Translation(flat, twin, leaves, takes, gives, params, tied)
        program, constants, evidence = translated(1) if whole else translated.of_any_number()
    if frozen := {name: _PREFIX + name for name in frozen_parameters(module)}:
        if len(frozen) == len(params):
            raise ValueError(
                "`module` has no parameter that training may change (requires_grad=False for all "
                f"{len(params)}); call `module.requires_grad_(True)` first."
            )
        program = as_constants(program, frozen)
        constants |= {place: params.pop(name) for name, place in frozen.items()}
    if statistics:
        program, moved = _with_statistics(program, module, torch)
        params |= moved
    constants = {name: constants[name] for name in dict.fromkeys(program.constants.values())}
    return AdaptedModel(
        ProgramModel(program, takes, gives),
        constants,
        f"{type(module).__name__} from PyTorch",
        evidence,
        separate=True,
    ), params


Translated = tuple[TorchProgram, dict[str, Any], str]


class OwnGradients(ValueError):
    """A module whose gradients are not the derivative of what it computes."""


@dataclass(frozen=True, eq=False)
class _Translation:
    """From a module to a program that was compared with it on several samples."""

    flat: Any
    twin: Any
    leaves: list[Any]
    takes: Any
    gives: Any
    params: Mapping[str, np.ndarray]
    tied: Mapping[str, str]

    def __call__(self, samples: int) -> Translated:
        """The program of so many samples: one is mapped over all, several stand for any number."""
        return self._compare(samples, *self._program(samples))

    def of_any_number(self) -> Translated:
        """The program of any number of samples; that of one where PyTorch can follow no other
        (derivatives inside, packed sequences, `einsum` of three operands, `cdist`).
        """
        try:
            found = self._program(3)
        except ValueError as refusal:
            try:
                return self(1)
            except ValueError:
                raise refusal from None
        return self._compare(3, *found)

    def _program(self, samples: int) -> tuple[TorchProgram, dict[str, Any]]:
        exported = export(self.flat, [leaf[:samples] for leaf in self.leaves])
        program = program_of(exported, self.tied, _PREFIX)
        for node in unknown_operations(program):
            raise Untranslatable(unknown(node))
        constants = constants_of(exported, program)
        ProgramModel(program, self.takes, self.gives).check(self.params, constants)
        return program, constants

    def _compare(
        self, samples: int, program: TorchProgram, constants: dict[str, Any]
    ) -> Translated:
        def evidence() -> str:
            runner = ProgramModel(program, self.takes, self.gives)
            return compare(self.twin, runner, self.params, constants, self.leaves, self.tied)

        try:
            return program, constants, evidence()
        except OwnGradients:
            with own_gradients() as met:
                program, constants = self._program(samples)
            if not met:
                raise
            return program, constants, f"{evidence()}; with the gradients of {', '.join(met)}"


def _with_statistics(
    program: TorchProgram, module: Any, torch: Any
) -> tuple[TorchProgram, dict[str, np.ndarray]]:
    """The program with running statistics among its parameters, and their values."""
    names, buffers = (
        {_PREFIX + name: name for name in statistics_of(module, torch)},
        dict(module.named_buffers()),
    )
    moved = {place: names[name] for place, name in program.constants.items() if name in names}
    return as_parameters(program, moved), {name: to_numpy(buffers[name]) for name in moved.values()}


def copy_for_evaluation(module: Any) -> Any:
    """A copy in evaluation mode."""
    with as_written():
        return _copy(module).eval()


def with_buffers(f: AdaptedModel, buffers: Mapping[str, np.ndarray]) -> AdaptedModel:
    """The network that `from_torch` gave with other values of the module's buffers and frozen
    parameters.
    """
    named = {_PREFIX + name: value for name, value in buffers.items()}
    return replace(f, state={name: named.get(name, value) for name, value in f.state.items()})


def unwrap(module: Any) -> Any:
    """The module inside what `torch.compile`, `DataParallel` and `DistributedDataParallel` made
    of it.
    """
    parallel = need("torch").nn.parallel
    inner = getattr(module, "_orig_mod", module)
    wrapped = isinstance(inner, parallel.DataParallel | parallel.DistributedDataParallel)
    return unwrap(inner.module) if wrapped else inner


def _check_module(module: Any, torch: Any) -> Any:
    module = unwrap(module)
    if isinstance(module, torch.jit.ScriptModule) or not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"`module` is {indefinite(module)}; pass a torch.nn.Module in ordinary Python."
        )
    return module


def _flat(
    module: Any,
    example: Any,
    kwargs: dict[str, Any],
    output: Callable[[Any], Any] | None,
    whole: bool,
    torch: Any,
) -> tuple[Any, list[Any], Any]:
    """The module with tensors in and a tuple of tensors out, three samples of the example, and
    the form of x.
    """
    leaves: list[Any] = []
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    try:
        takes = number_leaves(example, lambda leaf: hasattr(leaf, "shape"), leaves, "`example`")
    except TypeError as error:
        raise TypeError(f"{error}; pass tensors, and put what stays fixed into `kwargs`.") from None
    given = [to_tensor(leaf, dtype, device) for leaf in leaves]
    samples = _three_samples([leaf[None] for leaf in given] if whole else given)
    return _flat_class(torch)(module, takes, kwargs, output, whole), samples, takes


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
        def __init__(self, module: Any, takes: Any, kwargs: Any, output: Any, whole: bool):
            super().__init__()
            self.module, self.takes, self.kwargs, self.output = module, takes, kwargs, output
            self.training, self.whole = module.training, whole

        def structured(self, *leaves: Any) -> Any:
            if not self.whole:
                return self.one(*leaves)
            each: list[list[Any]] = []
            gives = None
            for i in range(len(leaves[0])):
                y, found = self.one(*(leaf[i] for leaf in leaves)), []
                gives = number_leaves(y, torch.is_tensor, found, "the output of `module`")
                each.append(found)
            return fill(gives, [torch.stack(parts) for parts in zip(*each, strict=True)])

        def one(self, *leaves: Any) -> Any:
            args, named = arguments(fill(self.takes, leaves))
            y = self.module(*args, **named, **self.kwargs)
            return y if self.output is None else self.output(y)

        def forward(self, *leaves: Any) -> tuple[Any, ...]:
            found: list[Any] = []
            number_leaves(self.structured(*leaves), torch.is_tensor, found, "")
            return tuple(found)

    return Flat


def _form_of_output(twin: Any, leaves: list[Any]) -> Any:
    torch = need("torch")

    try:
        with warnings.catch_warnings():
            # `torch.cond` asks its operands, which are no leaves, for their gradients.
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            y = twin.structured(*(leaf.clone() for leaf in leaves))
    except Exception as error:
        said, shapes = (
            str(error).partition("\n")[0],
            ", ".join(str(tuple(leaf.shape[1:])) for leaf in leaves),
        )
        kinds = ", ".join(sorted({str(leaf.dtype) for leaf in leaves}))
        raise ValueError(
            f"`module` does not run on `example`, three samples of shape {shapes} in {kinds} "
            f"({type(error).__name__}: {said}); "
            "pass one batch of its input, samples first, in its shape and dtype, or one input with "
            "`whole=True` where its first axis counts no samples."
        ) from None
    found: list[Any] = []
    try:
        gives = number_leaves(y, torch.is_tensor, found, "the output of `module`")
    except TypeError as error:
        raise TypeError(
            f"{error}, which is no array; pass `output=`, a function that picks the arrays that "
            "are meant."
        ) from None
    for tensor in found:
        if tensor.shape[:1] != (len(leaves[0]),):
            raise ValueError(
                f"`module` maps {len(leaves[0])} samples to an output of shape "
                f"{tuple(tensor.shape)}; the first axis must count the "
                "samples: pass `output=`, a function that picks or transposes what is meant."
            )
    return gives


def to_torch(module: Any, params: Params, *, resize: bool = False) -> Any:
    """Return a copy of the module with these parameters, named as `from_torch` names them.

    Devices, dtypes and shared weights stay as they are in `module`, which is not touched; values
    are rounded to its dtypes; parameters with `requires_grad=False` need not be given. With
    `resize=True` linear layers, convolutions and batch
    normalisations take the widths of parameters of other shapes (`nm.reduce_width` gives such);
    running statistics are written where `params` has them.
    """
    torch = need("torch")
    module = _check_module(module, torch)
    own, tied = own_parameters(module)
    statistics = statistics_of(module, torch)
    _check_names(params, own, frozen_parameters(module), statistics)
    if folded := [name for name in own if name in params and params[name] is None]:
        raise ValueError(
            f"`params` has None for {', '.join(folded)}, folded into others; reduce with "
            "`fold=False` for PyTorch."
        )
    twin, given = _copy(module), [name for name in (*own, *statistics) if name in params]
    if resize:
        resize_layers(twin, {name: np.shape(params[name]) for name in given}, tied, torch)
    written = {**dict(twin.named_buffers()), **dict(twin.named_parameters(remove_duplicate=False))}
    with torch.no_grad():
        for name in given:
            written[name].copy_(_fitting(torch, name, params[name], written[name]))
    for name, first in tied.items():
        # Copying separates parameters that share memory without being one object.
        written[name].data = written[first].data
    return twin


def _check_names(
    params: Any, own: Collection[str], frozen: Collection[str], statistics: Collection[str]
) -> None:
    if not isinstance(params, Mapping):
        raise TypeError(
            f"`params` is {indefinite(params)}; pass a dictionary by name (of a reduction: its "
            "`.params`)."
        )
    missing, unknown = (
        [name for name in own if name not in params and name not in frozen],
        sorted({*params} - {*own} - {*statistics}),
    )
    if missing or unknown:
        raise ValueError(
            f"`params` are not this module's: missing {', '.join(missing[:4]) or 'nothing'}, "
            f"unknown {', '.join(map(str, unknown[:4])) or 'nothing'}; pass one array for each of "
            f"its {len(own)} parameters."
        )


def to_graph_module(module: Any, smaller: Mapping[str, Smaller], example: Any) -> Any:
    """A copy of the module's graph at fewer parameters (`fx.GraphModule`); `example` is one
    batch, as for `from_torch`.
    """
    module = _copy(_check_module(module, need("torch")))
    return graph_module(module, smaller, _read_example(module, example))


def save_graph(path: Path, module: Any, example: Any) -> Path:
    """The module as a `.pt2` file, for any number of samples."""
    return write_graph(path, module, _read_example(module, example))


def _read_example(module: Any, example: Any) -> Given:
    """Three samples of the example as positional and as named arguments, their first axis of any
    length.
    """
    parts = (
        example.values()
        if isinstance(example, Mapping)
        else example
        if isinstance(example, tuple)
        else (example,)
    )
    if not all(hasattr(part, "shape") for part in parts):
        raise TypeError(
            "`example` has arguments that are no arrays; pass a tensor, or a tuple or a "
            "dictionary of tensors."
        )
    first = next(module.parameters())
    leaves = _three_samples([to_tensor(part, first.dtype, first.device) for part in parts])
    free = [(leaf, {0: None}) for leaf in leaves]
    if isinstance(example, Mapping):
        return Given((), dict(zip(example, leaves, strict=True)), free)
    return Given(tuple(leaves), {}, free)


def _fitting(torch: Any, name: str, value: Any, parameter: Any) -> Any:
    array = np.asarray(value, np.float64)
    if array.shape != tuple(parameter.shape):
        raise ValueError(
            f"`params[{name!r}]` has shape {array.shape}; the module needs "
            f"{tuple(parameter.shape)}."
        )
    tensor = torch.from_numpy(array.copy()).to(parameter)
    if not torch.isfinite(tensor).all():
        raise ValueError(
            f"`params[{name!r}]` has entries that are not finite in {parameter.dtype}; give the "
            "module a wider dtype."
        )
    return tensor


def _copy(module: Any) -> Any:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(
            f"`module` cannot be copied ({error}); build it anew and load its state_dict."
        ) from None


Arrays = list[np.ndarray]
# PyTorch's own backward passes are less exact than its forward ones: that of hardsigmoid has 1/6 in
# float32, which is 3e-8.
_SLACK = 100
# Networks of more parameters are compared on fewer samples.
_LARGE = 10**7


def compare(
    module: Any,
    runner: ProgramModel,
    params: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    leaves: list[Any],
    tied: Mapping[str, str],
) -> str:
    """How far outputs and ⟨v, J u⟩ are from the module's, as a sentence; too far is an error.

    The module's side runs backwards (vᵀJ by PyTorch's autograd), the translation's forwards (J u):
    two routes to one number. Three samples (two of a large network), then all but the first of
    them, whose rows must not change.
    """
    n = 2 if sum(map(np.size, params.values())) > _LARGE else 3
    leaves = [leaf[:n] for leaf in leaves]
    rng, own = np.random.default_rng(0), runner.program.dtype
    dtype, x, large = _reference(module, own, leaves, rng)
    rtol = float(jnp.finfo(dtype).eps) ** 0.5
    weights = [rng.standard_normal(y[1:].shape) if is_floating(y) else None for y in large]
    try:
        small, gradient = _backwards(module, dtype, own, [a[1:] for a in x], weights, tied)
    except RuntimeError as error:
        raise ValueError(
            f"`module` cannot be differentiated by PyTorch itself ({first_line(error)}); mend "
            "that first."
        ) from None
    _check_rows(large, small, rtol)
    direction = {
        name: rng.integers(0, 2, np.shape(leaf), np.int8) * np.float32(2) - np.float32(1)
        for name, leaf in params.items()
    }
    paired = _pair(gradient, direction)
    if not np.isfinite(paired[0]):
        names = ", ".join(name for name, slope in gradient.items() if not np.isfinite(slope).all())
        raise ValueError(
            f"`module` has no finite gradient in PyTorch itself, with respect to {names} (a root "
            "or a quotient of zeros, say); change these parameters, or keep the zeros away by a "
            "small constant."
        )
    del gradient
    found, found_small, tangents = _forwards(runner, params, constants, x, direction, dtype)
    outputs = max(
        _deviation(a, b) for a, b in zip([*large, *small], [*found, *found_small], strict=True)
    )
    forwards = sum(
        float(np.sum(v * t)) for v, t in zip(weights, tangents, strict=True) if v is not None
    )
    derivative = abs(paired[0] - forwards) / (paired[1] or 1.0)
    _check(outputs, derivative, rtol, dtype)
    return (
        f"outputs within {outputs:.0e} and a directional derivative within {derivative:.0e} of "
        "the module's, "
        f"in {dtype}, at {n - 1} and {n} samples"
    )


def _check(outputs: float, derivative: float, rtol: float, dtype: str) -> None:
    if not outputs <= rtol:
        raise ValueError(
            f"`module` and its translation differ by {outputs:.1e} of the largest output "
            f"({dtype}); the translation is not handed "
            "out: please report the module, and wrap the network as nm.FunctionModel for now."
        )
    if not derivative <= _SLACK * rtol:
        raise OwnGradients(
            f"`module` has gradients of its own: they differ by {derivative:.1e} from the "
            "derivative of what it computes (a custom autograd.Function that is not entry by "
            "entry, torch.no_grad, hooks, or equal entries among which it picks in an order of its "
            "own); replace those steps by differentiable ones, or `.detach()` what has no gradient."
        )


def _reference(
    module: Any, own: str, leaves: list[Any], rng: np.random.Generator
) -> tuple[str, Arrays, Arrays]:
    """(dtype, x, outputs) of the module cast to float64, or left in its own dtype where its code
    allows no other.
    """
    torch = need("torch")

    drawn, given = [_draw_like(leaf, rng) for leaf in leaves], [_array(leaf) for leaf in leaves]
    problem = "not a number"
    for dtype, x in (
        (dtype, x) for dtype in dict.fromkeys(("float64", own)) for x in (drawn, given)
    ):
        module.to(getattr(torch, dtype))
        try:
            outputs = [to_numpy(y) for y in _call(module, dtype, own, x)]
        except Exception as error:
            problem = first_line(error)
            continue
        if all(np.isfinite(y.astype(float)).all() for y in outputs if is_floating(y)):
            return dtype, x, outputs
    raise ValueError(
        "`module` gives no finite output, neither on `example` nor on random inputs like it "
        f"({problem}); pass another example."
    )


def _draw_like(leaf: Any, rng: np.random.Generator) -> np.ndarray:
    """Random data like the example's: normal with its mean and deviation, or a shuffle of its
    entries where that is no number.
    """
    values = _array(leaf)
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return rng.choice(values.ravel(), values.shape)
    return values.mean() + (values.std() or 1.0) * rng.standard_normal(values.shape)


def _array(leaf: Any) -> np.ndarray:
    return (leaf.double() if leaf.is_floating_point() else leaf).detach().cpu().numpy()


def _call(module: Any, dtype: str, own: str, x: Arrays) -> tuple[Any, ...]:
    """The module's outputs; in float64, a dtype that its code names is read as float64 too."""
    torch = need("torch")

    device = next(module.parameters()).device
    tensors = [torch.from_numpy(a).to(device) for a in x]
    tensors = [t.to(getattr(torch, dtype)) if t.is_floating_point() else t for t in tensors]
    with _widen(own) if dtype == "float64" else contextlib.nullcontext():
        return module(*tensors)


@contextlib.contextmanager
def _widen(own: str) -> Generator[None]:
    """PyTorch with float64 in the place of every floating dtype as wide as the module's own, as
    the program has it.
    """
    torch = need("torch")

    narrow = getattr(torch, own)
    wide = {
        t
        for t in (torch.bfloat16, torch.float16, torch.float32)
        if t.itemsize >= min(narrow.itemsize, 4)
    }
    norms = (torch.rms_norm, torch.nn.functional.rms_norm)

    class Widened(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            args = [torch.float64 if isinstance(a, torch.dtype) and a in wide else a for a in args]
            kwargs = {
                k: torch.float64 if isinstance(v, torch.dtype) and v in wide else v
                for k, v in (kwargs or {}).items()
            }
            if func in norms and len(args) < 4 and kwargs.get("eps") is None:
                kwargs["eps"] = torch.finfo(narrow).eps
            return (torch.Tensor.double if func is torch.Tensor.float else func)(*args, **kwargs)

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Widened():
            yield
    finally:
        torch.set_default_dtype(default)


def _backwards(
    module: Any, dtype: str, own: str, x: Arrays, weights: list[Any], tied: Mapping[str, str]
) -> tuple[Arrays, dict[str, np.ndarray]]:
    """(outputs, vᵀJ) by PyTorch's reverse mode; what does not depend on the parameters has none."""
    torch = need("torch")

    parameters = {name.removeprefix("module."): p for name, p in module.named_parameters()}
    with torch.enable_grad():
        outputs = _call(module, dtype, own, x)
        loss = [
            (y * torch.from_numpy(v).to(y)).sum()
            for y, v in zip(outputs, weights, strict=True)
            if v is not None
        ]
        loss = [term for term in loss if term.requires_grad]
        found = (
            torch.autograd.grad(loss, list(parameters.values()), allow_unused=True) if loss else ()
        )
    gradient: dict[str, Any] = {}
    for name, g in zip(parameters, found, strict=bool(found)):
        if g is not None:
            gradient[tied[name]] = gradient.get(tied[name], 0.0) + to_numpy(g)
    return [to_numpy(y) for y in outputs], gradient


def _forwards(
    runner: ProgramModel, params: Any, constants: Any, x: Arrays, direction: Any, dtype: str
) -> tuple[Arrays, Arrays, Arrays]:
    """(f at all samples, f at all but one, J u at these) by JAX's forward mode, quickly compiled,
    since it is run once.
    """

    @(jax.jit if _is_depthwise(runner.program) else run_once)
    def evaluate(theta: Any, u: Any, constants: Any, x: list[Any]) -> tuple[Any, Any, Any]:
        small, tangents = jax.jvp(
            lambda theta: runner.outputs(theta, constants, [a[1:] for a in x]), (theta,), (u,)
        )
        return runner.outputs(theta, constants, x), small, tangents

    with arithmetic():
        arguments = promote((dict(params), direction), dtype)
        found = evaluate(*arguments, dict(constants), promote(list(x), dtype))
        return jax.tree.map(np.asarray, found)


def _is_depthwise(program: TorchProgram) -> bool:
    """Whether convolutions have groups: XLA's on a CPU are so slow that compiling them well is
    quicker than running them once.
    """
    return any(
        node.target in ("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
        and len(node.args) > 6
        and node.args[6] != 1
        for node in program.nodes
    )


def _check_rows(large: Arrays, small: Arrays, rtol: float) -> None:
    for index, (a, b) in enumerate(zip(large, small, strict=True)):
        if a[1:].shape != b.shape or not _deviation(a[1:], b) <= rtol:
            raise ValueError(
                f"`module` mixes samples: rows of its output (number {index + 1}, shape {a.shape} "
                f"for {len(a)} samples) change with the "
                "other rows; the first axis must count the samples (build recurrent and attention "
                "layers with batch_first=True), or pass `whole=True`, where x is one input as a "
                "whole."
            )


def _deviation(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, over the largest entry; infinite where shapes or undefined entries
    differ.
    """
    if a.shape != b.shape:
        return np.inf
    a, b = (np.asarray(c, np.float64) for c in (a, b))
    defined = np.isfinite(a)
    if not np.array_equal(defined, np.isfinite(b)) or not a.size:
        return 0.0 if not a.size else np.inf
    largest = np.abs(a[defined]).max(initial=0.0)
    return float(np.abs(a[defined] - b[defined]).max(initial=0.0) / (largest or 1.0))


def _pair(gradient: Mapping[str, Any], direction: Mapping[str, Any]) -> tuple[float, float]:
    """⟨vᵀJ, u⟩, and the norm of its terms, which is the size that the sum has for random signs u."""
    total = square = 0.0
    for name, slope in gradient.items():
        total += float(np.vdot(slope, direction[name]))
        square += float(np.vdot(slope, slope))
    return total, square**0.5


STATISTICS = ("running_mean", "running_var")


def statistics_of(module: Any, torch: Any) -> tuple[str, ...]:
    """The names of the running statistics of batch normalisations."""
    norms = [(path, layer) for path, layer in module.named_modules() if _is_norm(layer, torch)]
    return tuple(
        f"{path}.{leaf}".removeprefix(".")
        for path, layer in norms
        for leaf in STATISTICS
        if getattr(layer, leaf) is not None
    )


def _is_norm(layer: Any, torch: Any) -> bool:
    return isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.BatchNorm3d)


def resize_layers(
    module: Any, shapes: Mapping[str, tuple[int, ...]], tied: Mapping[str, str], torch: Any
) -> None:
    """Give the parameters of linear layers, convolutions and batch normalisations (with their
    statistics) these shapes, in place.

    The values are left to the caller.
    """
    for name, shape in shapes.items():
        path, _, leaf = name.rpartition(".")
        layer = module.get_submodule(path)
        old = getattr(layer, leaf)
        if tuple(old.shape) == tuple(shape):
            continue
        if 0 in shape:
            raise ValueError(
                f"`params[{name!r}]` has shape {shape}: the network is constant behind it, and "
                "PyTorch has no layers without "
                "channels; there is nothing to resize, take the constant."
            )
        if any(name in pair and pair[0] != pair[1] for pair in tied.items()):
            raise ValueError(
                f"`params[{name!r}]` has shape {shape}, but its weight is shared; such weights "
                "keep their shape."
            )
        new = old.detach().new_zeros(shape)
        is_parameter = isinstance(old, torch.nn.Parameter)
        setattr(
            layer,
            leaf,
            torch.nn.Parameter(new, requires_grad=old.requires_grad) if is_parameter else new,
        )
        if leaf == "weight" or _is_norm(layer, torch):
            _rename_widths(layer, name, shape, torch)
    _check_norms(module, torch)


def _check_norms(module: Any, torch: Any) -> None:
    """Refuse statistics of channels that went."""
    for name in statistics_of(module, torch):
        path, _, leaf = name.rpartition(".")
        layer = module.get_submodule(path)
        if len(getattr(layer, leaf)) != layer.num_features:
            raise ValueError(
                f"`params` has {layer.num_features} channels for {path!r} and does not say which "
                "of its running statistics stay; "
                "reduce what `from_torch(module, example=…, statistics=True)` gives."
            )


def _rename_widths(layer: Any, name: str, shape: tuple[int, ...], torch: Any) -> None:
    """What a layer says of its own widths."""
    nn = torch.nn
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = shape
    elif isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) and layer.groups == 1:
        layer.out_channels, layer.in_channels = shape[:2]
    elif _is_norm(layer, torch):
        layer.num_features = shape[0]
    else:
        raise ValueError(
            f"`params[{name!r}]` has shape {shape}, but {indefinite(layer)} cannot be resized; "
            "linear layers, convolutions without groups and batch normalisations can."
        )
