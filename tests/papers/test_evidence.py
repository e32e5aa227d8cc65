"""The machinery of `verify`, on statements of arithmetic whose truth is known."""

from dataclasses import replace

import jax
import pytest

from neuromanifold_papers import (
    KINDS,
    Check,
    Control,
    Interval,
    Statement,
    examine,
    inside,
    kind,
    outside,
    seen_to_fail,
    thinned,
)

ODD_SQUARES = Statement(
    paper="arithmetic",
    id="1",
    says="the square of an odd number leaves 1 when divided by 8",
    method="exact",
    cases=lambda rng, draws: [*range(1, 9), *rng.integers(9, 1000, size=draws).tolist()],
    measure=lambda n, rest=1: Check(
        n * n % 8, rest, hypotheses={"n": n}, drops=outside("n is even", when=n % 2 == 0)
    ),
    control=Control("an even number", case=lambda: 2),
    exhaustive="1 ≤ n ≤ 8",
    show=lambda n: f"n = {n}",
)
# Euler's n² + n + 41 is prime up to n = 39.
EULER = Statement(
    paper="arithmetic",
    id="2 (Euler)",
    says="n² + n + 41 is prime for every n",
    method="exact",
    cases=lambda rng, draws: range(30, 60),
    measure=lambda n, last=41: Check(
        sum((n * n + n + last) % k == 0 for k in range(2, n + 2)), 0, "<="
    ),
    control=Control("n² + n + 40 at n = 5", case=lambda: 5, breaks={"last": 40}),
    confirm=lambda n: Check(n * n + n + 41, 41 * 41, ">=") if n != 40 else Check(1, 0),
    route="40² + 40 + 41 = 41²",
    severity="false",
    show=lambda n: f"n = {n}",
)
# Dice: the mean of a throw is 3.5, measured with intervals.
DICE = replace(
    EULER,
    id="3",
    says="the mean of a throw is at most 4",
    cases=lambda rng, draws: [Interval(3.5, 3.3, 3.7), Interval(3.6, 3.4, 3.8)],
    measure=lambda mean, most=4.0: Check(mean, most, "<="),
    control=Control("at most 3", case=lambda: Interval(3.5, 3.3, 3.7), breaks={"most": 3.0}),
    confirm=lambda mean: Check(mean.estimate, 4.0, "<="),
    show=str,
)


def test_an_enumerated_truth_holds_and_says_what_was_covered() -> None:
    evidence = examine(ODD_SQUARES, draws=20)
    assert (evidence.verdict, evidence.counterexample, evidence.margin) == ("holds", None, 0.0)
    assert "values from 1 to" in evidence.covered["n"]
    [dropped] = evidence.dropped
    assert (dropped.reason, dropped.inside, dropped.parts) == ("n is even", False, 0)
    assert evidence.cases + dropped.cases == 28
    assert 4 <= dropped.cases < 28


def test_a_sampled_truth_says_how_many_cases_spoke() -> None:
    evidence = examine(replace(ODD_SQUARES, exhaustive=""), draws=0)
    assert evidence.verdict == "no counterexample in 4"
    assert kind(evidence.verdict) == "no counterexample"


def test_what_is_dropped_inside_the_hypotheses_must_be_said() -> None:
    def measure(n: int) -> Check:
        return Check(
            n * n % 8, 1, drops=outside("n is even", when=n % 2 == 0) + inside("n > 5", when=n > 5)
        )

    silent = replace(ODD_SQUARES, measure=measure)
    assert examine(silent, draws=0).verdict.startswith(
        "silent: it drops cases inside its hypotheses"
    )
    said = examine(replace(silent, narrower="n ≤ 5"), draws=0)
    assert said.verdict == "holds"
    # 6 and 8 are even as well: a reason outside the hypotheses comes first.
    assert [(d.reason, d.cases) for d in said.dropped] == [("n is even", 4), ("n > 5", 1)]


def test_parts_of_a_case_are_dropped_and_counted() -> None:
    def measure(n: int, right: int = 0) -> Check:
        return Check(0, right, cases=2, comparisons=10, drops=inside("unequal ranks", parts=n))

    evidence = examine(replace(ODD_SQUARES, cases=lambda rng, draws: [0, 3, 4], measure=measure, narrower="equal ranks",
                               control=Control("1 for 0", case=lambda: 0, breaks={"right": 1})))  # fmt: skip
    assert (evidence.cases, evidence.comparisons) == (6, 30)
    assert [str(d) for d in evidence.dropped] == [
        "7 comparisons inside the hypotheses: unequal ranks"
    ]


def test_cases_are_independent_and_comparisons_are_what_was_compared_on_them() -> None:
    control = Control("0 for 1", case=lambda: 3, breaks={"right": 0})
    many = replace(
        ODD_SQUARES, measure=lambda n, right=1: Check(1, right, comparisons=1000), control=control
    )
    evidence = examine(many, draws=0)
    assert (evidence.cases, evidence.comparisons, evidence.verdict) == (8, 8000, "holds")


def test_a_failure_is_minimal_and_confirmed_by_the_second_route() -> None:
    evidence = examine(EULER)
    assert (evidence.verdict, evidence.counterexample) == ("fails as printed (false)", "n = 40")
    assert len(evidence.routes) == 2
    assert evidence.routes[1].startswith("40² + 40 + 41 = 41²")


def test_a_counterexample_is_minimised_while_simpler_cases_fail() -> None:
    from_far = replace(EULER, cases=lambda rng, draws: [81], smaller=lambda n: [n - 41])
    assert examine(from_far).counterexample == "n = 40"


def test_a_failure_without_a_second_route_is_not_a_verdict() -> None:
    assert examine(replace(EULER, confirm=None)).verdict.startswith("unconfirmed")
    assert examine(replace(EULER, confirm=lambda n: Check(0, 0))).verdict.startswith("unconfirmed")


def test_an_amendment_counts_only_when_it_is_true_and_is_ours() -> None:
    below = replace(
        EULER,
        says="n² + n + 41 is prime for n < 40",
        cases=lambda rng, draws: range(40),
        exhaustive="n < 40",
    )
    found = examine(replace(EULER, amended=below))
    assert (found.verdict, found.kind) == (
        "fails as printed (false); true instead",
        "fails; true instead",
    )
    assert found.amendment is not None
    assert (found.amendment["source"], found.amendment["proof"]) == ("ours", "no proof")
    assert examine(replace(EULER, amended=EULER)).verdict == "fails as printed (false)"
    ours = examine(replace(EULER, amended=below, source="ours"))
    assert ours.verdict == "fails (false); true instead", "not printed, so not failing as printed"


def test_a_case_just_inside_must_hold() -> None:
    close = replace(DICE, control=replace(DICE.control, passes=lambda: Interval(3.9, 3.85, 3.95)))
    evidence = examine(close)
    assert evidence.verdict == "no counterexample in 2"
    assert evidence.control.endswith("; just inside: 3.9 [3.85, 3.95] ≤ 4")
    stricter = replace(close, measure=lambda mean, most=3.8: Check(mean, most, "<="))
    assert examine(stricter).verdict == "worthless: the case just inside does not hold"
    assert examine(replace(stricter, control=DICE.control)).verdict == "no counterexample in 2", (
        "there is room"
    )


def test_explicit_objects_are_constructive_and_no_counterexample_is_not_said() -> None:
    built = replace(ODD_SQUARES, constructive="the cost of one network stands for the least")
    evidence = examine(built, draws=0)
    assert (evidence.verdict, evidence.kind) == ("constructive in 4", "constructive")


def test_an_interval_decides_only_when_all_of_it_agrees() -> None:
    above, below, across = Interval(4.5, 4.2, 4.8), Interval(3.5, 3.3, 3.7), Interval(4.1, 3.9, 4.3)
    checks = {
        name: Check(side, 4.0, "<=")
        for name, side in {"fails": above, "holds": below, "open": across}.items()
    }
    assert (checks["fails"].fails, checks["holds"].holds, checks["open"].undecided) == (
        True,
        True,
        True,
    )
    assert [check.holds + check.fails + check.undecided for check in checks.values()] == [1, 1, 1]
    assert Check(above, 4.0, ">=").holds
    assert Check(across, 4.0, "=").undecided, "an interval that contains a number does not prove it"
    assert Check(across, 4.0, "=", tolerance=0.5).holds
    assert Check(above, 4.0, "=").violation == pytest.approx(0.2)


def test_one_rule_for_what_was_sampled() -> None:
    assert examine(DICE).verdict == "no counterexample in 2"
    across = lambda rng, draws: [Interval(3.5, 3.3, 3.7), Interval(4.1, 3.9, 4.3)]  # noqa: E731
    assert examine(replace(DICE, cases=across)).verdict == "undecided"
    above = lambda rng, draws: [Interval(4.1, 3.9, 4.3), Interval(4.5, 4.2, 4.8)]  # noqa: E731
    refuted = examine(replace(DICE, cases=above))
    assert (refuted.verdict, refuted.counterexample) == (
        "fails as printed (false)",
        "4.5 [4.2, 4.8]",
    )


def test_what_the_print_leaves_out_is_not_reproduced_rather_than_false() -> None:
    above = lambda rng, draws: [Interval(4.5, 4.2, 4.8)]  # noqa: E731
    vague = replace(DICE, cases=above, missing="which dice", confirm=None)
    assert examine(vague).verdict == "not reproduced"
    assert examine(replace(DICE, missing="which dice")).verdict == "no counterexample in 2"


def test_intervals_are_read_as_the_studies_write_them() -> None:
    assert Interval.read("29.9 ± 4.7 (15)") == Interval(29.9, 29.9 - 4.7, 29.9 + 4.7)
    assert Interval.read("-3.5 [-9.4, +2.4]") == Interval(-3.5, -9.4, 2.4)
    assert Interval.read("−0.53 [−0.57, −0.48]") == Interval(-0.53, -0.57, -0.48)
    with pytest.raises(ValueError, match="write an interval as"):
        Interval.read("no successful run")
    with pytest.raises(ValueError, match="the estimate must lie between its ends"):
        Interval(1.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="and be a number"):
        Interval(float("nan"), 0.0, 0.0)


def test_a_control_that_passes_makes_the_check_worthless() -> None:
    weak = Control("an odd number", case=lambda: 3)
    assert examine(replace(ODD_SQUARES, control=weak)).verdict.startswith("worthless")
    assert not seen_to_fail(Check(1.0 + 5e-9, 1.0, tolerance=1e-9))
    assert seen_to_fail(Check(1.0 + 5e-8, 1.0, tolerance=1e-9))


def test_a_control_whose_case_fails_without_the_planted_error_is_worthless() -> None:
    strict = replace(
        ODD_SQUARES,
        measure=lambda n, rest=1: Check(n * n % 8, rest),
        control=Control("a rest of 2, of an even number", case=lambda: 4, breaks={"rest": 2}),
    )
    assert examine(strict, draws=0).verdict.startswith("worthless: the control's case")
    hopeless = replace(strict, cases=lambda rng, draws: [2, 4])
    assert examine(hopeless, draws=0).verdict.startswith("unconfirmed"), "every case fails"


def test_a_control_is_measured_by_the_statement_itself() -> None:
    broken = Control("a rest of 2", case=lambda: 3, breaks={"rest": 2})
    assert examine(replace(ODD_SQUARES, control=broken), draws=0).control == "a rest of 2: 1 ≠ 2"
    blind = replace(
        ODD_SQUARES,
        measure=lambda n: Check(1, 1),
        control=Control("an even number", case=lambda: 2),
    )
    assert examine(blind, draws=0).verdict.startswith("worthless"), (
        "a measure that sees nothing fails its control"
    )


def test_a_check_that_never_speaks_is_vacuous() -> None:
    evidence = examine(replace(ODD_SQUARES, cases=lambda rng, draws: [2, 4]))
    assert evidence.verdict.startswith("vacuous")
    assert evidence.silent
    assert evidence.kind not in KINDS


def test_a_side_that_is_not_a_number_fails() -> None:
    assert not Check(float("nan"), 0.0, tolerance=1.0).holds
    assert Check(float("nan"), 0.0, tolerance=1.0).fails


def test_cases_depend_on_the_key_and_the_statement_alone() -> None:
    drawn: list[int] = []
    spy = replace(ODD_SQUARES, measure=lambda n: (drawn.append(n), ODD_SQUARES.measure(n))[1])
    for seed in (0, 0, 1):
        found = examine(spy, draws=5, key=jax.random.key(seed))
        assert found.seed == seed
    first, second, third = drawn[8:13], drawn[22:27], drawn[36:41]
    assert first == second != third
    with pytest.raises(TypeError, match="`key` is 3; pass a JAX key"):
        examine(spy, key=3)


def test_thinning_keeps_the_smallest_and_a_systematic_sample_of_the_rest() -> None:
    seen: list[int] = []
    control = Control("1 for 0", case=lambda: -1, breaks={"right": 1})
    spy = replace(
        EULER,
        cases=lambda rng, draws: range(100),
        measure=lambda n, right=0: (seen.append(n), Check(0, right))[1],
        control=control,
    )
    examine(thinned(spy, first=3, every=10))
    assert seen == [0, 1, 2, 10, 20, 30, 40, 50, 60, 70, 80, 90, -1, -1]


@pytest.mark.parametrize(
    ("name", "means"), [("2", True), ("2(euler)", True), ("Euler", False), ("1", False)]
)
def test_statements_answer_to_their_names(name: str, means: bool) -> None:
    assert EULER.answers_to(name) == means
