"""An MLP computes what the naive network computes."""

from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cast
import naive
import neuromanifold as nm


@pytest.mark.parametrize("member", cast.MLPS, ids=str)
def test_forward_pass_is_the_naive_one(member: cast.Member, rng: np.random.Generator, x64: bool):
    params, x = member.draw(rng), member.inputs(rng, 7)
    expected = naive.forward(member.reference, naive.plain(params), x)
    found = np.asarray(member.model(params, x))
    assert found.shape == (7, member.outputs)
    assert found.dtype == np.float64 or not x64
    np.testing.assert_allclose(
        found, expected, rtol=200 * np.finfo(found.dtype).eps, atol=50 * np.finfo(found.dtype).eps
    )


@pytest.mark.parametrize("member", [cast.MIXED_RELU, cast.NTK], ids=str)
def test_forward_pass_of_a_mutilated_network_is_not_the_naive_one(
    member: cast.Member, rng: np.random.Generator
):
    params, x = member.draw(rng), member.inputs(rng, 7)
    wrong = naive.Network(tuple((naive.RELU,) * len(layer) for layer in member.reference.hidden))
    assert not np.allclose(
        member.model(params, x), naive.forward(wrong, naive.plain(params), x), rtol=1e-2
    )


@pytest.mark.parametrize("member", cast.MLPS, ids=str)
def test_preactivations_are_the_naive_ones(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 5)
    found = member.model.preactivations(params, x)
    for sample in range(5):
        sums, _ = naive.run(member.reference, naive.plain(params), x[sample])
        for ours, theirs in zip(found, sums, strict=True):
            np.testing.assert_allclose(ours[sample], theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inputs, count", [(1, 361), (2, 371), (8, 431)])
def test_parameter_counts_of_the_complexity_paper(inputs: int, count: int):
    assert nm.MLP((inputs, 10, 10, 10, 10, 1)).n_params == count


@pytest.mark.parametrize("member", cast.MLPS, ids=str)
def test_the_number_of_parameters_and_of_hidden_neurons(
    member: cast.Member, rng: np.random.Generator, key: jax.Array
):
    drawn, initialised = member.draw(rng), member.model.init(key=key)
    assert member.model.n_params == sum(leaf.size for leaf in jax.tree.leaves(drawn))
    assert jax.tree.map(np.shape, drawn) == jax.tree.map(np.shape, initialised)
    assert member.model.hidden == sum(map(len, member.reference.hidden))


def test_a_network_is_a_frozen_value():
    net = nm.MLP([2, 3, 1], "tanh", scaling="ntk")
    assert net == nm.MLP((2, 3, 1), ("tanh",), scaling="ntk")
    assert hash(net) == hash(nm.MLP((2, 3, 1), ("tanh",), scaling="ntk"))
    assert net != nm.MLP((2, 3, 1), ("tanh",)) and net != nm.MLP((2, 3, 1), "relu", scaling="ntk")
    with pytest.raises(AttributeError):
        net.scaling = "standard"


def test_one_activation_for_all_layers_is_one_for_each():
    assert nm.MLP((2, 3, 4, 1), "tanh") == nm.MLP((2, 3, 4, 1), ("tanh", "tanh"))


def test_mixed_neurons_are_in_the_order_given():
    weight, x = np.eye(3), np.array([[-1.0, -2.0, -3.0]])
    params = (nm.Layer(weight, np.zeros(3)), nm.Layer(weight, np.zeros(3)))
    for mixed, expected in [
        (nm.Mixed(relu=1, identity=2), [0, -2, -3]),
        (nm.Mixed(identity=2, relu=1), [-1, -2, 0]),
        (nm.Mixed((nm.leaky_relu(0.5), 1), identity=2), [-0.5, -2, -3]),
    ]:
        np.testing.assert_array_equal(nm.MLP((3, 3, 3), (mixed,))(params, x), [expected])


def test_row_i_of_the_output_depends_on_row_i_of_the_input_only(rng: np.random.Generator):
    for member in (cast.EVERYTHING, cast.SHARED, cast.CONVOLUTION):
        params, x = member.draw(rng), member.inputs(rng, 5).astype(np.float32)
        whole = np.asarray(member.model(params, x))
        np.testing.assert_allclose(whole[2:3], member.model(params, x[2:3]), rtol=1e-5, atol=1e-6)


def test_a_network_runs_under_jit_and_vmap_over_runs(key: jax.Array):
    net, x = cast.OUTPUTS.model, jnp.linspace(-1, 1, 6).reshape(3, 2)
    params = net.init(key=key, runs=4)
    together = jax.jit(jax.vmap(net, (0, None)))(params, x)
    alone = jnp.stack([net(jax.tree.map(itemgetter(run), params), x) for run in range(4)])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
