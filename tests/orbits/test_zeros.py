"""Manifolds of silent neurons: which coordinates are held, gradients along them, and what is
refused.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.orbits import invariant_leaf, is_degenerate, zero_blocks, zero_rows


def normal_gradient(net, manifold, key, samples=16):
    """The largest entry of ∇F_x at held coordinates, and the largest elsewhere."""
    params = manifold.sample(key=key)
    x = np.random.default_rng(0).normal(size=(samples, net.widths[0]))
    rows = np.abs(np.asarray(nm.jacobian(net, params, x)))
    return rows[:, manifold.fixed].max(), rows[:, ~manifold.fixed].max()


def test_the_held_coordinates_of_silent_neurons():
    """By hand: 2-3-2-1 with biases, I₁ = {0}, I₂ = {1}, c = W²₁₀ = 7."""
    net = nm.MLP((2, 3, 2, 1), "silu")
    frozen = tuple(
        nm.Layer(np.full((b, a), 7.0), np.full(b, 7.0))
        for a, b in zip(net.widths[:-1], net.widths[1:], strict=True)
    )
    manifold = zero_blocks(net, [{0}, {1}], frozen)
    held = manifold.sample(key=jax.random.key(0))
    assert (
        (held[0].weight[0] == 0).all() and held[0].bias[0] == 0 and (held[0].weight[1:] != 0).all()
    )
    assert (
        held[1].weight[1].tolist() == [7.0, 0.0, 0.0]
        and held[1].weight[0, 0] == 0
        and held[1].bias[1] == 0
    )
    assert held[2].weight[0, 1] == 0 and held[2].weight[0, 0] != 0
    assert net.n_params - manifold.dimension == (2 + 1) + (3 + 1 + 1) + 1
    assert manifold.contains(held) and manifold.distance(held) == 0


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_gradients_vanish_at_silent_neurons(activation, rng, draws, tally):
    """Any choice of index sets in a net of four layers, any frozen entries; with σ(0) ≠ 0 the
    same sets are left.
    """
    net, control = nm.MLP((2, 3, 3, 2, 1), activation), nm.MLP((2, 3, 3, 2, 1), "sigmoid")
    left = 0
    for case in range(count := draws(5)):
        sets = [np.flatnonzero(rng.random(w) < 0.4) for w in net.widths[1:-1]]
        manifold = zero_blocks(net, [s.tolist() for s in sets], net.init(key=jax.random.key(case)))
        across, along = (
            normal_gradient(net, manifold, jax.random.key(case))
            if manifold.fixed.any()
            else (0.0, 1.0)
        )
        assert across == 0 and (along > 0 or manifold.dimension <= 1)
        left += int(
            manifold.fixed.any()
            and normal_gradient(control, manifold, jax.random.key(case))[0] > 1e-6
        )
    tally(left, of=count, what="index sets that sigmoid leaves")


def test_rows_of_flat_activations_stay_zero(tally):
    """cos in a net of four layers, at every neuron; with a flat output activation at the output
    too, with a linear one not.
    """
    net, kept = nm.MLP((2, 3, 2, 2, 1), "cos"), 0
    neurons = [(layer, j) for layer in range(3) for j in range(net.widths[1 + layer])]
    for layer, j in neurons:
        manifold = zero_rows(net, [{j} if k == layer else set() for k in range(3)])
        across, along = normal_gradient(net, manifold, jax.random.key(j))
        kept += int(across == 0 and along > 0)
    tally(kept, of=len(neurons), what="zero rows that stay zero")
    assert kept == len(neurons)
    closed = nm.MLP((2, 2, 1), "cos", output_activation="cos")
    assert normal_gradient(closed, zero_rows(closed, [set(), {0}]), jax.random.key(0))[0] == 0
    with pytest.raises(
        ValueError,
        match=r"`neurons\[1\]` names neuron 0 with activation identity, where σ'\(0\) ≠ 0",
    ):
        zero_rows(nm.MLP((2, 2, 1), "cos"), [set(), {0}])


def test_for_odd_activations_the_silent_block_lies_in_the_leaf_of_its_flips():
    """tanh: the flips fix the silent neurons, so the leaf contains the manifold and lets the
    frozen entries move as well.
    """
    net = nm.MLP((2, 3, 3, 1), "tanh")
    manifold = zero_blocks(net, [{0, 1}, {2}], net.init(key=jax.random.key(0)))
    leaf = invariant_leaf(net, manifold.sample(key=jax.random.key(1)))
    assert leaf.dimension == manifold.dimension + 2
    assert [block.neurons for blocks in leaf.partition for block in blocks if block.zero] == [
        (0,),
        (1,),
        (2,),
    ]


def test_degenerate_points():
    """Each clause of Definition 5.1, and none."""
    net = nm.MLP((1, 2, 1), "tanh", bias=False)

    def point(a, w):
        return nm.Layer(np.array([[w[0]], [w[1]]])), nm.Layer(np.array([a]))

    assert not is_degenerate(net, point([1.0, 1.0], [1.0, 2.0]))
    for a, w in (
        ([0.0, 1.0], [1.0, 2.0]),
        ([1.0, 1.0], [0.0, 2.0]),
        ([1.0, 2.0], [1.0, 1.0]),
        ([1.0, 2.0], [1.0, -1.0]),
    ):
        assert is_degenerate(net, point(a, w))


def test_refusals():
    net = nm.MLP((1, 2, 1), "exp")
    with pytest.raises(ValueError, match=r"names neuron 1 with activation exp, where σ\(0\) ≠ 0"):
        zero_blocks(net, [{1}])
    with pytest.raises(ValueError, match="a kink there"):
        zero_rows(nm.MLP((1, 2, 1), "relu"), [{0}])
    with pytest.raises(ValueError, match="2 entries for 1 layers"):
        zero_blocks(net, [set(), set()])
    with pytest.raises(ValueError, match="names neuron 5; the layer has 2"):
        zero_blocks(net, [{5}])
    custom = nm.Activation(lambda z: jnp.sin(z) + z**2, name="custom")
    assert zero_blocks(nm.MLP((1, 2, 1), custom), [{0}]).dimension == 4
