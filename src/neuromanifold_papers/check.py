"""The conclusion of a statement on one case: both sides, what they stand for, and what was left
out and why.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

Relation = Literal["=", "<=", ">="]
EPS = float(np.finfo(np.float64).eps)
"""The rounding unit of float64, in which tolerances are counted."""


@dataclass(frozen=True)
class Drop:
    """Something a measure leaves out: the whole case, or so many `parts` (comparisons) of it.

    `inside` says that the printed hypotheses hold there: then the check is narrower than the print,
    and `Statement.narrower` must say so. Outside the hypotheses the conclusion promises nothing and
    nothing is lost.
    """

    reason: str
    inside: bool
    parts: int | None = None


Drops = tuple[Drop, ...]


def outside(reason: str, *, when: Any = True, parts: int | None = None) -> Drops:
    """The drop of a case (or of `parts` of it) that does not satisfy the printed hypotheses;
    nothing unless `when`.

    >>> outside("n is even", when=3 % 2 == 0)
    ()
    """
    return _drops(reason, False, when, parts)


def inside(reason: str, *, when: Any = True, parts: int | None = None) -> Drops:
    """The drop of a case (or of `parts` of it) although it satisfies the printed hypotheses;
    nothing unless `when`.

    >>> inside("unequal ranks", parts=2) + outside("no data", parts=0)
    (Drop(reason='unequal ranks', inside=True, parts=2),)
    """
    return _drops(reason, True, when, parts)


def _drops(reason: str, is_inside: bool, when: Any, parts: int | None) -> Drops:
    return (Drop(reason, is_inside, parts),) if bool(when) and parts != 0 else ()


@dataclass(frozen=True)
class Interval:
    """A measured number with its confidence interval: what a statistical statement has on its left
    side.

    >>> print(Interval(62.9, 60.1, 65.7))
    62.9 [60.1, 65.7]
    """

    estimate: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.estimate <= self.high:
            raise ValueError(
                f"`Interval` is {self}; the estimate must lie between its ends, and be a number."
            )

    @classmethod
    def read(cls, text: str) -> "Interval":
        """From what the studies write: a mean with its half-width, or a difference with both ends.

        >>> Interval.read("29.5 ± 4.25 (15)"), Interval.read("+3.1 [-3.5, +9.8]")
        (Interval(estimate=29.5, low=25.25, high=33.75), Interval(estimate=3.1, low=-3.5, high=9.8))
        """
        numbers = [
            float(n)
            for n in re.findall(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text.replace("−", "-"))
        ]
        if "[" in text and len(numbers) >= 3:
            return cls(*numbers[:3])
        if "±" in text and len(numbers) >= 2:
            return cls(numbers[0], numbers[0] - numbers[1], numbers[0] + numbers[1])
        raise ValueError(
            f"`text` is {text!r}; write an interval as '29.9 ± 4.7' or '+3.1 [-3.5, +9.8]'."
        )

    def __str__(self) -> str:
        return f"{number(self.estimate)} [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True)
class Check:
    """The conclusion on one case: `left` stands in `relation` to `right`, up to `tolerance`.

    `tolerance` is 0 where both sides are exact, and derived from the arithmetic elsewhere. A `left`
    that was estimated from a sample is an `Interval`, and one rule holds for all of them: the
    conclusion *fails* when the whole interval violates it, *holds* when the whole interval
    satisfies it, and is *undecided* otherwise. `drops` says what was left out of this case and why
    (`outside`, `inside`); a case dropped whole does not count, but a control may stand on its
    sides. A check may stand for many: `cases` counts the independent ones, `comparisons` all that
    were made on them (as many, unless said), its sides being those of the worst. `hypotheses` names
    the values this case takes, so that a reader sees which part of the printed range was covered.

    >>> Check(3.0, 2.5, "<=").violation
    0.5
    >>> Check(Interval(62.9, 60.1, 65.7), 61, "<=").undecided
    True
    """

    left: Any
    right: Any
    relation: Relation = "="
    tolerance: float = 0.0
    hypotheses: Mapping[str, Any] = field(default_factory=dict)
    drops: Drops = ()
    cases: int = 1
    comparisons: int | None = None

    @property
    def violation(self) -> float:
        """By how much the conclusion is missed, at the kindest end of an interval: ≤ 0 where it
        holds, `inf` for what is no number.
        """
        return self._violations[0]

    @property
    def margin(self) -> float:
        """`tolerance − violation`: negative exactly where the conclusion fails."""
        return float(self.tolerance) - self.violation

    @property
    def fails(self) -> bool:
        return not self.margin >= 0

    @property
    def holds(self) -> bool:
        return self._violations[1] <= self.tolerance

    @property
    def undecided(self) -> bool:
        return not (self.holds or self.fails)

    @property
    def dropped(self) -> Drop | None:
        """Why the whole case does not count, if it does not; a reason outside the hypotheses
        comes first.
        """
        whole = sorted(
            (drop for drop in self.drops if drop.parts is None), key=lambda drop: drop.inside
        )
        return whole[0] if whole else None

    @cached_property
    def _violations(self) -> tuple[float, float]:
        """The least and the greatest violation over the left side."""
        ends = (
            (self.left.low, self.left.high)
            if isinstance(self.left, Interval)
            else (self.left, self.left)
        )
        below, above = (float(end - self.right) for end in ends)
        if np.isnan(below) or np.isnan(above):
            return float("inf"), float("inf")
        if self.relation == "<=":
            return below, above
        if self.relation == ">=":
            return -above, -below
        return max(below, -above, 0.0), max(abs(below), abs(above))

    def __str__(self) -> str:
        """Both sides with the relation in which they stand: `8 ≠ 9` where they should be equal."""
        shown = (_BROKEN if self.fails else _HELD)[self.relation]
        if shown == "=" and self.left != self.right:
            shown = "≈"
        return f"{number(self.left)} {shown} {number(self.right)}"


_HELD = {"=": "=", "<=": "≤", ">=": "≥"}
_BROKEN = {"=": "≠", "<=": ">", ">=": "<"}


def equal(left: Any, right: Any, tolerance: float = 0.0, **said: Any) -> Check:
    """The check that both sides are equal; names that `Check` does not know are hypotheses.

    >>> equal(4, 2 + 2, hidden_layers=1).hypotheses
    {'hidden layers': 1}
    """
    return _check(left, right, "=", tolerance, said)


def at_most(left: Any, right: Any, tolerance: float = 0.0, **said: Any) -> Check:
    """The check that `left` is at most `right`; further names are hypotheses.

    >>> at_most(3, 2).fails
    True
    """
    return _check(left, right, "<=", tolerance, said)


def at_least(left: Any, right: Any, tolerance: float = 0.0, **said: Any) -> Check:
    """The check that `left` is at least `right`; further names are hypotheses."""
    return _check(left, right, ">=", tolerance, said)


_OTHERS = ("drops", "cases", "comparisons")


def _check(left: Any, right: Any, relation: Relation, tolerance: float, said: Any) -> Check:
    known = {name: said.pop(name) for name in _OTHERS if name in said}
    hypotheses = dict(said.pop("hypotheses", {}))
    hypotheses |= {name.replace("_", " "): value for name, value in said.items()}
    return Check(left, right, relation, tolerance, hypotheses, **known)


def number(value: Any) -> str:
    """Six digits of a float; anything else as it is."""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
