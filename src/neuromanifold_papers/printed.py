"""What the papers claim, sentence by sentence: `papers/<paper>/claims.toml` says of each claim
how it is checked, or why it cannot be.
"""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from neuromanifold_papers.statement import Statement

_FIELDS = {"place", "says", "checked", "not_executable"}


@dataclass(frozen=True)
class PrintedClaim:
    """One mathematical or numerical claim of a paper.

    `place` is where it stands ("Sec 4.2", "Eq 76", "caption of Fig 2", "proof of Thm 3"), `says`
    our paraphrase. `checked` names the statements that execute it; a claim without them says in
    `not_executable` why not (a definition, a citation, no data).
    """

    paper: str
    id: str
    place: str
    says: str
    checked: tuple[str, ...] = ()
    not_executable: str = ""


@dataclass(frozen=True)
class Coverage:
    """How many claims of a paper are listed, executed, and not executable.

    >>> print(Coverage("complexity", 60, 53, 7))
    60 printed claims listed: 53 executed, 7 not executable
    """

    paper: str
    listed: int
    executed: int
    not_executable: int

    def __str__(self) -> str:
        return (
            f"{self.listed} printed claims listed: {self.executed} executed, "
            f"{self.not_executable} not executable"
        )


def printed_claims(paper: str) -> tuple[PrintedClaim, ...]:
    """The claims of one paper, in the order of its file."""
    text = (files(f"neuromanifold_papers.{paper}") / "claims.toml").read_text(encoding="utf-8")
    return tuple(_claim(paper, name, entry) for name, entry in tomllib.loads(text).items())


def _claim(paper: str, name: str, entry: dict[str, Any]) -> PrintedClaim:
    if unknown := set(entry) - _FIELDS:
        raise ValueError(
            f"`claims.toml` of {paper} has the field {min(unknown)!r} at {name!r}; it knows "
            f"{sorted(_FIELDS)}."
        )
    return PrintedClaim(
        paper,
        name,
        entry.get("place", ""),
        entry.get("says", ""),
        tuple(entry.get("checked", ())),
        entry.get("not_executable", ""),
    )


def coverage(paper: str) -> Coverage:
    """The numbers of one paper's claims."""
    claims = printed_claims(paper)
    executed = sum(bool(claim.checked) for claim in claims)
    return Coverage(paper, len(claims), executed, len(claims) - executed)


def flaws(claims: Iterable[PrintedClaim], statements: Iterable[Statement]) -> Iterator[str]:
    """What is wrong with a list of claims: one sentence each.

    Every claim has a place and a paraphrase, and either names existing statements or says why there
    is none; every statement that is the paper's own checks some claim.
    """
    listed, offered = tuple(claims), {statement.id: statement for statement in statements}
    for claim in listed:
        name = f"{claim.paper} {claim.id!r}"
        if not (claim.place and claim.says):
            yield f"{name} lacks its place or its paraphrase"
        if bool(claim.checked) == bool(claim.not_executable):
            yield f"{name} must name the statements that check it, or say why there is none"
        yield from (
            f"{name} is checked by {id!r}, which is no statement"
            for id in claim.checked
            if id not in offered
        )
    used = {id for claim in listed for id in claim.checked}
    for statement in offered.values():
        if statement.source == "printed" and statement.id not in used:
            yield f"{statement.paper} {statement.id!r} is called printed and checks no claim"
