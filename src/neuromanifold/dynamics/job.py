"""A training in the making: what is to be done, and the courses it runs through."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics import checkpoint as checkpoints
from neuromanifold.dynamics.checkpoint import Course, digest
from neuromanifold.dynamics.epochs import Learner, Place, Recipe, advance, begin, evaluate
from neuromanifold.dynamics.history import key_text
from neuromanifold.dynamics.lanes import Lanes, plan
from neuromanifold.dynamics.optimizers import describe
from neuromanifold.dynamics.probes import Probe
from neuromanifold.dynamics.sweep import Sweep
from neuromanifold.numerics.precision import widest

Map = Callable[..., list[Any]]
SECONDS_PER_BLOCK = 1.0
"""After a block of about this long, training can be shown, kept and interrupted."""


@dataclass(frozen=True, eq=False)
class Job:
    """All that a training needs. `places` and `data` (x, y, key) lie on the devices, an entry for each group of members."""

    recipe: Recipe
    sweep: Sweep
    probes: tuple[Probe, ...]
    x: np.ndarray
    y: np.ndarray
    key: Any
    due: tuple[int, ...]
    lanes: Lanes
    places: list[Place]
    data: list[Any]
    probed_at_once: int


def prepare(
    recipe: Recipe,
    sweep: Sweep,
    probes: tuple[Probe, ...],
    x: np.ndarray,
    y: np.ndarray,
    key: Any,
    due: Any,
    params: Any,
    budget: int,
) -> Job:
    """The job, its members cut into groups that fit the memory budget and put onto the devices."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), params)
    lanes = plan(sweep.size, _bytes_of_member(recipe, one, x[0], y[0]), budget)
    places = lanes.scatter(Place(sweep.index("run"), sweep.index("dataset"), sweep.hyper(widest(params))))
    data = [lanes.put(group, (x, y, key)) for group in range(lanes.groups)]
    at_once = max(1, budget // (len(lanes.devices) * _bytes_of_probe(one, y[0])))
    return Job(recipe, sweep, probes, x, y, key, due, lanes, places, data, at_once)


def _size(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _bytes_of_member(recipe: Recipe, params: Any, x: np.ndarray, y: np.ndarray) -> int:
    """Parameters, gradient, moments before and after; what the gradient of one batch keeps; the shuffled data."""
    batch = slice(0, recipe.batch_size)
    kept = jax.eval_shape(lambda p: jax.vjp(lambda q: recipe.loss(recipe.f(q, x[batch]), y[batch]), p)[1], params)
    return 8 * _size(params) + 2 * _size(kept) + 2 * _size((x, y))


def _bytes_of_probe(params: Any, y: np.ndarray) -> int:
    """Four Jacobians in float64: the most that a probe usually builds."""
    return 4 * 8 * y.size * sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))


def start(job: Job, params: Any) -> Course:
    """Before the first epoch: each member with the parameters of its run."""
    mine = jax.tree.map(lambda a: np.asarray(a)[job.sweep.index("run")], params)
    learners = job.lanes.each(partial(begin, job.recipe), job.lanes.scatter(mine), job.places)
    return Course(0, learners, {})


def resumed(job: Job, fresh: Course, path: str | Path, identity: dict[str, str]) -> Course:
    """The course in the checkpoint, or the fresh one where there is none; records that are not due are dropped."""
    like = jax.eval_shape(
        lambda parts: jax.tree.map(lambda *a: jax.numpy.concatenate(a)[: job.sweep.size], *parts), fresh.learners
    )
    found = checkpoints.read(Path(path), identity, like)
    if found is None:
        return fresh
    if found.epoch > job.due[-1]:
        raise ValueError(
            f"`epochs` is {job.due[-1]} but `checkpoint` {path} has done {found.epoch}; pass at least as many."
        )
    records = {epoch: record for epoch, record in found.records.items() if epoch in job.due}
    return Course(found.epoch, job.lanes.scatter(found.learners), records)


def identity(job: Job, params: Any, every: int | None) -> dict[str, str]:
    """What two trainings must have in common for one to continue the other."""
    return {
        "model": describe(job.recipe.f),
        "loss": describe(job.recipe.loss),
        "optimizer": describe(job.recipe.optimizer),
        "batch_size": str(job.recipe.batch_size),
        "every": str(every),
        "probes": ", ".join(probe.name for probe in job.probes),
        "key": key_text(job.key),
        "params": digest(*jax.tree.leaves(params)),
        "data": digest(job.x, job.y),
        "axes": ", ".join(f"{name} {digest(values)}" for name, values in job.sweep.axes.items()),
    }


def courses(job: Job, course: Course) -> Iterator[Course]:
    """The courses that follow, one after each block of epochs and each record, until all that is due is done."""
    count, compiled = 1, None
    while True:
        if course.epoch in job.due and course.epoch not in course.records:
            course = _recorded(job, course)
        yield course
        if course.epoch == job.due[-1]:
            return
        compiled = compiled or _compile(job, course)
        stop = min(course.epoch + count, job.due[bisect_right(job.due, course.epoch)])
        began = time.monotonic()
        done, course = stop - course.epoch, _advanced(job, course, stop, compiled)
        count = max(1, min(8 * count, int(done * SECONDS_PER_BLOCK / (time.monotonic() - began))))


def _block(job: Job, learners: Learner, places: Place, data: Any, start: int, stop: int) -> Learner:
    x, y, key = data
    return advance(job.recipe, learners, places, (x, y), key, np.int32(start), np.int32(stop))


def _compile(job: Job, course: Course) -> Map:
    """Compile the program that all groups share, by no epoch of the first one; says how groups may run."""
    (x, y, key), no = job.data[0], np.int32(0)
    arguments = (job.recipe, course.learners[0], job.places[0], (x, y), key, no, no)
    advance(*arguments)
    stays_inside = "custom_call" not in advance.lower(*arguments).as_text()
    return job.lanes.together if stays_inside else job.lanes.each


def _advanced(job: Job, course: Course, stop: int, over_groups: Map) -> Course:
    work = partial(_block, job, start=course.epoch, stop=stop)
    return course._replace(epoch=stop, learners=over_groups(work, course.learners, job.places, job.data))


def _recorded(job: Job, course: Course) -> Course:
    traced = tuple(probe for probe in job.probes if not probe.host)
    record = _traced_values(job, traced, course) | _host_values(job, course)
    for name, a in record.items():
        expected = next(iter(course.records.values()), record)[name].shape
        if a.shape != expected:
            raise ValueError(f"probe {name!r} returns shape {a.shape[1:]} after {expected[1:]}; keep one shape.")
    return course._replace(records={**course.records, course.epoch: record})


def _traced_values(job: Job, probes: tuple[Probe, ...], course: Course) -> dict[str, np.ndarray]:
    if not probes:
        return {}

    def work(learner, places, data):
        return evaluate(job.recipe.f, probes, job.probed_at_once, learner.params, places, data[:2])

    return job.lanes.gather(job.lanes.each(work, course.learners, job.places, job.data))


def _host_values(job: Job, course: Course) -> dict[str, np.ndarray]:
    probes = [probe for probe in job.probes if probe.host]
    if not probes:
        return {}
    params = job.lanes.gather([learner.params for learner in course.learners])
    members = [(jax.tree.map(lambda a, m=m: a[m], params), d) for m, d in enumerate(job.sweep.index("dataset"))]
    return {
        p.name: np.stack([np.asarray(p(job.recipe.f, one, job.x[d], job.y[d])) for one, d in members]) for p in probes
    }
