"""`empirical_nngp`: the covariance of a finite network's outputs."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from neuromanifold.models.arguments import Model, checked
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.precision import boundary


def empirical_nngp(f: Model, params: Any, x1: Any, x2: Any = None) -> Float[Any, "n1 n2"]:
    """The mean over the o outputs of f_a(x1_i) f_a(x2_j): one network's estimate of `nm.nngp`, off by a relative 1/√o and 1/√width.

    >>> nm.empirical_nngp(lambda params, x: params * x, 2.0, np.array([[1.0, 3.0]])).tolist()      # (2² + 6²)/2
    [[20.0]]
    """
    with boundary(params, x1, x2) as leave:
        params, x1, *more = checked(f, params, x1, *([] if x2 is None else [x2]))
        left = flat_outputs(f, params, x1)
        right = flat_outputs(f, params, more[0]) if more else left
        return leave(jnp.matmul(left, right.T) / left.shape[1])
