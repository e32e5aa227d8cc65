"""The kernel of two sets of samples from their factors, by the routes of a plan."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.graph.factors import Factors, factors
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import products_are
from neuromanifold.runtime.devices import multiplies_float64_faster
from neuromanifold.tangent.kernel.routes import LARGE, Plan, Route, columns_together, is_large

_LONG = 2048
"""Sums of so many products repay the conversion to float64."""


@compiled("plan")
def factors_of(plan: Plan, params: Any, x: Any) -> Factors:
    """The factors at every sample."""
    uses = [route.use for route in plan.routes]
    return jax.vmap(lambda sample: factors(plan.graph, uses, plan.direct, params, sample))(x)


@compiled("plan", "kind", "same")
def kernel_block(
    plan: Plan, params: Any, x1: Any, x2: Any, *, kind: str, same: bool
) -> tuple[Any, Any]:
    """The kernel of two blocks of samples, and whether everything in it is finite."""
    left = factors_of(plan, params, x1)
    right = left if same else factors_of(plan, params, x2)
    kernel, finite = tile(plan, left, right, kind=kind, same=same)
    return kernel, finite & all_finite((params, x1, x2))


@jax.jit
def all_finite(tree: Any) -> Any:
    """Whether every number in the tree is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([jnp.bool_(True), *(jnp.isfinite(leaf).all() for leaf in leaves)]).all()


@compiled("plan", "kind", "same")
def tile(plan: Plan, left: Factors, right: Factors, *, kind: str, same: bool) -> tuple[Any, Any]:
    """The kernel from the factors of two blocks of samples, and whether it is finite."""
    kernel = combine(plan, left, left if same else right, kind)
    columns = kernel.shape[-1] if kind == "trace" else kernel.shape[-2] * kernel.shape[-1]
    matrix = kernel if kind == "diagonal" else kernel.reshape(-1, columns)
    matrix = _symmetric(matrix) if same else matrix
    return matrix, jnp.isfinite(matrix).all()


def _symmetric(matrix: Any) -> Any:
    """Behind a barrier, without which XLA computes the matrix once for itself and once for its
    transpose.
    """
    matrix = jax.lax.optimization_barrier(matrix)
    return (matrix + jax.lax.optimization_barrier(matrix.swapaxes(0, 1))) / 2


@compiled("plan")
def self_traces(plan: Plan, params: Any, x: Any) -> Any:
    """Tr Θ(x_i, x_i) at every sample."""

    def one(sample: Any) -> Any:
        mine = factors_of(plan, params, jax.tree.map(lambda a: a[None], sample))
        return combine(plan, mine, mine, "trace")[0, 0]

    return jax.vmap(one)(x)


def combine(plan: Plan, left: Factors, right: Factors, kind: str) -> Any:
    """(n1, o, n2, o), (n1, n2) summed over equal outputs, or (n1, n2, o) for each output."""
    total, blocks = (
        _zeros(plan, left, right, kind),
        list(zip(left.jacobians, right.jacobians, strict=True)),
    )
    factors = zip(
        plan.routes, left.inputs, left.cotangents, right.inputs, right.cotangents, strict=True
    )
    together = []
    for route, a, d, b, e in factors:
        if route.way == "block" and is_large(route, plan.outputs):
            total = _contracted_alone(total, a, d, b, e, kind)
        elif route.way == "block":
            one = _formed(a, d)
            blocks.append((one, one if d is e else _formed(b, e)))
        elif route.way == "gram" and kind == "all":
            together.append((route, a, d, b, e))
        else:
            total = total + _WAYS[route.way](route, a, d, b, e, kind)
    total = sum((_contracted(*pair, kind) for pair in blocks if _is_long(pair)), total)
    small = [pair for pair in blocks if not _is_long(pair)]
    if small:
        one, two = (jnp.concatenate(part, axis=2) for part in zip(*small, strict=True))
        total = total + _contracted(one, two, kind)
    return total + _by_columns(together) if together else total


def _contracted_alone(total: Any, a: Any, d: Any, b: Any, e: Any, kind: str) -> Any:
    """The kernel so far with one block more. Behind a barrier, so that the device holds one large
    block at a time.
    """
    same = d is e
    total, ours, theirs = jax.lax.optimization_barrier((total, (a, d), () if same else (b, e)))
    one = _formed(*ours)
    return total + _contracted(one, one if same else _formed(*theirs), kind)


def _is_long(pair: tuple[Any, Any]) -> bool:
    return math.prod(pair[0].shape[1:]) >= LARGE


def _zeros(plan: Plan, left: Factors, right: Factors, kind: str) -> Any:
    """The kernel of a network whose parameters change nothing."""
    n, m, o = left.samples.shape[0], right.samples.shape[0], plan.outputs
    shape = {"all": (n, o, m, o), "trace": (n, m), "diagonal": (n, m, o)}[kind]
    return jnp.zeros(shape, left.samples.dtype)


def _formed(a: Any, d: Any) -> Any:
    """G = Σ_t d_t ⊗ a_t, flat: (n, o, size)."""
    G = jnp.einsum("nobtc,nbtk->nobck", d, a)
    return G.reshape(*G.shape[:2], -1)


def _contracted(one: Any, two: Any, kind: str) -> Any:
    if kind == "trace":
        return _full(one.reshape(one.shape[0], -1), two.reshape(two.shape[0], -1))
    if kind == "diagonal":
        return jnp.einsum("ioe,joe->ijo", one, two)
    return jnp.tensordot(one, two, axes=((2,), (2,)))


def _full(one: Any, two: Any) -> Any:
    """one·twoᵀ; long float32 products of full precision go through float64 on devices that
    multiply it faster.
    """
    full = one.dtype == jnp.float32 and products_are("highest")
    if full and one.shape[1] >= _LONG and multiplies_float64_faster():
        return (one.astype(jnp.float64) @ two.astype(jnp.float64).T).astype(jnp.float32)
    return one @ two.T


def _hadamard(route: Route, a: Any, d: Any, b: Any, e: Any, kind: str) -> Any:
    """(a·a′ + [bias]) (d·d′). The barrier keeps XLA from fusing the two products, whose
    autotuning on a GPU takes minutes.
    """
    gram = a[:, 0, 0] @ b[:, 0, 0].T
    gram = gram if route.use.constant is None else gram + 1.0
    slopes = _contracted(d[:, :, 0, 0], e[:, :, 0, 0], kind)
    gram, slopes = jax.lax.optimization_barrier((gram, slopes))
    shape = {
        "trace": gram.shape,
        "diagonal": (*gram.shape, 1),
        "all": (gram.shape[0], 1, gram.shape[1], 1),
    }[kind]
    return gram.reshape(shape) * slopes


def _gram(route: Route, a: Any, d: Any, b: Any, e: Any, kind: str) -> Any:
    S = _similarities(route, a, b, d.dtype)
    if kind == "trace":
        return jnp.einsum("nbtms,nbtms->nm", S, jnp.einsum("nobtc,mobsc->nbtms", d, e))
    return jnp.einsum("nbtms,nobtc,mobsc->nmo", S, d, e)


def _similarities(route: Route, a: Any, b: Any, dtype: Any) -> Any:
    """a_t·a′_s as (n, b, t, m, s); of two looked-up rows whether they are the same."""
    if route.use.is_lookup:
        ours, theirs = a[:, :, :, None, None, 0], jnp.moveaxis(b[..., 0], 0, 1)[None, :, None]
        return ((ours == theirs) & (ours >= 0)).astype(dtype)
    return jnp.einsum("nbtk,mbsk->nbtms", a, b)


def _by_columns(factors: Sequence[tuple[Route, Any, Any, Any, Any]]) -> Any:
    """`gram` for all pairs of outputs, of all these uses at once, one sample of the right side (on
    a GPU 16) after the other.

    Y = Σ_t (a_t·a′_s) d_t is as large as d, not as all pairs of samples, and each step ends in one
    large product with the sample's d′. The left side stays as the devices share it.
    """
    routes, inputs, cotangents, others, ends = zip(*factors, strict=True)

    def column(right: tuple[Any, Any]) -> Any:
        total: Any = 0.0
        for route, a, d, b, e in zip(routes, inputs, cotangents, *right, strict=True):
            S = _similarities(route, a, b[None], d.dtype)[:, :, :, 0]
            total = total + jnp.einsum("nobsc,pbsc->nop", jnp.einsum("nbts,nobtc->nobsc", S, d), e)
        return total

    return jnp.einsum(
        "mnop->nomp", jax.lax.map(column, (others, ends), batch_size=columns_together())
    )


_WAYS = {"hadamard": _hadamard, "gram": _gram}
