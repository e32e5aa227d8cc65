"""Training stays on invariant manifolds of deep networks, and leaves others; one loss may
decide, or not.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.orbits import (
    invariance_residual,
    invariant_leaf,
    invariant_leaves,
    zero_blocks,
    zero_rows,
)
from neuromanifold.orbits.lattice import exchange
from neuromanifold.orbits.partition import leaf_of
from neuromanifold.orbits.residual import random_loss

THREE = nm.MLP((2, 4, 3, 1), ("tanh", nm.Mixed(silu=2, cos=1)))
FOUR = nm.MLP((2, 3, 4, 2, 1), ("tanh", nm.Mixed(silu=2, cos=2), "sin"))
TWO = nm.MLP((2, 8, 1), nm.Mixed(softplus=2, tanh=2, cos=3, silu=1), bias=False)
TOLERANCE = 1e-9


def measured(net, manifold, key, tally, what):
    """The residual from a random point over 20 pairs of data and loss; every pair must move the
    network.
    """
    at, data = jax.random.split(key)
    point = manifold.project(jax.tree.map(lambda a: a / 2, manifold.sample(key=at)))
    found = invariance_residual(net, point, manifold, key=data, draws=20, lr=0.01)
    moved = found.finished & (found.travelled > 1e-2)
    tally(
        int(moved.sum()),
        of=20,
        what=f"{what}: pairs of data and loss that moved the network; left by {found.worst:.1e}",
    )
    assert moved.sum() >= 18
    return found.worst


class Subspace:
    """A random subspace of given dimension through the origin: the control."""

    def __init__(self, net, dimension, rng):
        self.template = net.init(key=jax.random.key(0), dtype="float64")
        self.rows = np.linalg.qr(rng.normal(size=(net.n_params, dimension)))[0].T

    def distance(self, params):
        theta = np.concatenate([np.asarray(a).reshape(-1) for a in jax.tree.leaves(params)])
        return float(np.linalg.norm(theta - self.rows.T @ (self.rows @ theta)))

    def project(self, params):
        return params

    def sample(self, *, key):
        theta = self.rows.T @ np.asarray(jax.random.normal(key, (len(self.rows),)), np.float64)
        leaves, structure = jax.tree.flatten(self.template)
        stops = np.cumsum([leaf.size for leaf in leaves])
        parts = [
            theta[stop - leaf.size : stop].reshape(leaf.shape)
            for leaf, stop in zip(leaves, stops, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)


@pytest.mark.parametrize("net", [THREE, FOUR], ids=["three layers", "four layers"])
def test_symmetry_and_zero_manifolds_of_deep_networks_are_never_left(net, key, rng, tally):
    """Theorem 4.2 (i)–(iv): permutation, sign, silent block with frozen entries, zero row; and a
    subspace that is left.
    """
    keys = jax.random.split(key, 5)
    permutation = leaf_of(net, (exchange(net, 0, 0, 1), exchange(net, 1, 0, 1)))
    sign = leaf_of(
        net, (exchange(net, 0, 0, 1, -1), exchange(net, 0, 2, 2, -1), exchange(net, 1, 2, 2, -1))
    )
    rest = net.depth - 3
    silent = zero_blocks(net, [{0, 2}, {1}, *[{1}] * rest], net.init(key=key))
    row = zero_rows(net, [set(), {2}, *[set()] * rest])
    for manifold, k, what in zip(
        (permutation, sign, silent, row),
        keys,
        ("permutation", "sign", "silent block", "zero row"),
        strict=False,
    ):
        assert 0 < manifold.dimension < net.n_params
        assert measured(net, manifold, k, tally, what) <= TOLERANCE
    for manifold in (permutation, silent):
        assert (
            measured(net, Subspace(net, manifold.dimension, rng), keys[4], tally, "random subspace")
            > 1e-3
        )


def test_the_five_elementary_manifolds_of_remark_5_1(key, tally):
    """(i) equal neurons, (ii) opposite odd, (iii) mirrored even, (iv) zero for σ(0) = 0, (v) w =
    0 for σ'(0) = 0; controls beside.
    """
    leaves = {
        "(i) softplus, equal": leaf_of(TWO, (exchange(TWO, 0, 0, 1),)),
        "(ii) tanh, opposite": leaf_of(TWO, (exchange(TWO, 0, 2, 3, -1),)),
        "(iii) cos, mirrored": leaf_of(TWO, (exchange(TWO, 0, 4, 5, -1),)),
        "(iv) silu, zero": zero_blocks(TWO, [{7}]),
        "(v) cos, no input": zero_rows(TWO, [{6}]),
    }
    for what, manifold in leaves.items():
        assert measured(TWO, manifold, key, tally, what) <= TOLERANCE
    controls = {
        "softplus, opposite": leaf_of(TWO, (exchange(TWO, 0, 0, 1, -1),)),
        "silu and softplus, equal": leaf_of(TWO, (exchange(TWO, 0, 1, 7),)),
    }
    for what, manifold in controls.items():
        assert measured(TWO, manifold, key, tally, what) > 1e-3


def quadratic(prediction, target):
    return jnp.mean((prediction - target) ** 2) / 2


def without_target(prediction, target):
    return jnp.mean(prediction**2) / 2


def output_weights(params):
    return float(np.linalg.norm(params[1].weight))


def test_one_loss_decides_unless_it_ignores_the_target(key, tally):
    """P 3.1: (s − t)²/2 sees that {a = 0} is left; s²/2, with ∇ℓ₀(0, ·) = 0, does not, and all
    losses together do.
    """
    net = nm.MLP((1, 2, 1), "exp", bias=False)
    params = nm.Layer(np.array([[0.3], [-0.8]])), nm.Layer(np.zeros((1, 2)))
    common = {"key": key, "draws": 5, "lr": 0.01}
    assert (
        invariance_residual(net, params, output_weights, loss=without_target, **common).worst == 0
    )
    assert (
        invariance_residual(net, params, output_weights, loss=quadratic, **common).flow[:, -1].min()
        > 1e-2
    )
    leaf = invariant_leaves(net)[1]
    kept = invariance_residual(
        net,
        leaf.project((nm.Layer(np.array([[0.3], [0.1]])), nm.Layer(np.ones((1, 2))))),
        leaf,
        loss=quadratic,
        **common,
    )
    tally(
        int((kept.travelled > 1e-2).sum()),
        of=5,
        what="data sets on which equal neurons moved and stayed equal",
    )
    assert kept.worst <= TOLERANCE


def test_a_curved_manifold_is_kept_to_the_tolerance_of_the_integrator(key):
    """Example 4.2: the unit circle is kept; from a point beside it the network moves."""

    def radial(theta, x):
        r = jnp.sqrt(theta @ theta)
        return (r + 1 / r + x) ** 2

    def from_circle(theta):
        return abs(float(np.linalg.norm(theta)) - 1)

    stays = invariance_residual(
        radial, np.array([0.6, 0.8]), from_circle, key=key, features=1, draws=5, lr=1e-3
    )
    assert stays.worst <= TOLERANCE
    near = invariance_residual(
        radial, np.array([0.66, 0.88]), from_circle, key=key, features=1, draws=5, lr=1e-3
    )
    assert np.nanmax(near.travelled) > 1e-3


def test_random_losses_are_the_formula(rng):
    c, s, t = rng.normal(size=4), rng.normal(size=(5, 1)), rng.normal(size=(5, 1))
    z = s - c[3] * t
    expected = np.mean(c[0] * (s - t) ** 2 / 2 + c[1] * np.sin(s + t) + c[2] * np.log(np.cosh(z)))
    assert float(random_loss(c, s, t)) == pytest.approx(expected, rel=1e-5)


def test_refusals(key):
    net = nm.MLP((1, 2, 1), "exp", bias=False)
    params = net.init(key=key)
    with pytest.raises(TypeError, match="`manifold` is 3"):
        invariance_residual(net, params, 3, key=key)
    with pytest.raises(ValueError, match="`features` is None"):
        invariance_residual(lambda p, x: p * x, np.ones(1), invariant_leaf(net, params), key=key)
