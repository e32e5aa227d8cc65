"""What every paper's statements are held to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from neuromanifold.papers import Statement, StudyCases, examine, recorded_verdicts

RECORDED = recorded_verdicts()
_FIRST, _THEN_EVERY = 60, 6


def statement_name(statement: Statement) -> str:
    return f"{statement.paper} {statement.id}"


def assert_recorded(statement: Statement, draws: Callable[[int], int]) -> None:
    """The recorded verdict, a control that fails by more than ten tolerances, cases that speak.

    `make test` takes the smallest 60 cases and every sixth of the others, `make acceptance` all of them.
    """
    chosen = statement if draws(1) > 1 else _thinned(statement)
    evidence = examine(chosen, draws=draws(2))
    assert evidence.kind == RECORDED[statement.paper][statement.id]["verdict"], evidence
    assert evidence.control_violation is not None
    assert evidence.control_violation > 10 * evidence.control_tolerance
    assert evidence.cases > evidence.vacuous


def _thinned(statement: Statement) -> Statement:
    """The statement and its amendment on a systematic sample of their enumerated cases."""
    if isinstance(statement.cases, StudyCases):
        return statement

    def some(rng: Any, draws: int) -> Any:
        cases = enumerate(statement.cases(rng, draws))
        return (case for index, case in cases if index < _FIRST or index % _THEN_EVERY == 0)

    amended = None if statement.amended is None else _thinned(statement.amended)
    return replace(statement, cases=some, amended=amended)
