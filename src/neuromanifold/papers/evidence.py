"""Examining a statement: run its cases, keep the worst, minimise and confirm a counterexample, and give a verdict."""

import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neuromanifold.papers.statement import Check, Statement

# A control must fail by more than this many tolerances: less could be rounding.
_CLEARLY = 10.0
_FEW = 8


@dataclass(frozen=True)
class Evidence:
    """What a statement's examination found; `verdict` is the sentence, the rest its grounds."""

    paper: str
    row: str
    id: str
    statement: str
    verdict: str
    cases: int
    vacuous: int
    margin: float | None
    worst: str
    method: str
    covered: dict[str, str]
    control: str
    control_violation: float | None
    control_tolerance: float
    counterexample: str | None = None
    routes: tuple[str, ...] = ()
    amendment: dict[str, Any] | None = None
    scope: str = ""
    narrower: str = ""
    draws: int = 0
    seed: int = 0
    seconds: float = 0.0

    @property
    def kind(self) -> str:
        """The verdict without its number: what `verdicts.toml` records."""
        return kind(self.verdict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON, which knows no infinity: a margin or violation that is not finite becomes null."""
        return {name: _finite(value) for name, value in asdict(self).items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def kind(verdict: str) -> str:
    """`no counterexample in 40` and `no counterexample in 400` are one kind of verdict.

    >>> kind("no counterexample in 40")
    'no counterexample'
    """
    return "no counterexample" if verdict.startswith("no counterexample") else verdict


def examine(statement: Statement, *, draws: int | None = None, seed: int = 0) -> Evidence:
    """Run `statement` on its cases and return the evidence with its verdict.

    The random cases depend on `seed` and the statement's name only, so a statement sees the same ones alone and in the whole run.
    """
    start = time.perf_counter()
    outcome = _run(statement, draws, seed)
    control = statement.control.check()
    counterexample, routes, confirmed = _counterexample(statement, outcome)
    amendment = None
    if outcome.failed and statement.amended is not None:
        amendment = examine(statement.amended, draws=draws, seed=seed)
    return Evidence(
        paper=statement.paper,
        row=statement.row,
        id=statement.id,
        statement=statement.says,
        verdict=_verdict(statement, outcome, control, confirmed, amendment),
        cases=outcome.count,
        vacuous=outcome.vacuous,
        margin=outcome.worst.margin if outcome.worst is not None else None,
        worst=f"{statement.show(outcome.worst_case)}: {outcome.worst}" if outcome.worst is not None else "",
        method=statement.method,
        covered=outcome.covered,
        control=f"{statement.control.broken}: {control}",
        control_violation=control.violation,
        control_tolerance=control.tolerance,
        counterexample=counterexample,
        routes=routes,
        amendment=amendment.as_dict() if amendment is not None else None,
        scope=statement.exhaustive,
        narrower=statement.narrower,
        draws=statement.draws if draws is None else draws,
        seed=seed,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class _Outcome:
    count: int
    vacuous: int
    worst: Check | None
    worst_case: Any
    failing: Any
    failed: bool
    covered: dict[str, str]


def _run(statement: Statement, draws: int | None, seed: int) -> _Outcome:
    """Every case measured; `failing` is the first that fails, which is the smallest because cases come smallest first."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{statement.paper} {statement.id}".encode())])
    count = vacuous = 0
    worst, worst_case, failing, failed = None, None, None, False
    seen: dict[str, list[Any]] = {}
    for case in statement.cases(rng, statement.draws if draws is None else draws):
        check = statement.measure(case)
        count += check.count
        for name, value in check.hypotheses.items():
            seen.setdefault(name, []).append(value)
        if check.vacuous:
            vacuous += check.count
            continue
        if worst is None or check.margin < worst.margin:
            worst, worst_case = check, case
        if not check.holds and not failed:
            failing, failed = case, True
    return _Outcome(count, vacuous, worst, worst_case, failing, failed, _coverage(seen))


def _coverage(seen: Mapping[str, list[Any]]) -> dict[str, str]:
    """The values each hypothesis took: all of them when few, else their range or their number."""
    return {name: _values(values) for name, values in seen.items()}


def _values(values: Iterable[Any]) -> str:
    distinct = sorted(set(values), key=lambda value: (str(type(value)), value))
    if len(distinct) <= _FEW:
        return ", ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in distinct)
    if all(isinstance(value, int | float) for value in distinct):
        return f"{len(distinct)} values from {distinct[0]:.4g} to {distinct[-1]:.4g}"
    return f"{len(distinct)} values, {distinct[0]} to {distinct[-1]}"


def _counterexample(statement: Statement, outcome: _Outcome) -> tuple[str | None, tuple[str, ...], bool]:
    """The failing case made as simple as `smaller` can, both routes' numbers, and whether the second route fails it too."""
    if not outcome.failed:
        return None, (), False
    case = _minimised(statement, outcome.failing)
    first = f"{statement.method}: {statement.measure(case)}"
    if statement.confirm is None:
        return statement.show(case), (first,), False
    second = statement.confirm(case)
    return statement.show(case), (first, f"{statement.route}: {second}"), not second.holds


def _minimised(statement: Statement, case: Any) -> Any:
    """Follow `smaller` as long as some simpler case still fails."""
    while True:
        simpler = next((other for other in statement.smaller(case) if _fails(statement, other)), None)
        if simpler is None:
            return case
        case = simpler


def _fails(statement: Statement, case: Any) -> bool:
    check = statement.measure(case)
    return not (check.vacuous or check.holds)


def _verdict(
    statement: Statement, outcome: _Outcome, control: Check, confirmed: bool, amendment: Evidence | None
) -> str:
    """One of the four verdicts, or what is wrong with the check itself: such a run never matches the record."""
    if outcome.worst is None:
        return "vacuous: no case says anything"
    if not seen_to_fail(control):
        return "worthless: the negative control passes"
    if not outcome.failed:
        return "holds" if statement.exhaustive else f"no counterexample in {outcome.count - outcome.vacuous}"
    if not confirmed:
        return "unconfirmed: no second route fails the counterexample"
    return "holds as amended" if amendment is not None and amendment.kind in ("holds", "no counterexample") else "fails"


def seen_to_fail(control: Check) -> bool:
    """Whether a negative control fails by more than ten times its tolerance."""
    return control.violation > 0 and control.violation > _CLEARLY * control.tolerance
