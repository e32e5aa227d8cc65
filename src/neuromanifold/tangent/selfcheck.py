"""`check=True`: a kernel compared with JVP∘VJP on random probes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.selection import Selection
from neuromanifold.models.arguments import Model, output_size
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.validation import leading_axis

_PROBES = 3
_SAFETY = 100.0


def check_kernel(f: Model, params: Any, x1: Any, x2: Any, kernel: np.ndarray, *, kind: str, chosen: Selection) -> None:
    """Raise `ArithmeticError` when the kernel is not that of f."""
    rng = np.random.default_rng(0)
    shape = (leading_axis(x2), output_size(f, params, x2))
    tolerance = _SAFETY * float(jnp.finfo(kernel.dtype).eps) * np.sqrt(chosen.size + kernel.shape[1])
    for _ in range(_PROBES):
        v = rng.standard_normal(shape if kind == "all" else shape[:1]).astype(kernel.dtype)
        expected = _expected(f, params, x1, x2, v, shape[1], kind, chosen)
        found = (
            (kernel @ v.ravel()).reshape(expected.shape) if kind != "diagonal" else np.einsum("ijo,j->io", kernel, v)
        )
        scale = np.linalg.norm(kernel) * np.linalg.norm(v) / np.sqrt(kernel.shape[1])
        error = np.linalg.norm(found - expected) / max(scale, np.finfo(kernel.dtype).tiny)
        if not error <= tolerance:
            raise ArithmeticError(
                f"the kernel disagrees with JVP∘VJP by {error:.2g} (tolerance {tolerance:.2g}): a bug in `f` or here."
            )


def _expected(
    f: Model, params: Any, x1: Any, x2: Any, v: np.ndarray, width: int, kind: str, chosen: Selection
) -> np.ndarray:
    """Θv through f on the whole batch; for trace and diagonal, output by output."""
    if kind == "all":
        return np.asarray(_push_pull(f, params, x1, x2, jnp.asarray(v), chosen))
    columns = []
    for output in range(width):
        cotangent = np.zeros((len(v), width), v.dtype)
        cotangent[:, output] = v
        columns.append(np.asarray(_push_pull(f, params, x1, x2, jnp.asarray(cotangent), chosen))[:, output])
    found = np.stack(columns, axis=1)
    return found.sum(axis=1) if kind == "trace" else found


@jax.jit(static_argnums=(0, 5))
def _push_pull(f: Model, params: Any, x1: Any, x2: Any, cotangent: Any, chosen: Selection) -> Any:
    mine, rebuild = chosen.split(params)
    y, pullback = jax.vjp(lambda p: flat_outputs(f, rebuild(p), x2), mine)
    (direction,) = pullback(cotangent.astype(y.dtype))
    return jax.jvp(lambda p: flat_outputs(f, rebuild(p), x1), (mine,), (direction,))[1]
