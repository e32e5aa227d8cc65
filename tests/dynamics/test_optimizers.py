"""`adam_l2` is torch's Adam with its weight decay; the decay of `optax.adamw` is another."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dynamics import plain
from neuromanifold.dynamics import adam_l2
from neuromanifold.dynamics.optimizers import describe


def steps(
    optimizer: optax.GradientTransformation, theta: np.ndarray, gradients: np.ndarray
) -> np.ndarray:
    params = {
        "a": jnp.asarray(theta[:2], jnp.float32),
        "b": jnp.asarray(theta[2:], jnp.float32).reshape(1, 3),
    }
    state = optimizer.init(params)
    for gradient in gradients:
        g = {
            "a": jnp.asarray(gradient[:2], jnp.float32),
            "b": jnp.asarray(gradient[2:], jnp.float32).reshape(1, 3),
        }
        updates, state = optimizer.update(g, state, params)
        params = optax.apply_updates(params, updates)
    return plain.vector(params)


@pytest.mark.parametrize("rate, decay", [(0.01, 0.0), (0.1, 0.3)])
def test_adam_l2_is_torch_s_adam(rate: float, decay: float, rng):
    theta, gradients = rng.normal(size=5), rng.normal(size=(30, 5))
    adam = plain.Adam(rate, decay)
    expected = theta
    for gradient in gradients:
        expected = adam.step(expected, gradient)
    tolerance = 30 * 10 * np.finfo(np.float32).eps
    np.testing.assert_allclose(
        steps(adam_l2(rate, decay), theta, gradients), expected, rtol=tolerance, atol=tolerance
    )
    decoupled = steps(optax.adamw(rate, weight_decay=decay or 0.1), theta, gradients)
    assert abs(decoupled - expected).max() > 1e-3


def test_optimisers_say_what_they_are():
    assert describe(adam_l2(0.01, 1e-4)) == "adam_l2(lr=0.01, weight_decay=0.0001)"
    assert describe(adam_l2) == "adam_l2"
    assert describe(optax.sgd(0.1)) == "chain"
    assert " at 0x" not in describe(object())
