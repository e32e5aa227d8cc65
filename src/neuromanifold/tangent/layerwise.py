"""Parts and relatives of the empirical kernel: what each layer contributes, and the covariance of the outputs themselves."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from neuromanifold.models.arguments import Model, checked
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.precision import boundary
from neuromanifold.tangent.ntk import ntk


def ntk_by_layer(f: Model, params: Any, x1: Any, x2: Any = None, **options: Any) -> dict[str, Any]:
    """The kernel apart by layers, Θ = Σ_l Θ_l, each under the name of its branch of `params`; `options` are those of `nm.ntk`.

    A layer is the parameters that share all of their path but the last step: `0` holds `0.weight` and `0.bias`.

    >>> parts = nm.ntk_by_layer(nm.MLP((1, 2, 1)), nm.MLP((1, 2, 1)).init(key=jax.random.key(0)), np.ones((3, 1)))
    >>> list(parts), parts["0"].shape
    (['0', '1'], (3, 3))
    """
    return {name: ntk(f, params, x1, x2, wrt=chosen, **options) for name, chosen in _layers(params).items()}


def _layers(params: Any) -> dict[str, Any]:
    """For each layer the truth values that pick it."""
    paths, structure = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(path[:-1] or path, simple=True, separator=".") for path, _ in paths]
    return {name: structure.unflatten([other == name for other in names]) for name in dict.fromkeys(names)}


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
