"""Examining a statement: run its cases, keep the worst, minimise and confirm a counterexample,
and give a verdict.
"""

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from neuromanifold.runtime.devices import compiler_flags
from neuromanifold_papers.check import Check, Drop
from neuromanifold_papers.evidence import (
    CONSTRUCTIVE,
    HOLDS,
    NOT_REPRODUCED,
    SAMPLED,
    UNDECIDED,
    Dropped,
    Evidence,
    tally,
)
from neuromanifold_papers.statement import Statement

# A control must fail by more than this many tolerances: less could be rounding.
_CLEARLY = 10.0
_FEW = 8
_TRUE = (HOLDS, SAMPLED, CONSTRUCTIVE)


def examine(statement: Statement, *, draws: int | None = None, key: Any = None) -> Evidence:
    """Run `statement` on its cases and return the evidence with its verdict.

    The random cases depend on `key` (by default `jax.random.key(0)`) and the statement's name only,
    so a statement sees the same ones alone and in the whole run.
    """
    return examine_seeded(statement, draws, seed_of(key))


def examine_seeded(statement: Statement, draws: int | None, seed: int) -> Evidence:
    """`examine` with the key's number in its place: a number travels to another process."""
    start = time.perf_counter()
    outcome = _run(statement, draws, seed)
    control, near = (
        statement.control.measured(statement.measure),
        statement.control.inside(statement.measure),
    )
    counterexample, routes, confirmed = _counterexample(statement, outcome)
    amendment = None
    if outcome.failed and statement.amended is not None:
        amendment = examine_seeded(replace(statement.amended, source="ours"), draws, seed)
    return Evidence(
        paper=statement.paper,
        id=statement.id,
        statement=statement.says,
        verdict=_verdict(statement, outcome, (control, near), confirmed, amendment),
        cases=outcome.cases,
        comparisons=outcome.comparisons,
        dropped=outcome.dropped,
        margin=outcome.worst.margin if outcome.worst is not None else None,
        worst=f"{statement.show(outcome.worst_case)}: {outcome.worst}"
        if outcome.worst is not None
        else "",
        method=statement.method,
        covered=outcome.covered,
        control=f"{statement.control.broken}: {control}"
        + ("" if near is None else f"; just inside: {near}"),
        control_violation=control.violation,
        control_tolerance=control.tolerance,
        counterexample=counterexample,
        routes=routes,
        amendment=amendment.as_dict() if amendment is not None else None,
        scope=statement.exhaustive,
        narrower=statement.narrower,
        source=statement.source,
        severity=statement.severity if outcome.failed else "",
        constructive=statement.constructive,
        missing=statement.missing,
        proof=statement.proof,
        draws=statement.draws if draws is None else draws,
        seed=seed,
        flags=compiler_flags(),
        seconds=time.perf_counter() - start,
    )


def seed_of(key: Any) -> int:
    """The number s of `jax.random.key(s)`; 0 without a key.

    >>> seed_of(jax.random.key(7)), seed_of(None)
    (7, 0)
    """
    if key is None:
        return 0
    if not isinstance(key, jax.Array):
        raise TypeError(f"`key` is {key!r}; pass a JAX key such as jax.random.key(0).")
    seed = 0
    for word in np.asarray(jax.random.key_data(key)).ravel().tolist():
        seed = (seed << 32) | int(word)
    return seed


def thinned(statement: Statement, *, first: int = 20, every: int = 30) -> Statement:
    """The statement and its amendment on their smallest `first` cases and then on one of
    `every`: for a quick run.
    """

    def some(rng: np.random.Generator, draws: int) -> Iterator[Any]:
        cases = enumerate(statement.cases(rng, draws))
        return (case for index, case in cases if index < first or index % every == 0)

    amended = (
        None if statement.amended is None else thinned(statement.amended, first=first, every=every)
    )
    return replace(statement, cases=some, amended=amended)


@dataclass(frozen=True)
class _Outcome:
    cases: int
    comparisons: int
    dropped: tuple[Dropped, ...]
    worst: Check | None
    worst_case: Any
    failing: Any
    covered: dict[str, str]
    held: bool
    """Whether the conclusion was not refuted on some case."""

    @property
    def failed(self) -> bool:
        return self.worst is not None and self.worst.fails


def _run(statement: Statement, draws: int | None, seed: int) -> _Outcome:
    """Every case measured; `failing` is the first that fails, which is the smallest because
    cases come smallest first.
    """
    rng = np.random.default_rng([seed, zlib.crc32(f"{statement.paper} {statement.id}".encode())])
    cases = comparisons = 0
    worst, worst_case, failing, held = None, None, None, False
    seen: dict[str, list[Any]] = {}
    drops: list[tuple[Check, tuple[Drop, ...]]] = []
    for case in statement.cases(rng, statement.draws if draws is None else draws):
        check = statement.measure(case)
        for name, value in {**statement.covers(case), **check.hypotheses}.items():
            seen.setdefault(name, []).append(value)
        if check.dropped is not None:
            drops.append((check, (check.dropped,)))
            continue
        drops.append((check, check.drops))
        cases += check.cases
        comparisons += check.cases if check.comparisons is None else check.comparisons
        held = held or not check.fails
        if check.fails and (worst is None or not worst.fails):
            failing = case
        if worst is None or _severity(check) < _severity(worst):
            worst, worst_case = check, case
    covered = _coverage(seen)
    return _Outcome(cases, comparisons, tally(drops), worst, worst_case, failing, covered, held)


def _severity(check: Check) -> tuple[bool, bool, float]:
    """Failures first, then what is undecided, then by margin."""
    return not check.fails, not check.undecided, check.margin


def _coverage(seen: Mapping[str, list[Any]]) -> dict[str, str]:
    """The values each hypothesis took: all of them when few, else their range or their number."""
    return {name: _values(values) for name, values in seen.items()}


def _values(values: Iterable[Any]) -> str:
    distinct = sorted(set(values), key=lambda value: (str(type(value)), value))
    if len(distinct) <= _FEW:
        return ", ".join(
            f"{value:.4g}" if isinstance(value, float) else str(value) for value in distinct
        )
    if all(isinstance(value, int | float) for value in distinct):
        return f"{len(distinct)} values from {distinct[0]:.4g} to {distinct[-1]:.4g}"
    return f"{len(distinct)} values, {distinct[0]} to {distinct[-1]}"


def _counterexample(
    statement: Statement, outcome: _Outcome
) -> tuple[str | None, tuple[str, ...], bool]:
    """The failing case made as simple as `smaller` can, both routes' numbers, and whether the
    second route fails it too.
    """
    if not outcome.failed:
        return None, (), False
    case = _minimised(statement, outcome.failing)
    first = f"{statement.method}: {statement.measure(case)}"
    if statement.confirm is None:
        return statement.show(case), (first,), False
    second = statement.confirm(case)
    return statement.show(case), (first, f"{statement.route}: {second}"), second.fails


def _minimised(statement: Statement, case: Any) -> Any:
    """Follow `smaller` as long as some simpler case still fails."""
    while True:
        simpler = next(
            (other for other in statement.smaller(case) if _fails(statement, other)), None
        )
        if simpler is None:
            return case
        case = simpler


def _fails(statement: Statement, case: Any) -> bool:
    check = statement.measure(case)
    return check.dropped is None and check.fails


def _verdict(
    statement: Statement,
    outcome: _Outcome,
    controls: tuple[Check, Check | None],
    confirmed: bool,
    amendment: Evidence | None,
) -> str:
    """One of the verdicts, or what is wrong with the check itself: such a run never matches the
    record.
    """
    control, near = controls
    if outcome.worst is None:
        return "vacuous: no case says anything"
    if not seen_to_fail(control):
        return "worthless: the negative control passes"
    if outcome.held and _fails_unbroken(statement):
        return "worthless: the control's case fails without the planted error"
    if near is not None and (near.dropped is not None or not near.holds):
        return "worthless: the case just inside does not hold"
    if any(entry.inside for entry in outcome.dropped) and not statement.narrower:
        return "silent: it drops cases inside its hypotheses and `narrower` does not say so"
    if not outcome.failed:
        return _unrefuted(statement, outcome)
    if statement.missing:
        return NOT_REPRODUCED
    if not confirmed:
        return "unconfirmed: no second route fails the counterexample"
    return failure(statement, amendment is not None and amendment.kind in _TRUE)


def _fails_unbroken(statement: Statement) -> bool:
    """Whether the case of a control that breaks an ingredient fails as it is: then the control says
    nothing of what it breaks. A print that fails on every case has no other to plant an error in.
    """
    return bool(statement.control.breaks) and _fails(statement, statement.control.case())


def failure(statement: Statement, amended: bool) -> str:
    """The verdict on a statement that fails: how gravely, and whether its amendment is true."""
    printed = " as printed" * (statement.source == "printed")
    gravely = f" ({statement.severity})" * bool(statement.severity)
    return f"fails{printed}{gravely}{'; true instead' * amended}"


def _unrefuted(statement: Statement, outcome: _Outcome) -> str:
    if outcome.worst is not None and outcome.worst.undecided:
        return UNDECIDED
    if statement.constructive:
        return f"{CONSTRUCTIVE} in {outcome.cases}"
    return HOLDS if statement.exhaustive else f"{SAMPLED} in {outcome.cases}"


def seen_to_fail(control: Check) -> bool:
    """Whether a negative control fails by more than ten times its tolerance."""
    return control.violation > 0 and control.violation > _CLEARLY * control.tolerance
