"""The ledger of statements as lines of a terminal table and as one self-contained HTML page."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from neuromanifold.numerics.files import write_text
from neuromanifold.papers import PAPERS, Evidence
from neuromanifold.report.style import STYLE

_STYLE = (
    STYLE
    + """
body { max-width: 75rem; } table { table-layout: fixed; } td, th { padding: .35rem .5rem; }
th:nth-child(1) { width: 8rem; } th:nth-child(3) { width: 11rem; } th:nth-child(4) { width: 5rem; } th:nth-child(5) { width: 6rem; }
thead th, td:first-child { font-weight: 600; } .number { text-align: right; }
.verdict { font-weight: 600; } .holds { color: var(--good); } .sampled { color: var(--sampled); }
.fails { color: var(--bad); } .amended { color: var(--amended); } .differs { background: var(--differs); }
@media (max-width: 48rem) { thead { display: none; } tr { display: grid; grid-template-columns: auto 1fr auto auto; gap: 0 .8rem;
  border-bottom: 1px solid var(--line); padding: .5rem 0; } td { border: 0; padding: 0; }
  td:nth-child(2) { grid-row: 2; grid-column: 1 / -1; } }
"""
)
_CLASS = {"holds": "holds", "no counterexample": "sampled", "fails": "fails", "holds as amended": "amended"}


def cells(item: Evidence, recorded: str) -> tuple[str, ...]:
    """A statement's line: paper, id, verdict, cases that spoke, worst margin, seconds, and whether the verdict is the recorded one."""
    margin = "" if item.margin is None else f"{item.margin:.2g}"
    remark = "" if item.kind == recorded else f"recorded: {recorded}"
    return (
        item.paper,
        item.id,
        item.verdict,
        str(item.cases - item.vacuous),
        margin,
        f"{item.seconds:.1f}",
        remark,
    )


def summary_lines(evidence: Iterable[Evidence]) -> list[str]:
    """One line per paper: how many statements, and how many of each verdict.

    >>> summary_lines([])
    []
    """
    ordered = sorted(evidence, key=lambda item: PAPERS.index(item.paper))
    return [
        _summary(paper, Counter(item.kind for item in items)) for paper, items in groupby(ordered, lambda i: i.paper)
    ]


def _summary(paper: str, kinds: Mapping[str, int]) -> str:
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda pair: -pair[1]))
    return f"{paper}: {sum(kinds.values())} statements: {parts}"


def write_ledger(evidence: Sequence[Evidence], expected: Sequence[str], path: str | Path) -> Path:
    """The page into `path`, atomically; `expected` are the recorded verdicts, in order."""
    return write_text(path, render_ledger(evidence, expected))


def render_ledger(evidence: Sequence[Evidence], expected: Sequence[str]) -> str:
    """The page as a string: a table per paper, each statement with its evidence folded below it."""
    pairs = list(zip(evidence, expected, strict=True))
    summaries = "".join(f"<li>{html.escape(line)}</li>" for line in summary_lines(evidence))
    differing = sum(item.kind != recorded for item, recorded in pairs)
    verdict = "Every verdict is the recorded one." if not differing else f"{differing} verdicts differ from the record."
    sections = "\n".join(
        f"<h2>{paper}</h2>{_table([pair for pair in pairs if pair[0].paper == paper])}"
        for paper in PAPERS
        if any(item.paper == paper for item in evidence)
    )
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Every theorem, executed</title><style>{_STYLE}</style></head>
<body>
<h1>Every theorem, executed</h1>
<ul>{summaries}</ul>
<p>{verdict}</p>
{sections}
<footer>neuromanifold verify, {sum(item.seconds for item in evidence):.0f} s.</footer>
</body></html>
"""


def _table(pairs: Sequence[tuple[Evidence, str]]) -> str:
    head = "<tr><th>id</th><th>statement</th><th>verdict</th><th class=number>cases</th><th class=number>worst margin</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(_row(*pair) for pair in pairs)}</tbody></table>"


def _row(item: Evidence, recorded: str) -> str:
    margin = "" if item.margin is None else f"{item.margin:.2g}"
    differs = "" if item.kind == recorded else " class=differs"
    return (
        f"<tr{differs}><td>{html.escape(item.id)}</td><td>{html.escape(item.statement)}{_details(item, recorded)}</td>"
        f'<td class="verdict {_CLASS.get(item.kind, "fails")}">{html.escape(item.verdict)}</td>'
        f"<td class=number>{item.cases - item.vacuous}</td><td class=number>{margin}</td></tr>"
    )


def facts(item: Evidence, recorded: str) -> list[tuple[str, str]]:
    """What stands behind a verdict, as (name, value) pairs, without those that say nothing."""
    amendment = item.amendment and f"{item.amendment['statement']} ({item.amendment['verdict']})"
    listed: list[tuple[str, Any]] = [
        ("method", item.method),
        ("exhaustive over", item.scope),
        ("narrower than printed", item.narrower),
        ("covered", "; ".join(f"{name}: {values}" for name, values in item.covered.items())),
        ("vacuous cases", item.vacuous or ""),
        ("worst case", item.worst),
        ("negative control", item.control),
        ("recorded verdict", recorded if recorded != item.kind else ""),
        ("counterexample", item.counterexample),
        ("two routes", "; ".join(item.routes)),
        ("amended", amendment),
    ]
    return [(name, str(value)) for name, value in listed if value]


def _details(item: Evidence, recorded: str) -> str:
    lines = "".join(_fact(name, html.escape(value)) for name, value in facts(item, recorded))
    return f"<details{' open' if item.counterexample else ''}><summary>evidence</summary>{lines}</details>"


def _fact(name: str, escaped: str) -> str:
    return f"<pre>{escaped}</pre>" if name == "counterexample" else f"<div><b>{name}:</b> {escaped}</div>"
