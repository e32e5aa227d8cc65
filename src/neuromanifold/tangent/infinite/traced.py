"""Infinite-width kernels of samples that JAX is tracing: one block, differentiable."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.precision import arithmetic, is_traced
from neuromanifold.tangent.infinite.deviations import deviations
from neuromanifold.tangent.infinite.plan import first_orders, next_orders
from neuromanifold.tangent.infinite.program import Program, own_pass, pair_pass, poison

Arguments = tuple[Any, Any, Any, Any]


def traced_kernels(
    it: Program, x1: Any, x2: Any, weight_std: Any, bias_std: Any, *, tangent: bool
) -> tuple[Any, Any | None]:
    """(NNGP, NTK or `None`) in float64, as float32 where the caller's JAX has no float64. Call inside `arithmetic`.

    There the derivative is computed inside `arithmetic` as well: what JAX transposes outside of it would be narrowed half-way.
    """
    leaves, structure = jax.tree.flatten((x1, x2, weight_std, bias_std))
    it = _settled(it, *jax.lax.stop_gradient((x1, x2, weight_std, bias_std)))

    def compute(*leaves: Any) -> Any:
        wide = [jnp.asarray(leaf, jnp.float64) for leaf in leaves]
        return _one_block(it, *jax.tree.unflatten(structure, wide), tangent=tangent)

    if all(jnp.result_type(leaf) == jnp.float64 for leaf in leaves if isinstance(leaf, jax.Array)):
        return compute(*leaves)
    return _narrow(compute, [jnp.asarray(leaf, jnp.float32) for leaf in leaves])


def _narrow(compute: Any, leaves: list[Any]) -> Any:
    @jax.custom_vjp
    def call(*leaves: Any) -> Any:
        with arithmetic():
            return _cast(compute(*leaves), jnp.float32)

    def forward(*leaves: Any) -> Any:
        return call(*leaves), leaves

    def backward(leaves: Any, cotangent: Any) -> Any:
        with arithmetic():
            _, pull = jax.vjp(compute, *_cast(leaves, jnp.float64))
            return tuple(_cast(pull(_cast(cotangent, jnp.float64)), jnp.float32))

    call.defvjp(forward, backward)
    return call(*leaves)


def _cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)


def _one_block(it: Program, x1: Any, x2: Any, weight_std: Any, bias_std: Any, *, tangent: bool) -> tuple[Any, Any]:
    spreads = deviations(it.layers, weight_std, bias_std)
    same = x2 is None
    x2 = x1 if same else x2
    errors, own = [], ((), ())
    if it.asks:
        first = own_pass(it, x1, spreads)
        second = first if same else own_pass(it, x2, spreads)
        errors += [*first[1], *second[1]]
        own = (first[0], second[0])
    *kernels, pair_errors = pair_pass(it, x1, x2, spreads, own, same=same, tangent=tangent)
    kernels = [poison(kernel, (*errors, *pair_errors), it.quadrature.rtol) for kernel in kernels]
    return kernels[0], kernels[1]


def _settled(it: Program, x1: Any, x2: Any, weight_std: Any, bias_std: Any) -> Program:
    """The numbers of nodes from the values, where only derivatives are being traced."""
    if is_traced((x1, x2, weight_std, bias_std)):
        return it.with_orders((it.quadrature.blind,) * len(it.activations))
    spreads = deviations(it.layers, weight_std, bias_std)
    samples = [np.asarray(x, np.float64) for x in (x1, x2) if x is not None]
    it = it.with_orders(first_orders(it, max(float((x**2).mean(axis=-1).max()) for x in samples), spreads))
    while it.asks:
        errors = np.max([np.asarray(own_pass(it, x, spreads)[1], np.float64) for x in samples], axis=0)
        more = next_orders(it, errors)
        if more is None:
            break
        it = it.with_orders(more)
    return it
