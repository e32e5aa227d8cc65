"""What people do on their first day: half precision, images as JAX lays them out, lists, odd
functions, pickles, pipes.
"""

import copy
import json
import os
import pickle
import sys
import threading
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import neuromanifold as nm
from neuromanifold import cli
from neuromanifold.dynamics.checks import check_targets
from neuromanifold.graph.reading import coarsest
from neuromanifold.inspection.inspect import SectionFailed, subject_of
from neuromanifold.inspection.sections import SECTIONS
from neuromanifold.inspection.units import statuses
from neuromanifold.models.function import output_shape
from neuromanifold.runtime.files import check_output, write_text

KEYS = jax.random.split(jax.random.key(0), 4)
IMAGES = np.random.default_rng(0).normal(size=(6, 5, 5, 1))
Y = np.random.default_rng(1).normal(size=(6, 2))
CONV: Any = {
    "k": jax.random.normal(KEYS[0], (3, 3, 1, 4)),
    "b": jnp.array([0.0, -100.0, 0.0, -100.0]),
    "w": jax.random.normal(KEYS[1], (4, 2)),
}
HALF: Any = jax.tree.map(lambda a: a.astype(jnp.bfloat16), CONV)


def conv(params: Any, x: Any) -> Any:
    """Images as JAX's libraries have them, (height, width, channels)."""
    h = jax.lax.conv_general_dilated(
        x, params["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(h + params["b"]).mean((1, 2)) @ params["w"]


def channels_first(params: Any, x: Any) -> Any:
    """The same network, its images as PyTorch has them."""
    kernel, x = jnp.transpose(params["k"], (3, 2, 0, 1)), jnp.transpose(x, (0, 3, 1, 2))
    h = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME")
    return jax.nn.relu(h + params["b"][:, None, None]).mean((2, 3)) @ params["w"]


def line(params: Any, x: Any) -> Any:
    return x @ params["w"]


LINE: Any = {"w": jnp.ones((3, 2))}


def units(f: Any, params: Any, x: Any) -> Any:
    [layer] = statuses(
        f, nm.graph.trace(f, params, x), [np.asarray(nm.activation_patterns(f, params, x))]
    )
    return layer


@pytest.mark.parametrize("f", [conv, channels_first])
def test_dead_channels_are_counted_along_the_axis_of_the_channels(f):
    layer = units(f, CONV, IMAGES)
    assert (layer.channels, layer.dead_channels, layer.kind) == (4, 2, "channel")
    assert [share == 0 for share in layer.shares] == [False, True, False, True]


def test_channels_whose_axis_is_not_known_are_not_counted():
    places = {"w": jax.random.normal(KEYS[2], (2, 3, 4)), "v": jnp.ones((24, 1))}
    layer = units(
        lambda p, x: jax.nn.relu(x[:, None, None, :1] * p["w"]).reshape(len(x), -1) @ p["v"],
        places,
        np.ones((3, 1)),
    )
    assert (layer.channels, layer.dead_channels, layer.kind, len(layer.shares)) == (
        0,
        0,
        "unit",
        24,
    )


def test_half_precision_parameters_are_inspected_as_the_numbers_that_they_are():
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), HALF)
    ours, same = (
        subject_of(conv, p, IMAGES, Y, None, None, None, nm.losses.mse) for p in (HALF, wide)
    )
    np.testing.assert_allclose(ours.values, same.values, rtol=1e-12)
    assert ours.exactly and ours.outputs == 2


def test_half_precision_is_the_dtype_of_its_training():
    done = nm.train(conv, HALF, IMAGES, Y, key=KEYS[3], epochs=2, stacked=False, single=True)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(done.params)} == {"bfloat16"}
    assert any(
        (np.asarray(a) != np.asarray(b)).any()
        for a, b in zip(*map(jax.tree.leaves, (done.params, HALF)), strict=True)
    )


def test_a_tracker_takes_half_precision():
    tracker = nm.Tracker(conv, IMAGES, Y)
    tracker(0, HALF)
    expected = np.mean(
        (
            np.asarray(
                conv(
                    jax.tree.map(lambda a: a.astype("float32"), HALF),
                    jnp.asarray(IMAGES, "float32"),
                )
            )
            - Y
        )
        ** 2
    )
    assert float(tracker.timeline.data["loss"][0]) == pytest.approx(expected, rel=1e-5)


def test_the_flag_for_64_bits_does_not_part_parameters_and_images():
    with jax.enable_x64(True):
        assert output_shape(conv, CONV, IMAGES) == (2,)
        with pytest.raises(TypeError, match="the same dtypes"):
            conv(CONV, IMAGES)


def test_a_model_that_rounds_inside_does_not_mix_its_rows():
    def rounding(params: Any, x: Any) -> Any:
        return (x.astype(jnp.bfloat16) @ params["w"].astype(jnp.bfloat16)).astype(jnp.float32)

    x, weights = (
        np.random.default_rng(0).normal(size=(9, 64)),
        {"w": jax.random.normal(KEYS[0], (64, 1))},
    )
    assert coarsest(jax.jit(rounding), weights, x) == 2.0**-7 and coarsest(
        line, LINE, np.eye(3)
    ) == float(np.finfo("float32").eps)
    assert nm.jacobian(rounding, weights, x).shape == (9, 64)
    with pytest.raises(ArithmeticError, match="mixes its rows"):
        nm.jacobian(lambda p, x: rounding(p, x - x.mean(0)), weights, x)


def test_a_number_alone_is_trained():
    data = np.ones((2, 1))
    done = nm.train(
        lambda p, x: p * x,
        jnp.float32(2.0),
        data,
        0 * data,
        key=KEYS[0],
        epochs=1,
        optimizer=_descent(),
    )
    assert float(done.params) == pytest.approx(2.0 - 0.1 * 4.0)


def _descent() -> Any:
    import optax

    return optax.sgd(0.1)


def test_targets_may_be_lists():
    for verb in (nm.sharpness, nm.alignment, nm.largest_stable_lr):
        assert verb(line, LINE, np.eye(3), Y[:3].tolist()) == verb(line, LINE, np.eye(3), Y[:3])


def test_samples_of_a_dictionary_are_counted_by_their_rows():
    named = {"a": np.eye(3), "b": np.zeros((3, 2))}
    check_targets(lambda p, x: line(p, x["a"]) + x["b"], LINE, named, Y[:3])
    with pytest.raises(ValueError, match=r"`f` returns \(3, 2\)"):
        check_targets(lambda p, x: line(p, x["a"]) + x["b"], LINE, named, Y[:2])


REFUSED: dict[str, tuple[Any, str]] = {
    "three arguments": (lambda: nm.ntk(lambda p, x, train: x, LINE, np.eye(3)), r"cannot be called as f\(params, x\).*train"),
    "one argument": (lambda: nm.ntk(lambda x: x, LINE, np.eye(3)), "cannot be called as f"),
    "arrays of two shapes": (lambda: nm.ntk(line, LINE, [np.eye(3), np.ones((3, 1))]), "tuple or dictionary of arrays"),
    "classes": (lambda: nm.sharpness(line, LINE, np.eye(3), [0, 1, 1]), r"np\.eye\(2\)\[y\]"),
    "classes of a training": (lambda: nm.train(line, LINE, np.eye(3), [0, 1, 1], key=KEYS[0], epochs=1), r"np\.eye\(2\)\[y\]"),
    "a flat target": (lambda: nm.alignment(line, LINE, np.eye(3), Y[:3].ravel()), r"pass `y\.reshape\(3, 2\)`"),
    "a tuple of outputs": (lambda: nm.sharpness(lambda p, x: (line(p, x),), LINE, np.eye(3), Y[:3]), "`f` returns a tuple"),
    "two inputs to train": (
        lambda: nm.train(lambda p, x: line(p, x[0]), LINE, (np.eye(3), np.eye(3)), Y[:3], key=KEYS[0], epochs=1),
        "`x` is a tuple of 2 arrays, and `train` takes one",
    ),
    "a list to trace": (lambda: nm.graph.trace(line, LINE, [["a"]]), "`x` has dtype"),
    "a tracker under jit": (lambda: jax.jit(lambda p: nm.Tracker(line, np.eye(3))(0, p))(LINE), "`Tracker` needs concrete values"),
    "an inspection under jit": (lambda: jax.jit(lambda p: nm.inspect(line, p, np.eye(3)))(LINE), "`inspect` needs concrete values"),
    "a training under jit": (
        lambda: jax.jit(lambda p: nm.train(line, p, np.eye(3), Y[:3], key=KEYS[0], epochs=1).params)(LINE),
        "`train` needs concrete values",
    ),
    "text among the parameters": (lambda: nm.Tracker(line, np.eye(3))(0, {"w": LINE["w"], "name": "net"}), r"`params\['name'\]`"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_sentence_says_what_to_do(case: str):
    attempt, sentence = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=sentence):
        attempt()


def test_an_error_of_the_model_says_what_it_was_given():
    with pytest.raises(TypeError, match=r"dot_general.*x = float64\[4, 2\]"):
        nm.ntk(line, LINE, np.ones((4, 2)))


def test_a_named_function_takes_a_dictionary():
    f = nm.FunctionModel(lambda p, x: line(p, x["a"]))
    assert f(LINE, {"a": np.eye(3), "b": np.ones(3)}).shape == (3, 2)
    with pytest.raises(ValueError, match="maps 3 samples to an output of shape"):
        nm.FunctionModel(lambda p, x: line(p, x["a"])[:2])(LINE, {"a": np.eye(3)})


@pytest.mark.parametrize("activation", ["relu", "tanh", nm.leaky_relu(0.1), nm.power(3)])
def test_networks_are_pickled(activation):
    net = nm.MLP((2, 3, 1), activation)
    assert pickle.loads(pickle.dumps(net)) == net


def test_results_are_pickled_and_copied_with_their_evidence():
    net, x = nm.MLP((2, 3, 1)), np.random.default_rng(0).normal(size=(8, 2))
    params = net.init(key=KEYS[0])
    rank = nm.functional_dimension(net, params, x, exact=True)
    for twin in (pickle.loads(pickle.dumps(rank)), copy.deepcopy(rank)):
        assert int(twin) == int(rank) and twin.certificate.verify(net, params, x)
        assert not twin.certificate.verify(net, params, 2 * x)
    account = nm.dimension_account(net, params, x)
    assert (
        json.loads(json.dumps(account.to_dict(), default=lambda a: a.tolist()))["parameters"]
        == net.n_params
    )
    with pytest.raises(TypeError, match="part of a `Graph`"):
        pickle.dumps(nm.graph.trace(net, params, x).before_output())


def test_a_pipe_is_written_to_and_a_link_stays_one(tmp_path):
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(check_output(pipe), "numbers")
    reader.join(timeout=10)
    assert read == ["numbers"] and pipe.is_fifo()
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "file")
    write_text(check_output(link), "numbers")
    assert link.is_symlink() and (tmp_path / "there" / "file").read_text() == "numbers"


@pytest.fixture
def files(tmp_path) -> list[str]:
    net = nm.MLP((1, 2, 1))
    np.save(tmp_path / "x.npy", np.linspace(-1, 1, 9)[:, None])
    np.save(tmp_path / "constant.npy", np.ones((9, 1)))
    return [
        "inspect",
        str(nm.save(tmp_path / "net.safetensors", net, net.init(key=KEYS[0]))),
        str(tmp_path / "x.npy"),
    ]


def test_json_to_standard_output_is_json_alone(files, tmp_path):
    targets = ["--targets", str(tmp_path / "constant.npy"), "--out", str(tmp_path / "report")]
    result = CliRunner().invoke(cli.app, [*files, *targets, "--json", "-"])
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert found["parameters"] == 7 and "the same at all samples" in found["left_out"]["fit"]
    assert (
        "functional dimension" in result.stderr and (tmp_path / "report" / "index.html").is_file()
    )


def test_where_the_numbers_go_is_checked_before_the_work(files, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="`--json` cannot be written into"):
        CliRunner().invoke(
            cli.app,
            [*files, "--json", str(tmp_path / "file" / "numbers.json")],
            catch_exceptions=False,
        )
    with pytest.raises(OSError, match="`--out` cannot be written into"):
        CliRunner().invoke(
            cli.app,
            ["reduce", *files[1:], "--out", str(tmp_path / "file" / "small.safetensors")],
            catch_exceptions=False,
        )
    with pytest.raises(ValueError, match="`--json` is '-'; name a file"):
        CliRunner().invoke(
            cli.app, ["verify", "riemann", "Thm 4", "--json", "-"], catch_exceptions=False
        )


def test_a_section_that_fails_does_not_cost_the_others(monkeypatch):
    def fail(subject: Any) -> Any:
        raise RuntimeError("of no foreseen kind")

    [section] = [s for s in SECTIONS if s.field == "spectrum"]
    monkeypatch.setattr(sys.modules["neuromanifold.inspection.inspect"], "SECTIONS", tuple(
        s.__class__(s.field, s.title, fail, s.obstacle, s.seconds) if s is section else s for s in SECTIONS
    ))  # fmt: skip
    with pytest.warns(SectionFailed, match="`inspect` has no kernel: it failed"):
        found = nm.inspect(line, LINE, np.eye(3))
    assert found.spectrum is None and int(found.dimension or 0) == 6
    assert "RuntimeError: of no foreseen kind" in str(found)


def test_names_of_the_last_version_say_where_they_are_now():
    assert len([name for name in nm.__all__ if not isinstance(getattr(nm, name), ModuleType)]) <= 55
    for name, home in nm._MOVED.items():
        with pytest.warns(DeprecationWarning, match=f"is now `nm.{home}.{name}`"):
            assert getattr(nm, name) is getattr(getattr(nm, home), name)
    with pytest.raises(AttributeError, match="has no attribute 'papers'"):
        _ = nm.papers
