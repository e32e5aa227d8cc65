"""Fully connected linear networks W = W_H⋯W_1: kernels, invariants, balanced factorisations and
their flow.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.models.arguments import Params
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import MOST_LAYERS, MatrixLike, check_depth, check_matrix

Matrices = tuple[Array, ...]
Matrix = Float[np.ndarray, "m n"]


@dataclass(frozen=True, repr=False)
class MatrixKernel(Result):
    """A sum of operators Z ↦ L Z R on end-to-end matrices; `matrix` acts on Z flattened row by
    row.
    """

    terms: tuple[tuple[Array, Array], ...]

    def __call__(self, Z: MatrixLike) -> np.ndarray:
        return sum(L @ np.asarray(Z) @ R for L, R in self.terms)  # pyright: ignore[reportReturnType]

    @property
    def matrix(self) -> np.ndarray:
        """The operator as a (d_H·d_0, d_H·d_0) matrix."""
        return sum(np.kron(L, R.T) for L, R in self.terms)  # pyright: ignore[reportReturnType]


def check_matrices(params: Params) -> Matrices:
    """Weights (W_1, …, W_H), or layers that carry them, as arrays that can be multiplied."""
    matrices = tuple(np.asarray(getattr(layer, "weight", layer)) for layer in params)
    matrices = tuple(W if W.dtype == object else W.astype(np.float64) for W in matrices)
    if not matrices or any(W.ndim != 2 for W in matrices):
        raise ValueError(
            f"`params` has shapes {[W.shape for W in matrices]}; pass one matrix per layer, the "
            "first layer first."
        )
    for index, (W, V) in enumerate(zip(matrices, matrices[1:], strict=False)):
        if V.shape[1] != W.shape[0]:
            raise ValueError(
                f"`params[{index + 1}]` has shape {V.shape} but layer {index} gives {W.shape[0]} "
                "outputs; order them W_1 first."
            )
    return matrices


@follows
def end_to_end_matrix(params: Params) -> np.ndarray:
    """Return W_H⋯W_1."""
    return reduce(lambda product, W: W @ product, check_matrices(params))


@follows
def dense_kernel(params: Params) -> MatrixKernel:
    """Return K_θ(Z) = Σ_l (W_H⋯W_{l+1})(W_H⋯W_{l+1})ᵀ Z (W_{l−1}⋯W_1)ᵀ(W_{l−1}⋯W_1).
    [riemann, Eq 7]

    >>> V = (np.diag([1.0, 0.5]), np.diag([1.0, 2.0]))                            # [riemann, Ex 20]
    >>> dense_kernel(V)(np.eye(2)).tolist()
    [[2.0, 0.0], [0.0, 4.25]]
    """
    matrices = check_matrices(params)
    before = [np.eye(matrices[0].shape[1], dtype=matrices[0].dtype)]
    for W in matrices[:-1]:
        before.append(W @ before[-1])
    after = [np.eye(matrices[-1].shape[0], dtype=matrices[-1].dtype)]
    for W in reversed(matrices[1:]):
        after.append(after[-1] @ W)
    return MatrixKernel(
        tuple((L @ L.T, R.T @ R) for L, R in zip(reversed(after), before, strict=True))
    )


@follows
def balanced_operator(W: MatrixLike, depth: int) -> MatrixKernel:
    """Return A_W(Z) = Σ_j (WWᵀ)^{(H−j)/H} Z (WᵀW)^{(j−1)/H}: the kernel of every balanced
    factorisation of W.   [riemann, Eq 6]

    `depth` is the number H of layers.

    >>> balanced_operator(np.diag([1.0, 4.0]), 2)(np.eye(2)).tolist()
    [[2.0, 0.0], [0.0, 8.0]]
    """
    W, depth = check_matrix(W, "W"), check_depth(depth, most=MOST_LAYERS)
    U, s, Vt = np.linalg.svd(W)
    left, right = np.zeros(W.shape[0]), np.zeros(W.shape[1])
    left[: len(s)], right[: len(s)] = s, s
    terms = []
    for j in range(1, depth + 1):
        L = (U * left ** (2 * (depth - j) / depth)) @ U.T
        R = (Vt.T * right ** (2 * (j - 1) / depth)) @ Vt
        terms.append((L, R))
    return MatrixKernel(tuple(terms))


@follows
def gram_differences(params: Params) -> Matrices:
    """Return Δ_l = W_{l+1}ᵀW_{l+1} − W_lW_lᵀ, conserved by gradient flow.   [riemann, Eq 5]"""
    matrices = check_matrices(params)
    return tuple(V.T @ V - W @ W.T for W, V in zip(matrices, matrices[1:], strict=False))


@follows
def balanced_factors(W: MatrixLike, depth: int) -> Matrices:
    """Return one balanced factorisation W = W_H⋯W_1, all hidden widths rank-sized or larger as W
    allows. [riemann, Thm 14]

    From W = U S Vᵀ: W_1 = S^{1/H} Vᵀ, W_H = U S^{1/H}, and S^{1/H} between.

    `depth` is the number H of layers.
    """
    W, depth = check_matrix(W, "W"), check_depth(depth, most=MOST_LAYERS)
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    root = s ** (1 / depth)
    if depth == 1:
        return (W,)
    return (root[:, None] * Vt, *(np.diag(root) for _ in range(depth - 2)), U * root)


@follows
def rotate_factors(params: Params, rotations: Any) -> Matrices:
    """Return (G_1ᵀW_1, G_2ᵀW_2G_1, …, W_HG_{H−1}) for `params` W and `rotations` G: same product, and same Δ up to
    G_lᵀΔ_lG_l.   [riemann, Thm 14]
    """
    matrices, rotations = check_matrices(params), [np.asarray(G, np.float64) for G in rotations]
    if len(rotations) != len(matrices) - 1:
        raise ValueError(
            f"`rotations` has {len(rotations)} entries; {len(matrices)} layers have "
            f"{len(matrices) - 1} hidden spaces: pass one rotation for each."
        )
    left = [*(G.T for G in rotations), np.eye(len(matrices[-1]))]
    right = [np.eye(matrices[0].shape[1]), *rotations]
    return tuple(L @ W @ R for L, W, R in zip(left, matrices, right, strict=True))


@dataclass(frozen=True, repr=False)
class Gauge(Result):
    """The matrices G_l that carry one factorisation to another, and how far they are from
    orthogonal and from doing so.
    """

    rotations: Matrices
    orthogonality: float
    residual: float


@follows
def gauge_between(first: Any, second: Any) -> Gauge:
    """Return the unique G with `rotate_factors(first, G) = second` for square invertible factors of
    one matrix. [riemann, Thm 14]

    From the last layer down: W'_H = W_H G_{H−1}, and so on. Between balanced factorisations every G
    is orthogonal.
    """
    old, new = check_matrices(first), check_matrices(second)
    rotations, carried = [], np.eye(len(old[-1]))
    for W, V in zip(reversed(old[1:]), reversed(new[1:]), strict=False):
        G = np.linalg.solve(carried.T @ W, V)
        rotations.append(G)
        carried = G
    rotations = tuple(reversed(rotations))
    orthogonality = max(
        (float(np.linalg.norm(G.T @ G - np.eye(len(G)))) for G in rotations), default=0.0
    )
    mapped = rotate_factors(old, rotations)
    residual = max(
        float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(mapped, new, strict=True)
    )
    return Gauge(rotations, orthogonality, residual)


@follows
def level_set_sample(
    params: Params, count: int, *, key: Key | None = None, rtol: float = 1e-11
) -> tuple[Matrices, ...]:
    """Return other parameters with the same product and the same Δ_l, by least squares from random
    starts.   [riemann, Ex 20]

    `count` of them are sought; one counts where its equations hold to `rtol`.
    """
    from scipy.optimize import least_squares

    matrices = check_matrices(params)
    target = _constraints(matrices)
    shapes, rng = [W.shape for W in matrices], host_generator(key)
    bounds, scale = np.cumsum([0, *(W.size for W in matrices)]), np.linalg.norm(target)
    found: list[Matrices] = []
    for _ in range(20 * count):
        if len(found) == count:
            break

        def cut(flat: np.ndarray) -> Matrices:
            return tuple(
                flat[a:b].reshape(shape)
                for a, b, shape in zip(bounds, bounds[1:], shapes, strict=False)
            )

        start = np.concatenate(
            [(W + rng.normal(size=W.shape) * np.linalg.norm(W)).ravel() for W in matrices]
        )
        result = least_squares(
            lambda flat: _constraints(cut(flat)) - target, start, xtol=1e-15, ftol=1e-15, gtol=1e-15
        )
        if np.linalg.norm(result.fun) <= rtol * max(scale, 1.0):
            found.append(cut(result.x))
    return tuple(found)


def _constraints(matrices: Matrices) -> np.ndarray:
    invariants = [Delta[np.triu_indices(len(Delta))] for Delta in gram_differences(matrices)]
    return np.concatenate([end_to_end_matrix(matrices).ravel(), *invariants])


@dataclass(frozen=True, repr=False)
class MatrixFlow(Result):
    """A gradient flow of end-to-end matrices: `W[i]` at time `t[i]`; `drift` is the largest
    change of a Δ_l.
    """

    t: Float[Array, " n"]
    W: Float[Array, "n m k"]
    drift: float


@follows
def balanced_flow(
    W: MatrixLike,
    depth: int,
    *,
    loss: Any,
    t1: float,
    times: int = 101,
    rtol: float = 1e-12,
    atol: float = 1e-13,
) -> MatrixFlow:
    """Solve Ẇ = −A_W(∇ℓ(W)): what balanced gradient flow of H layers does to the product, without
    the factors.   [riemann, Eq 6]

    `loss` is a `FilterLoss` on the matrix flattened row by row, shaped like W, or a JAX function of
    it.

    `depth` is the number H of layers.
    `rtol` and `atol` are the tolerances of the solver.
    `times` is how many times from 0 to `t1` are kept, equally spaced.
    """
    from neuromanifold.functionspace.flow import gradient_of, integrate

    start, gradient = check_matrix(W, "W"), gradient_of(loss)

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        product = flat.reshape(start.shape)
        return -balanced_operator(product, depth)(gradient(product)).ravel()

    t, states, _ = integrate(field, start.ravel(), t1, times, rtol, atol)
    return MatrixFlow(t, states.reshape(len(t), *start.shape), 0.0)


@follows
def dense_parameter_flow(
    params: Params,
    *,
    loss: Any,
    t1: float,
    times: int = 101,
    rtol: float = 1e-12,
    atol: float = 1e-13,
) -> MatrixFlow:
    """Solve Ẇ_l = −∂ℓ(W_H⋯W_1)/∂W_l, pushed forward to the product.   [riemann, Eq 4]

    `loss` is as for `balanced_flow`.
    `rtol` and `atol` are the tolerances of the solver.
    `times` is how many times from 0 to `t1` are kept, equally spaced.
    """
    from neuromanifold.functionspace.flow import gradient_of, integrate

    matrices, gradient = check_matrices(params), gradient_of(loss)
    bounds, shapes = np.cumsum([0, *(W.size for W in matrices)]), [W.shape for W in matrices]

    def cut(flat: np.ndarray) -> Matrices:
        return tuple(
            flat[a:b].reshape(shape)
            for a, b, shape in zip(bounds, bounds[1:], shapes, strict=False)
        )

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        factors = cut(flat)
        slope, parts = gradient(end_to_end_matrix(factors)), []
        for l in range(len(factors)):
            after = reduce(
                lambda product, W: W @ product, factors[l + 1 :], np.eye(factors[l].shape[0])
            )
            before = reduce(
                lambda product, W: W @ product, factors[:l], np.eye(factors[0].shape[1])
            )
            parts.append((after.T @ slope @ before.T).ravel())
        return -np.concatenate(parts)

    t, states, _ = integrate(
        field, np.concatenate([W.ravel() for W in matrices]), t1, times, rtol, atol
    )
    start = gram_differences(matrices)
    drift = max(
        (
            float(np.abs(a - b).max())
            for s in states
            for a, b in zip(gram_differences(cut(s)), start, strict=True)
        ),
        default=0.0,
    )
    return MatrixFlow(t, np.stack([end_to_end_matrix(cut(s)) for s in states]), drift)
