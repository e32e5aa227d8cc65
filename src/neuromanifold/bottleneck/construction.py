"""Theorem 3(3): a ReLU network for x ↦ Ax on a completely positive domain, with ‖θ‖² − L·rank A
→ 2 log|A|₊.
"""

import numpy as np

from neuromanifold.bottleneck.cost import positive_singular_values
from neuromanifold.bottleneck.positivity import completely_positive
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import follows
from neuromanifold.numerics.validation import MatrixLike, check_depth, check_matrix


@follows
def linear_construction(A: MatrixLike, points: MatrixLike, depth: int) -> tuple[MLP, Params]:
    """Return a bias-free ReLU network that equals x ↦ Ax on the cone spanned by the points.
    [bottleneck, Thm 3(3)]

    With isometries O_in of P = A⁺A and O_out of A into nonnegative orthants, B_l = [√(1−l/L) O_in
    P; √(l/L) O_out A] is nonnegative on the domain and interpolates the kernels: B_lᵀB_l = (1−l/L)
    P + (l/L) AᵀA. The weights are W_l = B_lB_{l-1}⁺ with B_0 = P and B_L = A. (The paper prints the
    two weights of the interpolation exchanged.)

    `points` (n, d) span the cone; `depth` is the number L of layers.

    >>> from neuromanifold.bottleneck import linear_construction
    >>> net, params = linear_construction(np.diag([2.0, 3.0]), np.eye(2), 4)
    >>> net(params, np.array([[1.0, 1.0], [0.5, 2.0]])).tolist()
    [[2.0, 3.0], [1.0, 6.0]]
    """
    A, X, L = check_matrix(A), check_matrix(points, "points"), check_depth(depth)
    if X.shape[1] != A.shape[1]:
        raise ValueError(
            f"`points` has {X.shape[1]} columns but `A` takes {A.shape[1]}; pass one row for each "
            "point."
        )
    P = np.linalg.pinv(A) @ A
    inner, outer = (
        _embedding(X @ P, "the projection of `points`"),
        _embedding(X @ A.T, "`points` mapped by `A`"),
    )
    kernels = [
        np.concatenate([np.sqrt(1 - l / L) * inner @ P, np.sqrt(l / L) * outer @ A])
        for l in range(1, L)
    ]
    stages = [P, *kernels, A]
    weights = [b @ np.linalg.pinv(a) for a, b in zip(stages[:-1], stages[1:], strict=True)]
    net = MLP((A.shape[1], *(len(B) for B in kernels), A.shape[0]), "relu", bias=False)
    return net, tuple(Layer(W) for W in weights)


def construction_norm(A: MatrixLike, depth: int) -> float:
    """Return ‖θ‖² of `linear_construction` in closed form: Σ_i Σ_l κ_l/κ_{l-1} with κ_l = 1 +
    (l/L)(s_i² − 1).   [bottleneck, Thm 3(3)]

    A left Riemann sum: minus L·rank A it tends to Σ ∫ dκ/κ = 2 log|A|₊.

    `A` is any matrix, `depth` the number L of layers.

    >>> from neuromanifold.bottleneck import construction_norm
    >>> construction_norm(np.array([[2.0]]), 2)                # 5/2 + 4/(5/2)
    4.1
    """
    L, s = check_depth(depth), positive_singular_values(A)
    kappa = 1 + np.arange(L + 1)[:, None] / L * (s**2 - 1)
    return float(np.sum(kappa[1:] / kappa[:-1]))


def _embedding(X: np.ndarray, what: str) -> np.ndarray:
    found = completely_positive(X)
    if found.embedding is None:
        raise ValueError(
            f"{what} is not known to be completely positive: {found.reason}; choose a narrower "
            "domain."
        )
    return found.embedding
