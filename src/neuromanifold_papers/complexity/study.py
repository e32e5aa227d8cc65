"""`complexity`: the rank of the empirical tangent kernel tracks task complexity. Figures 1–9,
from scratch.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.flatten_util import ravel_pytree

from neuromanifold import data
from neuromanifold.data.synthetic import BIVARIATE, UNIVARIATE
from neuromanifold_papers.blocks import NOT_MEASURED, Block, run_blocks
from neuromanifold_papers.complexity import claims, runs
from neuromanifold_papers.complexity import figures as draw
from neuromanifold_papers.complexity.statistics import successful
from neuromanifold_papers.output import Claim, save_data, save_figure

GRID = np.linspace(0.0, 1.0, 501)
LEARNED_AT = (0, 50, 200, 1000, 2000)


def reproduce(
    out: Path,
    *,
    figure: int | None = None,
    scale: str = "small",
    progress: bool = True,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Figures 1–9 of the complexity paper and its statements about initial networks, with what we
    measure beside them.

    Writes into `out`: `figure_N.png`, `.svg` and `.nc`, the trainings with snapshots of all
    parameters (`univariate.nc`, …), and `summary.json`, which it returns. `scale="small"` takes
    minutes, `"paper"` has the paper's numbers of runs and 2,000 epochs. What a folder already holds
    is not computed again, so that an interrupted study continues. `workers` processes, or a Dask
    `scheduler`, compute its blocks side by side.
    """
    if scale not in runs.EXPERIMENTS:
        raise ValueError(f"`scale` is {scale!r}; pass 'small' or 'paper'.")
    if figure is not None and figure not in FIGURES:
        raise ValueError(f"`figure` is {figure}; the paper's figures are 1 to {len(FIGURES)}.")
    only = None if figure is None else [f"figure_{figure}"]
    chosen: Any = {"only": only, "progress": progress, "workers": workers, "scheduler": scheduler}
    return run_blocks(
        "complexity", blocks(scale, required=figure is not None), Path(out), scale, **chosen
    )


def blocks(scale: str, *, required: bool = False) -> list[Block]:
    """Trainings with their ranks and initial networks first, then the figures that draw them."""
    names = {experiment.name for experiment in runs.EXPERIMENTS[scale]}
    trained = [Block(f"train_{name}", partial(_train_block, name)) for name in sorted(names)]
    drawn = [Block(f"initial_{name}", partial(_initial_block, name)) for name in runs.SEEDS[scale]]
    figures = [
        Block(
            f"figure_{n}",
            partial(_figure_block, n, required),
            tuple(f"train_{name}" for name in NEEDS.get(n, ()) if name in names),
        )
        for n in FIGURES
    ]
    last = Block(
        "figure_initialisation", _initialisation_block, tuple(block.name for block in drawn)
    )
    return [*trained, *drawn, *figures, last]


def _train_block(name: str, out: Path, scale: str, progress: bool) -> list[Claim]:
    """Data that cannot be had are told by the figures that need them."""
    with suppress(FileNotFoundError):
        Study(out, scale, progress).history(name)
    return []


def _initial_block(name: str, out: Path, scale: str, progress: bool) -> list[Claim]:
    with suppress(FileNotFoundError):
        runs.initial(name, runs.SEEDS[scale][name], out, progress=progress)
    return []


def _figure_block(
    figure: int, required: bool, out: Path, scale: str, progress: bool
) -> list[Claim]:
    return _attempt(
        f"Fig {figure}", partial(FIGURES[figure], Study(out, scale, progress)), required=required
    )


def _initialisation_block(out: Path, scale: str, progress: bool) -> list[Claim]:
    return _initialisation(Study(out, scale, progress))


def train(out: Path, *, scale: str = "paper", progress: bool = True) -> list[Path]:
    """Only the trainings, without ranks: what an accelerator is for. `reproduce` continues from
    the files.
    """
    out = Path(out)
    for experiment in runs.EXPERIMENTS[scale]:
        runs.trained(experiment, out, progress=progress)
    return [out / f"{experiment.name}.nc" for experiment in runs.EXPERIMENTS[scale]]


def _attempt(name: str, make: Callable[[], list[Claim]], *, required: bool) -> list[Claim]:
    """The claims; where a data set cannot be had, and nobody asked for this figure alone, a
    claim that says so.
    """
    try:
        return make()
    except FileNotFoundError as error:
        if required:
            raise
        return [Claim(name, "needs a data set that is not here", None, NOT_MEASURED, str(error))]


@dataclass(frozen=True)
class Study:
    """Where the study writes, at which scale, and whether it shows its progress."""

    out: Path
    scale: str
    progress: bool

    def has(self, name: str) -> bool:
        """Whether the scale has this experiment."""
        return any(e.name == name for e in runs.EXPERIMENTS[self.scale])

    def history(self, name: str) -> xr.Dataset:
        """The experiment's training with its ranks."""
        experiment = next(e for e in runs.EXPERIMENTS[self.scale] if e.name == name)
        history = runs.trained(experiment, self.out, progress=self.progress)
        return runs.with_ranks(experiment, history, self.out, progress=self.progress)

    def save(self, name: str, drawn: Any, dataset: xr.Dataset) -> None:
        """PNG, SVG and NetCDF of one figure."""
        save_figure(drawn, self.out, name)
        save_data(dataset, self.out, name)


def _figure1(study: Study) -> list[Claim]:
    sets = [data.load(name) for name in runs.UNIVARIATE]
    curves = xr.Dataset(
        {
            "function": (("dataset", "grid"), np.stack([UNIVARIATE[d.name](GRID) for d in sets])),
            "x": (("dataset", "sample"), np.stack([d.x[:, 0] for d in sets])),
            "y": (("dataset", "sample"), np.stack([d.y[:, 0] for d in sets])),
        },
        {"dataset": list(runs.UNIVARIATE), "grid": GRID},
    )
    study.save("figure_1", draw.univariate_data(curves), curves)
    return [
        claims.variation(
            "Fig 1", np.abs(np.diff(curves.function.values)).sum(axis=1), runs.UNIVARIATE
        )
    ]


def _figure8(study: Study) -> list[Claim]:
    s, t = np.meshgrid(line := np.linspace(0, 1, 101), line, indexing="ij")
    surfaces = xr.Dataset(
        {
            "function": (
                ("dataset", "s", "t"),
                np.stack([BIVARIATE[name](s, t) for name in runs.BIVARIATE]),
            )
        },
        {"dataset": list(runs.BIVARIATE), "s": line, "t": line},
    )
    study.save("figure_8", draw.bivariate_data(surfaces), surfaces)
    slopes = [np.hypot(*np.gradient(g, line, line)).mean() for g in surfaces.function.values]
    return [claims.variation("Fig 8", np.array(slopes), runs.BIVARIATE)]


def _tracked(figure: str, name: str, study: Study) -> list[Claim]:
    """Figures 2, 3 and 9: the functional dimension along training, data set by data set."""
    history = study.history(name)
    one = history.sel(weight_decay=history.weight_decay[0])
    groups = [(draw.label(d), {"dataset": d}, draw.COLOURS[d]) for d in one.dataset.values]
    study.save(f"figure_{figure}", draw.trajectories(one, groups), one.drop_vars("parameters"))
    return claims.tracks_complexity(f"Fig {figure.removesuffix('_long')}", one)


def _figure2(study: Study) -> list[Claim]:
    """As in the paper; where the scale has it, also with four times the runs and five times the
    epochs.
    """
    found = _tracked("2", "univariate", study)
    return found + (
        _beyond(_tracked("2_long", "univariate_long", study))
        if study.has("univariate_long")
        else []
    )


def _beyond(found: list[Claim]) -> list[Claim]:
    why = (
        "more runs (other seeds) than the paper's, added after its number of runs had decided "
        "nothing"
    )
    return [replace(claim, note=f"{claim.note}; {why}") for claim in found]


def _figure4(study: Study) -> list[Claim]:
    """As in the paper; where the scale has it, also with six times the runs."""
    found = _decay("4", "decay", study)
    return found + (
        _beyond(_decay("4_more", "decay_more", study)) if study.has("decay_more") else []
    )


def _decay(figure: str, name: str, study: Study) -> list[Claim]:
    history = study.history(name).isel(dataset=0)
    decays = history.weight_decay.values
    groups = [
        (f"weight decay {decay:g}", {"weight_decay": decay}, colour)
        for decay, colour in zip(decays, draw.PALETTE, strict=False)
    ]
    study.save(
        f"figure_{figure}", draw.trajectories(history, groups), history.drop_vars("parameters")
    )
    return claims.decay_suppresses("Fig 4", history)


def _region_figure(figure: int, name: str, study: Study) -> list[Claim]:
    """Figures 5 and 6: regions sampled and the dimension they bound, drawn for one run, measured
    on all.
    """
    history = study.history(name)
    one = history.sel(weight_decay=history.weight_decay[0])
    inputs = {"univariate": 1, "energy": 8}[name]
    shown = _one_run(one)
    study.save(f"figure_{figure}", draw.regions(shown, inputs), shown.drop_vars("parameters"))
    return claims.regions_bound(f"Fig {figure}", one, inputs)


def _one_run(history: xr.Dataset) -> xr.Dataset:
    """The first run that is successful on the most data sets."""
    counts = successful(history).sum("dataset")
    return history.isel(run=int(counts.argmax("run")))


def _figure7(study: Study) -> list[Claim]:
    history = study.history("univariate")
    one = _one_run(history.isel(weight_decay=0)).sel(dataset=["f2", "f3"])
    epochs = [e for e in LEARNED_AT if e < int(one.epoch[-1])] + [int(one.epoch[-1])]
    epochs = [e for e in epochs if e in one.epoch.values]
    net = runs.network(1)
    unravel = ravel_pytree(net.init(key=jax.random.key(0)))[1]
    snapshots = one.parameters.sel(epoch=epochs).transpose("dataset", "epoch", "parameter").values
    values = [
        [net(unravel(theta), GRID[:, None].astype(np.float32))[:, 0] for theta in row]
        for row in snapshots
    ]
    x, y = runs.load_data(("f2", "f3"))
    functions = xr.Dataset(
        {
            "learned": (("dataset", "epoch", "grid"), np.array(values)),
            "function": (
                ("dataset", "grid"),
                np.stack([UNIVARIATE[name](GRID) for name in ("f2", "f3")]),
            ),
            "x": (("dataset", "sample"), x[..., 0]),
            "y": (("dataset", "sample"), y[..., 0]),
        },
        {"dataset": ["f2", "f3"], "epoch": epochs, "grid": GRID},
    )
    study.save("figure_7", draw.learned(functions), functions)
    return [claims.no_overfitting("Fig 7", functions, one)]


def _initialisation(study: Study) -> list[Claim]:
    found: dict[str, xr.Dataset] = {}
    missing: list[Claim] = []
    for name, seeds in runs.SEEDS[study.scale].items():
        try:
            found[name] = runs.initial(name, seeds, study.out, progress=study.progress)
        except FileNotFoundError as error:
            missing.append(
                Claim("Sec 6", f"initial networks on {name}", None, NOT_MEASURED, str(error))
            )
    together = xr.Dataset(
        {f"{name}_{v}": (f"seed_{name}", d[v].values) for name, d in found.items() for v in d}
    )
    study.save("figure_initialisation", draw.initialisation(found, claims.LIMITS), together)
    return [claims.initial_dimension(name, found[name]) for name in found] + missing


FIGURES: dict[int, Callable[[Study], list[Claim]]] = {
    1: _figure1,
    2: _figure2,
    3: partial(_tracked, "3", "energy"),
    4: _figure4,
    5: partial(_region_figure, 5, "univariate"),
    6: partial(_region_figure, 6, "energy"),
    7: _figure7,
    8: _figure8,
    9: partial(_tracked, "9", "bivariate"),
}
NEEDS = {
    2: ("univariate", "univariate_long"),
    3: ("energy",),
    4: ("decay", "decay_more"),
    5: ("univariate",),
    6: ("energy",),
    7: ("univariate",),
    9: ("bivariate",),
}
