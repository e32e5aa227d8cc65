"""What is special to signs and permutations: which side an even activation flips, the semidirect
product, and controls.
"""

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from symmetry.support import draw


def ones(net):
    return tuple(
        nm.Layer(np.ones((b, a)), np.ones(b))
        for a, b in zip(net.widths[:-1], net.widths[1:], strict=True)
    )


@pytest.mark.parametrize("activation, outgoing", [("tanh", -1.0), ("cos", 1.0), ("abs", 1.0)])
def test_odd_flips_both_sides_and_even_only_the_incoming_one(activation, outgoing):
    net = nm.MLP((1, 2, 1), activation)
    (W, b), (V, c) = S.SignGroup(net).element((np.array([-1.0, 1.0]), np.ones(1)))(ones(net))
    assert (W.ravel().tolist(), b.tolist(), V.ravel().tolist(), c.tolist()) == (
        [-1, 1],
        [-1, 1],
        [outgoing, 1],
        [1],
    )


def test_output_neurons_flip_only_under_an_even_output_activation(rng):
    """The control: with a linear output the flip turns f into −f, bias and all; the group
    refuses it.
    """
    even, linear = nm.MLP((2, 3, 1), "tanh", output_activation="cos"), nm.MLP((2, 3, 1), "tanh")
    signs = (np.ones(3), -np.ones(1))
    g = S.SignGroup(even).element(signs)
    params, x = draw(even, rng), rng.normal(size=(10, 2))
    np.testing.assert_allclose(even(g(params), x), even(params, x), rtol=1e-14)
    np.testing.assert_allclose(linear(g(params), x), -linear(params, x), rtol=1e-14)
    with pytest.raises(ValueError, match=r"`signs\[1\]` is -1 at neuron 0"):
        S.SignGroup(linear).element(signs)


def test_flips_change_a_network_whose_activation_has_an_offset_or_whose_bias_stays(rng):
    """Controls: sigmoid is odd up to a constant, which the output would have to absorb; and
    biases must flip with the weights.
    """
    tanh, sigmoid = nm.MLP((2, 3, 1), "tanh"), nm.MLP((2, 3, 1), "sigmoid")
    g = S.SignGroup(tanh).element((-np.ones(3), np.ones(1)))
    params, x = draw(tanh, rng), rng.normal(size=(10, 2))
    assert np.abs(tanh(g(params), x) - tanh(params, x)).max() < 1e-15
    assert np.abs(sigmoid(g(params), x) - sigmoid(params, x)).max() > 1e-2
    moved = g(params)
    forgotten = (moved[0]._replace(bias=params[0].bias), moved[1])
    assert np.abs(tanh(forgotten, x) - tanh(params, x)).max() > 1e-2


def test_the_product_of_signs_and_permutations_is_semidirect(rng, key):
    """(Λ₁, P₁)(Λ₂, P₂) = (Λ₁P₁Λ₂P₁ᵀ, P₁P₂), and conjugating a flip by a permutation permutes it.
    [invariant, Def 4.2]
    """
    net = nm.MLP((2, 4, 1), "tanh")
    signs, permutations = S.SignGroup(net), S.PermutationGroup(net)
    params, flips = draw(net, rng), np.array([-1.0, 1.0, -1.0, -1.0])
    flip = signs.element((flips, np.ones(1)))
    for k in jax.random.split(key, 5):
        p = permutations.sample(key=k)
        permuted = signs.element((flips[p.order[0]], np.ones(1)))
        for ours, theirs in zip(
            jax.tree.leaves((p @ flip @ p.inverse)(params)),
            jax.tree.leaves(permuted(params)),
            strict=True,
        ):
            assert (ours == theirs).all()
    assert S.SignedPermutationGroup(net).order == 2**4 * 24


def test_permutations_respect_the_activations_of_a_mixed_layer(key):
    net = nm.MLP((1, 5, 1), nm.Mixed(relu=3, identity=2))
    group = S.PermutationGroup(net)
    assert group.order == 12
    orders = np.array([group.sample(key=k).order[0] for k in jax.random.split(key, 50)])
    assert (orders[:, :3] < 3).all()
    assert len(np.unique(orders, axis=0)) == 12
