"""The study of `riemann`: examples and findings are exact; a part can be run alone and leaves
its files.
"""

import json

import pytest

from neuromanifold_papers.riemann import examples, findings, study, table


def test_every_example_is_reproduced():
    claims = examples.all_examples(12)
    assert {claim.figure for claim in claims} == {"Ex 15", "Ex 16", "Ex 17", "Ex 19", "Ex 20"}
    assert [claim.claim for claim in claims if not claim.borne_out] == []


def test_the_counterexamples_stand():
    """Each is checked in exact arithmetic and by the fibre; a repaired statement holds on all
    draws.
    """
    claims = {claim.figure + claim.claim[:10]: claim.borne_out for claim in findings.all_findings()}
    assert sorted(map(str, claims.values())) == ["False"] * 6 + ["partly"]
    law = table.corrected_theorem_13(2)
    assert law.counts == law.kernels == law.cases == 8


def test_the_measured_table_parts_from_the_printed_one_exactly_where_known():
    cells = list(table.convolution_cells(2))
    wrong = {
        (cell.dimension, cell.strides, cell.shapes, cell.invariants)
        for cell in cells
        if not cell.agrees
    }
    assert wrong == {
        (1, "all 1", "equal, size 2", "δ = 0"),
        (2, "all 1", "equal", "δ ≠ 0"),
        (2, "all 1", "one size > 1", "δ = 0"),
        (2, "all 1", "one size > 1", "δ ≠ 0"),
        (3, "all 1", "equal", "δ ≠ 0"),
        (3, "1 where sizes > 1", "equal", "δ ≠ 0"),
        (3, "all 1", "one size > 1", "δ = 0"),
        (3, "all 1", "one size > 1", "δ ≠ 0"),
    }


def test_a_part_leaves_figures_data_and_a_summary(tmp_path):
    summary = study.reproduce(tmp_path, figure="singular")
    expected = {"singular.png", "singular.svg", "singular.nc", "summary.json", "blocks"}
    assert {path.name for path in tmp_path.iterdir()} == expected
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert all(claim["borne_out"] for claim in summary["claims"])


def test_parts_and_scales_that_do_not_exist(tmp_path):
    with pytest.raises(
        ValueError, match="`figure` is '7'; the study has examples, findings, table1"
    ):
        study.reproduce(tmp_path, figure="7")
    with pytest.raises(ValueError, match=r"`scale` is 'huge'; use one of small, paper."):
        study.reproduce(tmp_path, scale="huge")
