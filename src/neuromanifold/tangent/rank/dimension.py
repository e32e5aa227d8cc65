"""Functional dimension: the rank of J, numerically with its evidence or exactly with its
certificate.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.graph.graph import trace
from neuromanifold.graph.selection import Selection, by_leaf, select
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments, output_size
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.precision import boundary, is_floating, is_traced, promote
from neuromanifold.numerics.rank import Rank, error_of_svd, rank_from_spectrum
from neuromanifold.numerics.results import follows
from neuromanifold.numerics.validation import leading_axis, refuse_tracers, sample_arrays
from neuromanifold.regions.problem import Problem
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.rank.certificate import certify
from neuromanifold.tangent.rank.jacobian import sample_jacobians

_OVERSAMPLING = 10
_SAFETY = 3.0


class UntrustworthyRank(UserWarning):
    """A numerical rank whose spectrum has no clear gap."""


@overload
def functional_dimension(
    f: Model,
    params: Params,
    x: Samples,
    *,
    exact: bool = False,
    wrt: Any = None,
    by_layer: Literal[False] = False,
    rtol: float | None = None,
    prove: bool = False,
    smallest_gap: float = 1e3,
    memory: int | str | None = None,
) -> Rank: ...
@overload
def functional_dimension(
    f: Model,
    params: Params,
    x: Samples,
    *,
    by_layer: Literal[True],
    exact: bool = False,
    wrt: Any = None,
    rtol: float | None = None,
    prove: bool = False,
    smallest_gap: float = 1e3,
    memory: int | str | None = None,
) -> dict[str, Rank]: ...
@follows
def functional_dimension(
    f: Model,
    params: Params,
    x: Samples,
    *,
    exact: bool = False,
    wrt: Any = None,
    by_layer: bool = False,
    rtol: float | None = None,
    prove: bool = False,
    smallest_gap: float = 1e3,
    memory: int | str | None = None,
) -> Rank | dict[str, Rank]:
    """Count the parameter directions that change f on the sample: the rank of the Jacobian J.
    [complexity, Sec. 3.3]

    `exact=False` takes the singular values of J in float64, for any model, also under `jit` and
    `vmap`. The rank counts those above `rtol·σ_max` (default max(n·o, D)·2.2e-16). There is a warning
    where it is doubtful (`nm.Rank.doubt`): the gap between kept and dropped values is below
    `smallest_gap`, or the count changes after rows and columns are scaled to one size, or the last
    bit of the arguments changes the Jacobian by more than the smallest value counted.
    `smallest_gap=0` turns these checks off. A wide Jacobian beyond `memory` is sketched, and the
    result says so.

    `exact=True` gives the rank of the exact rational matrix J at float parameters and float data,
    with its certificate, for every network made of rational operations and comparisons
    (`nm.graph.trace(f, params, x).exact`): dense, convolutional, residual, pooled, normalised in
    evaluation mode, with linear attention. `prove=True` asks for a proof where otherwise a failure
    probability (typically 1e-13) is given; it takes a few hundred primes. Host only.

    `wrt` picks the parameters that count (a name, a pattern, truth values); the others are
    constants. `by_layer=True` gives the rank of each of them alone, a dict by name; their sum is at
    least the rank of all.

    >>> net = nm.MLP((2, 3, 2), "identity", bias=False)
    >>> params = net.init(key=jax.random.key(0))
    >>> rank = nm.functional_dimension(net, params, np.eye(2), exact=True)
    >>> int(rank), rank.certificate.reason           # W₂W₁ ranges over all 2×2 matrices
    (4, 'full rank')
    """
    budget = memory_budget(memory)
    if not smallest_gap >= 0:
        raise ValueError(f"`smallest_gap` is {smallest_gap!r}; pass a number, 0 or more.")
    if rtol is not None and not (rtol >= 0 and not exact):
        needed = (
            "leave it out: an exact rank has no threshold" if exact else "pass a nonnegative number"
        )
        raise ValueError(f"`rtol` is {rtol}; {needed}.")
    if exact:
        return _exact(f, params, x, wrt, prove, by_layer)
    if prove:
        raise ValueError(
            "`prove=True` goes with `exact=True`; a numerical rank has no proof: pass both."
        )
    if by_layer:
        options: dict[str, Any] = {"rtol": rtol, "smallest_gap": smallest_gap, "memory": memory}
        return by_leaf(
            lambda alone: functional_dimension(f, params, x, wrt=alone, **options), params, wrt
        )
    with boundary(params, x) as leave:
        params, x = check_arguments(f, params, x, dtype=np.float64)
        traced = is_traced((params, x))
        chosen = select(params, wrt)
        found = _matrix(f, params, x, chosen, math.inf if traced else budget)
        shape = (leading_axis(x) * output_size(f, params, x), chosen.size)
        rank = rank_from_spectrum(spectrum_of(found.matrix)[: min(shape)], shape, rtol)
        asked = not traced and smallest_gap > 0
        measured = asked and rtol is None
        error = _error(found, params, x) if measured else np.full((1, 1), math.nan)
        rank = Rank(
            *leave((rank.value, rank.spectrum, rank.threshold, rank.gap)),
            sketched=found.sketched,
            rounding=_norm(error) * math.sqrt(found.parts),
            rescaled=_rescale(rank, np.asarray(found.matrix), error) if measured else None,
        )
    if not traced and not np.isfinite(rank.spectrum).all():
        raise ArithmeticError(
            "the Jacobian of `f` holds nan or inf at these parameters; check the model's values "
            "there."
        )
    doubt = rank.doubt(smallest_gap) if asked else ""
    if doubt:
        remedy = ". `exact=True` decides it" if trace(f, params, x).exact else ""
        warnings.warn(f"the rank {int(rank)} {doubt}{remedy}.", UntrustworthyRank, stacklevel=3)
    return rank


def _rescale(rank: Rank, J: np.ndarray, E: np.ndarray) -> int | None:
    """Return the rank after rows and columns of J, and of its error E, were multiplied by powers of
    two until the largest entry of each of J's is about 1; those that are no larger than their error
    are zero.

    Not computed where it could not exceed the rank: with rows κ₁ and columns κ₂ apart in size, a
    dropped singular value σ grows, beside the largest, by κ₁κ₂ at most (Ostrowski). Nor where J
    was too large to be formed.
    """
    values = np.asarray(rank.spectrum)
    largest = values[int(rank)] if 0 <= int(rank) < len(values) else 0.0
    apart = math.prod(_apart(np.abs(J).max(axis=axis, initial=0.0)) for axis in (0, 1))
    if J.shape != E.shape or largest * apart <= float(rank.threshold):
        return None
    for axis in (0, 1, 0, 1):
        size, error = (np.abs(M).max(axis=axis, keepdims=True) for M in (J, E))
        power = np.where(size > error, -np.frexp(size)[1], -np.inf)
        J, E = (np.where(np.isinf(power), 0.0, M * np.exp2(power)) for M in (J, E))
    values = spectrum_of(J)
    return int((values > max(error_of_svd(values), _norm(E))).sum())


def _norm(E: np.ndarray) -> float:
    """Return the Frobenius norm, also where squares overflow."""
    largest = float(np.abs(E).max(initial=0.0))
    return largest * float(np.linalg.norm(E / largest)) if 0 < largest < math.inf else largest


def _apart(sizes: np.ndarray) -> float:
    """Return the largest over the smallest of those that are not zero."""
    positive = sizes[sizes > 0]
    return float(positive.max() / positive.min()) if len(positive) else 1.0


def _error(found: "_Matrix", params: Any, x: Any) -> np.ndarray:
    """Return three times J(θ′, x′) − J(θ, x), or the part of it that is at hand, θ′ and x′ being θ
    and x with every number moved by at most four units of its last bit.

    Rounding in sums of products is such a move of their factors (backward stability).
    """
    rng = np.random.default_rng(0)
    moved = jax.tree.map(lambda leaf: _move(leaf, rng), (params, x))
    return _SAFETY * (np.asarray(found.part(*moved)) - np.asarray(found.first))


def _move(leaf: Any, rng: np.random.Generator) -> Any:
    if not is_floating(leaf):
        return leaf
    bits = rng.integers(-4, 5, np.shape(leaf))
    return np.asarray(leaf) * (1.0 + bits * np.finfo(np.float64).eps)


@follows
def single_precision_rank(f: Model, params: Params, x: Samples) -> Rank:
    """Return the rank that float32 reports, as published experiments computed it.
    [complexity, Sec. 5]

    Singular values of the float32 Jacobian above max(n·o, D)·σ_max·1.19e-7
    (`torch.linalg.matrix_rank`'s default). An artefact to compare with, never an answer: −1 where
    float32 overflows. Works under `jit` and `vmap`.

    >>> rows = np.array([[1.0], [1.0 + 1e-9]])
    >>> f = lambda params, x: params[0] * x + params[1]
    >>> int(single_precision_rank(f, np.ones(2), rows)), int(nm.functional_dimension(f, np.ones(2), rows))
    (1, 2)
    """
    with boundary(params, x) as leave:
        params, x = promote(check_arguments(f, params, x), np.float32)
        J = sample_jacobians(f, params, x)
        J = J.reshape(-1, J.shape[-1])
        rank = rank_from_spectrum(spectrum_of(J), J.shape)
        return Rank(*leave((rank.value, rank.spectrum, rank.threshold, rank.gap)))


def _exact(f: Model, params: Any, x: Any, wrt: Any, prove: bool, by_layer: bool) -> Any:
    refuse_tracers((params, x), "`exact=True`")
    with boundary(params, x):
        check_arguments(f, params, x)
    problem = Problem.of(f, params, sample_arrays(x), wrt=wrt)
    if by_layer:
        return by_leaf(lambda alone: certify(problem.wrt(alone), prove=prove), params, wrt)
    return certify(problem, prove=prove)


class _Matrix(NamedTuple):
    """A matrix with the singular values of J (of a sketch: about those); `first`, one of so many
    `parts` of J; and a function that gives that `part` at other arguments.
    """

    matrix: Any
    sketched: bool
    first: Any
    part: Callable[[Any, Any], Any]
    parts: float


def _matrix(f: Model, params: Any, x: Any, chosen: Selection, budget: int | float) -> _Matrix:
    """Return J itself, the triangle of its QR by row blocks when it is tall, a Gaussian sketch when
    it is wide.
    """
    n, columns = leading_axis(x), chosen.size
    rows = n * output_size(f, params, x)
    at_once = n if math.isinf(budget) else int(budget // (3 * 8 * columns * (rows // n)))
    if at_once >= n:
        part = partial(_rows, f, chosen, n)
        J = part(params, x)
        return _Matrix(J, False, J, part, 1.0)
    if rows >= columns:
        first = next(blocks(n, at_once)).stop
        R, part = _triangle(f, params, x, chosen, at_once), partial(_rows, f, chosen, first)
        return _Matrix(R, False, part(params, x), part, n / first)
    width = min(rows + _OVERSAMPLING, columns)
    keys = jax.random.split(jax.random.key(0), width)
    size = 8 * (columns + sum(leaf.size for leaf in jax.tree.leaves(x)))
    chunks = [keys[part] for part in blocks(width, int(budget // (4 * size)))]
    products = [_forward(f, params, x, some, chosen) for some in chunks]
    return _Matrix(
        jnp.concatenate(products).T / math.sqrt(width),
        True,
        products[0],
        lambda params, x: _forward(f, params, x, chunks[0], chosen),
        1 / len(chunks[0]),
    )


def _rows(f: Model, chosen: Selection, n: int, params: Any, x: Any) -> Any:
    """The rows of J of the first n samples."""
    first = jax.tree.map(lambda a: a[:n], x)
    return sample_jacobians(f, params, first, chosen).reshape(-1, chosen.size)


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


def _triangle(f: Model, params: Any, x: Any, chosen: Selection, at_once: int) -> Any:
    """R of J = QR, row block by row block: orthogonal, so it has the singular values of J."""
    R = jnp.zeros((0, chosen.size))
    for part in blocks(leading_axis(x), at_once):
        some = jax.tree.map(lambda a, part=part: a[part], x)
        block = _rows(f, chosen, part.stop - part.start, params, some)
        R = jnp.linalg.qr(jnp.concatenate([R, block]), mode="r")
    return R


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
