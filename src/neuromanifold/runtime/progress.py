"""A bar over sections that are estimated to take unequal times."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Bar = Callable[[int], None]
_LONG = 5.0
_TRUSTED, _MOST = 2.0, 4.0


@dataclass
class Clock:
    """What is left, by the estimates and by how they have done so far. `seconds` are those of the
    sections, in their order.

    >>> clock = Clock((10.0, 20.0), now=lambda: 0.0)
    >>> clock.begin(1, at=15.0)                     # the first took half as long again as it should have
    >>> clock.left(at=20.0), round(clock.done(at=20.0), 3)
    (25.0, 0.444)
    """

    seconds: Sequence[float]
    now: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._started = self._begun = self.now()
        self._index, self._pace = 0, 1.0

    def begin(self, index: int, at: float | None = None) -> None:
        """Section `index` begins. The pace is what the finished ones took over their estimates,
        once these are long enough to tell.
        """
        self._index, self._begun = index, self.now() if at is None else at
        planned = sum(self.seconds[:index])
        if planned >= _TRUSTED:
            self._pace = min(_MOST, max(1 / _MOST, (self._begun - self._started) / planned))

    def left(self, at: float | None = None) -> float:
        """Seconds that are left, the section at work counted down to nothing."""
        at = self.now() if at is None else at
        present, later = self.seconds[self._index], sum(self.seconds[self._index + 1 :])
        return max(0.0, self._pace * present - (at - self._begun)) + self._pace * later

    def done(self, at: float | None = None) -> float:
        """The share of the time that has gone."""
        at = self.now() if at is None else at
        gone = at - self._started
        return gone / max(gone + self.left(at), 1e-9)


@contextmanager
def shown(progress: bool, sections: Sequence[tuple[str, float]]) -> Generator[Bar]:
    """A function that takes the index of the section which begins; the estimate is written first
    where it is long.
    """
    if not progress or not sections:
        yield lambda index: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    if (total := sum(seconds for _, seconds in sections)) > _LONG:
        parts = ", ".join(f"{title} {seconds:.0f} s" for title, seconds in sections if seconds >= 1)
        console.print(
            f"about {total:.0f} s in all ({parts}); Ctrl-C keeps what is done", markup=False
        )
    clock = Clock([seconds for _, seconds in sections])

    class Left(ProgressColumn):
        """About how many seconds are left."""

        def render(self, task: Task) -> Text:
            bar.update(task.id, completed=clock.done())
            return Text(f"about {round(clock.left())} s left")

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), Left())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def begin(index: int) -> None:
            title, seconds = sections[index]
            clock.begin(index)
            bar.update(task, description=f"{title}, about {max(1, round(seconds))} s")

        yield begin
