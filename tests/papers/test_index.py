"""The index of every sentence: no number is without an entry, no assertion names a statement that
does not exist, and the counts are those that the page shows.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neuromanifold.cli import app
from neuromanifold_papers import (
    PAPERS,
    Entry,
    coverage,
    entries,
    flaws,
    paper_text,
    select,
    statements,
)
from neuromanifold_papers import index as kept
from neuromanifold_papers.reading import units

PAGE = Path(__file__).parents[2] / "docs" / "verify.md"
TEXT = """## 1 Results

We show two things, e.g. the first. The rank is at most two.

**Lemma 3.** *Let $n. > 1$. Then*

$$x = y$$

*Proof.* By Lemma 2. $\\square$

| a | b |
|---|---|

<sup>1</sup> A footnote.

Figure 1: A caption.

## REFERENCES

- A. Author. A title. 2020.
"""


@pytest.mark.parametrize("paper", PAPERS)
def test_every_assertion_names_statements_that_exist(paper: str) -> None:
    text = paper_text(paper)
    assert (
        list(flaws(entries(paper), statements(paper), None if text is None else units(text))) == []
    )


@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_shows_the_coverage(paper: str) -> None:
    found = coverage(paper)
    counts = (found.numbers, found.assertions, found.executed, found.undecidable, found.waiting)
    row = f"| {paper} | " + " | ".join(map(str, counts)) + " |"
    assert row in PAGE.read_text(encoding="utf-8"), f"docs/verify.md lacks: {row}"
    assert found.unread == 0


def test_units_are_sentences_displays_cells_footnotes_captions_and_references() -> None:
    found = units(TEXT)
    assert [unit.form for unit in found] == [
        "heading",
        *["sentence"] * 4,
        "display",
        "sentence",
        *["cell"] * 2,
        "footnote",
        "caption",
        "heading",
        "reference",
    ]
    assert [unit.number for unit in found] == list(range(1, len(found) + 1))
    assert found[5].place == "Sec 1, Lem 3"
    assert found[6].place == "Sec 1, proof of Lem 3"


def test_no_word_of_the_text_is_lost() -> None:
    words = re.sub(r"[\s|]+|-{3,}", "", TEXT)
    assert re.sub(r"[\s|]+", "", "".join(unit.text for unit in units(TEXT))) == words


def test_a_number_without_an_entry_and_another_text_are_found() -> None:
    found = units(TEXT)
    listed = [Entry(unit.number, unit.place, unit.hash, "prose") for unit in found]
    assert list(flaws(listed, [], found)) == []
    [lacking] = flaws(listed[:-1], [], found)
    assert lacking.endswith("has no entry")
    [changed] = flaws([replace(listed[0], hash="0" * 12), *listed[1:]], [], found)
    assert changed.endswith("has another text than the one that was read")


def test_flaws_are_named() -> None:
    [statement, *_] = select("complexity", ["count"])
    said = Entry(1, "Sec 3.1", "ab", "assertion", "D = Σ n_l (n_{l-1} + 1)", ("count",))
    assert list(flaws([said], [statement])) == []
    [unknown, unused] = flaws([replace(said, by=("Thm 99",))], [statement])
    assert "names 'Thm 99', which is no statement" in unknown
    assert "is called printed and executes no assertion" in unused
    [both] = flaws([replace(said, why="a definition")], [statement])
    assert "it is one or the other" in both
    [silent] = flaws([replace(said, says="")], [statement])
    assert "without our words" in silent
    [kind] = flaws([replace(said, kind="prose")], [replace(statement, source="ours")])
    assert "is a prose with words of an assertion" in kind


def test_a_reading_is_taken_over_and_kept_when_the_text_is_numbered_anew() -> None:
    found = units(TEXT)
    listed = kept.renewed((), found)
    assert {entry.kind for entry in listed} == {"unread", "prose", "citation"}
    read = kept.merged(listed, "2 motivation\n3 assertion rank ≤ 2 => count\n3 assertion more\n")
    assert [entry.says for entry in read if entry.number == 3] == ["rank ≤ 2", "more"]
    assert coverage("x", read).waiting == 1
    later = kept.renewed(read, units(TEXT.replace("## 1", "# Title\n\n## 1")))
    assert [entry.number for entry in later if entry.says] == [4, 4]
    with pytest.raises(ValueError, match="the reading has the line '3 theorem'"):
        kept.merged(listed, "3 theorem")


def test_the_command_shows_the_counts() -> None:
    result = CliRunner().invoke(app, ["verify", "--coverage"])
    assert result.exit_code == 0, result.output
    for paper in PAPERS:
        assert f"{paper}: {coverage(paper)}" in result.output
    one = CliRunner().invoke(app, ["verify", "riemann", "--coverage"])
    assert one.output.splitlines() == [f"riemann: {coverage('riemann')}"]
