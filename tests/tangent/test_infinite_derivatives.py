"""Infinite-width kernels under JAX: results follow their inputs; derivatives by samples and
deviations against differences.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.models.layers import (
    Attention,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    LayerNorm,
    Residual,
)
from neuromanifold.tangent.infinite import infinite_kernels, infinite_ntk
from neuromanifold.tangent.infinite.deviations import weight_layers

NETS = {
    "relu": nm.Sequential(
        Dense(1), "relu", Dense(1, weight_std=1.3), "relu", Dense(1), input_shape=(3,)
    ),
    "tanh": nm.Sequential(
        Dense(1), "tanh", Dense(1), "gelu", Dense(1, bias_std=0.3), input_shape=(3,)
    ),
    "conv": nm.Sequential(Conv(1, 2), "erf", GlobalAvgPool(), Dense(1), input_shape=(4, 2)),
    "residual": nm.Sequential(
        Conv(1, 2), Residual("relu", Conv(1, 2)), Flatten(), Dense(1), input_shape=(4, 2)
    ),
    "attention": nm.Sequential(
        Attention(1), LayerNorm(), "relu", Flatten(), Dense(1), input_shape=(3, 2)
    ),
}


def test_results_follow_their_inputs(rng, x64):
    """float64 in every case; a JAX array where the samples are JAX arrays that can hold it."""
    net, x = NETS["relu"], rng.standard_normal((3, 3))
    assert all(type(k) is np.ndarray and k.dtype == np.float64 for k in infinite_kernels(net, x))
    for kernel in infinite_kernels(net, jnp.asarray(x), x[:2]):
        assert kernel.dtype == np.float64
        assert isinstance(kernel, jax.Array) == x64


def differences(function, point, step=1e-5):
    """Central differences, entry by entry."""
    found = np.zeros(np.shape(point))
    for index in np.ndindex(*found.shape):
        move = np.zeros_like(found)
        move[index] = step
        found[index] = (function(point + move) - function(point - move)) / (2 * step)
    return found


@pytest.mark.parametrize("name", NETS)
def test_derivatives_by_samples_and_deviations(name, rng):
    """A weighted sum of the entries, by central differences: their error is h² times third
    derivatives, about 1e-8 here.
    """
    net = NETS[name]
    x1, x2 = (rng.standard_normal((n, *net.input_shape)) for n in (3, 2))
    probe = rng.standard_normal((3, 2))
    weights = 1 + 0.2 * rng.random(len(weight_layers(net.layers)))

    def value(x, w):
        return (infinite_ntk(net, x, x2, weight_std=w, bias_std=0.4) * probe).sum()

    with jax.enable_x64(True):
        found = jax.jit(jax.grad(value, argnums=(0, 1)))(jnp.asarray(x1), jnp.asarray(weights))
    for got, expected in zip(
        found,
        (
            differences(lambda x: value(x, weights), x1),
            differences(lambda w: value(x1, w), weights),
        ),
        strict=True,
    ):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(
            got, expected, rtol=0, atol=1e-7 * max(1.0, np.abs(expected).max())
        )


def test_float32_callers_get_float32_derivatives_computed_in_float64(rng):
    """While the flag is off: equal to the float64 derivative to the last digit of float32."""
    net, x = NETS["relu"], rng.standard_normal((3, 3)).astype(np.float32)

    def value(x):
        return infinite_ntk(net, x).sum()

    narrow = jax.grad(value)(jnp.asarray(x))
    with jax.enable_x64(True):
        wide = jax.grad(value)(jnp.asarray(x, jnp.float64))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, rtol=1e-6)
