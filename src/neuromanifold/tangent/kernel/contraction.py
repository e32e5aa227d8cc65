"""The kernel of two sets of samples from their factors, by the routes of a plan."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from neuromanifold.graph.factors import Factors, factors
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import products_are
from neuromanifold.runtime.devices import devices, multiplies_float64_faster
from neuromanifold.tangent.kernel.routes import (
    LARGE,
    Plan,
    Route,
    columns_together,
    is_large,
    strip_rows,
)

_LONG = 2048
"""Sums of so many products repay the conversion to float64."""
_FEWEST_ROWS, _MOST_STRIPS = 256, 4
"""Of a symmetric kernel on a processor. Products of fewer rows are slow, more strips save little:
causal attention 1.3–1.4 times as fast, a recurrent cell's 640 rows 1.04, 1,280 rows 1.3.
"""


@compiled("plan", "together")
def factors_of(plan: Plan, params: Any, x: Any, *, together: int | None = None) -> Factors:
    """The factors at every sample, of so many at once; of all where it is None."""
    uses = [route.use for route in plan.routes]

    def one(sample: Any) -> Factors:
        return factors(plan.graph, uses, plan.direct, params, sample)

    return jax.vmap(one)(x) if together is None else jax.lax.map(one, x, batch_size=together)


@compiled("plan", "kind", "same", "together")
def kernel_block(
    plan: Plan, params: Any, x1: Any, x2: Any, *, kind: str, same: bool, together: int | None = None
) -> tuple[Any, Any]:
    """The kernel of two blocks of samples, and whether everything in it is finite."""
    left = factors_of(plan, params, x1, together=together)
    right = left if same else factors_of(plan, params, x2, together=together)
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
    matrix = combine(plan, left, left if same else right, kind)
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


class Ready(NamedTuple):
    """What tiles of the kernel are made of: inputs and cotangents of the routes in `ways` order,
    and blocks of the Jacobian (n, o, size).
    """

    uses: tuple[tuple[Any, Any], ...]
    blocks: tuple[Any, ...]


def combine(plan: Plan, left: Factors, right: Factors, kind: str) -> Any:
    """(n1·o, n2·o), (n1, n2) summed over equal outputs, or (n1, n2, o) for each output; symmetric
    where both sides are one.
    """
    same = left is right
    n, m, o = left.samples.shape[0], right.samples.shape[0], plan.outputs
    shape = {"all": (n * o, m * o), "trace": (n, m), "diagonal": (n, m, o)}[kind]
    total = jnp.zeros(shape, left.samples.dtype)
    for k, route in enumerate(plan.routes):
        if route.way != "block" or not is_large(route, o):
            continue
        mine, theirs = ((f.inputs[k], f.cotangents[k]) for f in (left, right))
        total = _with_block(plan, total, route, mine, None if same else theirs, kind)
    rest = _ready(plan, left)
    if not rest.uses and not rest.blocks:
        return total
    return total + _kernel(plan, rest, rest if same else _ready(plan, right), kind)


def _with_block(
    plan: Plan, total: Any, route: Route, mine: Any, theirs: Any | None, kind: str
) -> Any:
    """Plus the part of a large block, whose outer rows are formed strip after strip: the device
    holds one strip at a time.

    Behind a barrier for those that heed it, in a loop for XLA's CPU, which forms what does not
    depend on a loop as early as it can.
    """
    total, mine, theirs = jax.lax.optimization_barrier((total, mine, theirs))
    outer, rows = route.use.outer, strip_rows(route, plan.outputs)
    count = -(-outer // rows)

    def padded(factors: Any) -> Any:
        a, d = factors
        return a, jnp.pad(d, [(0, 0)] * (d.ndim - 1) + [(0, count * rows - outer)])

    def formed(factors: Any, i: Any) -> Ready:
        a, d = factors
        d = jax.lax.dynamic_slice_in_dim(d, i * rows, rows, axis=d.ndim - 1)
        return Ready((), (_form(a, d),))

    mine, theirs = padded(mine), None if theirs is None else padded(theirs)

    def add(i: Any, total: Any) -> Any:
        one = formed(mine, i)
        return total + _kernel(plan, one, one if theirs is None else formed(theirs, i), kind)

    return jax.lax.fori_loop(0, count, add, total) if count > 1 else add(0, total)


def _others(plan: Plan) -> list[Route]:
    """The routes that need no block of the Jacobian."""
    return [route for route in plan.routes if route.way != "block"]


def _ready(plan: Plan, factors: Factors) -> Ready:
    """All but large blocks; short ones are joined to one long product."""
    given = list(zip(plan.routes, factors.inputs, factors.cotangents, strict=True))
    formed = [
        _form(a, d)
        for route, a, d in given
        if route.way == "block" and not is_large(route, plan.outputs)
    ]
    blocks = [*factors.jacobians, *formed]
    small = [block for block in blocks if math.prod(block.shape[1:]) < LARGE]
    long = [block for block in blocks if math.prod(block.shape[1:]) >= LARGE]
    joined = [jnp.concatenate(small, axis=2)] if small else []
    uses = tuple((a, d) for route, a, d in given if route.way != "block")
    return Ready(uses, (*joined, *long))


def _kernel(plan: Plan, one: Ready, two: Ready, kind: str) -> Any:
    """The kernel of two lists of samples. Of one list with itself only tiles on and above the
    diagonal are computed, (s + 1)/2s of all products with s strips.
    """
    n = jax.tree.leaves(one)[0].shape[0]
    each = plan.outputs if kind == "all" else 1
    count = min(n, _strips(n * each)) if one is two else 1
    if count == 1:
        matrix = _tile(plan, one, two, kind)
        return _symmetric(matrix) if one is two else matrix
    size = -(-n // count)
    starts = [min(i * size, n - size) for i in range(count)]
    # A strip's own tile comes after the others of its columns, and settles what overlaps.
    pairs = jnp.array([(i, j) for j in starts for i in starts if i <= j])

    def strip(start: Any) -> Ready:
        return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, size), one)

    def add(k: Any, kernel: Any) -> Any:
        i, j = pairs[k]
        tile = _tile(plan, strip(i), strip(j), kind)
        mirrored = tile.swapaxes(0, 1)
        own = (tile + mirrored) / 2
        for part, place in ((tile, (i, j)), (mirrored, (j, i))):
            at = (*(each * p for p in place), 0)[: kernel.ndim]
            kernel = jax.lax.dynamic_update_slice(kernel, jnp.where(i == j, own, part), at)
        return kernel

    like = jax.eval_shape(lambda: _tile(plan, one, one, kind))
    return jax.lax.fori_loop(0, len(pairs), add, jnp.zeros(like.shape, like.dtype))


def _strips(rows: int) -> int:
    """Into how many strips so many rows of a symmetric kernel are cut. On an accelerator `Tiles`
    cuts large kernels.
    """
    alone = len(devices()) == 1 and devices()[0].platform == "cpu"
    return max(1, min(_MOST_STRIPS, rows // _FEWEST_ROWS)) if alone else 1


def _tile(plan: Plan, one: Ready, two: Ready, kind: str) -> Any:
    """All pairs of samples of the two."""
    total: Any = sum(_contract(a, b, kind) for a, b in zip(one.blocks, two.blocks, strict=True))
    together = []
    for route, (a, d), (b, e) in zip(_others(plan), one.uses, two.uses, strict=False):
        if route.way == "gram" and kind == "all":
            together.append((route, a, d, b, e))
        else:
            total = total + _WAYS[route.way](route, a, d, b, e, kind)
    total = total + _by_columns(together) if together else total
    return total.reshape(total.shape[0] * total.shape[1], -1) if kind == "all" else total


def _form(a: Any, d: Any) -> Any:
    """G = Σ_t d_t ⊗ a_t, flat: (n, o, size)."""
    G = jnp.einsum("nobtc,nbtk->nobck", d, a)
    return G.reshape(*G.shape[:2], -1)


def _contract(one: Any, two: Any, kind: str) -> Any:
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
    slopes = _contract(d[:, :, 0, 0], e[:, :, 0, 0], kind)
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
