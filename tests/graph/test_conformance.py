"""The table in docs/graph.md is what the code knows: no more, no less."""

import re
from pathlib import Path

import pytest

from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.balls import Balls
from neuromanifold.graph.bounded import Bounded
from neuromanifold.graph.heights import Heights
from neuromanifold.graph.numbers import Rationals, Support
from neuromanifold.graph.primitives import PRIMITIVES
from neuromanifold.graph.residues import ResidueArithmetic

PAGE = Path(__file__).parents[2] / "docs" / "graph.md"
ARITHMETICS = {a.name: a for a in (Bounded, Balls, ResidueArithmetic, Rationals, Heights, Support)}


def _table() -> tuple[list[str], dict[str, list[str]]]:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    at = next(i for i, row in enumerate(rows) if row[0] == "operation")
    body = {row[0]: row[1:] for row in rows[at + 2 :] if len(row) == len(rows[at])}
    return rows[at][1:], {
        name: cells for names, cells in body.items() for name in re.split(r",\s*", names)
    }


def test_every_operation_stands_in_the_table_once():
    _, rows = _table()
    known = {name for name, row in PRIMITIVES.items() if row.arithmetic or row.bend}
    assert set(rows) == known


@pytest.mark.parametrize("name", ARITHMETICS)
def test_who_decides_is_said_truly(name: str):
    names, rows = _table()
    column = names.index(name)
    decides = ARITHMETICS[name].sign is not Arithmetic.sign and name != "heights"
    for operation, cells in rows.items():
        bends = PRIMITIVES[operation].bend is not None
        expected = ("decides" if decides else "gates given") if bends else "values"
        assert cells[column] == expected
