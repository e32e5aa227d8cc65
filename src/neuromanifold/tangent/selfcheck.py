"""`check=True`: a kernel compared with JVP∘VJP on random probes, and a model with its rows taken apart."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.tangent.arguments import Model
from neuromanifold.tangent.jacobian import n_columns

_PROBES = 3
_SAFETY = 100.0


def check_kernel(f: Model, params: Any, x1: Any, x2: Any, kernel: np.ndarray, *, trace: bool) -> None:
    """Raise `ArithmeticError` when the kernel is not that of f."""
    rng = np.random.default_rng(0)
    outputs = jax.eval_shape(f, params, x2).shape
    tolerance = _SAFETY * float(jnp.finfo(kernel.dtype).eps) * np.sqrt(n_columns(params) + kernel.shape[1])
    for _ in range(_PROBES):
        v = rng.standard_normal(kernel.shape[1]).astype(kernel.dtype)
        expected = _product(f, params, x1, x2, v, outputs, trace)
        scale = np.linalg.norm(kernel) * np.linalg.norm(v) / np.sqrt(kernel.shape[1])
        error = np.linalg.norm(kernel @ v - expected) / max(scale, np.finfo(kernel.dtype).tiny)
        if not error <= tolerance:
            raise ArithmeticError(
                f"the kernel disagrees with JVP∘VJP by {error:.2g} (tolerance {tolerance:.2g}): a bug in `f` or here."
            )


def _product(f: Model, params, x1, x2, v, outputs, trace: bool) -> np.ndarray:
    """Θv through f on the whole batch; for the trace, output by output."""
    if not trace:
        return np.asarray(_push_pull(f, params, x1, x2, jnp.asarray(v).reshape(outputs))).ravel()
    width = math.prod(outputs[1:])
    total = np.zeros(x1.shape[0], v.dtype)
    for output in range(width):
        cotangent = np.zeros((outputs[0], width), v.dtype)
        cotangent[:, output] = v
        pushed = _push_pull(f, params, x1, x2, jnp.asarray(cotangent).reshape(outputs))
        total += np.asarray(pushed).reshape(x1.shape[0], width)[:, output]
    return total


@jax.jit(static_argnums=0)
def _push_pull(f: Model, params, x1, x2, cotangent) -> Any:
    y, pullback = jax.vjp(lambda p: f(p, x2), params)
    (direction,) = pullback(cotangent.astype(y.dtype))
    return jax.jvp(lambda p: f(p, x1), (params,), (direction,))[1]


def check_rows(f: Model, params: Any, x: Any) -> None:
    """Raise when a row of f(params, x) changes with its neighbours removed."""
    whole = np.asarray(f(params, x))
    tolerance = _SAFETY * float(jnp.finfo(whole.dtype).eps) * np.sqrt(n_columns(params))
    for i in np.unique(np.linspace(0, x.shape[0] - 1, _PROBES).astype(int)):
        alone = np.asarray(f(params, x[i : i + 1]))[0]
        error = np.abs(alone - whole[i]).max(initial=0.0)
        if not error <= tolerance * max(float(np.abs(whole).max(initial=0.0)), 1.0):
            raise ArithmeticError(
                f"`f` mixes its rows: output {i} changes by {error:.2g} when the other samples are removed; "
                "pass a model in evaluation mode, without batch statistics."
            )
