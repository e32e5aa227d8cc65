"""Break every statement of the ledger on purpose and see whether its verdict notices: `python
tools/mutate_statements.py [PAPER …]`.

For each statement and amendment some functions or constants that its `measure` uses are changed,
one at a time (`mutants.py`), and it is examined again on few cases. A mutant is killed when the
verdict or the control changes, or for a failing statement its counterexample or the numbers of a
route. A survivor is an error that the statement would not notice. A change that alters no measured
number on these cases is no mutant: it is listed apart, and another one is taken instead. The
verdict of a failing statement rests on its counterexample, so for such a one only that number
counts. Results go to `results/mutation/<paper>.jsonl` as they come, and a later run continues
there; `tools/equivalent_mutants.toml` explains survivors: those that are no errors are not counted,
those with `counts = true` are.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]


import neuromanifold_papers as papers  # noqa: E402
from mutants import Mutant  # noqa: E402
from mutation_results import (  # noqa: E402
    NO_EFFECT,
    SURVIVES,
    Judged,
    Result,
    append,
    report,
    results_in,
    write_page,
)
from mutation_targets import DRAWS, Target, targets  # noqa: E402
from neuromanifold_papers import Evidence, Statement  # noqa: E402
from reachable import Function, functions  # noqa: E402

SLACK, LEAST_SECONDS, HANGS = 8.0, 10.0, 120.0
"""A mutant may take this many times as long as the statement itself, and at least so many
seconds; after `HANGS` it is killed.
"""
ENOUGH, BUDGET = 3, 60.0
"""A statement that has taken so many seconds has enough with three mutants."""
MEMORY = 8 << 30


class Noticed(Exception):
    """A case fails although none did before: the verdict can no longer be the same."""


class Late(Exception):
    """The mutant runs much longer than the statement."""


@dataclass(frozen=True)
class Number:
    """The sides of one check as text, whether it fails, and whether it is the control's, which
    only has to fail.
    """

    text: str
    fails: bool
    control: bool


def deciding(numbers: list[Number], failing: bool) -> list[str]:
    """The numbers on which a verdict rests: those of all cases, or of a failing statement those
    of the first that fails.
    """
    cases = [number for number in numbers if not number.control]
    return (
        [number.text for number in cases if number.fails][:1]
        if failing
        else [number.text for number in cases]
    )


@dataclass(frozen=True)
class Baseline:
    """The examination of a target as it is: what the record holds of it, the numbers measured,
    and how long it took.
    """

    evidence: Evidence
    numbers: list["Number"]
    seconds: float


def baseline(target: Target) -> Baseline:
    """Once to compile, once to measure."""
    papers.examine(target.statement, draws=DRAWS)
    numbers: list[Number] = []
    start = time.perf_counter()
    evidence = papers.examine(_recorded(target.statement, numbers), draws=DRAWS)
    return Baseline(evidence, numbers, time.perf_counter() - start)


def _recorded(statement: Statement, numbers: list[Number], *, impatient: bool = False) -> Statement:
    """The statement with the sides of every check written down; `impatient` stops at the first
    case that fails.
    """

    def measure(case: Any, **broken: Any) -> Any:
        check = statement.measure(case, **broken)
        text = repr((check.left, check.right, check.relation, check.drops))
        numbers.append(Number(text, check.fails and check.dropped is None, bool(control)))
        if impatient and not broken and check.fails and check.dropped is None and not control:
            raise Noticed
        return check

    control: list[bool] = []
    return replace(statement, measure=measure, control=_flagged(statement.control, control))


def _flagged(control: papers.Control, running: list[bool]) -> papers.Control:
    """The control, which says when it begins: its case must fail."""
    build = control.case
    return replace(control, case=lambda: (running.append(True), build())[1])


def noticed(target: Target, before: Baseline) -> str:
    """What the examination notices of the change that is in force."""
    numbers: list[Number] = []
    patient = before.evidence.counterexample is not None
    try:
        with time_limit(max(LEAST_SECONDS, SLACK * before.seconds)):
            after = papers.examine(
                _recorded(target.statement, numbers, impatient=not patient), draws=DRAWS
            )
    except Noticed:
        return "verdict"
    except Late:
        return "time"
    except Exception as error:
        return f"error: {type(error).__name__}"
    if after.kind != before.evidence.kind:
        return "control" if after.kind.startswith("worthless") else "verdict"
    if (after.counterexample, after.routes) != (
        before.evidence.counterexample,
        before.evidence.routes,
    ):
        return "counterexample"
    return (
        NO_EFFECT if deciding(numbers, patient) == deciding(before.numbers, patient) else SURVIVES
    )


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """`Late` after so many seconds, wherever Python is by then."""

    def ring(*_: Any) -> None:
        raise Late

    previous = signal.signal(signal.SIGALRM, ring)
    # Again every second: an exception in a destructor or a callback is ignored.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


class Caches:
    """The caches of a paper's modules: those that depend on a changed function are emptied
    before and after the change.
    """

    def __init__(self, prefix: str) -> None:
        modules = [module for name, module in sys.modules.items() if name.startswith(prefix)]
        held = {id(value): value for module in modules for value in vars(module).values()}
        clears = ((value, _clearing(value)) for value in held.values())
        self.caches = [
            (clear, {id(f) for f in functions(value, prefix)}) for value, clear in clears if clear
        ]

    def clear(self, touched: Iterable[Function]) -> None:
        changed = {id(function) for function in touched}
        for clear, reached in self.caches:
            if reached & changed:
                clear()


def _clearing(value: Any) -> Callable[[], None] | None:
    if isinstance(value, type | types.ModuleType):
        return None
    return getattr(value, "cache_clear", None) or getattr(value, "clear_cache", None)


def run(paper: str, out: Path, count: int, only: Sequence[str], again: bool = False) -> None:
    """All mutants of one paper, one line each into `out/<paper>.jsonl`; those that are there
    already are not run again.

    `again` runs the survivors a second time, where the tool has changed. `out/<paper>.running`
    holds the mutant at work, so that the supervisor knows it when this process dies of it.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    path, marker = out / f"{paper}.jsonl", out / f"{paper}.running"
    done = {
        key: result
        for key, result in results_in(path).items()
        if result.killed != SURVIVES or not again
    }
    for target in targets(paper, only):
        start = time.perf_counter()
        for result in _tried(target, count, done, marker):
            append(path, result)
        print(f"{paper} {target.name}: {time.perf_counter() - start:.1f} s", flush=True)


def _tried(
    target: Target, count: int, done: dict[tuple[str, str, str], Result], marker: Path
) -> Iterator[Result]:
    """The results that are missing until `count` changes had an effect, or three in `BUDGET`
    seconds.
    """
    before, effective, spent = None, 0, 0.0
    for mutant in target.candidates(count):
        result = done.get((target.name, mutant.name, target.source))
        if result is None:
            before = before or baseline(target)
            result = _result(target, mutant, before, marker)
            yield result
        effective, spent = effective + (result.killed != NO_EFFECT), spent + result.seconds
        if effective == count or (effective >= ENOUGH and spent > BUDGET):
            return


def _result(target: Target, mutant: Mutant, before: Baseline, marker: Path) -> Result:
    pending = Result(
        target.name, mutant.kind, mutant.place, mutant.change, "abort", 0.0, target.source
    )
    marker.write_text(json.dumps(asdict(pending), ensure_ascii=False), encoding="utf-8")
    began, caches, codes = (
        time.perf_counter(),
        Caches(target.prefix),
        [f.__code__ for f in target.reached],
    )
    restore = mutant.apply()
    touched = [
        f for f, code in zip(target.reached, codes, strict=True) if f.__code__ is not code
    ] or target.reached
    caches.clear(touched)
    try:
        killed = noticed(target, before)
    finally:
        restore()
        caches.clear(touched)
    marker.unlink()
    return replace(pending, killed=killed, seconds=round(time.perf_counter() - began, 2))


def supervise(paper: str, out: Path, command: list[str]) -> None:
    """Run the worker until it ends well: a mutant that takes the process with it, or hangs it,
    is noted and passed over.
    """
    path, marker = out / f"{paper}.jsonl", out / f"{paper}.running"
    path.parent.mkdir(parents=True, exist_ok=True)
    marker.unlink(missing_ok=True)
    while True:
        worker = subprocess.Popen([*command, paper])
        while worker.poll() is None:
            time.sleep(0.2)
            if marker.exists() and time.time() - _written(marker) > HANGS:
                worker.kill()
        if worker.returncode == 0:
            return
        if worker.returncode > 0 or not marker.exists():
            raise SystemExit(
                f"the worker for {paper} ended with status {worker.returncode}: see above."
            )
        append(path, Result(**json.loads(marker.read_text(encoding="utf-8"))))
        marker.unlink()


def _written(marker: Path) -> float:
    try:
        return marker.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def current(paper: str, out: Path, count: int, only: Sequence[str]) -> list[Result]:
    """The results that belong to today's code and choice of mutants."""
    found, listed = results_in(out / f"{paper}.jsonl"), []
    for target in targets(paper, only):
        keys = [(target.name, mutant.name, target.source) for mutant in target.candidates(count)]
        known = [found[key] for key in keys if key in found]
        effective = [result for result in known if result.killed != NO_EFFECT][:count]
        listed += effective + [result for result in known if result.killed == NO_EFFECT]
    return listed


def judged(names: Iterable[str], out: Path, count: int, only: Sequence[str] = ()) -> list[Judged]:
    """What became of every paper's mutants, beside the statements that have fewer than three."""
    found = []
    for paper in names:
        results = current(paper, out, count, only)
        counts = Counter(r.statement for r in results if r.killed != NO_EFFECT)
        few = [target.name for target in targets(paper, only) if counts[target.name] < ENOUGH]
        found.append(Judged(paper, tuple(results), tuple(few)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "papers", nargs="*", choices=[*papers.PAPERS, []], help="all of them when absent"
    )
    parser.add_argument(
        "--statement",
        action="append",
        default=[],
        help="only this one, by its number; again for more",
    )
    parser.add_argument("--mutants", type=int, default=10, help="how many for each statement")
    parser.add_argument("--jobs", type=int, default=1, help="papers at a time, a process each")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "mutation")
    parser.add_argument("--report", action="store_true", help="only count what was run")
    parser.add_argument(
        "--page", type=Path, help="write the survivors with their reasons into this page"
    )
    parser.add_argument(
        "--again", action="store_true", help="run the survivors again, beside what is missing"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.papers or list(papers.PAPERS)
    if given.worker:
        return run(names[0], given.out, given.mutants, given.statement, given.again)
    if not given.report:
        command = [
            sys.executable,
            __file__,
            "--worker",
            "--mutants",
            str(given.mutants),
            "--out",
            str(given.out),
        ]
        command += ["--again"] * given.again
        command += [word for name in given.statement for word in ("--statement", name)]
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(lambda paper: supervise(paper, given.out, command), names))
    found = judged(names, given.out, given.mutants, given.statement)
    report(found, given.out)
    if given.page:
        write_page(found, given.page)
    return None


if __name__ == "__main__":
    main()
