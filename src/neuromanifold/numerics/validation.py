"""Checks at the public boundary: one clear sentence each, nothing computed yet."""

import re
from collections.abc import Mapping, Set
from numbers import Number
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.numerics.inputs import plain_array
from neuromanifold.numerics.precision import dtype_of, is_floating, is_traced

_SMALL = 1_000_000
"""Entries of an array that one thread reads in less than a millisecond."""
_VOWEL = re.compile(r"[aeioAEIO]|ndarray|[FHLMNRSX][A-Z]")
"""How names begin that are spoken with a vowel: the last are read letter by letter, as in MLP."""


def indefinite(value: Any) -> str:
    """The type of a value with its article.

    >>> indefinite(3), indefinite([]), indefinite(nm.MLP((1, 1)))
    ('an int', 'a list', 'an MLP')
    """
    name = type(value).__name__
    return f"{'an' if _VOWEL.match(name) else 'a'} {name}"


def check_params(params: Any) -> None:
    """Refuse parameters that are missing, complex, integer, or not finite."""
    check_param_types(params)
    check_finite(params, "params")


def check_param_types(params: Any) -> None:
    """Refuse parameters that are missing, complex or integer."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError(
            "`params` has no arrays; pass the parameters that the function is differentiated by "
            "(of a PyTorch module: `f, params = nm.from_torch(module, example=x)`)."
        )
    for path, leaf in leaves:
        _check_param(f"`params{jax.tree_util.keystr(path)}`", leaf)


def _check_param(name: str, leaf: Any) -> None:
    try:
        dtype = dtype_of(leaf)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ):  # PyTorch's tensors that require gradients raise the last
        raise TypeError(
            f"{name} is {indefinite(leaf)}; pass a real floating-point array."
        ) from None
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(
            f"{name} is complex ({dtype}); pass real parameters, for example real and imaginary "
            "parts apart."
        )
    if (
        isinstance(leaf, np.ma.MaskedArray)
        or not dtype.isnative
        or (dtype.kind == "f" and dtype.itemsize > 8)
    ):
        kind = "a masked array" if isinstance(leaf, np.ma.MaskedArray) else f"of dtype {dtype.str}"
        raise TypeError(
            f"{name} is {kind}; pass a plain array of float16, float32 or float64 in native byte "
            "order."
        )
    if dtype.kind == "O":
        raise TypeError(
            f"{name} is {indefinite(leaf)}, no array; keep arrays alone in the parameters: "
            "`f, params = nm.from_equinox(module)`, or `params, rest = eqx.partition(module, "
            "eqx.is_inexact_array)`."
        )
    if not is_floating(leaf):
        raise TypeError(
            f"{name} has dtype {dtype}, which has no derivative; cast it with `.astype('float32')`."
        )


def check_sample(x: Any, name: str = "x") -> Any:
    """The sample as arrays; refused without a leading axis, without rows, not numbers, complex, or
    not finite.

    A pytree of arrays is a sample as well, when their first axes are equally long.
    """
    x = sample_arrays(x, name)
    check_finite(x, name)
    return x


MatrixLike = Any
"""A matrix: a NumPy or JAX array of shape (m, n)."""


def check_matrix(A: MatrixLike, name: str = "A") -> Float[np.ndarray, "m n"]:
    """A as a finite float64 matrix, or one clear sentence."""
    check_sample(A, name)
    if np.ndim(A) != 2:
        raise ValueError(f"`{name}` has shape {np.shape(A)}; pass a matrix.")
    return np.asarray(A, np.float64)


MOST_LAYERS = 10**6
"""A list of more layers takes minutes and gigabytes."""


def check_depth(depth: Any, *, most: float | int = np.inf) -> int:
    """`depth` as a positive int, or one clear sentence."""
    if isinstance(depth, bool) or depth != int(depth) or depth < 1:
        raise ValueError(f"`depth` is {depth!r}; pass a whole number of layers, one or more.")
    if depth > most:
        raise ValueError(f"`depth` is {depth!r}, and each layer is made; pass at most {most}.")
    return int(depth)


def check_rtol(rtol: Any, name: str = "rtol") -> None:
    """Refuse a relative tolerance that is no fraction: above 1, everything counts as zero or equal.
    None means a default, and what is traced is not looked at.
    """
    if rtol is None or is_traced(rtol):
        return
    if isinstance(rtol, str) or not 0 <= rtol <= 1:
        raise ValueError(f"`{name}` is {rtol}; pass a fraction, at least 0 and at most 1.")


def in_order(entries: Any) -> tuple[Any, ...]:
    """The entries of a sequence; a set or a dictionary has no order, and bytes have no entries
    that anybody means.
    """
    if isinstance(entries, (str, bytes, bytearray, Set, Mapping)):
        raise TypeError(f"{indefinite(entries)} is no sequence of entries")
    return tuple(entries)


def sample_arrays(x: Any, name: str = "x") -> Any:
    """The sample as arrays, its shapes and dtypes checked."""
    if not isinstance(x, dict) and not (
        isinstance(x, tuple) and any(not isinstance(leaf, list | tuple | Number) for leaf in x)
    ):
        return _check_array(x, name)
    found = jax.tree_util.tree_map_with_path(
        lambda path, leaf: _check_array(leaf, f"{name}{jax.tree_util.keystr(path)}"), x
    )
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(found)}
    if len(lengths) != 1:
        raise ValueError(
            f"`{name}` has arrays with {sorted(lengths)} rows; the first axis of each counts the "
            "same samples (the order is f, params, x)."
        )
    return found


def _check_array(x: Any, name: str) -> Any:
    given, x = x, x if isinstance(x, jax.Array) else plain_array(x, name)
    shape, dtype = x.shape, dtype_of(x)
    if not shape and dtype.kind in "OUS":
        raise TypeError(
            f"`{name}` is {indefinite(given)}; pass an array whose first axis counts the samples."
        )
    if not shape:
        raise ValueError(
            f"`{name}` is a scalar; pass an array whose first axis counts the samples."
        )
    if 0 in shape:
        raise ValueError(f"`{name}` has shape {shape}, so it is empty; pass at least one sample.")
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(f"`{name}` is complex ({dtype}); pass a real array.")
    if not jnp.issubdtype(dtype, jnp.number) and dtype.kind != "b":
        raise TypeError(f"`{name}` has dtype {dtype}; pass an array of numbers.")
    return x


def leading_axis(x: Any) -> int:
    """The number of samples."""
    return jax.tree.leaves(x)[0].shape[0]


def refuse_tracers(tree: Any, what: str) -> None:
    """One sentence for functions that run on the host."""
    if is_traced(tree):
        raise TypeError(
            f"{what} needs concrete values and runs on the host; call it outside jit, vmap and "
            "grad."
        )


def check_finite(tree: Any, name: str) -> None:
    """Refuse nan and inf: one reduction on the device, and a search only where it fails."""
    leaves = jax.tree.leaves(tree)
    if is_traced(leaves) or all_finite(leaves):
        return
    explain_not_finite(tree, name)


def all_finite(leaves: list[Any]) -> bool:
    """Whether every entry of every floating leaf is finite; the others are as they are."""
    arrays = np.ndarray | np.generic | float | jax.Array
    floating = [leaf for leaf in leaves if isinstance(leaf, arrays) and is_floating(leaf)]
    far = [leaf for leaf in floating if not _is_at_hand(leaf)]
    near = all(np.isfinite(np.asarray(leaf)).all() for leaf in floating if _is_at_hand(leaf))
    with jax.ensure_compile_time_eval():  # constants of a function that is being traced have values
        return near and (not far or bool(_finite(far)))


def _is_at_hand(leaf: Any) -> bool:
    """Whether NumPy reads the array where it lies, sooner than a program for it is compiled."""
    return not isinstance(leaf, jax.Array) or (
        leaf.size <= _SMALL
        and leaf.is_fully_addressable
        and all(device.platform == "cpu" for device in leaf.devices())
    )


@jax.jit
def _finite(leaves: list[Any]) -> Any:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


def explain_not_finite(tree: Any, name: str) -> None:
    """Say where the first entry is that is not finite, and how many there are."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not is_floating(leaf):
            continue
        a = np.asarray(leaf)
        finite = np.isfinite(a.astype(np.float64))
        if not finite.all():
            where = tuple(int(i) for i in np.argwhere(~finite)[0])
            count = int((~finite).sum())
            entries = "entry" if count == 1 else "entries"
            raise ValueError(
                f"`{name}{jax.tree_util.keystr(path)}` is {a[where]} at {list(where)} ({count:,} "
                f"such {entries}); "
                "remove or replace them."
            )
