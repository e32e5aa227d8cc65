"""What became of the mutants: one line of JSON each, the count for every paper, and the page of
those that survive, with reasons.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REASONS = Path(__file__).resolve().parent / "equivalent_mutants.toml"
SURVIVES, NO_EFFECT = "", "no effect"

Reasons = Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True)
class Result:
    """What became of one change: by what it was noticed, `SURVIVES`, or `NO_EFFECT` on any
    number.
    """

    statement: str
    kind: str
    place: str
    change: str
    killed: str
    seconds: float
    source: str


@dataclass(frozen=True)
class Judged:
    """The results of one paper, and the statements with fewer than three mutants that alter a
    number.
    """

    paper: str
    results: tuple[Result, ...]
    few: tuple[str, ...]

    @property
    def effective(self) -> list[Result]:
        """Those that alter a number."""
        return [r for r in self.results if r.killed != NO_EFFECT]

    @property
    def survivors(self) -> list[Result]:
        return [r for r in self.results if r.killed == SURVIVES]

    def equivalent(self, reasons: Reasons) -> list[Result]:
        """The survivors that are no errors."""
        return [
            r
            for r in self.survivors
            if (r.place, r.change) in reasons and not reasons[r.place, r.change]["counts"]
        ]

    def tally(self, reasons: Reasons) -> tuple[int, int]:
        """How many were noticed, of how many errors."""
        errors = len(self.effective) - len(self.equivalent(reasons))
        return len(self.effective) - len(self.survivors), errors


def append(path: Path, result: Result) -> None:
    """One line more."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")


def read(path: Path) -> list[Result]:
    """The results of a file; none where there is no file."""
    if not path.exists():
        return []
    return [Result(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def results_in(path: Path) -> dict[tuple[str, str, str], Result]:
    """The results of a file by statement, change and code."""
    return {(r.statement, f"{r.place}: {r.change}", r.source): r for r in read(path)}


def explained(path: Path = REASONS) -> Reasons:
    """The survivors that have an explanation, by (place, change): its `reason`, and whether it
    `counts` as one all the same.
    """
    listed = (
        tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []) if path.exists() else []
    )
    return {(entry["place"], entry["change"]): {"counts": False, **entry} for entry in listed}


def report(found: Sequence[Judged], out: Path) -> float:
    """A line per paper, and `out/survivors.md`; the share of errors that were noticed."""
    reasons, lines = explained(), []
    for paper in found:
        dead, errors = paper.tally(reasons)
        alive = [r for r in paper.survivors if r not in paper.equivalent(reasons)]
        named = sum((r.place, r.change) in reasons for r in alive)
        how, idle = (
            Counter(r.killed.partition(":")[0] for r in paper.effective if r.killed),
            _idle(paper),
        )
        print(f"{paper.paper}: {len(paper.effective)} mutants, {_percent(dead, errors)} killed {dict(how)}; {len(alive)} survive, "
              f"{named} of them for a reason; {len(paper.effective) - errors} are no errors; {len(idle)} without effect")  # fmt: skip
        print(
            f"  fewer than three mutants: {', '.join(paper.few)}"
            if paper.few
            else "  three mutants or more for each"
        )
        lines += [
            f"# {paper.paper}: {_percent(dead, errors)} killed\n",
            *_listed(paper.survivors, reasons),
        ]
        lines += ["\n## Without effect on any number\n", *_listed(idle, reasons), ""]
    (out / "survivors.md").write_text("\n".join(lines), encoding="utf-8")
    killed, total = (
        sum(part) for part in zip(*(paper.tally(reasons) for paper in found), strict=True)
    )
    print(f"all: {_percent(killed, total)} killed; wrote {out / 'survivors.md'}")
    return killed / max(1, total)


def _idle(paper: Judged) -> list[Result]:
    return [r for r in paper.results if r.killed == NO_EFFECT]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _listed(results: Iterable[Result], reasons: Reasons) -> Iterator[str]:
    for r in results:
        reason = reasons.get((r.place, r.change), {}).get("reason", "")
        yield f"- **{r.statement}** {r.kind} in `{r.place}`: {r.change}" + (
            f" ({reason})" if reason else ""
        )


_HEADER = """# Mutants that survive

`python tools/mutate_statements.py --mutants 4` breaks every statement of the [ledger](verify.md) on purpose, in its formulas and
constants. This page, written by `--report --page docs/survivors.md`, lists the changes that no verdict, control or counterexample
notices, each with the reason (`tools/equivalent_mutants.toml`). A change that is *no error* leaves the statement as true as it was
and is not counted; the others are.
"""


def write_page(found: Sequence[Judged], path: Path) -> Path:
    """The count of every paper and its survivors with their reasons; refused where one has none."""
    reasons = explained()
    if unexplained := [
        r for paper in found for r in paper.survivors if (r.place, r.change) not in reasons
    ]:
        first = unexplained[0]
        raise ValueError(
            f"{len(unexplained)} survivors have no reason, the first in `{first.place}`: "
            f"{first.change}; write it into {REASONS.name}."
        )
    lines = [
        _HEADER,
        "| paper | mutants | no errors | noticed | survive |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {paper.paper} | {_counts(paper, reasons)} |" for paper in found]
    for paper in found:
        lines += [
            f"\n## {paper.paper}\n",
            "| statement | change | where | why no verdict notices |",
            "|---|---|---|---|",
        ]
        lines += [_row(r, reasons) for r in paper.survivors]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _counts(paper: Judged, reasons: Reasons) -> str:
    dead, errors = paper.tally(reasons)
    cells = (
        len(paper.effective),
        len(paper.effective) - errors,
        _percent(dead, errors),
        errors - dead,
    )
    return " | ".join(map(str, cells))


def _row(result: Result, reasons: Reasons) -> str:
    entry = reasons[result.place, result.change]
    why = entry["reason"] if entry["counts"] else f"*no error*: {entry['reason']}"
    cells = (result.statement, f"{result.kind}: {result.change}", f"`{result.place}`", why)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
