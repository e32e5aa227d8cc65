"""Where a spectrum is cut, and the null space beyond the cut."""

from dataclasses import dataclass

import numpy as np

from neuromanifold.numerics.rank import SMALLEST_GAP
from neuromanifold.numerics.results import Result

_FLOOR = 1e-4
"""Columns smaller than this part of the largest are not brought to length 1: they may be
rounding.
"""
_SMALL = 1e-7


@dataclass(frozen=True, repr=False)
class SpectralGap(Result):
    """How many singular values are not zero, and the ratio of those beside the cut; `size` is
    how many columns there were.
    """

    rank: int
    size: int
    gap: float

    @property
    def nullity(self) -> int:
        """How many are zero."""
        return self.size - self.rank

    @property
    def decided(self) -> bool:
        """Whether the spectrum has a gap at the cut."""
        return self.gap >= SMALLEST_GAP


def spectral_gap(spectrum: np.ndarray, size: int) -> SpectralGap:
    """Find the widest gap below 10⁻⁷ of the largest singular value.

    >>> spectral_gap(np.array([1.0, 0.1, 1e-15]), 3).nullity
    1
    """
    if not spectrum.size or spectrum[0] == 0:
        return SpectralGap(0, size, np.inf)
    s = np.append(
        np.maximum(spectrum, np.finfo(np.float64).eps * spectrum[0]),
        [np.finfo(np.float64).eps * spectrum[0]],
    )
    s = s if len(spectrum) < size else s[:-1]
    ratios = np.where(s[1:] < _SMALL * s[0], s[:-1] / s[1:], 0.0)
    if not ratios.any():
        return SpectralGap(len(spectrum), size, float(s[-1] / (np.finfo(np.float64).eps * s[0])))
    at = int(np.argmax(ratios))
    return SpectralGap(at + 1, size, float(ratios[at]))


def null_space(rows: np.ndarray, *, vectors: bool = True) -> tuple[np.ndarray, SpectralGap]:
    """Return an orthonormal basis of the kernel, found after rows and columns were brought to
    length 1, and the cut.
    """
    _check_finite(rows)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(lengths > 0, lengths, 1.0)
    columns = np.linalg.norm(rows, axis=0)
    columns = np.maximum(columns, _FLOOR * columns.max(initial=0.0))
    columns = np.where(columns > 0, columns, 1.0)
    rows = np.asarray(np.linalg.qr(rows / columns, mode="r"))
    if not vectors:
        return np.empty((0, rows.shape[1])), spectral_gap(
            np.linalg.svd(rows, compute_uv=False), rows.shape[1]
        )
    _, s, V = np.linalg.svd(rows)
    found = spectral_gap(s, rows.shape[1])
    return np.linalg.qr((V[found.rank :] / columns).T)[0].T, found


def _check_finite(rows: np.ndarray) -> None:
    if bad := int((~np.isfinite(rows)).any(1).sum()):
        raise ArithmeticError(
            f"`f` or its derivative is not finite at {bad} of {len(rows)} random parameters and "
            "inputs; "
            "keep what must be positive (variances) out of `params`."
        )
