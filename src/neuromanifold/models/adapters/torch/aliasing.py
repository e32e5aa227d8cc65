"""Operations that write in place, made functional where nothing else sees the write and refused
where something does.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from neuromanifold.models.adapters.torch.program import Ref, TorchNode, Untranslatable

# Operations whose result may share memory with their first argument.
VIEWS = frozenset(
    f"aten.{name}"
    for name in [
        "view.default",
        "_unsafe_view.default",
        "reshape.default",
        "view_as.default",
        "reshape_as.default",
        "flatten.using_ints",
        "unflatten.int",
        "permute.default",
        "transpose.int",
        "swapaxes.default",
        "swapdims.default",
        "t.default",
        "numpy_T.default",
        "mT.default",
        "adjoint.default",
        "movedim.int",
        "movedim.intlist",
        "unsqueeze.default",
        "squeeze.default",
        "squeeze.dim",
        "squeeze.dims",
        "expand.default",
        "expand_as.default",
        "broadcast_to.default",
        "broadcast_tensors.default",
        "split.Tensor",
        "split.sizes",
        "split_with_sizes.default",
        "chunk.default",
        "unbind.int",
        "select.int",
        "slice.Tensor",
        "narrow.default",
        "diagonal.default",
        "unfold.default",
        "unsafe_split.Tensor",
        "view_as_complex.default",
        "view_as_real.default",
        "real.default",
        "imag.default",
        "contiguous.default",
        "alias.default",
        "detach.default",
        "lift_fresh.default",
        "to.dtype",
        "to.device",
        "to.dtype_layout",
        "to.other",
        "type_as.default",
        "dropout.default",
        "alpha_dropout.default",
        "feature_dropout.default",
        "relu6.default",
        "pad.default",
        "constant_pad_nd.default",
    ]
) | {"_operator.getitem"}


def functional(
    nodes: tuple[TorchNode, ...], outputs: tuple[Any, ...], fixed: Mapping[str, str]
) -> tuple[Any, Any]:
    """(nodes, outputs) without writes: after `y = op_(x)`, whoever reads x reads y.

    That is what the program does as long as no other view of x's memory is read later; then it is
    refused. `fixed` names the parameters and buffers, which must not be written at all.
    """
    last = _last_uses(nodes, outputs)
    renamed: dict[str, str] = {}
    memory: dict[str, str] = {}
    done = []
    for position, node in enumerate(nodes):
        current = _with_names(node, renamed)
        first = next((ref.name for ref in _references(current.args)), None)
        if in_place(node.target) and first is not None:
            read_later = {
                _current(name, renamed): name for name, use in last.items() if use > position
            }
            _check_write(current, first, memory, read_later, fixed)
            renamed[first] = node.outputs[0]
            current = dataclasses.replace(current, target=_functional_name(node.target))
        elif node.target in VIEWS and first is not None:
            memory.update(dict.fromkeys(node.outputs, memory.get(first, first)))
        done.append(current)
    return tuple(done), _replace(outputs, renamed)


def in_place(target: str) -> bool:
    """Whether ATen's name says that the first argument is written: `aten.relu_.default`."""
    name = target.split(".")[1]
    return target.startswith("aten.") and name.endswith("_") and not name.endswith("__")


def _functional_name(target: str) -> str:
    library, name, overload = target.split(".")
    return f"{library}.{name.removesuffix('_')}.{overload}"


def _check_write(
    node: TorchNode,
    written: str,
    memory: Mapping[str, str],
    read_later: Mapping[str, str],
    fixed: Mapping[str, str],
) -> None:
    owner = memory.get(written, written)
    if owner in fixed:
        raise Untranslatable(
            f"`module` writes into {fixed[owner]!r} by {node.target} at {node.where}; a model "
            "does not change its state: "
            "call `module.eval()` first, or remove that update."
        )
    for name, shown in read_later.items():
        if name != written and memory.get(name, name) == owner:
            raise Untranslatable(
                f"`module` writes in place by {node.target} at {node.where} into memory that is "
                "read later under another name "
                f"({shown}); write that step without the underscore, or export with "
                f"`.run_decompositions({{}})`."
            )


def _last_uses(nodes: tuple[TorchNode, ...], outputs: tuple[Any, ...]) -> dict[str, int]:
    last = {
        ref.name: i for i, node in enumerate(nodes) for ref in _references((node.args, node.kwargs))
    }
    return last | {ref.name: len(nodes) for ref in _references(outputs)}


def _references(argument: Any) -> Iterator[Ref]:
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for part in argument:
            yield from _references(part)
    elif isinstance(argument, Mapping):
        yield from _references(list(argument.values()))


def _with_names(node: TorchNode, names: Mapping[str, str]) -> TorchNode:
    return dataclasses.replace(
        node, args=_replace(node.args, names), kwargs=_replace(node.kwargs, names)
    )


def _replace(argument: Any, names: Mapping[str, str]) -> Any:
    if isinstance(argument, Ref):
        return Ref(_current(argument.name, names))
    if isinstance(argument, (list, tuple)):
        return type(argument)(_replace(part, names) for part in argument)
    if isinstance(argument, Mapping):
        return {key: _replace(part, names) for key, part in argument.items()}
    return argument


def _current(name: str, names: Mapping[str, str]) -> str:
    while name in names:
        name = names[name]
    return name
