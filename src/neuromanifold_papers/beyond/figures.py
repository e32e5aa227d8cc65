"""The figures of the study beyond the papers."""

from typing import Any

import numpy as np
import xarray as xr

from neuromanifold_papers.output import PALETTE


def _subplots(columns: int) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * columns, 3.8), layout="constrained")
    axes = np.atleast_1d(np.asarray(figure.subplots(1, columns)))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def learning_coefficients(data: xr.Dataset) -> Any:
    """Estimates over their closed forms, model by model, and half the ranks."""
    figure, [axis] = _subplots(1)
    rows = np.arange(data.sizes["model"])[::-1]
    for k, b in enumerate(np.asarray(data.inverse_temperature)):
        at = data.sel(inverse_temperature=b)
        label = f"estimate at $b = 10^{{{round(np.log10(b))}}}$ ± 2 s.e."
        axis.errorbar(
            at.estimate / data.exact, rows + 0.18 * (1 - k), xerr=2 * at.error / data.exact,
            fmt="o", color=PALETTE[(5, 0, 2)[k]], markersize=4, label=label,
        )  # fmt: skip
    axis.plot(
        data.half_rank / data.exact, rows, "x", color=PALETTE[1], label="½ rank (exact bound)"
    )
    axis.axvline(1.0, color="0.6", linewidth=1)
    names = [f"{name}, λ = {float(exact):g}" for name, exact in zip(data.model.values, data.exact, strict=True)]  # fmt: skip
    axis.set_yticks(rows, names)
    axis.set_xlabel("learning coefficient, in units of its closed form")
    axis.set_xlim(left=-0.05)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
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
    """Accuracies, and functional dimension and effective rank, with and without weight decay."""
    figure, axes = _subplots(3)
    for k, decay in enumerate(data.weight_decay.values):
        at, name = data.sel(weight_decay=decay), f"weight decay {decay:g}"
        _mean_and_runs(axes[0], data.epoch, at.held_out, PALETTE[k], f"held out, {name}")
        axes[0].plot(data.epoch, at.accuracy.mean("run"), "--", color=PALETTE[k], label=f"fitted, {name}")  # fmt: skip
        _mean_and_runs(axes[1], data.epoch, at.functional_dimension, PALETTE[k], name)
        _mean_and_runs(axes[2], data.epoch, at.effective_rank, PALETTE[k], name)
    for axis, label in zip(
        axes, ("accuracy", "functional dimension on all pairs", "effective rank of the kernel"),
        strict=True,
    ):  # fmt: skip
        axis.set_xlabel("epoch")
        axis.set_ylabel(label)
        axis.legend(frameon=False, fontsize=8)
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
