"""The ledger of statements as lines of a terminal table and as one self-contained HTML page."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from neuromanifold.report.page import head
from neuromanifold.report.style import STYLE
from neuromanifold.runtime.files import write_text
from neuromanifold_papers import NO_PROOF, PAPERS, Dropped, Evidence, coverage, entries

# Column widths are fixed and words may break, so that no column is pushed out of the page; below
# 45rem every row is a card.
_STYLE = """
body { max-width: 75rem; }
ul { padding-left: 1.2rem; } pre { font-size: .85rem; }
table { table-layout: fixed; } td, th, pre, div { overflow-wrap: anywhere; } th { font-weight: 600; }
th:nth-child(1) { width: 14%; } th:nth-child(3) { width: 17%; } th:nth-child(4), th:nth-child(5) { width: 8.5%; }
td:first-child, .verdict { font-weight: 600; } .number { text-align: right; }
.holds { color: var(--good); } .sampled { color: var(--sampled); } .fails { color: var(--bad); }
.amended { color: var(--amended); } .open { color: var(--open); } .differs { background: var(--differs); }
.dropped { font-weight: 400; font-size: .85rem; color: var(--soft); } small { color: var(--soft); font-weight: 400; }
@media (max-width: 45rem) {
  thead { display: none; } table, tbody, td { display: block; width: auto; }
  tr { display: flex; flex-direction: column; border-bottom: 1px solid var(--line); padding: .6rem 0; } td { border: 0; padding: .1rem 0; }
  td:first-child { order: -2; } .verdict { order: -1; }
  .number { text-align: left; } .number::before { content: attr(data-name) ": "; color: var(--soft); } .number:empty { display: none; }
}
"""
_CLASS = {
    "holds": "holds",
    "no counterexample": "sampled",
    "constructive": "sampled",
    "fails": "fails",
    "fails; true instead": "amended",
    "undecided": "open",
    "not reproduced": "open",
}


def cells(item: Evidence, recorded: str) -> tuple[str, ...]:
    """A statement's line: paper, id, verdict, independent cases, worst margin, seconds; what was
    dropped, and a verdict that differs.
    """
    margin = "" if item.margin is None else f"{item.margin:.2g}"
    remarks = [f"recorded: {recorded}"] if item.kind != recorded else []
    remarks += [f"dropped {dropped}" for dropped in item.dropped]
    return (
        item.paper,
        item.id,
        item.verdict,
        str(item.cases),
        margin,
        f"{item.seconds:.1f}",
        "; ".join(remarks),
    )


def summary_lines(evidence: Iterable[Evidence]) -> list[str]:
    """One line per paper: how many statements, how many of each verdict, and how many printed
    claims they cover.

    >>> summary_lines([])
    []
    """
    ordered = sorted(evidence, key=lambda item: PAPERS.index(item.paper))
    return [
        f"{_summary(paper, Counter(item.kind for item in items))} · {coverage(paper)}"
        for paper, items in groupby(ordered, lambda i: i.paper)
    ]


def _summary(paper: str, kinds: Mapping[str, int]) -> str:
    parts = " · ".join(
        f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda pair: -pair[1])
    )
    return f"{paper}: {sum(kinds.values())} statements · {parts}"


def write_ledger(evidence: Sequence[Evidence], expected: Sequence[str], path: str | Path) -> Path:
    """The page into `path`, atomically; `expected` are the recorded verdicts, in order."""
    return write_text(path, render_ledger(evidence, expected))


def render_ledger(evidence: Sequence[Evidence], expected: Sequence[str]) -> str:
    """The page as a string: a table per paper, each statement with its evidence folded below it."""
    pairs = list(zip(evidence, expected, strict=True))
    summaries = "".join(map(_linked, summary_lines(evidence)))
    differing = sum(item.kind != recorded for item, recorded in pairs)
    verdict = (
        "Every verdict is the recorded one."
        if not differing
        else f"{differing} verdicts differ from the record."
    )
    sections = "\n".join(
        _section(paper, [pair for pair in pairs if pair[0].paper == paper])
        for paper in PAPERS
        if any(item.paper == paper for item in evidence)
    )
    return f"""{head("Every theorem, executed", STYLE + _STYLE)}
<body>
<main>
<h1>Every theorem, executed</h1>
<nav aria-label="Papers"><ul>{summaries}</ul></nav>
<p>{verdict}</p>
{_meanings()}
{sections}
</main>
<footer>neuromanifold verify, {sum(item.seconds for item in evidence):.0f} s.</footer>
</body></html>
"""


_MEANINGS = {
    "holds": "on every case of a range that was enumerated, or by exact algebra over it",
    "no counterexample in N": "on N independent cases that were drawn",
    "constructive in N": "explicit networks stand for the quantity, which they bound from above: "
    "this can support a statement only",
    "fails as printed (…); true instead": "with a counterexample that two routes confirm; the "
    "true statement near it is shown; what is wrong is a misprint, a constant, a missing "
    "hypothesis, a gap in a proof, or the statement itself (false)",
    "fails (…)": "without *as printed* for a statement that no paper prints; without *true instead* "
    "where we know none",
    "undecided": "something was estimated, and its interval lies neither wholly inside the claim "
    "nor wholly outside",
    "not reproduced": "our run disagrees, but the print leaves out what one needs",
    "cases": "how many independent cases the conclusion was checked on",
    "margin": "how far the worst case is from failing, 0 where both sides are equal; negative "
    "where it fails",
}


def _meanings() -> str:
    listed = "".join(f"<dt>{word}</dt><dd>{meaning}</dd>" for word, meaning in _MEANINGS.items())
    return (
        f"<details><summary>what the verdicts and columns mean</summary><dl>{listed}</dl></details>"
    )


def _linked(line: str) -> str:
    paper, _, rest = line.partition(":")
    return f'<li><a href="#{paper}">{paper}</a>:{html.escape(rest)}</li>'


def _section(paper: str, pairs: Sequence[tuple[Evidence, str]]) -> str:
    return (
        "<h2 "
        f"id={paper}>{paper}</h2><p>{html.escape(f'{coverage(paper)}')}.</p>{_unexecuted(paper)}{_table(pairs)}"
    )


def _unexecuted(paper: str) -> str:
    """The assertions that no statement executes, each with its place and the reason."""
    listed = [entry for entry in entries(paper) if entry.kind == "assertion" and not entry.by]
    items = "".join(
        f"<li>{html.escape(f'{entry.number} ({entry.place}): {entry.says}')} "
        f"<small>{html.escape(entry.why or 'not executed yet')}</small></li>"
        for entry in listed
    )
    return f"<details><summary>not executed</summary><ul>{items}</ul></details>" if listed else ""


def _table(pairs: Sequence[tuple[Evidence, str]]) -> str:
    head = (
        "<tr><th scope=col>id</th><th scope=col>statement</th><th scope=col>verdict</th>"
        "<th scope=col class=number>cases</th><th scope=col class=number>margin</th></tr>"
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(_row(*pair) for pair in pairs)}</tbody></table>"


def _row(item: Evidence, recorded: str) -> str:
    margin = "" if item.margin is None else f"{item.margin:.2g}"
    differs = "" if item.kind == recorded else " class=differs"
    source = (
        ""
        if item.source == "printed"
        else f"<br><small>{html.escape(item.source)}, not printed</small>"
    )
    dropped = "".join(
        f"<div class=dropped>dropped {html.escape(str(entry))}</div>" for entry in item.dropped
    )
    return (
        f"<tr{differs}><td>{html.escape(item.id)}{source}</td>"
        f"<td>{html.escape(item.statement)}{_details(item, recorded)}</td>"
        '<td class="verdict '
        f'{_CLASS.get(item.kind, "fails")}">{html.escape(item.verdict)}{dropped}</td>'
        f"<td class=number data-name=cases>{item.cases}</td><td class=number "
        f"data-name=margin>{margin}</td></tr>"
    )


def facts(item: Evidence, recorded: str) -> list[tuple[str, str]]:
    """What stands behind a verdict, as (name, value) pairs, without those that say nothing."""
    amendment = _amendment(item.amendment) if item.amendment is not None else ""
    listed: list[tuple[str, Any]] = [
        ("source", "" if item.source == "printed" else f"{item.source}, not printed"),
        ("method", item.method),
        ("exhaustive over", item.scope),
        ("narrower than printed", item.narrower),
        ("constructive", item.constructive),
        ("left out by the print", item.missing),
        ("covered", "; ".join(f"{name}: {values}" for name, values in item.covered.items())),
        ("comparisons", item.comparisons if item.comparisons != item.cases else ""),
        ("dropped", "; ".join(map(str, item.dropped))),
        ("worst case", item.worst),
        ("negative control", item.control),
        ("recorded verdict", recorded if recorded != item.kind else ""),
        ("counterexample", item.counterexample),
        ("two routes", "; ".join(item.routes)),
        ("true instead" if item.kind == "fails; true instead" else "tried instead", amendment),
    ]
    return [(name, str(value)) for name, value in listed if value]


def _amendment(found: Mapping[str, Any]) -> str:
    """The amended statement, with its verdict, what was dropped, and its proof."""
    proof = found["proof"] if found["proof"].startswith(NO_PROOF) else f"proof: {found['proof']}"
    dropped = [f"dropped {Dropped(**entry)}" for entry in found["dropped"]]
    return f"{found['statement']} ({'; '.join([found['verdict'], *dropped, proof])})"


def _details(item: Evidence, recorded: str) -> str:
    lines = "".join(_fact(name, html.escape(value)) for name, value in facts(item, recorded))
    return f"<details{' open' if item.counterexample else ''}><summary>evidence</summary>{lines}</details>"


def _fact(name: str, escaped: str) -> str:
    return (
        f"<pre>{escaped}</pre>"
        if name == "counterexample"
        else f"<div><b>{name}:</b> {escaped}</div>"
    )
