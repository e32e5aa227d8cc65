"""Channels that are affine on the sample: as few do as their product has rank, in any network."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neuromanifold as nm
from dynamics.compilations import compilations
from neuromanifold.dynamics import train
from neuromanifold.numerics.precision import arithmetic


def stack(params, x):
    """A perceptron with rectifiers that is nothing but a function here."""
    for W, b in params[:-1]:
        x = jax.nn.relu(x @ W.T + b)
    W, b = params[-1]
    return x @ W.T + b


def count(params):
    return sum(np.size(leaf) for leaf in jax.tree.leaves(params))


def test_a_function_gets_as_small_as_the_same_perceptron(key, rng, tally):
    net, x = nm.MLP((2, 10, 10, 1)), rng.uniform(-0.5, 0.5, (40, 2))
    params = net.init(key=key, runs=3, scheme=nm.init.he_bias)
    y = np.sin(3 * x.sum(axis=1, keepdims=True))
    optimizer = optax.adamw(0.01, weight_decay=0.1)
    fit = train(net, params, x, y, key=key, epochs=40, batch_size=20, optimizer=optimizer)
    merged = 0
    for run in range(3):
        one = jax.tree.map(lambda leaf, run=run: np.asarray(leaf[run], np.float64), fit.params)
        small, reference = nm.reduce_width(stack, one, x), nm.reduce_width(net, one, x)
        assert count(small.params) == reference.net.n_params
        assert small.deviation <= 1e-12 and small.on_sample and small.net is stack
        merged += any("linear on the sample" in removal.reason for removal in small.removed)
    tally(merged, of=3, what="networks with units that are linear on the sample")
    assert merged
    with compilations() as compiled:  # the same shapes again
        nm.reduce_width(stack, one, x)
    assert compiled == []
    # What holds at every input does not hold of what is linear on the sample.
    everywhere = nm.reduce_width(stack, one, x, everywhere=True)
    assert count(everywhere.params) == nm.reduce_width(net, one).net.n_params


def drawn(rng, hidden, inside, outside):
    return [
        (rng.normal(size=(hidden, inside)), np.full(hidden, 9.0)),
        (rng.normal(size=(outside, hidden)), rng.normal(size=outside)),
    ]


def test_a_box_on_which_units_are_linear(rng):
    """|Wx| < 9 for |x| ≤ 1: min(3, 2) of 8 do, and the smaller network is the same on the box."""
    params = drawn(rng, 8, 3, 2)
    small = nm.reduce_width(stack, params, rng.normal(size=(20, 3)), domain=(-1.0, 1.0))
    assert small.params[0][0].shape == (2, 3) and not small.on_sample
    assert "linear on the box: 2 do what 8 did" in str(small)
    new = rng.uniform(-1, 1, (200, 3))
    with arithmetic():
        np.testing.assert_allclose(stack(small.params, new), stack(params, new), atol=1e-12)
        assert np.abs(stack(small.params, 99 * new) - stack(params, 99 * new)).max() > 1


def convolutional(padding, pool):
    def f(p, x):
        z = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME") + p["b"][:, None, None]
        z = jnp.clip(z, -6.0, 6.0)
        if pool == "max":
            z = jax.lax.reduce_window(z, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")
        elif pool:
            z = z.mean((2, 3), keepdims=True)
        z = jax.lax.conv_general_dilated(z, p["v"], (1, 1), padding) + p["c"][:, None, None]
        return z.reshape(len(z), -1)

    return f


@pytest.mark.parametrize(
    "padding, pool, kernel, left",
    [
        ("VALID", "mean", 1, 3),  # three outputs see rank 3, and the shift goes into the next one
        ("SAME", "", 3, 5),  # at the edge it is another one: a channel is written by five numbers
        ("VALID", "max", 1, 12),  # a maximum over places is not linear
    ],
)
def test_channels_of_a_clamp_that_does_not_clamp(padding, pool, kernel, left, rng):
    p = {
        "w": 0.1 * rng.normal(size=(12, 1, 2, 2)),
        "b": rng.normal(size=12),
        "v": rng.normal(size=(3, 12, kernel, kernel)),
        "c": rng.normal(size=3),
    }
    x = rng.normal(size=(9, 1, 4, 4))
    f = convolutional(padding, pool)
    small = nm.reduce_width(f, p, x)
    assert small.params["w"].shape == (left, 1, 2, 2) and small.deviation <= 1e-12
    if left < 12:
        with arithmetic():
            near = x * rng.uniform(0, 1, (9, 1, 1, 1))
            np.testing.assert_allclose(f(small.params, near), f(p, near), atol=1e-12)


def test_channels_that_bend_on_the_sample_stay(rng):
    params = drawn(rng, 6, 3, 2)
    x = rng.normal(size=(30, 3))
    bent = [(params[0][0], 0 * params[0][1]), params[1]]
    assert not nm.reduce_width(stack, bent, x).removed
    smooth = lambda p, x: jnp.tanh(x @ p[0][0].T) @ p[1][0].T  # noqa: E731
    assert not nm.reduce_width(smooth, [(0.1 * params[0][0],), (params[1][0],)], x).removed
