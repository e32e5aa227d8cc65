"""The index of a paper: what each numbered unit of its text is, and which statement executes it.

`<paper>/index.jsonl` has a line for every unit, and one more for every further assertion in it: its
number, its place, a hash of its text (never the text), its kind, and for an assertion our own words
and the statements that execute it, or why no computation can decide it.

    python -m neuromanifold_papers.index complexity            what the text says, unit by unit
    python -m neuromanifold_papers.index complexity --merge F  take over the reading in the file F
"""

import argparse
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from neuromanifold.runtime.files import write_text
from neuromanifold_papers.ledger import PAPERS
from neuromanifold_papers.reading import Unit, units
from neuromanifold_papers.statement import Statement

Kind = Literal["unread", "assertion", "definition", "citation", "motivation", "prose", "part"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""`part` continues the unit before it: the texts are OCR, which breaks displays into pieces."""
TEXTS = "NEUROMANIFOLD_PAPERS"
"""The environment variable that names a folder with the papers' texts, `<paper>.txt`."""


@dataclass(frozen=True)
class Entry:
    """What one unit is. `by` names the statements that execute an assertion, or `why` says why no
    computation can decide it; an assertion with neither is not executed yet.
    """

    number: int
    place: str
    hash: str
    kind: Kind = "unread"
    says: str = ""
    by: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Coverage:
    """How much of a paper is read, asserted, executed, undecidable and not executed yet.

    >>> print(Coverage("complexity", 437, 0, 210, 200, 6))
    437 numbered units: 210 assertions, 200 executed (95 %), 6 undecidable, 4 not executed yet
    """

    paper: str
    numbers: int
    unread: int
    assertions: int
    executed: int
    undecidable: int

    @property
    def waiting(self) -> int:
        """How many assertions are neither executed nor called undecidable."""
        return self.assertions - self.executed - self.undecidable

    @property
    def share(self) -> str:
        """The executed share of the assertions in percent, rounded down."""
        return f"{100 * self.executed // max(self.assertions, 1)} %"

    def __str__(self) -> str:
        return (
            f"{self.numbers} numbered units: "
            + f"{self.unread} not yet read, " * bool(self.unread)
            + f"{self.assertions} assertions, {self.executed} executed ({self.share}), "
            f"{self.undecidable} undecidable"
            + f", {self.waiting} not executed yet"
            * bool(self.waiting)
        )


def entries(paper: str) -> tuple[Entry, ...]:
    """The index of one paper, in the order of its numbers."""
    if paper not in PAPERS:
        raise ValueError(f"`KEY` is {paper!r}; the papers are {', '.join(PAPERS)}.")
    text = (files(f"neuromanifold_papers.{paper}") / "index.jsonl").read_text(encoding="utf-8")
    return tuple(_entry(json.loads(line)) for line in text.splitlines())


def _entry(line: dict[str, Any]) -> Entry:
    fields: dict[str, Any] = {**line, "by": tuple(line.get("by", ()))}
    return Entry(**fields)


def coverage(paper: str, listed: Iterable[Entry] | None = None) -> Coverage:
    """The numbers of one paper's index."""
    listed = entries(paper) if listed is None else tuple(listed)
    asserted = [entry for entry in listed if entry.kind == "assertion"]
    return Coverage(
        paper,
        len({entry.number for entry in listed}),
        sum(entry.kind == "unread" for entry in listed),
        len(asserted),
        sum(bool(entry.by) for entry in asserted),
        sum(bool(entry.why) for entry in asserted),
    )


def flaws(
    listed: Sequence[Entry], statements: Iterable[Statement], text: Sequence[Unit] | None = None
) -> Iterator[str]:
    """What is wrong with an index, one sentence each; with the paper's units also what it lacks."""
    known = {statement.id: statement for statement in statements}
    numbers = [entry.number for entry in listed]
    if sorted(set(numbers)) != list(range(1, len(set(numbers)) + 1)) or numbers != sorted(numbers):
        yield "the numbers are not 1, 2, 3, … in order"
    for entry in listed:
        yield from (f"{entry.number} ({entry.place}) {flaw}" for flaw in _flaws_of(entry, known))
    used = {id for entry in listed for id in entry.by}
    for statement in known.values():
        if statement.source == "printed" and statement.id not in used:
            yield f"{statement.id!r} is called printed and executes no assertion"
    if text is not None:
        yield from _differences(listed, text)


def _flaws_of(entry: Entry, known: dict[str, Statement]) -> Iterator[str]:
    if entry.kind not in KINDS:
        yield f"is called {entry.kind!r}; the kinds are {', '.join(KINDS)}"
    elif entry.kind != "assertion" and (entry.says or entry.by or entry.why):
        yield f"is a {entry.kind} with words of an assertion"
    elif entry.kind == "assertion":
        if not entry.says:
            yield "is an assertion without our words"
        if entry.by and entry.why:
            yield "names statements and also says why none can decide it; it is one or the other"
        yield from (f"names {id!r}, which is no statement" for id in entry.by if id not in known)


def _differences(listed: Sequence[Entry], text: Sequence[Unit]) -> Iterator[str]:
    """Units that the index lacks or has with another text, and our words that are the paper's."""
    held = {entry.number: entry for entry in listed}
    for unit in text:
        if unit.number not in held:
            yield f"{unit.number} ({unit.place}) has no entry"
        elif held[unit.number].hash != unit.hash:
            yield f"{unit.number} ({unit.place}) has another text than the one that was read"
    by_number = {unit.number: " ".join(unit.text.split()) for unit in text}
    for entry in listed:
        words, printed = " ".join(entry.says.split()), by_number.get(entry.number, "")
        if len(words) > 60 and words in printed:
            yield f"{entry.number} ({entry.place}) repeats the paper's words; use our own"
    if len(held) > len(text):
        yield f"the index has {len(held)} numbers and the text {len(text)}"


def paper_text(paper: str, folder: str | Path | None = None) -> str | None:
    """The paper's text, from `folder`, the folder that `NEUROMANIFOLD_PAPERS` names, or
    `shared/papers` beside the project; `None` where there is none.
    """
    beside = (
        parent / "shared" / "papers" for parent in Path(str(files("neuromanifold_papers"))).parents
    )
    named = [folder] if folder is not None else [os.environ.get(TEXTS), *beside]
    for place in named:
        if place and (path := Path(place) / f"{paper}.txt").is_file():
            return path.read_text(encoding="utf-8")
    if folder is not None:
        raise ValueError(f"`--texts` names {folder}, which has no {paper}.txt.")
    return None


_SUGGESTED: dict[str, Kind] = {"heading": "prose", "reference": "citation"}


def renewed(listed: Iterable[Entry], text: Iterable[Unit]) -> list[Entry]:
    """The index of a text: what is known of a unit is kept, wherever it now stands; a new one is
    unread, but for headings and references.
    """
    known: dict[str, list[Entry]] = {}
    for entry in listed:
        known.setdefault(entry.hash, []).append(entry)
    found = []
    for unit in text:
        kind = _SUGGESTED.get(unit.form, "unread")
        for entry in known.get(unit.hash) or [Entry(0, "", unit.hash, kind)]:
            found.append(replace(entry, number=unit.number, place=unit.place))
    return list({json.dumps(_line(entry), sort_keys=True): entry for entry in found}.values())


_READ = re.compile(r"(\d+)(?:-(\d+))?\s+(\w+)(?:\s+(.*))?$")


def merged(listed: Sequence[Entry], reading: str) -> list[Entry]:
    """The index with a reading taken over: lines `12 prose`, `13-18 citation`, `19 assertion our
    words => id; id` or `20 assertion our words =/ why no computation decides it`, without either
    when it is not executed yet; several lines with one number are several assertions. Lines that begin with # are notes.

    >>> [entry] = merged([Entry(1, "Sec 1", "ab")], "1 assertion rank J = rank JJᵀ => 3.3; count")
    >>> entry.kind, entry.says, entry.by
    ('assertion', 'rank J = rank JJᵀ', ('3.3', 'count'))
    """
    at = {entry.number: replace(entry, kind="unread", says="", by=(), why="") for entry in listed}
    new: dict[int, list[Entry]] = {}
    for line in filter(None, (line.strip() for line in reading.splitlines())):
        if line.startswith("#"):
            continue
        found = _READ.match(line)
        if not found or found[3] not in KINDS:
            raise ValueError(
                f"the reading has the line {line!r}; write `12 prose`, `13-18 citation` or "
                "`19 assertion our words => statement; statement`."
            )
        words = _words(found[4] or "")
        for number in range(int(found[1]), int(found[2] or found[1]) + 1):
            if number not in at:
                raise ValueError(f"the reading names {number}; the index ends at {max(at)}.")
            new.setdefault(number, []).append(replace(at[number], kind=found[3], **words))
    kept = [entry for entry in listed if entry.number not in new]
    return sorted([*kept, *(e for found in new.values() for e in found)], key=lambda e: e.number)


def _words(text: str) -> dict[str, Any]:
    if " =/ " in text:
        says, _, why = text.partition(" =/ ")
        return {"says": says.strip(), "why": why.strip()}
    says, _, by = text.partition(" => ")
    return {"says": says.strip(), "by": tuple(id.strip() for id in by.split(";") if id.strip())}


def written(listed: Iterable[Entry]) -> str:
    """The lines of `index.jsonl`."""
    return "".join(json.dumps(_line(entry), ensure_ascii=False) + "\n" for entry in listed)


def _line(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in asdict(entry).items() if value not in ("", ())}


def shown(listed: Iterable[Entry], text: Iterable[Unit], first: int, last: int) -> Iterator[str]:
    """The units from `first` to `last`, each above what the index has of it."""
    known: dict[int, list[Entry]] = {}
    for entry in listed:
        known.setdefault(entry.number, []).append(entry)
    for unit in text:
        if first <= unit.number <= last:
            yield f"{unit.number} {unit.place} [{unit.form}] {unit.text}"
            for entry in known.get(unit.number, ()):
                tail = (
                    f" => {'; '.join(entry.by)}"
                    if entry.by
                    else f" =/ {entry.why}" * bool(entry.why)
                )
                said = f" {entry.says}{tail}" if entry.kind == "assertion" else ""
                yield f"    {entry.kind}{said}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paper")
    parser.add_argument("--units", default="1-", metavar="A-B", help="only these numbers")
    parser.add_argument("--texts", type=Path, help=f"the folder of the texts, else ${TEXTS}")
    parser.add_argument("--merge", type=Path, metavar="FILE", help="take over this reading")
    parser.add_argument("--renew", action="store_true", help="number the text anew")
    given = parser.parse_args()
    text = paper_text(given.paper, given.texts)
    if text is None:
        raise SystemExit(f"no text of {given.paper} is at hand: pass --texts FOLDER.")
    path = Path(str(files(f"neuromanifold_papers.{given.paper}"))) / "index.jsonl"
    held, found = (entries(given.paper) if path.exists() else ()), units(text)
    if given.renew:
        held = tuple(renewed(held, found))
    if given.merge is not None:
        held = tuple(merged(held, given.merge.read_text(encoding="utf-8")))
    if given.renew or given.merge is not None:
        write_text(path, written(held))
        print(coverage(given.paper, held))
        return
    first, _, last = given.units.partition("-")
    print("\n".join(shown(held, found, int(first), int(last or len(found)))))


if __name__ == "__main__":
    main()
