"""`train`: many networks at once, watched by probes, resumable."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics import checkpoint as checkpoints
from neuromanifold.dynamics.checkpoint import Course
from neuromanifold.dynamics.checks import Problem, check_hashable, checked_hyper, checked_problem
from neuromanifold.dynamics.epochs import Recipe
from neuromanifold.dynamics.history import attributes, history
from neuromanifold.dynamics.job import Job, courses, prepare, start
from neuromanifold.dynamics.keeping import kept, shown
from neuromanifold.dynamics.optimizers import Optimizer, adam_l2, check_optimizer
from neuromanifold.dynamics.probes import as_probes
from neuromanifold.dynamics.resuming import (
    checkpoint_file,
    described,
    identity,
    plan_in,
    plan_of,
    resumed,
)
from neuromanifold.dynamics.sweep import Sweep
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.drawing import Curve, card, chart
from neuromanifold.numerics.precision import arithmetic, follower, widest
from neuromanifold.numerics.results import Result
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.runtime.threads import one_blas_thread

_FAR = 30.0
"""Positive values whose ratio is larger are drawn on a logarithmic scale."""


@dataclass(frozen=True, eq=False, repr=False)
class Training(Result):
    """Trained networks and what the probes saw.

    `params` has the axes `axes` in front (`dataset` where data sets were stacked, the
    hyperparameters, `run` where there were several networks); `history` is an `xarray.Dataset` of
    dimensions (*axes, epoch, the probe's own).
    """

    params: Any
    history: Any
    axes: tuple[str, ...]

    def member(self, **position: int) -> Any:
        """The parameters of one network, by its position on each axis (0 where absent):
        `training.member(run=3)`.
        """
        unknown = set(position) - set(self.axes)
        if unknown:
            axes = ", ".join(self.axes) or "none"
            raise ValueError(
                f"`{min(unknown)}` is not an axis of this training; its axes are {axes}."
            )
        at = tuple(position.get(name, 0) for name in self.axes)
        return jax.tree.map(lambda a: a[at], self.params)

    def _curves(self) -> dict[str, np.ndarray]:
        """The median, least and greatest value over all members, for each probe that gives one
        number: arrays of shape (3, epochs).
        """
        found = {}
        for name, data in self.history.items():
            if set(data.dims) == {*self.axes, "epoch"} and np.asarray(data).dtype.kind in "biuf":
                values = np.asarray(data, float).reshape(-1, self.history.sizes["epoch"])
                found[str(name)] = np.quantile(values, [0.5, 0.0, 1.0], axis=0)
        return found

    def plot(self) -> Any:
        """A figure with one panel for each probe that gives one number: the median over all
        members, in a band from the least to the greatest.
        """
        from matplotlib.figure import Figure

        curves, epochs = self._curves(), np.asarray(self.history["epoch"])
        if not curves:
            raise ValueError(
                "no probe of this training gives one number at each epoch; pass some to `train`: "
                "`probes=[nm.dynamics.r_squared]`."
            )
        rows = -(-len(curves) // 2)
        figure = Figure(figsize=(8, 2.5 * rows), layout="constrained")
        grid = np.ravel(figure.subplots(rows, min(2, len(curves)), squeeze=False))
        for axes, (name, (median, low, high)) in zip(grid, curves.items(), strict=False):
            axes.plot(epochs, median, ".-", lw=1.2, ms=4)
            axes.fill_between(epochs, low, high, alpha=0.2, lw=0)
            axes.set_title(name, fontsize=10)
            axes.set_xlabel("epoch")
        for axes in grid[len(curves) :]:
            axes.remove()
        return figure

    def _repr_html_(self) -> str:
        curves, epochs = self._curves(), np.asarray(self.history["epoch"])
        several = bool(self.axes)
        pictures = [_picture(name, epochs, values, several) for name, values in curves.items()]
        head = ("", f"epoch {epochs[0]}", f"epoch {epochs[-1]}")
        ends = [
            (name, *(_spread(values[:, k], several) for k in (0, -1)))
            for name, values in curves.items()
        ]
        kept = [("not drawn", str(n)) for n in self.history if str(n) not in curves]
        said = f"{self.history.attrs['model']}, {self._sizes}, {epochs[-1]:,} epochs."
        band = "Curves are medians over all members, in a band from the least to the greatest."
        return card(
            "Training",
            [said, band] if several and curves else [said],
            [picture for picture in pictures if picture],
            [head, *ends, *kept] if ends else kept,
        )

    @property
    def _sizes(self) -> str:
        return (
            ", ".join(f"{name} {self.history.sizes[name]}" for name in self.axes) or "one network"
        )

    def __repr__(self) -> str:
        return (
            f"Training({self.history.attrs['model']}, {self._sizes}; "
            f"{', '.join(self.history) or 'no probes'})"
        )


def _picture(name: str, epochs: np.ndarray, values: np.ndarray, several: bool) -> str:
    """The median, with its band where there are several members; on a logarithmic scale where the
    values are positive and far apart.
    """
    median, low, high = values
    fine = values[np.isfinite(values)]
    log = bool(len(fine)) and 0 < fine.min() < fine.max() / _FAR
    curve = Curve(name, epochs, median, *((low, high) if several else ()))
    return chart([curve], x="epoch", y=name, log=log)


def _spread(values: np.ndarray, several: bool) -> str:
    median, low, high = values
    return f"{median:.4g} ({low:.4g} to {high:.4g})" if several else f"{median:.4g}"


def train(
    f: Any,
    params: Any,
    x: Any,
    y: Any,
    *,
    key: Any,
    epochs: int,
    loss: Loss = mse,
    optimizer: Optimizer = adam_l2,
    hyper: Any = None,
    batch_size: int | None = None,
    probes: Any = (),
    every: int | None = None,
    stacked: bool | None = None,
    single: bool | None = None,
    chunk: int | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    memory: int | str | None = None,
) -> Training:
    """Train one network, or every combination of run, hyperparameters and data set at once, by
    minibatch gradient steps.

    θ ← θ − update(∇ loss(f_θ(x_B), y_B)) over the batches B of a permutation of the samples, drawn
    anew in each epoch from `key`, the epoch and the run. A short last batch counts by its own mean,
    as in torch's `DataLoader`.

    - `params` is one network, or many with a run axis in front: `net.init(key=key, runs=R)`. The
      shapes tell which; where they leave it open, `single=` says it. Their dtype is the dtype of
      the training.
    - `optimizer` is an optax optimiser, or with `hyper={"weight_decay": [0, 1e-4]}` a function of
      these names that returns one; each entry of `hyper` is an axis of the result.
    - `x` (S, n, i) with `y` (S, n, o) are S data sets, a further axis (`stacked=` says so where the
      model's samples may have several axes).
    - `probes` are evaluated at epoch 0, every `every` epochs, and at the end; see `Probe`.
    - `checkpoint` names a file for what is finished; a training that finds it continues there, and
      ends bit for bit where it would have ended. It may be given more `epochs`. Another training,
      platform or JAX version is refused.
    - `chunk` members are compiled together, on which the last digits depend. By default it follows
      from the number of members and `memory` (on accelerators also of devices), never from the
      number of cores; `history` records it.
    - `memory` bounds the temporaries: members beyond it are trained one group after another.

    >>> net = nm.MLP((1, 8, 1))
    >>> d = nm.data.load("f1")
    >>> params = net.init(key=jax.random.key(0), runs=5)
    >>> watched = [nm.dynamics.r_squared]
    >>> done = nm.train(net, params, d.x, d.y, key=jax.random.key(1), epochs=60, batch_size=16, probes=watched)
    >>> done.history.r_squared.dims
    ('run', 'epoch')
    >>> bool((done.history.r_squared[:, -1] > done.history.r_squared[:, 0]).all())
    True
    """
    follow = follower(params)
    with arithmetic():
        budget = memory_budget(memory)
        problem = checked_problem(f, params, x, y, stacked, single)
        hyper = checked_hyper(hyper)
        check_optimizer(optimizer, hyper)
        watched = as_probes(probes)
        check_loss(loss, problem.y[0])
        check_hashable(f=f, optimizer=optimizer, probes=watched)
        recipe = Recipe(f, loss, optimizer, _batch_size(batch_size, problem.x.shape[1]))
        file = None if checkpoint is None else checkpoint_file(checkpoint)
        found = None if file is None else checkpoints.find(file)
        sweep = _sweep(problem, hyper)
        cut = plan_in(found, sweep.size) | ({} if chunk is None else {"length": _chunk(chunk)})
        given = (problem.x, problem.y, key, _due(epochs, every), problem.params, budget)
        job = prepare(recipe, sweep, watched, *given, **cut)
        fresh = start(job, problem.params)
        mark = {} if file is None else identity(job, fresh, problem.params, every)
        header = {"identity": mark, "described": described(recipe), "plan": plan_of(job)}
        kept_so_far = 0 if found is None else found.epoch
        with (
            shown(progress, epochs) as show,
            kept(file, header, job.lanes, kept_so_far) as keep,
            one_blas_thread(),
        ):
            course = fresh if found is None else resumed(job, fresh, found, mark)
            for current in courses(job, course):
                keep(course := current)
                show(course.epoch)
        made = _training(
            job,
            course,
            attributes(recipe, key, widest(params), epochs, job.lanes) | {"memory": budget},
        )
    return replace(made, params=follow(made.params))


def _sweep(problem: Problem, hyper: dict[str, np.ndarray]) -> Sweep:
    datasets = {"dataset": np.arange(len(problem.x))} if problem.stacked else {}
    runs = {} if problem.single else {"run": np.arange(len(jax.tree.leaves(problem.params)[0]))}
    return Sweep({**datasets, **hyper, **runs})


def _training(job: Job, course: Course, made: dict[str, Any]) -> Training:
    trained = job.lanes.everywhere(
        job.lanes.gather([learner.params for learner in course.learners])
    )
    record = history(job.sweep, job.probes, job.lanes.everywhere(course.records), made)
    return Training(jax.tree.map(job.sweep.unflatten, trained), record, tuple(job.sweep.axes))


def _due(epochs: int, every: int | None) -> tuple[int, ...]:
    if not isinstance(epochs, (int, np.integer)) or epochs < 0:
        raise ValueError(f"`epochs` is {epochs!r}; pass a whole number, 0 or more.")
    if every is not None and (not isinstance(every, (int, np.integer)) or every < 1):
        raise ValueError(
            f"`every` is {every!r}; pass a number of epochs, 1 or more, or None for the start and "
            "the end."
        )
    return tuple(sorted({*range(0, epochs, every or max(1, epochs)), epochs}))


def _batch_size(batch_size: int | None, samples: int) -> int | None:
    if batch_size is not None and (not isinstance(batch_size, (int, np.integer)) or batch_size < 1):
        raise ValueError(
            f"`batch_size` is {batch_size!r}; pass a number of samples, 1 or more, or None for all."
        )
    return None if batch_size is None or batch_size >= samples else int(batch_size)


def _chunk(chunk: int) -> int:
    if not isinstance(chunk, (int, np.integer)) or chunk < 1:
        raise ValueError(f"`chunk` is {chunk!r}; pass a number of members, 1 or more, or None.")
    return int(chunk)
