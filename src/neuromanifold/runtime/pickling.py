"""Objects that hold functions: pickled where these can be found by a name, and refused in a
sentence where one cannot.
"""

import copy
import importlib
import pickle
import sys
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import jax


class Nameless(TypeError):
    """A function that pickle cannot find by a name."""


@dataclass(frozen=True)
class _Bound:
    """What a module calls `name`: a lambda, or a function with a derivative of its own, which
    pickle would not look for there.
    """

    module: str
    name: str

    def found(self) -> Any:
        return getattr(importlib.import_module(self.module), self.name)


class ByName:
    """Pickled with its functions by their names in their modules. A copy in memory needs no
    names.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: _check(jax.tree.map(_by_name, value), name) for name, value in vars(self).items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: jax.tree.map(_function, value) for name, value in state.items()})

    def __copy__(self) -> Any:
        return _like(self, vars(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _like(self, {name: copy.deepcopy(value, memo) for name, value in vars(self).items()})


def _by_name(leaf: Any) -> Any:
    if not callable(leaf) or (isinstance(leaf, FunctionType) and "<" not in leaf.__qualname__):
        return leaf
    module = getattr(leaf, "__module__", None)
    own = vars(sys.modules[module]) if module in sys.modules else {}
    name = next((name for name, value in own.items() if value is leaf), "")
    return _Bound(str(module), name) if name else leaf


def _function(leaf: Any) -> Any:
    return leaf.found() if isinstance(leaf, _Bound) else leaf


def _check(value: Any, name: str) -> Any:
    try:
        pickle.dumps(value)
    except Nameless:
        raise
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise Nameless(
            f"`{name.strip('_')}` cannot be pickled ({str(error).rstrip('.')}); define its "
            "functions with `def` at the top "
            "of a module."
        ) from None
    return value


def _like(original: Any, state: dict[str, Any]) -> Any:
    twin = object.__new__(type(original))
    vars(twin).update(state)
    return twin
