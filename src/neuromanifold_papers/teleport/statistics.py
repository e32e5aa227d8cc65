"""Numbers read off the teleport runs: halving times, correlations and slopes, each with its
confidence interval.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval and the number of points behind it."""

    value: float
    low: float
    high: float
    points: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def as_dict(self) -> dict[str, float | int]:
        """For `summary.json`."""
        return {"value": self.value, "low": self.low, "high": self.high, "points": self.points}


def halving_epoch(times: np.ndarray, curves: np.ndarray, initial: np.ndarray) -> np.ndarray:
    """The first whole epoch after which the loss is below half of its initial value; nan where it
    never is.

    >>> halving_epoch(np.array([0.5, 1.0, 1.5, 2.0]), np.array([[0.7, 0.6, 0.4, 0.3]]), np.array([1.0]))
    array([2.])
    """
    whole = np.flatnonzero(times == np.round(times))
    below = curves[:, whole] < initial[:, None] / 2
    return np.where(below.any(axis=1), times[whole][below.argmax(axis=1)], np.nan)


def halving_time(times: np.ndarray, curves: np.ndarray, initial: np.ndarray) -> np.ndarray:
    """When the loss first crosses half of its initial value, log-linear between the readings; nan
    where it never does.

    >>> halving_time(np.array([1.0, 2.0]), np.array([[0.5, 0.4], [2**-0.5, 2**-1.5]]), np.array([1.0, 1.0])).round(12)
    array([1. , 1.5])
    """
    times = np.concatenate([[0.0], times])
    logs = np.log2(np.concatenate([initial[:, None], curves], axis=1) / initial[:, None])
    below = logs <= -1
    after = below.argmax(axis=1)
    rows = np.arange(len(curves))
    before = np.maximum(after - 1, 0)
    fraction = (-1 - logs[rows, before]) / (logs[rows, after] - logs[rows, before] + (after == 0))
    return np.where(
        below.any(axis=1), times[before] + fraction * (times[after] - times[before]), np.nan
    )


def pearson(x: np.ndarray, y: np.ndarray) -> Estimate:
    """Pearson's r over the finite pairs, with Fisher's interval; nan where a variable does not
    vary.

    >>> pearson(np.arange(5.0), np.array([0.0, 1.0, 2.0, 3.0, 5.0])).value
    0.986
    """
    finite = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[finite].astype(float), y[finite].astype(float), int(finite.sum())
    if n < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Estimate(np.nan, np.nan, np.nan, n)
    r = float(np.corrcoef(x, y)[0, 1])
    z, half = np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15)), 1.959963984540054 / np.sqrt(n - 3)
    return Estimate(r, float(np.tanh(z - half)), float(np.tanh(z + half)), n)


def partial_correlation(
    x: np.ndarray, y: np.ndarray, given: np.ndarray, *, ranks: bool = False
) -> Estimate:
    """Pearson's r between what is left of x and of y after the best line through `given` is taken
    off each.

    With `ranks=True` of their ranks, which does not presuppose that the relations are lines.

    >>> given = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    >>> wave = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    >>> round(partial_correlation(given + wave, wave - given, given).value, 12)
    1.0
    """
    from scipy.stats import rankdata

    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(given)
    x, y, given = (np.asarray(v[finite], float) for v in (x, y, given))
    if len(x) < 4:
        return Estimate(np.nan, np.nan, np.nan, len(x))
    if ranks:
        x, y, given = (rankdata(v) for v in (x, y, given))
    design = np.stack([np.ones_like(given), given], axis=1)
    x, y = (v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (x, y))
    return pearson(x, y)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """The rank correlation over the finite pairs."""
    from scipy.stats import spearmanr

    finite = np.isfinite(x) & np.isfinite(y)
    varies = finite.sum() > 2 and np.ptp(x[finite]) > 0 and np.ptp(y[finite]) > 0
    return float(spearmanr(x[finite], y[finite])[0]) if varies else np.nan  # pyright: ignore[reportArgumentType]


def log_slope(x: np.ndarray, y: np.ndarray) -> Estimate:
    """The slope of log y against log x by least squares, with Student's interval.

    >>> log_slope(np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.5, 0.75])).value
    -1.0
    """
    from scipy.stats import linregress, t

    fit = linregress(np.log(x), np.log(y))
    half = float(t.ppf(0.975, len(x) - 2) * fit.stderr)  # pyright: ignore[reportAttributeAccessIssue]
    slope = float(fit.slope)  # pyright: ignore[reportAttributeAccessIssue]
    return Estimate(slope, slope - half, slope + half, len(x))
