"""Figures of an inspection, drawn from what it holds; nothing is computed here."""

from typing import Any

import numpy as np

from neuromanifold.inspection import Inspection

BLUE, ORANGE, GREEN, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#BBBBBB", "#333333"


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
    """One bar: parameter directions that change the function on the sample, and those that do not."""
    figure, axes = _axes(7.2, 1.25)
    used, total = int(inspection.dimension), inspection.n_params
    axes.barh([0], [used], color=BLUE)
    axes.barh([0], [total - used], left=[used], color=GREY)
    _inside(axes, 0, used, total, f"{used:,} change the function", "white")
    _inside(axes, used, total - used, total, f"{total - used:,} change nothing here", INK)
    axes.set_xlim(0, total)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("parameter directions")
    return figure


def _inside(axes: Any, left: int, width: int, total: int, text: str, colour: str) -> None:
    if width >= 0.28 * total:
        axes.text(left + width / 2, 0, text, ha="center", va="center", color=colour)
    elif width:
        side = "left" if left == 0 else "right"
        axes.annotate(text, (left + width / 2, 0.4), xytext=(0, 4), textcoords="offset points", ha=side, fontsize=9)


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
