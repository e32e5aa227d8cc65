"""Tensors and arrays: one into the other, and which parameters share memory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from neuromanifold.models.adapters.torch.program import TorchProgram
from neuromanifold.models.adapters.torch.ties import StoragePlace, place, ties
from neuromanifold.runtime.packages import need


def to_numpy(tensor: Any) -> np.ndarray:
    """A copy of the tensor's values, bit by bit; bfloat16 included."""
    torch = need("torch")

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()
    return tensor.numpy(force=True).copy()


def from_array(array: np.ndarray) -> Any:
    """A tensor with the array's values, bit by bit; bfloat16 included."""
    torch = need("torch")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def to_tensor(leaf: Any, dtype: Any, device: Any) -> Any:
    """A tensor as it is; any other array on the module's device, in its dtype where it is
    floating.
    """
    torch = need("torch")

    if torch.is_tensor(leaf):
        return leaf
    tensor = from_array(np.asarray(leaf)).to(device)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def tensors_in(given: Any) -> Iterator[Any]:
    """What a module gave, one by one: the leaves of nested dictionaries and tuples."""
    if isinstance(given, Mapping | Sequence):
        for part in given.values() if isinstance(given, Mapping) else given:
            yield from tensors_in(part)
    else:
        yield given


def own_parameters(module: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """(parameters, ties): each memory once, under its first name; and for every name the one
    that stands for it.
    """
    named = dict(module.named_parameters(remove_duplicate=False))
    if not named:
        raise ValueError(
            "`module` has no parameters; there is nothing to differentiate by: pass a module with parameters."
        )
    for name, parameter in named.items():
        if not parameter.is_floating_point():
            raise TypeError(
                f"`module` has the parameter {name!r} of dtype {parameter.dtype}; register it as "
                "a buffer."
            )
    tied = ties(_places(named), _places(dict(module.named_buffers())))
    return {name: named[name] for name in dict.fromkeys(tied.values())}, tied


def frozen_parameters(module: Any) -> dict[str, Any]:
    """The parameters that training leaves alone (`requires_grad=False`), each memory once."""
    own, tied = own_parameters(module)
    named = module.named_parameters(remove_duplicate=False)
    trained = {tied[name] for name, parameter in named if parameter.requires_grad}
    return {name: parameter for name, parameter in own.items() if name not in trained}


def _places(tensors: Mapping[str, Any]) -> dict[str, StoragePlace]:
    return {
        name: place(str(t.device), t.data_ptr(), t.element_size(), t.shape, t.stride())
        for name, t in tensors.items()
    }


def constants_of(exported: Any, program: TorchProgram) -> dict[str, np.ndarray]:
    """The values of the buffers and constants that the program reads."""
    known = {**dict(exported.named_buffers()), **exported.constants}
    return {name: to_numpy(known[name]) for name in dict.fromkeys(program.constants.values())}
