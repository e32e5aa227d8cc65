"""Ridge training: closed forms, depths side by side, both phases, and what the ridge does to the
network.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.bottleneck import balance_defect, bottleneck_frames, cost_expansion, norm_bound
from neuromanifold_papers.bottleneck.family import DepthFamily
from neuromanifold_papers.bottleneck.ridge import train_ridge

FAMILY = DepthFamily(input=3, width=6, output=2, depths=(2, 3, 5))
OPTIONS = {"ridge": 0.01, "steps": 1200, "lr": 1e-2, "polish": 150}


def alone(params):
    """One run on a leading axis."""
    return jax.tree.map(lambda a: jnp.asarray(a)[None], params)


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = np.stack([np.abs(x[:, 0]), x[:, 1]], axis=1)
    params = FAMILY.init(key=jax.random.key(3))
    return x, y, params, train_ridge(FAMILY, params, x, y, key=jax.random.key(0), **OPTIONS)


def test_linear_ridge_regression_in_closed_form(rng):
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 3))
    start = np.zeros((2, 3, 4))
    done = train_ridge(
        lambda p, x: x @ p.T,
        start,
        x,
        y,
        key=jax.random.key(0),
        ridge=0.1,
        steps=50,
        tolerance=1e-10,
    )
    n = y.size
    expected = np.linalg.solve(x.T @ x / n + 0.1 * np.eye(4), x.T @ y / n).T
    np.testing.assert_allclose(done.params, np.stack([expected] * 2), atol=1e-9)
    assert done.gradient_norm.max() < 1e-10
    assert np.all(done.adam_gradient_norm > done.gradient_norm)


def test_a_deep_linear_network_pays_the_representation_cost():
    """loss + λ‖θ‖² at depth L minimises (s − 1)² + λ d L s^{2/L} over s, for a target with d
    singular values 1.
    """
    d, L, ridge = 2, 3, 0.02
    net = nm.MLP((d,) * (L + 1), "identity", bias=False)
    x = np.sqrt(d) * np.eye(d)
    start = tuple(nm.Layer(np.eye(d)[None]) for _ in range(L))
    done = train_ridge(
        net, start, x, x, key=jax.random.key(0), ridge=ridge, steps=300, tolerance=1e-11, polish=300
    )
    s = np.linspace(0.5, 1, 200_001)
    best = np.min((s - 1) ** 2 + ridge * d * L * s ** (2 / L))
    np.testing.assert_allclose(done.objective, best, rtol=1e-8)
    A = np.linalg.multi_dot([p.weight[0] for p in done.params[::-1]])
    np.testing.assert_allclose(done.squared_norm, cost_expansion(A).cost(L), rtol=1e-8)


def test_depths_side_by_side_are_the_networks_apart(rng):
    params = FAMILY.init(key=jax.random.key(0))
    x = rng.normal(size=(7, 3)).astype(np.float32)
    y = rng.normal(size=(7, 2)).astype(np.float32)

    def loss(f, p):
        return jnp.mean((f(p, x) - y) ** 2)

    together = jax.vmap(jax.grad(lambda p: loss(FAMILY, p)))(params)
    assert not np.asarray(together["open"]).any()
    for (net, p), (_, gradient) in zip(
        FAMILY.members(params), FAMILY.members(together), strict=True
    ):
        apart = jax.grad(lambda q, net=net: loss(net, q))(p)
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(apart), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)
    closed = np.asarray(together["hidden"].weight)[0]
    assert not closed.any(), "a network of depth 2 has no hidden matrices"


def test_training_side_by_side_ends_where_training_apart_ends(trained):
    x, y, params, done = trained
    net, start = FAMILY.members(params)[1]
    apart = train_ridge(net, alone(start), x, y, key=jax.random.key(9), **OPTIONS)
    np.testing.assert_allclose(apart.objective, done.objective[1:2], rtol=0.02)


def test_closed_layers_stay_closed_and_uncounted(trained):
    _, _, params, done = trained
    assert np.array_equal(done.params["open"], np.asarray(params["open"]))
    assert not done.params["hidden"].weight[0].any()
    for (net, p), norm in zip(FAMILY.members(done.params), done.squared_norm, strict=True):
        np.testing.assert_allclose(
            sum(float(np.sum(a**2)) for a in jax.tree.leaves(p)), norm, rtol=1e-12
        )
        assert net.depth == len(p)


def test_the_second_phase_only_improves(trained):
    *_, done = trained
    assert np.all(done.objective <= done.adam_objective)


def test_minima_with_ridge_are_balanced_and_obey_theorem_6(trained):
    x, *_, done = trained
    for net, p in FAMILY.members(done.params):
        assert balance_defect(net, p) < 0.05
        assert norm_bound(net, p, x).excess >= 0
        for i in range(10):
            assert bottleneck_frames(net, p, x[i : i + 1]).holds


def test_without_ridge_nothing_balances(rng):
    """Control: an unbalanced start stays unbalanced."""
    net = nm.MLP((2, 3, 1))
    start = net.init(key=jax.random.key(0))
    start = (
        nm.Layer(3 * start[0].weight, 3 * start[0].bias),
        nm.Layer(start[1].weight / 3, start[1].bias),
    )
    x = rng.normal(size=(20, 2)).astype(np.float32)
    done = train_ridge(
        net, alone(start), x, x[:, :1], key=jax.random.key(0), ridge=0.0, steps=200, polish=50
    )
    assert balance_defect(net, jax.tree.map(lambda a: a[0], done.params)) > 0.5


@pytest.mark.parametrize(
    "options, message",
    [({"ridge": -1.0}, "`ridge` is -1.0"), ({"ridge": 0.1, "polish": -1}, "`polish` is -1")],
)
def test_bad_input(options, message):
    x = np.ones((2, 1))
    with pytest.raises(ValueError, match=message):
        train_ridge(
            lambda p, x: x * p, np.zeros((1, 1)), x, x, key=jax.random.key(0), steps=1, **options
        )


def test_a_family_needs_depths_of_two_or_more():
    with pytest.raises(ValueError, match=r"`depths` is \(1,\); pass at least one, each 2 or more"):
        DepthFamily(1, 1, 1, (1,))
