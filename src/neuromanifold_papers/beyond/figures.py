"""The figures of the study beyond the papers."""

from typing import Any

import numpy as np
import xarray as xr

from neuromanifold_papers.output import PALETTE


def _subplots(columns: int, rows: int = 1, width: float = 5.2) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, 3.8 * rows), layout="constrained")
    axes = np.atleast_1d(np.asarray(figure.subplots(rows, columns)))
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def learning_coefficients(data: xr.Dataset) -> Any:
    """Left: estimates at the largest b over their closed forms, and half the ranks. Right: the
    estimates along the ladder.
    """
    figure, axes = _subplots(2)
    rows, last = np.arange(data.sizes["model"])[::-1], data.isel(rung=-1)
    names = []
    for k, row in enumerate(rows):
        at = data.isel(model=k)
        exact = float(at.exact)
        names.append(f"{at.model.item()}, λ = {exact:g}")
        color = PALETTE[row % len(PALETTE)]
        axes[0].errorbar(
            at.estimate[-1] / exact, row, xerr=2 * at.error[-1] / exact, fmt="o", color=color,
            markersize=4,
        )  # fmt: skip
        b, line = at.inverse_temperature[1:], at.estimate[1:] / exact
        axes[1].plot(b, line, color=color)
        spread = 2 * at.error[1:] / exact
        axes[1].fill_between(b, line - spread, line + spread, color=color, alpha=0.2, linewidth=0)
    axes[0].plot(last.half_rank / last.exact, rows, "kx", label="½ rank, a lower bound")
    axes[0].axvline(1.0, color="0.6", linewidth=1)
    axes[0].set_yticks(rows, names)
    axes[0].set_xlabel("estimate ± 2 s.e. at $b = 10^6$, in units of λ")
    axes[0].set_xlim(left=-0.05)
    axes[0].legend(frameon=False, fontsize=8, loc="center", bbox_to_anchor=(0.4, 0.75))
    axes[1].set_title("colours as on the left", fontsize=9)
    axes[1].axhline(1.0, color="0.6", linewidth=1)
    axes[1].set_xscale("log")
    axes[1].set_xlabel("inverse temperature $b$")
    axes[1].set_ylabel("estimate, in units of λ")
    return figure


def _mean_and_runs(axis: Any, x: Any, values: xr.DataArray, color: str, label: str) -> None:
    axis.plot(x, values.mean("run"), "o-", color=color, label=label, markersize=4)
    axis.fill_between(x, values.min("run"), values.max("run"), color=color, alpha=0.2, linewidth=0)


def label_noise(data: xr.Dataset) -> Any:
    """Functional dimension and effective rank after training against the share of random labels:
    each run, its mean with standard error, and the mean at initialisation.
    """
    figure, axes = _subplots(2)
    names = {"functional_dimension": "functional dimension", "effective_rank": "effective rank"}
    share = 100 * np.asarray(data.noise)
    for axis, (name, label) in zip(axes, names.items(), strict=True):
        last = data[name].isel(epoch=-1)
        axis.plot(share, last.transpose("noise", "run"), color="0.8", linewidth=1)
        error = last.std("run", ddof=1) / np.sqrt(last.sizes["run"])
        axis.errorbar(
            share, last.mean("run"), yerr=error, fmt="o-", color=PALETTE[0], capsize=3,
            label="after training, mean ± s.e. (grey: each run)",
        )  # fmt: skip
        start = float(data[name].isel(epoch=0).mean())
        axis.axhline(start, color=PALETTE[1], linestyle="--", label="at initialisation, mean")
        axis.set_xlabel("share of random labels, %")
        axis.set_ylabel(f"{label} on 200 other images")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def grokking(data: xr.Dataset) -> Any:
    """Accuracies along training; functional dimension and effective rank at the three moments."""
    figure, axes = _subplots(3, width=4.2)
    _accuracies_and_ranks(axes, data)
    return figure


def _accuracies_and_ranks(axes: Any, data: xr.Dataset) -> None:
    """Three panels: accuracies; functional dimension and effective rank when a run fits, when it
    generalises, and at the end.
    """
    _accuracies(axes[0], data)
    place = np.arange(data.sizes["moment"])
    titles = ("functional dimension on all pairs", "effective rank of the kernel")
    names = ("functional_dimension", "effective_rank")
    for axis, name, title in zip(axes[1:], names, titles, strict=True):
        for k, decay in enumerate(data.weight_decay.values):
            values, shifted = data[name].sel(weight_decay=decay), place + 0.04 * (2 * k - 1)
            axis.plot(
                shifted, values.mean("run"), "o-", color=PALETTE[k], markersize=4,
                label=f"weight decay {decay:g}: mean, each run",
            )  # fmt: skip
            axis.plot(shifted, values.transpose("moment", "run"), color=PALETTE[k], alpha=0.35, linewidth=0.8)  # fmt: skip
        axis.set_xticks(place, data.moment.values)
        axis.set_ylabel(title)
        _from_zero(axis)  # ranks that hardly fall must not look as if they did
    axes[1].legend(frameon=False, fontsize=9, loc="lower left")


def _accuracies(axis: Any, data: xr.Dataset) -> None:
    """Means over runs, on the pairs fitted (dashed) and held out, with the range of the latter."""
    for k, decay in enumerate(data.weight_decay.values):
        at, name = data.sel(weight_decay=decay), f"weight decay {decay:g}"
        axis.plot(
            data.epoch, at.accuracy.mean("run"), "--", color=PALETTE[k], label=f"fitted, {name}"
        )
        _mean_and_runs(axis, data.epoch, at.held_out, PALETTE[k], f"held out, {name}")
    axis.set_xlabel("epoch")
    axis.set_ylabel("accuracy, mean and range of runs")
    axis.set_ylim(0, 1.05)
    axis.legend(frameon=False, fontsize=9, loc="center right")


def _from_zero(axis: Any) -> None:
    axis.set_ylim(0, 1.08 * axis.get_ylim()[1])


def _interval(values: xr.DataArray) -> Any:
    """Half the 95 % interval of the mean over runs, by Student's t."""
    from scipy.stats import t

    runs = values.sizes["run"]
    return t.ppf(0.975, runs - 1) * values.std("run", ddof=1) / np.sqrt(runs)


def real_tasks(data: xr.Dataset) -> Any:
    """A row for each network: functional dimension and effective rank on each task; learning
    coefficients, hollow where chains do not agree.
    """
    figure, grid = _subplots(3, data.sizes["network"], width=4.4)
    shares = data.sizes["share"]
    place = np.arange(data.sizes["task"]) + 0.7 * (np.arange(data.sizes["task"]) >= shares)
    ticks = [str(name).replace(" random", "") for name in data.task.values]
    ticks = [name.replace("degree ", "") for name in ticks]
    for row, network in zip(grid, data.network.values, strict=True):
        at = data.sel(network=network)
        _by_task(row[0], place - 0.06, at["sample"], shares, PALETTE[0], "on the sample")
        _by_task(row[0], place + 0.06, at["other inputs"], shares, PALETTE[1], "on other inputs")
        row[0].set_ylabel(f"{network} network\nfunctional dimension")
        _by_task(row[1], place, at["effective rank"], shares, PALETTE[0], "on the sample")
        row[1].set_ylabel("effective rank of the kernel")
        for axis in row[:2]:
            axis.set_xticks(place, ticks)
            axis.set_xlabel("share of random labels  |  degree of labels")
        for end in range(2):
            for run in range(data.sizes["walker"]):
                one = at.isel(ends=end, walker=run)
                row[2].errorbar(
                    end + 0.12 * (run - (data.sizes["walker"] - 1) / 2), one.value, yerr=2 * one.error,
                    fmt="o", color=PALETTE[0], markerfacecolor="none" if one.doubted else PALETTE[0],
                    capsize=2,
                )  # fmt: skip
        row[2].set_xticks([0, 1], ["true labels", "random labels"])
        row[2].set_xlim(-0.5, 1.5)
        row[2].set_ylabel("learning coefficient ± 2 s.e.")
        for axis in row:
            _from_zero(axis)
    grid[0, 0].legend(frameon=False, fontsize=9, loc="lower left")
    if bool(data.doubted.any()):
        grid[0, 2].set_title("hollow: the chains do not agree", fontsize=9)
    return figure


def _by_task(
    axis: Any, place: Any, values: xr.DataArray, shares: int, color: str, label: str
) -> None:
    """Means after training with 95 % intervals, each run, and the mean at the start, dashed."""
    last, start = values.isel(epoch=-1), float(values.isel(epoch=0).mean())
    for part in (slice(0, shares), slice(shares, None)):
        own = last.isel(task=part)
        axis.plot(place[part], own.transpose("task", "run"), color=color, linewidth=0.6, alpha=0.3)
        axis.errorbar(
            place[part], own.mean("run"), yerr=_interval(own), fmt="o-", color=color, capsize=3,
            markersize=4, label=label if part.start == 0 else None,
        )  # fmt: skip
    axis.axhline(start, color=color, linestyle="--", linewidth=1, label=f"{label}, at the start")


def adding(data: xr.Dataset) -> Any:
    """The panels of `grokking`, and learning coefficients when a run fits and at the end."""
    figure, grid = _subplots(2, 2)
    _accuracies_and_ranks(grid.flat[:3], data)
    axis = grid[1, 1]
    for run in range(data.sizes["run"]):
        one = data.isel(run=run)
        place = np.arange(2) + 0.06 * (run - (data.sizes["run"] - 1) / 2)
        axis.plot(place, one.value, "-", color=PALETTE[1], alpha=0.4)
        for end in range(2):
            axis.errorbar(
                place[end], one.value[end], yerr=2 * one.error[end], fmt="o", color=PALETTE[1],
                markerfacecolor="none" if one.doubted[end] else PALETTE[1], capsize=2,
            )  # fmt: skip
    axis.set_xticks([0, 1], data.ends.values)
    axis.set_xlim(-0.5, 1.5)
    axis.set_ylabel("learning coefficient ± 2 s.e.,\nwith weight decay")
    if bool(data.doubted.any()):
        axis.set_title("hollow: the chains do not agree", fontsize=9)
    _from_zero(axis)
    return figure


def equation(data: xr.Dataset) -> Any:
    """The error of the solution against steps of training."""
    figure, [axis] = _subplots(1)
    for k, (balanced, label) in enumerate(
        [(False, "weights 1, 1"), (True, "balanced by the kernel")]
    ):
        _mean_and_runs(axis, data.step, data.error.sel(balanced=balanced), PALETTE[k], label)
    axis.set_yscale("log")
    axis.set_xlabel("step of Adam")
    axis.set_ylabel("relative error of $u$")
    axis.legend(frameon=False)
    return figure


def equal_functions(data: xr.Dataset) -> Any:
    """Left: each quantity after each move, in units of what it was before, white where nothing
    changed. Right: learning coefficients after moves, their closed forms and half the ranks.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    table, axis = figure.subplots(1, 2, width_ratios=[1.6, 1])
    moved = data.isel(move=slice(1, None))
    ratio = (moved.value / data.value.isel(move=0)).transpose("quantity", "move")
    shade = np.clip(np.abs(np.log(np.asarray(ratio))) / 2, 0, 1)
    table.imshow(shade, cmap="Oranges", vmin=0, vmax=1.3, aspect="auto")
    for row, column in np.ndindex(*shade.shape):
        value, here = float(moved.value[column, row]), float(ratio[row, column])
        same = np.isclose(here, 1.0, rtol=1e-9, atol=0)
        table.text(
            column, row, "=" if same else f"{value:.3g}", ha="center", va="center", fontsize=9
        )
    first = [f"{q} ({float(v):.3g})" for q, v in zip(data.quantity.values, data.value[0], strict=True)]  # fmt: skip
    table.set_yticks(range(len(first)), first)
    names = [
        str(name).replace(" unit ", " unit\n").replace(", ", ",\n") for name in moved.move.values
    ]
    table.set_xticks(range(len(names)), names, fontsize=8)
    table.tick_params(length=0)
    table.set_title("a ReLU network 3-6-4-2 (value before; = where nothing changed)", fontsize=10)
    rows = np.arange(data.sizes["degenerate"])[::-1]
    axis.spines[["top", "right"]].set_visible(False)
    axis.errorbar(
        data.estimate, rows, xerr=2 * data.error, fmt="o", color=PALETTE[0], markersize=5,
        label="estimated λ ± 2 s.e.",
    )  # fmt: skip
    axis.plot(data.exact, rows, "|", color="k", markersize=16, label="λ in closed form")
    axis.plot(data.half_rank, rows, "x", color=PALETTE[1], label="½ functional dimension")
    axis.set_yticks(rows, data.degenerate.values)
    axis.set_title("a tanh network 1-1-1", fontsize=10)
    axis.set_xlabel("learning coefficient λ")
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return figure
