"""Functions of others at the precision they are written in, on every device.

Two things are computed with fewer bits on a GPU than float64 has (H200, JAX 0.11.2): the forward
derivative of a windowed maximum, which is given the rule of `graph.bends.pooled`, and GELU by tanh after
a matrix product, which XLA makes an epilogue of cuBLASLt with √(2/π) to eight digits where Triton's
products are left out (`numerics.compiling`): outputs are off by 1e-10. The latter is known by its
tanh; rounded to the 52 bits it has, tanh's argument is the same number and the pattern is no longer
recognised.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.bends import pooled
from neuromanifold.graph.primitives import Primitive, primitive_named
from neuromanifold.graph.rewriting import Rewriting
from neuromanifold.runtime.devices import devices


def steadied(closed: Any) -> Any:
    """The same program with these operations replaced; itself where it has none."""
    return Rewriting(equation=_steady).closed(closed)


def fused(primitive: Primitive, dtype: Any) -> bool:
    """Whether XLA would take the operation for part of a less exact one here."""
    return primitive.fused_on_gpu and dtype == np.float64 and devices()[0].platform == "gpu"


def tanh(z: Any) -> Any:
    """tanh of float64, on its own."""
    return jnp.tanh(jax.lax.reduce_precision(z, exponent_bits=11, mantissa_bits=52))


def _steady(equation: Any) -> Any:
    primitive = primitive_named(equation.primitive.name)
    sign = primitive.bend.pools if primitive.bend else 0
    dtype: Any = getattr(equation.outvars[0].aval, "dtype", None) if equation.outvars else None
    if sign and jnp.issubdtype(dtype, jnp.floating):
        return _exchanged(equation, partial(pooled, sign, equation.params))
    return _exchanged(equation, jax.jit(tanh)) if fused(primitive, dtype) else equation


def _exchanged(equation: Any, function: Any) -> Any:
    """The equation with another function of its one argument."""
    given = equation.invars[0].aval
    inner = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(given.shape, given.dtype)).eqns[0]
    return inner.replace(invars=equation.invars, outvars=equation.outvars)
