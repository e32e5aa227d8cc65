"""The statements to break, each on few cases, and which changes to try."""

import hashlib
import random
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from mutants import Mutant, mutants
from neuromanifold import papers
from neuromanifold.papers import Statement
from reachable import Function, classes_of, functions

FIRST, EVERY, DRAWS = 24, 12, 1


@dataclass(frozen=True)
class Target:
    """A statement, or the amendment of one, on few cases and without an amendment of its own."""

    name: str
    statement: Statement

    @property
    def prefix(self) -> str:
        return f"neuromanifold.papers.{self.statement.paper}.statements"

    @cached_property
    def reached(self) -> list[Function]:
        """What `measure` uses, and what is asked of the cases."""
        cases = list(islice(self.statement.cases(np.random.default_rng(0), DRAWS), 40))
        cases += [self.statement.control.case()] if self.statement.control.case is not None else []
        classes = sorted(set().union(*map(classes_of, cases)), key=lambda c: c.__qualname__)
        return functions(self.statement.measure, self.prefix, classes)

    @cached_property
    def source(self) -> str:
        """A fingerprint of that code: results of other code are not reused."""
        codes = sorted(f"{f.__qualname__} {_said(f.__code__)}" for f in self.reached)
        return hashlib.sha256(repr((self.name, FIRST, EVERY, DRAWS, codes)).encode()).hexdigest()[:16]

    def candidates(self, count: int) -> list[Mutant]:
        """Four times as many changes as mutants are wanted, in the order in which they are tried."""
        return chosen(mutants(self.reached, self.prefix), 4 * count, self.name)


def targets(paper: str, only: Sequence[str] = ()) -> Iterator[Target]:
    """Every statement of a paper that answers to `only`, and every amendment under its own name."""
    for statement in papers.select(paper, list(only)):
        if statement.amended is not None:
            yield Target(f"{statement.id} → {statement.amended.id}", _quick(statement.amended))
        yield Target(statement.id, _quick(statement))


def _quick(statement: Statement) -> Statement:
    return replace(papers.thinned(statement, first=FIRST, every=EVERY), amended=None)


def chosen(found: Iterable[Mutant], count: int, name: str) -> list[Mutant]:
    """Up to `count` mutants: one of each kind in turn, nearer functions first, the rest of the order by the statement's name."""
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
        return f"{value.co_name} {value.co_code.hex()} {value.co_names} {[_said(const) for const in value.co_consts]}"
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
