"""Stacked linear layers under any usual names: their order, their biases, batch normalisation
between them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import neuromanifold as nm
from neuromanifold.models.files.layers import EPS
from neuromanifold.models.stack import LinearStack

WIDTHS = (3, 5, 4, 2)


def drawn(
    names: list[str], rng: np.random.Generator, biases: tuple[bool, ...] = (True, True, True)
) -> dict[str, np.ndarray]:
    tensors = {}
    for name, fan_in, out, bias in zip(names, WIDTHS[:-1], WIDTHS[1:], biases, strict=True):
        tensors[f"{name}.weight"] = rng.standard_normal((out, fan_in))
        tensors |= {f"{name}.bias": rng.standard_normal(out)} if bias else {}
    return tensors


def norm(name: str, width: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        f"{name}.weight": rng.standard_normal(width),
        f"{name}.bias": rng.standard_normal(width),
        f"{name}.running_mean": rng.standard_normal(width),
        f"{name}.running_var": rng.random(width) + 0.1,
        f"{name}.num_batches_tracked": np.array(7),
    }


def written(tensors: dict[str, np.ndarray], path: Path) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **tensors)
    else:
        save_file({name: np.ascontiguousarray(a) for name, a in tensors.items()}, path)
    return path


def forward(tensors: dict[str, Any], steps: list[Any], x: np.ndarray) -> np.ndarray:
    """The network step by step, with no layer folded into another."""
    for step in steps:
        t = {
            leaf: tensors.get(f"{step}.{leaf}")
            for leaf in ("weight", "bias", "running_mean", "running_var")
        }
        if step == "relu":
            x = np.maximum(x, 0)
        elif t["running_mean"] is not None:
            x = (x - t["running_mean"]) / np.sqrt(t["running_var"] + EPS) * t["weight"] + t["bias"]
        else:
            x = x @ t["weight"].T + (0 if t["bias"] is None else t["bias"])
    return x


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "names",
    [
        ["0", "2", "4"],
        ["fc1", "fc2", "fc3"],
        ["net.0", "net.3", "net.10"],
        ["layers.0.linear", "layers.3.linear", "layers.20.linear"],
        ["model.hidden_1", "model.hidden_2", "model.hidden_10"],
        ["module.fc1", "module.fc2", "module.out"],
        ["input", "hidden", "output"],
        ["backbone.0", "backbone.2", "head"],
        ["encoder.layer_1", "encoder.layer_2", "decoder.layer_1"],
    ],
    ids=lambda names: names[0],
)
def test_layers_are_found_under_the_usual_names(
    names: list[str], suffix: str, rng: np.random.Generator, tmp_path: Path
):
    tensors = drawn(names, rng)
    net, params = nm.load(written(tensors, tmp_path / f"net{suffix}"), activation="ReLU")
    assert net == nm.MLP(WIDTHS, "relu")
    x = rng.standard_normal((6, 3))
    np.testing.assert_allclose(
        net(params, x),
        forward(tensors, [names[0], "relu", names[1], "relu", names[2]], x),
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    "biases", [(True, True, False), (False, True, False), (False, False, True)]
)
def test_layers_without_bias_get_none(
    biases: tuple[bool, ...], rng: np.random.Generator, tmp_path: Path
):
    """A bias of zeros would be a parameter more than the network has."""
    tensors = drawn(["fc1", "fc2", "fc3"], rng, biases)
    net, params = nm.load(written(tensors, tmp_path / "net.safetensors"), activation="relu")
    assert isinstance(net, LinearStack)
    assert tuple(layer.bias is not None for layer in params) == biases
    x = rng.standard_normal((6, 3))
    np.testing.assert_allclose(
        net(params, x), forward(tensors, ["fc1", "relu", "fc2", "relu", "fc3"], x), rtol=1e-12
    )
    assert nm.jacobian(net, params, x).shape == (12, sum(a.size for a in tensors.values()))
    assert hash(net) == hash(nm.load(tmp_path / "net.safetensors", activation="relu")[0])


def test_the_order_is_refused_where_the_file_does_not_say_it(
    rng: np.random.Generator, tmp_path: Path
):
    square = {
        f"{name}.weight": rng.standard_normal((4, 4)) for name in ("input", "hidden", "output")
    }
    with pytest.raises(
        ValueError,
        match=r"net\.safetensors has layers that fit together in more than one order \(.*\); number them",
    ):
        nm.load(written(square, tmp_path / "net.safetensors"), activation="relu")
    _, params = nm.load(written(square, tmp_path / "net.npz"), activation="relu")
    assert [
        np.array_equal(layer.weight, w) for layer, w in zip(params, square.values(), strict=True)
    ] == [True] * 3, "npz keeps order"


@pytest.mark.parametrize(
    "change, text",
    [
        (
            lambda t: {**t, "conv1.weight": np.ones((6, 1, 5, 5))},
            r"holds .*conv1\.weight \(6, 1, 5, 5\).*; a file alone is enough for stacked",
        ),
        (
            lambda t: {**t, "norm.weight": np.ones(5), "norm.bias": np.ones(5)},
            r"norm\.weight \(5,\).* for any other network add --factory",
        ),
        (
            lambda t: {**t, "head.weight": np.ones((7, 9))},
            r"each taking what the one before it gives",
        ),
        (lambda t: {name: a.T for name, a in t.items()}, r"\(out, in\)"),
        (lambda t: {**t, "logit_scale": np.ones(())}, r"logit_scale \(1,\)"),
    ],
)
def test_what_is_no_stack_of_layers_is_refused_with_what_the_file_holds(
    change: Any, text: str, rng: np.random.Generator, tmp_path: Path
):
    with pytest.raises(ValueError, match=text):
        nm.load(
            written(change(drawn(["fc1", "fc2", "fc3"], rng)), tmp_path / "net.safetensors"),
            activation="relu",
        )


@pytest.mark.parametrize(
    "names, places, steps, batchnorm",
    [
        (["0", "3", "6"], {"1": 5, "4": 4}, "0 1 relu 3 4 relu 6", None),
        (["0", "3", "6"], {"2": 5, "5": 4}, "0 relu 2 3 relu 5 6", None),
        (
            ["net.0.0", "net.1.0", "net.2"],
            {"net.0.1": 5, "net.1.1": 4},
            "net.0.0 net.0.1 relu net.1.0 net.1.1 relu net.2",
            None,
        ),
        (["fc1", "fc2", "fc3"], {"bn1": 5, "bn2": 4}, "fc1 bn1 relu fc2 bn2 relu fc3", "before"),
        (["fc1", "fc2", "fc3"], {"bn1": 5, "bn2": 4}, "fc1 relu bn1 fc2 relu bn2 fc3", "after"),
        (["1", "3", "5"], {"0": 3}, "0 1 relu 3 relu 5", None),
        (["0", "2", "4"], {"5": 2}, "0 relu 2 relu 4 5", None),
        (
            ["l.0.linear", "l.1.linear", "l.2.linear"],
            {"l.1.norm": 4},
            "l.0.linear relu l.1.linear l.1.norm relu l.2.linear",
            "before",
        ),
    ],
)
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_batch_normalisation_is_folded(
    names: list[str],
    places: dict[str, int],
    steps: str,
    batchnorm: str | None,
    suffix: str,
    rng: np.random.Generator,
    tmp_path: Path,
):
    """Against the network computed step by step; float64, so that folding rounds in the last
    digits only.
    """
    tensors = drawn(names, rng, (False, True, True))
    for name, width in places.items():
        tensors |= norm(name, width, rng)
    if suffix == ".npz":
        order = steps.replace("relu ", "").split()
        tensors = {
            name: a
            for step in order
            for name, a in tensors.items()
            if name.rpartition(".")[0] == step
        }
    path = written(tensors, tmp_path / f"net{suffix}")
    with pytest.warns(
        UserWarning,
        match=rf"net{suffix}: {len(places)} batch normalisations? are folded .*ε = 1e-05, rounded to float64",
    ):
        net, params = nm.load(path, activation="relu", batchnorm=batchnorm)
    x = rng.standard_normal((6, 3))
    np.testing.assert_allclose(
        net(params, x), forward(tensors, steps.split(), x), rtol=1e-11, atol=1e-13
    )


def test_the_side_of_the_activation_is_asked_for(rng: np.random.Generator, tmp_path: Path):
    tensors = {**drawn(["fc1", "fc2", "fc3"], rng), **norm("bn1", 5, rng)}
    path = written(tensors, tmp_path / "net.npz")
    with pytest.raises(
        ValueError,
        match=r"the batch normalisation bn1, and does not say whether it comes before or after the activation",
    ):
        nm.load(path, activation="relu")
    with pytest.raises(ValueError, match=r"`batchnorm` is 'middle'; pass 'before' or 'after'"):
        nm.load(path, activation="relu", batchnorm="middle")
    ambiguous = {**drawn(["0", "4", "6"], rng), **norm("2", 5, rng)}
    with pytest.raises(ValueError, match="does not say whether it comes before or after"):
        nm.load(written(ambiguous, tmp_path / "gaps.npz"), activation="relu")


@pytest.mark.parametrize(
    "change, text",
    [
        ({"bn1.running_var": -np.ones(5)}, "with moments that no data has"),
        ({"bn1.running_mean": np.full(5, np.nan)}, "with moments that no data has"),
        (
            {
                "bn1.running_var": np.ones(7),
                "bn1.running_mean": np.ones(7),
                "bn1.weight": np.ones(7),
                "bn1.bias": np.ones(7),
            },
            "bn1 of width 7",
        ),
    ],
)
def test_a_normalisation_that_cannot_be_is_refused(
    change: dict, text: str, rng: np.random.Generator, tmp_path: Path
):
    tensors = {**drawn(["fc1", "fc2", "fc3"], rng), **norm("bn1", 5, rng), **change}
    with pytest.raises(ValueError, match=text):
        nm.load(written(tensors, tmp_path / "net.npz"), activation="relu", batchnorm="before")


@pytest.mark.parametrize(
    "name, usual",
    [
        ("ReLU", "relu"),
        ("LeakyReLU(0.2)", "leaky_relu(0.2)"),
        ("Swish", "silu"),
        ("GELU", "gelu"),
        (" Tanh", "tanh"),
    ],
)
def test_activations_are_named_in_any_case(name: str, usual: str):
    assert nm.MLP((1, 2, 1), name) == nm.MLP((1, 2, 1), usual)


def test_a_saved_network_respects_the_umask_and_is_accepted_again(tmp_path: Path):
    import os

    net = nm.MLP((2, 3, 1))
    params = tuple(nm.Layer(np.ones(s), np.zeros(s[0])) for s in [(3, 2), (1, 3)])
    before = os.umask(0o077)
    try:
        path = nm.save(tmp_path / "private.safetensors", net, params)
        assert path.stat().st_mode & 0o777 == 0o600
        os.umask(0o022)
        assert nm.save(tmp_path / "usual.safetensors", net, params).stat().st_mode & 0o777 == 0o644
        assert nm.save(path, net, params).stat().st_mode & 0o777 == 0o600, (
            "a file that is replaced keeps its permissions"
        )
    finally:
        os.umask(before)
    for bad, text in ((np.nan, "is nan"), (np.inf, "is inf")):
        broken = (nm.Layer(np.full((3, 2), bad), np.zeros(3)), params[1])
        with pytest.raises(ValueError, match=rf"`params\[0\]\.weight` {text}"):
            nm.save(tmp_path / "bad.safetensors", net, broken)
    assert not (tmp_path / "bad.safetensors").exists()
