"""Checks at the public boundary: one clear sentence each, nothing computed yet."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.inputs import plain_array
from neuromanifold.numerics.precision import dtype_of, is_floating, is_traced


def check_params(params: Any) -> None:
    """Refuse parameters that are missing, complex, integer, or not finite."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError("`params` has no arrays; pass the parameters that the function is differentiated by.")
    for path, leaf in leaves:
        _check_param(f"`params{jax.tree_util.keystr(path)}`", leaf)


def _check_param(name: str, leaf: Any) -> None:
    try:
        dtype = dtype_of(leaf)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a {type(leaf).__name__}; pass a real floating-point array.") from None
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(
            f"{name} is complex ({dtype}); pass real parameters, for example real and imaginary parts apart."
        )
    if isinstance(leaf, np.ma.MaskedArray) or not dtype.isnative or (dtype.kind == "f" and dtype.itemsize > 8):
        kind = "a masked array" if isinstance(leaf, np.ma.MaskedArray) else f"of dtype {dtype.str}"
        raise TypeError(f"{name} is {kind}; pass a plain array of float16, float32 or float64 in native byte order.")
    if not is_floating(leaf):
        raise TypeError(f"{name} has dtype {dtype}, which has no derivative; cast it with `.astype('float32')`.")
    _check_finite(name, leaf)


def check_sample(x: Any, name: str = "x") -> Any:
    """The sample as a plain array; refused without a leading axis, without rows, not numbers, complex, or not finite."""
    x = x if isinstance(x, jax.Array) else plain_array(x, name)
    shape = x.shape
    if not shape:
        raise ValueError(f"`{name}` is a scalar; pass an array whose first axis counts the samples.")
    if 0 in shape:
        raise ValueError(f"`{name}` has shape {shape}, so it is empty; pass at least one sample.")
    if jnp.issubdtype(dtype_of(x), jnp.complexfloating):
        raise TypeError(f"`{name}` is complex ({dtype_of(x)}); pass a real array.")
    if not jnp.issubdtype(dtype_of(x), jnp.number) and dtype_of(x).kind != "b":
        raise TypeError(f"`{name}` has dtype {dtype_of(x)}; pass an array of numbers.")
    _check_finite(f"`{name}`", x)
    return x


def refuse_tracers(tree: Any, what: str) -> None:
    """One sentence for functions that run on the host."""
    if is_traced(tree):
        raise TypeError(f"{what} needs concrete values and runs on the host; call it outside jit, vmap and grad.")


def _check_finite(name: str, a: Any) -> None:
    if is_traced(a) or not is_floating(a):
        return
    finite = np.isfinite(np.asarray(a, np.float64))
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        value = np.asarray(a)[where]
        raise ValueError(
            f"{name} is {value} at {list(where)} ({(~finite).sum()} such entries); remove or replace them."
        )
