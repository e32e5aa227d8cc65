"""The tangent kernel of a linear convolutional network in filter coordinates."""

from functools import lru_cache
from typing import Any

import numpy as np

from neuromanifold.functionspace.polynomial import multiply, spread
from neuromanifold.models.arguments import Params
from neuromanifold.models.convolution import LinearConvNet, Shape
from neuromanifold.numerics.results import Array, follows
from neuromanifold.numerics.validation import refuse_tracers


def as_arrays(net: LinearConvNet, params: Params) -> tuple[np.ndarray, ...]:
    """The filters as NumPy arrays: float64, or object arrays as they are (exact arithmetic)."""
    net.check_params(params)
    if not net.is_linear:
        raise ValueError(
            f"`net` has the activation {net.activation.name}; function space needs a linear "
            "network: pass activation='identity'."
        )
    arrays = [np.asarray(w) for w in params]
    if any(np.iscomplexobj(w) for w in arrays):
        raise TypeError("`params` is complex; filters are real: pass real arrays.")
    if any(w.dtype == object for w in arrays):
        return tuple(w.astype(object) for w in arrays)
    return tuple(w.astype(np.float64) for w in arrays)


@follows
def filter_jacobian(net: LinearConvNet, params: Params) -> np.ndarray:
    """Return J = [J_1|…|J_H], the differential of μ: J_l ẇ_l = μ(w_1, …, ẇ_l, …, w_H).
    [riemann, Obs 3]

    J_l is multiplication by the other layers' polynomials. Rows index the end-to-end filter and
    columns the filters' entries, both in C order. Object arrays are treated exactly.

    >>> net = LinearConvNet((3, 2), (2, 1))
    >>> filter_jacobian(net, (np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0]))).astype(int).tolist()
    [[4, 0, 0, 1, 0], [0, 4, 0, 2, 0], [5, 0, 4, 3, 1], [0, 5, 0, 0, 2], [0, 0, 5, 0, 3]]
    """
    refuse_tracers(params, "`filter_jacobian`")
    return jacobian_at(net, as_arrays(net, params))


def jacobian_at(net: LinearConvNet, filters: tuple[Array, ...]) -> np.ndarray:
    return np.concatenate(_jacobian_blocks(net, filters), axis=1)


def _jacobian_blocks(net: LinearConvNet, filters: tuple[Array, ...]) -> list[np.ndarray]:
    size, blocks = int(np.prod(net.end_to_end_shape)), []
    for shape, t, others in zip(
        net.filter_shapes, net.dilations, _products_of_others(net, filters), strict=True
    ):
        rows = _rows(net.end_to_end_shape, shape, t, others.shape)
        block = np.zeros((size, len(rows)), others.dtype)
        block[rows, np.arange(len(rows))[:, None]] = others.ravel()
        blocks.append(block)
    return blocks


def _products_of_others(net: LinearConvNet, filters: tuple[Array, ...]) -> list[np.ndarray]:
    if net.depth == 1:
        return [np.ones((1,) * net.dimension, filters[0].dtype)]
    spreads = [spread(w, t) for w, t in zip(filters, net.dilations, strict=True)]
    before: list[Any] = [None]
    for p in spreads[:-1]:
        before.append(p if before[-1] is None else multiply(before[-1], p))
    others, after = [], None
    for p, left in zip(reversed(spreads), reversed(before), strict=True):
        others.append(after if left is None else left if after is None else multiply(left, after))
        after = p if after is None else multiply(after, p)
    return others[::-1]


@lru_cache(maxsize=1024)
def _rows(total: Shape, shape: Shape, t: Shape, others: Shape) -> np.ndarray:
    """rows[α, β]: where coefficient β of the other layers' product lands when multiplied by
    z^{tα}.
    """
    corners = np.indices(shape).reshape(len(shape), -1) * np.array(t)[:, None]
    offset = np.asarray(np.ravel_multi_index(tuple(corners), total))
    return offset[:, None] + np.ravel_multi_index(
        np.indices(others).reshape(len(others), -1), total
    )


@follows
def filter_kernel(net: LinearConvNet, params: Params) -> np.ndarray:
    """Return K_θ = J Jᵀ = Σ_l J_l J_lᵀ on end-to-end filters, by its blocks.   [riemann, Obs 3]

    >>> net = LinearConvNet((3, 2), (2, 1))                                       # [riemann, Ex 16]
    >>> filter_kernel(net, (np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0]))).astype(int).tolist()
    [[5, 0, 4, 0, 0], [0, 4, 0, 2, 0], [4, 0, 10, 0, 4], [0, 2, 0, 1, 0], [0, 0, 4, 0, 5]]
    """
    return sum(J @ J.T for J in _jacobian_blocks(net, as_arrays(net, params)))  # pyright: ignore[reportReturnType]


@follows
def filter_kernel_blocks(net: LinearConvNet, params: Params) -> tuple[np.ndarray, ...]:
    """Return (K_1, …, K_H) with K_l = J_l J_lᵀ, homogeneous of degree two in every filter but w_l.
    [riemann, Obs 3]
    """
    return tuple(J @ J.T for J in _jacobian_blocks(net, as_arrays(net, params)))


def kernel_distance(K: Array, L: Array) -> float:
    """Return ‖K − L‖_F / max(‖K‖_F, ‖L‖_F)."""
    return float(
        np.linalg.norm(K - L) / max(np.linalg.norm(K), np.linalg.norm(L), np.finfo(np.float64).tiny)
    )


def kernel_spread(net: LinearConvNet, tuples: Any) -> float:
    """Return the largest relative distance between the kernels of the tuples; 0 when they all share
    one kernel.

    `tuples` are parameters of `net`, as `fiber` returns them.
    """
    kernels = [filter_kernel(net, params) for params in tuples]
    return max(
        (kernel_distance(K, L) for i, K in enumerate(kernels) for L in kernels[:i]), default=0.0
    )
