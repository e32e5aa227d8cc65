"""The figures of the `invariant` study; each takes results and returns a matplotlib figure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from neuromanifold.orbits.lattice import LeafLattice
from neuromanifold_papers.invariant.closure import CLASSES, Case
from neuromanifold_papers.output import PALETTE, subplots

_MARKERS = ("o", "s", "^")
_FLOOR = 1e-17


def closure_figure(cases: Sequence[Case]) -> Any:
    """Closure dimension over leaf dimension for each class of activations; area by the number of
    points.
    """
    figure, axes = subplots(1, len(CLASSES), figsize=(15.0, 3.6), sharey=True, sharex=True)
    top = max(case.leaf for case in cases) + 0.7
    for ax, (family, activations) in zip(axes, CLASSES.items(), strict=True):
        chosen = [case for case in cases if case.family == family]
        ax.plot([-0.5, top], [-0.5, top], color="0.8", lw=1, zorder=1)
        for k, activation in enumerate(activations):
            spots = Counter(
                (case.leaf, case.closure) for case in chosen if case.activation == activation
            )
            x, y = (np.array([spot[i] for spot in spots]) for i in (0, 1))
            shift = 0.16 * (k - (len(activations) - 1) / 2)
            area = [12 + 4 * np.sqrt(count) for count in spots.values()]
            ax.scatter(
                x + shift,
                y,
                s=area,
                color=PALETTE[k],
                marker=_MARKERS[k],
                label=activation,
                alpha=0.8,
                lw=0,
                zorder=2,
            )
        equal = sum(case.leaf == case.closure for case in chosen)
        ax.set_title(f"{family}\n{equal} of {len(chosen)} points: closure = leaf", fontsize=10)
        ax.set(xlabel="dimension of the symmetry leaf", xlim=(-0.5, top), ylim=(-0.5, top))
        ax.legend(fontsize=8, frameon=False, loc="upper left")
    axes[0].set_ylabel("dimension of the Lie closure")
    return figure


def lattice_figure(lattices: Sequence[LeafLattice]) -> Any:
    """The leaves of each network, at the height of their dimension, with the covering pairs."""
    figure, axes = subplots(1, len(lattices), figsize=(15.0, 5.6), width_ratios=(1, 2.6))
    for ax, lattice in zip(np.atleast_1d(axes), lattices, strict=True):
        lattice.draw(ax)
        d, m, _ = lattice.net.widths
        ax.set_title(
            f"{lattice.net.activation[0]}, m = {m}, d = {d}: {len(lattice)} leaves", fontsize=10
        )
        ax.margins(y=0.1)
        for side in ("top", "right", "bottom"):
            ax.spines[side].set_visible(False)
    return figure


def beside_figure(data: xr.Dataset) -> Any:
    """Left: the distance from the leaf over time. Right: the loss."""
    figure, (left, right) = subplots(1, 2, figsize=(11.0, 4.0))
    for k, offset in enumerate(data.offset.values):
        label = (
            "on the leaf"
            if offset == 0
            else f"beside it, {offset:.0e}"
            if offset < 0.5
            else "off it, 1"
        )
        series = data.sel(offset=offset)
        left.plot(data.time, np.maximum(series.distance, _FLOOR), color=PALETTE[k], label=label)
        right.plot(data.time, series.loss, color=PALETTE[k], label=label)
    left.set(
        xlabel="time t",
        ylabel="distance from the leaf (0 drawn at 1e-17)",
        yscale="log",
        xlim=(0, None),
    )
    right.set(
        xlabel="time t", ylabel="loss (half mean squared error)", yscale="log", xlim=(0, None)
    )
    left.legend(fontsize=8, frameon=False, loc="lower right")
    figure.suptitle("Two tanh neurons and the leaf where they are equal", fontsize=11)
    return figure


def condensing_figure(history: xr.Dataset) -> Any:
    """The directions of the neurons over the epochs for each initialisation; the effective
    widths and losses.
    """
    figure, axes = subplots(1, 3, figsize=(15.0, 4.2), width_ratios=(1.2, 1.2, 1))
    names = {
        "small": "weights of size 10⁻³ at the start",
        "ordinary": "weights of size 1 at the start",
    }
    for ax, run in zip(axes, history.run.values, strict=False):
        series = history.sel(run=run)
        weight = series.mass.values / series.mass.values.max(axis=1, keepdims=True)
        epochs = np.repeat(history.epoch.values[:, None], weight.shape[1], axis=1)
        ax.scatter(
            epochs,
            np.degrees(series.direction),
            s=0.3 + 5 * weight,
            color=PALETTE[0],
            lw=0,
            alpha=0.6,
            rasterized=True,
        )
        ax.set(xlabel="epoch", ylabel="direction of (w, b), degrees modulo 180", ylim=(-92, 92))
        ax.set_title(f"{names[str(run)]}; area: share in the function", fontsize=10)
    last = axes[-1]
    other = last.twinx()
    for k, run in enumerate(history.run.values):
        series = history.sel(run=run)
        last.plot(
            history.epoch, series.effective_width[:, 0], color=PALETTE[k], label=f"{run} start"
        )
        other.plot(history.epoch, series.loss, color=PALETTE[k], ls=":")
    last.set(xlabel="epoch", ylabel="effective width (clusters within 0.1 rad), solid")
    other.set(ylabel="mean squared error, dotted", yscale="log")
    last.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure


def recovery_figure(data: xr.Dataset, recovered: float) -> Any:
    """Left: the error on fresh inputs over the number of samples. Right: how often the target
    was recovered.
    """
    figure, (left, right) = subplots(1, 2, figsize=(11.0, 4.0))
    for k, start in enumerate(data.start.values):
        error = np.maximum(data.error.sel(start=start).values, 1e-15)
        middle, low, high = np.median(error, axis=1), *np.quantile(error, [0.25, 0.75], axis=1)
        left.plot(data.samples, middle, marker=_MARKERS[k], color=PALETTE[k], label=start)
        left.fill_between(data.samples, low, high, color=PALETTE[k], alpha=0.2, lw=0)
        right.plot(
            data.samples,
            (error < recovered).mean(axis=1),
            marker=_MARKERS[k],
            color=PALETTE[k],
            label=start,
        )
    for ax in (left, right):
        ax.axvline(data.attrs["leaf"], color="0.5", ls="--", lw=1)
        ax.axvline(data.attrs["parameters"], color="0.5", ls=":", lw=1)
        ax.set(
            xlabel="training samples (dashed: dimension of the leaf, dotted: parameters)",
            xscale="log",
        )
        ax.set_xticks(data.samples.values, [str(n) for n in data.samples.values], minor=False)
        ax.minorticks_off()
    left.set(ylabel="relative error on fresh inputs, median and quartiles", yscale="log")
    right.set(ylabel=f"fraction recovered (error below {recovered:g})", ylim=(-0.03, 1.03))
    right.legend(title="start", fontsize=8, frameon=False)
    return figure
