"""Where a tracker finds its network: a module that the loop changes in place, or what the loop hands over at each step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from neuromanifold.models.adapters.equinox import from_equinox
from neuromanifold.models.adapters.flax import from_flax
from neuromanifold.models.adapters.haiku import from_haiku
from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.adapters.packages import loaded
from neuromanifold.models.adapters.pytorch import evaluated, from_torch, unwrapped, with_buffers
from neuromanifold.models.adapters.torch_tensors import own_parameters, to_numpy
from neuromanifold.models.arguments import check_model
from neuromanifold.numerics.pickling import ByName
from neuromanifold.numerics.validation import indefinite

Source = Callable[[Any], tuple[Any, Any]]


def source_of(model: Any, x: Any, kwargs: Mapping[str, Any] | None = None, output: Any = None) -> Source:
    """A function that takes what the loop handed over and gives `(f, params)`."""
    torch, linen, nnx, haiku = map(loaded, ("torch", "flax.linen", "flax.nnx", "haiku"))
    if torch is not None and isinstance(model, torch.nn.Module):
        return _Module(model, x, kwargs, output)
    if nnx is not None and isinstance(model, nnx.Module):
        return _Adapted(partial(_from_nnx, model, kwargs), output)
    if linen is not None and isinstance(model, linen.Module):
        return _Adapted(partial(_from_linen, model, kwargs), output)
    if haiku is not None and isinstance(model, haiku.Transformed | haiku.TransformedWithState):
        return _Adapted(partial(_from_haiku, model, kwargs), output)
    if isinstance(model, eqx.Module) and any(map(eqx.is_inexact_array, jax.tree.leaves(model))):
        return _Adapted(partial(_from_equinox, kwargs), output)
    if kwargs is not None or output is not None:
        raise TypeError(
            "`kwargs` and `output` are for modules of PyTorch, Flax, Haiku and Equinox; "
            "fix and pick in the function: `lambda params, x: …`."
        )
    check_model(model)
    return _Function(model)


def as_arrays(tree: Any, name: str) -> Any:
    """Samples as NumPy arrays: PyTorch's tensors, and mappings that are no dictionaries, as tokenizers give them."""
    torch = loaded("torch")
    if torch is not None and torch.is_tensor(tree):
        return to_numpy(tree)
    if isinstance(tree, Mapping):
        return {key: as_arrays(part, name) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(as_arrays(part, name) for part in tree)
    if torch is not None and isinstance(tree, torch.utils.data.DataLoader | torch.utils.data.Dataset):
        raise TypeError(
            f"`{name}` is {indefinite(tree)}, and a tracker looks at the same samples each time; pass them as arrays, "
            "for example the inputs of one batch: `x, y = next(iter(loader))`."
        )
    return tree


@dataclass(frozen=True, eq=False)
class _Function(ByName):
    """A function, whose parameters the loop hands over."""

    model: Any

    def __call__(self, params: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("`params` is missing; the model is a function, so call `tracker(step, params)`.")
        return self.model, params


def _given(given: Any, what: str) -> Any:
    if given is None:
        raise ValueError(f"`{what}` is missing, which the tracker does not hold; call `tracker(step, {what})`.")
    return given


def _nothing(given: Any, model: Any, kind: str) -> Any:
    if given is not None:
        raise ValueError(f"`params` was given, but the model is {kind}, which is read where it is; leave it out.")
    return model


def _several(given: Any) -> tuple[Any, ...]:
    """Parameters, or a tuple of parameters and state."""
    return given if type(given) is tuple else (given,)


def _from_nnx(model: Any, kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_flax(_nothing(given, model, "an nnx module"), kwargs=kwargs)


def _from_linen(model: Any, kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_flax(model, _given(given, "variables"), kwargs=kwargs)


def _from_haiku(model: Any, kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_haiku(model, *_several(_given(given, "params")), kwargs=kwargs)


def _from_equinox(kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_equinox(*_several(_given(given, "module")), kwargs=kwargs)


class _Adapted:
    """A network of Flax, Haiku or Equinox. The first serves all steps, with the state (running means) of each."""

    def __init__(self, adapt: Callable[[Any], tuple[AdaptedModel, Any]], output: Any):
        self._adapt, self._output, self._f = adapt, output, None

    def __getstate__(self) -> dict[str, Any]:
        """Without what was adapted: it is made again."""
        return {**vars(self), "_f": None}

    def __call__(self, given: Any) -> tuple[AdaptedModel, Any]:
        f, params = self._adapt(given)
        if self._f is None:
            self._f = f if self._output is None else _picked(f, self._output)
        elif not eqx.tree_equal(self._f.state, f.state):
            self._f = replace(self._f, state=f.state)
        return self._f, params


def _picked(f: AdaptedModel, output: Callable[[Any], Any]) -> AdaptedModel:
    return replace(f, apply=lambda params, state, x: output(f.apply(params, state, x)))


class _Module:
    """A PyTorch module where it is: exported once, with the buffers (running means) of each step."""

    def __init__(self, module: Any, x: Any, kwargs: Any, output: Any):
        self._module, self._options = unwrapped(module), {"example": x, "kwargs": kwargs, "output": output}
        self._f, self._buffers = None, {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what was exported: it is made again from the module."""
        return {**vars(self), "_f": None}

    def __call__(self, params: Any) -> tuple[AdaptedModel, dict[str, np.ndarray]]:
        module = _nothing(params, self._module, "a PyTorch module")
        buffers = {name: to_numpy(buffer) for name, buffer in module.named_buffers(remove_duplicate=False)}
        if self._f is None:
            self._f, _ = from_torch(evaluated(module), **self._options)
        elif not eqx.tree_equal(buffers, self._buffers):
            self._f = with_buffers(self._f, buffers)
        self._buffers = buffers
        return self._f, {name: to_numpy(leaf) for name, leaf in own_parameters(module)[0].items()}
