"""The command line: what it prints, what it writes, and how it refuses."""

import json
import sys

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import neuromanifold as nm
from commands import run
from neuromanifold import cli

RUNNER = CliRunner()


@pytest.fixture
def saved(tmp_path):
    net = nm.MLP((2, 4, 1))
    return nm.save(tmp_path / "net.safetensors", net, net.init(key=jax.random.key(0)))


def test_inspect_reads_a_model_and_data_and_writes_the_page(saved, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 2)))
    result = RUNNER.invoke(
        cli.app, ["inspect", str(saved), str(tmp_path / "x.npy"), "--out", str(tmp_path / "report")]
    )
    assert result.exit_code == 0, result.output
    assert "functional dimension" in result.output
    assert "wrote" in result.output
    assert (tmp_path / "report" / "index.html").is_file()


def test_inspect_writes_json_and_markdown_of_a_part_of_the_sample(saved, tmp_path):
    np.savez(tmp_path / "x.npz", np.random.default_rng(0).normal(size=(30, 2)))
    options = [
        "--samples",
        "7",
        "--memory",
        "64M",
        "--format",
        "md",
        "--json",
        str(tmp_path / "i.json"),
    ]
    arguments = ["inspect", str(saved), str(tmp_path / "x.npz"), *options, "--out", str(tmp_path)]
    result = RUNNER.invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "i.json").read_text())["samples"] == 7
    assert "7 of the 30 samples, evenly spaced" in (tmp_path / "report.md").read_text()


def test_reduce_writes_the_smaller_network(tmp_path):
    net = nm.MLP((1, 3, 1))
    hidden = nm.Layer(np.array([[1.0], [2.0], [1.0]]), np.array([0.0, 0.0, -5.0]))
    path = nm.save(
        tmp_path / "net.safetensors", net, (hidden, nm.Layer(np.ones((1, 3)), np.zeros(1)))
    )
    np.save(tmp_path / "x.npy", np.array([[-1.0], [1.0], [2.0]]))
    for arguments, widths in (([], (1, 2, 1)), ([str(tmp_path / "x.npy")], (1, 1, 1))):
        out = tmp_path / "smaller.safetensors"
        result = RUNNER.invoke(cli.app, ["reduce", str(path), *arguments, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert nm.load(out)[0].widths == widths
        assert f"{3 - widths[1]} hidden neuron" in result.output


def test_inspect_without_arguments_trains_the_example(tmp_path):
    result = RUNNER.invoke(cli.app, ["inspect", "--epochs", "3", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "MLP((1, 10, 10, 10, 10, 1), relu)" in result.output
    assert "361" in result.output


def test_npz_weights_need_an_activation(saved, tmp_path):
    weights = {
        "0.weight": np.ones((3, 2)),
        "0.bias": np.zeros(3),
        "1.weight": np.ones((1, 3)),
        "1.bias": np.zeros(1),
    }
    np.savez(tmp_path / "net.npz", **weights)
    status, _, error = run("inspect", tmp_path / "net.npz", "g1")
    assert status == 2
    assert "`activation` is needed" in error
    result = RUNNER.invoke(
        cli.app,
        [
            "inspect",
            str(tmp_path / "net.npz"),
            "g1",
            "--activation",
            "relu",
            "--out",
            str(tmp_path),
        ],
    )
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["inspect", "missing.safetensors", "f2"], "which does not exist"),
        (["inspect", "{saved}"], "`DATA` is missing"),
        (["inspect", "{saved}", "f2"], "samples have 1 feature; the network takes 2"),
        (["inspect", "{saved}", "f2", "--format", "pdf"], "`--format` is 'pdf'; pass html or md"),
        (["inspect", "{saved}", "nothing.npy"], "does not exist"),
        (["data", "fetch", "nothing"], "the data sets are f1, f2"),
    ],
)
def test_bad_input_is_one_sentence_and_status_two(arguments, text, saved):
    status, _, error = run(*(a.format(saved=saved) for a in arguments))
    assert status == 2
    assert text in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1


def test_the_data_sets_are_listed_with_their_licences():
    result = RUNNER.invoke(cli.app, ["data", "list"])
    assert result.exit_code == 0
    for name in nm.data.names():
        assert name in result.output


def test_inspect_draws_checkpoints_and_reads_targets(saved, tmp_path):
    rng = np.random.default_rng(0)
    net, params = nm.load(saved)
    np.save(tmp_path / "x.npy", rng.normal(size=(12, 2)))
    np.save(tmp_path / "y.npy", rng.normal(size=(12, net.widths[-1])))
    for step in (1, 2):
        nm.save(tmp_path / "runs" / f"epoch-{step}.safetensors", net, params)
    options = [
        "--targets",
        str(tmp_path / "y.npy"),
        "--checkpoints",
        str(tmp_path / "runs"),
        "--out",
        str(tmp_path / "out"),
    ]
    result = RUNNER.invoke(cli.app, ["inspect", str(saved), str(tmp_path / "x.npy"), *options])
    assert result.exit_code == 0, result.output
    assert "largest stable learning rate" in result.output
    assert (tmp_path / "out" / "timeline.csv").read_text().startswith("step,loss,alignment")
    assert len(list((tmp_path / "out").glob("events.out.tfevents.*"))) == 1
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'id="training"' in page
    assert 'id="descent"' in page


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--loss", "hinge"], "`--loss` is 'hinge'; pass one of mse, cross_entropy"),
        (["--targets", "{folder}/wrong.npy"], "`--targets` has shape (5, 1) but the outputs have"),
        (["--checkpoints", "{folder}/nothing"], "has no file of weights"),
    ],
)
def test_inspect_refuses_what_does_not_fit(saved, tmp_path, options, says):
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    np.save(tmp_path / "wrong.npy", np.zeros((5, 1)))
    options = [option.replace("{folder}", str(tmp_path)) for option in options]
    arguments = [
        "inspect",
        str(saved),
        str(tmp_path / "x.npy"),
        *options,
        "--out",
        str(tmp_path / "out"),
    ]
    assert says in str(RUNNER.invoke(cli.app, arguments).exception)


def test_reduce_asks_for_pytorch_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    asked = {
        suffix: str(
            RUNNER.invoke(
                cli.app, ["reduce", "absent.npz", "--out", str(tmp_path / suffix)]
            ).exception
        )
        for suffix in ("smaller.pt", "smaller.safetensors")
    }
    assert "PyTorch is not installed" in asked["smaller.pt"]
    assert "absent.npz" in asked["smaller.safetensors"]


def test_reduce_keeps_the_names_of_the_layers(tmp_path):
    rng = np.random.default_rng(0)
    dead = {"fc1.weight": rng.normal(size=(4, 2)), "fc1.bias": np.array([0.0, 0.0, -99.0, 0.0])}
    np.savez(
        tmp_path / "net.npz",
        **dead,
        **{"fc2.weight": rng.normal(size=(1, 4)), "fc2.bias": np.zeros(1)},
    )
    np.save(tmp_path / "x.npy", rng.normal(size=(20, 2)))
    out = tmp_path / "smaller.safetensors"
    arguments = [
        "reduce",
        str(tmp_path / "net.npz"),
        str(tmp_path / "x.npy"),
        "--activation",
        "relu",
        "--out",
        str(out),
    ]
    result = RUNNER.invoke(cli.app, arguments)
    assert "2-4-1 → 2-3-1" in result.output
    from safetensors.numpy import load_file

    assert set(load_file(out)) == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    net, params = nm.load(out)
    assert net.widths == (2, 3, 1)
    np.testing.assert_array_equal(params[0].weight, np.delete(dead["fc1.weight"], 2, axis=0))
    with pytest.raises(ValueError, match="`names` has 1 entries but the network has 2 layers"):
        nm.save(out, net, params, names=["fc1"])
