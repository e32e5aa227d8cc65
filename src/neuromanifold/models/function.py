"""`FunctionModel`: any JAX function as a model."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.reading import call, read
from neuromanifold.graph.selection import select
from neuromanifold.numerics.precision import dtype_of, is_floating, is_wide, widest
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.pickling import ByName


@dataclass(frozen=True)
class FunctionModel(ByName):
    """Any JAX function `fn(params, x)` with x of shape (n, *in) and values (n, *out), row i
    depending on row i of x only.

    Everything in the library that takes a model also takes the bare function; the wrapper gives it
    a name and checks what it returns.

    >>> line = FunctionModel(lambda params, x: params["slope"] * x + params["offset"])
    >>> line({"slope": 2.0, "offset": 1.0}, np.array([[3.0]])).tolist()
    [[7.0]]
    """

    fn: Callable[[Any, Any], Any]
    name: str = "function"

    def __post_init__(self):
        if not callable(self.fn):
            raise TypeError(f"`fn` is {indefinite(self.fn)}; pass a function (params, x) → y.")

    def __call__(self, params: Any, x: Any) -> Any:
        """f_θ(x)."""
        y, n = self.fn(params, x), _samples(x)
        for leaf in jax.tree.leaves(y):
            if np.shape(leaf)[:1] != (n,):
                raise ValueError(
                    f"`fn` maps {n} samples to an output of shape {np.shape(leaf)}; its first "
                    "axis must count the samples."
                )
        return y


def restrict(
    f: Callable[[Any, Any], Any], params: Any, wrt: Any
) -> tuple[FunctionModel, dict[str, Any]]:
    """`(g, chosen)`: `f` as a function of the parameters that `wrt` names, by name; the others are
    constants.

    >>> g, chosen = restrict(lambda params, x: params["a"] * x + params["b"], {"a": 2.0, "b": 1.0}, "a")
    >>> chosen, g({"a": 3.0}, np.array([[1.0]])).tolist()
    ({'a': 2.0}, [[4.0]])
    """
    selection = select(params, wrt)
    mine, rebuild = selection.split(params)

    def g(chosen: dict[str, Any], x: Any) -> Any:
        return f(rebuild([chosen[name] for name in selection.names]), x)

    return FunctionModel(g), dict(zip(selection.names, mine, strict=True))


def _samples(x: Any) -> int:
    """How many samples: the first axis of an array, of a list, or of each array of a tree."""
    first = np.shape(jax.tree.leaves(x)[0])
    return (first or np.shape(x))[0]


def output_shape(
    f: Callable[[Any, Any], Any], params: Any, x: Any, *, single: bool = False
) -> tuple[int, ...]:
    """The shape of f_θ at one sample, without computing it; of several outputs, how many numbers
    they are together.

    Asked in the widest dtype among parameters and samples: convolutions do not take two. With
    `single=True` anything but one array is refused. `f` is read once for each shape.
    """
    dtype = jax.dtypes.canonicalize_dtype(widest(params, x))
    given, structure = jax.tree.flatten(
        jax.tree.map(lambda leaf: _struct(leaf, dtype), (params, x))
    )
    kinds = tuple((leaf.shape, leaf.dtype) for leaf in given)
    wide = is_wide() and any(kind.itemsize >= 8 for _, kind in kinds)
    y = _read_shapes(f, structure, kinds, wide)
    n = jax.tree.leaves(x)[0].shape[0]
    leaves = jax.tree.leaves(y)
    if single and leaves and y is not leaves[0]:
        raise TypeError(
            f"`f` returns a {type(y).__name__}, and a loss compares one array with `y`; pick it: "
            "`lambda params, x: f(params, x)[…]`."
        )
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"`f` returns {leaf.dtype}; a model returns real floating-point values: cast "
                "them with `.astype`."
            )
        if leaf.shape[:1] != (n,):
            raise ValueError(
                f"`f` maps {n} samples to an output of shape {leaf.shape}; its first axis must "
                "count the samples."
            )
    _refuse_none(leaves)
    return (
        leaves[0].shape[1:]
        if len(leaves) == 1
        else (sum(math.prod(leaf.shape[1:]) for leaf in leaves),)
    )


@lru_cache(maxsize=64)
def _read_shapes(f: Any, structure: Any, kinds: tuple[Any, ...], wide: bool) -> Any:
    """Return the shapes and dtypes of what `f` returns; `wide` says whether `read` sets the x64
    flag.
    """
    given = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
    return read(f, *jax.tree.unflatten(structure, given))[1]


def _struct(leaf: Any, dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(leaf), dtype if is_floating(leaf) else dtype_of(leaf))


def _refuse_none(leaves: list[Any]) -> None:
    if not leaves:
        raise TypeError(
            "`f` returns no array; a model returns an array of shape (n, *out), or a pytree of "
            "such."
        )


def flat_outputs(f: Callable[[Any, Any], Any], params: Any, x: Any) -> Any:
    """f_θ(x) as one array (n, o): the leaves of the output side by side."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(call(f, params, x))]
    _refuse_none(leaves)
    parts = [leaf.reshape(leaf.shape[0], -1) for leaf in leaves]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)
