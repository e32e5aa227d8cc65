"""Figures of an inspection, drawn from what it holds; nothing is computed here.

They are narrow, so that their text can be read on a telephone; ink is a colour that the page replaces by its own.
"""

from typing import Any

import numpy as np

from neuromanifold.inspection import Inspection

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
SKY, PINK, YELLOW = "#56B4E9", "#CC79A7", "#E69F00"
INK = "#010203"
_WIDTH = 5.4
_STYLE: Any = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 10,
    "font.family": "sans-serif",
}


def _axes(height: float) -> tuple[Any, Any]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _legend(figure: Any, columns: int) -> None:
    figure.legend(loc="outside upper left", frameon=False, ncols=columns, fontsize=9, labelcolor=INK)


def spectrum_figure(inspection: Inspection) -> Any:
    """Singular values of J on a log scale, with the rank and what the two precisions cut off."""
    figure, axes = _axes(3.6)
    values = _singular_values(inspection)
    floor = max(values[0], 1e-300) * 1e-20
    index, rank = np.arange(1, len(values) + 1), _rank(inspection, len(values))
    kept, shown = index <= rank, np.maximum(values, floor)
    axes.semilogy(index[kept], shown[kept], "o", ms=3.5, color=BLUE, label="directions that change the function")
    if not kept.all():
        axes.semilogy(index[~kept], shown[~kept], "o", ms=3.5, color=GREY, label="zero up to rounding")
        axes.axvline(rank + 0.5, color=INK, lw=1)
    for found, text, colour in (
        (inspection.float32, "float32 cuts here", ORANGE),
        (inspection.float64, "float64 cuts here", GREEN),
    ):
        if found is not None:
            _threshold(axes, float(found.threshold), text, colour, len(values))
    axes.set_xlabel("index")
    axes.set_ylabel("singular value of the Jacobian")
    axes.set_xlim(0, len(values) + 1)
    _legend(figure, 1)
    return figure


def _singular_values(inspection: Inspection) -> np.ndarray:
    if inspection.float64 is not None:
        return np.asarray(inspection.float64.spectrum)
    assert inspection.spectrum is not None
    return np.sqrt(np.maximum(inspection.spectrum.eigenvalues, 0.0))


def _rank(inspection: Inspection, count: int) -> int:
    return count if inspection.dimension is None else min(count, int(inspection.dimension))


def _threshold(axes: Any, height: float, text: str, colour: str, right: int) -> None:
    if height > 0:
        axes.axhline(height, color=colour, lw=1, ls="--")
        axes.annotate(
            text, (right, height), xytext=(0, 3), textcoords="offset points", ha="right", color=colour, fontsize=9
        )


def growth_figure(inspection: Inspection) -> Any:
    """The exact rank against the number of samples, with what that many samples allow."""
    figure, axes = _axes(3.2)
    assert inspection.growth is not None
    n = np.arange(1, len(inspection.growth) + 1)
    allowed = np.minimum(n * inspection.n_outputs, inspection.n_params)
    axes.plot(n, allowed, color=GREY, lw=1.2, ls="--", label="the most that this many samples allow")
    axes.plot(n, inspection.growth, color=BLUE, lw=2, label="functional dimension, exact")
    axes.set_xlabel("samples, in the order given")
    axes.set_ylabel("directions")
    axes.set_ylim(0, 1.15 * float(inspection.growth[-1]) or 1)
    axes.set_xlim(0, len(n))
    _legend(figure, 1)
    return figure


def parameters_figure(inspection: Inspection) -> Any:
    """One bar: parameter directions that change the function on the sample, and where the others went."""
    shares = _shares(inspection)
    figure, axes = _axes(1.2 + 0.22 * len(shares))
    left = 0
    for (name, count), colour in zip(shares, (BLUE, GREY, SKY, GREEN, PINK, YELLOW, ORANGE), strict=False):
        axes.barh([0], [count], left=[left], color=colour, label=f"{name}: {count:,}")
        left += count
    axes.set_xlim(0, inspection.n_params)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("parameter directions")
    _legend(figure, 1)
    return figure


def _shares(inspection: Inspection) -> list[tuple[str, int]]:
    used = _rank(inspection, inspection.n_params)
    if inspection.account is None:
        limited = used == inspection.rows_of_jacobian
        rest = "not to be seen on so few samples" if limited else "change nothing here"
        return [("change the function", used), (rest, inspection.n_params - used)]
    _, *others = inspection.account.rows
    return [("change the function", used), *((name, count) for name, count in others if count)]


def neurons_figure(inspection: Inspection) -> Any:
    """Units of each layer: the shares that switch, are always on, are always off."""
    layers = inspection.layers or ()
    figure, axes = _axes(1.5 + 0.3 * len(layers))
    positions, left = np.arange(len(layers)), np.zeros(len(layers))
    for label, colour, counts in (
        ("switch on and off", BLUE, [s.switching for s in layers]),
        ("always on (linear here)", GREEN, [s.active for s in layers]),
        ("always off (dead here)", GREY, [s.inactive for s in layers]),
    ):
        shares = 100 * np.array(counts) / [s.width for s in layers]
        axes.barh(positions, shares, left=left, color=colour, label=label)
        left += shares
    axes.set_yticks(positions, [f"{s.name} ({s.width:,})" for s in layers])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("per cent of the units")
    _legend(figure, 1)
    return figure


def bottleneck_figure(inspection: Inspection) -> Any:
    """Singular values of every weight matrix over the layers."""
    figure, axes = _axes(3.2)
    assert inspection.bottleneck is not None
    inspection.bottleneck.plot(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def curve_figure(inspection: Inspection) -> Any:
    """The learned function of one variable, with the sample."""
    figure, axes = _axes(3.2)
    assert inspection.curve is not None
    x, y = inspection.sample
    if y is not None:
        axes.plot(x[:, 0], y[:, 0], ".", color=GREY, label="data")
    axes.plot(*inspection.curve, color=BLUE, lw=1.8, label="network")
    axes.set_xlabel("input x")
    axes.set_ylabel("output f(x)")
    _legend(figure, 2)
    return figure
