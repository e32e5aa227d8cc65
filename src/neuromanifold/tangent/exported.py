"""A certificate that leaves the house: the network as instructions, its numbers, the claims, and how each follows.

`tools/check_certificate.py`, which needs Python's standard library alone, re-checks it.
"""

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.listing import Entry, Listing
from neuromanifold.graph.program import Program
from neuromanifold.graph.walk import walk
from neuromanifold.numerics.files import write_text
from neuromanifold.regions.problem import Problem

FORMAT = "neuromanifold certificate 1"
_MOST_NUMBERS = 2 * 10**7


class Claims(NamedTuple):
    """What is claimed of J: its rank, a minor that is invertible modulo a prime, and why the rank is no larger."""

    rank: int
    prime: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    reason: str
    failure_probability: float
    kernel: list[list[Fraction]]


def save(path: str | Path, problem: Problem, claims: Claims) -> Path:
    """Write the document, atomically. Its last entry is the SHA-256 of the others as they are written."""
    text = json.dumps(document(problem, claims), separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return write_text(path, f'{text[:-1]},"sha256":"{digest}"}}\n')


def document(problem: Problem, claims: Claims) -> dict[str, Any]:
    """What the file holds."""
    (rows, columns), graph = problem.shape, problem.graph
    if rows * columns > _MOST_NUMBERS:
        raise ValueError(
            f"the Jacobian is {rows}×{columns}, too large to be written out as instructions; save the certificate of fewer samples."
        )
    return {
        "format": FORMAT,
        "network": getattr(problem.model, "__name__", repr(problem.model)),
        "rounded": list(graph.program.rounded),
        "claims": {
            **claims._asdict(),
            "shape": [rows, columns],
            "outputs": graph.outputs,
            "affine": graph.affine_dimension,
            "regions": _regions(problem),
            "kernel": [_sparse(vector) for vector in claims.kernel],
        },
        "bends": _bends(problem),
        "jacobian": _jacobian(problem),
    }


def _sparse(vector: list[Fraction]) -> list[list[Any]]:
    return [[i, str(v)] for i, v in enumerate(vector) if v]


def _regions(problem: Problem) -> dict[str, Any]:
    """Which region each sample lies in, how many lie in each; a region is named by its gates."""
    rows = problem.decisions.rows() if problem.graph.units else np.zeros((problem.samples, 1), np.uint8)
    _, of, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return {"of": of.ravel().tolist(), "gates": [row.tobytes().hex() for row in rows], "counts": counts.tolist()}


def _listed(problem: Problem, program: Program) -> tuple[Listing, list[Any], list[int]]:
    """The instructions of a program at this problem's numbers, what they end in, and which of them are the data."""
    A = Listing()
    inputs = problem.inputs(A, slice(None))
    first = len(problem.leaves)
    data = [v.index for v in inputs[first : first + len(problem.data)] if isinstance(v, Entry)]
    return A, walk(program, A, inputs), data


def _bends(problem: Problem) -> dict[str, Any]:
    """What every bend is about: a sign for each comparison; no candidate above the chosen one for each maximum."""
    if not problem.graph.units:
        return {"instructions": [], "signs": [], "maxima": []}
    A, found, _ = _listed(problem, programs.quantities(problem.graph, problem.samples))
    signs, maxima = [], []
    decided = zip(problem.graph.units, problem.decisions.gates, problem.decisions.ties, found, strict=True)
    for units, gate, tie, entry in decided:
        if units.candidates is None:
            signs.append([entry.index, np.where(tie, 0, np.where(gate, 1, -1)).ravel().tolist()])
        else:
            maxima.append(entry.index)
    return {"instructions": A.instructions, "signs": signs, "maxima": maxima}


def _jacobian(problem: Problem) -> dict[str, Any]:
    program = programs.jacobians(problem.graph, problem.samples, problem.chosen.leaves)
    A, [entry], data = _listed(problem, program)
    return {"instructions": A.instructions, "output": entry.index, "data": data}
