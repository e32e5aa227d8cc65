"""A printed statement as software: cases over its hypotheses, a measurement of its conclusion, and a negative control."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import numpy as np

Method = Literal["exact", "float64", "integration", "training"]
Relation = Literal["=", "<=", ">="]


def paste(case: Any) -> str:
    """The case as Python one can paste: its `repr`, after the imports of the classes in it.

    >>> paste((1, "relu"))
    "(1, 'relu')"
    """
    found: dict[str, set[str]] = defaultdict(set)
    _collect(case, found)
    lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(found.items())]
    return "\n".join([*lines, repr(case)])


def _collect(value: Any, found: dict[str, set[str]]) -> None:
    if is_dataclass(value) and not isinstance(value, type):
        found[type(value).__module__].add(type(value).__name__)
        for entry in fields(value):
            _collect(getattr(value, entry.name), found)
    elif isinstance(value, tuple | list):
        for entry in value:
            _collect(entry, found)


@dataclass(frozen=True)
class Check:
    """The conclusion on one case: `left` stands in `relation` to `right`, up to `tolerance`.

    `tolerance` is 0 where both sides are exact, and derived from the arithmetic elsewhere. A case on which the conclusion
    says nothing is `vacuous`. `count` is the number of draws the check stands for, its sides being those of the worst draw.
    `hypotheses` names the values this case takes, so that a reader sees which part of the printed range was covered.

    >>> Check(3.0, 2.5, "<=").violation
    0.5
    """

    left: Any
    right: Any
    relation: Relation = "="
    tolerance: float = 0.0
    hypotheses: Mapping[str, Any] = field(default_factory=dict)
    vacuous: bool = False
    count: int = 1

    @property
    def violation(self) -> float:
        """By how much the conclusion is missed; zero or negative where it holds, `inf` where a side is not a number."""
        difference = float(self.left - self.right)
        amount = {"=": abs(difference), "<=": difference, ">=": -difference}[self.relation]
        return float("inf") if np.isnan(amount) else amount

    @property
    def margin(self) -> float:
        """`tolerance − violation`: negative exactly where the conclusion fails."""
        return float(self.tolerance) - self.violation

    @property
    def holds(self) -> bool:
        return self.margin >= 0

    def __str__(self) -> str:
        return f"{_number(self.left)} {self.relation} {_number(self.right)}"


@dataclass(frozen=True)
class Control:
    """A case just outside the hypotheses, or with the conclusion broken: what was changed, and the check that must fail."""

    broken: str
    check: Callable[[], Check]


@dataclass(frozen=True)
class Statement:
    """One statement of a paper.

    `cases(rng, draws)` yields the enumerated cases, smallest first, then `draws` random ones; `measure(case)` takes both sides.
    `exhaustive` names the range that is enumerated wholly or settled by exact algebra; without it the cases are a sample.
    A statement that fails as printed carries `confirm` (the same case by an independent route), `worked` (the
    counterexample by hand), `smaller(case)` (simpler cases to try when minimising) and, where there is one, `amended`, the
    nearby true statement.
    `narrower` says where the check covers less than the print. `show(case)` is the case as Python one can paste.
    """

    paper: str
    row: str
    id: str
    says: str
    method: Method
    cases: Callable[[np.random.Generator, int], Iterable[Any]]
    measure: Callable[[Any], Check]
    control: Control
    draws: int = 40
    exhaustive: str = ""
    narrower: str = ""
    show: Callable[[Any], str] = paste
    smaller: Callable[[Any], Iterable[Any]] = lambda case: ()
    confirm: Callable[[Any], Check] | None = None
    route: str = ""
    worked: str = ""
    amended: "Statement | None" = None

    def answers_to(self, name: str) -> bool:
        """Whether `name` means this statement: its id, the number it begins with, or its row.   `P9`, `Thm 3`, `thm3(2)`

        >>> def nothing(*_): return ()
        >>> control = Control("", lambda: Check(1, 0))
        >>> statement = Statement("bottleneck", "Thm 3", "Thm 3 (2)", "", "exact", nothing, nothing, control)
        >>> [statement.answers_to(name) for name in ("thm3(2)", "Thm 3", "Thm 31", "Thm 3 (1)")]
        [True, True, False, False]
        """
        wanted = _plain(name)
        names = [self.id, self.row, *self.row.split(",")]
        return wanted in map(_plain, names) or bool(re.match(re.escape(wanted) + r"(?![\w.])", _plain(self.id)))


def _plain(name: str) -> str:
    return re.sub(r"\s+", "", name).lower()


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
