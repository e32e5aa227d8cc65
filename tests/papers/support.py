"""What every paper's statements are held to."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from neuromanifold_papers import Statement, examine, recorded_verdicts, thinned
from reachable import functions

RECORDED = recorded_verdicts()
FIRST = {
    "A.10 (orbit)": 60,
    "Eq 87 (initial decrease)": 60,
    "Thm 6 (shared V)": 60,
    "P 9 (segment)": 30,
    "Eq 19 (ReLU)": 1,
}
"""Statements whose recorded counterexample is met after the twentieth case, or whose cases take ten
seconds each.
"""


def statement_name(statement: Statement) -> str:
    return f"{statement.paper} {statement.id}"


def assert_recorded(statement: Statement, draws: Callable[[int], int]) -> None:
    """The recorded verdict and counterexample, a control that fails by more than ten tolerances,
    cases that speak.

    `make test` takes the smallest 20 cases and every thirtieth of the others, but all of a recorded
    study; `make acceptance` and `make verify` take all.
    """
    thorough = draws(1) > 1 or statement.method == "training"
    chosen = statement if thorough else thinned(statement, first=FIRST.get(statement.id, 20))
    evidence, entry = examine(chosen, draws=draws(2)), RECORDED[statement.paper][statement.id]
    assert evidence.kind == entry["verdict"], evidence
    accused = (
        evidence.kind != "not reproduced"
    )  # what the print leaves out is no counterexample, and none is recorded
    assert entry.get("counterexample") == (evidence.counterexample if accused else None), evidence
    assert entry.get("routes", []) == (list(evidence.routes) if accused else []), evidence
    assert evidence.control_violation is not None
    assert evidence.control_violation > 10 * evidence.control_tolerance
    assert evidence.cases > 0
    if any(dropped.inside for dropped in evidence.dropped):
        assert statement.narrower, "it drops cases inside its hypotheses and does not say so"


def smallest(statement: Statement, n: int) -> Statement:
    """The statement and its amendment on the first `n` cases of their enumerations."""
    amended = None if statement.amended is None else smallest(statement.amended, n)
    return replace(
        statement, cases=lambda rng, draws: islice(statement.cases(rng, draws), n), amended=amended
    )


def assert_planted(
    monkeypatch: pytest.MonkeyPatch,
    statement: Statement,
    module: Any,
    name: str,
    broken: Any,
    *,
    first: int = 12,
    draws: int = 0,
) -> None:
    """With `broken` in the place of `module.name` the `first` cases no longer give the recorded
    verdict.
    """
    few, verdict = smallest(statement, first), RECORDED[statement.paper][statement.id]["verdict"]
    assert examine(few, draws=draws).kind == verdict
    plant(monkeypatch, few, module, name, broken)
    assert examine(few, draws=draws).kind != verdict


def plant(
    monkeypatch: pytest.MonkeyPatch, statement: Statement, module: Any, name: str, broken: Any
) -> None:
    """Put `broken` in the place of `module.name`, also where a measure of the statement has it
    as a default.
    """
    right = getattr(module, name)
    monkeypatch.setattr(module, name, broken)
    prefix = f"neuromanifold_papers.{statement.paper}"
    listed = [
        statement.measure,
        *([statement.amended.measure] if statement.amended is not None else []),
    ]
    for function in (function for measure in listed for function in functions(measure, prefix)):
        defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
        if any(value is right for value in defaults):
            new = tuple(broken if value is right else value for value in defaults)
            monkeypatch.setattr(function, "__defaults__", new)
        for key in [key for key, value in keywords.items() if value is right]:
            monkeypatch.setitem(keywords, key, broken)
