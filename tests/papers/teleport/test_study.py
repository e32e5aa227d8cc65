"""The teleport study at tiny scale: every number by a second route, resumption, and the launcher
on a bare machine.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neuromanifold as nm
from neuromanifold.data import fashion
from neuromanifold.models import losses
from neuromanifold.symmetry import HadamardGroup
from neuromanifold.symmetry.conservation.scales import ScaleSearch
from neuromanifold_papers.teleport import beyond, runs, study, training
from neuromanifold_papers.teleport import data as image_data
from neuromanifold_papers.teleport.statistics import halving_epoch, halving_time, log_slope, pearson
from neuromanifold_papers.teleport.training import LOSSES, Images, Optimizer

NET = nm.MLP((6, 5, 5, 3), bias=False, scaling="ntk")
QUIET = lambda what, fraction: None  # noqa: E731


@pytest.fixture
def data(rng):
    x, t = (rng.uniform(size=(n, 6)).astype(np.float32) for n in (24, 8))
    y, u = (np.eye(3, dtype=np.float32)[rng.integers(0, 3, n)] for n in (24, 8))
    return Images(*(jnp.asarray(a) for a in (x, y, t, u)))


@pytest.mark.parametrize("name", LOSSES)
def test_training_equals_optax_and_alignment_equals_the_library(name, data, key):
    loss, optimizer = LOSSES[name], Optimizer(lr=0.5, batch=8)
    keys = jax.random.split(key, 2)
    start = training.draw(NET, keys)
    measured = training.measure(NET, loss, start, data.x, data.y, data)
    indices = training.shuffled(optimizer, 24, 1, keys)[:, 0]
    one = [jax.tree.map(lambda leaf, r=r: np.array(leaf[r]), start) for r in range(2)]
    momenta = jax.tree.map(jnp.zeros_like, start)
    trained, _ = training.train_steps(NET, loss, optimizer, start, momenta, indices, data)
    sgd = optax.sgd(0.5, momentum=0.9)
    for run, params in enumerate(one):
        expected = nm.alignment(NET, params, data.x, data.y, loss=loss)
        assert float(measured.alignment[run]) == pytest.approx(expected, rel=1e-5)
        state = sgd.init(params)
        for index in indices[run]:
            gradient = jax.grad(lambda p, i=index: loss(NET(p, data.x[i]), data.y[i]))(params)
            updates, state = sgd.update(gradient, state)
            params = optax.apply_updates(params, updates)
        for found, wanted in zip(jax.tree.leaves(trained), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(found[run], wanted, rtol=1e-4, atol=1e-5)


def test_twins_equal_separate_training_and_a_small_step_keeps_them_together(data, key):
    keys = jax.random.split(key, 2)
    weights = training.draw(NET, keys)
    scales = jax.tree.map(lambda w: jnp.full_like(w, 1.5), weights)
    loss = losses.half_squared_error
    rates = (1e-3, 1.0)
    gaps = []
    for lr in rates:
        optimizer = Optimizer(lr=lr, batch=8)
        runs = training.twins(jax.tree.map(jnp.copy, weights), jax.tree.map(jnp.copy, scales))
        runs, compared = training.train_twins(NET, loss, optimizer, 3, runs, keys, data)
        gaps.append(np.asarray(compared.rmse))
    assert gaps[0].shape == (2, 3)
    assert (gaps[0] < 1e-3 * gaps[1]).all()
    preconditioned = jax.tree.map(lambda leaf: np.array(leaf[0]), weights)
    momenta = jax.tree.map(np.zeros_like, preconditioned)
    for index in optimizer.batches(keys[0], 24, 1)[0]:
        gradient = jax.grad(lambda p, i=index: loss(NET(p, data.x[i]), data.y[i]))(preconditioned)
        momenta = jax.tree.map(lambda m, g: 0.9 * m + 1.5**2 * g, momenta, gradient)
        preconditioned = jax.tree.map(lambda p, m: p - m, preconditioned, momenta)
    found = jax.tree.map(lambda c, s, d: c[0] * (s[0] + d[0]), runs.scales, runs.start, runs.net)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(preconditioned), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)


def test_the_search_for_c_is_adam_and_stays_in_its_bounds(data, key):
    weights = NET.init(key=key)
    search = ScaleSearch(steps=7, mean_penalty=False, clip=1e9)
    group = HadamardGroup(NET)
    found = group.search(weights, data.x, data.y, loss=losses.mse, method=search).factors
    gradient = jax.grad(lambda w: losses.mse(NET(w, data.x), data.y))(weights)

    def objective(c):
        norm = jnp.sqrt(
            sum(
                jnp.sum((a * b) ** 2)
                for a, b in zip(jax.tree.leaves(c), jax.tree.leaves(gradient), strict=True)
            )
        )
        return -norm + 0.1 * sum(jnp.sum((a - 1) ** 2) for a in jax.tree.leaves(c))

    adam = optax.adam(0.01)
    c = jax.tree.map(jnp.ones_like, weights)
    state = adam.init(c)
    for _ in range(7):
        updates, state = adam.update(jax.grad(objective)(c), state)
        c = optax.apply_updates(c, updates)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(c), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=2e-5)
    tight = replace(search, ceiling=1.005, floor=0.999)
    narrow = group.search(weights, data.x, data.y, loss=losses.mse, method=tight).factors
    assert max(float(leaf.max()) for leaf in jax.tree.leaves(narrow)) <= 1.005 + 1e-6
    assert min(float(leaf.min()) for leaf in jax.tree.leaves(narrow)) >= 0.999 - 1e-6


def test_statistics_on_closed_forms(rng):
    times = np.array([0.5, 1.0, 1.5, 2.0, 3.0])
    rates = np.array([0.4, 1.0, 2.0, 0.1])
    curves = np.exp2(-rates[:, None] * times[None, :])
    np.testing.assert_allclose(
        halving_time(times, curves, np.ones(4)), [2.5, 1.0, 0.5, np.nan], rtol=1e-12
    )
    np.testing.assert_array_equal(halving_epoch(times, curves, np.ones(4)), [3.0, 2.0, 1.0, np.nan])
    x = rng.standard_normal(4000)
    r = pearson(x, -0.6 * x + 0.8 * rng.standard_normal(4000))
    assert r.low < -0.6 < r.high
    assert np.isnan(pearson(np.ones(9), x[:9]).value)
    slope = log_slope(np.array([1.0, 10.0, 100.0, 1000.0]), np.array([1.0, 0.5, 0.09, 0.03]))
    assert slope.low < slope.value < slope.high


def test_symmetries_keep_the_function_and_its_dimension(key, rng):
    net = nm.MLP((2, 4, 3, 1))
    params, x = net.init(key=key, dtype="float64"), rng.standard_normal((7, 2))
    factors = tuple(np.exp(rng.standard_normal(w)) for w in (4, 3))
    np.testing.assert_allclose(net(beyond.rescaled(params, factors), x), net(params, x), rtol=1e-12)
    found = beyond.dimension_under_symmetry(key)
    assert len(found) == 3
    assert all(before == after for before, after in found.values())


TINY_ALIGNMENT = runs.AlignmentPlan(
    6, 5, 64, 16, 16, 2, 16, chunk=4, readings=2, fine_epochs=1, pool=2
)
TINY_WIDTHS = runs.WidthPlan((4, 8), 2, 64, 16, 2, 16, level=0.05, pool=2)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Tiny plans on digits, whatever this machine has."""
    monkeypatch.setattr(fashion, "find", lambda: None)
    monkeypatch.setenv("NEUROMANIFOLD_DATA", str(tmp_path))
    monkeypatch.setitem(runs.ALIGNMENT, "small", TINY_ALIGNMENT)
    monkeypatch.setitem(runs.WIDTHS, "small", TINY_WIDTHS)
    monkeypatch.setitem(beyond.HESSIAN, "small", beyond.HessianPlan((4, 8), 1, 2))
    monkeypatch.setattr(beyond, "SPEED", beyond.SpeedPlan(5, 5, (0.5,), 64, 2, 16))
    return tmp_path


def test_reproduce_writes_everything_and_resumes(tiny):
    out = tiny / "out"
    summary = study.reproduce(out, progress=False)
    written = json.loads((out / "summary.json").read_text())
    assert written["claims"] == json.loads(json.dumps(summary["claims"]))
    assert {claim["figure"] for claim in summary["claims"]} == {
        "1",
        "2",
        "3",
        "E",
        "Eq. 19",
        "beyond",
    }
    for name in ("figure1", "figure2", "figure3", "beyond"):
        assert (out / f"{name}.png").stat().st_size > 1000
        assert (out / f"{name}.svg").stat().st_size > 1000
    assert all((out / f"{name}.nc").is_file() for name in ("figure1_and_3", "figure2", "beyond"))
    assert "digits" in str(np.load(out / "teleport_widths.npz")["data"])
    before = np.load(out / runs.alignment_file("cross-entropy"))["0/seconds"]
    assert study.reproduce(out, figure=2, progress=False) == summary, (
        "the other figures keep their claims"
    )
    shutil.rmtree(out / "blocks")
    (out / "summary.json").unlink()
    again = study.reproduce(out, figure=2, progress=False)
    assert np.load(out / runs.alignment_file("cross-entropy"))["0/seconds"] == before
    assert [c["measured"] for c in again["claims"]] == [
        c["measured"] for c in summary["claims"] if c["figure"] == "2"
    ]


def test_a_run_out_of_time_goes_on_where_it_stopped(tiny):
    path = tiny / "a.npz"
    with pytest.raises(runs.OutOfTime, match="goes on from here"):
        runs.alignment_runs(path, TINY_ALIGNMENT, "squared error", runs.within(0.0, QUIET))
    assert "0/curves" in np.load(path)
    assert "4/curves" not in np.load(path)
    whole = runs.alignment_runs(path, TINY_ALIGNMENT, "squared error", QUIET)
    fresh = runs.alignment_runs(
        tiny / "b.npz", replace(TINY_ALIGNMENT, chunk=6), "squared error", QUIET
    )
    for name in ("alignment", "curves", "accuracy"):
        np.testing.assert_allclose(
            runs.gathered(whole, name), runs.gathered(fresh, name), rtol=1e-3, atol=1e-6
        )


def test_the_launcher_needs_jax_and_numpy_alone(tmp_path, monkeypatch):
    """The carried folder in a fresh interpreter: none of the package's other dependencies may be
    imported.
    """
    images = {"x": np.zeros((40, 28, 28), np.uint8), "y": np.arange(40) % 10}
    images |= {"x_test": np.ones((20, 28, 28), np.uint8), "y_test": np.arange(20) % 10}
    monkeypatch.setattr(image_data, "_fashion_bytes", lambda train, test: images)
    folder = tmp_path / "carry"
    image_data.carry(folder)
    (tmp_path / "src").symlink_to(Path(image_data.__file__).parents[2])
    heavy = [
        "equinox",
        "lineax",
        "diffrax",
        "optax",
        "xarray",
        "matplotlib",
        "flint",
        "sklearn",
        "scipy",
        "safetensors",
    ]
    check = (
        f"import sys, runpy; sys.argv = ['teleport.py', '--help']\n"
        f"try: runpy.run_path({str(folder / 'teleport.py')!r}, run_name='__main__')\n"
        f"except SystemExit: pass\n"
        f"from neuromanifold_papers.teleport.data import load\n"
        f"assert load(40, 20).x.shape == (40, 784)\n"
        f"print(sorted(set(sys.modules) & set({heavy!r})))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="`scale` is 'huge'; pass one of small, paper"):
        study.reproduce(tmp_path, scale="huge")
    with pytest.raises(ValueError, match="`figure` is 4"):
        study.reproduce(tmp_path, figure=4)
    with pytest.raises(ValueError, match="`batch` is 128 but there are 5 samples"):
        Optimizer().segments(5, 1)
