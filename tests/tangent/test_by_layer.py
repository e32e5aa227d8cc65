"""Kernels by layer against the Jacobian's columns, the empirical NNGP against products of
outputs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm


@pytest.mark.parametrize("options", [{}, {"trace": True}])
def test_parameters_add_up_and_each_is_its_columns(key, rng, options):
    net = nm.MLP((3, 5, 4, 2), "tanh")
    params, x1, x2 = (
        net.init(key=key, dtype="float64"),
        rng.standard_normal((4, 3)),
        rng.standard_normal((3, 3)),
    )
    parts = nm.ntk(net, params, x1, x2, by_layer=True, **options)
    assert list(parts) == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]
    np.testing.assert_allclose(
        sum(parts.values()), nm.ntk(net, params, x1, x2, **options), rtol=1e-12
    )
    if not options:
        left, right = (nm.jacobian(net, params, x) for x in (x1, x2))
        first = net.widths[0] * net.widths[1]
        np.testing.assert_allclose(
            parts["0.weight"], left[:, :first] @ right[:, :first].T, rtol=0, atol=1e-12
        )
        assert np.abs(parts["1.weight"] - parts["0.weight"]).max() > 0.01


def test_kernels_and_ranks_of_each_leaf_of_nested_parameters(rng):
    f = lambda p, x: p["scale"] * (p["body"]["a"] * x + p["body"]["b"])  # noqa: E731
    params = {"body": {"a": np.float64(2.0), "b": np.float64(1.0)}, "scale": np.float64(3.0)}
    x = rng.standard_normal((3, 1))
    parts = nm.ntk(f, params, x, by_layer=True)
    assert list(parts) == ["body.a", "body.b", "scale"]
    np.testing.assert_allclose(parts["body.a"], 9 * x @ x.T, rtol=1e-13)
    assert list(nm.ntk(f, params, x, by_layer=True, wrt="body")) == ["body.a", "body.b"]


def test_ranks_by_layer_are_those_of_the_columns_alone(key, rng):
    net = nm.MLP((2, 3, 1))
    params, x = net.init(key=key, dtype="float64"), rng.standard_normal((20, 2))
    J = nm.jacobian(net, params, x)
    for exact in (False, True):
        ranks = nm.functional_dimension(net, params, x, exact=exact, by_layer=True)
        blocks = np.split(J, np.cumsum([6, 3, 3]), axis=1)
        assert [int(rank) for rank in ranks.values()] == [
            np.linalg.matrix_rank(block) for block in blocks
        ]
        assert sum(map(int, ranks.values())) >= int(
            nm.functional_dimension(net, params, x, exact=exact)
        )
        assert all(rank.exact == exact for rank in ranks.values())


def test_empirical_nngp_is_the_mean_product_of_outputs_and_approaches_the_limit(key, rng, x64):
    net = nm.MLP((3, 6, 4), "relu", scaling="ntk")
    params, x1, x2 = (
        net.init(key=key, dtype="float64"),
        rng.standard_normal((4, 3)),
        rng.standard_normal((2, 3)),
    )
    np.testing.assert_allclose(
        nm.tangent.empirical_nngp(net, params, x1, x2),
        net(params, x1) @ net(params, x2).T / 4,
        rtol=1e-13,
    )
    follows = nm.tangent.empirical_nngp(net, params, jnp.asarray(x1))
    assert isinstance(follows, jax.Array) == x64
    wide = nm.MLP((3, 4096, 4096), "relu", scaling="ntk")
    found = nm.tangent.empirical_nngp(wide, wide.init(key=key), x1.astype(np.float32))
    limit = nm.nngp(wide, x1)
    # Both the outputs' and the hidden layer's average over 4096 copies.
    assert np.abs(found - limit).max() < 6 * np.sqrt(2 / 4096) * limit.max()
    assert np.abs(found - 2 * limit).max() > 0.5


def test_outputs_in_several_arrays_count_together(rng):
    x = rng.standard_normal((3, 2))
    found = nm.tangent.empirical_nngp(lambda p, x: (p * x[:, :1], x[:, 1:]), 2.0, x)
    y = np.stack([2 * x[:, 0], x[:, 1]], axis=1)
    np.testing.assert_allclose(found, y @ y.T / 2, rtol=1e-13)
