"""Initialisations: the statistics they promise, one key for one network, the run axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm

WIDTHS = (30, 40, 50, 20)
FAN_IN, FAN_OUT = np.array(WIDTHS[:-1]), np.array(WIDTHS[1:])
# (scheme, standard deviation of the weights by layer, of the biases by layer)
SCHEMES = {
    "he_bias": (nm.init.he_bias, np.sqrt(2 / FAN_IN), np.sqrt(2 / FAN_IN)),
    "he": (nm.init.he, np.sqrt(2 / FAN_IN), 0 * FAN_IN),
    "xavier": (nm.init.xavier, np.sqrt(2 / (FAN_IN + FAN_OUT)), 0 * FAN_IN),
    "lecun": (nm.init.lecun, np.sqrt(1 / FAN_IN), 0 * FAN_IN),
    "ntk": (nm.init.ntk, 1 + 0 * FAN_IN, 1 + 0 * FAN_IN),
    "small": (nm.init.small(0.01), 0.01 / np.sqrt(FAN_IN), 0.01 / np.sqrt(FAN_IN)),
}
EVERY = [*SCHEMES, "balanced"]


def scheme(name: str):
    return nm.init.balanced if name == "balanced" else SCHEMES[name][0]


def looks_normal(sample: np.ndarray, std: float) -> bool:
    """Mean and deviation within five standard errors, and a kurtosis that excludes the uniform
    distribution.
    """
    n = sample.size
    mean, found = sample.mean(), sample.std()
    kurtosis = np.mean((sample - mean) ** 4) / found**4
    return (
        abs(mean) < 5 * std / np.sqrt(n)
        and abs(found - std) < 5 * std / np.sqrt(2 * n)
        and kurtosis > 2.4
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_weights_and_biases_have_the_promised_distribution(name: str, key: jax.Array):
    draw, weight_std, bias_std = SCHEMES[name]
    params = nm.MLP(WIDTHS).init(key=key, scheme=draw, runs=30)
    for layer, (weight, bias) in enumerate(params):
        assert looks_normal(np.asarray(weight), weight_std[layer])
        if bias_std[layer]:
            assert looks_normal(np.asarray(bias), bias_std[layer])
        else:
            assert not np.any(bias)


def test_the_statistics_tell_schemes_apart(key: jax.Array):
    weight = np.asarray(nm.MLP(WIDTHS).init(key=key, scheme=nm.init.he, runs=30)[0].weight)
    assert not looks_normal(weight, SCHEMES["lecun"][1][0])
    assert not looks_normal(np.random.default_rng(0).uniform(-1, 1, 10_000), 3**-0.5)


@pytest.mark.parametrize("widths", [(3, 5, 4), (6, 2, 5, 3)])
def test_balanced_weights_are_balanced(widths: tuple[int, ...], key: jax.Array):
    params = nm.MLP(widths, "identity").init(key=key, scheme=nm.init.balanced, dtype=np.float64)
    weights = [np.asarray(layer.weight) for layer in params]
    for below, above in zip(weights, weights[1:], strict=False):
        scale = np.abs(below @ below.T).max()
        np.testing.assert_allclose(
            above.T @ above, below @ below.T, rtol=0, atol=20 * 2.0**-23 * scale
        )
    assert all(np.linalg.matrix_rank(weight, tol=1e-4) == min(widths) for weight in weights)
    assert not any(np.any(layer.bias) for layer in params)


@pytest.mark.parametrize("name, runs", [*[(name, 3) for name in EVERY], ("he_bias", None)])
def test_one_key_is_one_network_whatever_the_flag_and_the_dtype(
    name: str, runs: int | None, key: jax.Array
):
    net, options = (
        nm.MLP((2, 5, 3), scaling="ntk"),
        {"key": key, "scheme": scheme(name), "runs": runs},
    )
    off = jax.tree.map(np.asarray, net.init(**options))
    off64 = jax.tree.map(np.asarray, net.init(**options, dtype=np.float64))
    half = jax.tree.map(np.asarray, net.init(**options, dtype=jnp.bfloat16))
    with jax.enable_x64(True):
        on = jax.tree.map(np.asarray, net.init(**options))
        on64 = jax.tree.map(np.asarray, net.init(**options, dtype=np.float64))
    for a, b, c, d, h in zip(*map(jax.tree.leaves, (off, on, off64, on64, half)), strict=True):
        assert (a.dtype, b.dtype, c.dtype, d.dtype) == (
            np.float32,
            np.float32,
            np.float64,
            np.float64,
        )
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a.astype(np.float64), c)
        np.testing.assert_array_equal(c, d)
        assert h.dtype == jnp.bfloat16
        np.testing.assert_array_equal(h, a.astype(jnp.bfloat16))


def test_another_key_is_another_network(key: jax.Array):
    first, second = (nm.MLP((2, 5, 3)).init(key=k)[0].weight for k in jax.random.split(key))
    assert not np.any(np.asarray(first) == np.asarray(second))


@pytest.mark.parametrize("name", ["he", "balanced"])
def test_runs_are_a_leading_axis_of_different_networks(name: str, key: jax.Array):
    net = nm.MLP((3, 4, 2), bias=False)
    runs = net.init(key=key, scheme=scheme(name), runs=5)
    one = net.init(key=key, scheme=scheme(name))
    assert jax.tree.map(np.shape, runs) == jax.tree.map(lambda leaf: (5, *leaf.shape), one)
    assert all(layer.bias is None for layer in runs)
    assert len(np.unique(np.asarray(runs[0].weight), axis=0)) == 5


def test_draws_of_different_layers_are_independent(key: jax.Array):
    params = nm.MLP((4, 4, 4), bias=False).init(key=key, scheme=nm.init.ntk)
    assert not np.any(np.asarray(params[0].weight) == np.asarray(params[1].weight))


def test_an_initialisation_is_a_function_of_key_and_network(key: jax.Array):
    def ones(key, net):
        return tuple(
            nm.Layer(jnp.ones((b, a)), jnp.zeros(b))
            for a, b in zip(net.widths, net.widths[1:], strict=False)
        )

    assert np.all(nm.MLP((2, 3, 1)).init(key=key, scheme=ones)[0].weight == 1)


def test_initialisation_works_under_jit_and_vmap(key: jax.Array):
    net = nm.MLP((2, 3, 1))
    keys = jax.random.split(key, 3)
    together = jax.jit(jax.vmap(lambda k: net.init(key=k)))(keys)
    np.testing.assert_allclose(together[0].weight[1], net.init(key=keys[1])[0].weight, rtol=1e-6)
