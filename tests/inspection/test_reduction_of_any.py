"""The smaller network of `inspect` for a convolutional one: planted channels go, the page offers
the weights.
"""

import base64
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load

import neuromanifold as nm
from neuromanifold.report.overview import network_figure
from neuromanifold.report.reduction import reduction_section


def _network(params, x):
    h = jax.lax.conv_general_dilated(
        x, params["c"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(h + params["b"]).mean(axis=(1, 2)) @ params["w"]


def _planted(rng):
    """Channel 1 is off everywhere, channel 3 is twice channel 0."""
    params = {
        "c": rng.normal(size=(3, 3, 1, 4)),
        "b": rng.normal(size=4),
        "w": rng.normal(size=(4, 2)),
    }
    params["b"][1] = -100.0
    params["c"][..., 3], params["b"][3] = 2 * params["c"][..., 0], 2 * params["b"][0]
    return params


def test_planted_channels_go_and_the_page_offers_the_weights(rng):
    params, x = _planted(rng), rng.normal(size=(12, 5, 5, 1)).astype(np.float32)
    params = {name: a.astype(np.float32) for name, a in params.items()}
    found = nm.inspect(_network, params, x)
    assert found.reduction is not None
    assert found.reduction.neurons_saved == 2
    assert found.reduction.parameters_saved == 2 * (9 + 1 + 2)
    new = rng.normal(size=(20, 5, 5, 1))
    expected = np.asarray(_network(jax.tree.map(jnp.asarray, params), new))
    assert (
        np.abs(np.asarray(found.reduction.net(found.reduction.params, new)) - expected).max() < 1e-5
    )
    assert any("2 channels fewer" in str(row) for row in str(found).splitlines())
    assert str(found.reduction).startswith("2 hidden channels and 24 parameters saved")
    assert {r.what for r in found.reduction.removed} == {"channel"}
    before, after = re.findall(r"<svg.*?</svg>", network_figure(found), flags=re.DOTALL)
    assert before.count("<circle") == 4 and after.count("<circle") == 2
    page = reduction_section(found)
    data = base64.b64decode(re.search(r"base64,([^\"]+)\"", page)[1])
    assert {name: a.shape for name, a in load(data).items()} == {
        "b": (2,),
        "c": (3, 3, 1, 2),
        "w": (2, 2),
    }


def test_a_network_of_tokens_is_reduced_too(rng):
    def f(p: Any, x: Any) -> Any:
        return jax.nn.relu(p["e"][x].sum(axis=1) @ p["w"]) @ p["v"]

    params = {
        "e": rng.normal(size=(5, 3)),
        "w": rng.normal(size=(3, 4)),
        "v": rng.normal(size=(4, 2)),
    }
    x = rng.integers(0, 5, (12, 2))
    plain = nm.inspect(f, params, x).reduction
    params["w"][:, 1] = 2 * params["w"][:, 2]  # a multiple of another
    found = nm.inspect(f, params, x).reduction
    assert found.neurons_saved == plain.neurons_saved + 1
    eps = np.finfo(np.float32).eps  # of JAX outside x64, in sums of four products
    np.testing.assert_allclose(found.net(found.params, x), f(params, x), rtol=64 * eps)


@pytest.mark.parametrize("tokens, noun", [(True, "unit"), (False, "neuron")])
def test_what_every_token_has_is_called_a_unit(tokens: bool, noun: str, rng):
    """Before the sum over the tokens; behind it it is a neuron."""

    def f(p: Any, x: Any) -> Any:
        h = p["e"][x] if tokens else p["e"][x].sum(axis=1)
        h = jax.nn.relu(h @ p["w"]) @ p["v"]
        return h.sum(axis=1) if tokens else h

    shapes = {"e": (5, 3), "w": (3, 4), "v": (4, 2)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    params["w"][:, 1] = 2 * params["w"][:, 2]
    found = nm.reduce_width(f, params, rng.integers(0, 5, (12, 2)))
    assert noun in {r.what for r in found.removed if r.layer == "w"}
    assert re.match(rf"\d+ hidden {noun}s? and", str(found))


@pytest.mark.parametrize("both", [False, True])
def test_a_network_that_casts_one_side_is_told_which_operation_objects(both: bool, rng):
    """Parameters come in float64 here: a convolution of a bfloat16 image with them is no
    operation of lax.
    """

    def f(params: Any, x: Any) -> Any:
        h, w = x.astype(jnp.bfloat16), params["w"]
        h = jax.lax.conv_general_dilated(h, w.astype(h.dtype) if both else w, (1, 1), "VALID")
        return jax.nn.relu(h).mean((2, 3)).astype(jnp.float32) @ params["v"]

    params = {
        "w": jnp.asarray(rng.normal(size=(4, 1, 3, 3)), jnp.bfloat16),
        "v": rng.normal(size=(4, 2)).astype("f4"),
    }
    params["v"][1] = 0.0
    x = rng.normal(size=(6, 1, 4, 4)).astype(np.float32)
    if both:
        assert nm.reduce_width(f, params, x).neurons_saved >= 1
    else:
        with pytest.raises(
            TypeError,
            match=r"`f` casts a part of what it is given \(lax\.conv_general_dilated requires .*cast both",
        ):
            nm.reduce_width(f, params, x)
