"""Progress bars on the terminal's error stream, with the time that remains."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def nothing() -> Generator[Callable[..., None]]:
    """A bar that is not shown."""
    yield lambda *_: None


@contextmanager
def counted(what: str, total: int) -> Generator[Callable[..., None]]:
    """A function to be called once for each of `total` steps; it may be told the name of the
    step.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: Any = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)

        def advance(name: str = "") -> None:
            bar.update(task, advance=1, description=f"{what} {name}".strip())

        yield advance


def shown(progress: bool, what: str, total: int) -> Any:
    """`counted` where progress is wanted, else `nothing`."""
    return counted(what, total) if progress else nothing()
