"""Exact reduction of networks that are no perceptrons: planted channels are found, and nothing
else goes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.discovery.dependence import read_hidden_axes
from neuromanifold.symmetry.discovery.statistics import open_statistics


def cnn(params, x):
    """Two convolutions with pooling, a residual block on the second's channels, and a dense
    layer after flattening.
    """
    for name in ("first", "second"):
        x = (
            jax.lax.conv_general_dilated(x, params[name]["w"], (1, 1), "SAME")
            + params[name]["b"][:, None, None]
        )
        x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x + jax.nn.relu(jax.lax.conv_general_dilated(x, params["block"]["w"], (1, 1), "SAME"))
    return x.reshape(len(x), -1) @ params["dense"]["w"].T + params["dense"]["b"]


SHAPES = {
    "first": {"w": (5, 1, 3, 3), "b": (5,)}, "second": {"w": (6, 5, 3, 3), "b": (6,)},
    "block": {"w": (6, 6, 3, 3)}, "dense": {"w": (3, 24), "b": (3,)},
}  # fmt: skip


def trained(rng: np.random.Generator):
    """Sixty steps of Adam on images that are brighter above, below or in the middle."""
    shape = lambda s: jnp.asarray(rng.normal(size=s) * (0.5 if len(s) > 1 else 0.1))  # noqa: E731
    with arithmetic():
        params = jax.tree.map(shape, SHAPES, is_leaf=lambda s: isinstance(s, tuple))
        labels = rng.integers(0, 3, 48)
        x = rng.normal(size=(48, 1, 8, 8)) + 2.0 * (
            np.arange(8)[:, None] // 3 == labels[:, None, None, None]
        )
        loss = lambda p: optax.softmax_cross_entropy_with_integer_labels(cnn(p, x), labels).mean()  # noqa: E731
        optimizer = optax.adam(0.01)

        @jax.jit
        def step(params, state):
            updates, state = optimizer.update(jax.grad(loss)(params), state)
            return optax.apply_updates(params, updates), state

        state = optimizer.init(params)
        for _ in range(60):
            params, state = step(params, state)
        return jax.tree.map(np.asarray, params), x, float(loss(params))


def planted(params):
    """In the first layer a dead channel and one twice another; in the second one that nothing
    reads and a copy.
    """
    params = jax.tree.map(np.array, params)
    first, second, block, dense = (params[name] for name in ("first", "second", "block", "dense"))
    first["w"][1], first["b"][1] = -np.abs(first["w"][1]) * 1e-3, -50.0
    first["w"][4], first["b"][4] = 2.0 * first["w"][2], 2.0 * first["b"][2]
    second["w"][5], second["b"][5], block["w"][5] = second["w"][0], second["b"][0], block["w"][0]
    columns = dense["w"].reshape(3, 6, 4)
    columns[:, 3] = 0.0
    block["w"][:, 3] = 0.0
    dense["w"] = columns.reshape(3, 24)
    return params


def test_planted_channels_of_a_trained_network_are_found_and_nothing_else(rng):
    params, x, loss = trained(rng)
    assert loss < 0.5
    axes = read_hidden_axes(open_statistics(cnn, params, x)).axes
    assert {axis.channels.name: axis.channels.size for axis in axes} == {
        "first.w": 5,
        "second.w": 6,
    }
    assert not S.reduce_width(cnn, params, x).removed
    still = jax.tree.map(np.array, params)
    still["first"]["w"][[1, 4]], still["first"]["b"][[1, 4]] = 0.0, [0.5, 1.0]
    small = S.reduce_width(cnn, still, x, everywhere=True)  # no shift takes over 1, 4 takes it
    assert (small.neurons_saved, small.proved) == (1, True)
    wide = planted(params)
    small = S.reduce_width(cnn, wide, x)
    found = {(removal.layer, removal.reason.split()[0]): removal.count for removal in small.removed}
    assert found == {
        ("first.w", "inactive"): 1, ("first.w", "equal"): 1, ("second.w", "without"): 1, ("second.w", "equal"): 1,
    }  # fmt: skip
    assert small.net is cnn
    assert {name: {k: a.shape for k, a in layer.items()} for name, layer in small.params.items()} == {
        "first": {"w": (3, 1, 3, 3), "b": (3,)}, "second": {"w": (4, 3, 3, 3), "b": (4,)},
        "block": {"w": (4, 4, 3, 3)}, "dense": {"w": (3, 16), "b": (3,)},
    }  # fmt: skip
    assert (small.on_sample, small.neurons_saved) == (True, 4)
    new = rng.normal(size=(200, 1, 8, 8))
    with arithmetic():
        expected = np.asarray(cnn(wide, new))
        assert (
            np.abs(np.asarray(small.net(small.params, new)) - expected).max()
            < 1e-12 * np.abs(expected).max()
        )
        assert small.deviation < 1e-12 * np.abs(expected).max()


def test_a_model_that_fixes_its_widths_is_handed_out_with_zeros_in_place(rng):
    def fixed(params, x):
        hidden = jax.nn.relu(x @ params["w"].T).reshape(len(x), 2, 2).reshape(len(x), 4)
        return hidden @ params["v"].T

    params = {"w": rng.normal(size=(4, 3)), "v": rng.normal(size=(2, 4))}
    params["v"][:, 2] = 0.0
    x = rng.normal(size=(20, 3))
    small = S.reduce_width(fixed, params, x)
    if small.removed:  # an axis that is split into places may be rigid
        assert small.net is not fixed
        assert np.abs(small.net(small.params, x) - fixed(params, x)).max() < 1e-12


def test_proportional_channels_of_a_network_that_is_not_homogeneous_stay(rng):
    def smooth(params, x):
        return jnp.tanh(x @ params["w"].T + params["b"]) @ params["v"].T

    params = {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=4), "v": rng.normal(size=(2, 4))}
    params["w"][3], params["b"][3] = 2.0 * params["w"][0], 2.0 * params["b"][0]
    x = rng.normal(size=(20, 3))
    assert not S.reduce_width(smooth, params, x).removed
    params["w"][3], params["b"][3] = params["w"][0], params["b"][0]
    small = S.reduce_width(smooth, params, x)
    assert (small.neurons_saved, small.on_sample, small.parameters_saved) == (1, False, 6)
    assert small.deviation < 1e-14
    with pytest.raises(TypeError, match="`x` is None but `net` is a function; pass samples"):
        S.reduce_width(smooth, params)
