"""Networks written as functions, read from their graphs: the same layers, the same kernels, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.models.layers import (
    Attention,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    LayerNorm,
    Residual,
    Sum,
)

NETS = {
    "dense": nm.Sequential(Dense(4, weight_std=1.3, bias_std=0.3), "tanh", Dense(2, bias=False), input_shape=(3,)),
    "pooled": nm.Sequential(
        Conv(4, 3, strides=2), "relu", AvgPool(2, strides=1), Conv(3, 2, padding="VALID"), "gelu", GlobalAvgPool(), Dense(2),
        input_shape=(8, 7, 2),
    ),
    "residual": nm.Sequential(
        Conv(4, 3), Residual("relu", Conv(4, 3), "erf", Conv(4, 3, bias=False)), "abs", Flatten(), Dense(1), input_shape=(5, 2)
    ),
    "sum": nm.Sequential(Dense(4), "relu", Sum(Dense(3), (Dense(5), "sin", Dense(3))), "relu", Dense(1), input_shape=(3,)),
}  # fmt: skip


@pytest.mark.parametrize("scaling", ["ntk", "standard"])
@pytest.mark.parametrize("name", NETS)
def test_descriptions_survive_their_graph(name, scaling, key, rng):
    """From `Sequential` to a function, to its graph, and back: kernels to rounding, in both scalings."""
    given = nm.Sequential(*NETS[name].layers, input_shape=NETS[name].input_shape, scaling=scaling)
    params, x = given.init(key=key), rng.standard_normal((3, *given.input_shape))
    if scaling == "standard":
        leaves = zip(nm.trace(given, params, x).parameters, jax.tree.leaves(params), strict=True)
        leaf_std = {n: 0.5 if n.endswith("bias") else 1.2 / np.sqrt(np.prod(leaf.shape[1:])) for n, leaf in leaves}
        found = nm.describe(lambda p, x: given(p, x), params, x, leaf_std=leaf_std)
        expected = nm.infinite_ntk(given, x, weight_std=1.2, bias_std=0.5)
    else:
        found, expected = nm.describe(lambda p, x: given(p, x), params, x), nm.infinite_ntk(given, x)
    assert found.scaling == scaling
    np.testing.assert_allclose(nm.infinite_ntk(found, x), expected, rtol=1e-12)


def test_a_network_of_ones_own(key, rng):
    """Weights (in, out), an activation that no library has, jax.nn's convolution with HWIO kernels."""

    def f(params, x):
        y = jax.lax.conv_general_dilated(x, params["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
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
    assert [type(layer).__name__ for layer in found.layers] == [type(layer).__name__ for layer in same.layers]
    for one, two in zip(nm.infinite_kernels(found, x), nm.infinite_kernels(same, x), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10)
    other = nm.infinite_ntk(nm.Sequential(*same.layers[:-2], "sin", same.layers[-1], input_shape=(4, 4, 2)), x)
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


@pytest.mark.parametrize("layer", [LayerNorm(), Attention(2)])
def test_layers_that_graphs_do_not_show(layer, key, rng):
    net = nm.Sequential(Dense(2), layer, Flatten(), Dense(1), input_shape=(3, 2))
    with pytest.raises(ValueError, match=r"describe the network by nm\.Sequential"):
        nm.describe(net, net.init(key=key), rng.standard_normal((2, 3, 2)))
