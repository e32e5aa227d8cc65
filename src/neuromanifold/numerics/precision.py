"""The float64 boundary: where dtypes are decided, entered and left.

JAX narrows float64 to float32 unless its x64 flag is on, silently. Every public function therefore opens
[`arithmetic`][neuromanifold.numerics.precision.arithmetic] before its first JAX call, promotes its arguments inside it,
and hands results out as NumPy arrays, which nothing narrows. The user's global flag is never touched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.forks import check_fork

Tree = TypeVar("Tree")


@contextmanager
def arithmetic(precision: str = "highest") -> Iterator[None]:
    """64-bit types available, matrix products at full precision on every device (no silent TF32)."""
    check_fork()
    with jax.enable_x64(True), jax.default_matmul_precision(precision):
        yield


def is_traced(tree: Any) -> bool:
    """Whether any leaf is a tracer, that is: has no value yet because `jit`, `vmap` or `grad` is at work."""
    return any(_traced_leaf(leaf) for leaf in jax.tree.leaves(tree))


def _traced_leaf(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array):
        return False
    try:
        np.asarray(leaf)
    except jax.errors.TracerArrayConversionError:
        return True
    except TypeError:  # PRNG keys are arrays without a NumPy counterpart
        return False
    return False


def dtype_of(leaf: Any) -> np.dtype:
    """The leaf's dtype; Python floats are float64, Python ints int64."""
    return np.dtype(leaf.dtype) if isinstance(leaf, (jax.Array, np.ndarray, np.generic)) else np.asarray(leaf).dtype


def is_floating(leaf: Any) -> bool:
    """Whether the leaf is a real floating-point array (bfloat16 included)."""
    return jnp.issubdtype(dtype_of(leaf), jnp.floating)


def widest(*trees: Any) -> np.dtype:
    """The widest floating dtype among the leaves, never below float32."""
    floats = [dtype_of(leaf) for leaf in jax.tree.leaves(trees) if is_floating(leaf)]
    return np.dtype(np.float64) if any(dtype == np.float64 for dtype in floats) else np.dtype(np.float32)


def promote(tree: Tree, dtype: Any) -> Tree:
    """Floating leaves cast to `dtype`; integer leaves (token indices, say) as they are. Call inside `arithmetic`."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if is_floating(leaf) else jnp.asarray(leaf), tree)


def to_host(tree: Tree) -> Tree:
    """Concrete arrays as NumPy, tracers as they are: how evidence leaves `arithmetic`."""
    return jax.tree.map(
        lambda leaf: leaf if _traced_leaf(leaf) or not isinstance(leaf, jax.Array) else np.asarray(leaf), tree
    )
