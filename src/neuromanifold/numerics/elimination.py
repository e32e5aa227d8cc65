"""Rank and pivots of matrices over a prime field: by BLAS for short primes, by FLINT for long
ones.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from neuromanifold.numerics.modular import SMALL_BITS, matmul, random_residues


class Echelon(NamedTuple):
    """A rank over a prime field with one nonzero minor that proves it: `matrix[rows][:,
    columns]` is invertible.
    """

    rank: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


def to_flint(matrix: Int[np.ndarray, "m n"], p: int):
    """The matrix as a `flint.nmod_mat` (through `fmpz_mat`: per-entry constructors of `nmod_mat`
    are slower).
    """
    import flint

    if 0 in matrix.shape:
        return flint.nmod_mat(matrix.shape[0], matrix.shape[1], p)
    return flint.nmod_mat(flint.fmpz_mat(matrix.tolist()), p)


def modular_rank(matrix: Int[np.ndarray, "m n"], p: int) -> int:
    """The rank modulo p."""
    return (
        len(rank_profile(matrix, p)[0])
        if p.bit_length() <= SMALL_BITS
        else to_flint(matrix, p).rank()
    )


def echelon(matrix: Int[np.ndarray, "m n"], p: int) -> Echelon:
    """Rank modulo p with pivot rows and columns.

    >>> echelon(np.array([[1, 2, 3], [2, 4, 6], [0, 0, 5]]), 7)
    Echelon(rank=2, rows=(0, 2), columns=(0, 2))
    """
    if p.bit_length() <= SMALL_BITS:
        rows, columns = rank_profile(matrix, p)
        return Echelon(len(rows), rows, columns)
    M = to_flint(matrix, p)
    rows = _pivots(M.transpose())
    if len(rows) == matrix.shape[1]:
        return Echelon(len(rows), rows, tuple(range(matrix.shape[1])))
    return Echelon(len(rows), rows, _pivots(M))


def _pivots(M: Any) -> tuple[int, ...]:
    reduced, rank = M.rref()
    pivots, column = [], 0
    for row in range(rank):
        while reduced[row, column] == 0:
            column += 1
        pivots.append(column)
    return tuple(pivots)


def minor_spans(
    matrix: Int[np.ndarray, "m n"], rows: Sequence[int], columns: Sequence[int], p: int
) -> bool:
    """Whether the minor A = matrix[rows][:, columns] is invertible modulo p and the rank is no
    larger.

    All columns depend on the chosen ones when a random combination b of them does: A z = b on the
    rows, and then everywhere. Where the rank is larger this is overlooked with probability 1/p.

    >>> p, A = 2**61 - 1, np.array([[1, 2, 3], [2, 4, 6], [0, 0, 5]])
    >>> minor_spans(A, (0, 2), (0, 2), p), minor_spans(A, (0,), (0,), p), minor_spans(A, (0, 1), (0, 2), p)
    (True, False, False)
    """
    at, across = np.asarray(rows, int), np.asarray(columns, int)
    b = matmul(matrix, random_residues((matrix.shape[1], 1), p), p)
    try:
        solution = to_flint(matrix[np.ix_(at, across)], p).solve(to_flint(b[at], p))
    except ZeroDivisionError:
        return False
    z = np.array([int(entry) for entry in solution.entries()], np.int64)[:, None]
    return np.array_equal(matmul(matrix[:, across], z, p), b)


def is_invertible(matrix: Int[np.ndarray, "n n"], p: int) -> bool:
    """Whether the determinant is nonzero modulo p."""
    return int(to_flint(matrix, p).det()) != 0


_NARROW = 24
_TERMS = 1 << (53 - 2 * SMALL_BITS)

Matrix = Float[np.ndarray, "_ _"]


class _Elimination(NamedTuple):
    """Rows in pivot order, pivot columns, and the unit lower trapezoid that reduces the rows (in
    that order).
    """

    order: Int[np.ndarray, " m"]
    columns: list[int]
    lower: Matrix


def rank_profile(matrix: Int[np.ndarray, "m n"], p: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pivot rows and pivot columns of a matrix modulo a prime of at most 22 bits; their number is
    the rank.

    >>> rank_profile(np.array([[1, 2, 3], [2, 4, 6], [0, 0, 5]]), 7)
    ((0, 2), (0, 2))
    """
    if matrix.shape[1] < matrix.shape[0]:
        return _blas_pivots(matrix, p)
    columns, rows = _blas_pivots(matrix.T, p)
    return rows, columns


def first_rows(matrix: Int[np.ndarray, "m n"], p: int) -> tuple[int, ...]:
    """The rows that are independent of those before them, modulo a prime of at most 22 bits.

    >>> first_rows(np.array([[1, 2], [2, 4], [1, 1], [0, 1]]), 7)
    (0, 2)
    """
    return _blas_pivots(matrix.T, p)[1]


def _blas_pivots(matrix: Int[np.ndarray, "m n"], p: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Some independent rows, and the columns that are independent of those before them."""
    found = _eliminate(matrix.astype(np.float64), float(p))
    return tuple(sorted(found.order[: len(found.columns)].tolist())), tuple(found.columns)


def _eliminate(A: Matrix, p: float) -> _Elimination:
    m, n = A.shape
    if n <= _NARROW or m <= 1:
        return _eliminate_narrow(A.copy(), p)
    half = n // 2
    left = _eliminate(A[:, :half], p)
    r = len(left.columns)
    right = A[left.order, half:]
    if r:
        top = _solve_lower(left.lower[:r], right[:r], p)
        right = _reduce(right[r:] - _product(left.lower[r:], top, p), p)
    rest = _eliminate(right, p)
    below = left.lower[r:][rest.order]
    s = len(rest.columns)
    lower = np.zeros((m, r + s))
    lower[:r, :r], lower[r:, :r], lower[r:, r:] = left.lower[:r], below, rest.lower
    order = np.concatenate([left.order[:r], left.order[r:][rest.order]])
    return _Elimination(order, [*left.columns, *(half + c for c in rest.columns)], lower)


def _eliminate_narrow(A: Matrix, p: float) -> _Elimination:
    m, n = A.shape
    order, columns, lower = np.arange(m), [], np.zeros((m, min(m, n)))
    for j in range(n):
        r = len(columns)
        if r == m:
            break
        candidates = np.flatnonzero(A[r:, j])
        if not len(candidates):
            continue
        pivot = r + int(candidates[0])
        if pivot != r:
            for array in (A, order, lower):
                array[[r, pivot]] = array[[pivot, r]]
        factors = _reduce(A[r + 1 :, j] * pow(int(A[r, j]), -1, int(p)), p)
        lower[r, r], lower[r + 1 :, r] = 1.0, factors
        if j + 1 < n:
            A[r + 1 :, j + 1 :] = _reduce(A[r + 1 :, j + 1 :] - factors[:, None] * A[r, j + 1 :], p)
        columns.append(j)
    return _Elimination(order, columns, lower[:, : len(columns)])


def _solve_lower(L: Matrix, B: Matrix, p: float) -> Matrix:
    """L⁻¹B for a unit lower triangle, by halves."""
    r = len(L)
    if r <= _NARROW:
        return _product(_inverse_lower(L, p), B, p)
    half = r // 2
    top = _solve_lower(L[:half, :half], B[:half], p)
    bottom = _reduce(B[half:] - _product(L[half:, :half], top, p), p)
    return np.concatenate([top, _solve_lower(L[half:, half:], bottom, p)])


def _inverse_lower(L: Matrix, p: float) -> Matrix:
    inverse = np.eye(len(L))
    for i in range(1, len(L)):
        inverse[i, :i] = _reduce(-_product(L[i : i + 1, :i], inverse[:i, :i], p)[0], p)
    return inverse


def _product(A: Matrix, B: Matrix, p: float) -> Matrix:
    """A·B modulo p, in sums short enough to be exact."""
    total = _reduce(A[:, :_TERMS] @ B[:_TERMS], p)
    for start in range(_TERMS, A.shape[1], _TERMS):
        total = _reduce(
            total + _reduce(A[:, start : start + _TERMS] @ B[start : start + _TERMS], p), p
        )
    return total


def _reduce(a: np.ndarray, p: float) -> np.ndarray:
    """Integers below 2⁵³ in size, modulo p: the quotient is off by at most one."""
    a = a - np.floor(a * (1.0 / p)) * p
    a += p * (a < 0)
    a -= p * (a >= p)
    return a
