"""The complexity study on a miniature: it writes what it says, resumes, and its statistics are
those of textbooks.
"""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
import xarray as xr
from jax.flatten_util import ravel_pytree
from scipy import stats

import neuromanifold as nm
from neuromanifold import data
from neuromanifold.data.dataset import Dataset
from neuromanifold_papers.complexity import claims, runs, study
from neuromanifold_papers.complexity.statistics import (
    correlations,
    difference,
    increasing,
    interval,
    successful,
)

WIDTH = (3, 3)


def stand_in(name: str, key=None) -> Dataset:
    """Energy data of the right kind from a generator; the other sets as they are, cut to a few
    samples.
    """
    if name != "energy":
        full = LOAD(name)
        return replace(full, x=full.x[::8], y=full.y[::8])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((24, 8))
    y = np.stack([x[:, 0], np.abs(x[:, 1])], axis=1)
    features = tuple(f"feature {i}" for i in range(8))
    return Dataset(
        name, x, y, features, ("heating_load", "cooling_load"), "none (generated)", "the tests"
    )


LOAD = data.load


@pytest.fixture
def miniature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", stand_in)
    monkeypatch.setattr(runs, "HIDDEN", WIDTH)
    tiny = tuple(
        replace(e, runs=2, epochs=4, every=2, exact_every=4) for e in runs.EXPERIMENTS["small"]
    )
    monkeypatch.setitem(runs.EXPERIMENTS, "small", tiny)
    monkeypatch.setitem(runs.SEEDS, "small", dict.fromkeys(runs.SEEDS["small"], 2))


def test_the_study_writes_figures_data_and_summary_and_does_nothing_twice(
    miniature, tmp_path, monkeypatch
):
    summary = study.reproduce(tmp_path, progress=False)
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    for name in [*(f"figure_{n}" for n in range(1, 10)), "figure_initialisation"]:
        for suffix in ("png", "svg", "nc"):
            assert (tmp_path / f"{name}.{suffix}").stat().st_size > 500
    assert {c["figure"] for c in summary["claims"]} == {
        *(f"Fig {n}" for n in range(1, 10)),
        "Sec 6",
    }
    assert not list(tmp_path.glob("*.checkpoint"))

    def forbidden(*args, **options):
        raise AssertionError("computed again")

    monkeypatch.setattr(runs, "train", forbidden)
    monkeypatch.setattr(runs, "ranks", forbidden)
    assert study.reproduce(tmp_path, progress=False)["claims"] == summary["claims"]

    history = xr.load_dataset(tmp_path / "univariate.nc", engine="h5netcdf")
    net = runs.network(1)
    x, y = runs.load_data(runs.UNIVARIATE)
    unravel = ravel_pytree(net.init(key=jax.random.key(0)))[1]
    for d, run, epoch in ((0, 0, 0), (2, 1, -1)):
        one = history.isel(dataset=d, weight_decay=0, run=run, epoch=epoch)
        params = jax.tree.map(np.asarray, unravel(one.parameters.values))
        assert int(one.exact_dimension) == int(
            nm.functional_dimension(net, params, x[d], exact=True)
        )
        assert int(one.sampled_regions) == nm.sampled_regions(net, params, x[d])
        residual = ((net(params, x[d]) - y[d]) ** 2).sum() / ((y[d] - y[d].mean()) ** 2).sum()
        np.testing.assert_allclose(one.r_squared, 1 - residual, rtol=1e-4)
    start = history.parameters.isel(epoch=0)
    assert (start == start.isel(dataset=0)).all(), "data sets start from equal seeds"
    assert np.isnan(history.exact_dimension.sel(epoch=2)).all(), (
        "exact ranks only where they are due"
    )


def test_one_figure_needs_no_other_and_missing_data_are_told(miniature, tmp_path, monkeypatch):
    summary = study.reproduce(tmp_path, figure=8, progress=False)
    assert [c["figure"] for c in summary["claims"]] == ["Fig 8"]
    assert not (tmp_path / "univariate.nc").exists()

    def absent(name, key=None):
        if name == "energy":
            raise FileNotFoundError("energy is not on this machine; connect to the network.")
        return stand_in(name)

    monkeypatch.setattr(data, "load", absent)
    with pytest.raises(FileNotFoundError, match="connect to the network"):
        study.reproduce(tmp_path, figure=3, progress=False)
    made = study._attempt(
        "Fig 3", lambda: study.FIGURES[3](study.Study(tmp_path, "small", False)), required=False
    )
    assert (made[0].borne_out, "connect to the network" in made[0].note) == ("not measured", True)


def test_an_interrupted_study_continues_with_the_same_numbers(miniature, tmp_path, monkeypatch):
    experiment = replace(runs.EXPERIMENTS["small"][0], datasets=("f1",))
    whole = runs.with_ranks(experiment, runs.trained(experiment, tmp_path / "a"), tmp_path / "a")
    history = runs.trained(experiment, tmp_path / "b")
    calls, ranks = [], runs.ranks
    monkeypatch.setattr(runs, "SECONDS_BETWEEN_WRITES", -1.0)

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return ranks(*args, **options)

    monkeypatch.setattr(runs, "ranks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.with_ranks(experiment, history, tmp_path / "b")
    again = runs.with_ranks(experiment, runs.trained(experiment, tmp_path / "b"), tmp_path / "b")
    xr.testing.assert_identical(again.drop_attrs(), whole.drop_attrs())
    assert len(calls) == 1 + history.r_squared.size


@pytest.mark.parametrize(
    "options, message",
    [({"scale": "huge"}, "`scale` is 'huge'"), ({"figure": 10}, "`figure` is 10")],
)
def test_bad_options_are_told(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        study.reproduce(tmp_path, **options)


def test_the_paper_scale_is_the_papers():
    by_name = {e.name: e for e in runs.EXPERIMENTS["paper"]}
    assert [(by_name[n].runs, by_name[n].every) for n in ("univariate", "energy", "bivariate")] == [
        (15, 50),
        (10, 25),
        (20, 25),
    ]
    assert (by_name["decay"].runs, by_name["decay"].weight_decay) == (10, (0.0, 1e-4, 1e-3))
    assert min(e.epochs for e in by_name.values()) >= 2000
    assert min(runs.SEEDS["paper"].values()) >= 200
    assert [runs.network(n).n_params for n in (1, 2, 8)] == [361, 371, 431]


def test_intervals_are_student_and_welch(rng):
    a, b = rng.normal(0, 1, 9), rng.normal(1, 3, 14)
    mean, half = interval(a)
    low, high = stats.t.interval(0.95, 8, a.mean(), stats.sem(a))
    np.testing.assert_allclose([mean - half, mean + half], [low, high], rtol=1e-12)
    found = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    np.testing.assert_allclose(difference(a, b)[1:], [found.low, found.high], rtol=1e-12)


def test_verdicts_on_orders(rng):
    low, middle, high = (m + 0.1 * rng.standard_normal(10) for m in (0, 1, 2))
    assert increasing([low, middle, high])[0] is True
    assert increasing([low, high, middle])[0] == "partly"
    assert increasing([high, middle, low])[0] is False
    assert increasing([low, high[:1]])[0] == "partly"


def test_correlations_leave_out_what_is_not_measured_or_constant():
    values = np.array([[1.0, 2, np.nan, 3], [5, 5, 5, 5]])
    history = xr.Dataset({"a": (("run", "epoch"), values), "b": (("run", "epoch"), 7 - 2 * values)})
    np.testing.assert_allclose(correlations(history, "a", "b"), [-1.0])


def test_success_is_an_r_squared_above_nine_tenths():
    history = xr.Dataset({"r_squared": (("run", "epoch"), [[0.95, 0.9], [0.0, 0.91]])})
    assert successful(history).values.tolist() == [False, True]


def test_planted_data_turn_a_claim_around():
    """The order claim follows the data: planted in order it holds, with two data sets exchanged
    it does not.
    """

    def planted(means):
        dims = ("dataset", "run", "epoch")
        values = (
            np.array(means)[:, None, None] + np.zeros((3, 4, 3)) + 0.1 * np.arange(4)[None, :, None]
        )
        columns = {
            n: (dims, values)
            for n in ("exact_dimension", "float32_dimension", "functional_dimension")
        }
        return xr.Dataset(
            columns | {"r_squared": (dims, np.ones((3, 4, 3)))},
            {"dataset": ["f1", "f2", "f3"], "epoch": [0, 1, 2]},
        )

    assert claims.tracks_complexity("Fig 2", planted([1, 2, 3]))[0].borne_out is True
    assert claims.tracks_complexity("Fig 2", planted([3, 2, 1]))[0].borne_out is False
