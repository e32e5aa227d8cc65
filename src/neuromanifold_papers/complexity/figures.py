"""The figures of the complexity study, each drawn from the data that is saved beside it.
[complexity, Figs 1–9]
"""

from typing import Any

import numpy as np
import xarray as xr

from neuromanifold_papers.complexity.statistics import interval, successful
from neuromanifold_papers.output import PALETTE, subplots

COLOURS = dict(zip(("f1", "f2", "f3"), PALETTE, strict=False)) | dict(
    zip(("g1", "g2", "g3"), PALETTE, strict=False)
)
COLOURS |= {"heating_load": PALETTE[1], "cooling_load": PALETTE[0]}
LABELS = {"heating_load": "heating load", "cooling_load": "cooling load"}
DIMENSION = "functional dimension (rank J)"


def label(name: str) -> str:
    """The data set's name in words."""
    return LABELS.get(name, name)


def univariate_data(curves: xr.Dataset) -> Any:
    """Figure 1: the three functions, and their noisy samples."""
    figure, (left, right) = subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for name in curves.dataset.values:
        one = curves.sel(dataset=name)
        left.plot(one.grid, one.function, color=COLOURS[name], label=name)
        right.plot(one.x, one.y, ".", color=COLOURS[name], label=name, markersize=4)
    left.set(xlabel="x", ylabel="y", title="functions")
    right.set(xlabel="x", title="samples: 100 points, noise 0.01 on x and y")
    left.legend()
    return figure


def bivariate_data(surfaces: xr.Dataset) -> Any:
    """Figure 8: the three functions on the square with the 20×20 grid of samples."""
    figure, axes = subplots(1, 3, figsize=(11, 3.4), sharey=True)
    image = None
    low, high = float(surfaces.function.min()), float(surfaces.function.max())
    for axis, name in zip(axes, surfaces.dataset.values, strict=True):
        values = surfaces.function.sel(dataset=name).T
        image = axis.pcolormesh(
            surfaces.s, surfaces.t, values, vmin=low, vmax=high, rasterized=True
        )
        axis.plot(
            *np.meshgrid(np.linspace(0, 1, 20), np.linspace(0, 1, 20)),
            ".",
            color="white",
            markersize=1,
        )
        axis.set(title=name, xlabel="x", aspect="equal")
    axes[0].set_ylabel("y")
    figure.colorbar(image, ax=axes, label="value")
    return figure


def trajectories(history: xr.Dataset, groups: list[tuple[str, dict[str, Any], str]]) -> Any:
    """Figures 2, 3, 4, 9: every run's float32 rank (left), means over successful runs in float32
    and exactly (right).

    `groups` lists (title, selection, colour).
    """
    figure, (left, right) = subplots(1, 2, figsize=(11, 4), sharey=True)
    for title, where, colour in groups:
        one = history.sel(where)
        good = successful(one)
        for run in one.run.values:
            kept = bool(good.sel(run=run))
            left.plot(
                one.epoch,
                one.float32_dimension.sel(run=run),
                color=colour,
                alpha=0.45 if kept else 0.3,
                linewidth=0.8,
                linestyle="-" if kept else ":",
            )
        count = int(good.sum())
        _band(
            right,
            one.exact_dimension.isel(run=good.values),
            colour,
            "-",
            f"{title}: {count} of {good.size} runs",
        )
        _band(right, one.float32_dimension.isel(run=good.values), colour, "--", None)
    left.set(
        xlabel="epoch",
        ylabel=DIMENSION,
        title="each run, float32 as in the paper (dotted: r² ≤ 0.9 at the end)",
    )
    right.set(xlabel="epoch", title="mean and 95 % interval of successful runs")
    right.plot([], [], "k-", label="exact")
    right.plot([], [], "k--", label="float32")
    right.legend(fontsize=8)
    return figure


def _band(axis: Any, values: xr.DataArray, colour: str, style: str, label: str | None) -> None:
    if values.sizes["run"] == 0:
        return
    values = values.dropna("epoch", how="any")
    mean, half = interval(values.values, axis=values.dims.index("run"))
    axis.plot(values.epoch, mean, style, color=colour, label=label, linewidth=1.8)
    if style == "-":
        axis.fill_between(
            values.epoch, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0
        )


def regions(history: xr.Dataset, inputs: int) -> Any:
    """Figures 5, 6: one run of each data set: ranks against regions sampled, and the rank over
    its bound.
    """
    names = history.dataset.values
    figure, axes = subplots(
        2, len(names), figsize=(4.2 * len(names), 6), sharex=True, sharey="row", squeeze=False
    )
    for (top, bottom), name in zip(axes.T, names, strict=True):
        one = history.sel(dataset=name)
        exact = one.exact_dimension.dropna("epoch")
        bound = one.region_bound.sel(epoch=exact.epoch)
        printed = (inputs + 1) * one.sampled_regions.sel(epoch=exact.epoch)
        top.plot(
            exact.epoch,
            bound,
            color=PALETTE[4],
            label=f"Σ min(samples, {inputs + 1}) over regions",
            linewidth=3,
        )
        top.plot(exact.epoch, exact, color=COLOURS[name], label="rank J, exact")
        top.plot(
            one.epoch, one.float32_dimension, ":", color=COLOURS[name], label="rank J, float32"
        )
        top.plot(one.epoch, one.sampled_regions, "k--", label="regions sampled", linewidth=1)
        top.set_title(f"{label(name)}, run {int(one.run)}")
        bottom.plot(
            exact.epoch,
            exact / printed,
            color=COLOURS[name],
            label=f"exact rank / ({inputs + 1} · regions)",
        )
        bottom.plot(
            exact.epoch,
            exact / bound,
            color=PALETTE[4],
            label="exact rank / Σ min(samples, n₀ + 1)",
            linewidth=1,
        )
        bottom.axhline(1.0, color="0.6", linewidth=0.8)
        bottom.set(xlabel="epoch", ylim=(0, 1.08))
    axes[0, 0].set_ylabel("dimensions or regions")
    axes[1, 0].set_ylabel("ratio to the bound")
    for axis, place in zip(
        axes[:, 0], ("outside upper center", "outside lower center"), strict=True
    ):
        figure.legend(*axis.get_legend_handles_labels(), loc=place, ncols=4, fontsize=8)
    return figure


def learned(functions: xr.Dataset) -> Any:
    """Figure 7: what one network computes after some epochs, beside its data and the function
    behind them.
    """
    names = functions.dataset.values
    figure, axes = subplots(
        len(names),
        functions.sizes["epoch"],
        figsize=(12, 5),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for row, name in zip(axes, names, strict=True):
        one = functions.sel(dataset=name)
        for axis, epoch in zip(row, one.epoch.values, strict=True):
            axis.plot(one.x, one.y, ".", color="0.7", markersize=3, label="data")
            axis.plot(one.grid, one.function, color="k", linewidth=0.8, label="function")
            axis.plot(one.grid, one.learned.sel(epoch=epoch), color=COLOURS[name], label="network")
            axis.set_title(f"{name}, epoch {epoch}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("x")
    for axis in axes[:, 0]:
        axis.set_ylabel("y")
    axes[0, 0].legend(fontsize=8)
    return figure


def initialisation(samples: dict[str, xr.Dataset], limits: dict[str, int]) -> Any:
    """Ranks of initial networks on each sample: float32 as in the paper, and exact; dotted, the
    paper's number.
    """
    figure, axes = subplots(1, len(samples), figsize=(3.4 * len(samples), 3.4), squeeze=False)
    for axis, (name, found) in zip(axes[0], samples.items(), strict=True):
        top = max(float(found.exact_dimension.max()), float(found.float32_dimension.max()))
        bins = np.linspace(0, top + 1, 31)
        for variable, colour in (
            ("float32_dimension", PALETTE[1]),
            ("exact_dimension", PALETTE[0]),
        ):
            label = (
                f"{variable.removesuffix('_dimension')}, mean {float(found[variable].mean()):.1f}"
            )
            axis.hist(found[variable], bins, color=colour, alpha=0.5, label=label)
            axis.axvline(float(found[variable].mean()), color=colour, linewidth=1.2)
        axis.axvline(limits[name], color="k", linestyle=":", label=f"paper: below {limits[name]}")
        axis.set(
            xlabel="rank J at initialisation",
            title=f"{name.removesuffix('_100')}, {found.attrs['samples']} samples",
        )
        axis.legend(fontsize=7)
    axes[0, 0].set_ylabel("networks")
    return figure
