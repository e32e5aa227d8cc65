"""Rank and pivots of matrices over a prime field: by BLAS for short primes, by FLINT for long ones."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from neuromanifold.numerics.modular import SMALL_BITS, matmul, random_residues
from neuromanifold.numerics.profile import rank_profile


class Echelon(NamedTuple):
    """A rank over a prime field with one nonzero minor that proves it: `matrix[rows][:, columns]` is invertible."""

    rank: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


def to_flint(matrix: Int[np.ndarray, "m n"], p: int):
    """The matrix as a `flint.nmod_mat` (through `fmpz_mat`: per-entry constructors of `nmod_mat` are slower)."""
    import flint

    if 0 in matrix.shape:
        return flint.nmod_mat(matrix.shape[0], matrix.shape[1], p)
    return flint.nmod_mat(flint.fmpz_mat(matrix.tolist()), p)


def modular_rank(matrix: Int[np.ndarray, "m n"], p: int) -> int:
    """The rank modulo p."""
    return len(rank_profile(matrix, p)[0]) if p.bit_length() <= SMALL_BITS else to_flint(matrix, p).rank()


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


def minor_spans(matrix: Int[np.ndarray, "m n"], rows: Sequence[int], columns: Sequence[int], p: int) -> bool:
    """Whether the minor A = matrix[rows][:, columns] is invertible modulo p and the rank is no larger.

    All columns depend on the chosen ones when a random combination b of them does: A z = b on the rows, and then everywhere.
    Where the rank is larger this is overlooked with probability 1/p.

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
