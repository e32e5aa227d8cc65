"""The tracker says at every step what the rooms say, in any loop, and its files can be read by
others.
"""

import csv
import struct
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from dynamics.compilations import compilations
from neuromanifold.inspection import checkpoints, recorder
from neuromanifold.inspection.checkpoints import number_files
from neuromanifold.inspection.events import crc32c
from neuromanifold.inspection.inspect import SectionFailed
from neuromanifold.models import arguments
from neuromanifold.models.adapters.model import AdaptedModel

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
    tracker, params, kept = (
        nm.Tracker(NET, X, Y, every=2, folder=folder),
        NET.init(key=jax.random.key(3)),
        [],
    )
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
        assert int(here["functional_dimension"]) == int(
            nm.functional_dimension(NET, params, X, exact=True)
        )
        fixed = nm.fixed_neurons(NET, params, X)
        assert here["always_off"].values.tolist() == [int(a.sum()) for a in fixed.inactive]
        assert here["always_on"].values.tolist() == [int(a.sum()) for a in fixed.active]
        assert float(here["loss"]) == pytest.approx(float(((NET(params, X) - Y) ** 2).mean()))
        assert float(here["alignment"]) == pytest.approx(nm.alignment(NET, params, X, Y))
        hessian = nm.sharpness(NET, params, X, Y)
        assert float(here["sharpness"]) == pytest.approx(hessian, rel=1e-5)
        moved = np.linalg.norm(nm.ntk(NET, params, X, trace=True) - first) / np.linalg.norm(first)
        assert float(here["kernel_drift"]) == pytest.approx(moved)
        sizes = np.linalg.svd(nm.ntk(NET, params, X, trace=True), compute_uv=False)
        entropy = float((np.log(sizes.sum() / sizes) * sizes / sizes.sum()).sum())
        assert float(here["effective_rank"]) == pytest.approx(np.exp(entropy), rel=1e-6)
    assert data["kernel_drift"].values[0] == 0 < data["kernel_drift"].values[2]


def test_a_step_of_descent_moves_conserved_quantities_by_its_square(tracked):
    timeline, kept, _ = tracked
    data = timeline.data
    moved = np.zeros(data.sizes["quantity"])
    with jax.enable_x64(True):
        for params in kept[:2]:
            moved += (
                LR**2
                * nm.conserved_quantities(NET, jax.tree.map(np.asarray, _step(params)[1])).values
            )
    found = data["conserved_quantities"].values
    np.testing.assert_allclose(found[1] - found[0], moved, rtol=1e-9, atol=1e-14)
    assert float(data["conserved_drift"][1]) == np.abs(found[1] - found[0]).max() > 0


IMAGES = np.random.default_rng(0).normal(size=(8, 1, 6, 6))
LABELS = np.random.default_rng(1).normal(size=(8, 2))


def convolutional(params, x):
    """Two convolutions and a linear layer, ReLUs between: no description that the library knows."""
    for name in ("first", "second"):
        y = jax.lax.conv_general_dilated(x, params[name]["kernel"], (1, 1), "VALID")
        x = jax.nn.relu(y + params[name]["bias"][:, None, None])
    return x.reshape(len(x), -1) @ params["last"]


def _weights(rng):
    sizes = {"first": (3, 1, 3, 3), "second": (2, 3, 3, 3)}
    layers = {
        name: {"kernel": 0.5 * rng.normal(size=s), "bias": 0.1 * rng.normal(size=s[0])}
        for name, s in sizes.items()
    }
    return {**layers, "last": 0.5 * rng.normal(size=(8, 2))}


@jax.jit
def _gradient(params):
    return jax.grad(lambda p: nm.losses.mse(convolutional(p, IMAGES), LABELS))(params)


def _trained(params, steps, update):
    """The timeline of the first and the last step, and the gradients in between."""
    tracker, gradients = nm.Tracker(convolutional, IMAGES, exact=False, every=steps), []
    with jax.enable_x64(True):
        for step in range(steps + 1):
            tracker(step, params)
            gradients.append(jax.tree.map(np.asarray, _gradient(params)))
            params = jax.tree.map(lambda p, g: np.asarray(p + update(p, g)), params, gradients[-1])
    return tracker.timeline.data, gradients[:-1]


def test_balances_of_channels_are_kept_by_descent_up_to_its_rate_and_by_nothing_else(rng):
    """Of any network: a step of rate η moves Σ a_s‖θ_s‖² by η² Σ a_s‖g_s‖², since generators are
    orthogonal to the gradient.
    """
    params, drift = _weights(rng), {}
    for steps, lr in ((10, 2e-3), (20, 1e-3)):
        data, gradients = _trained(params, steps, lambda p, g, lr=lr: -lr * g)
        found = nm.symmetry.channel_scalings(convolutional, params, IMAGES)
        moved = sum(lr**2 * np.asarray(found.quantities(g).values) for g in gradients)
        values = data["conserved_quantities"].values
        assert data["quantity"].values.tolist() == list(found.quantities(params).labels)
        assert len(values[0]) == 3 + 2
        np.testing.assert_allclose(values[1] - values[0], moved, rtol=1e-6, atol=1e-13)
        drift[lr] = float(data["conserved_drift"][1])
    assert drift[1e-3] / drift[2e-3] == pytest.approx(0.5, abs=0.05)
    decay, _ = _trained(params, 20, lambda p, g: -1e-3 * (g + p))
    signs, _ = _trained(
        params, 20, lambda p, g: -1e-3 * g / (np.abs(g) + 1e-12)
    )  # Adam's first step, and sign descent
    assert (
        min(float(decay["conserved_drift"][1]), float(signs["conserved_drift"][1]))
        > 10 * drift[1e-3]
    )


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
    assert len(timeline.plot().axes) == 9
    assert len(tracker.timeline.plot().axes) == 6
    assert repr(tracker.timeline).startswith(
        "Timeline(1 steps of functional_dimension, effective_rank, always_off"
    )


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
    assert "no units that switch" in timeline.left_out["units"]
    assert timeline.left_out["conserved quantities"].startswith(
        "no scaling of a channel leaves the network unchanged"
    )


def test_a_folder_of_weights_gives_the_same_curves(tracked, tmp_path):
    timeline, kept, _ = tracked
    for step in (0, 2, 4):
        nm.save(tmp_path / f"epoch-{step:02d}.safetensors", NET, kept[step])
    found = checkpoints(tmp_path, X, Y)
    assert found.data.equals(timeline.data)


def test_folders_of_checkpoints_as_hugging_face_names_them(tmp_path):
    params = NET.init(key=jax.random.key(0))
    for step in (2, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        nm.save(tmp_path / f"checkpoint-{step}" / "model.safetensors", NET, params)
        (tmp_path / f"checkpoint-{step}" / "optimizer.pt").write_bytes(b"")
    assert [(step, path.parent.name) for step, path in number_files(tmp_path)] == [
        (2, "checkpoint-2"),
        (10, "checkpoint-10"),
    ]
    (tmp_path / "checkpoint-2").rename(tmp_path / "last")
    with pytest.raises(
        ValueError,
        match=r"`checkpoints` holds 'last/model.safetensors', whose name does not tell its step",
    ):
        number_files(tmp_path)


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
    with pytest.raises(
        ValueError, match=r"`every` is 0; pass how many steps lie between two records"
    ):
        nm.Tracker(NET, X, every=0)
    with pytest.raises(ValueError, match=r"`params` is missing; the model is a function"):
        nm.Tracker(NET, X)(0)
    with pytest.raises(TypeError, match=r"`f` is a str; pass a model"):
        nm.Tracker("net.pt", X)
    with pytest.raises(
        TypeError,
        match=r"`kwargs` and `output` are for modules of PyTorch, Flax, Haiku and Equinox",
    ):
        nm.Tracker(NET, X, output=lambda y: y)


def _line(params, x):
    return x @ params


def test_a_step_that_comes_twice_is_measured_once_and_said_where_something_would_be_lost(tmp_path):
    tracker = nm.Tracker(_line, np.eye(2), np.ones(2), patience=1e-4, folder=tmp_path)
    tracker(3, np.ones(2))
    [events] = tmp_path.glob("events*")
    size = events.stat().st_size
    tracker(3, np.ones(2))  # gradients are accumulated: the same parameters again
    assert events.stat().st_size == size
    with pytest.warns(
        UserWarning,
        match=r"`step` 3 was measured before, at other parameters, and is replaced; count",
    ):
        tracker(3, 3 * np.ones(2))
    assert tracker.timeline.data["loss"].values.tolist() == [4.0]


def test_a_measure_that_fails_does_not_end_the_loop(monkeypatch):
    def fails(subject, reference):
        raise RuntimeError("an accident")

    first, *others = recorder.MEASURES
    monkeypatch.setattr(recorder, "MEASURES", (replace(first, compute=fails), others[0]))
    tracker = nm.Tracker(_line, np.eye(2), np.zeros(2))
    with pytest.warns(
        SectionFailed,
        match=r"`Tracker` has no loss: it failed \(RuntimeError: an accident\); the other measures",
    ):
        tracker(0, np.ones(2))
    tracker(1, 2 * np.ones(2))
    assert tracker.timeline.data["alignment"].values.tolist() == [1.0, 1.0]
    assert tracker.timeline.left_out == {"loss": "it failed (RuntimeError: an accident)"}


def test_parameters_that_must_be_positive_have_their_scalings(rng):
    """Running variances given as parameters: 4·var and 2·v cancel, channel by channel, beside the
    scalings of w; 2·var and 2·v do not.
    """

    def normalised(params, x):
        return jnp.maximum(x @ params["w"], 0) / jnp.sqrt(params["var"]) @ params["v"]

    x = rng.standard_normal((5, 2))
    params = {"w": np.eye(2), "var": np.ones(2), "v": np.ones((2, 1))}
    scalings = nm.symmetry.channel_scalings(normalised, params, x)
    assert str(scalings) == "Scalings(2 of w, 2 of var)"
    before = normalised(params, x)
    for factor, same in ((4.0, True), (2.0, False)):
        moved = params | {"var": factor * params["var"], "v": 2.0 * params["v"]}
        assert np.allclose(normalised(moved, x), before, rtol=1e-6) == same


@pytest.mark.parametrize("shape", [(), (2,)])
def test_classes_are_targets_of_the_cross_entropy(shape, rng):
    def f(params, x):
        return (x @ params).reshape(len(x), *shape, 3)

    x, params = rng.normal(size=(5, 2)), rng.normal(size=(2, 3 * int(np.prod(shape))))
    y = rng.integers(0, 3, (5, *shape))
    loss, rows = nm.losses.cross_entropy, np.eye(3)[y]
    tracker = nm.Tracker(f, x, y, loss=loss, patience=1e-4)
    tracker(0, params)
    assert np.isclose(
        float(tracker.timeline.data["loss"][0]), float(loss(f(params, x), rows)), rtol=1e-14
    )
    assert nm.alignment(f, params, x, y, loss=loss) == nm.alignment(f, params, x, rows, loss=loss)
    with pytest.raises(
        ValueError,
        match=r"`y` has the class 3, but the model gives 3 numbers a sample; count the classes",
    ):
        nm.alignment(f, params, x, np.full_like(y, 3), loss=loss)
    with pytest.raises(ValueError, match=r"`y` has shape"):  # another loss compares numbers
        nm.alignment(f, params, x, y)


def test_statistics_that_move_compile_nothing_after_the_second_record(key, monkeypatch):
    """Values are those of the network with the statistics of the step; the control takes other
    statistics. Steps are not counted among the new functions after which programs are released;
    another function is.
    """

    def apply(params, state, x):
        h = x @ params["in"]
        return jnp.tanh((h - state["mean"]) / jnp.sqrt(state["var"] + 1e-5)) @ params["out"]

    def at(step):
        state = {"mean": np.full(5, 0.1 * step), "var": np.full(5, 1.0 + step), "fixed": np.ones(2)}
        return AdaptedModel(apply, state, "normalised", "by hand")

    params = {
        "in": np.asarray(jax.random.normal(key, (3, 5)), np.float64),
        "out": np.asarray(jax.random.normal(key, (5, 2)), np.float64),
    }
    x = np.asarray(jax.random.normal(key, (20, 3)), np.float64)
    targets = x[:, :2] ** 2
    taken = recorder.Recorder(x, targets)
    first = np.asarray(nm.ntk(at(0), params, x, trace=True))
    for step in range(4):
        with compilations() as compiled:
            taken.add(step, at(step), params)
        found, f = taken.timeline.data.sel(step=step), at(step)
        kernel = np.asarray(nm.ntk(f, params, x, trace=True))
        drift = np.linalg.norm(kernel - first) / np.linalg.norm(first)
        np.testing.assert_allclose(float(found["kernel_drift"]), drift, rtol=1e-9, atol=1e-12)
        for name, verb in (("sharpness", nm.sharpness), ("alignment", nm.alignment)):
            value = float(verb(f, params, x, targets))
            np.testing.assert_allclose(float(found[name]), value, rtol=1e-5)
            other = float(verb(at(step + 1), params, x, targets))
            assert abs(other - value) > 1e-3 * abs(value)
        assert int(found["functional_dimension"]) == int(nm.functional_dimension(f, params, x))
        np.testing.assert_allclose(
            float(found["loss"]), float(nm.losses.mse(f(params, x), targets)), rtol=1e-9
        )
    assert compiled == []
    monkeypatch.setattr(arguments, "_KEPT", 1)  # as at the 64th new function
    for step, other in ((4, False), (5, True)):
        if other:
            arguments.check_model(lambda params, x: x)
        with compilations() as compiled:
            taken.add(step, at(step), params)
        assert bool(compiled) == other
