"""Results follow their inputs: what comes as JAX arrays leaves as such, what comes as NumPy
leaves as NumPy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm

NET = nm.MLP((1, 2, 1), "tanh")
X = np.linspace(-1, 1, 4, dtype=np.float32)[:, None]


def _results(params, x):
    y = x**2
    flow = nm.gradient_flow(NET, params, x, y, t1=0.01)
    return {
        "train": nm.train(NET, params, x, y, key=jax.random.key(0), epochs=1).params,
        "flow": flow.params,
        "flow at a time": flow.at(0.005),
        "group": nm.symmetry_group(NET).sample(key=jax.random.key(1))(params),
        "loss": nm.losses.mse(NET(params, x), y),
    }


def _kinds(tree):
    return {isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_leave_as_they_came(dtype, x64):
    params = jax.tree.map(np.asarray, NET.init(key=jax.random.key(0), dtype=dtype))
    x = X.astype(dtype)
    plain = _results(params, x)
    assert all(_kinds(tree) == {False} for tree in plain.values())
    if dtype == "float64" and not x64:
        return
    followed = _results(jax.tree.map(jnp.asarray, params), jnp.asarray(x))
    in_float64 = ("flow", "flow at a time")
    assert {name: _kinds(tree) for name, tree in followed.items()} == {
        name: {x64 or name not in in_float64} for name in followed
    }
    for name, tree in followed.items():
        for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(plain[name]), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_allclose(a, b, rtol=1e-6)
