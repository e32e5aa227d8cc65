"""Clusters of aligned neurons, distances to leaves, probes along training, and the narrower
network.
"""

import itertools

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.orbits import (
    condensation,
    effective_width,
    invariant_leaf,
    invariant_leaves,
    leaf_distance,
)


def two_layer(a, w):
    return nm.Layer(np.asarray(w, np.float64)), nm.Layer(np.asarray(a, np.float64)[None])


def draw(rng, m, d=2):
    return two_layer(rng.normal(size=m), rng.normal(size=(m, d)))


def test_clusters_by_angle_and_sign(rng):
    """Directions at 0, 0.01, π + 0.02 and 1: with parity the first three are one cluster,
    without it the first two.
    """
    phases = np.array([0.0, 0.01, np.pi + 0.02, 1.0])
    w = rng.uniform(0.5, 2, size=(4, 1)) * np.stack([np.cos(phases), np.sin(phases)], axis=1)
    params = two_layer(np.ones(4), w)
    odd = condensation(nm.MLP((2, 4, 1), "tanh", bias=False), params)
    assert [(c.neurons, c.signs) for c in odd.clusters[0]] == [
        ((0, 1, 2), (1, 1, -1)),
        ((3,), (1,)),
    ]
    assert odd.clusters[0][0].spread == pytest.approx(0.02, rel=1e-9)
    plain = condensation(nm.MLP((2, 4, 1), "softplus", bias=False), params)
    assert [c.neurons for c in plain.clusters[0]] == [(0, 1), (2,), (3,)]
    mixed = condensation(nm.MLP((2, 4, 1), nm.Mixed(tanh=1, erf=3), bias=False), params)
    assert [c.neurons for c in mixed.clusters[0]] == [(0,), (1, 2), (3,)]
    assert condensation(
        nm.MLP((2, 4, 1), "tanh", bias=False), params, angle=1e-3
    ).effective_widths == (4,)


def test_silent_neurons_are_not_counted():
    found = condensation(
        nm.MLP((1, 3, 1), "tanh", bias=False), two_layer([1.0, 0.0, 1.0], [[1.0], [1.0], [0.0]])
    )
    assert (found.effective_widths, found.silent) == ((1,), ((1, 2),))


@pytest.mark.parametrize("activation", ["exp", "tanh", "cos"])
def test_the_nearest_leaf_is_the_nearest_of_all(activation, rng, draws, tally):
    """Second route: the distance to every leaf of lower dimension than θ's own; condensed points
    too.
    """
    net = nm.MLP((2, 3, 1), activation, bias=False)
    lattice, condensed = invariant_leaves(net), 0
    for case in range(count := draws(15)):
        params = draw(rng, 3)
        if case % 3:
            params = lattice[int(rng.integers(len(lattice)))].project(params)
        found = condensation(net, params)
        lower = [
            leaf.distance(params) for leaf in lattice if leaf <= found.leaf and leaf != found.leaf
        ]
        assert found.distance == pytest.approx(min(lower, default=np.inf), rel=1e-12)
        assert found.nearest is None or (
            found.nearest <= found.leaf and found.nearest != found.leaf
        )
        condensed += int(found.leaf.dimension < net.n_params)
    tally(condensed, of=count, what="points already on a smaller leaf")


def test_the_nearest_leaf_of_deep_networks_is_an_upper_bound(rng):
    """Exchanges within a layer only: never nearer than what it names, and zero exactly for equal
    neurons.
    """
    net = nm.MLP((1, 3, 3, 1), "tanh")
    params = tuple(
        nm.Layer(rng.normal(size=(b, a)), rng.normal(size=b))
        for a, b in itertools.pairwise(net.widths)
    )
    found = condensation(net, params)
    assert found.nearest is not None and found.distance == pytest.approx(
        found.nearest.distance(params), rel=1e-12
    )
    assert invariant_leaf(net, found.nearest.project(params)) == found.nearest


def test_probes_agree_with_the_host(rng, draws, tally):
    """Many networks at once, and within a training: the same effective width and distance,
    float32 apart.
    """
    net, count = nm.MLP((2, 4, 1), nm.Mixed(tanh=3, cos=1), bias=False), draws(20)
    w = rng.normal(size=(count, 4, 2))
    w[::2, 1] = -w[::2, 0] * rng.uniform(0.5, 2, size=(len(w[::2]), 1)) + 1e-3
    params = nm.Layer(w), nm.Layer(rng.normal(size=(count, 1, 4)))
    width = effective_width()
    with jax.enable_x64(True):
        counts = np.asarray(jax.jit(jax.vmap(lambda p: width(net, p, None, None)))(params))[:, 0]
        distances = np.asarray(
            jax.jit(jax.vmap(lambda p: leaf_distance(net, p, None, None)))(params)
        )
    narrow = 0
    for k in range(count):
        found = condensation(net, jax.tree.map(lambda a, k=k: a[k], params))
        assert counts[k] == found.effective_widths[0]
        assert distances[k] == pytest.approx(found.distance, rel=1e-10)
        narrow += int(counts[k] < 4)
    tally(narrow, of=count, what="networks narrower than they look")


def test_condensation_along_training(key):
    """From small initialisation the neurons of a wide network line up: the probe's history ends
    far below the width.
    """
    net = nm.MLP((1, 20, 1), "tanh")
    x = np.linspace(-2, 2, 20)[:, None].astype(np.float32)
    params = net.init(key=key, scheme=nm.init.small(1e-3), runs=2)
    done = nm.train(
        net,
        params,
        x,
        np.sin(2 * x),
        key=key,
        epochs=400,
        every=200,
        probes=[effective_width(angle=0.1), leaf_distance],
    )
    history = done.history.effective_width
    assert history.dims == ("run", "epoch", "layer")
    assert (history[:, 0, 0] > 6).all() and (history[:, -1, 0] <= 3).all()
    assert done.history.leaf_distance.dims == ("run", "epoch")


def test_the_narrower_network_of_a_condensed_one(rng):
    """Equal and opposite neurons merge, a zero one goes; within `atol` the deviation is of the
    order of the tolerance.
    """
    net = nm.MLP((2, 5, 1), "tanh", bias=False)
    w, a = rng.normal(size=(5, 2)), rng.normal(size=5)
    w[1], a[1], w[3], a[3], w[4], a[4] = w[0], a[0], -w[2], -a[2], 0.0, 0.0
    params, x = two_layer(a, w), rng.normal(size=(20, 2))
    found = condensation(net, params)
    small = found.reduction
    assert small.net.widths == (2, 2, 1) and found.leaf.dimension == small.net.n_params
    np.testing.assert_allclose(small.net(small.params, x), net(params, x), rtol=1e-13)
    near = jax.tree.map(lambda p: p + 1e-7 * rng.uniform(-1, 1, p.shape), params)
    assert condensation(net, near).reduction.net.widths == (2, 5, 1)
    merged = condensation(net, near, atol=1e-6).reduction
    assert merged.net.widths == (2, 2, 1)
    assert 0 < np.abs(merged.net(merged.params, x) - net(near, x)).max() < 1e-5
