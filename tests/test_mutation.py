"""The mutation tool, on statements that notice errors and on one that cannot."""

import importlib
import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import mutate_statements as tool
from mutants import mutants
from mutate_statements import baseline, noticed
from mutation_results import Judged, Result, explained, write_page
from mutation_targets import Target
from neuromanifold_papers import Check, Control, Statement
from reachable import classes_of, functions, rebind

SOURCE = """
from dataclasses import dataclass
from functools import lru_cache

from neuromanifold_papers import Check

SIDES = (3, 4, 5)
ROUNDING = 64


@dataclass(frozen=True)
class Triangle:
    a: int
    b: int

    @property
    def square(self):
        return self.a**2 + self.b**2

    def unused(self):
        return self.a - self.b


@lru_cache
def root(n):
    return next(k for k in range(n + 1) if k * k >= n)


def hypotenuse(case):
    return root(case.square)


def drawn(rng, case):
    return rng.integers(case.a + 1)


def exact(case, wanted=hypotenuse):
    hypotheses = {"legs": case.a + case.b}
    return Check(wanted(case) ** 2, case.a**2 + case.b**2, "=", 64 * 1e-16, hypotheses=hypotheses)


def loose(case, excess=0):
    return Check(0 * hypotenuse(case) + excess, 1, "<=")
"""


@pytest.fixture
def toy(tmp_path: Path) -> ModuleType:
    (tmp_path / "toy_triangles.py").write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    sys.modules.pop("toy_triangles", None)
    yield importlib.import_module("toy_triangles")
    sys.path.remove(str(tmp_path))


class ToyTarget(Target):
    prefix = "toy_triangles"


def target(toy: ModuleType, measure: str = "exact") -> ToyTarget:
    statement = Statement(
        paper="toy",
        id="1",
        says="c² = a² + b²",
        method="exact",
        cases=lambda rng, draws: [toy.Triangle(3, 4), toy.Triangle(5, 12)],
        measure=getattr(toy, measure),
        control=Control("no right angle", case=lambda: toy.Triangle(1, 1))
        if measure == "exact"
        else Control("an excess of 9", case=lambda: toy.Triangle(3, 4), breaks={"excess": 9}),
        show=str,
    )
    return ToyTarget("1", statement)


def outcomes(found: Target) -> dict[str, str]:
    """What becomes of every mutant."""
    before, results = baseline(found), {}
    for mutant in mutants(found.reached, found.prefix):
        restore = mutant.apply()
        tool.Caches(found.prefix).clear(found.reached)
        results[f"{mutant.kind}: {mutant.name}"] = noticed(found, before)
        restore()
        tool.Caches(found.prefix).clear(found.reached)
    return results


def test_what_a_measure_uses_is_found_and_what_draws_or_is_not_asked_for_is_not(
    toy: ModuleType,
) -> None:
    found = {f.__qualname__ for f in target(toy).reached}
    assert found == {"exact", "hypotenuse", "root", "Triangle.square"}
    assert toy.Triangle in classes_of((toy.Triangle(3, 4), {"x": 1}))
    assert toy.drawn not in functions(toy.drawn, "toy_triangles")


def test_an_exact_statement_notices_every_change_of_a_number(toy: ModuleType) -> None:
    results = outcomes(target(toy))
    assert len(results) > 15
    survivors = [name for name, result in results.items() if result == tool.SURVIVES]
    assert survivors == []
    assert {"index ± 1", "sign", "operator", "factor 1.1", "≤ for <"} <= {
        n.partition(":")[0] for n in results
    }
    assert not any("legs" in name or "64" in name or "1e-16" in name for name in results), (
        "labels and tolerances are left alone"
    )


def test_a_statement_that_cannot_fail_lets_its_mutants_live(toy: ModuleType) -> None:
    results = outcomes(target(toy, "loose"))
    assert results["relation: toy_triangles.loose: `'<='` → `'>='`"] == "verdict"
    inside = {
        result for name, result in results.items() if "root" in name and "error" not in result
    }
    assert inside == {tool.NO_EFFECT}, "0 times anything is 0"
    assert results["index ± 1: toy_triangles.loose: `1` → `2`"] == tool.SURVIVES


def test_everything_is_as_before_when_a_mutant_is_undone(toy: ModuleType) -> None:
    found = target(toy)
    codes = [f.__code__ for f in found.reached]
    for mutant in mutants(found.reached, found.prefix):
        mutant.apply()()
        assert [f.__code__ for f in found.reached] == codes
        assert toy.SIDES == (3, 4, 5)
    assert found.statement.measure(toy.Triangle(3, 4)).holds


def test_a_default_that_was_bound_is_bound_anew_and_back(toy: ModuleType) -> None:
    found = target(toy)
    restore = rebind(found.reached, toy.hypotenuse, lambda case: 0)
    assert not found.statement.measure(toy.Triangle(3, 4)).holds
    restore()
    assert found.statement.measure(toy.Triangle(3, 4)).holds


def test_what_an_amendment_changes_is_found_and_broken(toy: ModuleType) -> None:
    """An ingredient in words alone is reached, rebound and mutated like a default."""
    loose = replace(target(toy, "loose").statement, paper="complexity")
    amended = loose.amend(excess=1)("0 is less than 1")
    assert {f.__qualname__ for f in ToyTarget("1", amended).reached} >= {"loose", "hypotenuse"}
    changes = {
        m.name for m in mutants(functions(amended.measure, "toy_triangles"), "toy_triangles")
    }
    assert {"toy_triangles.loose: excess: 1 → 2", "toy_triangles.loose: excess: 1 → 0"} <= changes
    with pytest.raises(ValueError, match=r"`changed` names \['slack'\]; loose has no such default"):
        loose.amend(slack=1)("nothing")


def test_a_mutant_that_does_not_end_is_stopped(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = target(toy)
    before = replace(baseline(found), seconds=0.0)
    monkeypatch.setattr(tool, "LEAST_SECONDS", 0.2)

    def endless(case: object, **broken: object) -> Check:
        while True:
            pass

    assert noticed(ToyTarget("1", replace(found.statement, measure=endless)), before) == "time"


def test_the_same_code_has_the_same_fingerprint_and_other_code_another(toy: ModuleType) -> None:
    first, second = target(toy), target(toy)
    assert first.source == second.source
    [mutant, *_] = mutants(first.reached, first.prefix)
    restore = mutant.apply()
    assert target(toy).source != first.source
    restore()


def test_every_statement_of_the_ledger_offers_candidates() -> None:
    """The fingerprints and candidates of two statements, without running them."""
    listed = [t for t in tool.targets("complexity") if t.name in ("Thm 1", "4.6")]
    assert [len(t.reached) > 2 for t in listed] == [True, True]
    assert explained(Path("nowhere.toml")) == {}


def test_a_change_that_takes_a_nested_function_away_is_made_all_the_same(tmp_path: Path) -> None:
    source = "def some(n):\n    return n > 1 and any(k * k == n for k in range(n))\n"
    (tmp_path / "toy_nested.py").write_text(source, encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    module = importlib.import_module("toy_nested")
    sys.path.remove(str(tmp_path))
    dropped = [m for m in mutants([module.some], "toy_nested") if m.kind == "dropped condition"]
    found = []
    for mutant in dropped:
        restore = mutant.apply()
        found.append((module.some(5), module.some(1)))
        restore()
    assert sorted(found) == [(False, False), (True, False)]
    assert not module.some(5)


DOCS = Path(__file__).parents[1] / "docs"


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    return [row for row in rows if len(row) == columns]


def test_every_survivor_on_the_page_has_a_reason_and_both_pages_count_alike() -> None:
    page, ledger = (
        (DOCS / name).read_text(encoding="utf-8") for name in ("survivors.md", "verify.md")
    )
    survivors = [row for row in _rows(page, 4) if row[0] != "statement"]
    assert survivors
    assert all(len(row[3]) > 10 for row in survivors)
    counts = [row for row in _rows(page, 5) if row[0] != "paper"]
    assert counts == [row for row in _rows(ledger, 5) if row[0] != "paper"]
    assert sum(int(row[2]) + int(row[4]) for row in counts) == len(survivors)
    asked = sum(int(row[1]) - int(row[2]) for row in counts)
    found = asked - sum(int(row[4]) for row in counts)
    assert f"notices {100 * found / asked:.1f} %" in ledger
    assert found >= 0.95 * asked


def test_a_survivor_without_a_reason_is_refused(tmp_path: Path) -> None:
    alive = Result("Thm 1", "sign", "nowhere.f", "`+` → `-`", "", 0.1, "")
    with pytest.raises(ValueError, match="1 survivors have no reason"):
        write_page([Judged("complexity", (alive,), ())], tmp_path / "page.md")
