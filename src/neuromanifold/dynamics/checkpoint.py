"""Where an interrupted training left off: one checksummed file, read without executing code."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from neuromanifold.runtime.checksummed import as_bytes, read_archive, write_archive

FORMAT = "neuromanifold training 2"
REMEDY = "delete it, or name another file"


class Course(NamedTuple):
    """How far training has come: the learners after `epoch` epochs, and for each recorded epoch the
    probes' values.

    `first` is the digest of the first group after its first epoch, by which another machine can
    tell whether its arithmetic is the same; empty before.
    """

    epoch: int
    learners: Any
    records: dict[int, dict[str, np.ndarray]]
    first: str = ""


class FoundCheckpoint(NamedTuple):
    """A checkpoint as it was found: the identity of its training, in words too, how it was
    planned, and what it holds.
    """

    path: Path
    identity: dict[str, str]
    described: dict[str, str]
    plan: dict[str, int]
    epoch: int
    first: str
    recorded: list[int]
    arrays: dict[str, np.ndarray]


def digest(*arrays: Any) -> str:
    """A short name for the contents of arrays, their shapes and dtypes."""
    state = hashlib.sha256()
    for a in arrays:
        a = np.asarray(a)
        state.update(f"{a.dtype}{a.shape}".encode() + a.tobytes())
    return state.hexdigest()[:16]


def write(path: Path, header: dict[str, Any], course: Course) -> None:
    """Put the course (its learners on the host) into the file, in place of an earlier one.

    `header` holds what `FoundCheckpoint` has of the training: `identity`, `described` and `plan` (`chunk`,
    `probed`, `pool`).
    """
    learners = {
        f"learner {i}": as_bytes(leaf) for i, leaf in enumerate(jax.tree.leaves(course.learners))
    }
    records = {
        f"{epoch} {name}": a
        for epoch, record in course.records.items()
        for name, a in record.items()
    }
    progress = {"epoch": course.epoch, "first": course.first, "recorded": list(course.records)}
    write_archive(path, {"format": FORMAT} | header | progress, learners | records)


def find(path: Path) -> FoundCheckpoint | None:
    """The checkpoint in the file, `None` where there is no file."""
    if not path.exists():
        return None
    try:
        header, arrays = read_archive(path, REMEDY)
        if header.get("format") != FORMAT:
            raise ValueError(
                f"its format is {header.get('format')!r}, and {FORMAT!r} is needed; {REMEDY}."
            )
        return _as_written(
            FoundCheckpoint(
                path=path,
                arrays=arrays,
                **{name: header[name] for name in FoundCheckpoint._fields[1:-1]},
            )
        )
    except (ValueError, KeyError, OSError) as error:
        reason = (
            error.args[0]
            if isinstance(error, ValueError)
            else f"{path} cannot be read ({error}); {REMEDY}."
        )
        raise ValueError(f"`checkpoint` is no checkpoint of this version: {reason}") from None


def _as_written(found: FoundCheckpoint) -> FoundCheckpoint:
    """Refuse fields of another kind than `write` puts there: a checksum says that a file is
    whole, not who wrote it.
    """
    tables = (found.identity, found.described, found.plan)
    numbers = (
        [found.epoch, *found.recorded, *found.plan.values()]
        if isinstance(found.plan, dict)
        else [None]
    )
    if (
        not all(isinstance(table, dict) for table in tables)
        or not all(type(number) is int and number >= 0 for number in numbers)
        or not isinstance(found.first, str)
        or found.plan.keys() != {"chunk", "probed", "pool"}
    ):
        raise ValueError(f"{found.path} has a header of another kind; {REMEDY}.")
    return found


def check_identity(
    found: FoundCheckpoint, expected: dict[str, str], described: dict[str, str]
) -> None:
    """Refuse to go on with another training."""
    differing = _differing(found.identity, expected)
    if "training step" in differing:
        differing = _differing(found.described, described) | differing
    if differing:
        shown = "; ".join(
            f"{name}: {there} there, {here} here"
            for name, (there, here) in sorted(differing.items())
        )
        raise ValueError(
            f"`checkpoint` {found.path} belongs to another training ({shown}); {REMEDY}."
        )


def _differing(found: dict[str, str], expected: dict[str, str]) -> dict[str, tuple[Any, Any]]:
    pairs = {name: (found.get(name), expected.get(name)) for name in {*found, *expected}}
    return {name: (there, here) for name, (there, here) in pairs.items() if there != here}


def course(found: FoundCheckpoint, like: Any) -> Course:
    """The course in the checkpoint; `like` gives structure, shapes and dtypes of the learners."""
    leaves, structure = jax.tree.flatten(like)
    try:
        learners = [_array(found.arrays[f"learner {i}"], leaf) for i, leaf in enumerate(leaves)]
        records = {epoch: _record(found.arrays, epoch) for epoch in found.recorded}
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(
            f"`checkpoint` {found.path} lacks what its training needs ({error}); {REMEDY}."
        ) from None
    return Course(found.epoch, jax.tree.unflatten(structure, learners), records, found.first)


def _record(content: dict[str, np.ndarray], epoch: int) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(f"{epoch} "): a
        for name, a in content.items()
        if name.startswith(f"{epoch} ")
    }


def _array(content: np.ndarray, like: Any) -> np.ndarray:
    return np.frombuffer(content.tobytes(), like.dtype).reshape(like.shape)
