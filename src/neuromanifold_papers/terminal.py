"""`verify` in a terminal: each statement's line as it comes, and what stands behind it."""

import functools
from pathlib import Path
from typing import Any

from neuromanifold.report.terminal import in_words
from neuromanifold.runtime.progress import open_bar
from neuromanifold_papers import expected, merge, write_evidence
from neuromanifold_papers.ledger_page import cells, facts, summary_lines


def examined(
    evidence: Any, total: int, recorded: Any, small: bool, json: Path | None, held: list[Any]
) -> tuple[list[Any], list[str]]:
    """Show each statement's line as it comes, with a bar below; the evidence and the recorded
    verdicts.

    `json` always holds what it held before, with what has been found since.
    """
    found: list[Any] = []
    verdicts: list[str] = []
    with open_bar(errors=False, transient=True) as progress:
        task = progress.add_task("statements", total=total)
        show = functools.partial(
            progress.console.print, markup=False, highlight=False, soft_wrap=True
        )
        show(_line("paper", "id", "verdict", "cases", "margin", "s", ""))
        for item in evidence:
            found.append(item)
            verdicts.append(expected(item, recorded, small=small))
            show(_line(*cells(item, verdicts[-1])))
            if json is not None:
                write_evidence(merge(held, found), json)
            progress.advance(task)
    for line in summary_lines(found):
        print(line)
    differing = sum(item.kind != verdict for item, verdict in zip(found, verdicts, strict=True))
    print(
        "every verdict is the recorded one"
        if not differing
        else f"{differing} verdicts differ from the record"
    )
    if json is not None:
        print(f"wrote {json}")
    return found, verdicts


def print_facts(found: list[Any], expected: list[str]) -> None:
    """What stands behind each verdict, for statements that were asked for by name."""
    for item, verdict in zip(found, expected, strict=True):
        print(f"\n{item.paper} {item.id}: {item.statement}")
        for name, value in facts(item, verdict):
            print(f"  {name}: " + value.replace("\n", "\n    "))


def _line(
    paper: str, name: str, verdict: str, cases: str, margin: str, seconds: str, remark: str
) -> str:
    return f"{paper:<11} {name:<26} {verdict:<31} {cases:>7} {margin:>9} {seconds:>6}  {remark}".rstrip()


def print_claims(summary: dict[str, Any]) -> None:
    """The claims of a study, with what was measured."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{summary['paper']}, {summary['scale']} scale",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for column in ("figure", "claim", "measured", "borne out"):
        table.add_column(column)
    for claim in summary["claims"]:
        table.add_row(
            *(in_words(claim[name]) for name in ("figure", "claim", "measured", "borne_out"))
        )
    Console(highlight=False).print(table, markup=False)
