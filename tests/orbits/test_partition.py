"""The leaf of a point: against the whole group by brute force, closed forms, and what is not
equal.
"""

import itertools
import math
from itertools import pairwise
from typing import Any, cast

import jax
import numpy as np
import pytest

import neuromanifold as nm
from cast import unchecked
from neuromanifold.orbits import invariant_leaf
from neuromanifold.orbits.stabiliser import images
from neuromanifold.symmetry.groups.monomial import monomial
from neuromanifold.symmetry.groups.neurons import by_neuron

NETS = [
    nm.MLP((1, 3, 1), "tanh", bias=False),
    nm.MLP((1, 3, 1), "cos"),
    nm.MLP((1, 4, 1), "exp"),
    nm.MLP((1, 3, 3, 1), "exp", bias=False),
    nm.MLP((1, 2, 2, 1), "tanh"),
    nm.MLP((1, 2, 3, 1), ("cos", "tanh"), bias=False),
    nm.MLP((1, 3, 2, 1), (nm.Mixed(tanh=2, exp=1), "cos"), bias=False),
    nm.MLP((1, 2, 2), "tanh", output_activation="cos"),
    nm.MLP((1, 2, 2, 2, 1), "tanh", bias=False),
]


ALPHABETS = [(1.0,), (0.0,), (-1.0, 1.0), (0.0, 1.0), (-1.0, 0.0, 2.0)]


def drawn(net, rng, values=None):
    """Parameters from few values, different in each layer, so that stabilisers are rich."""
    layers = []
    for a, b in pairwise(net.widths):
        chosen = ALPHABETS[rng.choice(5, p=[0.1, 0.1, 0.3, 0.3, 0.2])] if values is None else values
        layers.append(
            nm.Layer(
                rng.choice(chosen, size=(b, a)), rng.choice(chosen, size=b) if net.bias else None
            )
        )
    return tuple(layers)


def whole_group(net):
    """Every permutation among equal activations with every allowed flip."""
    layers = []
    for position, (entry, width) in enumerate(zip(net.activations, net.widths[1:], strict=True)):
        output = position == net.depth - 1
        parity = by_neuron(entry, width, lambda a: a.parity or "")
        name = by_neuron(entry, width, lambda a: a.name)
        orders = [
            p
            for p in itertools.permutations(range(width))
            if all(name[i] == name[j] for i, j in enumerate(p))
        ]
        may = (parity == "even") if output else (parity != "")
        signs = list(itertools.product(*[(1.0, -1.0) if m else (1.0,) for m in may]))
        orders = [tuple(range(width))] if output else orders
        layers.append(
            [
                (np.array(p), np.array(s), np.where(parity == "odd", s, 1.0))
                for p in orders
                for s in signs
            ]
        )
    for choice in itertools.product(*layers):
        order, into, out = zip(*choice, strict=True)
        yield monomial(net, order=order[:-1], into=into, out=out[:-1])


def flat(params):
    return np.concatenate([np.asarray(a, np.float64).reshape(-1) for a in jax.tree.leaves(params)])


@pytest.mark.parametrize("net", NETS, ids=str)
def test_the_leaf_is_the_fixed_space_of_the_whole_stabiliser(net, rng, draws, tally):
    """Second route: every element of the group, those that fix θ, the mean of their matrices."""
    moves = [images(net, g) for g in whole_group(net)]
    signs, sources = (np.stack(part) for part in zip(*moves, strict=True))
    joint, count = 0, draws(20)
    for _ in range(count):
        params = drawn(net, rng)
        theta = flat(params)
        fixing = (signs * theta[sources] == theta).all(axis=1)
        projection = np.zeros((net.n_params, net.n_params))
        rows = np.tile(np.arange(net.n_params), (int(fixing.sum()), 1))
        np.add.at(projection, (rows, sources[fixing]), signs[fixing] / fixing.sum())
        leaf = invariant_leaf(net, params)
        assert leaf.dimension == round(np.trace(projection))
        np.testing.assert_allclose(leaf.basis.T @ leaf.basis, projection, atol=1e-12)
        assert leaf.contains(params) and leaf.distance(params) == 0
        joint += int(fixing.sum() > 1)
    tally(joint, of=count, what=f"draws with a stabiliser, of a group of {len(moves)}")


def test_neurons_of_two_layers_that_are_equal_only_jointly(rng):
    """A circulant layer between constant ones: the rotation of both layers fixes θ, no exchange
    within one layer does.
    """
    n, c = 4, rng.normal(size=4)
    net = nm.MLP((2, n, n, 1), "exp")
    middle = np.stack([np.roll(c, k) for k in range(n)])
    params = (
        nm.Layer(np.tile(rng.normal(size=2), (n, 1)), np.full(n, 0.3)),
        nm.Layer(middle, np.full(n, 0.1)),
        nm.Layer(np.full((1, n), 0.7), np.zeros(1)),
    )
    leaf = invariant_leaf(net, params)
    assert leaf.dimension == 3 + n + 1 + 2
    assert [[len(b) for b in blocks] for blocks in leaf.partition] == [[4], [4]]
    one = (params[0], nm.Layer(middle + 1e-9 * np.eye(n)[0], params[1].bias), params[2])
    assert invariant_leaf(net, one).dimension == net.n_params


def test_generic_networks_have_the_whole_space_for_their_leaf(rng):
    for widths in [(3, 30, 30, 2), (1, 5, 1)]:
        for activation in ("tanh", "exp", "cos"):
            net = nm.MLP(widths, activation)
            leaf = invariant_leaf(net, drawn(net, rng, rng.normal(size=10_000)))
            assert leaf.dimension == net.n_params and leaf.generators == ()


@pytest.mark.parametrize(("activation", "per_zero"), [("tanh", 0), ("cos", 1), ("exp", 3)])
def test_two_layer_dimension(activation, per_zero, rng):
    """Blocks {0,1}, {2} and {3} with a zero neuron: (d+1) for each, and for the zero one what
    its parity leaves.
    """
    net = nm.MLP((2, 4, 1), activation, bias=False)
    w, a = rng.normal(size=(4, 2)), rng.normal(size=4)
    w[1], a[1], w[3] = w[0], a[0], 0
    a[3] = 0 if activation == "tanh" else a[3]
    leaf = invariant_leaf(net, (nm.Layer(w), nm.Layer(a[None])))
    assert leaf.dimension == 3 + 3 + per_zero


def test_signs_of_odd_and_even_neurons():
    """(a, w) and (−a, −w) are one for tanh, (a, w) and (a, −w) for cos, neither for exp; nor the
    other way round.
    """
    odd = (nm.Layer(np.array([[1.0], [-1.0]])), nm.Layer(np.array([[2.0, -2.0]])))
    even = (nm.Layer(np.array([[1.0], [-1.0]])), nm.Layer(np.array([[2.0, 2.0]])))
    for activation, expected in (("tanh", (2, 4)), ("cos", (4, 2)), ("exp", (4, 4))):
        net = nm.MLP((1, 2, 1), activation, bias=False)
        assert (invariant_leaf(net, odd).dimension, invariant_leaf(net, even).dimension) == expected


def test_only_neurons_of_equal_activation_are_exchanged():
    params = (nm.Layer(np.ones((3, 1))), nm.Layer(np.ones((1, 3))))
    mixed = invariant_leaf(nm.MLP((1, 3, 1), nm.Mixed(tanh=2, exp=1), bias=False), params)
    assert (mixed.dimension, [b.neurons for b in mixed.partition[0]]) == (4, [(0, 1), (2,)])
    assert invariant_leaf(nm.MLP((1, 3, 1), "exp", bias=False), params).dimension == 2


def test_projection_and_distance(rng, key, draws, tally):
    """P is the orthogonal projection onto the rows of `basis`; what it returns lies on the leaf
    exactly.
    """
    net, nearer = nm.MLP((1, 3, 3, 1), "tanh"), 0
    for _ in range(draws(10)):
        leaf = invariant_leaf(net, drawn(net, rng))
        other = drawn(net, rng, rng.normal(size=100))
        theta, projected = flat(other), flat(leaf.project(other))
        np.testing.assert_allclose(projected, leaf.basis.T @ (leaf.basis @ theta), atol=1e-14)
        assert leaf.distance(other) == pytest.approx(np.linalg.norm(theta - projected))
        assert leaf.distance(leaf.project(other)) == 0
        assert leaf.contains(leaf.project(other)) and leaf.contains(leaf.sample(key=key))
        assert invariant_leaf(net, leaf.sample(key=key)) <= leaf
        nearer += int(leaf.distance(other) > 0 and not leaf.contains(other))
    tally(nearer, of=draws(10), what="points off the leaf, told so")


def test_equality_up_to_a_tolerance(rng, key, draws, tally):
    """A network within 1e-6 of a leaf: exact equality sees nothing, `atol` sees the leaf, and
    the distance says how near.
    """
    net, seen = nm.MLP((1, 3, 2, 1), "tanh"), 0
    for _ in range(draws(10)):
        leaf = invariant_leaf(net, drawn(net, rng))
        point = leaf.sample(key=key)
        near = jax.tree.map(lambda a: a + 1e-6 * rng.uniform(-1, 1, a.shape), point)
        assert invariant_leaf(net, near).dimension == net.n_params
        found = invariant_leaf(net, near, atol=3e-6)
        assert found == leaf
        assert 0 <= found.distance(near) <= 1e-6 * math.sqrt(net.n_params)
        seen += int(leaf.dimension < net.n_params)
    tally(seen, of=draws(10), what="leaves smaller than the whole space")


def test_float32_parameters_and_bad_arguments(rng):
    net = nm.MLP((1, 2, 1), "tanh", bias=False)
    params = net.init(key=jax.random.key(0))
    assert invariant_leaf(net, params).dimension == 4
    with unchecked(), pytest.raises(TypeError, match="`net` is a builtin"):
        invariant_leaf(cast(Any, abs), params)
    with pytest.raises(ValueError, match="`atol` is -1"):
        invariant_leaf(net, params, atol=-1)
    with pytest.raises(TypeError, match="runs on the host"):
        jax.jit(lambda p: invariant_leaf(net, p).dimension)(params)
    with pytest.raises(ValueError, match="compare leaves of one network"):
        _ = invariant_leaf(net, params) <= invariant_leaf(
            nm.MLP((1, 3, 1)), nm.MLP((1, 3, 1)).init(key=jax.random.key(0))
        )
