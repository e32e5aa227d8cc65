"""Means with intervals, orderings, correlations: how the complexity study turns trajectories
into claims.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

SUCCESS = 0.9
LEVEL = 0.95
RESAMPLES = 10_000


def successful(history: xr.Dataset) -> xr.DataArray:
    """Which runs end with r² > 0.9.   [complexity, Fig 2]"""
    return history.r_squared.isel(epoch=-1) > SUCCESS


def interval(values: Any, *, axis: int = 0) -> tuple[Any, Any]:
    """The mean and the half width of its 95 % interval by Student's t; infinite for a single value.

    >>> mean, half = interval(np.array([1.0, 2.0, 3.0]))
    >>> round(float(mean), 3), round(float(half), 3)         # t = 4.303, s = 1, n = 3
    (2.0, 2.484)
    """
    from scipy import stats

    a = np.asarray(values, np.float64)
    n = a.shape[axis]
    if n == 1:
        return a.mean(axis), np.full(a.mean(axis).shape, np.inf)
    t = stats.t.ppf((1 + LEVEL) / 2, n - 1)
    return a.mean(axis), t * a.std(axis, ddof=1) / np.sqrt(n)


def described(values: Any) -> str:
    """Mean ± half width (number of values).

    >>> described([1.0, 2.0, 3.0])
    '2.0 ± 2.5 (3)'
    """
    a = np.asarray(values, np.float64)
    if a.size == 0:
        return "no successful run"
    mean, half = interval(a)
    return f"{mean:.1f} ± {half:.1f} ({a.size})" if np.isfinite(half) else f"{mean:.1f} (1)"


def resampled(values: Any) -> str:
    """The mean, its 95 % interval by the bootstrap (quantiles of the means of 10,000 resamples,
    seed 0), and how many values.

    >>> resampled([0.9, 0.95, 1.0, 0.95])
    '0.950 [0.912, 0.988] (4)'
    """
    a = np.asarray(values, np.float64)
    means = np.random.default_rng(0).choice(a, (RESAMPLES, a.size)).mean(axis=1)
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return f"{a.mean():.3f} [{low:.3f}, {high:.3f}] ({a.size})"


def finals(history: xr.Dataset, variable: str, where: dict[str, Any]) -> np.ndarray:
    """The variable at the end of the successful runs of one group."""
    one = history.sel(where)
    return one[variable].isel(epoch=-1).values[successful(one).values].astype(np.float64)


def increasing(groups: list[np.ndarray]) -> tuple[bool | str, list[str]]:
    """Whether the groups' means increase: True where each 95 % interval of a step (Welch) is above
    zero, "partly" where the means increase but an interval does not say so, or where only the ends
    are in order; with the steps in words, those of neighbours and then that of the ends.

    >>> increasing([np.array([1.0, 1.1, 0.9]), np.array([2.0, 2.1, 1.9])])[0]
    True
    """
    if any(len(group) < 2 for group in groups):
        return "partly", ["too few successful runs"]
    steps = [difference(a, b) for a, b in pairwise(groups)]
    ends = difference(groups[0], groups[-1])
    words = [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" for mean, low, high in (*steps, ends)]
    if not any(low * high > 0 for _, low, high in (*steps, ends)):
        words.append("no difference is significant")
    if all(low > 0 for _, low, _ in steps):
        return True, words
    return ("partly" if all(mean > 0 for mean, _, _ in steps) or ends[1] > 0 else False), words


def difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """mean(b) − mean(a) with its 95 % interval, variances not taken to be equal (Welch)."""
    from scipy import stats

    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    mean, error = float(b.mean() - a.mean()), float(np.sqrt(va + vb))
    if error == 0:
        return mean, mean, mean
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    return mean, mean - half, mean + half


def correlations(history: xr.Dataset, first: str, second: str) -> np.ndarray:
    """Pearson's correlation along the epochs of each run where both are measured; runs without
    variation are left out.
    """
    a, b = (history[name].transpose(..., "epoch").values for name in (first, second))
    a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    found = []
    for row, other in zip(a, b, strict=True):
        both = ~(np.isnan(row) | np.isnan(other))
        if both.sum() > 2 and row[both].std() > 0 and other[both].std() > 0:
            found.append(np.corrcoef(row[both], other[both])[0, 1])
    return np.array(found)
