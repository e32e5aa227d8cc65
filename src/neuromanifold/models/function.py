"""`FunctionModel`: any JAX function as a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class FunctionModel:
    """Any JAX function `fn(params, x)` with x of shape (n, *in) and values (n, *out), row i depending on row i of x only.

    Everything in the library that takes a model also takes the bare function; the wrapper gives it a name and checks what it returns.

    >>> line = FunctionModel(lambda params, x: params["slope"] * x + params["offset"])
    >>> line({"slope": 2.0, "offset": 1.0}, np.array([[3.0]])).tolist()
    [[7.0]]
    """

    fn: Callable[[Any, Any], Any]
    name: str = "function"

    def __post_init__(self):
        if not callable(self.fn):
            raise TypeError(f"`fn` is a {type(self.fn).__name__}; pass a function (params, x) → y.")

    def __call__(self, params: Any, x: Any) -> Any:
        """f_θ(x)."""
        y = self.fn(params, x)
        if np.shape(y)[:1] != np.shape(x)[:1]:
            raise ValueError(
                f"`fn` maps {np.shape(x)[0]} samples to an output of shape {np.shape(y)}; its first axis must count the samples."
            )
        return y


def output_shape(f: Callable[[Any, Any], Any], params: Any, x: Any) -> tuple[int, ...]:
    """The shape of f_θ at one sample, without computing it."""
    y = jax.eval_shape(f, params, x)
    if not isinstance(y, jax.ShapeDtypeStruct):
        raise TypeError(f"`f` returns a {type(y).__name__}; a model returns one array of shape (n, *out).")
    if not jnp.issubdtype(y.dtype, jnp.floating):
        raise TypeError(f"`f` returns {y.dtype}; a model returns real floating-point values.")
    if y.shape[:1] != np.shape(x)[:1]:
        raise ValueError(
            f"`f` maps {np.shape(x)[0]} samples to an output of shape {y.shape}; its first axis must count the samples."
        )
    return y.shape[1:]
