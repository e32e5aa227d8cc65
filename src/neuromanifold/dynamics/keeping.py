"""While a training runs: its progress shown, what is finished kept."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neuromanifold.dynamics import checkpoint as checkpoints
from neuromanifold.dynamics.checkpoint import Course
from neuromanifold.dynamics.lanes import Lanes

LEAST_PAUSE = 1.0
SHARE = 20
"""Writing takes at most a twentieth of the time, and happens at most once a second."""


@contextmanager
def kept(
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


@contextmanager
def shown(progress: bool, epochs: int) -> Generator[Callable[[int], None]]:
    """A function that takes the number of finished epochs: a bar with the time left, or nothing."""
    if not progress:
        yield lambda epoch: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=epochs)
        yield lambda epoch: bar.update(task, completed=epoch)
