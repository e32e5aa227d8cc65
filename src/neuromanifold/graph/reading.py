"""Functions of others, read and called without leaving anything behind.

JAX (0.10) remembers its own copy of every NumPy array that a traced function closes over, by the
array's identity and whatever the x64 flag, as long as some jaxpr holds the copy. A float64 constant
read while the flag is on would spoil every later `jax.jit` of its owner, and one read while it is
off every later reading with 64 bits. What is kept of a function therefore holds views of such
arrays: other objects, the same numbers.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.gpu_precision import steadied
from neuromanifold.graph.rewriting import Rewriting
from neuromanifold.numerics.precision import dtype_of, is_wide


def read(fn: Callable[..., Any], *arguments: Any) -> tuple[jex.ClosedJaxpr, Any]:
    """The jaxpr of `fn` at arguments of these shapes, and the shapes of what it returns.

    Arguments of 32 bits are what `fn` gets without the x64 flag, and so it is read: its own
    constants have 32 bits then.
    """
    errors: list[Exception] = []

    # A function of our own: JAX keeps what it read of `fn` itself as long as `fn` lives, and what
    # it has not read to its end for ever.
    def given(*arguments: Any) -> Any:
        try:
            return _bare(fn)(*arguments)
        except Exception as error:
            errors.append(error)

    with jax.enable_x64(
        is_wide() and any(dtype_of(leaf).itemsize >= 8 for leaf in jax.tree.leaves(arguments))
    ):
        closed, shapes = jax.make_jaxpr(given, return_shape=True)(*arguments)
    if errors:
        raise _explained(errors[0], arguments)
    return Rewriting(constant=_own).closed(closed), shapes


def _explained(error: Exception, arguments: tuple[Any, ...]) -> Exception:
    """Our own sentences as they are; an error of the model's author as one of `f`, with what the
    function was given.
    """
    known = (str(error), *getattr(error, "__notes__", ()))
    if any(text.startswith("`") for text in known):
        return error
    given = ", ".join(
        f"{dtype_of(leaf)}{list(np.shape(leaf))}" for leaf in jax.tree.leaves(arguments[1:])
    )
    first = next(iter(str(error).splitlines()), "").rstrip(".")
    said = (
        f"`f` raises {type(error).__name__} ({first}){_place(error)}, called as f(params, x) with "
        f"x = {given} and parameters in the same precision; it is made of JAX operations (jnp, "
        "not np; jnp.where, not if) and leaves dtypes to its arguments."
    )
    mended = (TypeError if isinstance(error, TypeError) else ValueError)(said)
    mended.__cause__ = error
    return mended


def _place(error: Exception) -> str:
    """The last line outside JAX and this package on the way to an error."""
    roots = (Path(jax.__file__).parent, Path(__file__).parents[1])
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(root in Path(frame.filename).parents for root in roots)
    ]
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def coarsest(fn: Callable[..., Any], *arguments: Any) -> float:
    """The largest unit of rounding among the floating dtypes that `fn` computes in: a model may
    be narrower inside than its arguments.
    """
    found = [
        dtype
        for dtype in _dtypes(read(fn, *arguments)[0].jaxpr)
        if jnp.issubdtype(dtype, jnp.floating)
    ]
    return max((float(jnp.finfo(dtype).eps) for dtype in found), default=0.0)


def _dtypes(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield from (value.aval.dtype for value in equation.outvars if hasattr(value.aval, "dtype"))
        options = jax.tree.leaves(
            tuple(equation.params.values()),
            is_leaf=lambda a: isinstance(a, jex.ClosedJaxpr | jex.Jaxpr),
        )
        for option in options:
            if isinstance(option, jex.ClosedJaxpr | jex.Jaxpr):
                yield from _dtypes(getattr(option, "jaxpr", option))


def called(fn: Callable[..., Any], *arguments: Any) -> Any:
    """`fn(*arguments)`, by way of its jaxpr, in all the bits of its dtypes (`graph.steady`)."""
    closed, shapes = read(fn, *arguments)
    return _run(steadied(closed), shapes, arguments)


def as_written(fn: Callable[..., Any], *arguments: Any) -> Any:
    """`fn(*arguments)`, by way of its jaxpr, operation by operation."""
    return _run(*read(fn, *arguments), arguments)


def _run(closed: jex.ClosedJaxpr, shapes: Any, arguments: tuple[Any, ...]) -> Any:
    return jax.tree.unflatten(
        jax.tree.structure(shapes), jex.jaxpr_as_fun(closed)(*jax.tree.leaves(arguments))
    )


@functools.partial(jax.jit, static_argnums=0)
def evaluated(fn: Callable[..., Any], *arguments: Any) -> Any:
    """`called` on arrays, compiled once for each function and shapes."""
    return called(fn, *arguments)


def _bare(fn: Any) -> Any:
    """Without the outermost `jax.jit`, whose reading JAX would keep."""
    return inspect.unwrap(fn, stop=lambda inner: not isinstance(inner, jax.stages.Wrapped))


def _own(array: Any) -> Any:
    """A view of a NumPy array that JAX holds as its own."""
    return array.view(np.ndarray) if isinstance(array, np.ndarray) else array
