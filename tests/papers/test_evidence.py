"""The machinery of `verify`, on statements of arithmetic whose truth is known."""

from dataclasses import replace

import pytest

from neuromanifold.papers import Check, Control, Statement, examine, kind, seen_to_fail

ODD_SQUARES = Statement(
    paper="arithmetic",
    row="1",
    id="1",
    says="the square of an odd number leaves 1 when divided by 8",
    method="exact",
    cases=lambda rng, draws: [*range(1, 9), *rng.integers(9, 1000, size=draws).tolist()],
    measure=lambda n: Check(n * n % 8, 1, hypotheses={"n": n}, vacuous=n % 2 == 0),
    control=Control("an even number", lambda: Check(2 * 2 % 8, 1)),
    exhaustive="1 ≤ n ≤ 8",
    show=lambda n: f"n = {n}",
)
# Euler's n² + n + 41 is prime up to n = 39.
EULER = Statement(
    paper="arithmetic",
    row="2",
    id="2 (Euler)",
    says="n² + n + 41 is prime for every n",
    method="exact",
    cases=lambda rng, draws: range(30, 60),
    measure=lambda n: Check(sum((n * n + n + 41) % k == 0 for k in range(2, n + 2)), 0, "<="),
    control=Control("n² + n + 40 at n = 1", lambda: Check(sum(42 % k == 0 for k in range(2, 7)), 0, "<=")),
    confirm=lambda n: Check(n * n + n + 41, 41 * 41, ">=") if n != 40 else Check(1, 0),
    route="40² + 40 + 41 = 41²",
    show=lambda n: f"n = {n}",
)


def test_an_enumerated_truth_holds_and_says_what_was_covered() -> None:
    evidence = examine(ODD_SQUARES, draws=20)
    assert (evidence.verdict, evidence.counterexample, evidence.margin) == ("holds", None, 0.0)
    assert evidence.cases == 28
    assert 4 <= evidence.vacuous < 28
    assert "values from 1 to" in evidence.covered["n"]


def test_a_sampled_truth_says_how_many_cases_spoke() -> None:
    evidence = examine(replace(ODD_SQUARES, exhaustive=""), draws=0)
    assert evidence.verdict == "no counterexample in 4"
    assert kind(evidence.verdict) == "no counterexample"


def test_a_failure_is_minimal_and_confirmed_by_the_second_route() -> None:
    evidence = examine(EULER)
    assert (evidence.verdict, evidence.counterexample) == ("fails", "n = 40")
    assert len(evidence.routes) == 2
    assert evidence.routes[1].startswith("40² + 40 + 41 = 41²")


def test_a_counterexample_is_minimised_while_simpler_cases_fail() -> None:
    from_far = replace(EULER, cases=lambda rng, draws: [81], smaller=lambda n: [n - 41])
    assert examine(from_far).counterexample == "n = 40"


def test_a_failure_without_a_second_route_is_not_a_verdict() -> None:
    assert examine(replace(EULER, confirm=None)).verdict.startswith("unconfirmed")
    assert examine(replace(EULER, confirm=lambda n: Check(0, 0))).verdict.startswith("unconfirmed")


def test_an_amendment_counts_only_when_it_is_true() -> None:
    below = replace(
        EULER, says="n² + n + 41 is prime for n < 40", cases=lambda rng, draws: range(40), exhaustive="n < 40"
    )
    assert examine(replace(EULER, amended=below)).verdict == "holds as amended"
    assert examine(replace(EULER, amended=EULER)).verdict == "fails"


def test_a_control_that_passes_makes_the_check_worthless() -> None:
    assert examine(replace(ODD_SQUARES, control=Control("nothing", lambda: Check(1, 1)))).verdict.startswith(
        "worthless"
    )
    assert not seen_to_fail(Check(1.0 + 5e-9, 1.0, tolerance=1e-9))
    assert seen_to_fail(Check(1.0 + 5e-8, 1.0, tolerance=1e-9))


def test_a_check_that_never_speaks_is_vacuous() -> None:
    assert examine(replace(ODD_SQUARES, cases=lambda rng, draws: [2, 4])).verdict.startswith("vacuous")


def test_a_side_that_is_not_a_number_fails() -> None:
    assert not Check(float("nan"), 0.0, tolerance=1.0).holds


def test_cases_depend_on_the_seed_and_the_statement_alone() -> None:
    drawn: list[int] = []
    spy = replace(ODD_SQUARES, measure=lambda n: (drawn.append(n), ODD_SQUARES.measure(n))[1])
    for seed in (0, 0, 1):
        examine(spy, draws=5, seed=seed)
    first, second, third = drawn[8:13], drawn[21:26], drawn[34:39]
    assert first == second != third


@pytest.mark.parametrize(("name", "means"), [("2", True), ("2(euler)", True), ("Euler", False), ("1", False)])
def test_statements_answer_to_their_names(name: str, means: bool) -> None:
    assert EULER.answers_to(name) == means
