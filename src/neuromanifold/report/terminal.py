"""Results as tables in a terminal, and as numbers for a pipe."""

import contextlib
import re
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from neuromanifold.inspection import Inspection
from neuromanifold.report.document import as_json, write_json
from neuromanifold.runtime.files import check_output


def print_inspection(inspection: Inspection) -> None:
    """Print the table and the verdict of `inspection`."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=inspection.model,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("quantity")
    table.add_column("value", justify="right", style="bold")
    table.add_column("remark", style="dim")
    for name, value, remark in inspection.rows:
        table.add_row(name, value, remark)
    console = Console(highlight=False)
    console.print()
    console.print(table, markup=False)
    console.print()
    for sentence in inspection.verdict:
        console.print(sentence, markup=False)


@contextlib.contextmanager
def numbers(json: Path | None, *read: str | None) -> Generator[Callable[[Inspection], None]]:
    """Return a function that writes an inspection as JSON; where it goes to standard output (`-`),
    all else goes to standard error.

    `json` is the file; it is refused where it is one of those that were `read`.
    """
    if json is None:
        yield lambda inspection: None
    elif str(json) in ("-", "/dev/stdout"):
        stream = sys.stdout
        with contextlib.redirect_stdout(sys.stderr):
            yield lambda inspection: print(as_json(inspection), file=stream)
    else:
        check_output(json, "--json", read=read)
        yield lambda inspection: print(f"wrote {write_json(inspection, json)}")


BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])_(?=[^\W\d_])")
NEGATIVE = re.compile(r"(?<![\w)])-(?=\d)")
INTERVAL = {"value", "low", "high"}


def in_words(value: Any, *, digits: int = 4) -> str:
    """A number, a name, or a collection of such, as text.

    >>> in_words({"r": {"value": -0.52749, "low": -0.5708, "high": -0.4812, "points": 1000}, "largest_shift": 1.1271834e-3})
    'r −0.5275 [−0.5708, −0.4812], points 1000; largest shift 0.001127'
    >>> in_words([1, 2.0, True, None]), in_words("as printed")
    ('1, 2, yes, none', 'as printed')
    >>> in_words({"n_0 + 1": -9, "heating_load": "+1.0 [-9.3, 1e-5]"})
    'n_0 + 1 −9, heating load +1.0 [−9.3, 1e-5]'
    """
    if isinstance(value, Mapping):
        return _mapping(value, digits)
    if isinstance(value, list | tuple):
        return (", " if all(_plain(entry) for entry in value) else "; ").join(
            in_words(v, digits=digits) for v in value
        )
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return (
        f"{value:.{digits}g}".replace("-", "−")
        if isinstance(value, float)
        else NEGATIVE.sub("−", str(value))
    )


def _mapping(value: Mapping[Any, Any], digits: int) -> str:
    if value.keys() >= INTERVAL:
        middle, low, high = (
            in_words(value[name], digits=digits) for name in ("value", "low", "high")
        )
        rest = {name: entry for name, entry in value.items() if name not in INTERVAL}
        return ", ".join(
            [f"{middle} [{low}, {high}]", *([in_words(rest, digits=digits)] if rest else [])]
        )
    separator = ", " if all(_plain(entry) for entry in value.values()) else "; "
    return separator.join(
        f"{BETWEEN_WORDS.sub(' ', str(name))} {in_words(v, digits=digits)}"
        for name, v in value.items()
    )


def _plain(value: Any) -> bool:
    return not isinstance(value, Mapping | list | tuple)
