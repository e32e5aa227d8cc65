"""Finite networks approach the kernels of infinite ones: means within their errors, deviations
like 1/√width.
"""

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.models.layers import Attention, Conv, Dense, Flatten, GlobalAvgPool, Residual
from neuromanifold.tangent.infinite import infinite_kernels, monte_carlo_kernels


def convolutional(n):
    return nm.Sequential(
        Conv(n, 2), "relu", GlobalAvgPool(), Dense(1, weight_std=1.3), input_shape=(4, 2)
    )


def residual(n):
    return nm.Sequential(
        Dense(n),
        Residual("relu", Dense(n, weight_std=1.2, bias_std=0.3)),
        "relu",
        Dense(1),
        input_shape=(3,),
    )


def attention(n):
    heads = Attention(n, heads=2, key_features=n // 2 or 1, value_features=n // 2 or 1)
    return nm.Sequential(heads, "erf", Flatten(), Dense(1), input_shape=(3, 2))


@pytest.mark.parametrize("build", [convolutional, residual, attention])
def test_finite_networks_approach_the_limit(build, key, rng, draws):
    """One network's tangent kernel deviates with slope −½; the means lie within five errors and
    a bias of a few over the width.
    """
    x = rng.standard_normal((2, *build(1).input_shape))
    limit, widths = infinite_kernels(build(1), x), (16, 256)
    found = [monte_carlo_kernels(build(n), x, key=key, runs=draws(400)) for n in widths]
    deviations = [estimate.ntk.deviation(limit.ntk) for estimate in found]
    assert np.log(deviations[1] / deviations[0]) / np.log(widths[1] / widths[0]) == pytest.approx(
        -0.5, abs=0.1
    )
    for kind in ("nngp", "ntk"):
        estimate, exact = getattr(found[1], kind), getattr(limit, kind)
        assert (
            np.abs(estimate.mean - exact) < 5 * estimate.standard_error + 3 / 256 * exact.max()
        ).all()
    wrong = infinite_kernels(build(1), x, weight_std=1.5).ntk
    assert (np.abs(found[1].ntk.mean - wrong) > 5 * found[1].ntk.standard_error).any()


def test_a_network_without_randomness_and_what_is_refused(key):
    net = nm.Sequential(Dense(2, bias=False), input_shape=(1,))
    found = monte_carlo_kernels(net, np.array([[2.0]]), key=key, runs=10)
    assert found.ntk.bias(np.array([[4.0]])) == (0.0, 0.0)
    assert found.ntk.deviation(np.array([[5.0]])) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="`runs` is 1; pass a whole number"):
        monte_carlo_kernels(net, np.ones((1, 1)), key=key, runs=1)
    places = nm.Sequential(Conv(2, 2), input_shape=(3, 1))
    with pytest.raises(ValueError, match="`net` has an output with positions"):
        monte_carlo_kernels(places, np.ones((1, 3, 1)), key=jax.random.key(0))
