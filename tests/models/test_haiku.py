"""Haiku functions as models: with and without state, with and without the key, fixed to
inference.
"""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection.recorder import MEASURES


def network(x: Any, is_training: bool) -> Any:
    h = hk.BatchNorm(True, True, 0.9)(hk.Linear(4)(x), is_training)
    if is_training:
        h = hk.dropout(hk.next_rng_key(), 0.5, h)
    return hk.Linear(2)(jax.nn.relu(h))


@pytest.fixture
def x(key: jax.Array) -> jax.Array:
    return 2 + jax.random.normal(key, (16, 3))


@pytest.mark.parametrize("keyed", [True, False])
def test_a_network_with_state(keyed: bool, key: jax.Array, x: jax.Array):
    transformed = hk.transform_with_state(network)
    params, state = transformed.init(key, x, True)
    for _ in range(3):
        _, state = transformed.apply(params, state, key, x, True)
    f, params = nm.from_haiku(
        transformed if keyed else hk.without_apply_rng(transformed),
        params,
        state,
        kwargs={"is_training": False},
    )
    # Sums of 32 products of float32, of terms as large as the largest output.
    expected = np.asarray(transformed.apply(params, state, None, x, False)[0])
    rounding = 32 * np.finfo(np.float32).eps * np.abs(expected).max()
    np.testing.assert_allclose(f(params, x), expected, rtol=0, atol=rounding)
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    y = f(wide, np.asarray(x, np.float64))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, f(params, x), rtol=1e-4)
    assert nm.ntk(f, params, x[:3]).shape == (6, 6)


def test_training_mode_is_refused(key: jax.Array, x: jax.Array):
    transformed = hk.transform_with_state(network)
    params, state = transformed.init(key, x, True)
    f, params = nm.from_haiku(transformed, params, state, kwargs={"is_training": True})
    with pytest.raises(
        ValueError,
        match=r"`transformed` is not in evaluation mode \(You must pass a non-None PRNGKey",
    ):
        f(params, x)
    quiet = hk.transform_with_state(lambda x: hk.BatchNorm(True, True, 0.9)(x, True))
    f, params = nm.from_haiku(quiet, *quiet.init(key, x))
    with pytest.raises(
        ValueError, match=r"`transformed` is not in evaluation mode \(it updates its state\)"
    ):
        f(params, x)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_network_without_state(keyed: bool, key: jax.Array, x: jax.Array):
    transformed = hk.transform(lambda x: hk.nets.MLP([5, 1])(x))
    params = transformed.init(key, x)
    f, params = nm.from_haiku(transformed if keyed else hk.without_apply_rng(transformed), params)
    layers = tuple(
        nm.Layer(params[f"mlp/~/linear_{i}"]["w"].T, params[f"mlp/~/linear_{i}"]["b"])
        for i in (0, 1)
    )
    np.testing.assert_allclose(f(params, x), nm.MLP((3, 5, 1))(layers, x), rtol=1e-5)
    assert jax.jit(jax.vmap(f, (0, None)))(
        jax.tree.map(lambda a: jnp.stack([a, a]), params), x
    ).shape == (2, 16, 1)


def test_wrong_arguments_are_refused(key: jax.Array, x: jax.Array):
    with pytest.raises(
        TypeError, match=r"`transformed` is a function; pass what hk\.transform returned"
    ):
        nm.from_haiku(network, {})
    with pytest.raises(
        TypeError, match=r"`state` is missing; pass the second value of `transformed\.init`"
    ):
        nm.from_haiku(hk.transform_with_state(network), {})


@pytest.fixture
def only_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tracker measures is tested elsewhere."""
    monkeypatch.setattr("neuromanifold.inspection.recorder.MEASURES", MEASURES[:1])


@pytest.mark.usefixtures("only_the_loss")
def test_a_tracker_takes_parameters_and_state_of_each_step(key: jax.Array, x: jax.Array):
    transformed = hk.transform_with_state(network)
    params, fresh = transformed.init(key, x, True)
    _, state = transformed.apply(params, fresh, key, x, True)
    _, state = transformed.apply(params, state, key, 3 * x, True)
    tracker = nm.Tracker(transformed, x, jnp.zeros((16, 2)), kwargs={"is_training": False})
    tracker(0, (params, fresh))
    tracker(1, (params, state))
    expected = np.mean(np.square(transformed.apply(params, state, None, x, False)[0]))
    np.testing.assert_allclose(tracker.timeline.data["loss"].values[1], expected, rtol=1e-5)
