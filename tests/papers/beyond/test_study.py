"""The study beyond the papers, at a size at which nothing is learned: files, resuming, claims."""

import json

import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold_papers.beyond import cast, equal, study
from neuromanifold_papers.output import read_data

TINY = study.Scale(
    draws=4, seeds=2, noises=(0.0, 1.0), fitted=5, modulus=3, hidden=4, grokking=4, wave=20,
    shares=(0.0, 1.0), degrees=(1, 2), pictures=12, learned=2, looks=2, walks=4, walkers=2, width=4, gain=1.0, share=0.8,
    decay=1.0, adding=4,
)  # fmt: skip


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(study.SCALES, "small", TINY)


@pytest.mark.parametrize("number", [2, 3, 4, 7, "digits"])
def test_a_figure_leaves_its_data_and_is_not_computed_again(tiny, tmp_path, monkeypatch, number):
    summary = study.reproduce(tmp_path, figure=number, progress=False)
    assert {claim["figure"] for claim in summary["claims"]} == {str(number)}
    for suffix in ("png", "svg", "nc"):
        assert (tmp_path / f"figure_{number}.{suffix}").stat().st_size > 0
    assert json.loads((tmp_path / "summary.json").read_text())["claims"] == summary["claims"]
    kept = read_data(tmp_path / f"figure_{number}.nc")
    assert all(np.isfinite(v).all() for v in kept.values() if v.dtype.kind in "fiu")
    kept = study.ASKED if number in study.ASKED else study.FIGURES
    monkeypatch.setitem(kept, number, (None, None))
    assert study.reproduce(tmp_path, figure=number, progress=False)["claims"] == summary["claims"]


def test_the_cast_is_at_minima_that_fit_and_never_below_half_the_rank():
    for case in cast.CAST:
        rank = nm.functional_dimension(case.f, case.params, case.x)
        assert int(rank) / 2 <= case.exact
        assert (int(rank) / 2 < case.exact) == case.singular, case.name


def test_the_formula_of_reduced_rank_regression_is_half_the_dimension_where_it_must_be():
    """With a hidden layer as narrow as the rank the map is an immersion up to GL(r)."""
    for inputs, outputs, rank in [(3, 3, 1), (2, 5, 2), (4, 3, 2)]:
        expected = rank * (inputs + outputs - rank) / 2
        assert cast.aoyagi(inputs, rank, outputs, rank) == expected
    assert cast.aoyagi(2, 3, 2, 1) != 1 * (2 + 2 - 1) / 2


def test_moves_keep_the_function_and_only_a_silent_unit_raises_the_dimension():
    """A silent unit adds the columns of its outgoing weights, those of four units here; its
    incoming ones do nothing. Of a split unit all columns are multiples of the old ones.
    """
    x = np.round(np.random.default_rng(0).normal(size=(60, 3)), 2)
    start = equal.perceptron((3, 6, 4, 2), "relu")
    ranks = {}
    for name, move in equal.MOVES.items():
        net, params = network = move(start)
        assert np.abs(equal.outputs(network, x) - equal.outputs(start, x)).max() < 1e-13, name
        ranks[name] = int(nm.functional_dimension(net, params, x, exact=True))
    silent = ranks.pop("a silent unit added")
    assert len(set(ranks.values())) == 1 and 0 < silent - ranks["none"] <= 4
    doubled = equal.widen(start, 0, (start[1][0].weight[0], 0.0, start[1][1].weight[:, 0]))
    assert np.abs(equal.outputs(doubled, x) - equal.outputs(start, x)).max() > 0.1
    for name, (move, _) in equal.DEGENERATE.items():
        moved = equal.outputs(move(equal.unit()), x[:, :1])
        assert np.abs(moved - equal.outputs(equal.unit(), x[:, :1])).max() < 1e-13, name


def test_bad_choices_are_named(tmp_path):
    with pytest.raises(ValueError, match="`scale` is 'huge'; pass 'small' or 'paper'"):
        study.reproduce(tmp_path, scale="huge")
    with pytest.raises(ValueError, match="this study has the figures 1 to 7, and digits"):
        study.reproduce(tmp_path, figure=8)


def test_only_a_missing_data_set_is_called_one(tmp_path, monkeypatch):
    def missing(_):
        raise FileNotFoundError("`fashion_mnist_test` is not here; fetch it.")

    def measure(_):
        raise FileNotFoundError("a scratch file is gone")

    monkeypatch.setattr(nm.data, "load", missing)
    [claim] = study.reproduce(tmp_path, figure=6, progress=False)["claims"]
    assert claim["claim"] == "needs its data set" and "fetch it" in claim["measured"]
    monkeypatch.setitem(study.FIGURES, 3, (measure, None))
    with pytest.raises(FileNotFoundError, match="a scratch file is gone"):
        study.reproduce(tmp_path, figure=3, progress=False)
