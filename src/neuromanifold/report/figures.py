"""Figures of an inspection, drawn from what it holds; nothing is computed here."""

from typing import Any

import numpy as np

from neuromanifold.inspection import Inspection

BLUE, ORANGE, GREEN, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#BBBBBB", "#333333"
SKY, PINK, YELLOW = "#56B4E9", "#CC79A7", "#E69F00"


def _axes(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def spectrum_figure(inspection: Inspection) -> Any:
    """Singular values of J on a log scale, with the exact rank and what the two precisions cut off."""
    figure, axes = _axes(7.2, 3.8)
    values = np.asarray(inspection.float64.spectrum)
    floor = max(values[0], 1e-300) * 1e-20
    index = np.arange(1, len(values) + 1)
    kept = index <= int(inspection.dimension)
    axes.semilogy(
        index[kept], np.maximum(values[kept], floor), "o", ms=4, color=BLUE, label="directions that change the function"
    )
    axes.semilogy(index[~kept], np.maximum(values[~kept], floor), "o", ms=4, color=GREY, label="zero up to rounding")
    _threshold(axes, float(inspection.float32.threshold), "float32 cuts here", ORANGE, len(values))
    _threshold(axes, float(inspection.float64.threshold), "float64 cuts here", GREEN, len(values))
    rank = int(inspection.dimension)
    axes.axvline(rank + 0.5, color=INK, lw=1)
    axes.annotate(
        f"rank {rank}", (rank + 0.5, 1), xycoords=("data", "axes fraction"), xytext=(5, -12), textcoords="offset points"
    )
    axes.set_xlabel("index")
    axes.set_ylabel("singular value of the Jacobian")
    axes.set_xlim(0, len(values) + 1)
    figure.legend(loc="outside upper left", frameon=False, ncols=2, fontsize=9)
    return figure


def _threshold(axes: Any, height: float, text: str, colour: str, right: int) -> None:
    if height > 0:
        axes.axhline(height, color=colour, lw=1, ls="--")
        axes.annotate(
            text, (right, height), xytext=(0, 3), textcoords="offset points", ha="right", color=colour, fontsize=9
        )


def parameters_figure(inspection: Inspection) -> Any:
    """One bar: parameter directions that change the function on the sample, and where the others went."""
    figure, axes = _axes(7.2, 1.7)
    left = 0
    for (name, count), colour in zip(_shares(inspection), (BLUE, GREY, SKY, GREEN, PINK, YELLOW, ORANGE), strict=False):
        axes.barh([0], [count], left=[left], color=colour, label=f"{name}: {count:,}")
        left += count
    axes.set_xlim(0, inspection.n_params)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("parameter directions")
    figure.legend(loc="outside upper left", frameon=False, ncols=3, fontsize=9)
    return figure


def _shares(inspection: Inspection) -> list[tuple[str, int]]:
    used = int(inspection.dimension)
    if inspection.account is None:
        return [("change the function", used), ("change nothing here", inspection.n_params - used)]
    _, *others = inspection.account.rows
    return [("change the function", used), *((name, count) for name, count in others if count)]


def neurons_figure(inspection: Inspection) -> Any:
    """Hidden neurons of each layer: switching, always active, always inactive."""
    layers = inspection.layers or ()
    figure, axes = _axes(7.2, 0.9 + 0.42 * len(layers))
    positions = np.arange(len(layers))
    left = np.zeros(len(layers))
    for label, colour, counts in (
        ("switch on and off", BLUE, [s.switching for s in layers]),
        ("always active (linear here)", GREEN, [s.active for s in layers]),
        ("always inactive (dead here)", GREY, [s.inactive for s in layers]),
    ):
        axes.barh(positions, counts, left=left, color=colour, label=label)
        left += counts
    axes.set_yticks(positions, [f"layer {i + 1}" for i in positions])
    axes.invert_yaxis()
    axes.set_xlabel("hidden neurons")
    axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside upper left", frameon=False, ncols=3, fontsize=9)
    return figure


def bottleneck_figure(inspection: Inspection) -> Any:
    """Singular values of every weight matrix over the layers."""
    figure, axes = _axes(7.2, 3.2)
    assert inspection.bottleneck is not None
    inspection.bottleneck.plot(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def curve_figure(inspection: Inspection) -> Any:
    """The learned function of one variable, with the sample."""
    figure, axes = _axes(7.2, 3.2)
    assert inspection.curve is not None
    x, y = inspection.sample
    if y is not None:
        axes.plot(x[:, 0], y[:, 0], ".", color=GREY, label="data")
    axes.plot(*inspection.curve, color=BLUE, lw=1.8, label="network")
    axes.set_xlabel("input x")
    axes.set_ylabel("output f(x)")
    figure.legend(loc="outside upper left", frameon=False, ncols=2, fontsize=9)
    return figure
