"""Names in the documents are names in the code."""

import re
from pathlib import Path

import pytest

import neuromanifold as nm
from neuromanifold.report.terms import TERMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"\bnm((?:\.[A-Za-z_]\w*)+)")


def unknown(page: str) -> list[str]:
    """The names on `nm` in the code spans of a page that do not exist."""
    names = {
        found
        for span in CODE.findall(re.sub(r"```.*?```", "", page, flags=re.DOTALL))
        for found in NAME.findall(span)
    }
    return sorted(f"nm{name}" for name in names if not exists(name))


def exists(dotted: str) -> bool:
    """Whether the attributes can be followed; what a call returns cannot be asked, so a name
    ends at the first class or function.
    """
    value = nm
    for part in dotted.strip(".").split("."):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_in_a_page_exist(page: Path):
    assert unknown(page.read_text()) == []


def test_a_name_that_does_not_exist_is_caught():
    assert unknown("`nm.ntk(f, params, x)` and `nm.kernel_of_everything`") == [
        "nm.kernel_of_everything"
    ]


def test_the_path_through_the_pages_is_complete():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    scripts = {f"tutorials/{path.stem}.md" for path in (ROOT / "docs" / "tutorials").glob("*.py")}
    assert {path.relative_to(ROOT / "docs").as_posix() for path in PAGES[1:]} | scripts == listed


SOUGHT = (
    "pruning", "compression", "overparameterization", "lossless", "identifiability", "glossary", "dead neurons",
)  # fmt: skip


def test_the_glossary_has_the_words_people_search_for_and_those_of_the_report():
    page = (ROOT / "docs" / "glossary.md").read_text()
    assert [word for word in SOUGHT if word not in page.lower()] == []
    assert [term for term, text in TERMS.items() if f"- **{term}**: {text}." not in page] == []
