"""The study: its data sets, its fits, and the files it leaves, at a size that trains in seconds."""

import json

import numpy as np
import pytest
import xarray as xr

from neuromanifold_papers.bottleneck import depths, study
from neuromanifold_papers.bottleneck.data import DescentTask, LatentTask
from neuromanifold_papers.bottleneck.depths import DepthStudy
from neuromanifold_papers.bottleneck.summary_statistics import summary_cost, summary_step
from neuromanifold_papers.bottleneck.symmetry import SymmetryStudy
from neuromanifold_papers.bottleneck.theory import TheoryStudy

TINY = {
    1: DepthStudy(
        LatentTask(samples=20),
        depths=(3, 4, 5),
        width=5,
        steps=20,
        polish=0,
        ridge=1e-3,
        probed=4,
        seeds=2,
    ),
    2: SymmetryStudy(
        DescentTask(samples=20, dimension=3, steps=4),
        depth=7,
        width=5,
        steps=20,
        polish=0,
        ridge=1e-3,
        shown_layer=3,
    ),
    3: TheoryStudy(folds=(1, 2), depth=12, polyline=(4, 8)),
}


def test_the_latent_task_depends_on_two_of_eight_directions():
    x, y = LatentTask(samples=400).draw()
    assert x.shape == y.shape == (400, 20)
    np.testing.assert_allclose([x.mean(), y.mean()], 0, atol=1e-5)
    np.testing.assert_allclose([x.std(), y.std()], 1, rtol=1e-3)
    again, _ = LatentTask(samples=400).draw()
    assert np.array_equal(x, again)
    other, _ = LatentTask(samples=400, seed=1).draw()
    assert not np.array_equal(x, other)
    smooth = [
        np.sum(np.linalg.svd(a - a.mean(0), compute_uv=False)[:6] ** 2)
        / np.sum((a - a.mean(0)) ** 2)
        for a in (x, y)
    ]
    assert smooth[1] > 0.97 > smooth[0], "y lies closer to a surface of few dimensions than x"


def test_the_descent_task_is_a_function_of_two_statistics_up_to_its_noise():
    task = DescentTask(samples=50, dimension=6, steps=9)
    v = task.starts(50, 0)
    _, costs = task.run(v)
    u = task.statistics(v)
    for t in range(9):
        u = summary_step(u, task.rate)
        np.testing.assert_allclose(costs[:, t], summary_cost(u), atol=0.3, rtol=0)
    quiet = DescentTask(samples=50, dimension=6, steps=9, noise=0.0)
    np.testing.assert_allclose(quiet.run(v)[1][:, -1], summary_cost(u), rtol=1e-9)


def planted(norms, ranks, losses=None, ridge=0.001):
    depths = np.arange(4, 4 + len(norms))
    losses = np.full(len(norms), 0.01) if losses is None else losses
    data = {
        "squared_norm": norms,
        "middle_rank": ranks,
        "loss": losses,
        "objective": losses + ridge * norms,
    }
    return xr.Dataset(
        {k: ("depth", np.asarray(v)) for k, v in data.items()}, {"depth": depths}, {"ridge": ridge}
    )


def test_ranges_are_cut_where_the_rank_changes_and_slopes_are_fitted(rng):
    L = np.arange(4, 16)
    ranks = np.where(L < 8, 3, 2)
    norms = np.where(L < 8, 3.0 * L, 2.0 * L + 4) + 1e-3 * rng.normal(size=12)
    first, second = depths.ranges(planted(norms, ranks))
    assert (first.rank, first.depths) == (3, (4, 5, 6, 7))
    assert (second.rank, second.depths) == (2, tuple(range(8, 16)))
    assert first.agrees
    assert second.agrees
    np.testing.assert_allclose(second.objective_slope, 2, atol=1e-2)
    failed = np.where(L > 12, 0.5, 0.01)
    assert depths.ranges(planted(norms, ranks, failed))[1].depths == tuple(range(8, 13))


def test_branches_of_one_rank_are_fitted_apart(rng):
    L = np.arange(4, 20)
    norms = 3.0 * L + np.where(L < 12, 0.0, 15.0) + 1e-3 * rng.normal(size=16)
    first, second = depths.ranges(planted(norms, np.full(16, 3)))
    assert (first.depths[-1], second.depths[0]) == (11, 12)
    assert first.agrees
    assert second.agrees
    [smooth] = depths.ranges(planted(norms - np.where(L < 12, 0.0, 14.0), np.full(16, 3)))
    assert len(smooth.depths) == 16, "a step as small as the growth itself is no branch"


def test_a_line_bent_by_the_second_correction_is_told_from_a_wrong_slope(rng):
    L = np.arange(4.0, 16.0)
    [bent] = depths.ranges(planted(2 * L + 5 + 40 / L + 1e-3 * rng.normal(size=12), np.full(12, 2)))
    assert not bent.agrees
    assert abs(bent.corrected - 2) <= bent.corrected_half_width
    [wrong] = depths.ranges(planted(3 * L + 1e-3 * rng.normal(size=12), np.full(12, 2)))
    assert abs(wrong.corrected - 2) > wrong.corrected_half_width


def test_reproduce_leaves_figures_data_and_claims(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "SMALL", TINY)
    summary = study.reproduce(tmp_path, progress=False)
    expected = {f"figure{n}.{kind}" for n in (1, 2, 3) for kind in ("png", "svg", "nc")}
    expected |= {"summary.json", "blocks"}
    assert {p.name for p in tmp_path.iterdir()} == expected
    assert json.loads((tmp_path / "summary.json").read_text())["claims"] == json.loads(
        json.dumps(summary["claims"])
    )
    assert {"1a", "1b", "2a", "2b", "2c", "Thm 6", "Thm 10", "P 9", "Ex 20"} <= {
        c["figure"] for c in summary["claims"]
    }
    with xr.open_dataset(tmp_path / "figure1.nc", engine="h5netcdf") as data:
        assert data["singular_values"].dims == ("depth", "layer", "index")
        assert np.isnan(data["singular_values"].sel(depth=3, layer=5)).all()
    (tmp_path / "figure1.png").unlink()
    again = study.redraw(tmp_path, scale="small")
    assert again["sha256"] == summary["sha256"]
    assert (tmp_path / "figure1.png").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"figure": 7}, "`figure` is 7; this study has"),
        ({"scale": "huge"}, "`scale` is 'huge'; pass"),
    ],
)
def test_bad_input(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        study.reproduce(tmp_path, **options)
