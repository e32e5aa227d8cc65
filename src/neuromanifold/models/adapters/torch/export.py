"""A PyTorch module as a program: export, and the exported graph read node by node."""

import contextlib
import copy
import io
import logging
import traceback
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.models.adapters.torch.aliasing import functional
from neuromanifold.models.adapters.torch.operations import OPERATIONS
from neuromanifold.models.adapters.torch.program import Dtype, Input, Node, Program, Ref, Shape
from neuromanifold.models.adapters.torch.rewriting import settled
from neuromanifold.runtime.files import write_atomically
from neuromanifold.runtime.packages import need

_CUDA_BATCH = 65_535
_VIOLATED = "Constraints violated"
IGNORED = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"}
)
_DEVICES = ("cpu", "cuda", "mps", "xpu")


def export(flat: Any, leaves: list[Any]) -> Any:
    """`torch.export` of a module that takes tensors and gives a tuple of tensors, the first axis of
    each of any length.

    A module on an accelerator is exported from a copy on the host: there its graph does not depend
    on how kernels divide a batch (PyTorch's batch normalisation takes another one on a GPU beyond
    65,535 samples).
    """
    torch = need("torch")

    def attempt(module: Any, given: list[Any]) -> Any:
        free = (tuple({0: torch.export.Dim("samples")} for _ in given),)
        exported = torch.export.export(module, tuple(given), dynamic_shapes=free, strict=False)
        return _decomposed(exported.run_decompositions({}), torch)

    with quiet():
        if any(tensor.device.type != "cpu" for tensor in (*flat.parameters(), *flat.buffers())):
            with contextlib.suppress(
                Exception
            ):  # code that names a device of its own is exported where it is
                return attempt(copy.deepcopy(flat).cpu(), [leaf.cpu() for leaf in leaves])
        try:
            return attempt(flat, leaves)
        except Exception as error:
            raise ValueError(_refusal(error, torch)) from None


class Given(NamedTuple):
    """What a module is called with, and which axes of which of these tensors may have any
    length: None counts the samples.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    free: Sequence[tuple[Any, Mapping[int, Any]]]


def exported_whole(module: Any, given: Given) -> Any:
    """`torch.export` with the module's own arguments and its layers' operations; of up to 65,535
    samples where PyTorch takes another
    kernel beyond, as above."""
    torch = need("torch")
    args, kwargs = given.args, dict(given.kwargs)

    def attempt(**limit: int) -> Any:
        samples, shapes = torch.export.Dim("samples", **limit), torch.export.ShapesCollection()
        for tensor, axes in given.free:
            shapes[tensor] = {
                axis: samples if length is None else length for axis, length in axes.items()
            }
        free = shapes.dynamic_shapes(module, args, kwargs)
        return torch.export.export(module, args, kwargs, dynamic_shapes=free, strict=False)

    with quiet(), as_written():
        try:
            return attempt()
        except Exception as error:
            if _VIOLATED not in str(error):
                raise ValueError(_refusal(error, torch)) from None
        try:
            exported = attempt(max=_CUDA_BATCH)
        except Exception as error:
            raise ValueError(_refusal(error, torch)) from None
    warnings.warn(
        f"the graph takes up to {_CUDA_BATCH:,} samples: PyTorch computes more of them in another "
        "way.",
        stacklevel=2,
    )
    return exported


def write_graph(path: Path, module: Any, given: Given) -> Path:
    """The module as a `.pt2` file."""
    exported = exported_whole(module, given)
    with quiet():
        return write_atomically(path, lambda place: need("torch").export.save(exported, str(place)))


def _decomposed(exported: Any, torch: Any) -> Any:
    """Operations that the table lacks, taken apart where PyTorch knows how."""
    known = torch.export.default_decompositions()
    unknown = {node.target for node in exported.graph.nodes if node.op == "call_function"}
    chosen = {
        target: known[target]
        for target in unknown
        if target_name(target) not in OPERATIONS and target in known
    }
    return exported.run_decompositions(chosen) if chosen else exported


@contextlib.contextmanager
def as_written() -> Generator[None]:
    """The module in its own dtypes and with gradients, whatever surrounds the call (`autocast`,
    `inference_mode`), and attention by the
    steps its module describes, not by the fused one that PyTorch takes where no gradient is
    asked for."""
    torch = need("torch")
    switch = torch.backends.mha
    before = switch.get_fastpath_enabled()
    switch.set_fastpath_enabled(False)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for kind in filter(torch.is_autocast_enabled, _DEVICES):
                stack.enter_context(torch.autocast(kind, enabled=False))
            yield
    finally:
        switch.set_fastpath_enabled(before)


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Export talks to the screen and warns about its own code."""
    screen, before = io.StringIO(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(screen),
            contextlib.redirect_stdout(screen),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _refusal(error: Exception, torch: Any) -> str:
    """What PyTorch's exporter objects to, as one sentence with the line of the module's own
    code.
    """
    place = _place(error, Path(torch.__file__).parent)
    kind, first = (
        type(error).__name__,
        str(error).strip().splitlines()[0] if str(error).strip() else "",
    )
    if "DataDependent" in kind or "data-dependent" in str(error):
        return (
            f"`module` decides by the values of its data at {place}; use torch.where, so that one "
            "graph serves all values."
        )
    if _VIOLATED in first:
        return (
            "`module` computes something else for other numbers of samples than that of "
            f"`example` ({place}); "
            "write it so that the first axis may have any length."
        )
    return (
        f"`module` cannot be exported ({kind} at {place}: {first}); see that `module(example)` "
        "runs and mend that line."
    )


def _place(error: Exception, library: Path) -> str:
    """The last line of the traceback that lies outside PyTorch and this package."""
    here = Path(__file__).parents[3]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(root in Path(frame.filename).parents for root in (library, here))
    ]
    return (
        f"{Path(frames[-1].filename).name}:{frames[-1].lineno}, `{frames[-1].line}`"
        if frames
        else "its forward"
    )


def program_of(exported: Any, tied: Mapping[str, str], prefix: str) -> Program:
    """The exported graph as a program; `tied` maps each parameter's name to the one it shares
    its memory with.
    """
    signature = exported.graph_signature
    named = {
        place: name.removeprefix(prefix) for place, name in signature.inputs_to_parameters.items()
    }
    fixed = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    for name in signature.buffers_to_mutate.values():
        shown = name.removeprefix(prefix)
        raise ValueError(
            f"`module` updates {shown!r} when it is called (training mode); call `module.eval()` "
            "first."
        )
    given = {node.name: node for node in exported.graph.nodes}
    inputs = tuple(_input(given[name]) for name in signature.user_inputs)
    nodes = tuple(_node(node, prefix) for node in given.values() if node.op == "call_function")
    shapes = {name: _shape(node.meta.get("val")) for name, node in given.items()}
    nodes, outputs = functional(
        nodes, tuple(Ref(name) for name in signature.user_outputs), {**named, **fixed}
    )
    return Program(
        nodes=settled(nodes, shapes),
        parameters={place: tied[name] for place, name in named.items()},
        constants=fixed,
        inputs=inputs,
        outputs=outputs,
        dtype=_widest(exported),
    )


def _widest(exported: Any) -> str:
    floats = [
        str(p.dtype).removeprefix("torch.")
        for _, p in exported.named_parameters()
        if p.is_floating_point()
    ]
    return max(floats, key=lambda name: np.dtype(name).itemsize, default="float32")


def _input(node: Any) -> Input:
    value = node.meta["val"]
    return Input(node.name, _shape(value), str(value.dtype).removeprefix("torch."))


def _shape(value: Any) -> Shape:
    return tuple(n if type(n) is int else None for n in getattr(value, "shape", ()))


def _node(node: Any, prefix: str) -> Node:
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return Node(
        target=target_name(node.target),
        args=_argument(node.args),
        kwargs={
            name: _argument(value) for name, value in node.kwargs.items() if name not in IGNORED
        },
        outputs=(node.name,),
        dtypes=(None if dtype is None else str(dtype).removeprefix("torch."),),
        many=False,
        where=_where(node, prefix),
    )


def target_name(target: Any) -> str:
    """`aten.add.Tensor`, `_operator.mul`, `higher_order.cond`."""
    if isinstance(target, str):
        return target
    module = (getattr(target, "__module__", "") or "").removeprefix("torch.ops.")
    return (
        str(target)
        if module.startswith("torch._ops")
        else f"{module}.{getattr(target, '__name__', target)}"
    )


def _where(node: Any, prefix: str) -> str:
    """The path of the submodule and the line of the source."""
    stack = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(stack.values()), ("", "module"))
    inside = path.removeprefix("L['self'].").removeprefix(prefix.rstrip(".")).lstrip(".")
    name = f"{inside or 'the module itself'} ({str(kind).rsplit('.')[-1].rstrip(chr(39) + '>')})"
    return source_line(name, node.meta.get("stack_trace") or "")


def source_line(name: str, trace: str) -> str:
    """`layers.0 (Linear), net.py:12` from a stack trace as PyTorch records it: the innermost
    line outside PyTorch.
    """
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith('File "')]
    own = [
        line for line in lines if "/torch/nn/" not in line and "/neuromanifold/models/" not in line
    ]
    if not (own or lines):
        return name
    file, _, rest = (own or lines)[-1].removeprefix('File "').partition('", line ')
    return f"{name}, {Path(file).name}:{rest.partition(',')[0]}"


def _argument(argument: Any) -> Any:
    torch = need("torch")

    if isinstance(argument, torch.fx.Node):
        return (
            None if argument.op == "get_attr" else Ref(argument.name)
        )  # the graphs of a branch, which is refused
    if isinstance(argument, torch.dtype):
        return Dtype(str(argument).removeprefix("torch."))
    if isinstance(argument, (list, tuple)):
        return tuple(_argument(part) for part in argument)
    if isinstance(argument, (int, float, str, bool, type(None))):
        return argument
    return None  # devices, layouts and memory formats
