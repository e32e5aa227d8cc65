"""`AdaptedModel`: a network of another library as a function f(params, x)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from neuromanifold.numerics.precision import arithmetic, is_traced, promote, to_host, widest


@dataclass(frozen=True, eq=False)
class AdaptedModel:
    """A network of another library, fixed to inference: `f(params, x)` with the sample axis first, any number of samples.

    `apply(params, state, x)` computes it; `state` holds what is not differentiated (running means, say).
    `evidence` says how it was compared with the network it was made from, or that it was not.
    """

    apply: Callable[[Any, Any, Any], Any]
    state: Any
    name: str
    evidence: str

    def __call__(self, params: Any, x: Any) -> Any:
        """f_θ(x), in the widest dtype passed."""
        if is_traced((params, x)):
            return self.apply(params, self.state, x)
        with arithmetic():
            dtype = widest(params, x)
            return to_host(_jitted(self, promote(params, dtype), promote(x, dtype)))

    def __repr__(self) -> str:
        return f"AdaptedModel({self.name}; {self.evidence})"


@jax.jit(static_argnums=0)
def _jitted(model: AdaptedModel, params: Any, x: Any) -> Any:
    return model.apply(params, model.state, x)
