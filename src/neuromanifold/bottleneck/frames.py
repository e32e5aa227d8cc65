"""Theorem 6 at a point: semi-orthogonal factors, the budget, and each layer's share of it.
[bottleneck, Thm 6]

At a point x with rank Jf(x) ≥ k take the k leading right singular vectors V_0 of Jf(x) and carry
them through the network: V_l spans D_lW_l⋯D_1W_1V_0, its basis chosen so that M_l = V_lᵀW_lV_{l-1}
is symmetric positive. With slopes in [0, 1], Π det M_l ≥ s_1⋯s_k, and log t ≤ t − 1 gives, for each
layer,

    ‖W_l − V_lV_{l-1}ᵀ‖² = ‖W_l‖² + k − 2 tr M_l ≤ ‖W_l‖² − k − 2 log det M_l,

whose sum is at most ‖θ‖² − kL − 2 log(s_1⋯s_k). For k = rank Jf(x) this is the theorem as the main
text states it, with one V_l per layer; for smaller k it is an extension, and the useful one where
small singular values are not exactly zero.

With slopes in [−1, 0) the main text's version is false; the appendix's, with U_l and V_l apart,
holds with U_l the polar factor of W_lV_{l-1}. The appendix's proof takes other factors, those of
P_lW_lQ_{l-1} with P_l and Q_{l-1} the projections onto the row space of J(α̃_l → f) and the image
of Jα_{l-1}. Those are not good enough: see `appendix_factors`.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from neuromanifold.bottleneck.passage import Passage, passage, require_contraction
from neuromanifold.models.arguments import Samples
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import MatrixLike


@dataclass(frozen=True, repr=False)
class Frames(Result):
    """The frames V_0 … V_{L-1} (`right`) and U_1 … U_L (`left`) at one point, and both sides of the
    theorem layer by layer.

    U_l = V_l where all slopes are nonnegative (`shared`). `residuals[l]` = ‖W_l − U_lV_{l-1}ᵀ‖²_F;
    `closest[l]`, the same for the partial isometry of rank k closest to W_l, is never larger;
    `shares[l]` is what layer l spends of the budget, and never smaller than `residuals[l] +
    bias_norms[l]`.
    """

    rank: int
    left: tuple[Array, ...]
    right: tuple[Array, ...]
    shared: bool
    squared_norm: float
    log_determinant: float
    residuals: Float[Array, " L"]
    closest: Float[Array, " L"]
    shares: Float[Array, " L"]
    bias_norms: Float[Array, " L"]

    @property
    def c1(self) -> float:
        """‖θ‖² − kL."""
        return self.squared_norm - self.rank * len(self.residuals)

    @property
    def budget(self) -> float:
        """c₁ − 2 log(s_1⋯s_k): an upper bound on all residuals and biases together."""
        return self.c1 - 2 * self.log_determinant

    @property
    def spent(self) -> float:
        """Σ_l ‖W_l − U_lV_{l-1}ᵀ‖² + ‖b_l‖², the left side."""
        return float(self.residuals.sum() + self.bias_norms.sum())

    @property
    def rounding(self) -> float:
        """How much of a difference between the two sides float64 can make."""
        size = 1 + self.squared_norm + abs(self.log_determinant)
        return float(64 * np.finfo(np.float64).eps * len(self.residuals) * size)

    @property
    def holds(self) -> bool:
        """Whether the inequality holds up to rounding."""
        return bool(self.spent <= self.budget + self.rounding)


@follows
def bottleneck_frames(net: MLP, params: Params, x: Samples, *, rank: int | None = None) -> Frames:
    """Return the factors of Theorem 6 at one point, for the rank of Jf(x) or any smaller one.
    [bottleneck, Thm 6]

    `x` is a sample of one point. `rank=None` takes the numerical rank of Jf(x).

    >>> from neuromanifold.bottleneck import bottleneck_frames
    >>> net = nm.MLP((1, 2, 1), bias=False)
    >>> params = (nm.Layer(np.array([[0.8], [0.6]])), nm.Layer(np.array([[1.0, 0.0]])))
    >>> found = bottleneck_frames(net, params, np.array([[1.0]]))
    >>> found.spent, found.budget                              # 0.4 and −2 log 0.8
    (0.4, 0.446)
    """
    through = passage(net, params, x)
    require_contraction(through)
    if len(through.activations[0]) != 1:
        raise ValueError(
            f"`x` holds {len(through.activations[0])} points; pass one, as x[i : i + 1]."
        )
    return frames_at(through, rank)


def frames_at(through: Passage, rank: int | None, closest: np.ndarray | None = None) -> Frames:
    """The frames for a passage of one point; `closest` is the same at every point and may be
    passed on.
    """
    J = through.jacobian()[0]
    _, s, Vt = np.linalg.svd(J)
    full = _rank_of(J, s)
    k = full if rank is None else rank
    if not 0 <= k <= full:
        raise ValueError(
            f"`rank` is {rank}, but Jf(x) has rank {full}; pass a whole number from 0 to {full}."
        )
    left, right, logs, shared = _carry(through, Vt[:k].T)
    return Frames(
        rank=k,
        left=left,
        right=right,
        shared=shared,
        squared_norm=float(through.squared_norms.sum()),
        log_determinant=float(np.log(s[:k]).sum()),
        residuals=np.array(
            [
                np.sum((W - U @ V.T) ** 2)
                for W, U, V in zip(through.weights, left, right, strict=True)
            ]
        ),
        closest=closest if closest is not None else closest_isometries(through, k),
        shares=through.squared_norms - k - 2 * logs,
        bias_norms=through.bias_norms,
    )


def _rank_of(J: np.ndarray, s: np.ndarray) -> int:
    """How many singular values exceed max(shape)·eps·s_max, as `rank_from_spectrum` counts them."""
    return int(np.sum(s > max(J.shape) * np.finfo(np.float64).eps * s[0])) if s.size else 0


def _carry(
    through: Passage, V: np.ndarray
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], np.ndarray, bool]:
    """U_l and V_{l-1} for every layer, log|det| of D_lW_l between the spans of consecutive V,
    and whether U_l = V_l.
    """
    shared = all(float(slope.min()) >= 0 for slope in through.slopes)
    left, right, logs = [], [], []
    for W, slope in zip(through.weights, through.slopes, strict=True):
        image = W @ V
        basis, triangle = np.linalg.qr(slope[0][:, None] * image)
        logs.append(np.log(np.abs(np.diag(triangle))).sum())
        right.append(V)
        left.append(basis @ _polar(basis.T @ image) if shared else _polar(image))
        V = left[-1] if shared else basis
    return tuple(left), tuple(right), np.array(logs), shared


def _polar(A: np.ndarray) -> np.ndarray:
    """The semi-orthogonal factor closest to A."""
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    return U @ Vt


def distance_to_isometries(W: MatrixLike, rank: int) -> float:
    """min ‖W − UVᵀ‖²_F over U, V with `rank` orthonormal columns: Σ_{i≤k} (s_i − 1)² + Σ_{i>k}
    s_i².

    >>> from neuromanifold.bottleneck.frames import distance_to_isometries
    >>> distance_to_isometries(np.diag([0.5, 0.25]), 1)
    0.3125
    """
    s = np.linalg.svd(np.asarray(W, np.float64), compute_uv=False)
    s = np.concatenate([s, np.zeros(max(0, rank - len(s)))])
    return float(np.sum((s[:rank] - 1) ** 2) + np.sum(s[rank:] ** 2))


def closest_isometries(through: Passage, rank: int) -> Float[np.ndarray, " L"]:
    """The squared distance of every weight matrix to the partial isometries of that rank."""
    return np.array([distance_to_isometries(W, rank) for W in through.weights])


def frames_everywhere(through: Passage, rank: int | None) -> list[Frames]:
    """The frames at each sample; with a given rank, what depends on the weights alone is
    computed once.
    """
    closest = None if rank is None else closest_isometries(through, rank)
    return [frames_at(through.at(i), rank, closest) for i in range(len(through.activations[0]))]


def appendix_factors(
    net: MLP, params: Params, x: Samples
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """(U_l, V_{l-1}) of the appendix's proof, from the SVD of P_lW_lQ_{l-1}; they do *not* satisfy
    Theorem 6.   [bottleneck, Thm 15]

    The proof's determinant identity loses the angle between the row space of J(α̃_l → f) and the
    image of Jα_{l-1}. The smallest counterexample is the network of `bottleneck_frames`' example:
    ‖W_1 − U_1V_0ᵀ‖² + ‖W_2 − U_2V_1ᵀ‖² is 4/5 there, and the budget −2 log(4/5) is 0.446….

    >>> from neuromanifold.bottleneck.frames import appendix_factors
    >>> net = nm.MLP((1, 2, 1), bias=False)
    >>> params = (nm.Layer(np.array([[0.8], [0.6]])), nm.Layer(np.array([[1.0, 0.0]])))
    >>> factors = appendix_factors(net, params, np.array([[1.0]]))
    >>> float(sum(np.sum((layer.weight - U @ V.T) ** 2) for layer, (U, V) in zip(params, factors)))
    0.8
    """
    through = passage(net, params, x)
    if len(through.activations[0]) != 1:
        raise ValueError(
            f"`x` holds {len(through.activations[0])} points; pass one, as x[i : i + 1]."
        )
    J = through.jacobian()[0]
    k = _rank_of(J, np.linalg.svd(J, compute_uv=False))
    found = []
    for W, A, B in zip(
        through.weights, through.forward_jacobians(), through.backward_jacobians(), strict=False
    ):
        U, _, Vt = np.linalg.svd(_projection(B[0].T) @ W @ _projection(A[0]), full_matrices=False)
        found.append((U[:, :k], Vt[:k].T))
    return tuple(found)


def _projection(A: np.ndarray) -> np.ndarray:
    """Return the projection onto the image of A."""
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    U = U[:, : _rank_of(A, s)]
    return U @ U.T
