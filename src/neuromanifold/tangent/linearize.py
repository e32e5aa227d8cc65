"""The network to first order in its parameters."""

from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.arguments import Model
from neuromanifold.models.function import FunctionModel
from neuromanifold.numerics.precision import arithmetic, is_traced, promote, to_host, widest
from neuromanifold.numerics.validation import check_params


def linearize(f: Any, params: Any) -> FunctionModel:
    """The first-order model  f_lin(θ, x) = f(θ₀, x) + J(x)(θ − θ₀).   [teleport, Eq. 6]

    A model like any other, linear in θ, with the tangent kernel of f at θ₀ wherever θ is. One JVP, never a Jacobian.

    >>> line = linearize(lambda params, x: params**2 * x, 3.0)      # θ² ≈ 9 + 6 (θ − 3)
    >>> line(4.0, np.array([[1.0]])).tolist()
    [[15.0]]
    """
    if not callable(f):
        raise TypeError(f"`f` is a {type(f).__name__}; pass a model or any function (params, x) → y.")
    check_params(params)
    structure = jax.tree.structure(params)

    def linear(moved: Any, x: Any) -> Any:
        if jax.tree.structure(moved) != structure:
            raise ValueError(
                f"`params` has the structure {jax.tree.structure(moved)} but the model was linearized at {structure}; "
                "pass parameters of the same network."
            )
        if is_traced((params, moved, x)):
            return first_order(f, params, moved, x)
        with arithmetic():
            dtype = widest(params, moved, x)
            return to_host(first_order(f, *(promote(argument, dtype) for argument in (params, moved, x))))

    return FunctionModel(linear, name=f"linearized {getattr(f, 'name', type(f).__name__)}")


def first_order(f: Model, params0: Any, params: Any, x: Any) -> Any:
    """f(θ₀, x) + J(x)(θ − θ₀) with θ₀ an argument like the others: what `vmap` over many nets and their twins needs."""
    dtypes = jax.tree.map(lambda leaf: jnp.result_type(leaf), params0)
    step = jax.tree.map(lambda p, p0, dtype: (p - p0).astype(dtype), params, params0, dtypes)
    value, change = jax.jvp(lambda p: f(p, x), (params0,), (step,))
    return value + change
