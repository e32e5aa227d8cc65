"""The invariants δ of a linear convolutional network, and the layer rescalings that attain given
ones.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from neuromanifold.functionspace.kernel import as_arrays
from neuromanifold.functionspace.polynomial import exact, is_rational
from neuromanifold.models.arguments import Params
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.results import Array, Result, follows

Filters = tuple[Array, ...]
FilterLike = Any
"""The coefficients of an end-to-end filter: an array of its shape."""


@follows
def norm_differences(net: LinearConvNet, params: Params) -> np.ndarray:
    """Return δ_l = ‖w_{l+1}‖² − ‖w_l‖², conserved by the gradient flow of every loss.
    [riemann, Eq 1]

    >>> norm_differences(LinearConvNet((3, 2), (2, 1)), (np.array([1.0, 2.0, 2.0]), np.array([4.0, 0.0]))).tolist()
    [7.0]
    """
    squared = np.array([np.sum(w * w) for w in as_arrays(net, params)])
    return np.diff(squared)


@dataclass(frozen=True, repr=False)
class Rescaling(Result):
    """All scalar tuples λ with Π λ_l = 1 that give the filters λ_l w_l the invariants δ: one up to
    signs.

    `scales` is the positive one, `signs` lists the 2^{H−1} sign patterns of product one, `params`
    are the filters scaled by `scales`, and `residual` is the largest |δ_l achieved − δ_l asked|
    relative to the squared norms.
    """

    params: Filters
    scales: Float[Array, " H"]
    signs: Int[Array, "patterns H"]
    residual: float

    def __len__(self) -> int:
        return len(self.signs)

    @property
    def all_params(self) -> tuple[Filters, ...]:
        """The 2^{H−1} rescaled filter tuples."""
        return tuple(
            tuple(sign * w for sign, w in zip(pattern, self.params, strict=True))
            for pattern in self.signs
        )


@follows
def rescale(net: LinearConvNet, params: Params, delta: Any) -> Rescaling:
    """Return the 2^{H−1} layer rescalings of nonzero filters that have the invariants δ and the
    same product.   [riemann, Prop 2, 12]

    With β_l = λ_l² ‖w_l‖² the conditions read β_{l+1} − β_l = δ_l and Π β_l = Π ‖w_l‖²; exactly one
    solution is positive.

    `delta` are the invariants δ, one for each pair of neighbouring layers or one for all.

    >>> net = LinearConvNet((3, 2), (2, 1))
    >>> scaled = rescale(net, (np.array([1.0, 2.0, 2.0]), np.array([4.0, 0.0])), [0.0])
    >>> [float(np.linalg.norm(w) ** 2) for w in scaled.params], len(scaled)
    ([12.0, 12.0], 2)
    """
    filters = tuple(np.asarray(w, np.float64) for w in as_arrays(net, params))
    delta = check_delta(net, delta)
    norms = np.array([np.linalg.norm(w) for w in filters])
    if not norms.all():
        raise ValueError(
            f"`params[{int(np.argmin(norms))}]` is zero, so no rescaling keeps the end-to-end "
            "filter and reaches `delta`; "
            "pass nonzero filters."
        )
    squared = solve_squared_norms(norms, delta)
    scaled = tuple(
        np.sqrt(beta) / norm * w for beta, norm, w in zip(squared, norms, filters, strict=True)
    )
    residual = (
        np.abs(np.diff([np.sum(w * w) for w in scaled]) - delta).max(initial=0.0) / squared.max()
    )
    return Rescaling(scaled, np.sqrt(squared) / norms, sign_patterns(net.depth), float(residual))


def check_filter(net: LinearConvNet, v: FilterLike) -> np.ndarray:
    """v as an array of the network's end-to-end shape, real and finite; rational arrays stay
    rational.
    """
    if not net.is_linear:
        raise ValueError(
            f"`net` has the activation {net.activation.name}; fibres are those of linear networks: "
            "pass activation='identity'."
        )
    v = np.asarray(v)
    if v.shape != net.end_to_end_shape:
        raise ValueError(
            f"`v` has shape {v.shape}; the end-to-end filter of {net} has shape "
            f"{net.end_to_end_shape}; pass an array of that shape."
        )
    if v.dtype == object and not is_rational(v):
        v = exact(v)
    if not is_rational(v):
        v = v.astype(np.float64)
        if not np.isfinite(v).all():
            raise ValueError(
                f"`v` has {(~np.isfinite(v)).sum()} entries that are not finite; remove or "
                "replace them."
            )
    return v


def check_delta(net: LinearConvNet, delta: Any) -> Float[np.ndarray, " n"]:
    """δ as an array of H − 1 finite numbers; a scalar is repeated."""
    delta = np.asarray(delta, np.float64)
    delta = np.full(net.depth - 1, delta) if delta.ndim == 0 else delta
    if delta.shape != (net.depth - 1,):
        raise ValueError(
            f"`delta` has shape {delta.shape}; a network with {net.depth} layers has "
            f"{net.depth - 1} invariants: pass a number for each."
        )
    if not np.isfinite(delta).all():
        raise ValueError(f"`delta` is {delta.tolist()}; pass finite numbers.")
    return delta


def solve_squared_norms(norms: Array, delta: Array) -> np.ndarray:
    """The positive β with β_{l+1} − β_l = δ_l and Π β_l = Π norms_l².

    With β = x + o, o ≥ 0 and min o = 0, the equation Σ log(x + o_l) = log C is convex and
    increasing in log x with a slope in [1, H], so Newton's method converges from everywhere.
    """
    offsets = np.concatenate([[0.0], np.cumsum(delta)])
    offsets -= offsets.min()
    target = 2.0 * np.log(norms).sum()
    largest = offsets.max()
    if largest == 0:
        return np.full(len(norms), np.exp(target / len(norms)))
    positive = offsets[offsets > 0]
    smallest = len(norms) - len(positive)
    u = (target - np.log(positive).sum()) / smallest
    u = min(u, target / len(norms))
    for _ in range(200):
        shifted = np.exp(u) + offsets
        step = (np.log(shifted).sum() - target) / (np.exp(u) / shifted).sum()
        u -= step
        if abs(step) <= 4 * np.finfo(np.float64).eps * max(1.0, abs(u)):
            break
    return np.exp(u) + offsets


def sign_patterns(depth: int) -> np.ndarray:
    """The sign vectors of product one, the all-positive one first.

    >>> sign_patterns(2).tolist()
    [[1, 1], [-1, -1]]
    """
    free = np.array(list(product((1, -1), repeat=depth - 1)), np.int64).reshape(
        2 ** (depth - 1), depth - 1
    )
    return np.concatenate([np.prod(free, axis=1, keepdims=True), free], axis=1)
