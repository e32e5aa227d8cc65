"""The teleport figures, drawn from the numbers of the runs."""

from typing import Any

import numpy as np
import xarray as xr

from neuromanifold_papers.output import PALETTE, subplots
from neuromanifold_papers.teleport.statistics import Estimate, pearson

KINDS = ("standard", "transformed")
MARKERS = ("o", "s")


def _axes(columns: int, width: float = 4.2, height: float = 3.6, **options: Any) -> tuple[Any, Any]:
    size = (width * columns, height)
    figure, axes = subplots(1, columns, figsize=size, squeeze=False, **options)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[0]


def _width_axis(axis: Any, widths: np.ndarray) -> None:
    """A logarithmic axis labelled at the widths themselves, not more than six of them."""
    shown = widths[:: -(-len(widths) // 6)]
    axis.set_xscale("log")
    axis.set_xticks(shown, [f"{w:g}" for w in shown])
    axis.minorticks_off()
    _labelled(axis.yaxis)


def _labelled(axis: Any) -> None:
    """Labels on a logarithmic axis that spans less than a decade, too."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))


def width_figure(data: xr.Dataset, slopes: dict[str, Estimate], snapshots: dict[str, int]) -> Any:
    """Figure 1: RMSE between network and linearised network against width."""
    figure, axes = _axes(2, sharey=True)
    widths = data.width.values.astype(float)
    for axis, kind, colour, marker in zip(axes, KINDS, PALETTE, MARKERS, strict=False):
        rmse = data.snapshot_rmse.sel(kind=kind)
        mean, spread = rmse.mean("trial").values, rmse.std("trial", ddof=1).values
        axis.errorbar(
            widths,
            mean,
            yerr=spread,
            fmt=marker,
            color=colour,
            capsize=3,
            label="mean ± s.d. over trials",
        )
        fit = np.polyfit(np.log(widths), np.log(mean), 1)
        axis.plot(
            widths,
            np.exp(np.polyval(fit, np.log(widths))),
            color=colour,
            label=f"slope {slopes[kind]}",
        )
        axis.plot(
            widths, mean[0] * (widths / widths[0]) ** -0.5, color="0.6", ls=":", label="slope −1/2"
        )
        axis.set(
            yscale="log",
            xlabel="width (neurons per layer)",
            title=f"{kind}, batch {snapshots[kind]}",
        )
        _width_axis(axis, widths)
        axis.legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("RMSE, network vs linearised (test outputs)")
    return figure


def alignment_figure(data: xr.Dataset) -> Any:
    """Figure 2: alignment at initialisation against the loss-halving time, one panel per loss."""
    figure, axes = _axes(data.sizes["loss"])
    for axis, loss in zip(axes, data.loss.values, strict=True):
        one = data.sel(loss=loss)
        x = one.alignment.values
        for values, colour, marker, label in (
            (one.halving_epoch.values, PALETTE[1], "_", "whole epochs"),
            (one.halving_time.values, PALETTE[0], ".", "interpolated"),
        ):
            r = pearson(x, values)
            axis.plot(x, values, marker, color=colour, ms=4, alpha=0.6, label=f"{label}, r = {r}")
            finite = np.isfinite(values)
            if finite.sum() > 2:
                fit = np.polyfit(x[finite], values[finite], 1)
                ends = np.array([x.min(), x.max()])
                axis.plot(ends, np.polyval(fit, ends), ls="--", lw=1, color=colour)
        largest = (
            np.nanmax(one.halving_epoch.values)
            if np.isfinite(one.halving_epoch.values).any()
            else 1.0
        )
        axis.set(xlabel="alignment A at initialisation", title=str(loss), ylim=(0, 1.35 * largest))
        axis.legend(frameon=False, fontsize=7, loc="upper right")
    axes[0].set_ylabel("loss halved after (epochs)")
    return figure


def accuracy_figure(data: xr.Dataset, snapshots: dict[str, int], level: float) -> Any:
    """Figure 3: test accuracy, mean over widths and trials, along training."""
    figure, (axis,) = _axes(1, width=5.2)
    for kind, colour, style in zip(KINDS, PALETTE, ("-", "--"), strict=False):
        curve = data.accuracy.sel(kind=kind).mean(["width", "trial"])
        axis.plot(
            data.batch,
            curve,
            color=colour,
            ls=style,
            label=f"{kind}: {level:.0%} at batch {snapshots[kind]}",
        )
        axis.axvline(snapshots[kind], color=colour, ls=":", lw=1)
    axis.axhline(level, color="0.6", lw=0.8)
    axis.set(xlabel="batch", ylabel="test accuracy", ylim=(0, 1))
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def beyond_figure(hessian: xr.Dataset, slopes: dict[str, Estimate], speed: xr.Dataset) -> Any:
    """Left: the output's Hessian norm against width. Right: does the gain of alignment predict
    the speed-up?
    """
    figure, axes = _axes(2)
    widths = hessian.width.values.astype(float)
    means = {kind: hessian.norm.sel(kind=kind).mean(["trial", "sample"]).values for kind in KINDS}
    for (kind, mean), colour, marker in zip(means.items(), PALETTE, MARKERS, strict=False):
        axes[0].plot(
            widths, mean, marker, color=colour, mfc="none", label=f"{kind}, slope {slopes[kind]}"
        )
    axes[0].plot(
        widths,
        means[KINDS[-1]][0] * (widths / widths[0]) ** -0.5,
        color="0.6",
        ls=":",
        label="slope −1/2",
    )
    axes[0].set(
        yscale="log",
        xlabel="width (neurons per layer)",
        ylabel="spectral norm of the output's Hessian",
    )
    _width_axis(axes[0], widths)
    axes[0].legend(frameon=False, fontsize=8)
    for strength, colour in zip(speed.strength.values, PALETTE[2:], strict=False):
        one = speed.sel(strength=strength)
        axes[1].plot(one.gain, one.speedup, ".", color=colour, label=f"strength {strength:g}")
    axes[1].axline((1, 1), slope=1, color="0.6", ls=":", lw=1)
    axes[1].set(
        xscale="log",
        yscale="log",
        xlabel="alignment after / before scaling",
        ylabel="halving time before / after",
    )
    axes[1].legend(frameon=False, fontsize=8)
    return figure
