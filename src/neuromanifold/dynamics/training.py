"""`train`: many networks at once, watched by probes, resumable."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics.checks import check_hashable, checked_data, checked_hyper, checked_runs
from neuromanifold.dynamics.epochs import Recipe
from neuromanifold.dynamics.history import attributes, history
from neuromanifold.dynamics.job import courses, identity, prepare, resumed, start
from neuromanifold.dynamics.keeping import kept, shown
from neuromanifold.dynamics.lanes import one_blas_thread
from neuromanifold.dynamics.optimizers import Optimizer, adam_l2, check_optimizer
from neuromanifold.dynamics.probes import as_probes
from neuromanifold.dynamics.sweep import Sweep
from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.memory import memory_budget
from neuromanifold.numerics.precision import arithmetic, widest


@dataclass(frozen=True, eq=False)
class Training:
    """Trained networks and what the probes saw.

    `params` has the axes `axes` in front (`dataset` where data sets were stacked, the hyperparameters, `run`);
    `history` is an `xarray.Dataset` of dimensions (*axes, epoch, the probe's own).
    """

    params: Any
    history: Any
    axes: tuple[str, ...]

    def member(self, **position: int) -> Any:
        """The parameters of one network, by its position on each axis (0 where absent): `training.member(run=3)`."""
        unknown = set(position) - set(self.axes)
        if unknown:
            raise ValueError(f"`{min(unknown)}` is not an axis of this training; its axes are {', '.join(self.axes)}.")
        at = tuple(position.get(name, 0) for name in self.axes)
        return jax.tree.map(lambda a: a[at], self.params)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {self.history.sizes[name]}" for name in self.axes)
        return f"Training({self.history.attrs['model']}, {sizes}; {', '.join(self.history) or 'no probes'})"


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
    checkpoint: str | Path | None = None,
    progress: bool = False,
    memory: int | str | None = None,
) -> Training:
    """Train every combination of run, hyperparameters and data set at once by minibatch gradient steps.

    θ ← θ − update(∇ loss(f_θ(x_B), y_B)) over the batches B of a permutation of the samples, drawn anew in each epoch
    from `key`, the epoch and the run. A short last batch counts by its own mean, as in torch's `DataLoader`.

    - `params` has a leading run axis: `net.init(key=key, runs=R)`. Its dtype is the dtype of the training.
    - `optimizer` is an optax optimiser, or with `hyper={"weight_decay": [0, 1e-4]}` a function of these names that
      returns one; each entry of `hyper` is an axis of the result.
    - `x` (S, n, i) with `y` (S, n, o) are S data sets, a further axis (`stacked=` says so where the model's samples
      may have several axes).
    - `probes` are evaluated at epoch 0, every `every` epochs, and at the end; see `Probe`.
    - `checkpoint` names a file for what is finished; a training that finds it continues there, and ends bit for bit
      where it would have ended. It may be given more `epochs`.
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
    with arithmetic():
        runs, dtype, budget = checked_runs(params), widest(params), memory_budget(memory)
        x, y, stacked = checked_data(f, params, x, y, stacked)
        hyper = checked_hyper(hyper)
        check_optimizer(optimizer, hyper)
        watched = as_probes(probes)
        check_hashable(f=f, loss=loss, optimizer=optimizer, probes=watched)
        recipe = Recipe(f, loss, optimizer, _batch_size(batch_size, x.shape[1]))
        sweep = Sweep({**({"dataset": np.arange(len(x))} if stacked else {}), **hyper, "run": np.arange(runs)})
        job = prepare(recipe, sweep, watched, x, y, key, _due(epochs, every), params, budget)
        mark = identity(job, params, every)
        course = start(job, params) if checkpoint is None else resumed(job, start(job, params), checkpoint, mark)
        with shown(progress, epochs) as show, kept(checkpoint, mark, job.lanes) as keep, one_blas_thread():
            for current in courses(job, course):
                keep(course := current)
                show(course.epoch)
        made = attributes(recipe, key, dtype, epochs, job.lanes.devices) | {
            "memory": budget,
            "groups": job.lanes.groups,
        }
        trained = job.lanes.gather([learner.params for learner in course.learners])
        record = history(sweep, job.probes, course.records, made)
        return Training(jax.tree.map(sweep.unflatten, trained), record, tuple(sweep.axes))


def _due(epochs: int, every: int | None) -> tuple[int, ...]:
    if not isinstance(epochs, (int, np.integer)) or epochs < 0:
        raise ValueError(f"`epochs` is {epochs!r}; pass a whole number, 0 or more.")
    if every is not None and (not isinstance(every, (int, np.integer)) or every < 1):
        raise ValueError(
            f"`every` is {every!r}; pass a number of epochs, 1 or more, or None for the start and the end."
        )
    return tuple(sorted({*range(0, epochs, every or max(1, epochs)), epochs}))


def _batch_size(batch_size: int | None, samples: int) -> int | None:
    if batch_size is not None and (not isinstance(batch_size, (int, np.integer)) or batch_size < 1):
        raise ValueError(f"`batch_size` is {batch_size!r}; pass a number of samples, 1 or more, or None for all.")
    return None if batch_size is None or batch_size >= samples else int(batch_size)
