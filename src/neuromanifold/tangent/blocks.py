"""How one block of the kernel is computed: by layer structure, by Jacobian contraction, or by NTK–vector products."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from neuromanifold.models.function import output_shape
from neuromanifold.models.mlp import MLP
from neuromanifold.tangent.arguments import Model
from neuromanifold.tangent.factors import layer_factors
from neuromanifold.tangent.jacobian import n_columns, sample_jacobians


class Strategy(NamedTuple):
    """A way to a kernel block: what to prepare for the rows and for the columns, and how to combine them."""

    name: str
    left: Callable[[Any, Any], Any]
    right: Callable[[Any, Any], Any]
    kernel: Callable[[Any, Any, Any, bool], Any]
    bytes_per_sample: float


def choose_strategy(f: Model, params: Any, x: Any, *, trace: bool) -> Strategy:
    """The structured kernel for an MLP; otherwise the cheaper of the two generic ways, by counting operations.

    With C the cost of f at one sample and o outputs, a pair of samples costs 2o²D by contraction (2oD summed over
    outputs) and about 3oC by products.
    """
    if isinstance(f, MLP):
        return _structured(f, params, trace)
    outputs, columns = math.prod(output_shape(f, params, x)), n_columns(params)
    by_contraction = 2 * columns * (1 if trace else outputs)
    return (_contraction if by_contraction <= 3 * _operations(f, params, x) else _products)(f, params, x, trace)


def _operations(f: Model, params: Any, x: Any) -> float:
    """Floating-point operations of f at one sample, as XLA counts them."""
    one = jax.eval_shape(lambda x: x[:1], x)
    analysis = jax.jit(f).lower(params, one).cost_analysis()
    return float((analysis or {}).get("flops", math.inf))


def _itemsize(params: Any) -> int:
    return jax.tree.leaves(params)[0].dtype.itemsize


def _structured(net: MLP, params: Any, trace: bool) -> Strategy:
    def factors(params, x):
        return _mlp_factors(net, params, x)

    def kernel(params, left, right, symmetric):
        return _mlp_kernel(left, right, net.bias, trace, symmetric)

    stored = sum(net.widths[:-1]) + net.widths[-1] * sum(net.widths[1:])
    return Strategy("layer structure", factors, factors, kernel, 3.0 * stored * _itemsize(params))


_mlp_factors = jax.jit(layer_factors, static_argnums=0)


@functools.partial(jax.jit, static_argnames=("bias", "trace", "symmetric"))
def _mlp_kernel(left, right, bias: bool, trace: bool, symmetric: bool) -> Any:
    """Σ_l (a_l·a_l' + [bias]) (d_l·d_l'), the sum over layers of Hadamard products of Gram matrices."""
    total = 0.0
    for one, two in zip(left, right, strict=True):
        gram = one.a @ two.a.T + (1.0 if bias else 0.0)
        if trace:
            total += gram * (_rows(one.d) @ _rows(two.d).T)
        else:
            slopes = jnp.tensordot(one.d, two.d, axes=((2,), (2,)))
            total += gram[:, None, :, None] * slopes
    return _finished(total, symmetric)


def _rows(a: Any) -> Any:
    return a.reshape(a.shape[0], -1)


def _finished(kernel: Any, symmetric: bool) -> Any:
    matrix = kernel.reshape(math.prod(kernel.shape[: kernel.ndim // 2]), -1)
    return (matrix + matrix.T) / 2 if symmetric else matrix


def _contraction(f: Model, params: Any, x: Any, trace: bool) -> Strategy:
    def jacobians(params, x):
        return sample_jacobians(f, params, x)

    def kernel(params, left, right, symmetric):
        return _contract(left, right, trace, symmetric)

    stored = 3.0 * math.prod(output_shape(f, params, x)) * n_columns(params)
    return Strategy("Jacobian contraction", jacobians, jacobians, kernel, stored * _itemsize(params))


@functools.partial(jax.jit, static_argnames=("trace", "symmetric"))
def _contract(left, right, trace: bool, symmetric: bool) -> Any:
    if trace:
        return _finished(_rows(left) @ _rows(right).T, symmetric)
    return _finished(jnp.tensordot(left, right, axes=((2,), (2,))), symmetric)


def _products(f: Model, params: Any, x: Any, trace: bool) -> Strategy:
    def gradients(params, x):
        return sample_jacobians(f, params, x)

    def kernel(params, left, right, symmetric):
        return _push(f, params, left, right, trace, symmetric)

    stored = 3.0 * math.prod(output_shape(f, params, x)) * n_columns(params)
    return Strategy("NTK–vector products", lambda params, x: x, gradients, kernel, stored * _itemsize(params))


@functools.partial(jax.jit, static_argnames=("f", "trace", "symmetric"))
def _push(f: Model, params, x, gradients, trace: bool, symmetric: bool) -> Any:
    """Column (j, b) is the JVP of f(·, x) along ∇f_b(x_j)."""
    flat, unravel = ravel_pytree(params)

    def along(gradient):
        tangent = jax.jvp(lambda p: f(unravel(p), x), (flat,), (gradient,))[1]
        return tangent.reshape(x.shape[0], -1)

    columns = jax.vmap(jax.vmap(along))(gradients)  # (n2, o, n1, o)
    if trace:
        return _finished(jnp.einsum("jbib->ij", columns), symmetric)
    return _finished(columns.transpose(2, 3, 0, 1), symmetric)
