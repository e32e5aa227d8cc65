"""Infinite-width kernels of samples that JAX is tracing: one block, differentiable."""

from typing import Any

import jax
import numpy as np

from neuromanifold.numerics.precision import in_float64, is_traced
from neuromanifold.tangent.infinite.deviations import deviations
from neuromanifold.tangent.infinite.plan import first_orders, next_orders
from neuromanifold.tangent.infinite.program import (
    Program,
    diagonal_pass,
    own_pass,
    pair_pass,
    poison,
)


def traced_kernels(
    it: Program, x1: Any, x2: Any, weight_std: Any, bias_std: Any, *, tangent: bool
) -> tuple[Any, Any | None]:
    """(NNGP, NTK or `None`) in float64, as float32 where the caller's JAX has no float64. Call
    inside `arithmetic`.
    """
    it = _settled(it, *jax.lax.stop_gradient((x1, x2, weight_std, bias_std)))
    return in_float64(
        lambda *arguments: _one_block(it, *arguments, tangent=tangent), x1, x2, weight_std, bias_std
    )


def _one_block(
    it: Program, x1: Any, x2: Any, weight_std: Any, bias_std: Any, *, tangent: bool
) -> tuple[Any, Any]:
    spreads = deviations(it.layers, weight_std, bias_std)
    same = x2 is None
    x2 = x1 if same else x2
    errors, own = [], ((), ())
    if it.diagonal:
        *kernels, pair_errors = diagonal_pass(it, x1, spreads, tangent=tangent)
        return tuple(poison(kernel, pair_errors, it.quadrature.rtol) for kernel in kernels)  # pyright: ignore[reportReturnType]
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
    it = it.with_orders(
        first_orders(it, max(float((x**2).mean(axis=-1).max()) for x in samples), spreads)
    )
    while it.asks:
        errors = np.max(
            [np.asarray(own_pass(it, x, spreads)[1], np.float64) for x in samples], axis=0
        )
        more = next_orders(it, errors)
        if more is None:
            break
        it = it.with_orders(more)
    return it
