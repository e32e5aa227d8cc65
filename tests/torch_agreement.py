"""Whether a network in JAX and its module in PyTorch agree: outputs and gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from neuromanifold.numerics.precision import arithmetic, promote

RTOL = 1e-12


def as_numpy(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.detach().numpy(), tree, is_leaf=torch.is_tensor)


def doubled(x: Any) -> Any:
    return jax.tree.map(
        lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, x, is_leaf=torch.is_tensor
    )


def agree(a: Any, b: Any, rtol: float = RTOL) -> None:
    """Every leaf to `rtol` of its largest entry, or of a thousandth of the largest of all: a
    gradient may be zero in one leaf.
    """
    assert jax.tree.structure(a) == jax.tree.structure(b)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(b))
    for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.shape(u) == np.shape(v)
        assert np.abs(u - v).max() <= rtol * max(np.abs(v).max(), 1e-3 * largest)


def called(module: nn.Module, x: Any, **fixed: Any) -> Any:
    return module(**x, **fixed) if isinstance(x, dict) else module(x, **fixed)


def torch_gradient(
    module: nn.Module, x: Any, weights: list[np.ndarray], **fixed: Any
) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves(called(module, x, **fixed), is_leaf=torch.is_tensor)
    loss = sum((y * torch.from_numpy(w)).sum() for y, w in zip(leaves, weights, strict=True))
    named = dict(module.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()))
    return {name: g.numpy() for name, g in zip(named, found, strict=True)}


def jax_gradient(f: Any, params: Any, x: Any, weights: list[np.ndarray]) -> dict[str, Any]:
    def loss(params: Any) -> Any:
        return sum(
            jnp.sum(y * w) for y, w in zip(jax.tree.leaves(f(params, x)), weights, strict=True)
        )

    with arithmetic():
        return jax.tree.map(np.asarray, jax.jit(jax.grad(loss))(promote(params, np.float64)))
