"""What the examination of a statement found: the verdict and its grounds."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, Drop
from neuromanifold_papers.statement import NO_PROOF

HOLDS, SAMPLED, CONSTRUCTIVE = "holds", "no counterexample", "constructive"
FAILS, TRUE_INSTEAD = "fails", "fails; true instead"
UNDECIDED, NOT_REPRODUCED = "undecided", "not reproduced"
KINDS = (HOLDS, SAMPLED, CONSTRUCTIVE, TRUE_INSTEAD, FAILS, UNDECIDED, NOT_REPRODUCED)
"""The verdicts; anything else is what is wrong with the check itself, and never matches the
record.
"""


def kind(verdict: str) -> str:
    """The verdict without its number, as the record has it.

    >>> kind("no counterexample in 40"), kind("fails as printed (constant); true instead")
    ('no counterexample', 'fails; true instead')
    """
    plain = re.sub(r"^fails( as printed)?( \([a-z ]+\))?", FAILS, verdict)
    return next(
        (name for name in (SAMPLED, CONSTRUCTIVE) if plain.startswith(f"{name} in ")), plain
    )


@dataclass(frozen=True)
class Dropped:
    """How many cases, and how many comparisons of cases that counted, were dropped for one reason.

    >>> print(Dropped("unequal ranks", True, 2, 5))
    2 cases and 5 comparisons inside the hypotheses: unequal ranks
    """

    reason: str
    inside: bool
    cases: int
    parts: int

    def __str__(self) -> str:
        counts = ((self.cases, "case"), (self.parts, "comparison"))
        said = " and ".join(
            f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count
        )
        return f"{said} {'inside' if self.inside else 'outside'} the hypotheses: {self.reason}"


def tally(checks: Iterable[tuple[Check, Iterable[Drop]]]) -> tuple[Dropped, ...]:
    """The drops counted by reason, in the order in which they first came."""
    found: dict[tuple[str, bool], list[int]] = {}
    for check, drops in checks:
        for drop in drops:
            counts = found.setdefault((drop.reason, drop.inside), [0, 0])
            counts[drop.parts is not None] += check.cases if drop.parts is None else drop.parts
    return tuple(Dropped(*name, *counts) for name, counts in found.items())


@dataclass(frozen=True)
class Evidence:
    """What a statement's examination found; `verdict` is the sentence, the rest its grounds.

    `cases` counts the independent cases on which the conclusion was checked, `comparisons` what was
    compared on them, `dropped` what was left out, by reason. `flags` are those of the compiler, on
    which digits depend.
    """

    paper: str
    id: str
    statement: str
    verdict: str
    cases: int
    comparisons: int
    dropped: tuple[Dropped, ...]
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
    source: str = "printed"
    severity: str = ""
    constructive: str = ""
    missing: str = ""
    proof: str = NO_PROOF
    draws: int = 0
    seed: int = 0
    flags: str = ""
    seconds: float = 0.0

    @property
    def kind(self) -> str:
        """The verdict without its number: what `verdicts.toml` records."""
        return kind(self.verdict)

    @property
    def silent(self) -> bool:
        """Whether no case said anything."""
        return self.cases == 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON, which knows no infinity: a margin or violation that is not
        finite becomes null.
        """
        return {name: _finite(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, item: dict[str, Any]) -> "Evidence":
        """From what `as_dict` gave, through JSON."""
        dropped = tuple(Dropped(**entry) for entry in item["dropped"])
        known: dict[str, Any] = {**item, "routes": tuple(item["routes"]), "dropped": dropped}
        return cls(**known)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
