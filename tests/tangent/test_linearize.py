"""The first-order model: closed form, dense Jacobian, its kernel, and how it departs from the
network.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.tangent.prediction.linearize import first_order, linearize


def shifted(params, key, size):
    keys = iter(jax.random.split(key, len(jax.tree.leaves(params))))
    return jax.tree.map(
        lambda p: p + size * np.asarray(jax.random.normal(next(keys), p.shape)).astype(p.dtype),
        params,
    )


@pytest.fixture
def network(key, rng):
    net = nm.MLP((3, 8, 2), "tanh")
    return net, net.init(key=key, dtype="float64"), rng.standard_normal((5, 3))


def test_equals_the_dense_jacobian(network, key, x64):
    net, start, x = network
    params = shifted(start, key, 0.3)
    step = np.concatenate(
        [
            np.ravel(a - b)
            for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(start), strict=True)
        ]
    )
    expected = net(start, x) + (nm.jacobian(net, start, x) @ step).reshape(5, 2)
    found = linearize(net, start)(params, x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_is_linear_and_keeps_its_kernel_where_the_network_does_not(network, key):
    net, start, x = network
    away = shifted(start, key, 1.0)
    line = linearize(net, start)
    at_start = nm.ntk(net, start, x)
    np.testing.assert_allclose(nm.ntk(line, away, x), at_start, rtol=1e-12, atol=1e-12)
    assert np.abs(nm.ntk(net, away, x) - at_start).max() > 0.1
    half = jax.tree.map(lambda a, b: (a + b) / 2, start, away)
    np.testing.assert_allclose(
        line(half, x), (line(start, x) + line(away, x)) / 2, rtol=1e-12, atol=1e-14
    )
    np.testing.assert_array_equal(line(start, x), net(start, x))


def test_departs_from_the_network_to_second_order(network, key):
    net, start, x = network
    sizes = np.array([1e-1, 1e-2, 1e-3])
    gaps = [
        np.abs(linearize(net, start)(p, x) - net(p, x)).max()
        for p in (shifted(start, key, s) for s in sizes)
    ]
    assert np.polyfit(np.log(sizes), np.log(gaps), 1)[0] == pytest.approx(2.0, abs=0.1)


def test_many_nets_beside_their_twins_under_vmap(key):
    net = nm.MLP((3, 4, 1))
    start = net.init(key=key, runs=5)
    x = jnp.ones((2, 3))
    moved = jax.tree.map(lambda p: p + 0.1, start)
    found = jax.jit(jax.vmap(lambda p0, p: first_order(net, p0, p, x)))(start, moved)
    for run in range(5):
        p0, p = (jax.tree.map(lambda leaf, r=run: np.asarray(leaf[r]), t) for t in (start, moved))
        np.testing.assert_allclose(found[run], linearize(net, p0)(p, x), rtol=1e-5)


def test_bad_arguments(network):
    net, start, x = network
    with pytest.raises(TypeError, match="`f` is an int"):
        linearize(3, start)
    with pytest.raises(ValueError, match="linearized at"):
        linearize(net, start)(start[:1], x)
    with pytest.raises(ValueError, match="`params` has no arrays"):
        linearize(net, ())


def test_orders_without_end_are_refused():
    with pytest.raises(ValueError, match="`order` is 1000000000000, and each order doubles"):
        linearize(lambda params, x: params * x, 1.0, order=10**12)
    linearize(lambda params, x: params * x, 1.0, order=16)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
def test_taylor_models_of_any_order(network, key, order):
    """The remainder falls like the next power of the step; a network that is a polynomial of
    that order is met exactly.
    """
    net, start, x = network
    far, near = (
        np.abs(linearize(net, start, order=order)(moved, x) - net(moved, x)).max()
        for moved in (shifted(start, key, 0.04), shifted(start, key, 0.02))
    )
    assert np.log2(far / near) == pytest.approx(order + 1, abs=0.2)
    cubic = linearize(lambda p, x: p**3 * x, np.array(2.0), order=order)(
        np.array(3.0), np.array([[1.0]])
    )
    assert float(cubic[0, 0]) == [8.0, 20.0, 26.0, 27.0, 27.0][order]


def test_an_order_that_is_none(network):
    net, start, _ = network
    with pytest.raises(ValueError, match="`order` is -1; pass a whole number"):
        linearize(net, start, order=-1)
