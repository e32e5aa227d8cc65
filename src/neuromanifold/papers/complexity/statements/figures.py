"""complexity, Sec. 6 and Figs. 2–7, 9: what the study measured, against what the paper says."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neuromanifold import data
from neuromanifold.papers.check import Check, inside, outside
from neuromanifold.papers.complexity.statements.setup import printed_function
from neuromanifold.papers.recorded import Claims, StudyCases
from neuromanifold.papers.statement import Control, Statement

PAPER = "complexity"
LIMITS = {"univariate": 20.0, "bivariate": 60.0, "bivariate_100": 60.0, "energy": 400.0}
"""The mean functional dimension at initialisation is below this.   [complexity, Sec. 6]"""
STRONG, WELL_BELOW, TYPICALLY = 0.7, 0.5, 0.5
"""Our thresholds for the paper's words: a correlation, a ratio to the bound, a share of the snapshots."""
RISE, LEVEL = 0.1, 0.1
"""A rise is at least a tenth of the start; level means a later trend of at most a tenth of the rise."""
MORE_RUNS = "more runs"
"""How the study's note begins where it took more runs than the paper."""


@dataclass(frozen=True)
class Measured:
    """One number of the study with what it was measured on; `again` is another measurement of the same thing."""

    what: str
    value: float
    again: float
    hypotheses: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.value:.4g}  # {self.what}"


Pick = Callable[[Claims], Iterator[Measured]]


def mean(text: str) -> float:
    """The mean in `29.9 ± 4.7 (15)`; nan where there is none.

    >>> mean("29.9 ± 4.7 (15)")
    29.9
    """
    found = re.match(r"[-+]?\d+(\.\d+)?", text)
    return float(found.group()) if found else float("nan")


def step(text: str) -> tuple[float, float]:
    """The difference and the lower end of its interval in `+3.1 [-3.5, +9.8]`.

    >>> step("+3.1 [-3.5, +9.8]")
    (3.1, -3.5)
    """
    found = re.match(r"([-+][\d.]+) \[([-+][\d.]+),", text)
    return (float(found.group(1)), float(found.group(2))) if found else (float("nan"), float("nan"))


def percent(text: str) -> float:
    """The share in `84.9 %`."""
    return float(text.removesuffix("%")) / 100


def chosen(claims: Claims, figure: str, begins: str, *, more_runs: bool | None = None) -> list[dict[str, Any]]:
    """The measurements of the claims of a figure that begin so; `more_runs` asks for (or excludes) runs beyond the paper's."""
    return [
        c["measured"]
        for c in claims
        if c["figure"] == figure
        and c["claim"].startswith(begins)
        and c["measured"]
        and more_runs in (None, MORE_RUNS in c["note"])
    ]


def _check(relation: Any, right: float) -> Callable[[Measured], Check]:
    def measure(case: Measured) -> Check:
        missing = inside("the study did not measure it", when=np.isnan(case.value))
        return Check(case.value, right, relation, hypotheses=case.hypotheses, drops=missing)

    return measure


def _again(relation: Any, right: float) -> Callable[[Measured], Check]:
    return lambda case: Check(case.again, right, relation)


def _study(pick: Pick) -> StudyCases:
    return StudyCases(PAPER, pick)


def _initial(name: str) -> Pick:
    """The means of the float32 rank, as the paper computes it, and of the exact one; each confirmed by the other."""

    def pick(claims: Claims) -> Iterator[Measured]:
        for claim in claims:
            if claim["figure"] == "Sec 6" and f"({name}," in claim["claim"] and claim["measured"]:
                found = {rank: mean(claim["measured"][rank]) for rank in ("float32", "exact")}
                for rank, other in (("float32", "exact"), ("exact", "float32")):
                    yield Measured(f"mean {rank} rank, {name}", found[rank], found[other], {"rank": rank})

    return pick


def _below(case: Measured, limit: float) -> Check:
    return _check("<=", limit)(case)


def initial_statement(name: str, points: str, full: float, **more: Any) -> Statement:
    """The mean functional dimension of initial networks on one sample is below the paper's number."""
    limit = LIMITS[name]
    return Statement(
        paper=PAPER,
        row="init",
        id=more.pop("id", f"init ({name})"),
        says=f"the mean functional dimension at initialisation is below {limit:.0f} on {points}",
        method="training",
        cases=_study(_initial(name)),
        measure=lambda case: _below(case, LIMITS[name]),
        show=str,
        control=Control(f"a kernel of full rank, {full:.0f}", case=lambda: Measured("full rank", full, full)),
        **more,
    )


INITIAL = (
    initial_statement("univariate", "100 points of [0, 1]", 100.0),
    initial_statement(
        "bivariate",
        "the 20×20 points of the bivariate data",
        371.0,
        confirm=lambda case: _below(Measured("", case.again, case.value), LIMITS["bivariate"]),
        route="the other rank (exact for float32, float32 for exact)",
        worked="""400 initial networks on the 20×20 grid have a mean float32 rank of 62.9 ± 2.8 (95 %) and a mean exact rank of 71.8 ±
3.4. The paper speaks of a 100×371 matrix, though its bivariate data have 400 points; on 10×10 points the means are
50.9 ± 1.8 and 54.1 ± 1.9. Its number fits 100 points.""",
        amended=initial_statement("bivariate_100", "10×10 points, the 100×371 matrix that is printed", 100.0),
    ),
    initial_statement("energy", "the 768 energy data", 431.0),
)


def ordered(measured: dict[str, Any], label: str, rank: str = "exact") -> Iterator[Measured]:
    """The differences of neighbouring means, from the simpler to the harder task; `again` in the other arithmetic."""
    means = {r: [mean(text) for text in measured[r].values()] for r in ("exact", "float32")}
    names, steps = list(measured[rank]), {r: np.diff(values) for r, values in means.items()}
    other = "float32" if rank == "exact" else "exact"
    for i, pair in enumerate(zip(names[:-1], names[1:], strict=True)):
        yield Measured(
            f"{label}: {pair[1]} − {pair[0]}", float(steps[rank][i]), float(steps[other][i]), {"pair": " < ".join(pair)}
        )


def _order(figure: str) -> Pick:
    def pick(claims: Claims) -> Iterator[Measured]:
        for measured in chosen(claims, figure, "after training", more_runs=False):
            yield from ordered(measured, "exact rank")

    return pick


def _significant_order(claims: Claims) -> Iterator[Measured]:
    """The lower ends of the 95 % intervals of the steps, in the longer training with more runs."""
    for measured in chosen(claims, "Fig 2", "after training", more_runs=True):
        for name in ("exact", "float32"):
            for text in measured[f"steps, {name}"]:
                difference, low = step(text)
                yield Measured(
                    f"{name} rank, step {difference:+.1f}, lower end of its interval", low, low, {"rank": name}
                )


def _reversed_order() -> Measured:
    """The long run's numbers, from the hardest task to the simplest."""
    measured = {r: {"f3": "36.1 ± 2.1 (60)", "f1": "23.8 ± 1.0 (60)"} for r in ("exact", "float32")}
    return next(ordered(measured, "reversed"))


_REVERSED = Control("the tasks in reversed order, f3 < f1", case=_reversed_order)


def order_statement(figure: str, says: str, **more: Any) -> Statement:
    """After training the mean functional dimension is ordered by the complexity of the task."""
    return Statement(
        paper=PAPER,
        row="Fig 2,3,9",
        id=f"{figure} (order)",
        says=says,
        method="training",
        cases=_study(_order(figure)),
        measure=_check(">=", 0.0),
        control=_REVERSED,
        confirm=_again(">=", 0.0),
        route="the float32 rank of the same runs",
        show=str,
        **more,
    )


FIGURE_2 = order_statement(
    "Fig 2",
    "after training the mean functional dimension is ordered f1 < f2 < f3 (15 runs; 2,000 epochs, which the "
    "paper does not state)",
    worked="""15 runs, 2,000 epochs, runs with r² > 0.9: exact ranks 29.9 ± 4.7, 33.0 ± 5.1, 29.5 ± 3.3. The step from f2 to f3 is
−3.5 [−9.4, +2.4]; no difference is significant. The networks have not learned f3 yet. 60 networks from other seeds,
trained for 10,000 epochs, have 23.8 ± 1.0, 27.8 ± 1.4, 36.1 ± 2.1, with steps +4.1 [2.3, 5.8] and +8.3 [5.8, 10.8]:
the order is a property of long training with weight decay.""",
    amended=Statement(
        paper=PAPER,
        row="Fig 2,3,9",
        id="Fig 2 (order, 10,000 epochs)",
        says="after 10,000 epochs (60 runs) f1 < f2 < f3, every step significant at 95 %",
        method="training",
        cases=_study(_significant_order),
        measure=_check(">=", 0.0),
        control=_REVERSED,
        show=str,
    ),
)
FIGURE_3 = order_statement(
    "Fig 3", "after training the mean functional dimension is lower for heating than for cooling load (10 runs)"
)
FIGURE_9 = order_statement(
    "Fig 9",
    "after training the mean functional dimension is ordered g1 < g2 < g3 (20 runs)",
    narrower="the means are in this order; no difference of them is significant at 95 %",
)


@dataclass(frozen=True)
class Course:
    """The mean functional dimension along training, and which half of the claim is asked of it."""

    name: str
    start: float
    largest: float
    end: float
    trend: float
    part: str

    def __str__(self) -> str:
        numbers = f"{self.start}, {self.largest}, {self.end}, {self.trend}"
        return f"start, largest, end, trend = {numbers}  # {self.name}, {self.part}"


def _courses(figure: str) -> Callable[[Claims], Iterator[Course]]:
    def pick(claims: Claims) -> Iterator[Course]:
        for measured in chosen(claims, figure, "the functional dimension is low"):
            for name, found in measured.items():
                start, largest, end = (float(found[key]) for key in ("start", "largest", "end"))
                trend = float(found["trend over the second half"])
                yield from (Course(name, start, largest, end, trend, part) for part in ("rise", "level"))

    return pick


def course_check(course: Course) -> Check:
    """Rise: (largest − start)/start ≥ 0.1. Level: the trend over the second half is at most 0.1 of the rise."""
    rise = course.largest - course.start
    hypotheses = {"data": course.name, "part": course.part}
    if course.part == "rise":
        return Check(rise / course.start, RISE, ">=", hypotheses=hypotheses)
    flat = outside("the course does not rise: nothing levels off", when=not rise)
    return Check(course.trend / rise if rise else 0.0, LEVEL, "<=", hypotheses=hypotheses, drops=flat)


def _other_end(course: Course) -> Check:
    """No rise is confirmed by an end below the start; no levelling by an end that is the largest value."""
    if course.part == "rise":
        return Check(course.end, course.start, ">=")
    return Check(course.end, course.largest - 0.05, "<=")


def course_statement(figure: str, **more: Any) -> Statement:
    """The functional dimension rises in early training, then levels off or falls slowly."""
    return Statement(
        paper=PAPER,
        row="Fig 2,3,9",
        id=f"{figure} (evolution)",
        says="the functional dimension rises early in training, then levels off or slowly decreases",
        method="training",
        cases=StudyCases(PAPER, _courses(figure)),
        measure=course_check,
        control=Control("a course that falls from the start", case=lambda: Course("", 40.0, 40.0, 20.0, 0.0, "rise")),
        confirm=_other_end,
        route="the end against the start, or against the largest value",
        show=str,
        **more,
    )


COURSES = (
    course_statement("Fig 2"),
    course_statement(
        "Fig 3",
        worked="""On the energy data the mean exact rank is largest before training, 340.2, and falls to 187.9 (heating) and 231.7
(cooling) after 2,000 epochs; a third to a half of it is lost within 100 epochs. It never rises above its start. On
f1–f3 it goes from 16 to 31, on g1–g3 from 59 to 117 and back to 93.""",
    ),
    course_statement("Fig 9"),
)


def _decays(claims: Claims) -> Iterator[Measured]:
    """Differences of the means from the larger decay to the smaller: positive where decay lowers the rank."""
    for measured in chosen(claims, "Fig 4", "larger weight decay", more_runs=False):
        falling = {r: dict(reversed(measured[r].items())) for r in ("exact", "float32")}
        yield from ordered(falling, "exact rank, weight decay")


def _strong_decay(claims: Claims) -> Iterator[Measured]:
    """60 runs: the interval of 1e-3 against 1e-4 and against 0, and the order of all three means."""
    for measured in chosen(claims, "Fig 4", "larger weight decay", more_runs=True):
        first, _, ends = (step(text) for text in measured["steps from large to small decay, exact"][:3])
        yield Measured("1e-4 − 1e-3, lower end of the interval", first[1], first[0], {"against": "1e-4"})
        yield Measured("0 − 1e-3, lower end of the interval", ends[1], ends[0], {"against": "0"})
        falling = {r: dict(reversed(measured[r].items())) for r in ("exact", "float32")}
        yield from ordered(falling, "exact rank, weight decay")


DECAY = Statement(
    paper=PAPER,
    row="Fig 4",
    id="Fig 4",
    says="larger weight decay (0, 1e-4, 1e-3) gives a smaller mean functional dimension on f2 (10 runs)",
    method="training",
    cases=_study(_decays),
    measure=_check(">=", 0.0),
    control=Control(
        "the decays in reversed order (60 runs, 1e-3 against 0)",
        case=lambda: Measured("", 28.9 - 35.5, 0.0),
    ),
    confirm=_again(">=", 0.0),
    route="the float32 rank of the same runs",
    show=str,
    worked="""10 runs, 2,000 epochs: 33.7 ± 6.5 without decay, 35.0 ± 6.7 with 1e-4, 29.3 ± 4.0 with 1e-3: not in order, and no
difference is significant. 60 runs from other seeds: 35.5 ± 1.8, 33.3 ± 1.6, 28.9 ± 1.3; 1e-3 lies below 1e-4 by 4.3
[2.3, 6.4] and below 0 by 6.6 [4.4, 8.8], while 1e-4 against 0 is +2.2 [−0.2, +4.6].""",
    amended=Statement(
        paper=PAPER,
        row="Fig 4",
        id="Fig 4 (60 runs)",
        says="with 60 runs the means fall with the decay, and 1e-3 lies below 1e-4 and 0 significantly (95 %)",
        method="training",
        cases=_study(_strong_decay),
        measure=_check(">=", 0.0),
        control=Control("the decays in reversed order", case=lambda: Measured("", 28.9 - 35.5, 0.0)),
        show=str,
        narrower="the step from 1e-4 to 0 is not significant: +2.2 [−0.2, +4.6]",
    ),
)


def _overfit_cases(claims: Claims) -> Iterator[Measured]:
    for measured in chosen(claims, "Fig 7", "overparameterised"):
        for name, epochs in measured.items():
            last = max(epochs, key=int)
            gap = epochs[last]["data"] - epochs[last]["function"]
            yield Measured(
                f"{name} at epoch {last}: r² on data − r² on function", gap, gap, {"data": name, "epoch": int(last)}
            )


def interpolation_gap() -> float:
    """r² on the data less r² on the function for the broken line through the noisy data of f3: overfitting itself."""
    found, grid = data.load("f3"), np.linspace(0, 1, 501)
    order = np.argsort(found.x[:, 0])
    truth = printed_function("f3", grid[:, None])
    learned = np.interp(grid, found.x[order, 0], found.y[order, 0])
    return float(((learned - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


OVERFITTING = Statement(
    paper=PAPER,
    row="Fig 1,7,8",
    id="Fig 7",
    says="the learned functions do not overfit: r² on the data does not exceed r² against the noise-free function",
    method="training",
    cases=_study(_overfit_cases),
    measure=_check("<=", 0.0),
    control=Control(
        "the broken line through the noisy data of f3",
        case=lambda: Measured("", interpolation_gap(), 0.0),
    ),
    show=str,
)

TRACKED = (FIGURE_2, COURSES[0], FIGURE_3, COURSES[1], FIGURE_9, COURSES[2], DECAY)
