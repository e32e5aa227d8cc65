"""Ranks of concrete matrices on the host."""

import numpy as np

from neuromanifold.numerics.precision import arithmetic, to_host
from neuromanifold.numerics.rank import Rank, rank_from_spectrum


def host_rank(matrix: np.ndarray, *, rtol: float | None = None) -> Rank:
    """The numerical rank with its evidence, all of it NumPy."""
    spectrum = np.linalg.svd(matrix, compute_uv=False) if matrix.size else np.zeros(0)
    with arithmetic():
        rank = rank_from_spectrum(spectrum, (max(1, matrix.shape[0]), matrix.shape[1]), rtol)
        return Rank(*to_host((rank.value, rank.spectrum, rank.threshold, rank.gap)))
