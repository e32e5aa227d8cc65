"""Results as tables in a terminal, and as numbers for a pipe."""

import contextlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from neuromanifold.inspection import Inspection
from neuromanifold.numerics.files import check_output
from neuromanifold.report.document import as_json, write_json
from neuromanifold.report.words import in_words


def print_inspection(inspection: Inspection) -> None:
    """The table and the verdict."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=inspection.model, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("quantity")
    table.add_column("value", justify="right", style="bold")
    table.add_column("evidence", style="dim")
    for name, value, remark in inspection.rows:
        table.add_row(name, value, remark)
    console = Console(highlight=False)
    console.print()
    console.print(table, markup=False)
    console.print()
    for sentence in inspection.verdict:
        console.print(sentence, markup=False)


def print_claims(summary: dict[str, Any]) -> None:
    """The claims of a study, with what was measured."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{summary['paper']}, {summary['scale']} scale", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    for column in ("figure", "claim", "measured", "borne out"):
        table.add_column(column)
    for claim in summary["claims"]:
        table.add_row(*(in_words(claim[name]) for name in ("figure", "claim", "measured", "borne_out")))
    Console(highlight=False).print(table, markup=False)


@contextlib.contextmanager
def numbers(json: Path | None, *read: str | None) -> Generator[Callable[[Inspection], None]]:
    """A function that writes an inspection as JSON; where it goes to standard output (`-`), all else goes to standard error."""
    if json is None:
        yield lambda inspection: None
    elif str(json) in ("-", "/dev/stdout"):
        stream = sys.stdout
        with contextlib.redirect_stdout(sys.stderr):
            yield lambda inspection: print(as_json(inspection), file=stream)
    else:
        check_output(json, "--json", read=read)
        yield lambda inspection: print(f"wrote {write_json(inspection, json)}")
