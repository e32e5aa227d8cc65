"""The boundary between callers and computations: where dtypes are decided, and how results leave.

JAX narrows float64 to float32 unless its x64 flag is on, silently. Every public function therefore
opens [`boundary`][neuromanifold.numerics.precision.boundary] before its first JAX call and promotes
its arguments inside it. **Results follow their inputs**: JAX arrays in, JAX arrays out, where they
live; NumPy in, NumPy out. The one exception is float64 while the caller's flag is off: as a JAX
array it would decay at the next operation, so it leaves as NumPy. The user's flag is never touched.
"""

from collections.abc import Callable, Generator, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from neuromanifold.runtime.processes import check_fork

Tree = TypeVar("Tree")

PRODUCTS = {
    "highest": "highest",
    "tf32x3": "TF32_TF32_F32_X3",
    "bf16x3": "BF16_BF16_F32_X3",
    "default": "default",
}
"""How float32 matrices are multiplied on accelerators. JAX's own "high" is absent: on a GPU it
is one pass of TF32.
"""


def is_wide() -> bool:
    """Whether the caller's x64 flag is on."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


@contextmanager
def arithmetic(precision: str = "highest") -> Generator[None]:
    """64-bit types available, matrix products at full precision on every device (no silent
    TF32).
    """
    check_fork()
    with jax.enable_x64(True), jax.default_matmul_precision(precision):
        yield


@contextmanager
def full_products() -> Generator[None]:
    """Matrix products at full precision inside a caller's own trace too, unless the caller said
    otherwise
    (`jax.default_matmul_precision`)."""
    config: Any = jax.config
    with jax.default_matmul_precision(config.jax_default_matmul_precision or PRODUCTS["highest"]):
        yield


def product_precision(precision: str, dtype: Any) -> str:
    """JAX's name for a precision of matrix products; full precision where the dtype or the
    platform has no faster one.
    """
    if precision not in PRODUCTS:
        why = (
            " ('high' is one pass of TF32 on a GPU, no better than 'default')"
            if precision == "high"
            else ""
        )
        raise ValueError(
            f"`precision` is {precision!r}{why}; pass 'highest', 'tf32x3', 'bf16x3' or 'default'."
        )
    passes = precision in ("tf32x3", "bf16x3")
    exact = passes and (dtype != np.float32 or jax.default_backend() == "cpu")
    return PRODUCTS["highest" if exact else precision]


def products_are(*precisions: str) -> bool:
    """Whether matrices are multiplied with one of these precisions here.

    >>> with arithmetic():
    ...     products_are("highest"), products_are("tf32x3", "bf16x3")
    (True, False)
    """
    config: Any = jax.config
    return config.jax_default_matmul_precision in [PRODUCTS[precision] for precision in precisions]


@contextmanager
def boundary(*inputs: Any, precision: str = "highest") -> Generator[Callable[[Any], Any]]:
    """`arithmetic`, with a function that lets results leave as the inputs came.

    >>> with boundary(np.ones(2)) as leave:
    ...     result = leave(jnp.ones(3) * 2)
    >>> type(result).__name__, result.dtype.name
    ('ndarray', 'float64')
    """
    wide = is_wide()
    stays = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(inputs))

    def leave(tree: Any) -> Any:
        left = jax.tree.map(lambda leaf: _leaving(leaf, stays, wide), tree)
        put = _find_placements(inputs) if stays else set()
        return jax.tree.map(lambda leaf: _bring(leaf, put), left) if put else left

    with arithmetic(precision):
        yield leave


def _leaving(leaf: Any, stays: bool, wide: bool) -> Any:
    if isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array):
        return leaf
    return leaf if stays and (wide or leaf.dtype.itemsize < 8) else np.asarray(leaf)


def _bring(leaf: Any, put: Set[Sharding]) -> Any:
    """An array on the devices that the inputs were put on: what some of them computed for all is
    elsewhere.
    """
    if isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array):
        return leaf
    place = _place(put, leaf.shape)
    return (
        leaf if place is None or leaf.devices() == place.device_set else jax.device_put(leaf, place)
    )


def follower(*inputs: Any) -> Callable[[Tree], Tree]:
    """A function that makes results of the host JAX arrays where an input was one and no digit is
    lost. Call it outside `arithmetic`.

    They go where the inputs are: to their one device; with their one sharding where that fits a
    result's shape; else to every device of their mesh. Inputs on different devices say nothing, and
    results stay on the default one.

    >>> follower(jnp.ones(2))(np.ones(3, np.float32)).dtype.name, type(follower(np.ones(2))(np.ones(3))).__name__
    ('float32', 'ndarray')
    """
    wide = is_wide()
    arrays = [
        leaf
        for leaf in jax.tree.leaves(inputs, is_leaf=lambda a: isinstance(a, Iterator))
        if isinstance(leaf, jax.Array) and not _is_key(leaf)
    ]
    shardings = _find_placements(arrays) or _elsewhere(arrays)

    def follow(leaf: Any) -> Any:
        moves = isinstance(leaf, np.ndarray) and (wide or leaf.dtype.itemsize < 8)
        return jnp.asarray(leaf, device=_place(shardings, leaf.shape)) if moves else leaf

    return lambda tree: jax.tree.map(follow, tree) if arrays else tree


def _is_key(array: jax.Array) -> bool:
    """Whether it is a key, which JAX alone has and which says nothing of where numbers are."""
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def _find_placements(inputs: Any) -> Set[Sharding]:
    """Where somebody put those of the inputs that were put anywhere."""
    arrays = (
        leaf
        for leaf in jax.tree.leaves(inputs)
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    )
    return {array.sharding for array in arrays if array.committed}


def _elsewhere(arrays: Sequence[jax.Array]) -> Set[Sharding]:
    """Where arrays are, if that is not where JAX puts what nobody places."""
    default = {jax.local_devices()[0]}
    return {a.sharding for a in arrays if not isinstance(a, Tracer) and a.devices() != default}


def _place(shardings: Set[Sharding], shape: tuple[int, ...]) -> Sharding | None:
    """Where a result of this shape goes: the inputs' one sharding where it fits, else a copy on
    each of their devices.
    """
    owners = {frozenset(sharding.device_set) for sharding in shardings}
    if len(owners) != 1 or not all(sharding.is_fully_addressable for sharding in shardings):
        return None
    found = next(iter(shardings))
    if len(shardings) == 1 and _fits(found, shape):
        return found
    return NamedSharding(_mesh(found), PartitionSpec())


def _mesh(sharding: Sharding) -> Mesh | AbstractMesh:
    by_number = sorted(sharding.device_set, key=lambda device: device.id)
    return (
        sharding.mesh
        if isinstance(sharding, NamedSharding)
        else Mesh(np.array(by_number), ("devices",))
    )


def _fits(sharding: Sharding, shape: tuple[int, ...]) -> bool:
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > len(shape):
        return False
    try:
        sharding.shard_shape(shape)
    except ValueError:
        return False
    return True


def is_traced(tree: Any) -> bool:
    """Whether any leaf is a tracer, that is: has no value yet because `jit`, `vmap` or `grad` is
    at work.
    """
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def dtype_of(leaf: Any) -> np.dtype:
    """The leaf's dtype; Python floats are float64, Python ints int64."""
    known = isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))
    return np.dtype(leaf.dtype) if known else np.asarray(leaf).dtype


def is_floating(leaf: Any) -> bool:
    """Whether the leaf is a real floating-point array (bfloat16 included)."""
    return jnp.issubdtype(dtype_of(leaf), jnp.floating)


def widest(*trees: Any) -> np.dtype:
    """The widest floating dtype among the leaves, never below float32."""
    floats = [dtype_of(leaf) for leaf in jax.tree.leaves(trees) if is_floating(leaf)]
    return (
        np.dtype(np.float64)
        if any(dtype == np.float64 for dtype in floats)
        else np.dtype(np.float32)
    )


def promote(tree: Tree, dtype: Any) -> Tree:
    """Floating leaves cast to `dtype`; integer leaves (token indices, say) as they are. Call
    inside `arithmetic`.
    """
    return jax.tree.map(lambda leaf: _promote_leaf(leaf, dtype), tree)


def _promote_leaf(leaf: Any, dtype: Any) -> Any:
    if isinstance(leaf, jax.Array) and leaf.dtype == dtype:
        return leaf
    if not is_floating(leaf):
        return jnp.asarray(leaf)
    # Cast by NumPy where it has the numbers: nothing is compiled.
    return jnp.asarray(leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, dtype), dtype)


def to_host(tree: Tree) -> Tree:
    """Concrete arrays as NumPy, tracers as they are."""
    return jax.tree.map(
        lambda leaf: (
            np.asarray(leaf)
            if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
            else leaf
        ),
        tree,
    )


def in_float64(compute: Callable[..., Any], *arguments: Any) -> Any:
    """`compute(*arguments)` with all numbers in float64, where some of them are traced. Call inside
    `arithmetic`.

    Traced float32 arguments come from a caller whose JAX has no float64. For them the result leaves
    as float32, and so do its (reverse-mode) derivatives, which are computed in float64 too: what
    JAX transposes outside of `arithmetic` would be narrowed half-way.
    """
    leaves, structure = jax.tree.flatten(arguments)

    def wide(*leaves: Any) -> Any:
        return compute(
            *jax.tree.unflatten(structure, [jnp.asarray(leaf, jnp.float64) for leaf in leaves])
        )

    if all(leaf.dtype == jnp.float64 for leaf in leaves if isinstance(leaf, jax.Array)):
        return wide(*leaves)
    return _narrow(wide)(*(jnp.asarray(leaf, jnp.float32) for leaf in leaves))


def _narrow(wide: Callable[..., Any]) -> Callable[..., Any]:
    """A function of float32 numbers with float32 results and derivatives, all of it computed in
    float64.
    """

    def cast(tree: Any, dtype: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)

    @jax.custom_vjp
    def call(*leaves: Any) -> Any:
        with arithmetic():
            return cast(wide(*leaves), jnp.float32)

    def backward(leaves: Any, cotangent: Any) -> Any:
        with arithmetic():
            _, pull = jax.vjp(wide, *cast(leaves, jnp.float64))
            return cast(pull(cast(cotangent, jnp.float64)), jnp.float32)

    call.defvjp(lambda *leaves: (call(*leaves), leaves), backward)
    return call
