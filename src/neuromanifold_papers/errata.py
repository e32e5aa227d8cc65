"""The *Errata* page: which printed statements fail, the counterexample by hand, and the table of
all verdicts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from neuromanifold.runtime.files import write_text
from neuromanifold_papers.evidence import FAILS, NOT_REPRODUCED, TRUE_INSTEAD, UNDECIDED
from neuromanifold_papers.examination import failure
from neuromanifold_papers.index import coverage
from neuromanifold_papers.ledger import PAPERS, Verdicts, recorded_verdicts, statements
from neuromanifold_papers.statement import NO_PROOF, SEVERITIES, Statement

_HEADER = """# Errata

{assertions} assertions were read in five papers, from the first line to the last, proofs, captions and footnotes included.
`neuromanifold verify` executes {executed} of them by {statements} statements; {undecidable} no computation can decide, and
{waiting} are not executed yet. Most of what is executed stands: the first table counts it.

The rest is meant for the authors, and for whoever builds on a formula. A program can follow these papers line by line only because
they say so exactly what they assume. It takes every sentence at its word, as a reader who knows what is meant would not:
most of what it finds are misprints, constants, and hypotheses that a proof uses and its statement does not name. Each finding
has its smallest counterexample, worked by hand and confirmed by a second computation, and, where we found it, what is true
instead. Then follow the statements that we could not reproduce, with what the print leaves out, and the verdict on every
statement.

A machine read the texts. Where a formula looked misread, we compared it with its neighbours and its proof. If a finding is our
misreading, please tell us. `neuromanifold verify --errata docs/errata.md` writes this page. The counterexamples need

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
    parts = [_header(len(listed)), _stands(listed, recorded), _sorted(failing, recorded)]
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


def _header(statements: int) -> str:
    """The first lines, with the counts of all papers' indices."""
    counts = [coverage(paper) for paper in PAPERS]
    return _HEADER.format(
        statements=statements,
        assertions=sum(count.assertions for count in counts),
        executed=sum(count.executed for count in counts),
        undecidable=sum(count.undecidable for count in counts),
        waiting=sum(count.waiting for count in counts),
    )


def _stands(listed: Iterable[Statement], recorded: Verdicts) -> str:
    """Of each paper, how many statements stand, and how many fail how gravely."""
    rows = [["paper", "stands", *SEVERITIES, "not reproduced or undecided"]]
    for paper in PAPERS:
        found = Counter(_outcome(s, _entry(s, recorded)) for s in listed if s.paper == paper)
        rows += [[paper, *(str(found[name]) for name in ("stands", *SEVERITIES, "open"))]]
    return _markdown(rows)


def _outcome(statement: Statement, entry: dict[str, Any]) -> str:
    verdict = entry["verdict"]
    if verdict in (FAILS, TRUE_INSTEAD):
        return statement.severity
    return "open" if verdict in (NOT_REPRODUCED, UNDECIDED) else "stands"


def _sorted(failing: Iterable[Statement], recorded: Verdicts) -> str:
    """What fails, the gravest first, with what is true instead."""
    rows = [["how grave", "paper", "where", "true instead"]]
    for s in sorted(failing, key=lambda s: (SEVERITIES.index(s.severity), PAPERS.index(s.paper))):
        entry = _entry(s, recorded)
        true = entry["amended"] if entry["verdict"] == TRUE_INSTEAD else "–"
        rows += [[s.severity, s.paper, s.id, true]]
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


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
    rows = [["paper", "id", "statement", "source", "verdict", "checked"]]
    for s in listed:
        entry = _entry(s, recorded)
        verdict = f"**{shown_verdict(s, entry['verdict'])}**"
        scope = f"{s.method}: {_scope(s, entry.get('dropped', ()))}"
        rows += [[s.paper, s.id, s.says, s.source, verdict, scope]]
    return _markdown(rows)
