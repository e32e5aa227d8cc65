"""complexity, Figs. 5 and 6: regions sampled against functional dimension, as the study measured
them.
"""

import math
from collections.abc import Iterator

from neuromanifold_papers.check import Check, Interval, at_least, at_most
from neuromanifold_papers.complexity.claims import OVER_RUNS, OVER_SEEDS
from neuromanifold_papers.complexity.statements import figures
from neuromanifold_papers.complexity.statements.figures import Measured
from neuromanifold_papers.recorded import Claims
from neuromanifold_papers.statement import Statement, control

INPUTS = {"Fig 5": 1, "Fig 6": 8}
STRONG, WELL_BELOW, TYPICALLY = 0.7, 0.5, 0.5
"""Our thresholds for the paper's words: a correlation, a ratio to the bound, a share of the
snapshots.
"""


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


def near(low: float, high: float) -> Measured:
    """An interval close to a threshold: what a control must tell from one on its other side."""
    return Measured("", Interval((low + high) / 2, low, high), 0.0)


def correlation_statement(figure: str) -> Statement:
    """Functional dimension and regions sampled are strongly correlated along training: the mean
    correlation is at least 0.7.
    """

    def pick(claims: Claims) -> Iterator[Measured]:
        for measured in figures.chosen(claims, figure, "functional dimension and regions"):
            for name, text in measured[OVER_RUNS].items():
                what, lowest = f"{name}: mean Pearson correlation", measured["lowest run"][name]
                found = {"data": name, "lowest run": lowest}
                yield Measured(what, Interval.read(text), lowest, found)

    return figures.study(
        f"{figure} (correlation)",
        pick,
        control("a mean in [0.6, 0.68]", lambda: near(0.6, 0.68), passes=lambda: near(0.72, 0.8)),
        "functional dimension and regions sampled are strongly correlated along training (mean Pearson correlation ≥ 0.7; 95 % intervals by the bootstrap over runs)",
    )(lambda case: at_least(case.value, STRONG))


def bound_statement(figure: str) -> Statement:
    """No snapshot has a functional dimension above (n_0 + 1)·regions."""
    n = INPUTS[figure]

    def measure(found: dict[str, int]) -> Check:
        violations = found["violations"] + found["violations of Σ min"]
        return at_most(violations, 0, comparisons=found["snapshots"], inputs=n)

    return figures.study(
        f"{figure} (bound)",
        lambda claims: figures.chosen(claims, figure, "functional dimension ≤"),
        control(
            "a snapshot above the bound",
            lambda: {"violations": 1, "violations of Σ min": 0, "snapshots": 1},
        ),
        f"in all snapshots functional dimension ≤ ({n} + 1)·regions sampled, and ≤ Σ "
        f"min(samples in the region, {n} + 1)",
    )(measure)


def slack_statement(figure: str) -> Statement:
    """The functional dimension is well below the bound: the mean ratio is at most one half."""

    def pick(claims: Claims) -> Iterator[Measured]:
        for measured in figures.chosen(claims, figure, "functional dimension is well below"):
            attained = figures.percent(measured["snapshots that attain Σ min"])
            ratio = Interval.read(measured[OVER_SEEDS])
            yield Measured("mean of rank / bound", ratio, attained, {"inputs": INPUTS[figure]})

    return figures.study(
        f"{figure} (well below)",
        pick,
        control("a mean in [0.52, 0.6]", lambda: near(0.52, 0.6), passes=lambda: near(0.4, 0.48)),
        f"the functional dimension is well below ({INPUTS[figure]} + 1)·regions (a mean ratio of at "
        "most one half; 95 % interval by the bootstrap over seeds)",
        confirm=lambda case: at_most(case.again, TYPICALLY),
    )(lambda case: at_most(case.value, WELL_BELOW))


def _more_regions(claims: Claims) -> Iterator[Measured]:
    """The share of snapshots with more regions than dimensions; `again`: regions per dimension
    on average.
    """
    for measured, ratios in zip(
        figures.chosen(claims, "Fig 5", "the number of regions"),
        figures.chosen(claims, "Fig 5", "functional dimension is well below"),
        strict=True,
    ):
        share = figures.percent(measured["snapshots with more regions than dimensions"])
        yield Measured(
            "share of snapshots with more regions than dimensions",
            of_shares(share, measured["seeds"]),
            1 / (2 * ratios["exact / (2·regions), mean"]),
            {"inputs": 1},
        )


@figures.study(
    "Fig 5 (more regions)",
    _more_regions,
    control("never more regions than dimensions", lambda: Measured("", 0.0, 0.0)),
    confirm=lambda case: at_least(case.again, 1.0),
)
def more_regions(case: Measured) -> Check:
    """With one input the number of intervals sampled is typically greater than the functional
    dimension (in at least half of the snapshots).

    Typically: in more than half of the snapshots.
    """
    return at_least(case.value, TYPICALLY)


FIGURE_5 = (
    correlation_statement("Fig 5"),
    bound_statement("Fig 5"),
    slack_statement("Fig 5"),
    more_regions,
)
FIGURE_6 = (correlation_statement("Fig 6"), bound_statement("Fig 6"), slack_statement("Fig 6"))
