"""An inspection as a picture: how the rank grows, which singular values count, where the
parameters went.
"""

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from neuromanifold.inspection.inspection import Inspection
from neuromanifold.numerics.drawing import plot_bar

_BLUE, _GREY = "#0072B2", "0.6"
_CUTS = (("float64", "#009E73"), ("float32", "#D55E00"))


def picture(found: Inspection) -> Any:
    """A matplotlib figure with those panels that there is something for, under the headline."""
    from matplotlib.figure import Figure

    curves = [
        name
        for name, there in (
            ("growth", found.growth is not None),
            ("spectrum", found.singular_values is not None),
        )
        if there
    ]
    rows: Any = [*([curves] if curves else []), ["shares"] * max(1, len(curves))]
    heights = [3.0] * bool(curves) + [1.0]
    figure = Figure(figsize=(max(6.0, 4.5 * len(curves)), sum(heights) + 0.9), layout="constrained")
    for name, axes in figure.subplot_mosaic(rows, height_ratios=heights).items():
        _PANELS[name](found, axes)
    figure.suptitle(textwrap.fill(found.headline, 100 if len(curves) > 1 else 70), fontsize=9)
    return figure


def _growth(found: Inspection, axes: Any) -> None:
    growth = np.asarray(found.growth)
    n = np.arange(1, len(growth) + 1)
    allowed = np.minimum(n * found.n_outputs, found.n_params)
    axes.plot(n, allowed, ls="--", color=_GREY, lw=1, label="the most that so many samples allow")
    axes.plot(n, growth, color=_BLUE, lw=1.5, label="functional dimension, exact")
    axes.set(
        xlabel="samples, in the order given",
        ylabel="directions",
        ylim=(0, 1.3 * max(1, growth[-1])),
    )
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _spectrum(found: Inspection, axes: Any) -> None:
    values = np.asarray(found.singular_values)
    index, rank = (
        np.arange(1, len(values) + 1),
        len(values) if found.dimension is None else int(found.dimension),
    )
    drawn, kept = values > 0, index <= rank
    hidden = f", {(~drawn).sum()} of them 0 and not drawn" if not drawn.all() else ""
    for which, colour, label in (
        (drawn & kept, _BLUE, "change the function"),
        (drawn & ~kept, _GREY, f"zero up to rounding{hidden}"),
    ):
        if which.any():
            axes.semilogy(index[which], values[which], ".", ms=3, color=colour, label=label)
    for name, colour in _CUTS:
        cut = getattr(found, name)
        if cut is not None and float(cut.threshold) > 0:
            axes.axhline(
                float(cut.threshold), color=colour, lw=1, ls=":", label=f"{name} cuts here"
            )
    axes.set(xlabel="order", ylabel="singular value of the Jacobian")
    if found.float64 is not None and np.isfinite(gap := float(found.float64.gap)):
        axes.set_title(f"gap in float64: {gap:.2g}", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _shares(found: Inspection, axes: Any) -> None:
    if found.dimension is None:
        axes.text(
            0.5,
            0.5,
            "the rank was not computed",
            ha="center",
            va="center",
            transform=axes.transAxes,
        )
        axes.set(yticks=[], xticks=[])
        return
    plot_bar(axes, found.shares, found.n_params, x="dimensions of the parameter space")


_PANELS: dict[str, Callable[[Inspection, Any], None]] = {
    "growth": _growth,
    "spectrum": _spectrum,
    "shares": _shares,
}
