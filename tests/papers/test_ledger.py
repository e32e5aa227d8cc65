"""The ledger: every verdict is the recorded one, every control fails clearly."""

import ast
import inspect
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import neuromanifold as nm
from neuromanifold.cli import app
from neuromanifold_papers import (
    KINDS,
    PAPERS,
    SEVERITIES,
    Evidence,
    StudyCases,
    coverage,
    errata_page,
    examine,
    expected,
    ledger,
    merge,
    read_claims,
    read_evidence,
    reading,
    select,
    source_folder,
    statements,
    thinned,
    verify,
    write_evidence,
    write_verdicts,
)
from papers.support import RECORDED, statement_name

ALL = statements()
EVERY = [*ALL, *(statement.amended for statement in ALL if statement.amended is not None)]
FAILED = ("fails", "fails; true instead")


def test_ids_are_unique_and_find_their_statement() -> None:
    assert len({(s.paper, s.id) for s in ALL}) == len(ALL)
    assert all(statement in select(statement.paper, [statement.id]) for statement in ALL)


def test_the_record_knows_every_statement_and_no_other() -> None:
    assert {(paper, item) for paper, items in RECORDED.items() for item in items} == {
        (s.paper, s.id) for s in ALL
    }
    assert {entry["verdict"] for items in RECORDED.values() for entry in items.values()} <= set(
        KINDS
    )


def test_failures_are_recorded_with_the_case_and_two_routes_and_worked_by_hand() -> None:
    for statement in ALL:
        entry = RECORDED[statement.paper][statement.id]
        failed = entry["verdict"] in FAILED
        assert failed == ("counterexample" in entry), statement_name(statement)
        if failed:
            assert len(entry["routes"]) == 2, statement_name(statement)
            assert len(statement.worked) > 80, statement_name(statement)
            assert entry["counterexample"], statement_name(statement)


@pytest.mark.parametrize("paper", PAPERS)
def test_recorded_counterexamples_can_be_pasted(paper: str) -> None:
    for entry in RECORDED[paper].values():
        exec(entry.get("counterexample", ""), {"jax": jax, "np": np, "nm": nm})


def test_the_errata_page_is_generated_from_the_record() -> None:
    page = Path(__file__).parents[2] / "docs" / "errata.md"
    assert page.read_text(encoding="utf-8") == errata_page(ALL, RECORDED)


def test_the_errata_page_gives_the_proof_or_says_that_there_is_none() -> None:
    pieces = next(statement for statement in ALL if statement.id == "4.6")
    assert pieces.amended is not None
    assert "*Proof.* In the cell of a sign pattern" in errata_page([pieces], RECORDED)
    unproved = replace(pieces, amended=replace(pieces.amended, proof="no proof"))
    assert "No proof. Checked" in errata_page([unproved], RECORDED)
    told = replace(pieces, amended=replace(pieces.amended, proof="no proof: W is not known"))
    assert "No proof: W is not known. Checked" in errata_page([told], RECORDED)


def test_every_recorded_failure_says_how_grave_it_is() -> None:
    failed = [s for s in ALL if RECORDED[s.paper][s.id]["verdict"] in FAILED]
    assert len(failed) > 50
    assert [s.id for s in failed if s.severity not in SEVERITIES or not s.severity] == []


def test_what_is_not_printed_is_not_called_printed() -> None:
    [linear] = select("invariant", ["conservation (two-layer linear)"])
    page = errata_page([linear], RECORDED)
    assert linear.source == "ours"
    assert "*Ours, not printed.*" in page
    assert "Printed" not in page
    assert "fails as printed" not in page.partition("## invariant")[2]


def test_ingredients_that_a_control_breaks_belong_to_the_measure() -> None:
    for statement in EVERY:
        offered = inspect.signature(statement.measure).parameters
        assert set(statement.control.breaks) <= set(offered), statement_name(statement)


def test_drops_are_recorded_and_those_inside_the_hypotheses_are_said() -> None:
    for statement in ALL:
        dropped = RECORDED[statement.paper][statement.id].get("dropped", [])
        if any("inside the hypotheses" in reason for reason in dropped):
            assert statement.narrower, statement_name(statement)
    assert any("dropped" in entry for entry in RECORDED["riemann"].values())


def _of_checks() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function of the statements' modules that returns a check."""
    for path in sorted(source_folder().glob("*/statements/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        yield from (
            (f"{path.name} {f.name}", f)
            for f in functions
            if f.returns and ast.unparse(f.returns) == "Check"
        )


def test_nothing_is_passed_over_without_being_counted() -> None:
    """In a measure `continue` follows a count, nothing is caught, and a check of nothing at all
    gives its reason.
    """
    listed = list(_of_checks())
    assert len(listed) > 300
    for name, function in listed:
        for node in ast.walk(function):
            assert not isinstance(node, ast.Try), (
                f"{name} catches errors: a case that cannot be measured is dropped in silence"
            )
            blocks = [getattr(node, field, None) or [] for field in ("body", "orelse")]
            for block in blocks if not isinstance(node, ast.Lambda | ast.IfExp) else ():
                at = next(
                    (i for i, statement in enumerate(block) if isinstance(statement, ast.Continue)),
                    None,
                )
                counted = at is None or (at > 0 and isinstance(block[at - 1], ast.AugAssign))
                assert counted, f"{name} passes over a part without counting it"
            if (
                isinstance(node, ast.Return)
                and isinstance(node.value, ast.Call)
                and _of_nothing(node.value)
            ):
                assert name in CONFIRMS or any(
                    word.arg == "drops" for word in node.value.keywords
                ), f"{name} checks nothing"


def _of_nothing(call: ast.Call) -> bool:
    """`Check(0, 0, …)`."""
    zeros = [part for part in call.args[:2] if isinstance(part, ast.Constant) and part.value == 0]
    return ast.unparse(call.func) == "Check" and len(zeros) == 2


# A second route that says nothing confirms nothing, and the verdict says so.
CONFIRMS = {"theorem13.py _kernel_13_exactly"}


def test_a_bottleneck_case_without_checks_must_say_why() -> None:
    from neuromanifold_papers.bottleneck.statements.cases import worst

    with pytest.raises(ValueError, match="`checks` is empty and `drops` too"):
        worst([], {})


def test_evidence_survives_json_and_a_second_run_keeps_it(tmp_path: Path) -> None:
    chosen = select("complexity", ["Ass 3.1"])
    found = list(verify(chosen, draws=2))
    path = write_evidence(found, tmp_path / "ledger.json")
    again = list(verify(chosen, draws=2, finished=read_evidence(path)))
    assert [item.as_dict() for item in again] == [item.as_dict() for item in found]
    [other] = verify(chosen, draws=3, finished=read_evidence(path))
    assert other.draws == 3
    [third] = verify(chosen, draws=2, key=jax.random.key(1), finished=read_evidence(path))
    assert third.seed == 1


def test_other_flags_of_the_compiler_are_other_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = select("complexity", ["Ass 3.1"])
    [first] = verify(chosen, draws=2)
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} --xla_cpu_enable_fast_math=true")
    [other] = verify(chosen, draws=2, finished=[first])
    assert "--xla_cpu_enable_fast_math=true" in other.flags != first.flags
    assert merge([first], [other]) == [first, other]
    monkeypatch.undo()
    assert list(verify(chosen, draws=2, finished=[first, other])) == [first]


def timeless(item: Evidence) -> Evidence:
    amendment = None if item.amendment is None else item.amendment | {"seconds": 0.0}
    return replace(item, seconds=0.0, amendment=amendment)


def test_two_processes_find_what_one_finds() -> None:
    chosen = select("complexity", ["Ass 3.1", "C.3 (proof)", "Fig 8"])
    apart, here = (list(verify(chosen, draws=2, workers=workers)) for workers in (2, 1))
    assert [timeless(item) for item in apart] == [timeless(item) for item in here]
    assert any(item.amendment for item in here)


def test_statements_made_to_measure_are_examined_in_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "in_processes", lambda *_: pytest.fail("it has no name there"))
    [found] = verify(
        [thinned(statement) for statement in select("complexity", ["Fig 8"])], workers=2
    )
    assert found.id == "Fig 8"


def test_merging_keeps_what_was_held_and_replaces_what_was_found_again() -> None:
    [found] = verify(select("complexity", ["Ass 3.1"]), draws=1)
    others = [replace(found, id=name) for name in ("a", "b", "c")]
    again = replace(found, id="b", verdict="fails")
    merged = merge(others, [again, found])
    assert [(item.id, item.verdict) for item in merged] == [
        ("a", found.verdict), ("b", "fails"), ("c", found.verdict), (found.id, found.verdict),
    ]  # fmt: skip
    assert len(merge(others, [replace(found, id="b", seed=7)])) == 4, (
        "another key is another piece of evidence"
    )


def test_the_evidence_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(
        json.dumps([{"paper": "complexity", "id": "count", "vacuous": 0}]), encoding="utf-8"
    )
    before = path.read_text(encoding="utf-8")
    result = CliRunner().invoke(
        app, ["verify", "complexity", "count", "--resume", "--json", str(path)]
    )
    assert isinstance(result.exception, ValueError)
    assert "does not hold the evidence of this version" in str(result.exception)
    assert path.read_text(encoding="utf-8") == before


def test_resuming_with_one_statement_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    arguments = ["verify", "complexity", "--cases", "1", "--json", str(path)]
    assert (
        CliRunner().invoke(app, [*arguments[:2], "Ass 3.1", "count", *arguments[2:]]).exit_code == 0
    )
    held = [item["id"] for item in json.loads(path.read_text(encoding="utf-8"))]
    assert len(held) == 3
    assert (
        CliRunner().invoke(app, [*arguments[:2], "Fig 8", *arguments[2:], "--resume"]).exit_code
        == 0
    )
    assert [item["id"] for item in json.loads(path.read_text(encoding="utf-8"))] == [*held, "Fig 8"]
    assert CliRunner().invoke(app, [*arguments[:2], "Fig 8", *arguments[2:]]).exit_code == 0
    assert len(json.loads(path.read_text(encoding="utf-8"))) == 1, (
        "without --resume the file is a new one"
    )


def test_verdicts_are_written_as_they_are_read(tmp_path: Path) -> None:
    import tomllib

    written = write_verdicts([], tmp_path, keep=RECORDED)
    assert {
        path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in written
    } == RECORDED


def test_verdicts_are_recorded_in_a_source_tree_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_folder() == Path(__file__).parents[2] / "src/neuromanifold_papers"
    monkeypatch.setattr(
        ledger, "files", lambda package: tmp_path / "lib" / "python" / "neuromanifold_papers"
    )
    with pytest.raises(ValueError, match="is an installed package; clone the project"):
        source_folder()


def test_a_small_scale_verdict_is_recorded_beside_the_papers_own() -> None:
    [evidence] = verify(select("complexity", ["Ass 3.1"]), draws=1)
    record = {"complexity": {evidence.id: {"verdict": "fails", "small": "holds"}}}
    assert (expected(evidence, record), expected(evidence, record, small=True)) == (
        "fails",
        "holds",
    )
    assert expected(evidence, {}) == "not recorded"


def test_recording_at_the_papers_scale_keeps_the_small_verdict(tmp_path: Path) -> None:
    import tomllib

    [evidence] = verify(select("complexity", ["Ass 3.1"]), draws=1)
    for small, kept in (("fails", {"small": "fails"}), ("holds", {})):
        keep = {"complexity": {evidence.id: {"verdict": "fails", "small": small}}}
        [path] = write_verdicts([evidence], tmp_path, keep=keep)
        assert tomllib.loads(path.read_text(encoding="utf-8"))[evidence.id] == {
            "verdict": "holds",
            **kept,
        }


def test_a_small_study_without_the_data_says_nothing_against_the_record() -> None:
    [figure] = select("complexity", ["Fig 6 (correlation)"])
    unmeasured = replace(figure, cases=StudyCases("complexity", lambda claims: ()))
    evidence = examine(unmeasured)
    assert evidence.kind.startswith("vacuous")
    assert expected(evidence, RECORDED, small=True) == evidence.kind
    assert expected(evidence, RECORDED) != evidence.kind


def test_an_edited_summary_is_noticed(tmp_path: Path) -> None:
    assert read_claims("complexity")
    path = tmp_path / "summary.json"
    source = Path(__file__).parents[2] / "src/neuromanifold_papers/complexity/summary.json"
    content = json.loads(source.read_text(encoding="utf-8"))
    content["claims"][0]["borne_out"] = "edited"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(
        ValueError, match="their hash differs; run `neuromanifold reproduce complexity` again"
    ):
        read_claims("complexity", path)


def test_statements_about_training_can_read_another_run(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    replaced = [s for s in reading(ALL, lambda paper: path) if isinstance(s.cases, StudyCases)]
    assert replaced
    assert all(isinstance(s.cases, StudyCases) and s.cases.summary == path for s in replaced)


def test_the_command_prints_a_line_a_summary_and_writes_the_pages(tmp_path: Path) -> None:
    table, page = tmp_path / "ledger.json", tmp_path / "ledger.html"
    result = CliRunner().invoke(
        app,
        ["verify", "bottleneck", "P9", "--cases", "2", "--json", str(table), "--html", str(page)],
    )
    assert result.exit_code == 0, result.output
    assert "fails as printed (constant); true instead" in result.output
    assert f"{coverage('bottleneck')}" in result.output
    assert "every verdict is the recorded one" in result.output
    listed = json.loads(table.read_text(encoding="utf-8"))
    assert {"paper", "id", "statement", "verdict", "cases", "margin", "counterexample"} <= set(
        listed[0]
    )
    text = page.read_text(encoding="utf-8")
    assert "Every verdict is the recorded one." in text
    assert f"{coverage('bottleneck')}" in text
    assert "dropped 40 cases outside" not in text
    assert "x and y are not in one region" in text


def test_a_verdict_that_differs_gives_exit_status_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import neuromanifold_papers as papers

    other = {"bottleneck": {s.id: {"verdict": "holds"} for s in statements("bottleneck")}}
    monkeypatch.setattr(papers, "recorded_verdicts", lambda: other)
    result = CliRunner().invoke(app, ["verify", "bottleneck", "P 9", "--cases", "1"])
    assert result.exit_code == 1
    assert "recorded: holds" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "bottlneck"], "`KEY` is 'bottlneck'; the papers are complexity, invariant"),
        (["verify", "bottleneck", "P 99"], "`ID` 'P 99' names no statement of bottleneck"),
        (["verify", "--resume"], "`--resume` needs `--json FILE`"),
    ],
)
def test_bad_requests_get_one_sentence(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)


def test_a_changed_statement_changes_the_answer() -> None:
    [statement] = select("complexity", ["Ass 3.1"])
    wrong = replace(
        statement,
        measure=lambda case, **broken: replace(statement.measure(case, **broken), right=2),
    )
    assert examine(wrong, draws=1).kind != RECORDED["complexity"]["Ass 3.1"]["verdict"]
