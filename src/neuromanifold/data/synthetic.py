"""The functions f1–f3 on [0, 1] with noise, g1–g3 on [0, 1]² without.
[complexity, Sec. 5, App. B.1]
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from neuromanifold.data.dataset import Dataset
from neuromanifold.numerics.precision import arithmetic

NOISE = 0.01


def _wave(k: int, t: np.ndarray) -> np.ndarray:
    return np.sin(k * np.pi * t)


UNIVARIATE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "f1": lambda t: 1.5 + _wave(2, t),
    "f2": lambda t: 1.5 + _wave(2, t) + 0.5 * _wave(4, t),
    "f3": lambda t: 1.5 + _wave(2, t) + 0.5 * _wave(4, t) + 0.4 * _wave(16, t),
}
BIVARIATE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "g1": lambda s, t: 1.5 + _wave(2, s) + _wave(2, t),
    "g2": lambda s, t: 1.5 + _wave(2, s) + _wave(2, t) + 0.5 * _wave(4, s),
    "g3": lambda s, t: 1.5 + _wave(2, s) + _wave(2, t) + 0.5 * _wave(4, s) + 0.4 * _wave(4, t),
}
FORMULAS = {
    "f1": "3/2 + sin 2πx",
    "f2": "3/2 + sin 2πx + ½ sin 4πx",
    "f3": "3/2 + sin 2πx + ½ sin 4πx + ⅖ sin 16πx",
    "g1": "3/2 + sin 2πx + sin 2πy",
    "g2": "3/2 + sin 2πx + sin 2πy + ½ sin 4πx",
    "g3": "3/2 + sin 2πx + sin 2πy + ½ sin 4πx + ⅖ sin 4πy",
}


def univariate(name: str, key: Any) -> Dataset:
    """100 equally spaced points of [0, 1], ends included; then N(0, 0.01²) noise on inputs and
    outputs alike.

    The outputs are those of the points before the noise. Data sets drawn from one key have
    independent noise.
    """
    grid = np.linspace(0.0, 1.0, 100)[:, None]
    key = jax.random.fold_in(key, list(UNIVARIATE).index(name))
    with arithmetic():
        noise = NOISE * np.asarray(jax.random.normal(key, (2, *grid.shape), np.float64))
    return Dataset(
        name=name,
        x=grid + noise[0],
        y=UNIVARIATE[name](grid) + noise[1],
        features=("x",),
        targets=(name,),
        licence="none (generated)",
        source="[complexity, Sec. 5]",
        notes=f"{FORMULAS[name]} at 100 equally spaced points of [0, 1], then N(0, {NOISE}²) "
        "noise on x and y",
    )


def bivariate(name: str) -> Dataset:
    """The 20×20 grid of [0, 1]², edges included, without noise; the second coordinate runs
    fastest.
    """
    line = np.linspace(0.0, 1.0, 20)
    s, t = (a.reshape(-1, 1) for a in np.meshgrid(line, line, indexing="ij"))
    return Dataset(
        name=name,
        x=np.hstack([s, t]),
        y=BIVARIATE[name](s, t),
        features=("x", "y"),
        targets=(name,),
        licence="none (generated)",
        source="[complexity, App. B.1]",
        notes=f"{FORMULAS[name]} on the 20×20 grid of [0, 1]², without noise",
    )
