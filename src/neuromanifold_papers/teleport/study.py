"""The experiments of [teleport]: linearisation against width, alignment against speed, and what
lies beyond them.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from neuromanifold.runtime.checksummed import read_archive
from neuromanifold.runtime.progress import open_bar
from neuromanifold.symmetry.conservation.scales import ScaleSearch
from neuromanifold.symmetry.groups.hadamard import HadamardGroup
from neuromanifold_papers.blocks import Block, run_blocks
from neuromanifold_papers.output import Claim, save_data, save_figure
from neuromanifold_papers.teleport import beyond, figures, runs
from neuromanifold_papers.teleport.data import load
from neuromanifold_papers.teleport.statistics import (
    Estimate,
    halving_epoch,
    halving_time,
    log_slope,
    partial_correlation,
    pearson,
    spearman,
)
from neuromanifold_papers.teleport.training import LOSSES


def reproduce(
    out: Path,
    *,
    figure: int | None = None,
    scale: str = "small",
    progress: bool = True,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Figures 1 to 3 and what lies beyond them, into `out`; finished chunks found there are not
    computed again.

    `small` takes minutes on two cores; `paper` wants an accelerator: `data.carry` prepares one
    without network, and the `.npz` files it returns belong into `out` before this is called.
    `workers` processes, or a Dask `scheduler`, compute the experiments side by side.
    """
    if scale not in runs.ALIGNMENT:
        raise ValueError(f"`scale` is {scale!r}; pass one of {', '.join(runs.ALIGNMENT)}.")
    if figure not in (None, 1, 2, 3):
        raise ValueError(
            f"`figure` is {figure}; the figures are 1, 2 and 3, or None for all and more."
        )
    only = None if figure is None else ["figure_2" if figure == 2 else "figures_1_and_3"]
    chosen: Any = {"only": only, "progress": progress, "workers": workers, "scheduler": scheduler}
    return run_blocks("teleport", BLOCKS, Path(out), scale, **chosen)


def _experiment(name: str, out: Path, scale: str, progress: bool) -> list[Claim]:
    """Raw numbers of one experiment into its file."""
    with _reporting(progress) as report:
        if name == "widths":
            runs.width_runs(out / runs.WIDTHS_FILE, runs.WIDTHS[scale], report)
        elif name == "hessian":
            beyond.hessian_runs(out / "teleport_hessian.npz", beyond.HESSIAN[scale], report)
        elif name == "speed":
            beyond.speed_runs(out / "teleport_speed.npz", beyond.SPEED, report)
        else:
            runs.alignment_runs(
                out / runs.alignment_file(name), runs.ALIGNMENT[scale], name, report
            )
    return []


def _drawn(
    draw: Callable[[Path, str, runs.Report], list[Claim]], out: Path, scale: str, progress: bool
) -> list[Claim]:
    return draw(out, scale, lambda what, fraction: None)


@contextmanager
def _reporting(progress: bool) -> Generator[runs.Report]:
    """A progress bar with the time that remains on stderr, or nothing."""
    if not progress:
        yield lambda what, fraction: None
        return
    with open_bar() as bar:
        tasks: dict[str, Any] = {}

        def report(what: str, fraction: float) -> None:
            family = what.partition(",")[0]
            if family not in tasks:
                tasks[family] = bar.add_task(what, total=100)
            bar.update(tasks[family], description=f"{what}, %", completed=round(100 * fraction))

        yield report


def _figure_2(out: Path, scale: str, report: runs.Report) -> list[Claim]:
    plan = runs.ALIGNMENT[scale]
    found = {
        loss: runs.alignment_runs(out / runs.alignment_file(loss), plan, loss, report)
        for loss in LOSSES
    }
    data = xr.concat(
        [_alignment_dataset(arrays, plan) for arrays in found.values()],
        dim=xr.Variable("loss", list(found)),
    )
    data.attrs = {"data": str(next(iter(found.values()))["data"]), "plan": repr(plan)}
    save_data(data, out, "figure2")
    save_figure(figures.alignment_figure(data), out, "figure2")
    claims = [
        _alignment_claim(data.sel(loss=loss), loss, arrays, plan) for loss, arrays in found.items()
    ]
    precision = (_precision_claim(out, loss, found[loss]) for loss in LOSSES)
    return [
        *claims,
        _initial_loss_claim(data),
        *(claim for claim in precision if claim is not None),
    ]


def _initial_loss_claim(data: xr.Dataset) -> Claim:
    """Networks with large outputs start with a large loss, made of the kernel's leading
    direction: is that the correlation?
    """
    measured, own, better = {}, [], []
    for loss in data.loss.values:
        one = data.sel(loss=loss)
        a, time, initial = one.alignment.values, one.halving_time.values, one.initial_loss.values
        left = partial_correlation(a, time, initial, ranks=True)
        measured[str(loss)] = {
            "rank_correlation_of_alignment_and_time": spearman(a, time),
            "rank_correlation_of_initial_loss_and_time": spearman(initial, time),
            "rank_correlation_of_alignment_and_initial_loss": spearman(a, initial),
            "partial_rank_correlation_given_initial_loss": left.as_dict(),
            "partial_linear_correlation_given_initial_loss": partial_correlation(
                a, time, initial
            ).as_dict(),
        }
        own.append(left.high < 0)
        better.append(abs(spearman(a, time)) > abs(spearman(initial, time)))
    verdict = True if all(own) and all(better) else "partly" if any(own) else False
    note = (
        "`True` would mean: for every loss more than the initial loss predicts, and something "
        "left when it is held fixed"
    )
    return Claim(
        "2", "the correlation is alignment's own, not the initial loss's", measured, verdict, note
    )


def _alignment_dataset(arrays: dict[str, np.ndarray], plan: runs.AlignmentPlan) -> xr.Dataset:
    initial, curves, times = (
        runs.gathered(arrays, "initial"),
        runs.gathered(arrays, "curves"),
        arrays["times"],
    )
    return xr.Dataset(
        {
            "alignment": ("net", runs.gathered(arrays, "alignment")),
            "logit_alignment": ("net", runs.gathered(arrays, "logit_alignment")),
            "signal": ("net", runs.gathered(arrays, "signal")),
            "initial_loss": ("net", initial),
            "loss_curve": (("net", "time"), curves),
            "test_accuracy": (("net", "epoch"), runs.gathered(arrays, "accuracy")),
            "halving_epoch": ("net", halving_epoch(times, curves, initial)),
            "halving_time": ("net", halving_time(times, curves, initial)),
        },
        coords={
            "time": ("time", times, {"units": "epochs"}),
            "epoch": np.arange(1, plan.epochs + 1),
        },
    )


def _alignment_claim(
    one: xr.Dataset, loss: str, arrays: dict[str, np.ndarray], plan: runs.AlignmentPlan
) -> Claim:
    a, epoch, time = one.alignment.values, one.halving_epoch.values, one.halving_time.values
    whole, fine = pearson(a, epoch), pearson(a, time)
    measured = {
        "loss": loss,
        "r_whole_epochs": whole.as_dict(),
        "r_interpolated": fine.as_dict(),
        "spearman_interpolated": spearman(a, time),
        "r_interpolated_with_1_over_A": pearson(1 / a, time).as_dict(),
        "r_with_initial_loss": pearson(one.initial_loss.values, time).as_dict(),
        "r_with_logits_in_place_of_f": pearson(one.logit_alignment.values, time).as_dict(),
        "halving_times": np.quantile(time[np.isfinite(time)], [0, 0.5, 1]).tolist()
        if np.isfinite(time).any()
        else [],
        "never_halved": int(np.isnan(time).sum()),
        "networks": len(a),
        "final_test_accuracy": float(one.test_accuracy.isel(epoch=-1).mean()),
        "seconds": float(runs.gathered(arrays, "seconds").sum()),
    }
    note = (
        f"{arrays['data']}; width {plan.width}, {plan.epochs} epochs, batches of {plan.batch}, lr "
        "1, momentum 0.9, "
        f"products in {plan.precision}; on {arrays['device']}. The paper does not name its loss."
    )
    claim = "alignment at initialisation and the loss-halving epoch are anticorrelated, r ≈ −0.76"
    return Claim("2", claim, measured, _verdict(fine), note)


def _verdict(r: Estimate) -> bool | str:
    """Anticorrelated beyond doubt, as strongly as printed or less so."""
    if not r.high < 0:
        return False
    return True if r.low <= -0.76 <= r.high or r.value <= -0.76 else "partly"


def _precision_claim(out: Path, loss: str, arrays: dict[str, np.ndarray]) -> Claim | None:
    """What TF32 products change, where the first networks were also trained with full-precision
    ones.
    """
    path = out / runs.alignment_file(loss, checked=True)
    if not path.is_file():
        return None
    exact = read_archive(path, runs.REMEDY)[1]
    first, second = (_halving_times(a) for a in (arrays, exact))
    count = min(len(first), len(second))
    shift = np.abs(first[:count] - second[:count])
    largest = float(shift[np.isfinite(shift)].max(initial=0.0))
    measured = {"loss": loss, "networks": count, "largest_shift_epochs": largest}
    claim = "the training precision does not change the halving times by a tenth of an epoch"
    return Claim("2", claim, measured, largest < 0.1, "products in TF32 against float32")


def _halving_times(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return halving_time(
        arrays["times"], runs.gathered(arrays, "curves"), runs.gathered(arrays, "initial")
    )


def _figures_1_and_3(out: Path, scale: str, report: runs.Report) -> list[Claim]:
    plan = runs.WIDTHS[scale]
    arrays = runs.width_runs(out / runs.WIDTHS_FILE, plan, report)
    data = _width_dataset(arrays, plan)
    mean = data.accuracy.mean(["width", "trial"])
    reached = {kind: _first_at(mean.sel(kind=kind).values, plan.level) for kind in figures.KINDS}
    index = xr.DataArray(
        [reached[kind][0] for kind in figures.KINDS],
        dims="kind",
        coords={"kind": list(figures.KINDS)},
    )
    data["snapshot_rmse"] = data.rmse.isel(batch=index)
    snapshots = {kind: int(data.batch.values[reached[kind][0]]) for kind in figures.KINDS}
    widths = np.repeat(np.array(plan.widths, float), plan.trials)
    slopes = {
        kind: log_slope(widths, data.snapshot_rmse.sel(kind=kind).values.ravel())
        for kind in figures.KINDS
    }
    last = {
        kind: log_slope(widths, data.rmse.isel(batch=-1).sel(kind=kind).values.ravel())
        for kind in figures.KINDS
    }
    save_data(data, out, "figure1_and_3")
    save_figure(figures.width_figure(data, slopes, snapshots), out, "figure1")
    save_figure(figures.accuracy_figure(data, snapshots, plan.level), out, "figure3")
    note = (
        f"{arrays['data']}; {plan.loss}, {plan.epochs} epochs, snapshot at {plan.level:.0%} mean "
        "test accuracy"
    )
    claims = [
        Claim(
            "1",
            f"the linearisation error of the {kind} network falls like width^(−1/2)",
            {
                "slope": slopes[kind].as_dict(),
                "slope_at_the_end": last[kind].as_dict(),
                "batch": snapshots[kind],
            },
            slopes[kind].low <= -0.5 <= slopes[kind].high or "partly",
            note
            + (
                ""
                if reached[kind][1]
                else "; that accuracy was not reached, so the last batch is shown"
            ),
        )
        for kind in figures.KINDS
    ]
    return [*claims, _speed_claim(data, snapshots, plan), _scales_claim(plan)]


def _width_dataset(arrays: dict[str, np.ndarray], plan: runs.WidthPlan) -> xr.Dataset:
    dims = ("width", "kind", "trial", "batch")
    names = ("rmse", "accuracy", "linear_accuracy")
    return xr.Dataset(
        {
            **{
                name: (dims, np.stack([arrays[f"{w}/{name}"] for w in plan.widths]))
                for name in names
            },
            "scales": (
                ("width", "statistic"),
                np.stack([arrays[f"{w}/scales"] for w in plan.widths]),
            ),
            "gain": (("width", "trial"), np.stack([arrays[f"{w}/gain"] for w in plan.widths])),
        },
        coords={
            "width": list(plan.widths),
            "kind": list(figures.KINDS),
            "batch": arrays["times"],
            "statistic": ["least", "mean", "largest"],
        },
        attrs={"data": str(arrays["data"]), "device": str(arrays["device"]), "plan": repr(plan)},
    )


def _first_at(curve: np.ndarray, level: float) -> tuple[int, bool]:
    above = np.flatnonzero(curve >= level)
    return (int(above[0]), True) if len(above) else (len(curve) - 1, False)


def _speed_claim(data: xr.Dataset, snapshots: dict[str, int], plan: runs.WidthPlan) -> Claim:
    least, mean, largest = (float(v) for v in data.scales.mean("width").values)
    measured = {
        "batches": snapshots,
        "speed_up": snapshots["standard"] / snapshots["transformed"],
        "alignment_gain": float(data.gain.mean()),
        "c": {"least": least, "mean": mean, "largest": largest},
    }
    faster = snapshots["transformed"] < snapshots["standard"]
    note = f"c by {plan.search}; the paper prints batches 2455 and 2406 and |c − 1| < 5 %"
    return Claim(
        "3", "the transformed network reaches the accuracy earlier", measured, faster, note
    )


def search_scales(plan: runs.WidthPlan, steps: int) -> dict[str, float]:
    """The least, mean and largest c after so many steps with the penalty as printed, a sum over
    the parameters.
    """
    sample = load(256, 100, pool=plan.pool)
    net = runs.network(plan.widths[0], sample)
    weights = net.init(key=jax.random.key(0))
    method = ScaleSearch(steps=steps, mean_penalty=False)
    found = HadamardGroup(net).search(
        weights, sample.x, sample.y, loss=LOSSES[plan.loss], method=method
    )
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found.factors)])
    return {"least": float(flat.min()), "mean": float(flat.mean()), "largest": float(flat.max())}


def _scales_claim(plan: runs.WidthPlan) -> Claim:
    """c with the penalty as printed: Adam leaves 1 by a step and is pulled back."""
    measured = {f"after {steps} steps": search_scales(plan, steps) for steps in (1, 2, 10, 100)}
    within = all(
        abs(v[side] - 1) < 0.05 for v in measured.values() for side in ("least", "largest")
    )
    note = (
        "penalty 0.1‖c − 1‖² summed over the parameters; the figures use its mean, without which "
        "c returns to 1"
    )
    return Claim(
        "E",
        "the search for c ends within 5 % of 1, above 1 on average",
        measured,
        within or "partly",
        note,
    )


def _beyond(out: Path, scale: str, report: runs.Report) -> list[Claim]:
    plan = beyond.HESSIAN[scale]
    arrays = beyond.hessian_runs(out / "teleport_hessian.npz", plan, report)
    hessian = xr.Dataset(
        {
            "norm": (
                ("width", "kind", "trial", "sample"),
                np.stack([arrays[f"{w}/norm"] for w in plan.widths]),
            )
        },
        coords={"width": list(plan.widths), "kind": list(figures.KINDS)},
    )
    points = np.repeat(np.array(plan.widths, float), plan.trials * plan.samples)
    slopes = {
        kind: log_slope(points, hessian.norm.sel(kind=kind).values.ravel())
        for kind in figures.KINDS
    }
    speed = _speed_dataset(beyond.speed_runs(out / "teleport_speed.npz", beyond.SPEED, report))
    save_data(xr.merge([hessian, speed]), out, "beyond")
    save_figure(figures.beyond_figure(hessian, slopes, speed), out, "beyond")
    gain, speedup = np.log(speed.gain.values.ravel()), np.log(speed.speedup.values.ravel())
    by_strength = _by_strength(speed)
    within = all(one["r"]["low"] > 0 for one in by_strength.values())
    dimensions = beyond.dimension_under_symmetry(jax.random.key(0))
    return [
        Claim(
            "Eq. 19",
            "the spectral norm of the output's Hessian falls like width^(−1/2), also after the "
            "transformation",
            {kind: slopes[kind].as_dict() for kind in figures.KINDS},
            all(s.low <= -0.5 <= s.high for s in slopes.values()) or "partly",
            "at initialisation, first output, by Lanczos in float64",
        ),
        Claim(
            "beyond",
            "the gain of alignment by a symmetry predicts the speed-up",
            {"r_of_logarithms": pearson(gain, speedup).as_dict(), "by_strength": by_strength},
            pearson(gain, speedup).low > 0 and (within or "partly"),
            f"random neuron scalings of ReLU networks, {beyond.SPEED}; `partly`: not among "
            "scalings of one strength",
        ),
        Claim(
            "beyond",
            "a symmetry does not move the functional dimension",
            {name: list(pair) for name, pair in dimensions.items()},
            all(one == two for one, two in dimensions.values()),
            "certified over the rationals, before and after",
        ),
    ]


def _speed_dataset(arrays: dict[str, np.ndarray]) -> xr.Dataset:
    strengths = list(beyond.SPEED.strengths)
    alignment, halved = (
        np.stack([arrays[f"{s}/{name}"] for s in (0.0, *strengths)])
        for name in ("alignment", "halved")
    )
    return xr.Dataset(
        {
            "gain": (("strength", "net"), alignment[1:] / alignment[0]),
            "speedup": (("strength", "net"), halved[0] / halved[1:]),
        },
        coords={"strength": strengths},
    )


def _by_strength(speed: xr.Dataset) -> dict[str, Any]:
    return {
        f"{strength:g}": {
            "r": pearson(np.log(one.gain.values), np.log(one.speedup.values)).as_dict(),
            "median_gain": float(one.gain.median()),
            "median_speedup": float(one.speedup.median()),
        }
        for strength, one in speed.groupby("strength")
    }


_ALIGNMENTS = {loss: f"alignment_{loss.replace(' ', '_')}" for loss in LOSSES}
BLOCKS = [
    *(Block(name, partial(_experiment, loss)) for loss, name in _ALIGNMENTS.items()),
    *(Block(name, partial(_experiment, name)) for name in ("widths", "hessian", "speed")),
    Block("figure_2", partial(_drawn, _figure_2), tuple(_ALIGNMENTS.values())),
    Block("figures_1_and_3", partial(_drawn, _figures_1_and_3), ("widths",)),
    Block("beyond", partial(_drawn, _beyond), ("hessian", "speed")),
]
