"""What the hidden neurons of a perceptron are on a sample: linear, inactive, scaled, or of one
pattern with others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from neuromanifold.models.activation import per_neuron
from neuromanifold.models.mlp import MLP, Entry
from neuromanifold.numerics.results import Result


@dataclass(frozen=True, repr=False)
class LayerStatus(Result):
    """What the neurons of a hidden layer are on the sample, as index arrays.

    `linear`: one nonzero slope on all of it (always-active ReLUs, identity, leaky ReLUs of either
    fixed sign), with their `slopes`; `inactive`: slope zero on all of it; `bent`: all others, of
    which `scaled` are homogeneous, of these `degrees`. `mixed`: (i, j, ±1) for ordered pairs of
    scaled neurons of degree 1 whose slopes are ± equal at every sample.
    """

    linear: Int[np.ndarray, " k"]
    slopes: Float[np.ndarray, " k"]
    inactive: Int[np.ndarray, " d"]
    bent: Int[np.ndarray, " b"]
    scaled: Int[np.ndarray, " m"]
    degrees: Float[np.ndarray, " m"]
    mixed: tuple[tuple[int, int, float], ...]

    def headline(self) -> str:
        """Say how many neurons of each kind there are."""
        return (
            f"{len(self.linear)} linear, {len(self.inactive)} inactive, {len(self.bent)} bent "
            "neurons on the sample"
        )


def statuses(net: MLP, slopes: Sequence[np.ndarray]) -> tuple[LayerStatus, ...]:
    """Return the status of every hidden layer, from σ' of each neuron at each sample (nan where it
    is no constant).
    """
    rows = zip(net.activation, slopes, strict=False)
    return tuple(_status(slope, _degrees(entry, slope.shape[1])) for entry, slope in rows)


def _status(slope: np.ndarray, degree: np.ndarray) -> LayerStatus:
    constant = (slope == slope[0]).all(axis=0)
    linear, inactive = (
        np.flatnonzero(constant & (slope[0] != 0)),
        np.flatnonzero(constant & (slope[0] == 0)),
    )
    scaled = np.flatnonzero(~constant & ~np.isnan(degree))
    mixed = tuple(same_pattern(slope, [int(i) for i in scaled if degree[i] == 1]))
    return LayerStatus(
        linear, slope[0, linear], inactive, np.flatnonzero(~constant), scaled, degree[scaled], mixed
    )


def _degrees(entry: Entry, width: int) -> np.ndarray:
    """Return d for each neuron, nan where the activation is not homogeneous."""
    runs = per_neuron(entry, width)
    return np.concatenate(
        [np.full(run.stop - run.start, np.nan if a.degree is None else a.degree) for a, run in runs]
    )


def same_pattern(slope: np.ndarray, among: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return (i, j, ±1) for ordered pairs of neurons of degree 1 whose slopes on the sample are s_i
    = ±s_j: they mix as linear ones do.

    >>> same_pattern(np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]), [0, 1, 2])
    [(0, 1, 1.0), (1, 0, 1.0)]
    """
    groups: dict[bytes, list[tuple[int, float]]] = {}
    for i in among:
        lead = slope[np.flatnonzero(slope[:, i])[0], i] if slope[:, i].any() else 1.0
        sign = float(np.copysign(1.0, lead))
        groups.setdefault((sign * slope[:, i] + 0.0).tobytes(), []).append((int(i), sign))
    return [
        (i, j, s * t) for group in groups.values() for i, s in group for j, t in group if i != j
    ]
