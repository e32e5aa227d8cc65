"""complexity, Sec. 6 and Figs. 2–7, 9: what the study measured, against what the paper says."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import numpy as np

from neuromanifold import data
from neuromanifold_papers.check import Check, Interval, at_least, at_most, inside, number, outside
from neuromanifold_papers.complexity.statements.setup import printed_function
from neuromanifold_papers.recorded import Claims, StudyCases, read_claims
from neuromanifold_papers.statement import Control, Statement, by_training, control

PAPER = "complexity"
LIMITS = {"univariate": 20.0, "bivariate": 60.0, "bivariate_100": 60.0, "energy": 400.0}
"""The mean functional dimension at initialisation is below this.   [complexity, Sec. 6]"""
RISE, LEVEL = 0.1, 0.1
"""A rise is at least a tenth of the start; level means a later trend of at most a tenth of the
rise.
"""
MORE_RUNS = "more runs"
"""How the study's note begins where it took more runs than the paper."""


@dataclass(frozen=True)
class Measured:
    """One number of the study with what it was measured on; `again` is another measurement of
    the same thing.
    """

    what: str
    value: float | Interval
    again: float
    hypotheses: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if isinstance(self.value, Interval):
            return f"{number(self.value.estimate)}  # {self.what}, {self.value}"
        return f"{number(self.value)}  # {self.what}"


Pick = Callable[[Claims], Iterator[Measured]]


def mean(text: str) -> float:
    """The mean in `29.9 ± 4.7 (15)`; nan where there is none.

    >>> mean("29.9 ± 4.7 (15)")
    29.9
    """
    found = re.match(r"[-+]?\d+(\.\d+)?", text)
    return float(found.group()) if found else float("nan")


def percent(text: str) -> float:
    """The share in `84.9 %`."""
    return float(text.removesuffix("%")) / 100


def chosen(
    claims: Claims, figure: str, begins: str, *, more_runs: bool | None = None
) -> list[dict[str, Any]]:
    """The measurements of the claims of a figure that begin so; `more_runs` asks for (or
    excludes) runs beyond the paper's.
    """
    found = [c for c in claims if c["figure"] == figure and c["claim"].startswith(begins)]
    kept = [c for c in found if more_runs in (None, MORE_RUNS in c["note"])]
    return [c["measured"] for c in kept if c["measured"]]


def _check(relation: Any, right: float) -> Callable[[Measured], Check]:
    def measure(case: Measured) -> Check:
        estimate = case.value.estimate if isinstance(case.value, Interval) else case.value
        missing = inside("the study did not measure it", when=np.isnan(estimate))
        return Check(case.value, right, relation, drops=missing)

    return measure


def study(id: str, pick: Any, control: Control, says: str = "", **more: Any) -> Any:
    """A statement on the recorded runs of a figure."""
    return by_training(id, StudyCases(PAPER, pick), control, says=says, **more)


def interval(text: str) -> Interval | float:
    """The interval that the study wrote; nan where it wrote none.

    >>> print(interval("+3.1 [-3.5, +9.8]"), interval("no successful run"))
    3.1 [-3.5, 9.8] nan
    """
    try:
        return Interval.read(text)
    except ValueError:
        return float("nan")


def of_runs(text: str, runs: int) -> Interval:
    """The interval of the mean of so many runs, from `62.9 ± 2.8 (400)`: the same centre,
    √(400/runs) times as wide.

    >>> print(of_runs("62.9 ± 2.8 (400)", 100))
    62.9 [57.3, 68.5]
    """
    found = Interval.read(text)
    measured = int(text.rpartition("(")[2].rstrip(")"))
    half = (found.high - found.estimate) * (measured / runs) ** 0.5
    return Interval(found.estimate, found.estimate - half, found.estimate + half)


def _initial(name: str, runs: int, rank: str = "float32") -> Pick:
    """The mean rank of initial networks, with the interval that the mean of the paper's number
    of runs has.
    """

    def pick(claims: Claims) -> Iterator[Measured]:
        for claim in claims:
            found = claim["measured"]
            if claim["figure"] == "Sec 6" and f"({name}," in claim["claim"] and found:
                what, exact = f"mean {rank} rank, {name}", mean(found["exact"])
                yield Measured(what, of_runs(found[rank], runs), exact, {"rank": rank})

    return pick


def initial_statement(name: str, points: str, runs: int, **more: Any) -> Statement:
    """The mean functional dimension of initial networks on one sample is below the paper's
    number.
    """
    limit = LIMITS[name]
    return study(
        more.pop("id", f"init ({name})"),
        _initial(name, runs),
        control(
            "half the bound, at the recorded mean",
            lambda: next(iter(_initial(name, runs)(read_claims(PAPER)))),
            bound=limit / 2,
        ),
        f"the mean functional dimension at initialisation is below {limit:.0f} on {points} "
        f"(rank in float32, mean of {runs} runs, as printed)",
        **more,
    )((lambda case, bound=None: _check("<=", LIMITS[name] if bound is None else bound)(case)))


@study(
    "init (bivariate, exact)",
    _initial("bivariate", 400, "exact"),
    control(
        "twice the bound",
        lambda: next(iter(_initial("bivariate", 400, "exact")(read_claims(PAPER)))),
        passes=lambda: Measured("", Interval(63.0, 61.0, 65.0), 63.0),
        bound=2 * LIMITS["bivariate"],
    ),
    source="ours",
)
def init_bivariate_exact(case: Any, bound: Any = LIMITS["bivariate"]) -> Check:
    """On the 20×20 points the mean exact functional dimension of initial networks is above 60, by
    400 networks.
    """
    return _check(">=", bound)(case)


INITIAL = (
    initial_statement("univariate", "100 points of [0, 1]", 45),
    initial_statement("bivariate", "the 20×20 points of the bivariate data", 60),
    initial_statement(
        "bivariate_100",
        "10×10 points, the 100×371 matrix that is printed",
        60,
        id="init (bivariate, 100 points)",
    ),
    init_bivariate_exact,
    initial_statement("energy", "the 768 energy data", 10),
)


def steps(measured: dict[str, Any], rank: str = "float32") -> Iterator[Measured]:
    """The differences of neighbouring means with Welch's 95 % intervals, from the simpler to the
    harder task.
    """
    found = measured.get(f"steps, {rank}", ())
    for pair, text in zip(pairwise(measured[rank]), found, strict=False):
        label = f"{rank} rank: {pair[1]} − {pair[0]}"
        yield Measured(label, interval(text), 0.0, {"pair": " < ".join(pair), "rank": rank})


def _order(figure: str, *, more_runs: bool = False) -> Pick:
    def pick(claims: Claims) -> Iterator[Measured]:
        for measured in chosen(claims, figure, "after training", more_runs=more_runs):
            yield from steps(measured)
            yield from steps(measured, "exact")

    return pick


def turned(case: Measured) -> Measured:
    """The difference the other way round."""
    assert isinstance(case.value, Interval)
    turned = Interval(-case.value.estimate, -case.value.high, -case.value.low)
    return Measured(f"reversed, {case.what}", turned, case.again)


_DOWNWARDS = control(
    "a step downwards by half a dimension",
    lambda: Measured("", Interval(-0.5, -0.9, -0.1), 0.0),
    passes=lambda: Measured("", Interval(0.5, 0.1, 0.9), 0.0),
)


def order_statement(figure: str, says: str, **more: Any) -> Statement:
    """After training the mean functional dimension is ordered by the complexity of the task."""
    id, pick = more.pop("id", f"{figure} (order)"), more.pop("pick", _order(figure))
    return study(id, pick, _DOWNWARDS, says, **more)(_check(">=", 0.0))


FIGURE_2 = order_statement(
    "Fig 2",
    "after training the mean functional dimension is ordered f1 < f2 < f3 (15 runs; 2,000 epochs, "
    "which the paper does not state): "
    "differences of neighbours with their 95 % intervals",
)
FIGURE_2_LONG = order_statement(
    "Fig 2",
    "after 10,000 epochs (60 runs) f1 < f2 < f3, every step significant at 95 %",
    id="Fig 2 (order, 10,000 epochs)",
    pick=_order("Fig 2", more_runs=True),
    source="ours",
)
FIGURE_3 = order_statement(
    "Fig 3",
    "after training the mean functional dimension is lower for heating than for cooling load (10 "
    "runs)",
)
FIGURE_9 = order_statement(
    "Fig 9", "after training the mean functional dimension is ordered g1 < g2 < g3 (20 runs)"
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
            for (name, found), part in product(measured.items(), ("rise", "level")):
                keys = ("start", "largest", "end", "trend over the second half")
                start, largest, end, trend = (float(found[key]) for key in keys)
                yield Course(name, start, largest, end, trend, part)

    return pick


def course_check(course: Course) -> Check:
    """Rise: (largest − start)/start ≥ 0.1. Level: the trend over the second half is at most 0.1
    of the rise.
    """
    rise = course.largest - course.start
    hypotheses = {"data": course.name, "part": course.part}
    if course.part == "rise":
        return at_least(rise / course.start, RISE, hypotheses=hypotheses)
    flat = outside("the course does not rise: nothing levels off", when=not rise)
    return at_most(course.trend / rise if rise else 0.0, LEVEL, drops=flat, hypotheses=hypotheses)


def _other_end(course: Course) -> Check:
    """No rise is confirmed by an end below the start; no levelling by an end that is the largest
    value.
    """
    if course.part == "rise":
        return at_least(course.end, course.start)
    return at_most(course.end, course.largest - 0.05)


def course_statement(figure: str) -> Statement:
    """The functional dimension rises in early training, then levels off or falls slowly."""
    return study(
        f"{figure} (evolution)",
        _courses(figure),
        control(
            "a rise of 9 %",
            lambda: Course("", 100.0, 109.0, 109.0, 0.0, "rise"),
            passes=lambda: Course("", 100.0, 110.5, 110.5, 0.0, "rise"),
        ),
        "the functional dimension rises early in training, then levels off or slowly decreases",
        confirm=_other_end,
    )(course_check)


COURSES = tuple(map(course_statement, ("Fig 2", "Fig 3", "Fig 9")))


def _decays(*, more_runs: bool) -> Pick:
    """Differences of the means from the larger decay to the smaller: positive where decay lowers
    the rank.
    """
    names = ("1e-4 − 1e-3", "0 − 1e-4", "0 − 1e-3")

    def pick(claims: Claims) -> Iterator[Measured]:
        for measured in chosen(claims, "Fig 4", "larger weight decay", more_runs=more_runs):
            found = measured.get("steps from large to small decay, exact", ())
            for name, text in zip(names, found, strict=False):
                yield Measured(name, interval(text), 0.0, {"pair": name})

    return pick


def _strong_decay(claims: Claims) -> Iterator[Measured]:
    """60 runs: 1e-3 against 1e-4 and against 0."""
    found = _decays(more_runs=True)(claims)
    return (case for case in found if case.hypotheses["pair"].endswith("1e-3"))


_REVERSED_DECAY = control(
    "the decays in reversed order (60 runs, 1e-3 against 0)",
    lambda: turned(list(_strong_decay(read_claims(PAPER)))[-1]),
)
decay = study(
    "Fig 4",
    _decays(more_runs=False),
    _REVERSED_DECAY,
    "larger weight decay (0, 1e-4, 1e-3) gives a smaller mean functional dimension on f2 (10 runs): differences with 95 % intervals",
)(_check(">=", 0.0))
strong_decay = study(
    "Fig 4 (60 runs)",
    _strong_decay,
    _REVERSED_DECAY,
    source="ours",
    says="with 60 runs the mean with decay 1e-3 lies below those with 1e-4 and 0, significantly (95 %); 1e-4 against 0 is undecided",
)(_check(">=", 0.0))


def _overfit_cases(claims: Claims) -> Iterator[Measured]:
    for measured in chosen(claims, "Fig 7", "overparameterised"):
        for name, epochs in measured.items():
            last = max(epochs, key=int)
            gap = epochs[last]["data"] - epochs[last]["function"]
            what = f"{name} at epoch {last}: r² on data − r² on function"
            yield Measured(what, gap, gap, {"data": name, "epoch": int(last)})


def interpolation_gap() -> float:
    """r² on the data less r² on the function for the broken line through the noisy data of f3:
    overfitting itself.
    """
    found, grid = data.load("f3"), np.linspace(0, 1, 501)
    order = np.argsort(found.x[:, 0])
    truth = printed_function("f3", grid[:, None])
    learned = np.interp(grid, found.x[order, 0], found.y[order, 0])
    return float(((learned - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


overfitting = study(
    "Fig 7",
    _overfit_cases,
    control(
        "the broken line through the noisy data of f3",
        lambda: Measured("", interpolation_gap(), 0.0),
    ),
    "the learned functions do not overfit: r² on the data does not exceed r² against the noise-free function",
)(_check("<=", 0.0))
