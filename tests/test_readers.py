"""What four new users stumbled over, walking from the README alone: each mistake is answered in
a sentence that holds the remedy.
"""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import neuromanifold as nm
import neuromanifold_papers
from neuromanifold.cli import app
from neuromanifold.models.losses import check_loss
from neuromanifold.runtime.files import check_output

X, Y = np.linspace(-1.0, 1.0, 8)[:, None], np.linspace(0.0, 1.0, 8)[:, None]


def line(params: Any, x: Any) -> Any:
    return params * x


class Loader:
    """What is no array, as PyTorch's `DataLoader`."""


@pytest.mark.parametrize(
    "loss, said",
    [
        (
            lambda p, t: (p - t) ** 2,
            r"`loss` returns an array of shape \(8, 1\); return one number",
        ),
        (
            lambda p: p.sum(),
            r"`loss` does not take \(prediction, target\) as JAX arrays \(TypeError: .*nm\.losses",
        ),
        (
            lambda p, t: float(p.sum()),
            r"`loss` does not take \(prediction, target\) as JAX arrays \(Concretization",
        ),
    ],
)
@pytest.mark.parametrize(
    "verb",
    [
        lambda loss: nm.alignment(line, 2.0, X, Y, loss=loss),
        lambda loss: nm.largest_stable_lr(line, 2.0, X, Y, loss=loss),
        lambda loss: nm.kernel_flow(line, 2.0, X, Y, loss=loss),
        lambda loss: nm.gradient_flow(line, np.array(2.0), X, Y, t1=1.0, loss=loss),
        lambda loss: nm.train(
            line, np.array(2.0), X, Y, key=jax.random.key(0), epochs=1, single=True, loss=loss
        ),
        lambda loss: nm.inspect(line, 2.0, X, Y, loss=loss),
    ],
)
def test_what_is_no_loss_is_refused_by_every_verb(verb, loss, said):
    with pytest.raises(TypeError, match=said):
        verb(loss)


@pytest.mark.parametrize(
    "loss, said",
    [
        ("mse", r"`loss` is 'mse'; pass `nm\.losses\.mse`\."),
        ("crossentropy", r"`loss` is 'crossentropy'; pass a function of `nm\.losses`"),
        ([nm.losses.mse], r"`loss` is \[.*\]; pass a function"),
    ],
)
def test_names_of_losses_are_told_the_function(loss, said):
    with pytest.raises(TypeError, match=said):
        check_loss(loss, Y)


def test_losses_are_taken_as_they_are():
    for name in nm.losses.__all__:
        check_loss(getattr(nm.losses, name), Y)
    check_loss(lambda prediction, target: ((prediction - target) ** 2).max(), Y)


def test_classes_as_targets_of_a_loss_are_told_how_to_be_rows():
    with pytest.raises(
        ValueError, match=r"`target` has \(4,\); of classes 0, 1, … pass `np\.eye\(3\)\[target\]`"
    ):
        nm.losses.cross_entropy(np.zeros((4, 3)), np.array([0, 1, 2, 0]))
    assert np.isclose(nm.losses.cross_entropy(np.zeros((4, 3)), np.eye(3)[[0, 1, 2, 0]]), np.log(3))


@pytest.mark.parametrize("x, kind", [(Loader(), "Loader"), ("digits", "str"), (None, "NoneType")])
def test_what_is_no_sample_is_called_by_its_name(x, kind):
    with pytest.raises(
        TypeError, match=rf"`x` is a {kind}( that is no array \(.*\))?; pass (an|one) array"
    ):
        nm.functional_dimension(line, 2.0, x)


def test_parameters_and_samples_in_each_others_place_are_told_the_order():
    with pytest.raises(
        ValueError, match=r"`x` has arrays with \[2, 3\] rows; .* \(the order is f, params, x\)"
    ):
        nm.ntk(line, X, {"w": np.ones((2, 1)), "b": np.ones(3)})


def test_several_times_at_once_are_asked_for_one_by_one():
    flow = nm.kernel_flow(line, 2.0, X, Y)
    with pytest.raises(
        TypeError, match=r"`t` has shape \(2,\); pass one time: `\[flow\.at\(t\) for t in times\]`"
    ):
        flow.at([1.0, 2.0])
    assert flow.at(np.float64(1.0)).train.shape == Y.shape


def test_infinite_width_of_a_function_points_to_its_description():
    with pytest.raises(
        TypeError, match=r"`net` is a function; .*`net = nm\.describe\(f, params, x\)`"
    ):
        nm.infinite_ntk(line, X)


def test_fixed_neurons_show_how_many_they_are():
    net = nm.MLP((1, 2, 1))
    params = (
        nm.Layer(np.array([[1.0], [1.0]]), np.array([3.0, -9.0])),
        nm.Layer(np.ones((1, 2)), np.zeros(1)),
    )
    assert repr(nm.fixed_neurons(net, params, X)) == "FixedNeurons(active 1 of 2, inactive 1 of 2)"


def test_dead_channels_have_numbers():
    def f(params: Any, x: Any) -> Any:
        out = jax.lax.conv(x, params["w"], (1, 1), "SAME") + params["b"][:, None, None]
        return jax.nn.relu(out).sum((1, 2, 3))[:, None]

    params = {"w": np.ones((3, 1, 2, 2)), "b": np.array([1.0, -99.0, -1.0])}
    [layer] = nm.inspect(
        f, params, np.random.default_rng(0).random((5, 1, 3, 3)), exact=False, patience=0
    ).layers
    assert (layer.kind, layer.dead, layer.dead_channels) == ("channel", (1,), 1)


def test_no_command_overwrites_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    net = nm.MLP((1, 2, 1))
    file = nm.save(tmp_path / "my net.safetensors", net, net.init(key=jax.random.key(0)))
    np.save(tmp_path / "x.npy", X)
    before = file.read_bytes()
    monkeypatch.chdir(tmp_path)
    for command in (
        ["reduce", str(file), "--out", str(file)],
        ["reduce", "my net.safetensors", "x.npy", "--out", "./my net.safetensors"],
        ["inspect", str(file), "x.npy", "--json", "my net.safetensors"],
        ["inspect", str(file), "x.npy", "--json", "x.npy"],
    ):
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, FileExistsError), done.output
        assert "which is read here; name another file" in str(done.exception)
    assert file.read_bytes() == before
    assert (
        check_output(tmp_path / "new.safetensors", read=(file, None, "x.npy")).name
        == "new.safetensors"
    )
    assert (
        CliRunner().invoke(app, ["reduce", str(file), "--out", "smaller.safetensors"]).exit_code
        == 0
    )


@pytest.mark.parametrize(
    "given, said",
    [
        ("nets.build", "pass package.module:function, perhaps nets:build."),
        ("nets.py:build", "pass the module's name: nets:build."),
        ("my/nets.py:build", "pass the module's name: my.nets:build."),
        ("build", "pass package.module:function."),
    ],
)
def test_factories_by_other_spellings_are_told_theirs(given: str, said: str, tmp_path: Path):
    np.savez(tmp_path / "w.npz", w=X)
    with pytest.raises(ValueError, match=f"`factory` is '{given}'; {re.escape(said)}$"):
        nm.load(tmp_path / "w.npz", factory=given, example=X)


def test_a_reduction_without_an_ending_is_refused_before_the_work(tmp_path: Path):
    np.save(tmp_path / "x.npy", X)
    done = CliRunner().invoke(
        app, ["reduce", "absent.safetensors", "--out", str(tmp_path / "smaller")]
    )
    assert "pass a file that ends in .safetensors, .pt or .pth" in str(done.exception)


def test_one_is_not_counted_as_many():
    net = nm.MLP((1, 3, 1))
    params = (
        nm.Layer(np.array([[1.0], [-1.0], [1.0]]), np.array([0.1, 0.2, -9.0])),
        nm.Layer(np.ones((1, 3)), np.zeros(1)),
    )
    assert "1 of 3 units is off on all " in nm.inspect(net, params, X).verdict[-1]
    assert str(nm.reduce_width(net, params, X)).startswith("1 hidden neuron and 3 parameters saved")


@pytest.mark.parametrize("name", ["Theorem 13", "theorem 13", "Thm 13", "thm13"])
def test_a_theorem_is_found_by_its_long_name(name: str):
    assert neuromanifold_papers.select("Riemann", (name,)) == neuromanifold_papers.select(
        "riemann", ("Thm 13",)
    )
    with pytest.raises(ValueError, match=r"`ID` 'Theorem 99' names no statement of riemann"):
        neuromanifold_papers.select("riemann", ("Theorem 99",))
