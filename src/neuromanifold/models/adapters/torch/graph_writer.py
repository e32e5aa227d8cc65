"""A PyTorch network at fewer parameters, as an `fx.GraphModule`: its exported graph, rewritten."""

import copy
import math
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from neuromanifold.models.adapters.torch.export import Given, export_whole, quiet
from neuromanifold.models.adapters.torch.tensors import (
    frozen_parameters,
    own_parameters,
    tensors_in,
)
from neuromanifold.runtime.packages import need

_GUARDS = "_guards_fn"
_CONVOLUTIONS = tuple(f"aten.conv{d}d.default" for d in (1, 2, 3))
_SPLIT = "aten.split.Tensor"
_RESHAPES = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")


class Smaller(NamedTuple):
    """A parameter with fewer entries: its values, their places along each axis of the whole one,
    and whether it is a constant now.
    """

    values: np.ndarray
    places: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    fixed: bool


def graph_module(module: Any, smaller: Mapping[str, Smaller], given: Given) -> Any:
    """The graph of the module at these parameters, for any number of samples.

    Where the graph takes them as they are, or with other lengths in its reshapes and splits, it
    computes less; else each is put at its places among zeros, first thing.
    """
    torch = need("torch")
    own, tied = own_parameters(module)
    frozen = frozen_parameters(module)
    statistics = [name for name, _ in module.named_buffers() if name in smaller]
    if set(smaller) | {*frozen} != {*own, *statistics}:
        raise ValueError(
            f"`module` has the parameters {', '.join(own)}; the reduced network "
            f"{', '.join(smaller)}."
        )
    exported, tied = (
        export_whole(module, given),
        {**tied, **dict(zip(statistics, statistics, strict=True))},
    )
    smaller = {
        name: it._replace(fixed=it.fixed or name in statistics) for name, it in smaller.items()
    }
    with quiet():
        whole = exported.module()
        padded = _rewritten(whole, smaller, tied, padded=True, torch=torch)
        for choice in (None, -1, 0, 1):
            direct = _rewritten(whole, smaller, tied, torch=torch)
            if choice is not None:
                _fit(direct, given, torch, choice)
            if _same(direct, padded, given, torch):
                return direct
        return padded


def _rewritten(
    whole: Any,
    smaller: Mapping[str, Smaller],
    tied: Mapping[str, str],
    *,
    torch: Any,
    padded: bool = False,
) -> Any:
    found = torch.fx.GraphModule(whole, copy.deepcopy(whole.graph))
    made: dict[str, Any] = {}
    for node in list(found.graph.nodes):
        if node.op == "call_module" and node.target == _GUARDS:
            found.graph.erase_node(node)
        elif node.op == "get_attr" and tied.get(node.target) in smaller:
            name = tied[node.target]
            it = smaller[name]
            if name not in made:
                made[name] = _tensor(it, operator.attrgetter(node.target)(found), torch)
            _replace(found, node.target, made[name], fixed=it.fixed)
            if padded and it.values.shape != it.shape:
                _pad(found, node, it, torch)
            elif it.values.shape != it.shape:
                _regroup(node, it)
    found.delete_all_unused_submodules()
    for name in {name for name, _ in whole.named_buffers()} & set(
        dict(found.named_buffers())
    ) - set(whole.state_dict()):
        _replace(found, name, operator.attrgetter(name)(found), fixed=True, persistent=False)
    found.graph.lint()
    found.recompile()
    return found


def _regroup(node: Any, it: Smaller) -> None:
    """A depthwise convolution has as many groups as channels."""
    for reader in list(node.users):
        depthwise = str(reader.target) in _CONVOLUTIONS and reader.args[1] is node
        if depthwise and reader.args[6:7] == (it.shape[0],):
            reader.update_arg(6, len(it.values))


def _fit(found: Any, given: Given, torch: Any, choice: int) -> None:
    """Make reshapes and splits take what comes in: of a reshape one of the lengths that may shrink
    is left open (`choice`: the last, the first, the second), a split into equal parts has as many.
    """

    class Fitting(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            args: Any = self.fetch_args_kwargs_from_env(n)[0]
            if str(n.target) in _RESHAPES:
                _fit_reshape(n, args[0], args[1], choice)
            elif str(n.target) == _SPLIT:
                _fit_split(n, *args)
            return super().run_node(n)

    leaves = jax.tree.leaves((*given.args, *given.kwargs.values()))
    try:
        with torch.no_grad():
            Fitting(found).run(*leaves, enable_io_processing=False)
    except (RuntimeError, IndexError):  # it does not fit; what was tried is compared anyway
        pass
    found.recompile()


def _fit_reshape(node: Any, x: Any, sizes: Any, choice: int) -> None:
    whole = math.prod(sizes)
    if -1 in sizes or whole == x.numel():
        return
    which = [
        k
        for k, size in enumerate(node.args[1])
        if type(size) is int and size > 1 and (x.numel() * size) % whole == 0
    ]
    if which:
        at = which[min(choice, len(which) - 1)]
        node.update_arg(1, [-1 if k == at else size for k, size in enumerate(node.args[1])])


def _fit_split(node: Any, x: Any, size: int, axis: int = 0) -> None:
    length, parts = x.shape[axis], len(node.meta["val"])
    if -(-length // size) != parts and length % parts == 0:
        node.update_arg(1, length // parts)


def _tensor(it: Smaller, old: Any, torch: Any) -> Any:
    """The new values where and as the old ones are: still a parameter, unless it is fixed."""
    new = torch.from_numpy(np.array(it.values, np.float64)).to(old)
    return (
        new.detach()
        if it.fixed
        else torch.nn.Parameter(new.detach(), requires_grad=old.requires_grad)
    )


def _replace(found: Any, name: str, new: Any, *, fixed: bool, persistent: bool = True) -> None:
    path, _, leaf = name.rpartition(".")
    layer = found.get_submodule(path)
    delattr(layer, leaf)
    if fixed:
        layer.register_buffer(leaf, new, persistent=persistent)
    else:
        layer.register_parameter(leaf, new)


def _pad(found: Any, node: Any, it: Smaller, torch: Any) -> None:
    """Axis by axis: zeros of the whole length, with the parameter copied to its places."""
    graph, aten, shape = found.graph, torch.ops.aten, list(it.values.shape)
    path, _, leaf = node.target.rpartition(".")
    readers, last, device = list(node.users), node, operator.attrgetter(node.target)(found).device
    for axis, places in enumerate(it.places):
        if len(places) == it.shape[axis]:
            continue
        shape[axis], name = it.shape[axis], f"{leaf}_places_{axis}"
        found.get_submodule(path).register_buffer(
            name, torch.tensor(places, dtype=torch.int64, device=device)
        )
        with graph.inserting_after(last):
            index = graph.get_attr(f"{path}.{name}".lstrip("."))
        with graph.inserting_after(index):
            zeros = graph.call_function(aten.new_zeros.default, (last, list(shape)))
        with graph.inserting_after(zeros):
            last = graph.call_function(aten.index_copy.default, (zeros, axis, index, last))
    for reader in readers:
        reader.replace_input_with(node, last)


def _same(direct: Any, padded: Any, given: Given, torch: Any) -> bool:
    """Whether the graph runs at the smaller parameters with the same outputs: in float64, where
    it computes in one precision.
    """
    try:
        expected, found = (_wide_outputs(each, given, torch) for each in (padded, direct))
        rtol, atol = 1e-9, 1e-12
    except (RuntimeError, IndexError):  # shapes that do not fit, fewer parts of them, or dtypes
        try:
            expected, found = (
                _outputs(each, given.args, given.kwargs, torch) for each in (padded, direct)
            )
        except (RuntimeError, IndexError):
            return False
        rtol, atol = 1e-3, 1e-5
    return all(
        a.shape == b.shape and torch.allclose(a, b, rtol=rtol, atol=atol)
        for a, b in zip(found, expected, strict=True)
    )


def _wide_outputs(module: Any, given: Given, torch: Any) -> list[Any]:
    args, kwargs = jax.tree.map(_double, (given.args, dict(given.kwargs)))
    return _outputs(copy.deepcopy(module).double(), args, kwargs, torch)


def _double(leaf: Any) -> Any:
    return (
        leaf.double() if hasattr(leaf, "is_floating_point") and leaf.is_floating_point() else leaf
    )


def _outputs(module: Any, args: Any, kwargs: Any, torch: Any) -> list[Any]:
    with torch.no_grad():
        return [y for y in tensors_in(module(*args, **kwargs)) if torch.is_tensor(y)]
