"""A PyTorch network at fewer parameters, as an `fx.GraphModule`: its exported graph, rewritten."""

import copy
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.models.adapters.packages import need
from neuromanifold.models.adapters.torch_export import exported_whole, quiet
from neuromanifold.models.adapters.torch_resizing import statistics_of
from neuromanifold.models.adapters.torch_tensors import own_parameters, tensors_in

_GUARDS = "_guards_fn"


class Smaller(NamedTuple):
    """A parameter with fewer entries: its values, their places along each axis of the whole one, and whether it is a constant now."""

    values: np.ndarray
    places: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    fixed: bool


def graph_module(module: Any, smaller: Mapping[str, Smaller], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The graph of the module at these parameters, for any number of samples.

    Where the graph takes them as they are, it computes less; else each is put at its places among zeros, first thing.
    """
    torch = need("torch")
    own, tied = own_parameters(module)
    statistics = [name for name in statistics_of(module, torch) if name in smaller]
    if set(smaller) != {*own, *statistics}:
        raise ValueError(f"`module` has the parameters {', '.join(own)}; the reduced network {', '.join(smaller)}.")
    exported, tied = exported_whole(module, args, kwargs), {**tied, **dict(zip(statistics, statistics, strict=True))}
    smaller = {name: it._replace(fixed=it.fixed or name in statistics) for name, it in smaller.items()}
    with quiet():
        whole = exported.module()
        direct, padded = (_rewritten(whole, smaller, tied, padded=padded, torch=torch) for padded in (False, True))
        return direct if _same(direct, padded, args, kwargs, torch) else padded


def _rewritten(whole: Any, smaller: Mapping[str, Smaller], tied: Mapping[str, str], *, padded: bool, torch: Any) -> Any:
    found = torch.fx.GraphModule(whole, copy.deepcopy(whole.graph))
    made: dict[str, Any] = {}
    for node in list(found.graph.nodes):
        if node.op == "call_module" and node.target == _GUARDS:
            found.graph.erase_node(node)
        elif node.op == "get_attr" and node.target in tied:
            name = tied[node.target]
            it = smaller[name]
            if name not in made:
                made[name] = _tensor(it, operator.attrgetter(node.target)(found), torch)
            _replace(found, node.target, made[name], fixed=it.fixed)
            if padded and it.values.shape != it.shape:
                _pad(found, node, it, torch)
    found.delete_all_unused_submodules()
    found.graph.lint()
    found.recompile()
    return found


def _tensor(it: Smaller, old: Any, torch: Any) -> Any:
    """The new values where and as the old ones are: still a parameter, unless it is fixed."""
    new = torch.from_numpy(np.array(it.values, np.float64)).to(old)
    return new.detach() if it.fixed else torch.nn.Parameter(new.detach(), requires_grad=old.requires_grad)


def _replace(found: Any, name: str, new: Any, *, fixed: bool) -> None:
    path, _, leaf = name.rpartition(".")
    layer = found.get_submodule(path)
    delattr(layer, leaf)
    (layer.register_buffer if fixed else layer.register_parameter)(leaf, new)


def _pad(found: Any, node: Any, it: Smaller, torch: Any) -> None:
    """Axis by axis: zeros of the whole length, with the parameter copied to its places."""
    graph, aten, shape = found.graph, torch.ops.aten, list(it.values.shape)
    path, _, leaf = node.target.rpartition(".")
    readers, last, device = list(node.users), node, operator.attrgetter(node.target)(found).device
    for axis, places in enumerate(it.places):
        if len(places) == it.shape[axis]:
            continue
        shape[axis], name = it.shape[axis], f"{leaf}_places_{axis}"
        found.get_submodule(path).register_buffer(name, torch.tensor(places, dtype=torch.int64, device=device))
        with graph.inserting_after(last):
            index = graph.get_attr(f"{path}.{name}".lstrip("."))
        with graph.inserting_after(index):
            zeros = graph.call_function(aten.new_zeros.default, (last, list(shape)))
        with graph.inserting_after(zeros):
            last = graph.call_function(aten.index_copy.default, (zeros, axis, index, last))
    for reader in readers:
        reader.replace_input_with(node, last)


def _same(direct: Any, padded: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], torch: Any) -> bool:
    """Whether the graph runs at the smaller parameters as they are, with the same outputs in float64."""
    wide = [leaf.double() if leaf.is_floating_point() else leaf for leaf in (*args, *kwargs.values())]
    given, named = wide[: len(args)], dict(zip(kwargs, wide[len(args) :], strict=True))
    with torch.no_grad():
        expected = copy.deepcopy(padded).double()(*given, **named)
        try:
            found = copy.deepcopy(direct).double()(*given, **named)
        except RuntimeError:  # shapes that do not fit
            return False
    pairs = zip(tensors_in(found), tensors_in(expected), strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in pairs)
