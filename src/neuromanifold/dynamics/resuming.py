"""Going on with an interrupted training: only with the same one, and only where its digits stay the same."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics import checkpoint as checkpoints
from neuromanifold.dynamics.checkpoint import REMEDY, Course, Found, digest
from neuromanifold.dynamics.epochs import Recipe, begin
from neuromanifold.dynamics.fingerprint import host_code, platform, pool_size, programs
from neuromanifold.dynamics.history import key_text
from neuromanifold.dynamics.job import Job, probe_programs, replayed, step_program
from neuromanifold.dynamics.optimizers import describe
from neuromanifold.numerics.files import check_output


def checkpoint_file(path: str | Path) -> Path:
    """The file of this process: `path`, with `.1-of-2` added where two processes train; refused where it cannot be written."""
    path = check_output(path, "checkpoint")
    others = sorted(path.parent.glob(f"{path.name}.*-of-*"))
    processes = jax.process_count()
    found = {file.name.rpartition("-of-")[2] for file in others} | ({"1"} if path.exists() else set())
    if found - {str(processes)}:
        raise ValueError(
            f"`checkpoint` {path} was written by {', '.join(sorted(found))} processes and is read by {processes}; "
            f"start as many, or {REMEDY}."
        )
    return path if processes == 1 else path.with_name(f"{path.name}.{jax.process_index()}-of-{processes}")


def identity(job: Job, fresh: Course, params: Any, every: int | None) -> dict[str, str]:
    """What two trainings must have in common for one to continue the other."""
    learners, recipe = fresh.learners[0], job.recipe
    started = begin.lower(recipe, learners.params, job.places[0])
    return {
        "training step": programs(started, step_program(job, learners)),
        "probes": f"{', '.join(probe.name for probe in job.probes)} {programs(*probe_programs(job, learners))} "
        f"{host_code(tuple(probe for probe in job.probes if probe.host))}",
        "batch_size": str(recipe.batch_size),
        "every": str(every),
        "key": key_text(job.key),
        "params": digest(*jax.tree.leaves(params)),
        "data": digest(job.x, job.y),
        "axes": ", ".join(f"{name} {digest(values)}" for name, values in job.sweep.axes.items()),
        "chunk": str(job.lanes.length),
        **platform(job.lanes.devices[0]),
    }


def described(recipe: Recipe) -> dict[str, str]:
    """The parts of a training step in words, for a reader: two that differ may have one description."""
    return {
        name: describe(getattr(recipe, part))
        for name, part in (("model", "f"), ("loss", "loss"), ("optimizer", "optimizer"))
    }


def plan_of(job: Job) -> dict[str, int]:
    """What a job that goes on with this one takes over, whatever machine it runs on."""
    return {"chunk": job.lanes.length, "probed": job.probed_at_once, "pool": pool_size()}


def plan_in(found: Found | None, members: int) -> dict[str, int]:
    """How `prepare` is to cut the members of a training that goes on with the checkpoint."""
    if found is None:
        return {}
    chunk, probed = found.plan["chunk"], found.plan["probed"]
    if not (1 <= chunk <= members and 1 <= probed <= chunk):
        raise ValueError(
            f"`checkpoint` {found.path} has groups of {chunk}, but there are {members} networks; {REMEDY}."
        )
    return {"length": chunk, "probed_at_once": probed}


def resumed(job: Job, fresh: Course, found: Found, mark: dict[str, str]) -> Course:
    """The course in the checkpoint; records that are not due are dropped."""
    checkpoints.check_identity(found, mark, described(job.recipe))
    if found.epoch > job.due[-1]:
        raise ValueError(
            f"`epochs` is {job.due[-1]} but `checkpoint` {found.path} has done {found.epoch}; pass at least as many."
        )
    like = jax.eval_shape(lambda parts: jax.tree.map(lambda *a: jax.numpy.concatenate(a), *parts), fresh.learners)
    course = checkpoints.course(found, like)
    _check_records(job, found, course)
    _check_arithmetic(job, fresh, found, course)
    records = {epoch: record for epoch, record in course.records.items() if epoch in job.due}
    return course._replace(learners=_cut(job, course.learners), records=records)


def _check_records(job: Job, found: Found, course: Course) -> None:
    names, slots = {probe.name for probe in job.probes}, job.lanes.index.size
    for epoch, record in course.records.items():
        if record.keys() != names or any(a.shape[:1] != (slots,) for a in record.values()):
            raise ValueError(f"`checkpoint` {found.path} lacks probes of epoch {epoch}; {REMEDY}.")


def _cut(job: Job, tree: Any) -> list[Any]:
    parts = [slice(g * job.lanes.length, (g + 1) * job.lanes.length) for g in range(job.lanes.groups)]
    return [job.lanes.put(g, jax.tree.map(lambda a, part=part: a[part], tree)) for g, part in enumerate(parts)]


def _check_arithmetic(job: Job, fresh: Course, found: Found, course: Course) -> None:
    """Do the first epoch of the first group again: its bits tell more about processor, threads and libraries than names do."""
    if not course.first:
        return
    first, values = replayed(job, fresh)
    start = course.records.get(0, {})
    same = all(np.array_equal(a, start[name][: len(a)], equal_nan=a.dtype.kind == "f") for name, a in values.items())
    if first != course.first or not same:
        there, here = found.plan.get("pool"), pool_size()
        remedy = (
            f"set NPROC={there} in the environment, " if there != here else "continue it on the machine that wrote it, "
        )
        raise ValueError(
            f"`checkpoint` {found.path} cannot be continued bit for bit: its first epoch has other digits here "
            f"({there} threads there, {here} here; or another processor); {remedy}or {REMEDY}."
        )
