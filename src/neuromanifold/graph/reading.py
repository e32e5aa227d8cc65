"""Functions of others, read and called without leaving anything behind.

JAX (0.10) remembers its own copy of every NumPy array that a traced function closes over, by the
array's identity and whatever the x64 flag, as long as some jaxpr holds the copy. A float64 constant
read while the flag is on would spoil every later `jax.jit` of its owner, and one read while it is
off every later reading with 64 bits. What is kept of a function therefore holds views of such
arrays: other objects, the same numbers.

Two things are computed with fewer bits on a GPU than float64 has (H200, JAX 0.11.2): the forward
derivative of a windowed maximum, which is given the rule of `graph.bends.take_extremes`, and GELU by tanh
after a matrix product, which XLA makes an epilogue of cuBLASLt with √(2/π) to eight digits where
Triton's products are left out (`numerics.compiling`): outputs are off by 1e-10. The latter is known
by its tanh; rounded to the 52 bits it has, tanh's argument is the same number and the pattern is no
longer recognised.
"""

import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.bends import take_extremes
from neuromanifold.graph.primitives import Primitive, primitive_named
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import dtype_of, is_wide
from neuromanifold.runtime.devices import devices


def fully_precise(closed: Any) -> Any:
    """Return the program with the operations that lose bits replaced; itself where it has none."""
    return Rewriting(equation=_replace_imprecise).closed(closed)


def is_fused(primitive: Primitive, dtype: Any) -> bool:
    """Whether XLA would take the operation for part of a less exact one here."""
    return primitive.fused_on_gpu and dtype == np.float64 and devices()[0].platform == "gpu"


def tanh(z: Any) -> Any:
    """tanh of float64, on its own."""
    return jnp.tanh(jax.lax.reduce_precision(z, exponent_bits=11, mantissa_bits=52))


def _replace_imprecise(equation: Any) -> Any:
    primitive = primitive_named(equation.primitive.name)
    sign = primitive.bend.pools if primitive.bend else 0
    dtype: Any = getattr(equation.outvars[0].aval, "dtype", None) if equation.outvars else None
    if sign and jnp.issubdtype(dtype, jnp.floating):
        return _exchange(equation, partial(take_extremes, sign, equation.params))
    return _exchange(equation, jax.jit(tanh)) if is_fused(primitive, dtype) else equation


def _exchange(equation: Any, function: Any) -> Any:
    """The equation with another function of its one argument."""
    given = equation.invars[0].aval
    inner = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(given.shape, given.dtype)).eqns[0]
    return inner.replace(invars=equation.invars, outvars=equation.outvars)


def _same(given: Any) -> Any:
    return given


@dataclass(frozen=True)
class Rewriting:
    """What becomes of each constant and of each equation, inner jaxprs first.

    JAX knows a jaxpr again by its identity, so what stays equal stays the same object.
    """

    constant: Callable[[Any], Any] = _same
    equation: Callable[[Any], Any] = _same

    def closed(self, closed: Any) -> Any:
        """A closed jaxpr, rewritten."""
        consts, jaxpr = (
            [self.constant(const) for const in closed.consts],
            self._rewrite(closed.jaxpr),
        )
        same = jaxpr is closed.jaxpr and all(
            a is b for a, b in zip(consts, closed.consts, strict=True)
        )
        return closed if same else jex.ClosedJaxpr(jaxpr, consts)

    def _rewrite(self, jaxpr: Any) -> Any:
        equations = [self.equation(self._within(equation)) for equation in jaxpr.eqns]
        outputs = [self._atom(atom) for atom in jaxpr.outvars]
        same = all(
            a is b
            for a, b in zip((*equations, *outputs), (*jaxpr.eqns, *jaxpr.outvars), strict=True)
        )
        return jaxpr if same else jaxpr.replace(eqns=equations, outvars=outputs)

    def _within(self, equation: Any) -> Any:
        atoms = [self._atom(atom) for atom in equation.invars]
        options = {name: self._option(option) for name, option in equation.params.items()}
        same = all(a is b for a, b in zip(atoms, equation.invars, strict=True))
        same &= all(options[name] is option for name, option in equation.params.items())
        return equation if same else equation.replace(invars=atoms, params=options)

    def _option(self, option: Any) -> Any:
        if isinstance(option, jex.ClosedJaxpr):
            return self.closed(option)
        if isinstance(option, jex.Jaxpr):
            return self._rewrite(option)
        if isinstance(option, tuple) and any(
            isinstance(part, jex.ClosedJaxpr | jex.Jaxpr) for part in option
        ):
            parts = [self._option(part) for part in option]
            if all(a is b for a, b in zip(parts, option, strict=True)):
                return option
            return tuple(parts) if type(option) is tuple else type(option)(*parts)
        return option

    def _atom(self, atom: Any) -> Any:
        if not isinstance(atom, jex.Literal) or (value := self.constant(atom.val)) is atom.val:
            return atom
        return jex.Literal(value, atom.aval)


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
        raise _explain(errors[0], arguments)
    return Rewriting(constant=_own).closed(closed), shapes


def _explain(error: Exception, arguments: tuple[Any, ...]) -> Exception:
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


def call(fn: Callable[..., Any], *arguments: Any) -> Any:
    """`fn(*arguments)`, by way of its jaxpr, in all the bits of its dtypes (`fully_precise`)."""
    closed, shapes = read(fn, *arguments)
    return _run(fully_precise(closed), shapes, arguments)


def as_written(fn: Callable[..., Any], *arguments: Any) -> Any:
    """`fn(*arguments)`, by way of its jaxpr, operation by operation."""
    return _run(*read(fn, *arguments), arguments)


def _run(closed: jex.ClosedJaxpr, shapes: Any, arguments: tuple[Any, ...]) -> Any:
    return jax.tree.unflatten(
        jax.tree.structure(shapes), jex.jaxpr_as_fun(closed)(*jax.tree.leaves(arguments))
    )


@compiled("fn")
def evaluate(fn: Callable[..., Any], *arguments: Any) -> Any:
    """`call` on arrays, compiled once for each function and shapes."""
    return call(fn, *arguments)


def _bare(fn: Any) -> Any:
    """Without the outermost `jax.jit`, whose reading JAX would keep."""
    return inspect.unwrap(fn, stop=lambda inner: not isinstance(inner, jax.stages.Wrapped))


def _own(array: Any) -> Any:
    """A view of a NumPy array that JAX holds as its own."""
    return array.view(np.ndarray) if isinstance(array, np.ndarray) else array
