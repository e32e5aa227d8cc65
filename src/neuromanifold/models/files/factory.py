"""A network built by the user's own function, with the weights of a file."""

import importlib
import sys
from pathlib import Path
from typing import Any

from neuromanifold.models.adapters.torch.conversion import from_torch
from neuromanifold.models.adapters.torch.tensors import from_array
from neuromanifold.models.files.tensors import read_tensors
from neuromanifold.models.function import FunctionModel
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.packages import find_loaded


def load_with_factory(
    path: Path, factory: str, example: Any, *, statistics: bool = False
) -> tuple[Any, dict[str, Any]]:
    """`(f, params)`: what `package.module:function` builds, filled from the file.

    The function takes no argument and returns a PyTorch module, or a JAX function f(params, x) of
    the file's arrays by name. It is the user's code and is run; the file is not.
    """
    built = _call(factory)
    tensors, _ = read_tensors(path)
    if _is_module(built):
        if example is None:
            raise ValueError("`example` is missing; pass one batch of the network's input.")
        return from_torch(
            _fill(path, built, tensors).eval(), example=example, statistics=statistics
        )
    if not callable(built):
        raise TypeError(
            f"`factory` {factory} returned {indefinite(built)}; return a torch.nn.Module or a "
            "function f(params, x)."
        )
    return FunctionModel(built, name=factory), tensors


def module_with_factory(path: Path, factory: str) -> Any:
    """The PyTorch module that `package.module:function` builds, filled from the file, in
    evaluation mode.
    """
    built = _call(factory)
    if not _is_module(built):
        raise TypeError(
            f"`factory` {factory} returned {indefinite(built)}; return a torch.nn.Module."
        )
    return _fill(path, built, read_tensors(path)[0]).eval()


def _is_module(built: Any) -> bool:
    torch = find_loaded("torch")
    return torch is not None and isinstance(built, torch.nn.Module)


def _call(factory: str) -> Any:
    module, colon, name = factory.partition(":")
    if not (module and colon and name):
        before, dot, last = factory.rpartition(".")
        hint = f", perhaps {before}:{last}" if dot and not colon else ""
        raise ValueError(f"`factory` is {factory!r}; pass package.module:function{hint}.")
    if module.endswith(".py"):
        raise ValueError(
            f"`factory` is {factory!r}; pass the module's name: "
            f"{module[:-3].replace('/', '.')}:{name}."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), name)()
    except Exception as error:
        raise ValueError(
            f"`factory` {factory} cannot be called ({type(error).__name__}: {error}); it must be "
            "importable from here and take no argument."
        ) from None
    finally:
        sys.path.remove(str(Path.cwd()))


def _fill(path: Path, module: Any, tensors: dict[str, Any]) -> Any:
    """The module with the file's tensors; names may carry the prefix that wrappers put in front
    of all of them.
    """
    own = module.state_dict()
    for prefix in ("module.", "_orig_mod."):
        tensors = (
            {name.removeprefix(prefix): a for name, a in tensors.items()}
            if set(tensors) != set(own)
            else tensors
        )
    missing, surplus = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    if missing or surplus:
        raise ValueError(
            f"`path` {path.name} is not of the factory's module: missing "
            f"{', '.join(missing[:4]) or 'nothing'}, "
            f"unknown {', '.join(surplus[:4]) or 'nothing'}; pass the factory that the file was "
            "made with."
        )
    wrong = next(
        (name for name, tensor in own.items() if tuple(tensor.shape) != tensors[name].shape), None
    )
    if wrong is not None:
        raise ValueError(
            f"`path` {path.name} has {wrong} of shape {tensors[wrong].shape}, the factory's "
            f"module of {tuple(own[wrong].shape)}; "
            "pass the factory that the file was made with."
        )
    module.load_state_dict({name: from_array(a) for name, a in tensors.items()})
    return module
