"""The representation cost of a linear map, exactly, and its expansion in the depth.
[bottleneck, Sec. 3]
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from neuromanifold.models.init import Layer
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import MOST_LAYERS, MatrixLike, check_depth, check_matrix


def positive_singular_values(
    A: MatrixLike, *, rtol: float | None = None
) -> Float[np.ndarray, " k"]:
    """The singular values above `rtol·s_max` (default max(m, n)·eps), largest first."""
    A = check_matrix(A)
    s = np.linalg.svd(A, compute_uv=False)
    rtol = max(A.shape) * np.finfo(np.float64).eps if rtol is None else rtol
    return s[s > rtol * s[0]]


def pseudo_determinant(A: MatrixLike, *, rtol: float | None = None) -> float:
    """Return |A|₊, the product of the nonzero singular values; 1 for the zero matrix.
    [bottleneck, Sec. 1.1]

    Singular values below `rtol` times the largest count as zero.

    >>> from neuromanifold.bottleneck import pseudo_determinant
    >>> pseudo_determinant(np.diag([2.0, 3.0, 0.0]))
    6.0
    """
    return float(np.prod(positive_singular_values(A, rtol=rtol)))


@follows
def log_plus(A: MatrixLike, *, rtol: float | None = None) -> Float[np.ndarray, "n n"]:
    """Return log₊A of a symmetric positive semidefinite A: its nonzero eigenvalues replaced by
    their logarithms.   [bottleneck, Sec. 3]

    Eigenvalues below `rtol` times the largest count as zero.

    >>> from neuromanifold.bottleneck import log_plus
    >>> log_plus(np.diag([np.e, 0.0])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    A = check_matrix(A)
    scale = float(np.abs(A).max())
    floor = scale * (max(A.shape) * np.finfo(np.float64).eps if rtol is None else rtol)
    if A.shape[0] != A.shape[1] or np.abs(A - A.T).max() > floor:
        raise ValueError(f"`A` of shape {A.shape} is not symmetric; pass AᵀA.")
    values, vectors = np.linalg.eigh(A)
    if values[0] < -floor:
        raise ValueError(
            f"`A` has the eigenvalue {values[0]:.3g}; log₊ is for positive semidefinite matrices: pass AᵀA."
        )
    logs = np.log(values, where=values > floor, out=np.zeros_like(values))
    return (vectors * logs) @ vectors.T


def representation_cost(A: MatrixLike, depth: int, *, rtol: float | None = None) -> float:
    """Return the least ‖θ‖² with which a linear network of that depth represents A.
    [bottleneck, Sec. 3]

    R(A; L) = min { Σ‖W_l‖²_F : W_L⋯W_1 = A } = L Σ s_i(A)^{2/L},   attained by `balanced_factors`.

    `depth` is the number L of layers. Singular values below `rtol` times the largest count as zero.

    >>> from neuromanifold.bottleneck import representation_cost
    >>> representation_cost(np.diag([8.0, 1.0]), 3)      # 3·(8^{2/3} + 1)
    15.0
    """
    L = check_depth(depth)
    return float(L * np.sum(positive_singular_values(A, rtol=rtol) ** (2 / L)))


@follows
def balanced_factors(
    A: MatrixLike, depth: int, *, width: int | None = None, rtol: float | None = None
) -> tuple[Layer, ...]:
    """Return a factorisation A = W_L⋯W_1 that attains the cost: W_l = U_l S^{1/L} U_{l-1}ᵀ, so
    W_{l+1}ᵀW_{l+1} = W_lW_lᵀ.

    Hidden layers have `width` neurons (default rank A); the rest of them stays at zero.

    `depth` is the number L of factors. Singular values below `rtol` times the largest count as
    zero.

    >>> from neuromanifold.bottleneck import balanced_factors
    >>> [abs(layer.weight).tolist() for layer in balanced_factors(np.array([[9.0]]), 2)]
    [[[3.0]], [[3.0]]]
    """
    A, L = check_matrix(A), check_depth(depth, most=MOST_LAYERS)
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    k = len(positive_singular_values(A, rtol=rtol))
    width = max(k, 1) if width is None else width
    if width < k:
        raise ValueError(f"`width` is {width}, below the rank {k} of `A`; pass at least {k}.")
    root, frame = s[:k] ** (1 / L), np.eye(width)[:, :k]
    bases = [Vt[:k].T, *([frame] * (L - 1)), U[:, :k]]
    return tuple(
        Layer((out * root) @ into.T) for into, out in zip(bases[:-1], bases[1:], strict=True)
    )


@dataclass(frozen=True, repr=False)
class CostExpansion(Result):
    """R(A; L) = L·r0 + r1 + r2/L + r3/L² + …, with r0 = rank A, r1 = 2 log|A|₊, r2 = ½‖log₊AᵀA‖²,
    r3 = (4/3) Σ log³ s.

    The paper stops at r2 and calls the rest O(L⁻²); `r3` is the coefficient of that rest.
    """

    singular_values: Float[Array, " k"]

    @property
    def r0(self) -> int:
        """The rank."""
        return len(self.singular_values)

    @property
    def r1(self) -> float:
        """2 log|A|₊."""
        return self._coefficient(1)

    @property
    def r2(self) -> float:
        """½‖log₊AᵀA‖² = 2 Σ log² s."""
        return self._coefficient(2)

    @property
    def r3(self) -> float:
        """(4/3) Σ log³ s."""
        return self._coefficient(3)

    def _coefficient(self, order: int) -> float:
        """Of L^{1-order} in L Σ exp((2/L) log s)."""
        return float(
            2**order / math.factorial(order) * np.sum(np.log(self.singular_values) ** order)
        )

    def cost(self, depth: int) -> float:
        """Return R(A; L) at L = `depth`, exactly."""
        L = check_depth(depth)
        return float(L * np.sum(self.singular_values ** (2 / L)))

    def remainder(self, depth: int) -> float:
        """Return R(A; L) − L·r0 − r1 − r2/L at L = `depth`: what the paper calls O(L⁻²), without
        cancellation."""
        L = check_depth(depth)
        t = 2 / L * np.log(self.singular_values)
        series = [t**n / math.factorial(n) for n in range(3, 30)]
        tail = np.where(np.abs(t) < 1, np.sum(series, axis=0), np.expm1(t) - t - t**2 / 2)
        return float(L * np.sum(tail))

    def __str__(self) -> str:
        return f"R(A; L) = {self.r0}·L + {self.r1:.6g} + {self.r2:.6g}/L + {self.r3:.6g}/L² + …"


@follows
def cost_expansion(A: MatrixLike, *, rtol: float | None = None) -> CostExpansion:
    """Expand the representation cost of x ↦ Ax around infinite depth, for a matrix `A`.
    [bottleneck, Sec. 3]

    Singular values below `rtol` times the largest count as zero.

    >>> from neuromanifold.bottleneck import cost_expansion
    >>> found = cost_expansion(np.diag([np.e, np.e, 0.0]))
    >>> found.r0, found.r1, found.r2
    (2, 4.0, 4.0)
    """
    return CostExpansion(positive_singular_values(A, rtol=rtol))
