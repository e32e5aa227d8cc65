"""Networks written as functions, read from their graphs: the same layers, the same kernels, and
what is refused.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from described import WITH_LIMITS
from neuromanifold.models.layers import Attention, Conv, Dense, GlobalAvgPool, LayerNorm, Residual


def fan_in(name, leaf):
    return leaf.shape[-1] if name.endswith(("key", "value")) else np.prod(leaf.shape[1:])


@pytest.mark.parametrize("scaling", ["ntk", "standard"])
@pytest.mark.parametrize("name", WITH_LIMITS)
def test_descriptions_survive_their_graph(name, scaling, key, rng):
    """From `Sequential` to a function, to its graph, and back: kernels to rounding, in both
    scalings.
    """
    given = nm.Sequential(
        *WITH_LIMITS[name].layers, input_shape=WITH_LIMITS[name].input_shape, scaling=scaling
    )
    params, x = given.init(key=key), rng.standard_normal((3, *given.input_shape))
    if scaling == "standard":
        leaves = zip(
            nm.graph.trace(given, params, x).parameters, jax.tree.leaves(params), strict=True
        )
        leaf_std = {
            n: 0.5 if n.endswith("bias") else 1.2 / np.sqrt(fan_in(n, leaf)) for n, leaf in leaves
        }
        found = nm.describe(lambda p, x: given(p, x), params, x, leaf_std=leaf_std)
        expected = nm.infinite_ntk(given, x, weight_std=1.2, bias_std=0.5)
    else:
        found, expected = (
            nm.describe(lambda p, x: given(p, x), params, x),
            nm.infinite_ntk(given, x),
        )
    assert found.scaling == scaling
    np.testing.assert_allclose(nm.infinite_ntk(found, x), expected, rtol=1e-12)


def test_a_network_of_ones_own(key, rng):
    """Weights (in, out), an activation that no library has, jax.nn's convolution with HWIO
    kernels.
    """

    def f(params, x):
        y = jax.lax.conv_general_dilated(
            x, params["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = jax.nn.relu(y / 3.0 + params["c"])
        y = y.mean(axis=(1, 2)) @ params["w"] * 0.5
        return (y + jnp.sin(2 * y)) @ params["v"]

    shapes = {"k": (3, 3, 2, 4), "c": (4,), "w": (4, 5), "v": (5, 1)}
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    x = rng.standard_normal((3, 4, 4, 2))
    found = nm.describe(f, params, x)
    wave = nm.Activation(lambda z: z + jnp.sin(2 * z), name="wave")
    same = nm.Sequential(
        Conv(4, 3, weight_std=np.sqrt(18) / 3),
        "relu",
        GlobalAvgPool(),
        Dense(5, weight_std=1.0, bias=False),
        wave,
        Dense(1, weight_std=np.sqrt(5), bias=False),
        input_shape=(4, 4, 2),
    )
    assert [type(layer).__name__ for layer in found.layers] == [
        type(layer).__name__ for layer in same.layers
    ]
    for one, two in zip(
        nm.infinite.infinite_kernels(found, x), nm.infinite.infinite_kernels(same, x), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-10)
    other = nm.infinite_ntk(
        nm.Sequential(*same.layers[:-2], "sin", same.layers[-1], input_shape=(4, 4, 2)), x
    )
    assert np.abs(other - nm.infinite_ntk(found, x)).max() > 1e-3


def test_an_mlp_is_its_description(key, rng):
    net, x = nm.MLP((3, 5, 5, 1), "leaky_relu(0.2)", scaling="ntk"), rng.standard_normal((4, 3))
    found = nm.describe(net, net.init(key=key), x)
    np.testing.assert_allclose(nm.infinite_ntk(found, x), nm.infinite_ntk(net, x), rtol=1e-12)


W, B = np.full((3, 3), 0.5), np.ones(3)


@pytest.mark.parametrize(
    "f, params, options, message",
    [
        (lambda p, x: (x @ p["w"]) @ p["w"], {"w": W}, {}, "the leaf w, which `f` uses in 2 layers"),
        (lambda p, x: x @ p["w"], {"w": W, "b": B}, {}, "the leaf b, which `f` uses in 0 layers"),
        (lambda p, x: jax.nn.softmax(x @ p["w"]), {"w": W}, {}, r"`f` uses reduce_max .* describe the network by nm\.Sequential"),
        (lambda p, x: (x @ p["w"]) * p["b"], {"w": W, "b": B}, {}, "the parameter b as neither weight nor bias"),
        (lambda p, x: (x @ p["w"]) * jnp.arange(3.0), {"w": W}, {}, "constants that differ from entry to entry"),
        (lambda p, x: (x @ p["w"]) * jnp.tanh(x @ p["v"]), {"w": W, "v": W}, {}, "combines branches other than by a sum"),
        (lambda p, x: x @ p["w"], {"w": W}, {"leaf_std": {"w": -1.0}}, r"`leaf_std` is -1\.0 for 'w'"),
        (lambda p, x: x @ p["w"] + p["b"], {"w": W, "b": B}, {"leaf_std": {"w": 2.0}}, "no entry for 'b'"),
        (lambda p, x: x @ p["w"] / 2.0, {"w": W}, {"leaf_std": 3.0}, "weights that `f` multiplies by factors"),
        (lambda p, x: (x @ p["w"], x), {"w": W}, {}, "takes or gives several arrays"),
    ],
)  # fmt: skip
def test_what_is_refused(f, params, options, message, rng):
    with pytest.raises(ValueError, match=message):
        nm.describe(f, params, rng.standard_normal((2, 3)), **options)


def normalised(h):
    return (h - h.mean(axis=-1, keepdims=True)) / jnp.sqrt(
        jnp.var(h, axis=-1, keepdims=True) + 1e-5
    )


def one_head(p, x):
    """Matrices (in, out), one head."""
    h = normalised(x @ p["e"])
    keys = h @ p["k"]
    weights = jax.nn.softmax(keys @ keys.swapaxes(-1, -2) / 4)
    h = h + weights @ (h @ p["v"]) @ p["o"] * 0.3 + p["b"]
    return jax.nn.relu(h).mean(axis=1) @ p["w"]


def two_heads(p, x):
    """The same matrices cut into two heads; softmax by hand, as a share of exponentials."""
    h = jax.nn.standardize(x @ p["e"], epsilon=1e-5)
    keys, values = ((h @ p[name]).reshape(*h.shape[:-1], 2, -1) for name in "kv")
    powers = jnp.exp(jnp.einsum("nphk,nqhk->nhpq", keys, keys) / 4)
    mixed = jnp.einsum("nhpq,nqhv->nphv", powers / powers.sum(axis=-1, keepdims=True), values)
    h = h + (0.3 * (mixed.reshape(*h.shape[:-1], -1) @ p["o"]) + p["b"])
    return jax.nn.relu(h).mean(axis=1) @ p["w"]


@pytest.mark.parametrize("f, heads", [(one_head, 1), (two_heads, 2)])
def test_attention_and_layer_norm_of_ones_own(f, heads, rng):
    """Recognised by what they compute. At infinite width heads only share the keys' width among
    them, here by the factor 1/4.
    """
    shapes = {"e": (3, 6), "k": (6, 4), "v": (6, 4), "o": (4, 6), "b": (6,), "w": (6, 1)}
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    x = rng.standard_normal((2, 5, 3))
    found = nm.describe(f, params, x)
    size = 0.3**0.5
    attention = Attention(
        6,
        key_std=np.sqrt(6 / heads),
        value_std=size * np.sqrt(6),
        out_std=size * np.sqrt(4),
        bias_std=1.0,
    )
    same = nm.Sequential(
        Dense(6, weight_std=np.sqrt(3), bias=False), LayerNorm(eps=1e-5), Residual(attention), "relu", GlobalAvgPool(),
        Dense(1, weight_std=np.sqrt(6), bias=False), input_shape=(5, 3),
    )  # fmt: skip
    assert [type(layer).__name__ for layer in found.layers] == [
        type(layer).__name__ for layer in same.layers
    ]
    assert found.layers[2].layers[0].heads == heads
    np.testing.assert_allclose(nm.infinite_ntk(found, x), nm.infinite_ntk(same, x), rtol=1e-10)


def test_attention_that_has_no_limit(rng):
    def untied(p, x):
        weights = jax.nn.softmax((x @ p["q"]) @ (x @ p["k"]).swapaxes(-1, -2) / 2)
        return weights @ (x @ p["v"]) @ p["o"]

    def bare(p, x):
        keys = x @ p["k"]
        return jax.nn.softmax(keys @ keys.swapaxes(-1, -2)) @ (x @ p["v"])

    x, w = rng.standard_normal((2, 5, 3)), rng.standard_normal((3, 3))
    with pytest.raises(ValueError, match=r"independent queries and keys, .* use one leaf for both"):
        nm.describe(untied, dict.fromkeys("qkvo", w), x)
    with pytest.raises(ValueError, match=r"describe the network by nm\.Sequential"):
        nm.describe(bare, dict.fromkeys("kv", w), x)
