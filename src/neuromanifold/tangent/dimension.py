"""Functional dimension: the rank of J, numerically with its evidence or exactly with its certificate."""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.models.function import output_shape
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.memory import blocks, memory_budget
from neuromanifold.numerics.precision import arithmetic, is_traced, to_host
from neuromanifold.numerics.rank import Rank, exact_rank, rank_from_spectrum
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.tangent.arguments import Model, checked
from neuromanifold.tangent.certificate import certified_rank
from neuromanifold.tangent.jacobian import n_columns, sample_jacobians

_OVERSAMPLING = 10


class UntrustworthyRank(UserWarning):
    """A numerical rank whose spectrum has no clear gap."""


def functional_dimension(
    f: Model,
    params: Any,
    x: Any,
    *,
    exact: bool = False,
    rtol: float | None = None,
    prove: bool = False,
    smallest_gap: float = 1e3,
    memory: int | str | None = None,
) -> Rank:
    """The batch functional dimension rank J: how many independent changes of f on the sample parameters can make.   [complexity, Sec. 3.3]

    `exact=False`: singular values of J in float64, any model, also under `jit` and `vmap`; the rank counts those above
    `rtol·σ_max` (default max(n·o, D)·2.2e-16). A gap below `smallest_gap` between kept and dropped values draws a
    warning. A wide Jacobian beyond `memory` is sketched and the result says so.

    `exact=True`: the rank of the exact rational matrix J of an MLP with piecewise-linear or polynomial activations at
    float parameters and float data, with its certificate; `prove=True` insists on a proof where a failure
    probability (typically 1e-13) would do, at the price of a few hundred primes. Host only.

    >>> net = nm.MLP((2, 3, 2), "identity", bias=False)
    >>> params = net.init(key=jax.random.key(0))
    >>> rank = nm.functional_dimension(net, params, np.eye(2), exact=True)
    >>> int(rank), rank.certificate.reason           # W₂W₁ ranges over all 2×2 matrices
    (4, 'full rank')
    """
    budget = memory_budget(memory)
    if rtol is not None and not (rtol >= 0 and not exact):
        needed = "leave it out: an exact rank has no threshold" if exact else "pass a nonnegative number"
        raise ValueError(f"`rtol` is {rtol}; {needed}.")
    if exact:
        return _exact(f, params, x, prove, budget)
    if prove:
        raise ValueError("`prove=True` goes with `exact=True`; a numerical rank has no proof.")
    with arithmetic():
        params, x = checked(f, params, x, dtype=np.float64)
        traced = is_traced((params, x))
        rows, columns = x.shape[0] * math.prod(output_shape(f, params, x)), n_columns(params)
        values, sketched = _singular_values(f, params, x, rows, columns, math.inf if traced else budget)
        rank = rank_from_spectrum(values, (rows, columns), rtol)
        rank = Rank(*to_host((rank.value, rank.spectrum, rank.threshold, rank.gap)), sketched=sketched)
    if not traced and not np.isfinite(rank.spectrum).all():
        raise ArithmeticError(
            "the Jacobian of `f` holds nan or inf at these parameters; check the model's values there."
        )
    if not traced and float(rank.gap) < smallest_gap:
        warnings.warn(
            f"the rank {int(rank)} rests on a gap of only {float(rank.gap):.2g} in the spectrum; it depends on the threshold.",
            UntrustworthyRank,
            stacklevel=2,
        )
    return rank


def single_precision_rank(f: Model, params: Any, x: Any) -> Rank:
    """The rank that float32 reports, as published experiments computed it.   [complexity, Sec. 5]

    Singular values of the float32 Jacobian above max(n·o, D)·σ_max·1.19e-7 (`torch.linalg.matrix_rank`'s default). An
    artefact to compare with, never an answer. Works under `jit` and `vmap`.

    >>> rows = np.array([[1.0], [1.0 + 1e-9]])
    >>> f = lambda params, x: params[0] * x + params[1]
    >>> int(single_precision_rank(f, np.ones(2), rows)), int(nm.functional_dimension(f, np.ones(2), rows))
    (1, 2)
    """
    with arithmetic():
        params, x = checked(f, params, x, dtype=np.float32)
        J = sample_jacobians(f, params, x)
        J = J.reshape(-1, J.shape[-1])
        rank = rank_from_spectrum(spectrum_of(J), J.shape)
        return Rank(*to_host((rank.value, rank.spectrum, rank.threshold, rank.gap)))


def _exact(f: Model, params: Any, x: Any, prove: bool, budget: int) -> Rank:
    refuse_tracers((params, x), "`exact=True`")
    if not isinstance(f, MLP):
        raise TypeError(f"`exact=True` needs an nm.MLP, and `f` is a {type(f).__name__}; use exact=False.")
    with arithmetic():
        checked(f, params, x)
    certificate = certified_rank(f, params, x, prove=prove, budget=budget)
    return exact_rank(certificate.rank, certificate)


def _singular_values(f: Model, params, x, rows: int, columns: int, budget: int | float) -> tuple[Any, bool]:
    """The singular values of J: dense, by QR of row blocks when J is tall, by a Gaussian sketch when it is wide."""
    bytes_needed = 3 * 8 * rows * columns
    if bytes_needed <= budget:
        J = sample_jacobians(f, params, x).reshape(rows, columns)
        return spectrum_of(J), False
    if rows >= columns:
        return spectrum_of(_triangle(f, params, x, columns, budget)), False
    width = min(rows + _OVERSAMPLING, columns)
    return spectrum_of(_sketch(f, params, x, width, budget))[:rows], True


def spectrum_of(matrix: Any) -> Any:
    """Singular values, by NumPy for concrete matrices.

    jaxlib's LAPACK calls have returned nan for finite matrices when OpenBLAS runs several threads; NumPy's have not.
    """
    if is_traced(matrix):
        return jnp.linalg.svd(matrix, compute_uv=False)
    a = np.asarray(matrix)
    if not np.isfinite(a).all():
        return np.full(min(a.shape), np.nan, a.dtype)
    return np.linalg.svd(a, compute_uv=False)


def _triangle(f: Model, params, x, columns: int, budget: int | float) -> Any:
    """R of J = QR, row block by row block: orthogonal, so it has the singular values of J."""
    per_sample = 3 * 8 * columns * (math.prod(output_shape(f, params, x)) or 1)
    R = jnp.zeros((0, columns))
    for part in blocks(x.shape[0], int(budget // per_sample)):
        block = sample_jacobians(f, params, x[part]).reshape(-1, columns)
        R = jnp.linalg.qr(jnp.concatenate([R, block]), mode="r")
    return R


def _sketch(f: Model, params, x, width: int, budget: int | float) -> Any:
    """J·Ω for a Gaussian Ω of `width` columns with variance 1/width, by forward products."""
    size = 8 * (n_columns(params) + x.size)
    keys = jax.random.split(jax.random.key(0), width)
    chunks = [_forward(f, params, x, keys[part]) for part in blocks(width, int(budget // (4 * size)))]
    return jnp.concatenate(chunks).T / math.sqrt(width)


@jax.jit(static_argnums=0)
def _forward(f: Model, params, x, keys) -> Any:
    flat, unravel = ravel_pytree(params)

    def along(key):
        direction = jax.random.normal(key, flat.shape, flat.dtype)
        return jax.jvp(lambda p: f(unravel(p), x), (flat,), (direction,))[1].ravel()

    return jax.vmap(along)(keys)
