"""The bottleneck paper: Figure 1 (norm and rank against depth), Figure 2 (symmetry learning),
and what needs no training (3).
"""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import xarray as xr

from neuromanifold_papers.blocks import Block, run_blocks
from neuromanifold_papers.bottleneck import depths, symmetry, theory
from neuromanifold_papers.bottleneck.data import DescentTask, LatentTask
from neuromanifold_papers.bottleneck.depths import DepthStudy
from neuromanifold_papers.bottleneck.symmetry import SymmetryStudy
from neuromanifold_papers.bottleneck.theory import TheoryStudy
from neuromanifold_papers.output import Claim, read_data, save_data, save_figure, write_summary

PAPER = "bottleneck"

SMALL: dict[int, Any] = {
    1: DepthStudy(
        LatentTask(samples=200),
        depths=(4, 6, 8, 10, 12, 14, 16),
        ridge=0.001,
        width=30,
        steps=6000,
        polish=200,
        lr=3e-3,
    ),
    2: SymmetryStudy(
        DescentTask(samples=400, dimension=4, steps=8),
        depth=10,
        width=40,
        steps=3000,
        polish=100,
        ridge=0.002,
        lr=3e-3,
    ),
    3: TheoryStudy(folds=(1, 2, 3, 4), depth=40, polyline=(8, 16, 32, 64)),
}
FULL: dict[int, Any] = {
    1: DepthStudy(
        LatentTask(samples=500),
        depths=tuple(range(4, 33)),
        ridge=0.001,
        width=200,
        steps=20_000,
        polish=250,
        lr=1e-3,
        probed=32,
        seeds=2,
        memory="48GiB",
    ),
    2: SymmetryStudy(
        DescentTask(samples=2000, dimension=10, steps=10),
        depth=25,
        width=200,
        steps=30_000,
        polish=500,
        ridge=0.0002,
        seeds=3,
        memory="48GiB",
    ),
    3: TheoryStudy(),
}
_MODULES = {1: depths, 2: symmetry, 3: theory}
_NAMES = {1: "figure1", 2: "figure2", 3: "figure3"}


def reproduce(
    out: Path,
    *,
    figure: int | None = None,
    scale: str = "small",
    progress: bool = True,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Figures 1 and 2 of the paper from scratch, and a third with the statements that need no
    training.

    For each figure PNG, SVG and NetCDF in `out`, and `summary.json` with the claims. Interrupted,
    it continues from the checkpoints beside them. `scale="small"` takes minutes on a laptop,
    `"paper"` minutes on a GPU. `workers` processes, or a Dask `scheduler`, compute the figures side
    by side.
    """
    studies = _studies(scale)
    if figure is not None and figure not in studies:
        raise ValueError(
            f"`figure` is {figure}; this study has the figures {', '.join(map(str, studies))}."
        )
    blocks = [Block(_NAMES[number], partial(_figure, number)) for number in studies]
    only = None if figure is None else [_NAMES[figure]]
    chosen: Any = {"only": only, "progress": progress, "workers": workers, "scheduler": scheduler}
    return run_blocks(PAPER, blocks, Path(out), scale, **chosen)


def _figure(number: int, out: Path, scale: str, progress: bool) -> list[Claim]:
    checkpoint = out / f"{_NAMES[number]}.checkpoint"
    data = _measured(_studies(scale)[number], checkpoint, progress)
    save_data(data, out, _NAMES[number])
    checkpoint.unlink(missing_ok=True)
    return _finish(number, data, out)


def redraw(out: Path, *, scale: str) -> dict[str, Any]:
    """The figures and the summary again, from the NetCDF files that `reproduce` left in `out`."""
    claims: list[Claim] = []
    for number, name in _NAMES.items():
        if (out / f"{name}.nc").exists():
            claims += _finish(number, read_data(out / f"{name}.nc"), out)
    return write_summary(out, PAPER, scale, claims)


def _studies(scale: str) -> dict[int, Any]:
    found = {"small": SMALL, "paper": FULL}.get(scale)
    if found is None:
        raise ValueError(f"`scale` is {scale!r}; pass 'small' or 'paper'.")
    return found


def _measured(study: Any, checkpoint: Path, progress: bool) -> xr.Dataset:
    if isinstance(study, TheoryStudy):
        return study.measure()
    return study.measure(checkpoint=checkpoint, progress=progress)


def _finish(number: int, data: xr.Dataset, out: Path) -> list[Claim]:
    module: Any = _MODULES[number]
    draw: Callable[[xr.Dataset], Any] = module.draw
    with _agg():
        figure = draw(data)
        save_figure(figure, out, _NAMES[number])
        _close(figure)
    return module.claims(data)


@contextlib.contextmanager
def _agg():
    """Figures without a display, whatever backend the caller has."""
    import matplotlib

    before = matplotlib.get_backend()
    matplotlib.use("Agg")
    try:
        yield
    finally:
        matplotlib.use(before)


def _close(figure: Any) -> None:
    import matplotlib.pyplot as plt

    plt.close(figure)
