"""The ledger: every statement of every paper, examined in order and compared with the recorded
verdicts.
"""

import importlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from neuromanifold.runtime.devices import compiler_flags
from neuromanifold.runtime.files import write_text
from neuromanifold.runtime.processes import in_processes
from neuromanifold.runtime.threads import cores, one_blas_thread
from neuromanifold_papers.evidence import FAILS, TRUE_INSTEAD, Dropped, Evidence
from neuromanifold_papers.examination import examine_seeded, seed_of
from neuromanifold_papers.statement import Statement

PAPERS = ("complexity", "invariant", "bottleneck", "teleport", "riemann")

# A process costs the import of JAX (three seconds) and compiles for itself what another has
# compiled too.
_MOST_WORKERS, _WORTH_A_PROCESS = 4, 8

Verdicts = Mapping[str, Mapping[str, Mapping[str, Any]]]


def statements(paper: str | None = None) -> tuple[Statement, ...]:
    """The statements of one paper, or of all, in the order of the papers.
    [`papers/<paper>/statements`]
    """
    if paper is not None and paper not in PAPERS:
        raise ValueError(f"`KEY` is {paper!r}; the papers are {', '.join(PAPERS)}.")
    chosen = PAPERS if paper is None else (paper,)
    return tuple(statement for name in chosen for statement in _in_order(name))


@cache
def _in_order(paper: str) -> tuple[Statement, ...]:
    """The paper's statements in the order of the record, those that it lacks at the end."""
    found = importlib.import_module(f"neuromanifold_papers.{paper}.statements").STATEMENTS
    at = {id: index for index, id in enumerate(recorded_verdicts()[paper])}
    return tuple(sorted(found, key=lambda statement: at.get(statement.id, len(at))))


def select(paper: str | None = None, ids: Sequence[str] = ()) -> tuple[Statement, ...]:
    """The statements of `paper` that answer to one of `ids` (all of them without ids); an
    unknown id is an error.
    """
    offered = statements(None if paper is None else paper.lower())
    for name in ids:
        if not any(statement.answers_to(name) for statement in offered):
            ids = "; ".join(statement.id for statement in offered)
            raise ValueError(
                f"`ID` {name!r} names no statement of {paper or 'the papers'}; it has {ids}."
            )
    return tuple(s for s in offered if not ids or any(s.answers_to(name) for name in ids))


def verify(
    chosen: Iterable[Statement],
    *,
    draws: int | None = None,
    key: Any = None,
    finished: Iterable[Evidence] = (),
    workers: int = 1,
) -> Iterator[Evidence]:
    """The evidence for each statement, in their order; what `finished` holds from a run with the
    same draws, key and flags of the compiler is kept.

    With several `workers` the ledger's own statements are examined in so many processes. Each sees
    the cases it sees alone, so that nothing but the time depends on them. A statement that was made
    to measure (thinned, reading another study) has no name that another process would know, and the
    whole list then stays in this one.
    """
    chosen, seed = tuple(chosen), seed_of(key)
    known = {_same(item): item for item in finished}
    counts = [statement.draws if draws is None else draws for statement in chosen]
    kept = [
        known.get((s.paper, s.id, count, seed, compiler_flags()))
        for s, count in zip(chosen, counts, strict=True)
    ]
    todo = [statement for statement, item in zip(chosen, kept, strict=True) if item is None]
    if workers > 1 and all(statement in statements(statement.paper) for statement in todo):
        found = in_processes(_examined, [(s.paper, s.id, draws, seed) for s in todo], workers)
    else:
        found = (_examine(statement, draws, seed) for statement in todo)
    yield from (next(found) if item is None else item for item in kept)


def default_workers(count: int) -> int:
    """How many processes `count` statements are worth: one per core, at most four, and eight
    statements for each.

    >>> default_workers(7)
    1
    """
    return max(1, min(cores(), _MOST_WORKERS, count // _WORTH_A_PROCESS))


def _examined(paper: str, name: str, draws: int | None, seed: int) -> Evidence:
    [statement] = [statement for statement in statements(paper) if statement.id == name]
    return _examine(statement, draws, seed)


def _examine(statement: Statement, draws: int | None, seed: int) -> Evidence:
    """With one BLAS thread, here and elsewhere: so the digits are the same."""
    with one_blas_thread():
        return examine_seeded(statement, draws, seed)


def _same(item: Evidence) -> tuple[str, str, int, int, str]:
    return item.paper, item.id, item.draws, item.seed, item.flags


def merge(held: Iterable[Evidence], found: Iterable[Evidence]) -> list[Evidence]:
    """All of `held`, in its order, each replaced by what `found` has for the same statement,
    draws, key and flags; then the rest of `found`.
    """
    return list({_same(item): item for item in (*held, *found)}.values())


def write_evidence(evidence: Iterable[Evidence], path: Path) -> Path:
    """The evidence as a JSON list of objects, atomically."""
    return write_text(
        path, json.dumps([item.as_dict() for item in evidence], indent=2, ensure_ascii=False) + "\n"
    )


def read_evidence(path: Path) -> list[Evidence]:
    """What `write_evidence` wrote; a file that another version wrote, or another program, is
    refused.
    """
    try:
        return [
            Evidence.from_dict(item) for item in json.loads(Path(path).read_text(encoding="utf-8"))
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"`--json` names {path}, which does not hold the evidence of this version ({error}); "
            "name another file."
        ) from None


def recorded_verdicts() -> Verdicts:
    """Each paper's `verdicts.toml`: for every id the verdict, and for failures the case with
    both routes' numbers.
    """
    return {
        paper: tomllib.loads(_verdicts_of(paper).read_text(encoding="utf-8")) for paper in PAPERS
    }


def _verdicts_of(paper: str) -> Traversable:
    return files(f"neuromanifold_papers.{paper}") / "verdicts.toml"


def expected(evidence: Evidence, recorded: Verdicts, *, small: bool = False) -> str:
    """The recorded verdict; `small` asks for that of a small-scale study where it is recorded apart
    from the paper's scale.

    A small study that lacks the data or the size for a statement says nothing about it, and so
    nothing against the record.
    """
    if small and evidence.method == "training" and evidence.silent:
        return evidence.kind
    entry = recorded.get(evidence.paper, {}).get(evidence.id, {"verdict": "not recorded"})
    return entry.get("small", entry["verdict"]) if small else entry["verdict"]


def source_folder() -> Path:
    """The package in a source tree, where verdicts are recorded; an installed package is refused."""
    folder = Path(str(files("neuromanifold_papers")))
    if not (folder.parents[1] / "pyproject.toml").is_file():
        raise ValueError(
            f"`--record` writes into a source tree, and {folder} is an installed package; clone "
            "the project and run it there."
        )
    return folder


def write_verdicts(
    evidence: Iterable[Evidence], folder: Path, *, keep: Verdicts, small: bool = False
) -> tuple[Path, ...]:
    """Record verdicts in `folder/<paper>/verdicts.toml`, keeping those of `keep` that were not
    examined.
    """
    table = {paper: dict(entries) for paper, entries in keep.items()}
    for item in evidence:
        entries = table.setdefault(item.paper, {})
        entries[item.id] = (
            _entry_small(item, entries) if small else _entry(item) | _kept_small(item, entries)
        )
    return tuple(
        write_text(folder / paper / "verdicts.toml", _tables(table[paper]))
        for paper in PAPERS
        if paper in table
    )


def _entry(item: Evidence) -> dict[str, Any]:
    entry: dict[str, Any] = {"verdict": item.kind}
    if item.dropped:
        entry["dropped"] = [str(dropped) for dropped in item.dropped]
    if item.counterexample is not None and item.kind in (FAILS, TRUE_INSTEAD):
        entry |= {"counterexample": item.counterexample, "routes": list(item.routes)}
    if item.amendment is not None:
        entry |= {
            "amended": item.amendment["statement"],
            "amended_verdict": item.amendment["verdict"],
        }
        if item.amendment["dropped"]:
            entry["amended_dropped"] = [
                str(Dropped(**dropped)) for dropped in item.amendment["dropped"]
            ]
    return entry


def _kept_small(item: Evidence, entries: Mapping[str, Any]) -> dict[str, str]:
    """A small-scale verdict that was recorded before, where it still differs."""
    small = entries.get(item.id, {}).get("small", item.kind)
    return {} if small == item.kind else {"small": small}


def _entry_small(item: Evidence, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entry at the paper's scale, with a differing small-scale verdict beside it."""
    entry = {
        name: value for name, value in entries.get(item.id, _entry(item)).items() if name != "small"
    }
    return entry if item.silent or entry["verdict"] == item.kind else entry | {"small": item.kind}


def _tables(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """TOML's basic strings and arrays are written as JSON's."""
    return "\n".join(_table(name, entry) for name, entry in entries.items())


def _table(name: str, entry: Mapping[str, Any]) -> str:
    fields = [
        f"{field} = {json.dumps(value, ensure_ascii=False)}" for field, value in entry.items()
    ]
    return "\n".join([f"[{json.dumps(name, ensure_ascii=False)}]", *fields, ""])
