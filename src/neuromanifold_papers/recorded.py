"""Statements about training outcomes: they read a study's `summary.json`, whose hash is checked."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold_papers.output import claims_hash
from neuromanifold_papers.statement import Statement

Claims = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class StudyCases:
    """The cases that `pick` finds in the claims of a study: the recorded run's, or those of the
    `summary` given.
    """

    paper: str
    pick: Callable[[Claims], Iterable[Any]]
    summary: Path | None = None

    def __call__(self, rng: np.random.Generator, draws: int) -> Iterable[Any]:
        return self.pick(read_claims(self.paper, self.summary))


def read_claims(paper: str, summary: Path | None = None) -> Claims:
    """The claims of `summary.json`, after checking that they are as the study wrote them."""
    source = files(f"neuromanifold_papers.{paper}") / "summary.json" if summary is None else summary
    content = json.loads(source.read_text(encoding="utf-8"))
    if claims_hash(content["claims"]) != content["sha256"]:
        raise ValueError(
            f"the claims in {source} are not those the study wrote: their hash differs; run "
            f"`neuromanifold reproduce {paper}` again."
        )
    return content["claims"]


def reading(
    statements: Iterable[Statement], summaries: Callable[[str], Path]
) -> Iterator[Statement]:
    """The statements, those about training and their amendments reading `summaries(paper)` instead
    of the recorded run.

    A run that lacks part of the recorded one's numbers is narrower, and is said to be.
    """
    return (_reading(statement, summaries) for statement in statements)


def _reading(statement: Statement, summaries: Callable[[str], Path]) -> Statement:
    if statement.amended is not None:
        statement = replace(statement, amended=_reading(statement.amended, summaries))
    if not isinstance(statement.cases, StudyCases):
        return statement
    cases = replace(statement.cases, summary=summaries(statement.paper))
    return replace(
        statement, cases=cases, narrower=statement.narrower or "what this run of the study measured"
    )
