"""A printed statement as software: cases over its hypotheses, a measurement of its conclusion,
and a negative control.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import numpy as np

from neuromanifold_papers.check import Check

Method = Literal["exact", "float64", "integration", "training"]
Source = Literal["printed", "ours", "THEORY"]
NO_PROOF = "no proof"


def paste(case: Any) -> str:
    """The case as Python one can paste: its `repr`, after the imports of the classes in it.

    >>> paste((1, "relu"))
    "(1, 'relu')"
    """
    found: dict[str, set[str]] = defaultdict(set)
    _collect(case, found)
    lines = [
        f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(found.items())
    ]
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
class Control:
    """A case just outside the hypotheses, or the conclusion broken: the statement's own `measure`
    must be seen to fail on it.

    `case()` is the case. `breaks` replaces named ingredients of `measure`, which takes them as
    keyword arguments with the true ones as defaults: where the control breaks the conclusion and
    not the hypotheses. There is no control by hand: it would show that a number differs and not
    that `measure` notices. `passes()` is a case just inside, on which `measure` must be seen to
    hold: where the recorded numbers have room, it notices a threshold that moved away from them.

    >>> def measure(n, offset=1):
    ...     return Check(n * n % 8, offset)
    >>> print(Control("an even number", case=lambda: 2).measured(measure))
    4 = 1
    >>> print(Control("a remainder of 2", case=lambda: 3, breaks={"offset": 2}).measured(measure))
    1 = 2
    >>> print(Control("an even number", case=lambda: 2, passes=lambda: 5).inside(measure))
    1 = 1
    """

    broken: str
    case: Callable[[], Any]
    breaks: Mapping[str, Any] = field(default_factory=dict)
    passes: Callable[[], Any] | None = None

    def measured(self, measure: Callable[..., Check]) -> Check:
        """The check that must fail."""
        return measure(self.case(), **self.breaks)

    def inside(self, measure: Callable[..., Check]) -> Check | None:
        """The check that must hold, where there is one."""
        return None if self.passes is None else measure(self.passes())


@dataclass(frozen=True)
class Statement:
    """One statement of a paper.

    `cases(rng, draws)` yields the enumerated cases, smallest first, then `draws` random ones;
    `measure(case)` takes both sides. `exhaustive` names the range that is enumerated wholly or
    settled by exact algebra; without it the cases are a sample. A statement that fails as printed
    carries `confirm` (the same case by an independent route), `worked` (the counterexample by
    hand), `smaller(case)` (simpler cases to try when minimising) and, where there is one,
    `amended`, the nearby true statement, whose `proof` is ours; one that begins with `NO_PROOF` may
    say why there is none. `narrower` says where the check covers less than the print; it must where
    a measure drops cases inside the hypotheses. `source` is whose sentence it is: the paper's
    ("printed"), our own ("ours"), or THEORY's wording of what no paper prints. `constructive` names
    the explicit object whose cost stands for the quantity, and so bounds it from above only.
    `missing` names what the print leaves out and one would need (loss, optimiser, epochs): where
    our run disagrees, the claim is then not reproduced rather than false. `show(case)` is the case
    as Python one can paste.
    """

    paper: str
    row: str
    id: str
    says: str
    method: Method
    cases: Callable[[np.random.Generator, int], Iterable[Any]]
    measure: Callable[..., Check]
    control: Control
    draws: int = 40
    exhaustive: str = ""
    narrower: str = ""
    source: Source = "printed"
    constructive: str = ""
    missing: str = ""
    show: Callable[[Any], str] = paste
    smaller: Callable[[Any], Iterable[Any]] = lambda case: ()
    confirm: Callable[[Any], Check] | None = None
    route: str = ""
    worked: str = ""
    amended: "Statement | None" = None
    proof: str = NO_PROOF

    def answers_to(self, name: str) -> bool:
        """Whether `name` means this statement: its id, the number it begins with, or its row.
        `P9`, `Thm 3`, `Theorem 3`, `thm3(2)`

        >>> def nothing(*_): return ()
        >>> control = Control("", case=lambda: 1)
        >>> statement = Statement("bottleneck", "Thm 3", "Thm 3 (2)", "", "exact", nothing, nothing, control)
        >>> [statement.answers_to(name) for name in ("thm3(2)", "Theorem 3", "Thm 31", "Thm 3 (1)")]
        [True, True, False, False]
        """
        wanted = _plain(name)
        names = [self.id, self.row, *self.row.split(",")]
        return wanted in map(_plain, names) or bool(
            re.match(re.escape(wanted) + r"(?![\w.])", _plain(self.id))
        )


_WORDS = {
    "theorem": "thm",
    "proposition": "p",
    "prop": "p",
    "lemma": "lem",
    "corollary": "cor",
    "equation": "eq",
    "section": "sec",
    "example": "ex",
    "observation": "obs",
    "remark": "rem",
    "definition": "def",
    "figure": "fig",
    "appendix": "app",
}


def _plain(name: str) -> str:
    plain = re.sub(r"\s+", "", name).lower()
    return re.sub(
        rf"^({'|'.join(_WORDS)})\.?(?=\d|[a-z]\.|\()", lambda found: _WORDS[found[1]], plain
    )
