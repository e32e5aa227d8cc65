"""J = ∂f_θ(X)/∂θ, one row per (sample, output), columns in `ravel_pytree(params)` order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.selection import Selection, select
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import boundary


def jacobian(f: Model, params: Params, x: Samples, *, wrt: Any = None) -> Float[Any, "rows D"]:
    """Return the derivatives of all outputs at all samples by all parameters: a matrix (n·o, D),
    sample-major, in the widest dtype passed.

    `wrt` picks the parameters that count (see `nm.tangent.select`); the others are constants.

    >>> J = nm.jacobian(lambda params, x: params["a"] * x**2 + params["b"], {"a": 1.0, "b": 0.0}, np.array([2.0, 3.0]))
    >>> J.tolist()
    [[4.0, 1.0], [9.0, 1.0]]
    """
    with boundary(params, x) as leave:
        params, x = check_arguments(f, params, x)
        chosen = select(params, wrt)
        return leave(sample_jacobians(f, params, x, chosen).reshape(-1, chosen.size))


@compiled("f", "chosen")
def sample_jacobians(
    f: Model, params: Any, x: Any, chosen: Selection | None = None
) -> Float[Any, "n o D"]:
    """The Jacobian of each sample apart: row i of the model sees row i of x only."""
    chosen = select(params, None) if chosen is None else chosen
    mine, rebuild = chosen.split(params)

    def at_one(sample: Any):
        row = jax.tree.map(lambda a: a[None], sample)
        blocks = jax.jacrev(lambda mine: flat_outputs(f, rebuild(mine), row)[0])(mine)
        return jnp.concatenate([block.reshape(block.shape[0], -1) for block in blocks], axis=1)

    return jax.vmap(at_one)(x)


def n_columns(params: Any) -> int:
    """D: the number of parameters."""
    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(params))
