"""`riemann`, Table 1 as the study measured it, cell by cell."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from neuromanifold.functionspace.smoothness import stride_one_runs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.recorded import Claims, StudyCases
from neuromanifold_papers.riemann.statements.exact import by_training
from neuromanifold_papers.riemann.statements.table import SAME, drawn_delta, larger_in_run, spread
from neuromanifold_papers.riemann.statements.theorem13 import equal_norms
from neuromanifold_papers.riemann.table import CONVOLUTIONS
from neuromanifold_papers.statement import control

Label = tuple[str, str, str, str]
"""Architecture and dimension, strides, shapes, invariants."""
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
        return equal(distance, 0.0, SAME, hypotheses=covered)
    return at_least(distance, SAME, hypotheses=covered)


def independent(net: LinearConvNet, delta: np.ndarray) -> bool:
    """Whether the NTK over almost every v and δ is one. Filters with two sizes above 1 are irreducible
    and only change places; others are products of linear forms on a line, which layers joined by
    stride one exchange.
    """
    if net.dimension > 1 and all(sum(k > 1 for k in shape) > 1 for shape in net.filter_shapes):
        return equal_norms(net, delta)
    axis = int(np.argmax(net.filter_shapes[0]))
    line = LinearConvNet(
        *(tuple(v[axis] for v in listed) for listed in (net.filter_shapes, net.strides))
    )
    joined = any(len(run) > 1 for run in stride_one_runs(line))
    return not joined or not (delta.any() or larger_in_run(line))


def ruled(label: Label, printed: str) -> str:
    """What the rule says of a cell: "yes" where all its networks are independent."""
    named, strides, shapes, invariants = label
    if named.startswith("dense"):
        return "yes" if invariants != "Δ generic" or shapes == "hidden width 1" else "no"
    nets = next(
        nets
        for D, *cell, _, nets in CONVOLUTIONS
        if (named, strides, shapes) == (f"convolution, D = {D}", *cell)
    )
    generic = 3.0 ** np.arange(5) * (invariants != "δ = 0")
    return "yes" if all(independent(net, generic[: net.depth - 1]) for net in nets) else "no"


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


@by_training(
    "Table 1 (all cells)",
    _STUDY,
    control("a kernel distance of 0.95 where the table says yes", lambda: _UNBALANCED),
    confirm=_redrawn,
)
def study(case: Any, answer: Any = lambda label, printed: printed) -> Check:
    """The study's 40 families of networks: the largest kernel distance over a fibre is 0 or not
    as the table says.
    """
    return _against(case, answer(case[0], case[1]))


table_1_all_cells_amended = study.amend(
    control(
        "the printed answer in place of the rule",
        lambda: _UNBALANCED,
        answer=lambda label, printed: printed,
    ),
    answer=ruled,
)(
    "One rule for all 40: filters with two sizes above 1 only change places, and the NTK is independent "
    "when layers of one space have equal norms; on lines it is so without layers joined by stride one, "
    "or with sizes 2 alone and δ = 0; dense, for Δ = 0 or c·I or hidden width 1."
)
