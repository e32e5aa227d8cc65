"""The study of `invariant`: the table's classes, the printed partition, flows beside a leaf; a
part leaves its files.
"""

import json

import numpy as np
import pytest

from cast import unchecked
from neuromanifold_papers.invariant import closure, dynamics, findings, study


def test_closures_of_every_class_against_leaves(monkeypatch):
    """Up to two neurons, an activation of each class: equal and certified for generic and
    generic odd σ, else smaller as it says.
    """
    one = {name: activations[:1] for name, activations in closure.CLASSES.items()}
    monkeypatch.setattr(closure, "CLASSES", one)
    with unchecked():
        cases = closure.cases(2, (1,), every=False, note=lambda: None)
    assert all(case.certified and case.closure <= case.leaf for case in cases)
    by_class = {name: [c for c in cases if c.family == name] for name in closure.CLASSES}
    for name in ("generic", "generic odd"):
        assert all(case.closure == case.leaf for case in by_class[name]), name
        assert max(case.depth for case in by_class[name]) >= 3, "degenerate points need depth"
    assert {
        case.blocks.count("0·") >= 2 for case in by_class["even"] if case.closure < case.leaf
    } == {True}
    frozen = [case for case in by_class["σ(0) = 0 only"] if "zero" in case.point]
    assert frozen and all(case.leaf - case.closure == 2 for case in frozen)
    assert any(case.closure < case.leaf for case in by_class["polynomial"])


def test_the_printed_partition_fails_at_zero_neurons_only():
    claims = {claim.figure: claim for claim in findings.printed_partitions(2)}
    assert [claims[name].borne_out for name in ("P 5.1", "P 5.2", "P 5.2, repaired")] == [
        True,
        False,
        True,
    ]
    assert claims["P 5.2"].measured["points in several sets"] == 17, (
        "of 81: those with (0, 0) for a neuron"
    )


def test_a_leaf_that_repels_is_left_later_the_nearer_one_starts():
    data = dynamics.beside_a_leaf(300.0, (0.0, 1e-4, 1e-2))
    left = dynamics.time_within(data, 0.1)
    assert data.distance.values[0].max() < 1e-11 and np.isinf(left[0])
    assert left[2] < left[1] < np.inf


def test_a_part_leaves_figures_data_and_a_summary(tmp_path):
    summary = study.reproduce(tmp_path, figure=2, progress=False)
    expected = {"lattice.png", "lattice.svg", "lattice.nc", "summary.json", "blocks"}
    assert {path.name for path in tmp_path.iterdir()} == expected
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert all(claim["borne_out"] for claim in summary["claims"])


def test_parts_and_scales_that_do_not_exist(tmp_path):
    with pytest.raises(
        ValueError,
        match="`figure` is 7; the study has the figures 1 to 5 and the parts findings, closure",
    ):
        study.reproduce(tmp_path, figure=7)
    with pytest.raises(ValueError, match=r"`scale` is 'huge'; use one of small, paper."):
        study.reproduce(tmp_path, scale="huge")
