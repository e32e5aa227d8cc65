"""A paper's text cut into numbered units: every sentence, display, caption, footnote, table cell,
list item and proof step, each with its place. Nothing is left out: what stands between two units
is white space.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

Form = Literal["heading", "sentence", "display", "item", "caption", "footnote", "cell", "reference"]


@dataclass(frozen=True)
class Unit:
    """One numbered piece of a paper's text."""

    number: int
    place: str
    form: Form
    text: str

    @property
    def hash(self) -> str:
        """Twelve digits of SHA-256 of the text, white space apart."""
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()[:12]


def units(text: str) -> tuple[Unit, ...]:
    """The units of a text, numbered from 1.

    >>> found = units("## 2 Results\\n\\nOne is odd. Two, e.g. three.\\n\\n$$x$$")
    >>> [(unit.form, unit.place) for unit in found]
    [('heading', 'Sec 2'), ('sentence', 'Sec 2'), ('sentence', 'Sec 2'), ('display', 'Sec 2')]
    """
    place = _Place()
    found = [unit for block in _blocks(text) for unit in _of_block(block, place)]
    return tuple(replace(unit, number=n) for n, unit in enumerate(found, 1))


def _blocks(text: str) -> Iterator[str]:
    """What blank lines, headings, list items, table rows and displays separate."""
    inside, held = False, []
    for line in text.splitlines():
        stripped = line.strip()
        alone = not inside and re.match(r"#{1,6} |[-•*] |\d+\. *\d*\.?$|\|.*\|$|<sup>", stripped)
        if (not stripped and not inside) or alone:
            yield from _whole(held)
            held = []
        if stripped:
            held.append(stripped)
        inside ^= stripped.count("$$") % 2 == 1
        if re.match(r"#|\|.*\|$", stripped) or stripped.endswith("$$"):
            yield from _whole(held)
            held = []
    yield from _whole(held)


def _whole(lines: list[str]) -> Iterator[str]:
    if lines:
        yield " ".join(lines)


_ENVIRONMENT = re.compile(
    r"(?:#+ *)?\**(Theorem|Proposition|Lemma|Corollary|Definition|Remark|Example|Observation|"
    r"Assumption)\s+((?:[A-Z]\.)?\d+(?:\.\d+)*)(?:\.(?!\d)|:|\**\s*\(|\**$)"
)
_SHORT = {
    "Theorem": "Thm",
    "Proposition": "P",
    "Lemma": "Lem",
    "Corollary": "Cor",
    "Definition": "Def",
    "Remark": "Rem",
    "Example": "Ex",
    "Observation": "Obs",
    "Assumption": "Ass",
}
_HEADING = re.compile(
    r"#+ *\**((?:[A-Z]\.)?\d+(?:\.\d+)*|[A-Z](?:\.\d+)*)\.? +[A-Z][^.$]{2,120}\**$|"
    r"(\d(?:\.\d+)*|[A-GS](?:\.\d+)*) [A-Z][A-Za-z]{2,}(?:[ :,’-]+[A-Za-z\d]+)*$"
)
_OF = re.compile(rf"Proof of ({'|'.join(_SHORT)}) ((?:[A-Z]\.)?\d+(?:\.\d+)*)")
_NAMED = re.compile(
    r"(?:#+ *)?\**(abstract|introduction|references|acknowledge?ments?|checklist|keywords|"
    r"main contributions|appendix [a-z]\.? .*|supplementary material.*)\**:?$",
    re.IGNORECASE,
)
_CAPTION = re.compile(r"(?:\([a-z]\).{0,80})?(Figure|Table) +(\d+) *:")
_PROOF = re.compile(r"[*_#\s(]*(Proof|Proof of [^.:]{3,40})[.:*_ )]")
_CONTINUES = re.compile(
    r"[-•*$(\d]|where|such that|with|and|if|then|moreover|furthermore|in particular|also|here",
    re.IGNORECASE,
)
_BEGINS = re.compile(rf"\**({'|'.join(_SHORT)})\s+[\w.]+\.?\**$")
_ENDS = ("□", "∎", r"\square", "◇", r"\diamondsuit")


@dataclass
class _Place:
    """Where the reader is: a section, and inside it a numbered statement or its proof."""

    section: str = "front"
    environment: str = ""
    proof: bool = False
    references: bool = False
    ended: bool = False
    last: str = ""

    def __str__(self) -> str:
        if not self.environment:
            return f"{self.section}, proof" if self.proof else self.section
        return f"{self.section}, {'proof of ' * self.proof}{self.environment}"

    def heading(self, number: str, title: str) -> None:
        self.section, self.environment, self.proof = number, "", False
        self.references = number == "references"
        self.last = self._proved(title) if _OF.search(title) else ""

    def _proved(self, text: str) -> str:
        """The statement that a proof is of: the one it names, or the last one."""
        found = _OF.search(text)
        return f"{_SHORT[found[1]]} {found[2]}" if found else self.last

    def enter(self, block: str) -> None:
        """Move on to what the block begins; a statement ends with the paragraph in which it does."""
        if found := _ENVIRONMENT.match(block):
            self.environment, self.proof, self.ended = (
                f"{_SHORT[found[1]]} {found[2]}",
                False,
                False,
            )
            self.last = self.environment
        elif _PROOF.match(block):
            self.environment, self.proof = self._proved(block), True
        elif self.ended and not self.proof and not _CONTINUES.match(block):
            self.environment = ""
        self.ended = self.ended or (block.endswith((".", ".*")) and not _BEGINS.match(block))


def _of_block(block: str, place: _Place) -> Iterator[Unit]:
    if number := _heading(block, place):
        place.heading(number, block)
        yield Unit(0, str(place), "heading", block)
        return
    if found := _CAPTION.match(block):
        at = f"{found[1][:3]} {found[2]}" if found[1] == "Figure" else f"Table {found[2]}"
        yield from (Unit(0, at, "caption", part) for part in _sentences(block))
        return
    if block.startswith("<sup>"):
        yield from (Unit(0, f"{place}, footnote", "footnote", part) for part in _sentences(block))
        return
    if re.match(r"\|.*\|.*\|$", block):
        cells = [cell.strip() for cell in block.strip("|").split("|")]
        yield from (Unit(0, str(place), "cell", cell) for cell in cells if cell.strip("-: "))
        return
    place.enter(block)
    form: Form = "item" if re.match(r"[-•*] ", block) else "sentence"
    if place.references:
        yield Unit(0, str(place), "reference", block)
        return
    for part in _displays(block):
        if part.startswith("$$"):
            yield Unit(0, str(place), "display", part)
        else:
            yield from (Unit(0, str(place), form, piece) for piece in _sentences(part))
    if any(end in block for end in _ENDS):
        place.environment, place.proof = "", False


def _heading(block: str, place: _Place) -> str:
    """The name of the section that a heading opens, or nothing."""
    if len(block) > 200 or _ENVIRONMENT.match(block):
        return ""
    if named := _NAMED.match(block):
        word = named[1].lower()
        return {"abstract": "Abstract", "introduction": "Sec 1"}.get(word, _appendix(named[1]))
    if (found := _HEADING.match(block)) and (block.startswith("#") or not place.references):
        number = (found[1] or found[2]).replace("S", "5")
        return f"{'App' if number[0].isalpha() else 'Sec'} {number}"
    return str(place.section) if block.startswith("#") else ""


def _appendix(name: str) -> str:
    found = re.match(r"appendix ([a-z])", name, re.IGNORECASE)
    return f"App {found[1].upper()}" if found else name.lower().partition(":")[0]


def _displays(block: str) -> list[str]:
    """The block's displays and what stands between them."""
    parts = re.split(r"(\$\$.*?\$\$)", block, flags=re.DOTALL)
    return [part.strip() for part in parts if part.strip()]


_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|resp|etc|vs|al|Eqs?|Figs?|Secs?|Thms?|Props?|Lem|Cor|Def|Ex|App|Apps|"
    r"Ch|No|Vol|pp|ed|eds|w\.r\.t|s\.t|dim|sing|vals|ba|st|approx|i\.i\.d|a\.k\.a)|\b[A-Z]|"
    r"^\W*(?:\(?[ivx]+\)?|\(?\d+\)?)|^[*_#\s]*(?:"
    r"Theorem|Proposition|Lemma|Corollary|Definition|Remark|Example|Observation|Assumption|Proof)"
    r"[^.]{0,12})$"
)
_STOP = re.compile(r"[.!?]['\"”’)\]*_]*(?=\s)|(?<=[.:])\*\*(?=\s)")


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph; formulas between dollars are kept whole."""
    hidden = re.sub(r"\$[^$]*\$", lambda found: "x" * len(found[0]), text)
    start = 0
    for stop in _STOP.finditer(hidden):
        before, after = hidden[start : stop.start()], hidden[stop.end() :].lstrip()
        if _ABBREVIATED.search(before) or (after and after[0].islower()):
            continue
        if piece := text[start : stop.end()].strip():
            yield piece
        start = stop.end()
    if piece := text[start:].strip():
        yield piece


def listed(found: Iterable[Unit]) -> str:
    """The units as lines `number place [form] text`, for a reader."""
    return "\n".join(f"{unit.number} {unit.place} [{unit.form}] {unit.text}" for unit in found)
