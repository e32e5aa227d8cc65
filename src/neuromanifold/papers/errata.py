"""The *Errata* page: which printed statements fail, the counterexample by hand, and the table of all verdicts."""

from collections.abc import Iterable
from pathlib import Path

from neuromanifold.numerics.files import write_text
from neuromanifold.papers.evidence import kind
from neuromanifold.papers.ledger import PAPERS, Verdicts, recorded_verdicts, statements
from neuromanifold.papers.statement import Statement

_HEADER = """# Errata

Every statement of the five papers is executed by `neuromanifold verify`. This page lists those that fail as printed, each with
its smallest counterexample, worked by hand and confirmed by a second computation; then the verdict on every statement.
It is generated from `src/neuromanifold/papers` by `neuromanifold verify --errata docs/errata.md`. The counterexamples need

```python
import jax
import numpy as np
import neuromanifold as nm
```
"""


def write_errata(path: str | Path) -> Path:
    """The page of all statements and recorded verdicts into `path`, atomically."""
    return write_text(path, errata_page(statements(), recorded_verdicts()))


def errata_page(listed: Iterable[Statement], recorded: Verdicts) -> str:
    """The page in Markdown, from the statements and the recorded verdicts."""
    listed = tuple(listed)
    failing = [s for s in listed if "counterexample" in _entry(s, recorded)]
    parts = [_HEADER]
    for paper in PAPERS:
        chapters = [_chapter(s, recorded) for s in failing if s.paper == paper]
        if chapters:
            parts += [f"## {paper}\n", *chapters]
    parts += ["## All verdicts\n", _table(listed, recorded)]
    return "\n".join(parts)


def _entry(statement: Statement, recorded: Verdicts) -> dict:
    try:
        return dict(recorded[statement.paper][statement.id])
    except KeyError:
        raise ValueError(
            f"no verdict is recorded for {statement.paper} {statement.id}; run `neuromanifold verify --record` first."
        ) from None


def _chapter(statement: Statement, recorded: Verdicts) -> str:
    entry = _entry(statement, recorded)
    lines = [f"### {statement.id}: {entry['verdict']}\n", f"*Printed.* {statement.says}\n"]
    if statement.amended is not None:
        true = kind(entry["amended_verdict"]) in ("holds", "no counterexample")
        lead = f"*True instead* ({entry['amended_verdict']})." if true else "*Tried instead, and not borne out either.*"
        lines.append(f"{lead} {statement.amended.says}\n")
    lines += [f"{statement.worked.strip()}\n", f"```python\n{entry['counterexample']}\n```\n"]
    lines += ["Both sides of what fails, by two routes:\n"]
    lines += [f"- {route}" for route in entry["routes"]]
    return "\n".join([*lines, ""])


def _table(listed: Iterable[Statement], recorded: Verdicts) -> str:
    rows = ["| paper | id | statement | verdict | checked |", "|---|---|---|---|---|"]
    for s in listed:
        scope = "; ".join(filter(None, [s.exhaustive or "sampled", s.narrower]))
        cells = (s.paper, s.id, s.says, f"**{_entry(s, recorded)['verdict']}**", f"{s.method}: {scope}")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"
