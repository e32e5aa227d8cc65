"""`AdaptedModel`: a network of another library as a function f(params, x)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.numerics.precision import boundary, full_products, is_traced, promote, widest
from neuromanifold.runtime.pickling import ByName


@dataclass(frozen=True, eq=False)
class AdaptedModel(ByName):
    """A network of another library, fixed to inference: `f(params, x)` with the sample axis first,
    any number of samples.

    `apply(params, state, x)` computes it; `state` holds what is not differentiated (running means,
    say). `evidence` says how it was compared with the network it was made from, or why that is not
    needed. `separate` says that its rows were seen to be independent.
    """

    apply: Callable[[Any, Any, Any], Any]
    state: Any
    name: str
    evidence: str
    separate: bool = False

    def __call__(self, params: Any, x: Any) -> Any:
        """f_θ(x), in the widest dtype passed."""
        if is_traced((params, x)):
            with full_products():
                return self.apply(params, self.state, x)
        with boundary(params, x) as leave:
            dtype = widest(params, x)
            return leave(_apply_compiled(self, promote(params, dtype), promote(x, dtype)))

    @property
    def __name__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"AdaptedModel({self.name}; {self.evidence})"


@jax.jit(static_argnums=0)
def _apply_compiled(model: AdaptedModel, params: Any, x: Any) -> Any:
    return model.apply(params, model.state, x)


def arguments(x: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """What a network is called with: a tuple is its positional arguments, a dictionary its named
    ones, all else the one argument.
    """
    if isinstance(x, Mapping):
        return (), x
    return (x if isinstance(x, tuple) else (x,)), {}


def follow(state: Any, params: Any, x: Any) -> Any:
    """The state with its floating arrays in the widest dtype of parameters and input."""
    dtype = jax.dtypes.canonicalize_dtype(widest(params, x))
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if _floating(leaf) else leaf, state)


def _floating(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
