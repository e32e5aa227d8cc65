"""The growth of a kernel is fitted, and a ratio that has halved is noticed."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import baseline, growth
from benchmarks.row import Row


def test_an_exponent_is_found_and_compared_with_the_work(tmp_path: Path):
    sizes = (10, 20, 40, 80)
    cubic = growth.Growth(
        "N", sizes, tuple(2e-6 * n**3 for n in sizes), tuple(float(n**2) for n in sizes)
    )
    assert cubic.exponent == pytest.approx(3)
    assert cubic.row.ratio == pytest.approx(1 / 8) and cubic.row.met is False
    square = growth.Growth(
        "N", sizes, tuple(2e-6 * n**2 for n in sizes), tuple(float(n**2) for n in sizes)
    )
    assert square.row.ratio == pytest.approx(1) and square.row.met
    assert growth.plot([cubic, square], tmp_path / "growth.png").stat().st_size > 1000


def test_multiplications_are_counted_by_hand():
    assert growth.multiplications(2, 3, 2, 1) == 3 * (3 + 1 * 3 + 3 + 1) + 2 * 2 * (9 + 3)
    net, params, x = growth.problem(5, 3, 2, 1)
    assert net.widths == (3, 3, 1) and x.shape == (5, 3) and np.shape(params[1].weight) == (1, 3)


def row(name: str, ratio: float | None, agrees: bool = True) -> Row:
    return Row(name, 1.0, "peer", ratio, agrees=agrees, note="a note")


def test_a_ratio_that_halves_is_noticed(tmp_path: Path):
    file = tmp_path / "baseline.json"
    baseline.record([row("a", 10.0), row("b", 3.0), row("absent", None)], file)
    baseline.record([row("b", 4.0)], file)
    assert json.loads(file.read_text())["ratios"] == {"a": 10.0, "b": 4.0}
    assert (
        baseline.halved(
            [row("a", 5.1), row("b", 100.0), row("new", 0.1), row("absent", None)], file
        )
        == []
    )
    assert baseline.halved([row("a", 4.9), row("b", 4.0)], file) == [
        "a: the ratio is 4.9, less than half of the recorded 10"
    ]
    assert baseline.halved([row("b", 4.0, agrees=False)], file) == ["b: the results differ; a note"]
    assert baseline.unknown([row("a", 1.0), row("new", 1.0)], file) == ["new"]
    file.write_text("{")
    with pytest.raises(
        ValueError,
        match=r"baseline\.json cannot be read as recorded ratios .*; record them: bench --record",
    ):
        baseline.halved([], file)
