"""Speed and memory against the alternatives, as ratios measured in one run: what `neuromanifold
bench` prints.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks import alignment, baseline, complexity, exact, growth, infinite, kernel, memory, ntk
from benchmarks.row import Row, table, write_json

BENCHMARKS: dict[str, Callable[..., Iterator[Row]]] = {
    "ntk": ntk.rows,
    "kernel": kernel.rows,
    "exact": exact.rows,
    "memory": memory.rows,
    "infinite": infinite.rows,
    "alignment": alignment.rows,
    "complexity": complexity.rows,
    "growth": growth.rows,
}


def run(
    names: Iterable[str] = (), json_path: str | Path | None = None, quick: bool = False
) -> list[Row]:
    """Measure the named benchmarks (all by default), print the table, and write it to `json_path`
    row by row.

    `quick` takes smaller sizes and fewer repetitions, so its rows have no targets.
    """
    names = tuple(names) or tuple(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise ValueError(
            f"`{unknown[0]}` is not a benchmark; choose from: {', '.join(BENCHMARKS)}."
        )
    console = Console()
    if not console.is_terminal:
        console.width = 180
    rows: list[Row] = []
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("bench", total=len(names))
        for name in names:
            progress.update(task, description=name)
            for row in BENCHMARKS[name](quick=quick):
                rows.append(replace(row, target=None) if quick else row)
                console.print(str(row), highlight=False, markup=False)
                if json_path is not None:
                    write_json(rows, json_path)
            progress.advance(task)
    console.print(table(rows))
    return rows


def checked(rows: list[Row]) -> list[str]:
    """What `--check` says: ratios that have halved, and rows that are not in the record."""
    return [
        *baseline.halved(rows),
        *(f"{name}: not in the record" for name in baseline.unknown(rows)),
    ]


def draw_growth(path: str | Path, *, quick: bool) -> Path:
    """Measure the growth along every axis and draw it."""
    sizes = growth.QUICK if quick else growth.SIZES
    return growth.plot(
        [growth.measured(axis, sizes[axis], 3 if quick else 7) for axis in sizes], path
    )
