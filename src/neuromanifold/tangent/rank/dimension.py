"""Functional dimension: the rank of J, numerically with its evidence or exactly with its
certificate.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.graph import programs
from neuromanifold.graph.arithmetic import Floats, NoExactAnswer
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.selection import Selection, by_leaf, select
from neuromanifold.graph.walk import walk
from neuromanifold.models.arguments import Model, checked, output_size
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.precision import boundary, is_traced, promote
from neuromanifold.numerics.rank import WIDEST_SPREAD, Rank, rank_from_spectrum
from neuromanifold.numerics.results import follows
from neuromanifold.numerics.validation import leading_axis, refuse_tracers, sample_arrays
from neuromanifold.regions.problem import Problem
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.rank.certificate import certified
from neuromanifold.tangent.rank.jacobian import sample_jacobians

_OVERSAMPLING = 10


class UntrustworthyRank(UserWarning):
    """A numerical rank whose spectrum has no clear gap."""


@follows
def functional_dimension(
    f: Model,
    params: Any,
    x: Any,
    *,
    exact: bool = False,
    wrt: Any = None,
    by_layer: bool = False,
    rtol: float | None = None,
    prove: bool = False,
    smallest_gap: float = 1e3,
    memory: int | str | None = None,
) -> Any:
    """The batch functional dimension rank J: how many independent changes of f on the sample
    parameters can make.   [complexity, Sec. 3.3]

    `exact=False`: singular values of J in float64, any model, also under `jit` and `vmap`; the rank
    counts those above `rtol·σ_max` (default max(n·o, D)·2.2e-16). A gap below `smallest_gap`
    between kept and dropped values draws a warning. A wide Jacobian beyond `memory` is sketched and
    the result says so.

    `exact=True`: the rank of the exact rational matrix J at float parameters and float data, with
    its certificate, for every network made of rational operations and bends (`nm.trace(f, params,
    x).exact`): dense, convolutional, residual, pooled, normalised in evaluation mode, with linear
    attention. `prove=True` insists on a proof where a failure probability (typically 1e-13) would
    do, at the price of a few hundred primes. Host only.

    `wrt` picks the parameters that count (a name, a pattern, truth values); the others are
    constants. `by_layer=True` gives the rank of each of them alone, a dict by name: their sum is at
    least the rank of all.

    >>> net = nm.MLP((2, 3, 2), "identity", bias=False)
    >>> params = net.init(key=jax.random.key(0))
    >>> rank = nm.functional_dimension(net, params, np.eye(2), exact=True)
    >>> int(rank), rank.certificate.reason           # W₂W₁ ranges over all 2×2 matrices
    (4, 'full rank')
    """
    budget = memory_budget(memory)
    if rtol is not None and not (rtol >= 0 and not exact):
        needed = (
            "leave it out: an exact rank has no threshold" if exact else "pass a nonnegative number"
        )
        raise ValueError(f"`rtol` is {rtol}; {needed}.")
    if exact:
        return _exact(f, params, x, wrt, prove, by_layer)
    if prove:
        raise ValueError("`prove=True` goes with `exact=True`; a numerical rank has no proof.")
    if by_layer:
        options: dict[str, Any] = {"rtol": rtol, "smallest_gap": smallest_gap, "memory": memory}
        return by_leaf(
            lambda alone: functional_dimension(f, params, x, wrt=alone, **options), params, wrt
        )
    with boundary(params, x) as leave:
        params, x = checked(f, params, x, dtype=np.float64)
        traced = is_traced((params, x))
        chosen = select(params, wrt)
        values, sketched, between = _singular_values(
            f, params, x, chosen, math.inf if traced else budget
        )
        rank = rank_from_spectrum(
            values, (leading_axis(x) * output_size(f, params, x), chosen.size), rtol
        )
        bits = 0.0 if traced else max(between, _spread_inside(f, params, x))
        rank = Rank(
            *leave((rank.value, rank.spectrum, rank.threshold, rank.gap)),
            sketched=sketched,
            spread=bits,
        )
    if not traced and not np.isfinite(rank.spectrum).all():
        raise ArithmeticError(
            "the Jacobian of `f` holds nan or inf at these parameters; check the model's values "
            "there."
        )
    if not traced:
        _warn(rank, smallest_gap)
    return rank


def _warn(rank: Rank, smallest_gap: float) -> None:
    if float(rank.gap) < smallest_gap:
        doubt = (
            f"rests on a gap of only {float(rank.gap):.2g} in the spectrum; it depends on the "
            "threshold"
        )
    elif rank.spread > WIDEST_SPREAD and smallest_gap > 0:
        apart = f"2^{rank.spread:.0f} apart in size"
        doubt = (
            f"comes from numbers up to {apart}; float64 may have lost some: use exact=True, or "
            "rescale"
        )
    else:
        return
    warnings.warn(f"the rank {int(rank)} {doubt}.", UntrustworthyRank, stacklevel=3)


def _spread_inside(f: Model, params: Any, x: Any) -> float:
    """How many bits apart the numbers are that f adds."""
    leaves, data = ([np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (params, x))
    bits = spread(trace(f, params, x), leaves, data)
    return 0.0 if math.isnan(bits) else bits


def _spread_between(J: Any) -> float:
    """How many bits apart the sizes of rows, or of columns, are."""
    sides = [np.abs(np.asarray(J)).max(axis=axis) for axis in (0, 1)]
    return max(
        [0.0, *(float(np.log2(s[s > 0].max() / s[s > 0].min())) for s in sides if (s > 0).any())]
    )


@follows
def single_precision_rank(f: Model, params: Any, x: Any) -> Rank:
    """The rank that float32 reports, as published experiments computed it.   [complexity, Sec. 5]

    Singular values of the float32 Jacobian above max(n·o, D)·σ_max·1.19e-7
    (`torch.linalg.matrix_rank`'s default). An artefact to compare with, never an answer: −1 where
    float32 overflows. Works under `jit` and `vmap`.

    >>> rows = np.array([[1.0], [1.0 + 1e-9]])
    >>> f = lambda params, x: params[0] * x + params[1]
    >>> int(single_precision_rank(f, np.ones(2), rows)), int(nm.functional_dimension(f, np.ones(2), rows))
    (1, 2)
    """
    with boundary(params, x) as leave:
        params, x = promote(checked(f, params, x), np.float32)
        J = sample_jacobians(f, params, x)
        J = J.reshape(-1, J.shape[-1])
        rank = rank_from_spectrum(spectrum_of(J), J.shape)
        return Rank(*leave((rank.value, rank.spectrum, rank.threshold, rank.gap)))


def _exact(f: Model, params: Any, x: Any, wrt: Any, prove: bool, by_layer: bool) -> Any:
    refuse_tracers((params, x), "`exact=True`")
    with boundary(params, x):
        checked(f, params, x)
    problem = Problem.of(f, params, sample_arrays(x), wrt=wrt)
    if by_layer:
        return by_leaf(lambda alone: certified(problem.wrt(alone), prove=prove), params, wrt)
    return certified(problem, prove=prove)


def _singular_values(
    f: Model, params: Any, x: Any, chosen: Selection, budget: int | float
) -> tuple[Any, bool, float]:
    """The singular values of J: dense, by QR of row blocks when J is tall, by a Gaussian sketch
    when it is wide.
    """
    rows, columns = leading_axis(x) * output_size(f, params, x), chosen.size
    if 3 * 8 * rows * columns <= budget:
        J = sample_jacobians(f, params, x, chosen).reshape(rows, columns)
        return spectrum_of(J), False, 0.0 if is_traced(J) else _spread_between(J)
    if rows >= columns:
        return spectrum_of(_triangle(f, params, x, chosen, budget)), False, 0.0
    width = min(rows + _OVERSAMPLING, columns)
    return spectrum_of(_sketch(f, params, x, chosen, width, budget))[:rows], True, 0.0


def spectrum_of(matrix: Any) -> Any:
    """Singular values, by NumPy for concrete matrices.

    jaxlib's LAPACK calls have returned nan for finite matrices when OpenBLAS runs several threads;
    NumPy's have not.
    """
    if is_traced(matrix):
        return jnp.linalg.svd(matrix, compute_uv=False)
    a = np.asarray(matrix)
    if not np.isfinite(a).all():
        return np.full(min(a.shape), np.nan, a.dtype)
    return np.linalg.svd(a, compute_uv=False)


def _triangle(f: Model, params: Any, x: Any, chosen: Selection, budget: int | float) -> Any:
    """R of J = QR, row block by row block: orthogonal, so it has the singular values of J."""
    per_sample = 3 * 8 * chosen.size * output_size(f, params, x)
    R = jnp.zeros((0, chosen.size))
    for part in blocks(leading_axis(x), int(budget // per_sample)):
        block = sample_jacobians(
            f, params, jax.tree.map(lambda a, part=part: a[part], x), chosen
        ).reshape(-1, chosen.size)
        R = jnp.linalg.qr(jnp.concatenate([R, block]), mode="r")
    return R


def _sketch(
    f: Model, params: Any, x: Any, chosen: Selection, width: int, budget: int | float
) -> Any:
    """J·Ω for a Gaussian Ω of `width` columns with variance 1/width, by forward products."""
    size = 8 * (chosen.size + sum(leaf.size for leaf in jax.tree.leaves(x)))
    keys = jax.random.split(jax.random.key(0), width)
    chunks = [
        _forward(f, params, x, keys[part], chosen)
        for part in blocks(width, int(budget // (4 * size)))
    ]
    return jnp.concatenate(chunks).T / math.sqrt(width)


@jax.jit(static_argnums=(0, 4))
def _forward(f: Model, params: Any, x: Any, keys: Any, chosen: Selection) -> Any:
    mine, rebuild = chosen.split(params)
    flat, unravel = ravel_pytree(mine)

    def along(key: Any):
        direction = jax.random.normal(key, flat.shape, flat.dtype)
        return jax.jvp(lambda p: flat_outputs(f, rebuild(unravel(p)), x), (flat,), (direction,))[
            1
        ].ravel()

    return jax.vmap(along)(keys)


_SHARE = 0.02
_FEW_ROWS = 64


class Scales(Floats):
    """Plain float64 that remembers, in `bits`, the widest spread among the terms of a sum: log₂ of
    largest over smallest.

    In sums of many terms the smallest 2 % do not count: a few tiny products are everywhere.
    """

    name = "scales"

    def __init__(self) -> None:
        self.bits = 0.0

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        one, two = np.broadcast_arrays(np.abs(a), np.abs(b))
        both = (one > 0) & (two > 0) & np.isfinite(one) & np.isfinite(two)
        if both.any():
            self._note(float(np.abs(np.log2(one[both]) - np.log2(two[both])).max()))
        return a + b

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        rows = np.abs(a).reshape(-1, *a.shape[-2:])[:1, :_FEW_ROWS]
        columns = np.abs(b).reshape(-1, *b.shape[-2:])[:1, :, :_FEW_ROWS]
        terms = rows[0][:, :, None] * columns[0][None]
        with np.errstate(divide="ignore"):
            logs = np.sort(
                np.where((terms > 0) & np.isfinite(terms), np.log2(terms), np.nan), axis=1
            )
        counts = np.isfinite(logs).sum(axis=1, keepdims=True)
        if (counts > 1).any():
            low = np.take_along_axis(logs, np.floor(_SHARE * counts).astype(int), axis=1)
            high = np.take_along_axis(logs, np.maximum(counts - 1, 0), axis=1)
            self._note(float(np.nanmax(high - low)))
        return a @ b

    def _note(self, bits: float) -> None:
        self.bits = max(self.bits, bits)


def spread(graph: Graph, leaves: Sequence[np.ndarray], data: Sequence[np.ndarray]) -> float:
    """The widest spread, in bits, among the terms that f adds at a few samples; nan where an
    operation is not known.
    """
    A, n = Scales(), min(4, len(data[0]))
    inputs = [
        *(A.lift(a) for a in leaves),
        *(A.lift(a[:n]) if a.dtype.kind == "f" else a[:n] for a in data),
    ]
    try:
        with np.errstate(all="ignore"):
            gates = walk(programs.decisions(graph, n), A, inputs) if graph.units else []
            walk(programs.values(graph, n), A, [*inputs, *gates])
    except NoExactAnswer:
        return float("nan")
    return A.bits
