"""Every sentence of the papers: the lists of claims are sound, and their coverage is the number
that the page shows.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from neuromanifold_papers import (
    PAPERS,
    coverage,
    flaws,
    printed,
    printed_claims,
    select,
    statements,
)

PAGE = Path(__file__).parents[2] / "docs" / "verify.md"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_is_checked_or_says_why_not_and_every_printed_statement_checks_one(
    paper: str,
) -> None:
    assert list(flaws(printed_claims(paper), statements(paper))) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_shows_the_coverage(paper: str) -> None:
    found = coverage(paper)
    row = rf"\| {paper} \| {found.listed} \| {found.executed} \| {found.not_executable} \|"
    assert re.search(row, PAGE.read_text(encoding="utf-8")), f"docs/verify.md lacks: {row}"
    assert found.listed == found.executed + found.not_executable


def test_flaws_are_named() -> None:
    claim = next(claim for claim in printed_claims("complexity") if claim.id == "count")
    [statement, *_] = select("complexity", ["count"])
    assert list(flaws([claim], [statement])) == []
    [unknown, unused] = flaws([replace(claim, checked=("Thm 99",))], [statement])
    assert "'Thm 99', which is no statement" in unknown
    assert "is called printed and checks no claim" in unused
    assert list(flaws([], [replace(statement, source="ours")])) == []
    [neither, _] = flaws([replace(claim, checked=())], [statement])
    assert "must name the statements that check it, or say why there is none" in neither
    [both] = flaws([replace(claim, not_executable="a definition")], [statement])
    assert "must name the statements" in both
    [lacking] = flaws([replace(claim, place="")], [statement])
    assert "lacks its place" in lacking


def test_an_unknown_field_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_text('["Thm 1"]\nwhere = "Sec 4"\n', encoding="utf-8")
    monkeypatch.setattr(printed, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match="has the field 'where' at 'Thm 1'; it knows"):
        printed_claims("complexity")


def test_what_cannot_be_executed_is_counted_and_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from neuromanifold_papers.ledger_page import render_ledger

    text = (
        '["Def 1"]\nplace = "Sec 2"\nsays = "what a <network> is"\nnot_executable = "a '
        'definition"\n'
    )
    (tmp_path / "claims.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(printed, "files", lambda package: tmp_path)
    assert str(coverage("complexity")) == "1 printed claims listed: 0 executed, 1 not executable"
    from neuromanifold_papers import examine

    evidence = examine(select("complexity", ["Ass 3.1"])[0], draws=0)
    page = render_ledger([evidence], ["holds"])
    assert "what a &lt;network&gt; is" in page
    assert "a definition" in page
