"""Each loss has the constants its docstring states, in value and in gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuromanifold.models import losses

N, O = 7, 3


def hand(name: str, p: np.ndarray, t: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient in p, by hand."""
    r = p - t
    if name == "cross_entropy":
        q = np.exp(p) / np.exp(p).sum(1, keepdims=True)
        return float(-(t * np.log(q)).sum() / N), (q * t.sum(1, keepdims=True) - t) / N
    if name == "huber":
        inside = abs(r) <= 1
        return float(np.where(inside, r**2 / 2, abs(r) - 0.5).mean()), np.where(
            inside, r, np.sign(r)
        ) / (N * O)
    scale = {"mse": 1 / (N * O), "half_squared_error": 1 / (2 * N), "squared_error": 1.0}[name]
    return float((r**2).sum() * scale), 2 * r * scale


@pytest.mark.parametrize("name", losses.__all__)
def test_value_and_gradient_by_hand(name: str, rng, x64: bool):
    loss, p, t = getattr(losses, name), 2 * rng.normal(size=(N, O)), rng.uniform(size=(N, O))
    value, gradient = hand(name, p, t)
    found = loss(p, t)
    assert isinstance(found, np.ndarray) and found.dtype == np.float64 and found.shape == ()
    np.testing.assert_allclose(found, value, rtol=1e-14)
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            jax.jit(jax.grad(loss))(jnp.asarray(p), jnp.asarray(t)), gradient, rtol=1e-12
        )


@pytest.mark.parametrize("name", losses.__all__)
def test_float32_stays_float32_inside_and_outside_of_transformations(name: str, rng, x64: bool):
    loss, p, t = (
        getattr(losses, name),
        np.float32(rng.normal(size=(N, O))),
        np.float32(rng.uniform(size=(N, O))),
    )
    assert loss(p, t).dtype == np.float32
    assert loss(jnp.asarray(p), jnp.asarray(t)).dtype == np.float32
    assert jax.jit(loss)(p, t).dtype == np.float32
    assert jax.vmap(jax.grad(loss), in_axes=(0, None))(p[None], t).dtype == np.float32
    assert loss(p, t.astype(float)).dtype == np.float64


@pytest.mark.parametrize("name", losses.__all__)
def test_shapes_that_would_broadcast_are_refused(name: str):
    with pytest.raises(
        ValueError,
        match=r"`prediction` has shape \(7, 1\) but `target` has \(7,\); pass equal shapes",
    ):
        getattr(losses, name)(np.zeros((7, 1)), np.zeros(7))
    with pytest.raises(ValueError, match=r"`prediction` is a scalar"):
        getattr(losses, name)(np.float64(1), np.float64(2))


def test_cross_entropy_does_not_overflow():
    assert losses.cross_entropy(np.array([[1e4, 0.0]]), np.array([[0.0, 1.0]])) == 1e4
    assert losses.cross_entropy(np.array([[1e4, 0.0]]), np.array([[1.0, 0.0]])) == 0


def test_huber_takes_its_delta():
    assert losses.huber(np.array([[3.0]]), np.array([[0.0]]), delta=2.0) == 2 * (3 - 1)
    with pytest.raises(ValueError, match=r"`delta` is 0; pass a positive number"):
        losses.huber(np.ones((1, 1)), np.ones((1, 1)), delta=0)


def test_integer_targets_are_numbers():
    assert losses.mse(np.array([[0.5]]), np.array([[1]])) == 0.25
