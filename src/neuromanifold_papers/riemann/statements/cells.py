"""`riemann`, Table 1 as the study measured it, cell by cell."""

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check
from neuromanifold_papers.recorded import Claims, StudyCases
from neuromanifold_papers.riemann.statements.table import SAME, drawn_delta, spread
from neuromanifold_papers.riemann.table import CONVOLUTIONS
from neuromanifold_papers.statement import NO_PROOF, Control, Statement

# (architecture and dimension, strides, shapes, invariants) where the printed answer is the wrong
# one, and what they have in common.
EXCEPTIONS = {
    (
        "convolution, D = 1",
        "all 1",
        "equal, size 2",
        "δ = 0",
    ): "filters of size 2 and equal norm only change places",
    (
        "convolution, D = 2",
        "all 1",
        "equal",
        "δ ≠ 0",
    ): "like layers with filters of different norms",
    (
        "convolution, D = 3",
        "all 1",
        "equal",
        "δ ≠ 0",
    ): "like layers with filters of different norms",
    (
        "convolution, D = 3",
        "1 where sizes > 1",
        "equal",
        "δ ≠ 0",
    ): "like layers with filters of different norms",
    ("convolution, D = 2", "all 1", "one size > 1", "δ = 0"): "a network on lines",
    ("convolution, D = 2", "all 1", "one size > 1", "δ ≠ 0"): "a network on lines",
    ("convolution, D = 3", "all 1", "one size > 1", "δ = 0"): "a network on lines",
    ("convolution, D = 3", "all 1", "one size > 1", "δ ≠ 0"): "a network on lines",
    ("dense, D = –", "–", "hidden widths ≥ 2", "Δ = c·I ≠ 0"): "W_1W_1ᵀ and Δ commute",
    ("dense, D = –", "–", "hidden width 1", "Δ generic"): "(W, Δ) fixes the norms of the layers",
}
_LABEL = re.compile(r"(.*), strides (.*), shapes (.*), ([δΔ].*): (yes|no)")


def cells(claims: Claims) -> Iterator[Any]:
    """(label, printed answer, largest kernel distance) of every cell that was measured."""
    for claim in claims:
        found = _LABEL.fullmatch(claim["claim"]) if claim["figure"] == "Table 1" else None
        if found is not None and isinstance(claim["measured"], dict):
            yield (
                found.groups()[:4],
                found.group(5),
                float(claim["measured"]["largest kernel distance"]),
            )


def _against(case: Any, answer: str) -> Check:
    label, _, distance = case
    covered = {"cell": ", ".join(label)}
    if answer == "yes":
        return Check(distance, 0.0, tolerance=SAME, hypotheses=covered)
    return Check(distance, SAME, ">=", hypotheses=covered)


def _printed(case: Any) -> Check:
    return _against(case, case[1])


def corrected(label: Any, printed: str) -> str:
    """The printed answer, reversed in the exceptions."""
    return {"yes": "no", "no": "yes"}[printed] if label in EXCEPTIONS else printed


def _redrawn(case: Any) -> Check:
    """The same cell drawn afresh: the largest kernel distance over new fibres."""
    label, printed, _ = case
    named, strides, shapes, invariants = label
    rng, worst = np.random.default_rng(2025), 0.0
    for D, steps, kinds, _, nets in CONVOLUTIONS:
        if (f"convolution, D = {D}", steps, kinds) == (named, strides, shapes):
            worst = max(
                spread(net, rng, drawn_delta(net, rng, invariants == "δ = 0"), 6) for net in nets
            )
    return _against((label, printed, worst), printed)


_STUDY = StudyCases("riemann", cells)
_UNBALANCED = ("convolution, D = 2", "all 1", "equal", "δ ≠ 0"), "yes", 0.95

STUDY = Statement(
    paper="riemann",
    row="Table 1",
    id="Table 1 (all cells)",
    says="the study's 40 families of networks: the largest kernel distance over a fibre is 0 or "
    "not as the table says",
    method="training",
    cases=_STUDY,
    measure=_printed,
    control=Control("a kernel distance of 0.95 where the table says yes", case=lambda: _UNBALANCED),
    confirm=_redrawn,
    route="the same cell drawn afresh",
    worked=cleandoc("""Ten of forty families differ from the table. One-dimensional, stride one, all sizes 2, δ = 0: independent, since
    the tuples are the orders of filters of one norm. High-dimensional with like layers and δ ≠ 0 (three families)
    and with one size above 1 per layer (four families): dependent. Dense with Δ = c·I or with hidden width 1:
    independent. The first and the last but one are exceptions on a set of invariants of measure zero, which the
    printed "generally" may exclude; the other eight are not."""),
    amended=Statement(
        paper="riemann",
        row="Table 1",
        id="Table 1 (all cells), amended",
        says="the same with the ten exceptions reversed",
        method="training",
        cases=_STUDY,
        measure=lambda case, answer=corrected: _against(case, answer(case[0], case[1])),
        control=Control(
            "the exception for like layers not made",
            case=lambda: _UNBALANCED,
            breaks={"answer": lambda label, printed: printed},
        ),
        proof=f"{NO_PROOF} of the table as a whole: it gathers 40 measurements. Dependence is "
        "shown by the two tuples that were "
        "found; where independence is proved, it is with the cell's own statement",
    ),
)
