"""Where a tracker finds its network: the parameters the loop hands over, or a PyTorch module that the loop changes in place."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.adapters.packages import loaded
from neuromanifold.models.adapters.pytorch import from_torch
from neuromanifold.models.adapters.torch_tensors import own_parameters, to_numpy
from neuromanifold.models.arguments import check_model
from neuromanifold.numerics.pickling import ByName

Source = Callable[[Any], tuple[Any, Any]]


def source_of(model: Any, x: Any) -> Source:
    """A function that takes what the loop handed over and gives `(f, params)`."""
    torch = loaded("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _Module(model, x)
    check_model(model)
    return _Function(model)


def as_array(leaf: Any) -> Any:
    """A PyTorch tensor as a NumPy array; anything else as it is."""
    torch = loaded("torch")
    return to_numpy(leaf) if torch is not None and torch.is_tensor(leaf) else leaf


@dataclass(frozen=True, eq=False)
class _Function(ByName):
    """A function, whose parameters the loop hands over."""

    model: Any

    def __call__(self, params: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("`params` is missing; the model is a function, so call `tracker(step, params)`.")
        return self.model, params


class _Module:
    """A PyTorch module where it is. It is exported once, and again when its buffers (running means) have changed."""

    def __init__(self, module: Any, x: Any):
        self._module, self._x = getattr(module, "_orig_mod", module), x
        self._f, self._buffers = None, {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what was exported: it is made again from the module."""
        return {**vars(self), "_f": None}

    def __call__(self, params: Any) -> tuple[Any, dict[str, np.ndarray]]:
        if params is not None:
            raise ValueError(
                "`params` was given, but the model is a PyTorch module, which is read where it is; leave it out."
            )
        buffers = {name: to_numpy(buffer) for name, buffer in self._module.named_buffers()}
        if self._f is None or not _equal(buffers, self._buffers):
            self._f, _ = from_torch(copy.deepcopy(self._module).eval(), example=self._x)
            self._buffers = buffers
        return self._f, {name: to_numpy(leaf) for name, leaf in own_parameters(self._module)[0].items()}


def _equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
