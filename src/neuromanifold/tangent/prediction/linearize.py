"""The network to first order in its parameters, or to any order."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import Model, Params, check_model
from neuromanifold.models.function import FunctionModel
from neuromanifold.numerics.precision import boundary, full_products, is_traced, promote, widest
from neuromanifold.numerics.validation import check_params
from neuromanifold.runtime.pickling import ByName

_HIGHEST = 16
"""Derivatives are JVPs of JVPs: 2¹⁶ evaluations of f for the last one."""


def linearize(f: Model, params: Params, *, order: int = 1) -> FunctionModel:
    """Return the first-order model  f_lin(θ, x) = f(θ₀, x) + J(x)(θ − θ₀), or the Taylor polynomial
    of higher `order`.   [teleport, Eq. 6]

    A model like any other. To first order it is linear in θ, with the tangent kernel of f at θ₀
    wherever θ is. One JVP, never a Jacobian; the k-th derivative along θ − θ₀ is k nested JVPs,
    whose cost doubles with k.

    >>> line = linearize(lambda params, x: params**2 * x, 3.0)      # θ² ≈ 9 + 6 (θ − 3)
    >>> line(4.0, np.array([[1.0]])).tolist()
    [[15.0]]
    >>> linearize(lambda params, x: params**2 * x, 3.0, order=2)(4.0, np.array([[1.0]])).tolist()
    [[16.0]]
    """
    check_model(f)
    if not isinstance(order, int) or order < 0:
        raise ValueError(f"`order` is {order!r}; pass a whole number, zero or more.")
    if order > _HIGHEST:
        raise ValueError(
            f"`order` is {order}, and each order doubles the work; pass at most {_HIGHEST}."
        )
    check_params(params)
    kind = "linearized" if order == 1 else f"order-{order} Taylor expansion of"
    return FunctionModel(
        _Expanded(f, params, order), name=f"{kind} {getattr(f, 'name', type(f).__name__)}"
    )


@dataclass(frozen=True, eq=False)
class _Expanded(ByName):
    """The Taylor polynomial of f at `params`, as a function of other parameters."""

    f: Any
    params: Any
    order: int

    def __call__(self, moved: Any, x: Any) -> Any:
        structure = jax.tree.structure(self.params)
        if jax.tree.structure(moved) != structure:
            raise ValueError(
                f"`params` has the structure {jax.tree.structure(moved)} but the model was "
                f"linearized at {structure}; "
                "pass parameters of the same network."
            )
        if is_traced((self.params, moved, x)):
            with full_products():
                return taylor(self.f, self.params, moved, x, self.order)
        with boundary(self.params, moved, x) as leave:
            dtype = widest(self.params, moved, x)
            start, end, sample = (promote(argument, dtype) for argument in (self.params, moved, x))
            return leave(taylor(self.f, start, end, sample, self.order))


def first_order(f: Model, params0: Any, params: Any, x: Any) -> Any:
    """f(θ₀, x) + J(x)(θ − θ₀) with θ₀ an argument like the others: what `vmap` over many nets
    and their twins needs.
    """
    return taylor(f, params0, params, x, 1)


def taylor(f: Model, params0: Any, params: Any, x: Any, order: int) -> Any:
    """Σ_{k ≤ order} (1/k!) dᵏ/dsᵏ f(θ₀ + s(θ − θ₀), x) at s = 0."""
    dtypes = jax.tree.map(lambda leaf: jnp.result_type(leaf), params0)
    step = jax.tree.map(lambda p, p0, dtype: (p - p0).astype(dtype), params, params0, dtypes)
    if order == 1:
        value, change = jax.jvp(lambda p: call(f, p, x), (params0,), (step,))
        return value + change

    def along(s: Any) -> Any:
        return call(f, jax.tree.map(lambda p0, d: p0 + s.astype(d.dtype) * d, params0, step), x)

    start = jnp.zeros((), jax.tree.leaves(step)[0].dtype)
    return sum(term / math.factorial(k) for k, term in enumerate(_derivatives(along, start, order)))


def _derivatives(function: Callable[[Any], Any], s: Any, order: int) -> list[Any]:
    """The function and its first `order` derivatives, each a JVP of the one before."""
    found = [function(s)]
    for _ in range(order):
        function = _derivative(function)
        found.append(function(s))
    return found


def _derivative(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda s: jax.jvp(function, (s,), (jnp.ones_like(s),))[1]
