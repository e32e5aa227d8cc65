"""Where an interrupted training left off: one file, written atomically, read without executing code."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from neuromanifold.numerics.files import write_atomically

FORMAT = "neuromanifold training 1"


class Course(NamedTuple):
    """How far training has come: the learners after `epoch` epochs, and for each recorded epoch the probes' values."""

    epoch: int
    learners: Any
    records: dict[int, dict[str, np.ndarray]]


def digest(*arrays: Any) -> str:
    """A short name for the contents of arrays, their shapes and dtypes."""
    state = hashlib.sha256()
    for a in arrays:
        a = np.asarray(a)
        state.update(f"{a.dtype}{a.shape}".encode() + a.tobytes())
    return state.hexdigest()[:16]


def write(path: Path, identity: dict[str, str], course: Course) -> None:
    """Put the course (its learners on the host) into the file, in place of an earlier one."""
    learners: Any = {f"learner {i}": _bytes(leaf) for i, leaf in enumerate(jax.tree.leaves(course.learners))}
    records: Any = {f"{epoch} {name}": a for epoch, record in course.records.items() for name, a in record.items()}
    header = {"format": FORMAT, "identity": identity, "epoch": course.epoch, "recorded": list(course.records)}

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, header=_bytes(json.dumps(header)), **learners, **records)

    write_atomically(path, fill)


def read(path: Path, identity: dict[str, str], like: Any) -> Course | None:
    """The course in the file, `None` where there is no file; `like` gives structure, shapes and dtypes of the learners."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            content = dict(archive)
        header = json.loads(content["header"].tobytes())
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r}")
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"`checkpoint` {path} cannot be read ({error}); it is damaged or not a checkpoint: delete it, or name another."
        ) from None
    _check_identity(path, header["identity"], identity)
    leaves, structure = jax.tree.flatten(like)
    learners = [_array(content[f"learner {i}"], leaf) for i, leaf in enumerate(leaves)]
    records = {epoch: _record(content, epoch) for epoch in header["recorded"]}
    return Course(header["epoch"], jax.tree.unflatten(structure, learners), records)


def _record(content: dict[str, np.ndarray], epoch: int) -> dict[str, np.ndarray]:
    return {name.removeprefix(f"{epoch} "): a for name, a in content.items() if name.startswith(f"{epoch} ")}


def _check_identity(path: Path, found: dict[str, str], expected: dict[str, str]) -> None:
    differing = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    if differing:
        shown = "; ".join(f"{name}: {found.get(name)} there, {expected.get(name)} here" for name in differing)
        raise ValueError(f"`checkpoint` {path} belongs to another training ({shown}); delete it, or name another file.")


def _bytes(a: Any) -> np.ndarray:
    # Raw bytes, because .npz has no type for bfloat16.
    return np.frombuffer(a.encode() if isinstance(a, str) else np.asarray(a).tobytes(), np.uint8)


def _array(content: np.ndarray, like: Any) -> np.ndarray:
    return np.frombuffer(content.tobytes(), like.dtype).reshape(like.shape)
