"""Equinox modules as models: inference mode, state apart, the caller's object untouched."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection.recorder import MEASURES
from neuromanifold.numerics.precision import arithmetic


class Net(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        a, b = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(3, 4, key=a), eqx.nn.Linear(4, 2, key=b)
        self.norm, self.dropout = eqx.nn.BatchNorm(4, "batch", mode="batch"), eqx.nn.Dropout(0.5)

    def __call__(self, x: Any, state: Any, *, key: Any = None) -> Any:
        h, state = self.norm(self.first(x), state)
        return self.last(self.dropout(jax.nn.relu(h), key=key)), state


@pytest.fixture
def trained(key: jax.Array) -> tuple[Net, Any, Any]:
    """A network whose running moments are not the initial ones, its state, and samples."""
    net, state = eqx.nn.make_with_state(Net)(key)
    x = 2 + jax.random.normal(key, (16, 3))
    keys = jax.random.split(key, 16)
    for _ in range(3):
        step = jax.vmap(
            lambda x, k, s: net(x, s, key=k),
            axis_name="batch",
            in_axes=(0, 0, None),
            out_axes=(0, None),
        )
        _, state = step(x, keys, state)
    return net, state, x


def test_outputs_are_those_of_the_module_in_inference(trained: tuple[Net, Any, Any]):
    net, state, x = trained
    f, params = nm.from_equinox(net, state)
    quiet = eqx.nn.inference_mode(net)
    expected = jnp.stack([quiet(row, state)[0] for row in x])
    np.testing.assert_allclose(f(params, x), expected, rtol=1e-5, atol=1e-6)
    assert not net.dropout.inference, "the caller's module stays in training mode"


def test_state_follows_the_parameters_into_float64(trained: tuple[Net, Any, Any]):
    net, state, x = trained
    f, params = nm.from_equinox(net, state)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    y = f(wide, np.asarray(x, np.float64))
    assert y.dtype == np.float64
    with arithmetic():
        double, state = jax.tree.map(
            lambda a: a.astype(np.float64) if eqx.is_inexact_array(a) else a, (net, state)
        )
        expected = jax.vmap(lambda row: eqx.nn.inference_mode(double)(row, state)[0])(
            jnp.asarray(x, np.float64)
        )
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    narrow = f(params, x)
    assert 1e-9 < np.abs(narrow - y).max() < 1e-5, "negative control: float32 is not as near"


def test_the_library_takes_it(key: jax.Array):
    net = eqx.nn.MLP(2, 1, 5, 1, key=key)
    f, params = nm.from_equinox(net)
    x = jax.random.normal(key, (6, 2))
    layers = tuple(nm.Layer(layer.weight, layer.bias) for layer in net.layers)
    np.testing.assert_allclose(
        nm.ntk(f, params, x), nm.ntk(nm.MLP((2, 5, 1)), layers, x), rtol=1e-5
    )
    with arithmetic():
        assert jax.vmap(f, (0, None))(
            jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), params), x
        ).shape == (2, 6, 1)
    assert hash(f) == hash(f)


def test_named_arguments_and_fixed_ones(key: jax.Array):
    class Two(eqx.Module):
        scale: jax.Array

        def __call__(self, a: Any, b: Any, *, power: int) -> Any:
            return self.scale * a + b**power

    f, params = nm.from_equinox(Two(jnp.ones(())), kwargs={"power": 2})
    x = {"a": np.arange(3.0), "b": np.full(3, 2.0)}
    np.testing.assert_allclose(f(params, x), [4.0, 5.0, 6.0])
    np.testing.assert_allclose(f(params, (x["a"], x["b"])), [4.0, 5.0, 6.0])


def test_another_object_is_refused():
    with pytest.raises(TypeError, match=r"`module` is a function; pass an equinox\.Module"):
        nm.from_equinox(lambda x: x)


@pytest.fixture
def only_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tracker measures is tested elsewhere."""
    monkeypatch.setattr("neuromanifold.inspection.recorder.MEASURES", MEASURES[:1])


@pytest.mark.usefixtures("only_the_loss")
def test_a_tracker_takes_the_module_and_the_state_of_each_step(trained: tuple[Net, Any, Any]):
    net, state, x = trained
    fresh = eqx.nn.make_with_state(Net)(jax.random.key(1))[1]
    tracker = nm.Tracker(net, x, jnp.zeros((16, 2)))
    tracker(0, (net, fresh))
    moved = eqx.tree_at(lambda n: n.last.bias, net, jnp.ones(2))
    tracker(1, (net, state)), tracker(2, (moved, state))
    f, params = nm.from_equinox(net, state)
    expected = [
        nm.losses.mse(f(p, x), jnp.zeros((16, 2)))
        for p in (params, nm.from_equinox(moved, state)[1])
    ]
    found = tracker.timeline.data["loss"].values
    np.testing.assert_allclose(found[1:], expected, rtol=1e-5)
    assert abs(found[0] - found[1]) > 1e-2, "the state matters"
    with pytest.raises(ValueError, match=r"`module` is missing, .* call `tracker\(step, module\)`"):
        tracker(3)
