"""The kernel of several functions of the same parameters against their stacked Jacobians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm

NET = nm.MLP((2, 5, 1), "tanh")
RNG = np.random.default_rng(0)
INSIDE, EDGE = RNG.normal(size=(7, 2)), RNG.normal(size=(3, 2))


def laplacian(params, x):
    """Δu of the network u, which differentiates it twice."""

    def u(point):
        return NET(params, point[None])[0, 0]

    return jax.vmap(lambda point: jnp.trace(jax.hessian(u)(point)))(x)[:, None]


def both(params, x):
    """Two outputs: u and 3u."""
    return jnp.concatenate([NET(params, x), 3 * NET(params, x)], axis=1)


def start():
    return jax.tree.map(np.asarray, NET.init(key=jax.random.key(1), dtype=jnp.float64))


def stacked(models, params, samples):
    return np.concatenate(
        [np.asarray(nm.jacobian(f, params, x)) for f, x in zip(models, samples, strict=True)]
    )


@pytest.mark.parametrize("models", [(laplacian, NET), (both, laplacian)])
def test_blocks_are_products_of_the_jacobians(models):
    params, samples = start(), (INSIDE, EDGE)
    J = stacked(models, params, samples)
    found = nm.ntk(models, params, samples, check=True)
    assert np.allclose(found, J @ J.T, rtol=0, atol=1e-12 * np.abs(J @ J.T).max())
    assert not np.allclose(found[: len(INSIDE), -3:], 0.0)


def test_two_sets_of_samples_and_layers():
    params, models = start(), (laplacian, NET)
    J, K = (stacked(models, params, s) for s in ((INSIDE, EDGE), (EDGE, INSIDE[:2])))
    found = nm.ntk(models, params, (INSIDE, EDGE), (EDGE, INSIDE[:2]))
    assert np.allclose(found, J @ K.T, rtol=0, atol=1e-12 * np.abs(J @ K.T).max())
    parts = nm.ntk(models, params, (INSIDE, EDGE), by_layer=True)
    assert np.allclose(sum(parts.values()), J @ J.T, atol=1e-11 * np.abs(J @ J.T).max())


def test_balancing_weights_make_the_rates_equal():
    params, models = start(), (laplacian, NET)
    weights = nm.tangent.balancing_weights(models, params, (INSIDE, EDGE))
    rates = [
        np.trace(J @ J.T) / len(J)
        for J in (
            np.asarray(nm.jacobian(f, params, x))
            for f, x in zip(models, (INSIDE, EDGE), strict=True)
        )
    ]
    assert np.allclose(weights, sum(rates) / np.array(rates), rtol=1e-12)
    assert np.ptp(weights * rates) < 1e-9 * sum(rates) < np.ptp(rates)


@pytest.mark.parametrize(
    "samples, options, said",
    [
        (INSIDE, {}, "`x1` is ndarray, and `f` has 2 functions; pass a tuple"),
        ((INSIDE,), {}, "`x1` is 1 samples, and `f` has 2 functions"),
        ((INSIDE, EDGE), {"trace": True}, "`trace=True` sums over equal outputs"),
    ],
)
def test_bad_pairs_are_named(samples, options, said):
    with pytest.raises(ValueError, match=said):
        nm.ntk((laplacian, NET), start(), samples, **options)
