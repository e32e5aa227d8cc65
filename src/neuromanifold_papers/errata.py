"""The *Errata* page: which printed statements fail, the counterexample by hand, and the table of
all verdicts.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from neuromanifold.runtime.files import write_text
from neuromanifold_papers.evidence import FAILS, NOT_REPRODUCED, TRUE_INSTEAD
from neuromanifold_papers.examination import failure
from neuromanifold_papers.ledger import PAPERS, Verdicts, recorded_verdicts, statements
from neuromanifold_papers.statement import NO_PROOF, Statement

_HEADER = """# Errata

Every statement of the five papers is executed by `neuromanifold verify`. This page lists those that fail as printed, each with its
smallest counterexample, worked by hand and confirmed by a second computation, and with our proof of what is true instead where there is
one; those that we could not reproduce, with what the print leaves out; then the verdict on every statement.
It is generated from `src/neuromanifold_papers` by `neuromanifold verify --errata docs/errata.md`. The counterexamples need

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
        chapters = [_chapter(s, _entry(s, recorded)) for s in failing if s.paper == paper]
        if chapters:
            parts += [f"## {paper}\n", *chapters]
    missed = [
        _not_reproduced(s) for s in listed if _entry(s, recorded)["verdict"] == NOT_REPRODUCED
    ]
    parts += ["## Not reproduced\n", *missed] if missed else []
    parts += ["## All verdicts\n", _table(listed, recorded)]
    return "\n".join(parts)


def _not_reproduced(statement: Statement) -> str:
    lines = [
        f"### {statement.paper}, {statement.id}: not reproduced\n",
        f"*{_said_by(statement)}.* {statement.says}\n",
    ]
    lines += [
        f"*Left out by the print.* {statement.missing}.\n",
        f"*Our run.* {statement.worked.strip()}\n",
    ]
    return "\n".join(lines)


def _entry(statement: Statement, recorded: Verdicts) -> dict[str, Any]:
    try:
        return dict(recorded[statement.paper][statement.id])
    except KeyError:
        raise ValueError(
            f"no verdict is recorded for {statement.paper} {statement.id}; run `neuromanifold "
            "verify --record` first."
        ) from None


def shown_verdict(statement: Statement, verdict: str) -> str:
    """The recorded verdict in words: what is not printed does not fail as printed."""
    failed = verdict in (FAILS, TRUE_INSTEAD)
    return failure(statement, verdict == TRUE_INSTEAD) if failed else verdict


def _said_by(statement: Statement) -> str:
    return {"printed": "Printed", "ours": "Ours, not printed"}[statement.source]


def _chapter(statement: Statement, entry: dict[str, Any]) -> str:
    verdict = shown_verdict(statement, entry["verdict"]).partition(";")[0]
    lines = [f"### {statement.id}: {verdict}\n", f"*{_said_by(statement)}.* {statement.says}\n"]
    if statement.amended is not None and "amended" in entry:
        lines += _amendment(statement.amended, entry)
    lines += [f"{statement.worked.strip()}\n", f"```python\n{entry['counterexample']}\n```\n"]
    lines += ["Both sides of what fails, by two routes:\n"]
    lines += [f"- {route}" for route in entry["routes"]]
    return "\n".join([*lines, ""])


def _amendment(amended: Statement, entry: dict[str, Any]) -> list[str]:
    true = entry["verdict"] == TRUE_INSTEAD
    lead = (
        f"*True instead* ({entry['amended_verdict']})."
        if true
        else "*Tried instead, and not borne out either.*"
    )
    unproved = amended.proof.startswith(NO_PROOF)
    proof = f"N{amended.proof[1:]}." if unproved else f"*Proof.* {amended.proof.strip()}"
    scope = _scope(amended, entry.get("amended_dropped", ()))
    return [f"{lead} {amended.says}\n", f"{proof} Checked ({amended.method}): {scope}.\n"]


def _scope(statement: Statement, dropped: Iterable[str]) -> str:
    """What was covered, and what was not."""
    parts = [statement.exhaustive or "sampled"]
    parts += [f"constructive: {statement.constructive}"] if statement.constructive else []
    parts += [statement.narrower] if statement.narrower else []
    return "; ".join([*parts, *(f"dropped {entry}" for entry in dropped)])


def _table(listed: Iterable[Statement], recorded: Verdicts) -> str:
    rows = ["| paper | id | statement | source | verdict | checked |", "|---|---|---|---|---|---|"]
    for s in listed:
        entry = _entry(s, recorded)
        scope = f"{s.method}: {_scope(s, entry.get('dropped', ()))}"
        cells = (
            s.paper,
            s.id,
            s.says,
            s.source,
            f"**{shown_verdict(s, entry['verdict'])}**",
            scope,
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"
