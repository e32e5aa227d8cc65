"""The statements to break, each on few cases, and which changes to try."""

import hashlib
import random
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import neuromanifold_papers as papers
from mutants import Mutant, mutants
from neuromanifold_papers import Statement
from reachable import Function, classes_of, functions

FIRST, EVERY, DRAWS = 24, 12, 1
RULES = 2
"""One more whenever it changes what a mutant is or when it is noticed."""


@dataclass(frozen=True)
class Target:
    """A statement, or the amendment of one, on few cases and without an amendment of its own."""

    name: str
    statement: Statement
    drawn: str = ""
    """A fingerprint of the module that draws the cases."""

    @property
    def prefix(self) -> str:
        return f"neuromanifold_papers.{self.statement.paper}.statements"

    @cached_property
    def reached(self) -> list[Function]:
        """What `measure` uses, and what is asked of the cases."""
        cases = list(islice(self.statement.cases(np.random.default_rng(0), DRAWS), 40))
        cases.append(self.statement.control.case())
        classes = sorted(set().union(*map(classes_of, cases)), key=lambda c: c.__qualname__)
        return functions(self.statement.measure, self.prefix, classes)

    @cached_property
    def source(self) -> str:
        """A fingerprint of that code, of the control, the second route and the cases: results of
        other code are not reused.
        """
        control = self.statement.control
        around = [control.case, control.passes, *control.breaks.values(), self.statement.confirm]
        listed = {
            id(f): f
            for f in (*self.reached, *(f for part in around for f in functions(part, self.prefix)))
        }
        codes = sorted(f"{f.__qualname__} {_said(f.__code__)}" for f in listed.values())
        kept = (self.name, RULES, FIRST, EVERY, DRAWS, codes, self.drawn)
        return hashlib.sha256(repr(kept).encode()).hexdigest()[:16]

    def candidates(self, count: int) -> list[Mutant]:
        """The changes in the order in which they are tried: four times as many as wanted, chosen
        by kind, then twelve times as many.
        """
        found = list(
            {mutant.name: mutant for mutant in mutants(self.reached, self.prefix)}.values()
        )
        first = chosen(found, 4 * count, self.name)
        named = {mutant.name for mutant in first}
        return [*first, *(mutant for mutant in found if mutant.name not in named)][: 16 * count]


def targets(paper: str, only: Sequence[str] = ()) -> Iterator[Target]:
    """Every statement of a paper that answers to `only`, and every amendment under its own name."""
    for statement in papers.select(paper, list(only)):
        if statement.amended is not None:
            amended = statement.amended
            yield Target(f"{statement.id} → {amended.id}", _quick(amended), _text_of(amended.cases))
        yield Target(statement.id, _quick(statement), _text_of(statement.cases))


def _text_of(cases: Any) -> str:
    path = sys.modules[cases.__module__].__file__ or ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _quick(statement: Statement) -> Statement:
    return replace(papers.thinned(statement, first=FIRST, every=EVERY), amended=None)


def chosen(found: Iterable[Mutant], count: int, name: str) -> list[Mutant]:
    """Up to `count` mutants: one of each kind in turn, nearer functions first, the rest of the
    order by the statement's name.
    """
    by_kind: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in {mutant.name: mutant for mutant in found}.values():
        by_kind[mutant.kind].append(mutant)
    order = random.Random(name)
    for listed in by_kind.values():
        nearest = listed[: 2 * count]
        order.shuffle(nearest)
        listed[: 2 * count] = nearest
    picked: list[Mutant] = []
    while len(picked) < count and any(by_kind.values()):
        picked += [listed.pop(0) for listed in by_kind.values() if listed]
    return picked[:count]


def _said(value: Any) -> str:
    """Code by its instructions, names and constants, wherever it stands in its file."""
    if isinstance(value, types.CodeType):
        return (
            f"{value.co_name} {value.co_code.hex()} {value.co_names} "
            f"{[_said(const) for const in value.co_consts]}"
        )
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
