"""The tracker says at every step what the rooms say, in any loop, and its files can be read by others."""

import csv
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection import checkpoints
from neuromanifold.inspection.events import crc32c

NET = nm.MLP((1, 4, 4, 1))
X = np.linspace(-2.0, 2.0, 40)[:, None]
Y = np.sin(X)
LR = 0.05


@jax.jit
def _step(params):
    gradient = jax.grad(lambda p: nm.losses.mse(NET(p, X), Y))(params)
    return jax.tree.map(lambda p, g: p - LR * g, params, gradient), gradient


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    tracker, params, kept = nm.Tracker(NET, X, Y, every=2, folder=folder), NET.init(key=jax.random.key(3)), []
    with jax.enable_x64(True):
        params = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), params)
        for step in range(5):
            kept.append(jax.tree.map(np.asarray, params))
            tracker(step, params)
            params, _ = _step(params)
    return tracker.timeline, kept, folder


def test_it_says_what_the_rooms_say(tracked):
    timeline, kept, _ = tracked
    assert timeline.steps.tolist() == [0, 2, 4]
    data = timeline.to_xarray()
    first = nm.ntk(NET, kept[0], X, trace=True)
    for row, step in enumerate((0, 2, 4)):
        here, params = data.isel(step=row), kept[step]
        assert int(here["functional_dimension"]) == int(nm.functional_dimension(NET, params, X, exact=True))
        fixed = nm.fixed_neurons(NET, params, X)
        assert here["always_off"].values.tolist() == [int(a.sum()) for a in fixed.inactive]
        assert here["always_on"].values.tolist() == [int(a.sum()) for a in fixed.active]
        assert float(here["loss"]) == pytest.approx(float(((NET(params, X) - Y) ** 2).mean()))
        assert float(here["alignment"]) == pytest.approx(nm.alignment(NET, params, X, Y))
        hessian = nm.sharpness(NET, params, X, Y, kind="hessian")
        assert float(here["sharpness"]) == pytest.approx(hessian, rel=1e-5)
        moved = np.linalg.norm(nm.ntk(NET, params, X, trace=True) - first) / np.linalg.norm(first)
        assert float(here["kernel_drift"]) == pytest.approx(moved)
    assert data["kernel_drift"].values[0] == 0 < data["kernel_drift"].values[2]


def test_a_step_of_descent_moves_conserved_quantities_by_its_square(tracked):
    timeline, kept, _ = tracked
    data = timeline.data
    moved = np.zeros(data.sizes["quantity"])
    with jax.enable_x64(True):
        for params in kept[:2]:
            moved += LR**2 * nm.conserved_quantities(NET, jax.tree.map(np.asarray, _step(params)[1])).values
    found = data["conserved_quantities"].values
    np.testing.assert_allclose(found[1] - found[0], moved, rtol=1e-9, atol=1e-14)
    assert float(data["conserved_drift"][1]) == np.abs(found[1] - found[0]).max() > 0


def test_the_table_of_the_folder_holds_every_digit(tracked):
    timeline, _, folder = tracked
    rows = list(csv.DictReader((folder / "timeline.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == [0, 2, 4]
    assert list(rows[0])[1:] == list(timeline.scalars())
    for name, values in timeline.scalars().items():
        assert [float(row[name]) for row in rows] == values.tolist()


def _messages(path):
    """An independent reading of TFRecord: (length, masked checksum, message, masked checksum)."""
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        message, rest = data[12 : 12 + length], data[12 + length :]
        for part, stored in ((data[:8], data[8:12]), (message, rest[:4])):
            rotated = (struct.unpack("<I", stored)[0] - 0xA282EAD8) % 2**32
            assert (rotated << 15 | rotated >> 17) % 2**32 == crc32c(part)
        yield message
        data = rest[4:]


def test_events_are_written_as_it_goes_and_afterwards(tracked, tmp_path):
    timeline, _, folder = tracked
    (live,) = folder.glob("events.out.tfevents.*")
    for path in (live, timeline.to_tensorboard(tmp_path)):
        version, *steps = _messages(path)
        assert version.endswith(b"brain.Event:2")
        assert len(steps) == 3
        loss = struct.pack("<f", float(timeline.data["loss"][2]))
        assert b"\x0a\x04loss\x15" + loss in steps[2]
        assert b"always_off/layer 2" in steps[2]
        assert b"balance" not in steps[2]


def test_steps_beyond_a_byte_are_written_as_varints(tmp_path):
    timeline = nm.Tracker(NET, X)
    timeline.record(300, NET.init(key=jax.random.key(0)))
    assert b"\x10\xac\x02" in list(_messages(timeline.timeline.to_tensorboard(tmp_path)))[1]


def test_what_has_no_targets_says_so_and_the_figure_has_a_panel_for_the_rest(tracked):
    timeline, kept, _ = tracked
    tracker = nm.Tracker(NET, X)
    tracker(0, kept[0])
    assert tracker.timeline.left_out["sharpness"] == "no `y` was given"
    assert "loss" not in tracker.timeline.data
    assert len(timeline.plot().axes) == 8
    assert len(tracker.timeline.plot().axes) == 5
    assert repr(tracker.timeline).startswith("Timeline(1 steps of functional_dimension, always_off")


def test_a_run_that_diverges_leaves_a_row_of_missing_values(tracked):
    _, kept, _ = tracked
    tracker = nm.Tracker(NET, X, Y)
    tracker(0, kept[0])
    tracker(1, jax.tree.map(lambda a: a * np.nan, kept[0]))
    tracker(2, kept[0])
    data = tracker.timeline.data
    assert np.isnan(data["functional_dimension"].values).tolist() == [False, True, False]
    assert tracker.timeline.left_out == {"step 1": "its parameters are not finite"}


def test_a_function_without_units_or_symmetries_is_tracked_too():
    tracker = nm.Tracker(lambda params, x: jnp.tanh(params["a"] * x), X, Y, patience=1000)
    tracker(0, {"a": np.array(1.0)})
    timeline = tracker.timeline
    assert float(timeline.data["functional_dimension"][0]) == 1
    assert np.isinf(timeline.data["gap"].values[0])
    assert timeline.left_out["units"] == "the network is not piecewise linear"
    assert timeline.left_out["conserved quantities"] == "known for an nm.MLP and an nm.LinearConvNet only"


def test_a_folder_of_weights_gives_the_same_curves(tracked, tmp_path):
    timeline, kept, _ = tracked
    for step in (0, 2, 4):
        nm.save(tmp_path / f"epoch-{step:02d}.safetensors", NET, kept[step])
    found = checkpoints(tmp_path, X, Y)
    assert found.data.equals(timeline.data)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), "has no file of weights"),
        (("a-1.npz", "final.npz"), "holds 'final.npz', whose name does not tell its step"),
        (("a-1.npz", "b-1.npz"), "whose name does not tell its step"),
    ],
)
def test_folders_that_do_not_say_the_step_are_refused(names, says, tmp_path):
    for name in names:
        np.savez(tmp_path / name, weight=np.zeros((1, 1)))
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        checkpoints(tmp_path, X)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"`every` is 0; pass how many steps lie between two records"):
        nm.Tracker(NET, X, every=0)
    with pytest.raises(ValueError, match=r"`params` is missing; the model is a function"):
        nm.Tracker(NET, X)(0)
    with pytest.raises(TypeError, match=r"`f` is a str; pass a model"):
        nm.Tracker("net.pt", X)
