"""Progress bars in the terminal, with the time that has gone and the time that remains."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


def open_bar(*, errors: bool = True, transient: bool = False) -> Any:
    """Return rich's `Progress`, on the error stream or (with `errors=False`) on the output;
    a `transient` bar goes when all is done.
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
    return Progress(*columns, console=Console(stderr=errors), transient=transient)


@contextmanager
def count_steps(shown: bool, what: str, total: int) -> Generator[Callable[..., None]]:
    """Yield a function to call after each of `total` steps, with the name of the step if it has
    one, or with `done=` steps at once; it draws a bar where it is `shown`.
    """
    if not shown:
        yield lambda name="", done=None: None
        return
    with open_bar() as bar:
        task = bar.add_task(what, total=total)

        def advance(name: str = "", done: int | None = None) -> None:
            bar.update(task, advance=1 if done is None else None, completed=done)
            bar.update(task, description=f"{what} {name}".strip())

        yield advance
