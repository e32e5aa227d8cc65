"""Linear algebra: inverses, factorisations and decompositions of matrices in the last two axes."""

from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Table, table


def _success(a: Any) -> Any:
    """What LAPACK reports of each matrix: zero."""
    return jnp.zeros(a.shape[:-2], jnp.int32)


def inverse(a: Any, check_errors: bool = False) -> tuple[Any, Any]:
    """a⁻¹."""
    return jnp.linalg.inv(a), _success(a)


def solve(a: Any, b: Any, *, left: bool = True) -> Any:
    """x of a x = b, or of x a = b; one vector for each matrix where the shapes say so."""
    vectors = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = b[..., None] if vectors else b
    x = jnp.linalg.solve(a, right) if left else jnp.linalg.solve(a.mT, right.mT).mT
    return x[..., 0] if vectors else x


def solve_and_factors(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """(x, the factors of a in one matrix, their pivots from one on, what LAPACK reports)."""
    factors, pivots, _ = jax.lax.linalg.lu(a)
    return solve(a, b, left=left), factors, pivots + 1, _success(a)


def cholesky(a: Any, upper: bool = False, check_errors: bool = False) -> tuple[Any, Any]:
    """L of a = L Lᵀ."""
    found = jnp.linalg.cholesky(a)
    return (found.mT if upper else found), _success(a)


def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """x of L Lᵀ x = b."""
    lower = factor.mT if upper else factor
    y = triangular_solve(lower, b, upper=False)
    return triangular_solve(lower.mT, y, upper=True)


def triangular_solve(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """x of a x = b, or of x a = b, for a triangular matrix."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(m, (*batch, *m.shape[-2:])) for m in (a, b))
    return jax.lax.linalg.triangular_solve(
        a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular
    )


def singular(
    a: Any, full_matrices: bool = False, compute_uv: bool = True, driver: Any = None
) -> tuple[Any, Any, Any]:
    """(U, S, Vᵀ)."""
    if not compute_uv:
        return None, jnp.linalg.svd(a, compute_uv=False), None
    u, s, v = jnp.linalg.svd(a, full_matrices=full_matrices)
    return u, s, v


def symmetric_eigen(a: Any, uplo: str = "L", compute_v: bool = True) -> tuple[Any, Any]:
    """(eigenvalues, eigenvectors) of a symmetric matrix."""
    values, vectors = jnp.linalg.eigh(a)
    return values, vectors if compute_v else None


def pseudoinverse(a: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """a⁺, with singular values below `rtol` of the largest taken as zero."""
    return jnp.linalg.pinv(a, rtol=rtol, hermitian=hermitian)


MATRICES: Table = table(
    {
        "linalg_inv_ex.default": inverse,
        "linalg_inv.default": lambda a: inverse(a)[0],
        "_linalg_solve_ex.default": solve_and_factors,
        "linalg_solve.default": solve,
        "linalg_cholesky_ex.default": cholesky,
        "linalg_cholesky.default": lambda a, upper=False: cholesky(a, upper)[0],
        "cholesky_solve.default": cholesky_solve,
        "linalg_solve_triangular.default": triangular_solve,
        "_linalg_svd.default": singular,
        "_linalg_eigh.default": symmetric_eigen,
        "linalg_pinv.atol_rtol_tensor": pseudoinverse,
        "linalg_matrix_exp.default": jax.scipy.linalg.expm,
        "_linalg_slogdet.default": lambda a: (*jnp.linalg.slogdet(a), None, None),
        "_linalg_det.default": lambda a: (jnp.linalg.det(a), None, None),
        "linalg_det.default": jnp.linalg.det,
        "linalg_qr.default": lambda a, mode="reduced": jnp.linalg.qr(a, mode),
    }
)
