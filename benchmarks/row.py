"""One line of the benchmark table, the table itself, and its JSON."""

import json
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Row:
    """What we took for a job and what the alternative took: seconds (`unit="s"`) or bytes
    (`unit="B"`).

    The ratio is theirs / ours, so that larger is better; `target` is the least ratio that will do.
    A bound that we must keep is an alternative too: `peer="the bound"`, target 1. `theirs` is
    `None` where the peer is absent.
    """

    name: str
    ours: float
    peer: str
    theirs: float | None
    target: float | None = None
    compile_seconds: float | None = None
    agrees: bool = True
    note: str = ""
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the target is reached with the right result; `None` where there is nothing to
        judge.
        """
        if self.ratio is None or self.target is None:
            return None
        return self.agrees and self.ratio >= self.target

    def __str__(self) -> str:
        if self.theirs is None:
            return f"{self.name}: {quantity(self.ours, self.unit)}; {self.note}"
        against = f"{self.peer} {quantity(self.theirs, self.unit)}, ratio {factor(self.ratio)}"
        return f"{self.name}: {quantity(self.ours, self.unit)} against {against}"


def quantity(value: float | None, unit: str) -> str:
    """`value` in the unit a reader expects.

    >>> quantity(0.0123, "s"), quantity(3 * 2**20, "B")
    ('12.3 ms', '3 MiB')
    """
    if value is None:
        return "–"
    scales = {
        "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
        "B": (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)),
    }
    name, scale = next((pair for pair in scales[unit] if value >= pair[1]), scales[unit][-1])
    return f"{value / scale:.3g} {name}"


def factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}×" if value >= 10 else f"{value:.2f}×"


def table(rows: list[Row]) -> Table:
    """The rows as people read them, with a word on how busy the machine was."""
    here = machine()
    caution = (
        "; other work disturbs these numbers, do not quote them"
        if here["load"] > 2 * here["cpus"]
        else ""
    )
    title = (
        f"neuromanifold bench: ratio = theirs / ours ({here['cpus']} cores, load "
        f"{here['load']:.1f}{caution})"
    )
    shown = Table(title=title, title_justify="left")
    for heading in ("job", "ours", "against", "theirs", "ratio", "target", "", "compile", "note"):
        numeric = heading in ("ours", "theirs", "ratio", "target", "compile")
        shown.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    verdicts = {True: "[green]met", False: "[red]missed", None: ""}
    for row in rows:
        shown.add_row(
            row.name,
            quantity(row.ours, row.unit),
            row.peer,
            quantity(row.theirs, row.unit),
            factor(row.ratio),
            "–" if row.target is None else f"≥ {factor(row.target)}",
            verdicts[row.met],
            quantity(row.compile_seconds, "s"),
            row.note,
        )
    return shown


def write_json(rows: list[Row], path: str | Path) -> None:
    """Replace `path` by the rows and the machine they were measured on; never leaves half a
    file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [asdict(row) | {"ratio": row.ratio, "met": row.met} for row in rows]
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".partial") as file:
        json.dump({"machine": machine(), "rows": entries}, file, indent=2)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("jax", "jaxlib", "numpy", "python-flint")},
    }
