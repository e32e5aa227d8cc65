"""What every paper's statements are held to."""

from neuromanifold.theorems import Statement, examine, recorded_verdicts

RECORDED = recorded_verdicts()


def statement_name(statement: Statement) -> str:
    return f"{statement.paper} {statement.id}"


def assert_recorded(statement: Statement) -> None:
    """On few random cases: the recorded verdict, a control that fails by more than ten tolerances, cases that speak."""
    evidence = examine(statement, draws=2)
    assert evidence.kind == RECORDED[statement.paper][statement.id]["verdict"], evidence
    assert evidence.control_violation is not None
    assert evidence.control_violation > 10 * evidence.control_tolerance
    assert evidence.cases > evidence.vacuous
