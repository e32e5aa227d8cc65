"""A training in the making: what is to be done, and the courses it runs through."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics.checkpoint import Course, digest
from neuromanifold.dynamics.epochs import Learner, Recipe, SweepPlace, advance, begin, evaluate
from neuromanifold.dynamics.lanes import Lanes, plan
from neuromanifold.dynamics.probes import Probe
from neuromanifold.dynamics.sweep import Sweep
from neuromanifold.graph.reading import call
from neuromanifold.numerics.precision import widest

Map = Callable[..., list[Any]]
SECONDS_PER_BLOCK = 1.0
"""After a block of about this long, training can be shown, kept and interrupted."""


@dataclass(frozen=True, eq=False)
class Job:
    """All that a training needs. `places` and `data` (x, y, key) lie on the devices, an entry
    for each group of members.
    """

    recipe: Recipe
    sweep: Sweep
    probes: tuple[Probe, ...]
    x: np.ndarray
    y: np.ndarray
    key: Any
    due: tuple[int, ...]
    lanes: Lanes
    places: list[SweepPlace]
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
    *,
    length: int | None = None,
    probed_at_once: int | None = None,
) -> Job:
    """The job, its members cut into groups that fit the memory budget and put onto the devices.

    `length` and `probed_at_once`, on which the digits depend, are those of an earlier job where
    this one goes on with it.
    """
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), params)
    lanes = plan(sweep.size, _bytes_of_member(recipe, one, x[0], y[0]), budget, length)
    places = lanes.scatter(
        SweepPlace(sweep.index("run"), sweep.index("dataset"), sweep.hyper(widest(params)))
    )
    at_once = probed_at_once or min(lanes.length, max(1, budget // _bytes_of_probe(one, y[0])))
    return Job(
        recipe, sweep, probes, x, y, key, due, lanes, places, lanes.shared((x, y, key)), at_once
    )


def _size(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _bytes_of_member(recipe: Recipe, params: Any, x: np.ndarray, y: np.ndarray) -> int:
    """Parameters, gradient, moments before and after; what the gradient of one batch keeps; the
    shuffled data.
    """
    batch = slice(0, recipe.batch_size)
    kept = jax.eval_shape(
        lambda p: jax.vjp(lambda q: recipe.loss(call(recipe.f, q, x[batch]), y[batch]), p)[1],
        params,
    )
    return 8 * _size(params) + 2 * _size(kept) + 2 * _size((x, y))


def _bytes_of_probe(params: Any, y: np.ndarray) -> int:
    """Four Jacobians in float64: the most that a probe usually builds."""
    return 4 * 8 * y.size * sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))


def start(job: Job, params: Any) -> Course:
    """Before the first epoch: each member with the parameters of its run."""
    mine = jax.tree.map(lambda a: np.asarray(a)[job.sweep.index("run")], params)
    learners = job.lanes.each(partial(begin, job.recipe), job.lanes.scatter(mine), job.places)
    return Course(0, learners, {})


def courses(job: Job, course: Course) -> Iterator[Course]:
    """The courses that follow, one after each block of epochs and each record, until all that is
    due is done.
    """
    count, compiled = 1, None
    while True:
        if course.epoch in job.due and course.epoch not in course.records:
            course = _record(job, course)
        yield course
        if course.epoch == job.due[-1]:
            return
        compiled = compiled or _compile(job, course)
        stop = min(course.epoch + count, job.due[bisect_right(job.due, course.epoch)])
        began = time.monotonic()
        done, course = stop - course.epoch, _advance(job, course, stop, compiled)
        if stop == 1:
            course = course._replace(first=digest(*jax.tree.leaves(course.learners[0])))
        count = max(1, min(8 * count, int(done * SECONDS_PER_BLOCK / (time.monotonic() - began))))


def _block(
    job: Job, learners: Learner, places: SweepPlace, data: Any, start: int, stop: int
) -> Learner:
    x, y, key = data
    return advance(job.recipe, learners, places, (x, y), key, np.int32(start), np.int32(stop))


def step_program(job: Job, learners: Learner) -> Any:
    """The program that all groups share, lowered; `learners` are those of the first group."""
    (x, y, key), no = job.data[0], np.int32(0)
    return advance.lower(job.recipe, learners, job.places[0], (x, y), key, no, no)


def probe_programs(job: Job, learners: Learner) -> list[Any]:
    """The program of the traced probes, lowered, where there are any."""
    probes = _traceable_probes(job)
    data = job.data[0][:2]
    return (
        [
            evaluate.lower(
                job.recipe.f, probes, job.probed_at_once, learners.params, job.places[0], data
            )
        ]
        if probes
        else []
    )


def _compile(job: Job, course: Course) -> Map:
    """Compile the program that all groups share, by no epoch of the first one; says how groups
    may run.
    """
    first = (course.learners[:1], job.places[:1], job.data[:1])
    job.lanes.each(partial(_block, job, start=0, stop=0), *first)
    stays_inside = "custom_call" not in step_program(job, course.learners[0]).as_text()
    return job.lanes.together if stays_inside else job.lanes.each


def _advance(job: Job, course: Course, stop: int, over_groups: Map) -> Course:
    work = partial(_block, job, start=course.epoch, stop=stop)
    return course._replace(
        epoch=stop, learners=over_groups(work, course.learners, job.places, job.data)
    )


def replay_first_group(job: Job, fresh: Course) -> tuple[str, dict[str, np.ndarray]]:
    """The first group again: the digest after its first epoch, and the traced probes before it."""
    first = (fresh.learners[:1], job.places[:1], job.data[:1])
    [after] = job.lanes.each(partial(_block, job, start=0, stop=1), *first)
    return digest(*jax.tree.leaves(after)), _trace_probes(job, *first)


def _record(job: Job, course: Course) -> Course:
    record = _trace_probes(job, course.learners, job.places, job.data) | _host_values(job, course)
    for name, a in record.items():
        expected = next(iter(course.records.values()), record)[name].shape
        if a.shape != expected:
            raise ValueError(
                f"probe {name!r} returns shape {a.shape[1:]} after {expected[1:]}; keep one shape."
            )
    return course._replace(records={**course.records, course.epoch: record})


def _traceable_probes(job: Job) -> tuple[Probe, ...]:
    return tuple(probe for probe in job.probes if not probe.host)


def _trace_probes(job: Job, *columns: list[Any]) -> dict[str, np.ndarray]:
    if not _traceable_probes(job):
        return {}

    def work(learner: Any, places: Any, data: Any):
        return evaluate(
            job.recipe.f,
            _traceable_probes(job),
            job.probed_at_once,
            learner.params,
            places,
            data[:2],
        )

    return job.lanes.gather(job.lanes.each(work, *columns))


def _host_values(job: Job, course: Course) -> dict[str, np.ndarray]:
    """Host probes see every member once; what only fills up the last group has the values of the
    member it repeats.
    """
    probes = [probe for probe in job.probes if probe.host]
    if not probes:
        return {}
    params = job.lanes.gather([learner.params for learner in course.learners])
    numbers, first, which = np.unique(job.lanes.index, return_index=True, return_inverse=True)
    datasets = job.sweep.index("dataset")[numbers]
    members = [
        (jax.tree.map(lambda a, m=m: a[m], params), d) for m, d in zip(first, datasets, strict=True)
    ]
    return {
        p.name: np.stack(
            [np.asarray(p(job.recipe.f, one, job.x[d], job.y[d])) for one, d in members]
        )[which.ravel()]
        for p in probes
    }
