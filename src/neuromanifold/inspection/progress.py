"""A bar over sections that are estimated to take unequal times."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

Bar = Callable[[int], None]
_LONG = 5.0


@contextmanager
def shown(progress: bool, sections: Sequence[tuple[str, float]]) -> Generator[Bar]:
    """A function that takes the index of the section which begins; the estimate is written first where it is long."""
    if not progress:
        yield lambda index: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    if (total := sum(seconds for _, seconds in sections)) > _LONG:
        parts = ", ".join(f"{title} {seconds:.0f} s" for title, seconds in sections if seconds >= 1)
        console.print(f"about {total:.0f} s in all ({parts}); Ctrl-C keeps what is done", markup=False)
    left = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), BarColumn(), *left, console=console, transient=True) as bar:
        task = bar.add_task("", total=total + len(sections))

        def begin(index: int) -> None:
            title, seconds = sections[index]
            done = sum(seconds for _, seconds in sections[:index]) + index
            bar.update(task, completed=done, description=f"{title}, about {max(1, round(seconds))} s")

        yield begin
