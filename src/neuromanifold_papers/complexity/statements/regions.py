"""complexity, Figs. 5 and 6: regions sampled against functional dimension, as the study measured
them.
"""

import math
from collections.abc import Iterator
from typing import Any

from neuromanifold_papers.check import Check, Interval, at_least, at_most
from neuromanifold_papers.complexity.claims import OVER_RUNS, OVER_SEEDS
from neuromanifold_papers.complexity.statements.figures import (
    PAPER,
    STRONG,
    TYPICALLY,
    WELL_BELOW,
    Measured,
    chosen,
    percent,
)
from neuromanifold_papers.recorded import Claims, StudyCases
from neuromanifold_papers.statement import Statement, control, statement

INPUTS = {"Fig 5": 1, "Fig 6": 8}


def of_shares(mean: float, seeds: int) -> Interval:
    """Hoeffding's 95 % interval of the mean of so many independent numbers in [0, 1], half-width
    √(log(40)/2n).

    Snapshots of a run depend on one another, and so do runs from one seed on several data sets:
    each seed counts once. It serves where all are equal and the bootstrap would give a point.

    >>> print(of_shares(0.9, 50))
    0.9 [0.707935, 1]
    """
    half = math.sqrt(math.log(40) / (2 * seeds))
    return Interval(mean, max(0.0, mean - half), min(1.0, mean + half))


def _ratio_name(figure: str) -> str:
    return f"exact / ({INPUTS[figure] + 1}·regions), mean"


def near(low: float, high: float) -> Measured:
    """An interval close to a threshold: what a control must tell from one on its other side."""
    return Measured("", Interval((low + high) / 2, low, high), 0.0)


def correlation_check(case: Measured) -> Check:
    """Strong: the mean correlation along training is at least 0.7."""
    return at_least(case.value, STRONG, hypotheses=case.hypotheses)


def correlation_statement(figure: str, **more: Any) -> Statement:
    """Functional dimension and regions sampled are correlated along training."""

    def pick(claims: Claims) -> Iterator[Measured]:
        for measured in chosen(claims, figure, "functional dimension and regions"):
            for name, text in measured[OVER_RUNS].items():
                lowest, found = (
                    measured["lowest run"][name],
                    {"data": name, "lowest run": measured["lowest run"][name]},
                )
                yield Measured(
                    f"{name}: mean Pearson correlation", Interval.read(text), lowest, found
                )

    return statement(
        f"{figure} (correlation)",
        StudyCases(PAPER, pick),
        control(
            "a mean between 0.6 and 0.68", lambda: near(0.6, 0.68), passes=lambda: near(0.72, 0.8)
        ),
        says="functional dimension and regions sampled are strongly correlated along training (mean Pearson correlation ≥ 0.7; 95 % intervals by the bootstrap over runs)",
        method="training",
        **more,
    )(correlation_check)


def bound_statement(figure: str) -> Statement:
    """No snapshot has a functional dimension above (n_0 + 1)·regions."""
    n = INPUTS[figure]

    def pick(claims: Claims) -> Iterator[dict[str, int]]:
        yield from chosen(claims, figure, "functional dimension ≤")

    def measure(found: dict[str, int]) -> Check:
        violations = found["violations"] + found["violations of Σ min"]
        return at_most(violations, 0, comparisons=found["snapshots"], inputs=n)

    return statement(
        f"{figure} (bound)",
        StudyCases(PAPER, pick),
        control(
            "a snapshot above the bound",
            lambda: {"violations": 1, "violations of Σ min": 0, "snapshots": 1},
        ),
        says=f"in all snapshots functional dimension ≤ ({n} + 1)·regions sampled, and ≤ Σ "
        f"min(samples in the region, {n} + 1)",
        method="training",
    )(measure)


def slack_check(case: Measured) -> Check:
    """Well below: a mean ratio of at most one half."""
    return at_most(case.value, WELL_BELOW, hypotheses=case.hypotheses)


def slack_statement(figure: str, **more: Any) -> Statement:
    """The functional dimension is well below the bound."""

    def pick(claims: Claims) -> Iterator[Measured]:
        for measured in chosen(claims, figure, "functional dimension is well below"):
            attained = percent(measured["snapshots that attain Σ min"])
            ratio = Interval.read(measured[OVER_SEEDS])
            yield Measured("mean of rank / bound", ratio, attained, {"inputs": INPUTS[figure]})

    return statement(
        f"{figure} (well below)",
        StudyCases(PAPER, pick),
        control(
            "a mean between 0.52 and 0.6", lambda: near(0.52, 0.6), passes=lambda: near(0.4, 0.48)
        ),
        says=f"the functional dimension is well below ({INPUTS[figure]} + 1)·regions (a mean "
        "ratio of at most one half; 95 % "
        "interval by the bootstrap over seeds)",
        method="training",
        confirm=lambda case: at_most(case.again, TYPICALLY),
        route="the share of snapshots that attain Σ min(samples in the region, n_0 + 1) exactly",
        **more,
    )(slack_check)


def _more_regions(claims: Claims) -> Iterator[Measured]:
    """The share of snapshots with more regions than dimensions; `again`: regions per dimension
    on average.
    """
    for measured, ratios in zip(
        chosen(claims, "Fig 5", "the number of regions"),
        chosen(claims, "Fig 5", "functional dimension is well below"),
        strict=True,
    ):
        share = percent(measured["snapshots with more regions than dimensions"])
        yield Measured(
            "share of snapshots with more regions than dimensions",
            of_shares(share, measured["seeds"]),
            1 / (2 * ratios[_ratio_name("Fig 5")]),
            {"inputs": 1},
        )


@statement(
    "Fig 5 (more regions)",
    StudyCases(PAPER, _more_regions),
    control("never more regions than dimensions", lambda: Measured("", 0.0, 0.0)),
    method="training",
    confirm=lambda case: at_least(case.again, 1.0),
)
def more_regions(case: Measured) -> Check:
    """With one input the number of intervals sampled is typically greater than the functional
    dimension (in at least half of the snapshots).

    Typically: in more than half of the snapshots.
    """
    return at_least(case.value, TYPICALLY, hypotheses=case.hypotheses)


FIGURE_5 = (
    correlation_statement("Fig 5"),
    bound_statement("Fig 5"),
    slack_statement(
        "Fig 5",
        worked="""On f1–f3 (one input) the mean of rank/(2·regions) over 1,845 snapshots is 0.908, and 84.9 % of them attain Σ
min(samples in the region, 2) exactly: the bound is nearly an equality. It is slack with eight inputs (Fig 6: 0.14). The
interval is the bootstrap's over the 15 seeds, each of which starts a run on each of f1–f3.""",
    ),
    more_regions,
)
FIGURE_6 = (correlation_statement("Fig 6"), bound_statement("Fig 6"), slack_statement("Fig 6"))
