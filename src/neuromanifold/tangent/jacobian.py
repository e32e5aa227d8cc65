"""J = ∂f_θ(X)/∂θ, one row per (sample, output), columns in `ravel_pytree(params)` order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.numerics.precision import arithmetic, to_host
from neuromanifold.tangent.arguments import Model, checked


def jacobian(f: Model, params: Any, x: Any) -> Float[Any, "rows D"]:
    """The differential of θ ↦ f_θ(X) as a matrix (n·o, D), sample-major, in the widest dtype passed.

    >>> J = nm.jacobian(lambda params, x: params["a"] * x**2 + params["b"], {"a": 1.0, "b": 0.0}, np.array([2.0, 3.0]))
    >>> J.tolist()
    [[4.0, 1.0], [9.0, 1.0]]
    """
    with arithmetic():
        params, x = checked(f, params, x)
        return to_host(sample_jacobians(f, params, x).reshape(-1, n_columns(params)))


@jax.jit(static_argnums=0)
def sample_jacobians(f: Model, params: Any, x: Any) -> Float[Any, "n o D"]:
    """The Jacobian of each sample apart: row i of the model sees row i of x only."""

    def at_one(sample):
        leaves = jax.tree.leaves(jax.jacrev(lambda p: f(p, sample[None])[0].ravel())(params))
        return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)

    return jax.vmap(at_one)(x)


def n_columns(params: Any) -> int:
    """D: the number of parameters."""
    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(params))
