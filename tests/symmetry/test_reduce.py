"""Reduction of width: each rule on a case made for it, planted redundancy found again, trained
networks on their sample.
"""

import itertools
import re

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.dynamics import adam_l2, train
from symmetry.support import draw


def layer(weight, bias=None):
    return nm.Layer(np.array(weight, float), None if bias is None else np.array(bias, float))


RULES = [
    ("without outgoing weights", "relu", layer([[1], [2]], [1, -1]), layer([[1, 0]], [0]), 1),
    ("constant", "tanh", layer([[1], [0]], [1, 3]), layer([[1, 2]], [0]), 1),
    ("equal", "tanh", layer([[1], [1]], [1, 1]), layer([[1, 2]], [0]), 1),
    ("opposite, odd", "tanh", layer([[1], [-1]], [2, -2]), layer([[1, 2]], [0]), 1),
    ("opposite, even", "abs", layer([[1], [-1]], [2, -2]), layer([[1, 2]], [0]), 1),
    ("proportional", "relu", layer([[1], [4]], [2, 8]), layer([[1, 2]], [0]), 1),
    ("proportional, square", nm.power(2), layer([[1], [-4]], [2, -8]), layer([[1, 2]], [0]), 1),
    ("linear layer", "identity", layer([[1], [3]], [2, 5]), layer([[1, 2]], [0]), 0),
    ("opposite relus stay", "relu", layer([[1], [-1]], [2, -2]), layer([[1, 2]], [0]), 2),
    ("proportional tanhs stay", "tanh", layer([[1], [2]], [1, 2]), layer([[1, 2]], [0]), 2),
    ("opposite sigmoids stay", "sigmoid", layer([[1], [-1]], [2, -2]), layer([[1, 2]], [0]), 2),
]


@pytest.mark.parametrize(
    "activation, hidden, output, left", [r[1:] for r in RULES], ids=[r[0] for r in RULES]
)
def test_each_rule_and_where_it_does_not_apply(activation, hidden, output, left, rng):
    net = nm.MLP((1, 2, 1), activation)
    small = S.reduce_width(net, (hidden, output))
    assert small.net.hidden == left
    x = rng.normal(size=(50, 1)) * 3
    np.testing.assert_allclose(
        small.net(small.params, x), net((hidden, output), x), rtol=1e-14, atol=1e-14
    )
    assert small.exact == (activation not in ("tanh", "sigmoid"))
    assert small.deviation == 0 if small.exact else small.deviation < 1e-15
    assert (len(small.removed) == 0) == (left == 2)
    assert not small.on_sample


def test_a_constant_without_a_bias_to_take_it_stays():
    net = nm.MLP((1, 2, 1), "cos", bias=False)
    assert S.reduce_width(net, (layer([[1], [0]]), layer([[1, 2]]))).net.hidden == 2
    net = nm.MLP((1, 2, 1), "tanh", bias=False)
    assert S.reduce_width(net, (layer([[1], [0]]), layer([[1, 2]]))).net.hidden == 1


def split(params, index, rng):
    """Every neuron of hidden layer `index` twice, with scaled incoming weights and its outgoing
    weights shared out.
    """
    (W, b), (V, c) = params[index], params[index + 1]
    share, scale = rng.integers(1, 4, len(W)) / 4, 2.0 ** rng.integers(-2, 3, len(W))
    doubled = nm.Layer(np.concatenate([W, scale[:, None] * W]), np.concatenate([b, scale * b]))
    out = nm.Layer(np.concatenate([V * share, V * (1 - share) / scale], axis=1), c)
    return (*params[:index], doubled, out, *params[index + 2 :])


def test_planted_redundancy_is_found(rng, draws):
    for _ in range(draws(5)):
        net = nm.MLP((2, 4, 3, 2))
        params = draw(net, rng)
        grown = split(split(params, 0, rng), 1, rng)
        wide = nm.MLP((2, 8, 6, 2))
        x = rng.normal(size=(20, 2))
        np.testing.assert_allclose(wide(grown, x), net(params, x), rtol=0, atol=1e-4)
        small = S.reduce_width(wide, grown)
        assert small.net == net
        assert small.deviation < 1e-13
        assert (small.neurons_saved, small.parameters_saved) == (7, wide.n_params - net.n_params)
        assert S.reduce_width(net, params).removed == ()


@pytest.mark.parametrize("scaling", ["standard", "ntk"])
@pytest.mark.parametrize("activation", ["relu", nm.leaky_relu(0.25), "abs"], ids=str)
def test_on_a_sample_and_its_regions_the_smaller_network_agrees(
    activation, scaling, rng, draws, tally
):
    net, saved, inside = nm.MLP((1, 6, 6, 6, 2), activation, scaling=scaling), 0, 0
    for _ in range(draws(5)):
        params, x = draw(net, rng), rng.uniform(0, 1, (40, 1))
        small = S.reduce_width(net, params, x)
        size = max(1.0, np.abs(net(params, x)).max())
        assert small.deviation <= 1e-12 * size
        assert small.exact == (scaling == "standard")
        np.testing.assert_allclose(
            small.net(small.params, x), net(params, x), rtol=0, atol=1e-12 * size
        )
        assert small.net.n_params == net.n_params - small.parameters_saved
        saved += small.parameters_saved > 0
        near = rng.uniform(0, 1, (200, 1))
        patterns = nm.activation_patterns(net, params, x)
        same = (
            (nm.activation_patterns(net, params, near)[:, None] == patterns).all(axis=2).any(axis=1)
        )
        inside += same.sum()
        np.testing.assert_allclose(
            small.net(small.params, near[same]), net(params, near[same]), rtol=0, atol=1e-12 * size
        )
    tally(saved, of=draws(5), what="networks that shrink")
    assert inside > 0


def test_a_trained_network_on_its_sample(key, tally):
    """f2 with weight decay: the reduced network agrees on the sample to 1e-12, and not
    everywhere.
    """
    data, net = nm.data.load("f2"), nm.MLP((1, 10, 10, 10, 10, 1))
    params = net.init(key=key, runs=4)
    trained = train(
        net,
        params,
        data.x,
        data.y,
        key=key,
        epochs=150,
        batch_size=16,
        optimizer=adam_l2(0.01, 1e-3),
    )
    smaller = 0
    for run in range(4):
        one = jax.tree.map(lambda leaf, run=run: np.asarray(leaf[run], np.float64), trained.params)
        small = S.reduce_width(net, one, data.x)
        assert small.exact
        assert small.deviation <= 1e-12
        np.testing.assert_allclose(
            small.net(small.params, data.x), net(one, data.x), rtol=0, atol=1e-12
        )
        smaller += small.parameters_saved > 0
        assert re.match(
            rf"{small.neurons_saved:,} hidden neurons? and {small.parameters_saved:,} parameters? saved;",
            str(small),
        )
    tally(smaller, of=4, what="trained networks that shrink")


def test_a_dead_layer_leaves_a_constant(rng):
    net = nm.MLP((2, 3, 2, 1))
    params = (
        layer(rng.normal(size=(3, 2)), [-99] * 3),
        layer(rng.normal(size=(2, 3)), [1, 2]),
        layer([[1, 1]], [0]),
    )
    small = S.reduce_width(net, params, rng.uniform(size=(9, 2)))
    assert small.net.widths == (2, 1)
    assert (small.params[0].weight == 0).all()
    assert small.params[0].bias.tolist() == [3.0]


def test_generic_networks_have_nothing_to_remove(rng):
    nets = (nm.MLP((2, 5, 4, 1)), nm.MLP((2, 5, 4, 1), "tanh"), nm.MLP((5, 2, 5), "identity"))
    for net in nets:
        small = S.reduce_width(net, draw(net, rng))
        assert (small.net, small.removed, small.parameters_saved) == (net, (), 0)


def test_linear_layers_fold_where_that_saves(rng):
    """(d, h, c) folds to (d, c) when dc ≤ r(d + c + 1), r = min(d, h, c); otherwise it keeps r
    neurons.
    """
    for d, h, c in itertools.product(range(1, 5), repeat=3):
        net = nm.MLP((d, h, c), "identity")
        params = (
            layer(rng.normal(size=(h, d)), rng.normal(size=h)),
            layer(rng.normal(size=(c, h)), rng.normal(size=c)),
        )
        small, r = S.reduce_width(net, params), min(d, h, c)
        assert small.net.widths == ((d, c) if d * c <= r * (d + c + 1) else (d, r, c))
        assert small.deviation < 1e-13


def test_bad_input_is_refused(rng):
    net = nm.MLP((1, 2, 1))
    with pytest.raises(ValueError, match="`x` has 2 features but the network takes 1"):
        S.reduce_width(net, draw(net, rng), np.ones((3, 2)))
    with pytest.raises(TypeError, match="call it outside jit"):
        jax.jit(lambda p: S.reduce_width(net, p).params)(draw(net, rng))
