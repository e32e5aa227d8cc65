"""`train`: many networks at once, watched by probes, resumable."""

import hashlib
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.dynamics import checkpoint as checkpoints
from neuromanifold.dynamics.checkpoint import REMEDY, Course, FoundCheckpoint, digest
from neuromanifold.dynamics.checks import (
    TrainingProblem,
    check_hashable,
    check_hyper,
    check_problem,
)
from neuromanifold.dynamics.epochs import Recipe, begin
from neuromanifold.dynamics.job import (
    Job,
    courses,
    prepare,
    probe_programs,
    replay_first_group,
    start,
    step_program,
)
from neuromanifold.dynamics.lanes import Lanes
from neuromanifold.dynamics.optimizers import Optimizer, adam_l2, check_optimizer, describe
from neuromanifold.dynamics.probes import Probe, as_probes
from neuromanifold.dynamics.sweep import Sweep
from neuromanifold.models.arguments import Model, Params, Samples, Targets
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.drawing import Curve, card, chart
from neuromanifold.numerics.precision import arithmetic, follower, widest
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.results import Result
from neuromanifold.runtime.devices import where_it_runs
from neuromanifold.runtime.files import check_output
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.runtime.progress import count_steps
from neuromanifold.runtime.threads import one_blas_thread, pool_size

PACKAGES = ("neuromanifold", "jax", "optax", "numpy")


def history(
    sweep: Sweep, probes: tuple[Probe, ...], records: dict[int, Any], attributes: dict[str, Any]
) -> Any:
    """Variables of dimensions (the sweep's axes, `epoch`, the probe's own), with coordinates and
    attributes.
    """
    import xarray

    variables = {}
    for probe in probes:
        a = sweep.unflatten(np.stack([record[probe.name] for record in records.values()], axis=1))
        variables[probe.name] = (
            (*sweep.axes, "epoch", *_own_dims(probe, a.ndim - len(sweep.axes) - 1)),
            a,
        )
    return xarray.Dataset(variables, {**sweep.axes, "epoch": np.array(list(records))}, attributes)


def _own_dims(probe: Probe, ndim: int) -> tuple[str, ...]:
    if probe.dims and len(probe.dims) != ndim:
        raise ValueError(
            f"probe {probe.name!r} names the axes {probe.dims} but its values have {ndim}; name "
            "each of them."
        )
    return probe.dims or tuple(f"{probe.name}_{axis}" for axis in range(ndim))


def attributes(recipe: Recipe, key: Any, dtype: Any, epochs: int, lanes: Lanes) -> dict[str, Any]:
    """How a training was made, in words and numbers that a NetCDF file can hold."""
    device, count = lanes.devices[0], len(lanes.devices[: lanes.groups]) * lanes.processes
    return {
        "title": "training",
        "model": describe(recipe.f),
        "loss": describe(recipe.loss),
        "optimizer": describe(recipe.optimizer),
        "batch_size": "full" if recipe.batch_size is None else recipe.batch_size,
        "epochs": epochs,
        "key": key_text(key),
        "dtype": str(dtype),
        "device": f"{count} × {device.device_kind} ({device.platform})",
        "chunk": lanes.length,
        "groups": lanes.groups * lanes.processes,
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def key_text(key: Any) -> str:
    """The key's implementation and words: what `jax.random.wrap_key_data` needs to make it
    again.
    """
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if typed else key).ravel().tolist()
    return f"{jax.random.key_impl(key) if typed else 'raw'} {' '.join(map(str, words))}"


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    try:
        return version(name)
    except PackageNotFoundError:
        return "from source"


def checkpoint_file(path: str | Path) -> Path:
    """The file of this process: `path`, with `.1-of-2` added where two processes train; refused
    where it cannot be written.
    """
    path = check_output(path, "checkpoint")
    others = sorted(path.parent.glob(f"{path.name}.*-of-*"))
    processes = jax.process_count()
    found = {file.name.rpartition("-of-")[2] for file in others} | (
        {"1"} if path.exists() else set()
    )
    if found - {str(processes)}:
        raise ValueError(
            f"`checkpoint` {path} was written by {', '.join(sorted(found))} processes and is read "
            f"by {processes}; "
            f"start as many, or {REMEDY}."
        )
    return (
        path
        if processes == 1
        else path.with_name(f"{path.name}.{jax.process_index()}-of-{processes}")
    )


def identity(job: Job, fresh: Course, params: Any, every: int | None) -> dict[str, str]:
    """What two trainings must have in common for one to continue the other."""
    learners, recipe = fresh.learners[0], job.recipe
    started = begin.lower(recipe, learners.params, job.places[0])
    return {
        "training step": programs(started, step_program(job, learners)),
        "probes": f"{', '.join(probe.name for probe in job.probes)} "
        f"{programs(*probe_programs(job, learners))} "
        f"{host_code(tuple(probe for probe in job.probes if probe.host))}",
        "batch_size": str(recipe.batch_size),
        "every": str(every),
        "key": key_text(job.key),
        "params": digest(*jax.tree.leaves(params)),
        "data": digest(job.x, job.y),
        "axes": ", ".join(f"{name} {digest(values)}" for name, values in job.sweep.axes.items()),
        "chunk": str(job.lanes.length),
        **where_it_runs(job.lanes.devices[0]),
    }


def describe_recipe(recipe: Recipe) -> dict[str, str]:
    """The parts of a training step in words, for a reader: two that differ may have one
    description.
    """
    return {
        name: describe(getattr(recipe, part))
        for name, part in (("model", "f"), ("loss", "loss"), ("optimizer", "optimizer"))
    }


def plan_of(job: Job) -> dict[str, int]:
    """What a job that goes on with this one takes over, whatever machine it runs on."""
    return {"chunk": job.lanes.length, "probed": job.probed_at_once, "pool": pool_size()}


def plan_in(found: FoundCheckpoint | None, members: int) -> dict[str, int]:
    """How `prepare` is to cut the members of a training that goes on with the checkpoint."""
    if found is None:
        return {}
    chunk, probed = found.plan["chunk"], found.plan["probed"]
    if not (1 <= chunk <= members and 1 <= probed <= chunk):
        raise ValueError(
            f"`checkpoint` {found.path} has groups of {chunk}, but there are {members} networks; "
            f"{REMEDY}."
        )
    return {"length": chunk, "probed_at_once": probed}


def resume(job: Job, fresh: Course, found: FoundCheckpoint, mark: dict[str, str]) -> Course:
    """The course in the checkpoint; records that are not due are dropped."""
    checkpoints.check_identity(found, mark, describe_recipe(job.recipe))
    if found.epoch > job.due[-1]:
        raise ValueError(
            f"`epochs` is {job.due[-1]} but `checkpoint` {found.path} has done {found.epoch}; "
            "pass at least as many."
        )
    like = jax.eval_shape(
        lambda parts: jax.tree.map(lambda *a: jax.numpy.concatenate(a), *parts), fresh.learners
    )
    course = checkpoints.course(found, like)
    _check_records(job, found, course)
    _check_arithmetic(job, fresh, found, course)
    records = {epoch: record for epoch, record in course.records.items() if epoch in job.due}
    return course._replace(learners=_cut(job, course.learners), records=records)


def _check_records(job: Job, found: FoundCheckpoint, course: Course) -> None:
    names, slots = {probe.name for probe in job.probes}, job.lanes.index.size
    for epoch, record in course.records.items():
        if record.keys() != names or any(a.shape[:1] != (slots,) for a in record.values()):
            raise ValueError(f"`checkpoint` {found.path} lacks probes of epoch {epoch}; {REMEDY}.")


def _cut(job: Job, tree: Any) -> list[Any]:
    parts = [
        slice(g * job.lanes.length, (g + 1) * job.lanes.length) for g in range(job.lanes.groups)
    ]
    return [
        job.lanes.put(g, jax.tree.map(lambda a, part=part: a[part], tree))
        for g, part in enumerate(parts)
    ]


def _check_arithmetic(job: Job, fresh: Course, found: FoundCheckpoint, course: Course) -> None:
    """Do the first epoch of the first group again: its bits tell more about processor, threads
    and libraries than names do.
    """
    if not course.first:
        return
    first, values = replay_first_group(job, fresh)
    start = course.records.get(0, {})
    same = all(
        np.array_equal(a, start[name][: len(a)], equal_nan=a.dtype.kind == "f")
        for name, a in values.items()
    )
    if first != course.first or not same:
        there, here = found.plan.get("pool"), pool_size()
        remedy = (
            f"set NPROC={there} in the environment, "
            if there != here
            else "continue it on the machine that wrote it, "
        )
        raise ValueError(
            f"`checkpoint` {found.path} cannot be continued bit for bit: its first epoch has "
            "other digits here "
            f"({there} threads there, {here} here; or another processor); {remedy}or {REMEDY}."
        )


_DEEPEST = 8
_CALLBACK = re.compile(r"@\w*python\w*callback")


def programs(*lowered: Any) -> str:
    """A name for what JAX has lowered: operations, shapes, literals and constants, and nothing of
    the names in the source.

    Optimiser, schedule, loss, model, activation, hyperparameter function and probes are all in it.
    """
    state = hashlib.sha256()
    for one in lowered:
        text = one.as_text()
        if _CALLBACK.search(text):
            raise ValueError(
                "`checkpoint` cannot tell this training from another: model, loss, optimiser or "
                "probe calls back into Python, "
                "which is no part of the program; drop `jax.pure_callback` and `jax.debug`, or "
                "train without `checkpoint`."
            )
        state.update(text.encode())
    return state.hexdigest()[:16]


def host_code(probes: tuple[Probe, ...]) -> str:
    """A name for the code of probes that run on the host: instructions, constants, defaults and
    what they close over.
    """
    state = hashlib.sha256()
    for probe in probes:
        _feed(state, probe.fn, 0)
    return state.hexdigest()[:16]


def _feed(state: Any, thing: Any, depth: int) -> None:
    """What defines a function or a constant; of an object only its class, since its attributes
    may be counters.
    """
    if isinstance(thing, np.ndarray | jax.Array):
        state.update(f"{thing.dtype}{thing.shape}".encode() + np.asarray(thing).tobytes())
    elif isinstance(thing, str | bytes | int | float | complex | None):
        state.update(f"{thing!r}\0".encode())
    elif depth < _DEEPEST:
        for part in _parts(thing):
            _feed(state, part, depth + 1)


def _parts(thing: Any) -> tuple[Any, ...]:
    if isinstance(thing, CodeType):
        return (thing.co_code, thing.co_names, thing.co_consts)
    if isinstance(thing, FunctionType):
        cells = tuple(cell.cell_contents for cell in thing.__closure__ or ())
        return (thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells)
    if isinstance(thing, partial):
        return (thing.func, thing.args, thing.keywords)
    if isinstance(thing, tuple | list | frozenset):
        return tuple(thing)
    if isinstance(thing, dict):
        return tuple(thing.items())
    call = type(thing).__call__ if callable(thing) else None
    return (
        type(thing).__module__,
        type(thing).__qualname__,
        call if isinstance(call, FunctionType) else None,
    )


LEAST_PAUSE = 1.0
SHARE = 20
"""Writing takes at most a twentieth of the time, and happens at most once a second."""


@contextmanager
def keep_courses(
    file: Path | None, header: dict[str, Any], lanes: Lanes, epoch: int
) -> Generator[Callable[[Course], None]]:
    """A function that takes each course as it comes; the last one is in the file when the block is
    left, however it is.

    `epoch` is what the file holds at the beginning.
    """
    if file is None:
        yield lambda course: None
        return
    latest, due = [], time.monotonic() + LEAST_PAUSE

    def write() -> None:
        nonlocal due
        began, course = time.monotonic(), latest.pop()
        checkpoints.write(file, header, course._replace(learners=lanes.gather(course.learners)))
        due = time.monotonic() + max(LEAST_PAUSE, SHARE * (time.monotonic() - began))

    def keep(course: Course) -> None:
        nonlocal epoch
        latest[:], epoch = [course], course.epoch
        if time.monotonic() >= due:
            write()

    try:
        yield keep
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"epochs up to {epoch} are in {file}; the same call goes on from there."
            if epoch
            else "nothing was finished."
        ) from None
    finally:
        if latest:
            write()


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
        """Return the parameters of one network, by its position on each axis (0 where absent):
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
        """Draw a figure with one panel for each probe that gives one number: the median over all
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
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    key: Key,
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
    - `progress=True` shows a bar.

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
        problem = check_problem(f, params, x, y, stacked, single)
        hyper = check_hyper(hyper)
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
        header = {"identity": mark, "described": describe_recipe(recipe), "plan": plan_of(job)}
        kept_so_far = 0 if found is None else found.epoch
        with (
            count_steps(progress, "training, epochs", epochs) as show,
            keep_courses(file, header, job.lanes, kept_so_far) as keep,
            one_blas_thread(),
        ):
            course = fresh if found is None else resume(job, fresh, found, mark)
            for current in courses(job, course):
                keep(course := current)
                show(done=course.epoch)
        made = _training(
            job,
            course,
            attributes(recipe, key, widest(params), epochs, job.lanes) | {"memory": budget},
        )
    return replace(made, params=follow(made.params))


def _sweep(problem: TrainingProblem, hyper: dict[str, np.ndarray]) -> Sweep:
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
