"""A PyTorch module as a program: export, and the exported graph read node by node."""

import contextlib
import copy
import io
import logging
import traceback
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.models.adapters.torch.aliasing import functional
from neuromanifold.models.adapters.torch.operations import OPERATIONS
from neuromanifold.models.adapters.torch.program import (
    Dtype,
    Input,
    Ref,
    Shape,
    TorchNode,
    TorchProgram,
    Untranslatable,
)
from neuromanifold.models.adapters.torch.rewriting import keep_needed, settle
from neuromanifold.models.adapters.torch.substitutes import keep_sequences_padded
from neuromanifold.runtime.files import from_memory, write_atomically
from neuromanifold.runtime.packages import need

_CUDA_BATCH = 65_535
_VIOLATED = "Constraints violated"
IGNORED = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"}
)
_DEVICES = ("cpu", "cuda", "mps", "xpu")


def export(flat: Any, leaves: list[Any]) -> Any:
    """`torch.export` of a module that takes tensors and gives a tuple of tensors, the first axis of
    each of any length (of leaves with one sample, of that length).

    A module on an accelerator is exported from a copy on the host: there its graph does not depend
    on how kernels divide a batch (PyTorch's batch normalisation takes another one on a GPU beyond
    65,535 samples).
    """
    torch, many = need("torch"), len(leaves[0]) > 1

    def attempt(module: Any, given: list[Any]) -> Any:
        free = (tuple({0: torch.export.Dim("samples")} for _ in given),) if many else None
        exported = torch.export.export(module, tuple(given), dynamic_shapes=free, strict=False)
        return exported if _readable(exported) else exported.run_decompositions(_parts(torch))

    with quiet(), contextlib.nullcontext() if many else keep_sequences_padded():
        if any(tensor.device.type != "cpu" for tensor in (*flat.parameters(), *flat.buffers())):
            with contextlib.suppress(
                Exception
            ):  # code that names a device of its own is exported where it is
                return attempt(copy.deepcopy(flat).cpu(), [leaf.cpu() for leaf in leaves])
        exported = refusal = None
        try:
            exported = attempt(flat, leaves)
        except Exception as error:
            refusal = _refusal(error, torch)
        if refusal or (not many and _counting(exported)):
            # One that differentiates itself, or makes shapes of its constants, is recorded.
            with contextlib.suppress(Exception):
                return record_operations(flat, leaves)
        if exported is None:
            raise ValueError(refusal)
        return exported


def _readable(exported: Any) -> bool:
    """Whether the table has all operations as they are recorded: taking the graph apart, which
    takes longer than recording it, is not needed then.
    """
    signature = exported.graph_signature
    fixed = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    outputs = tuple(Ref(name) for name in signature.user_outputs)
    calls = [node for node in exported.graph.nodes if node.op == "call_function"]
    try:
        nodes, _ = functional(tuple(_node(node, "") for node in calls), outputs, fixed)
    except Untranslatable:
        return False
    return all(node.target in OPERATIONS for node in nodes)


def record_operations(flat: Any, leaves: list[Any]) -> Any:
    """The operations of a module below autograd, its own derivatives (`torch.func.jacrev`,
    `torch.autograd.grad`) among them, in the form of an exported program.

    Autograd detaches what it keeps for its backward pass; here that is passed on, since the whole
    program is differentiated again. Several samples stand for any number; one keeps its shapes,
    and what depends on constants alone (which edges of a graph are loops) is computed here.
    """
    torch, many = need("torch"), len(leaves[0]) > 1
    tracing = need("torch.fx.experimental.proxy_tensor")
    own = {} if many else dict(flat.named_parameters())
    guards, imitated = _any_length() if many else ([], lambda tensor, axes: tensor)
    given = [imitated(leaf, [0]) for leaf in leaves]

    def run(*arguments: Any) -> Any:
        weights = dict(zip(own, arguments[len(given) :], strict=True))
        return torch.func.functional_call(flat, weights, arguments[: len(given)])

    def record(function: Any, arguments: list[Any], table: Mapping[Any, Any]) -> Any:
        return tracing.make_fx(
            function,
            dict(table),
            tracing_mode="symbolic" if many else "real",
            _allow_non_fake_inputs=many,
        )(*arguments)

    found, held = _lift_tensors(record(run if own else flat, [*given, *own.values()], {}))
    tensors = [*own.values(), *held]
    arguments = [*given, *(imitated(tensor.detach(), []) for tensor in tensors)]
    plain = torch.func.functionalize(found, remove="mutations")
    found = record(plain, arguments, _parts(torch))
    for guard in guards:
        for n in (2, 3, 5, 64, 1009):
            if not bool(guard.expr.subs(dict.fromkeys(guard.expr.free_symbols, n))):
                raise ValueError(_VIOLATED)
    if not many:
        tensors += _fold_constants(found.graph, held)
    return _as_exported(found.graph, tensors, flat)


def _any_length() -> tuple[Any, Any]:
    """The guards that will be collected, and a function that gives a tensor's imitation without
    values, these axes of it of any length.
    """
    shapes = need("torch.fx.experimental.symbolic_shapes")
    environment = shapes.ShapeEnv(duck_shape=False)
    mode = need("torch._subclasses").FakeTensorMode(
        shape_env=environment, allow_non_fake_inputs=True, allow_fallback_kernels=False
    )
    free, fixed = shapes.DimDynamic.DYNAMIC, shapes.DimDynamic.STATIC

    def imitated(tensor: Any, axes: list[int]) -> Any:
        kinds = [free if axis in axes else fixed for axis in range(tensor.ndim)]
        context = shapes.StatelessSymbolicContext(dynamic_sizes=kinds)
        return mode.from_tensor(tensor, symbolic_context=context)

    return environment.guards, imitated


def _fold_constants(graph: Any, held: list[Any]) -> list[Any]:
    """Computes what depends on the last inputs alone, whose values are `held`; gives the results,
    which become further inputs. Numbers with rounding stay in the program where their shape allows.
    """
    torch, found = need("torch"), []
    places = [node for node in graph.nodes if node.op == "placeholder"]
    values = dict(zip(places[len(places) - len(held) :], held, strict=True))
    for node in graph.nodes:
        known = node.op == "call_function" and all(i in values for i in node.all_input_nodes)
        if known and torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
            args, kwargs = (
                torch.fx.node.map_arg(part, values.__getitem__) for part in (node.args, node.kwargs)
            )
            values[node] = node.target(*args, **kwargs)

    def given(value: Any) -> Any:
        with graph.inserting_after(places[-1]):
            places.append(graph.placeholder(f"folded_{len(found)}"))
        places[-1].meta["val"] = value
        found.append(value)
        return places[-1]

    for node in list(graph.nodes):
        if target_name(node.target) in ("aten.index.Tensor", "aten.index_put.default"):
            node.args = (node.args[0], _without_masks(node.args[1], values, given), *node.args[2:])
    for node, value in values.items():
        if node not in places and torch.is_tensor(value) and not value.is_floating_point():
            node.replace_all_uses_with(given(value))
    graph.eliminate_dead_code()
    if read := next(filter(_by_values, graph.nodes), None):
        raise ValueError(f"{read} has a shape that depends on the values of inputs")
    return found


def _without_masks(indices: Any, values: Mapping[Any, Any], given: Any) -> list[Any]:
    """Indices with the places that known masks pick in the place of these."""
    found: list[Any] = []
    for index in indices:
        value = values.get(index)
        if value is not None and value.dtype == need("torch").bool:
            found += map(given, value.nonzero(as_tuple=True))
        else:
            found.append(index)
    return found


_READS = ("nonzero", "masked_select", "_local_scalar_dense", "unique", "_unique2", "bincount")


def _by_values(node: Any) -> bool:
    """Whether an operation of a recorded graph has a result whose shape depends on values."""
    name = _name_operation(node) if node.op == "call_function" else ""
    return name.startswith("masked.") or name.split(".")[1:2] in [[read] for read in _READS]


def _lift_tensors(found: Any) -> tuple[Any, list[Any]]:
    """A recorded graph with the tensors that it holds as further inputs, and these; nothing is
    detached.
    """
    graph, tensors = found.graph, []
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for node in list(graph.nodes):
        if node.op == "call_function" and target_name(node.target) == "aten.detach.default":
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.op == "get_attr":
            tensors.append(getattr(found, node.target))
            with graph.inserting_after(last):
                last = graph.placeholder(f"given_{len(tensors)}")
            node.replace_all_uses_with(last)
            graph.erase_node(node)
    found.recompile()
    return found, tensors


def _as_exported(graph: Any, tensors: list[Any], flat: Any) -> Any:
    """A recorded graph in the form of an exported program: its last inputs are `tensors`, named
    as the module names them.
    """
    named = {id(t): name for name, t in flat.named_parameters(remove_duplicate=False)}
    buffers = {id(t): name for name, t in flat.named_buffers(remove_duplicate=False)}
    inputs = [node.name for node in graph.nodes if node.op == "placeholder"]
    places = dict(zip(inputs[len(inputs) - len(tensors) :], tensors, strict=True))
    constants = {
        place: place for place, t in places.items() if id(t) not in named and id(t) not in buffers
    }
    output = next(node for node in graph.nodes if node.op == "output")
    signature = SimpleNamespace(
        inputs_to_parameters={p: named[id(t)] for p, t in places.items() if id(t) in named},
        inputs_to_buffers={p: buffers[id(t)] for p, t in places.items() if id(t) in buffers},
        inputs_to_lifted_tensor_constants=constants,
        buffers_to_mutate={},
        user_inputs=[name for name in inputs if name not in places],
        user_outputs=[node.name for node in output.args[0]],
    )
    return SimpleNamespace(
        graph=graph,
        graph_signature=signature,
        constants={place: places[place] for place in constants},
        named_parameters=flat.named_parameters,
        named_buffers=flat.named_buffers,
    )


class Given(NamedTuple):
    """What a module is called with, and which axes of which of these tensors may have any
    length: None counts the samples.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    free: Sequence[tuple[Any, Mapping[int, Any]]]


def export_whole(module: Any, given: Given) -> Any:
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
    exported = export_whole(module, given)
    with quiet():
        write = from_memory(lambda archive: need("torch").export.save(exported, archive))
        return write_atomically(path, write)


def _parts(torch: Any) -> dict[Any, Any]:
    """How PyTorch takes apart the operations that the table lacks."""
    known = torch.export.default_decompositions()
    return {target: known[target] for target in known if target_name(target) not in OPERATIONS}


@contextlib.contextmanager
def as_written() -> Generator[None]:
    """The module in its own dtypes and with gradients, whatever surrounds the call (`autocast`,
    `inference_mode`), and attention by the
    steps its module describes, not by the fused one that PyTorch takes where no gradient is
    asked for."""
    torch = need("torch")
    switch, layers = torch.backends.mha, torch.nn.modules.transformer
    before, detects = switch.get_fastpath_enabled(), layers._detect_is_causal_mask
    switch.set_fastpath_enabled(False)
    # A mask that is given is used; whether it is a causal one is a hint, read off its values.
    layers._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    # Distributions compute the same without a check of their values.
    distribution = torch.distributions.Distribution
    validates = distribution._validate_args
    distribution.set_default_validate_args(False)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for kind in filter(torch.is_autocast_enabled, _DEVICES):
                stack.enter_context(torch.autocast(kind, enabled=False))
            yield
    finally:
        switch.set_fastpath_enabled(before)
        layers._detect_is_causal_mask = detects
        distribution.set_default_validate_args(validates)


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
    if any("eager_transforms" in f.filename for f in traceback.extract_tb(error.__traceback__)):
        return (
            f"`module` differentiates itself at {place} in a way that PyTorch cannot record; use "
            "torch.func.jacrev or torch.autograd.grad, once or twice."
        )
    if _holds(error, torch.nn.utils.rnn.PackedSequence):
        return (
            f"`module` packs sequences ({place}), whose lengths are data; pass "
            "`total_length=x.shape[1]` to `pad_packed_sequence`, or run the recurrent layer on the "
            "padded batch and pick the last states by `torch.gather`."
        )
    if _VIOLATED in first:
        return (
            "`module` computes something else for other numbers of samples than that of "
            f"`example` ({place}); "
            "write it so that the first axis may have any length (x.shape[0], not len(x))."
        )
    return (
        f"`module` cannot be exported ({kind} at {place}: {first}); see that `module(example)` "
        "runs and mend that line."
    )


def _holds(error: Exception, kind: type) -> bool:
    """Whether code on the way to an error had a variable of this kind."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(isinstance(value, kind) for f, _ in frames for value in f.f_locals.values())


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


def program_of(exported: Any, tied: Mapping[str, str], prefix: str) -> TorchProgram:
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
    _refuse_counted(exported, prefix)
    given = {node.name: node for node in exported.graph.nodes}
    inputs = tuple(_input(given[name]) for name in signature.user_inputs)
    nodes = tuple(_node(node, prefix) for node in given.values() if node.op == "call_function")
    shapes = {name: _shape(node.meta.get("val")) for name, node in given.items()}
    nodes, outputs = functional(
        nodes, tuple(Ref(name) for name in signature.user_outputs), {**named, **fixed}
    )
    return TorchProgram(
        nodes=settle(keep_needed(nodes, outputs), shapes),
        parameters={place: tied[name] for place, name in named.items()},
        constants=fixed,
        inputs=inputs,
        outputs=outputs,
        dtype=_widest(exported),
    )


_WRITES = frozenset(f"aten.{name}.default" for name in ("index_put", "index_add", "index_copy"))


def _refuse_counted(exported: Any, prefix: str) -> None:
    """Refuse what depends on how many entries a mask picks: they may only be written back."""
    if node := _counting(exported):
        place = "its output" if node.op == "output" else _where(node, prefix)
        raise Untranslatable(
            f"`module` computes with the entries that a mask picks at {place}, another number "
            "of them for other values; write them back by the mask, or use torch.where (edges of "
            "a fixed graph go into `kwargs`, with `whole=True`)."
        )


def _counting(exported: Any) -> Any:
    """The first operation that depends on how many entries a mask picks, if any."""
    counts = need("torch.fx.experimental.symbolic_shapes").free_unbacked_symbols
    tensors = need("torch").Tensor

    def is_open(node: Any) -> bool:
        value = node.meta.get("val")
        parts = value if isinstance(value, (list, tuple)) else [value]
        return any(isinstance(part, tensors) and counts(part) for part in parts)

    for node in exported.graph.nodes:
        if not any(map(is_open, node.all_input_nodes)) or is_open(node):
            continue
        made = isinstance(node.meta.get("val"), tensors)
        if node.op == "output" or (made and target_name(node.target) not in _WRITES):
            return node
    return None


def _name_operation(node: Any) -> str:
    """The name of an operation; of one that picks entries by a mask, our own."""
    name, bool_ = target_name(node.target), need("torch").bool
    if name in ("aten.nonzero.default", "aten.nonzero_numpy.default"):
        return f"masked.{name.split('.')[1]}"
    if name not in ("aten.index.Tensor", "aten.index_put.default"):
        return name
    masks = any(i is not None and i.meta["val"].dtype == bool_ for i in node.args[1])
    one = name == "aten.index_put.default" and node.args[2].meta["val"].numel() == 1
    return f"masked.{name.split('.')[1]}" if masks and not one else name


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


def _node(node: Any, prefix: str) -> TorchNode:
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return TorchNode(
        target=_name_operation(node),
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
