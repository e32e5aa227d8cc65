"""Going on with an interrupted training: only with the same one, and only where its digits stay
the same.
"""

import hashlib
import os
import re
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics import checkpoint as checkpoints
from neuromanifold.dynamics.checkpoint import REMEDY, Course, Found, digest
from neuromanifold.dynamics.epochs import Recipe, begin
from neuromanifold.dynamics.history import key_text
from neuromanifold.dynamics.job import Job, probe_programs, replayed, step_program
from neuromanifold.dynamics.optimizers import describe
from neuromanifold.dynamics.probes import Probe
from neuromanifold.runtime.files import check_output
from neuromanifold.runtime.threads import cores


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


_NO_DIGITS = ("--xla_force_host_platform_device_count", "--xla_dump")


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
        **platform(job.lanes.devices[0]),
    }


def described(recipe: Recipe) -> dict[str, str]:
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


def plan_in(found: Found | None, members: int) -> dict[str, int]:
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


def resumed(job: Job, fresh: Course, found: Found, mark: dict[str, str]) -> Course:
    """The course in the checkpoint; records that are not due are dropped."""
    checkpoints.check_identity(found, mark, described(job.recipe))
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


def _check_records(job: Job, found: Found, course: Course) -> None:
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


def _check_arithmetic(job: Job, fresh: Course, found: Found, course: Course) -> None:
    """Do the first epoch of the first group again: its bits tell more about processor, threads
    and libraries than names do.
    """
    if not course.first:
        return
    first, values = replayed(job, fresh)
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


def platform(device: Any) -> dict[str, str]:
    """Where the digits come from, as far as it has a name."""
    versions = f"{jax.__version__}, jaxlib {version('jaxlib')}"
    place = f"{device.platform} ({device.device_kind})"
    return {"platform": place, "jax": versions, "compiler flags": compiler_flags()}


def compiler_flags() -> str:
    """What XLA is told that changes digits: `XLA_FLAGS` but for the number of simulated devices
    and what is written for a reader, and JAX's switch for optimisations.
    """
    flags = os.environ.get("XLA_FLAGS", "").split()
    told = sorted(flag for flag in flags if not flag.startswith(_NO_DIGITS))
    few = ["few optimizations"] if jax.config.read("jax_disable_most_optimizations") else []
    return " ".join([*told, *few])


def pool_size() -> int:
    """The threads of XLA's pool on this host. Large products add in an order that depends on it;
    `NPROC` sets it.
    """
    given = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC") or ""
    return int(given) if given.isdigit() and int(given) > 0 else cores()
