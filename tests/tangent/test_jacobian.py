"""The Jacobian against hand-written backpropagation and against central differences."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import cast
import neuromanifold as nm

EPS = 2.0**-52


@pytest.mark.parametrize("member", cast.ALL, ids=str)
def test_jacobian_is_the_naive_one(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 6)
    found, expected = nm.jacobian(member.model, params, x), member.jacobian(params, x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=100 * EPS * np.abs(expected).max())


def differences(member: cast.Member, params, x: np.ndarray, step: float = 2.0**-17) -> np.ndarray:
    """Central differences of the model itself, one parameter after another in ravel_pytree's
    order.
    """
    with jax.enable_x64(True):
        theta, unravel = ravel_pytree(params)
        rows = np.asarray(theta) + step * np.concatenate([np.eye(theta.size), -np.eye(theta.size)])
        values = np.asarray(jax.vmap(lambda t: member.model(unravel(t), x).ravel())(rows))
    return (values[: theta.size] - values[theta.size :]).T / (2 * step)


@pytest.mark.parametrize("member", cast.ALL, ids=str)
def test_jacobian_is_the_limit_of_differences(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 6)
    found, expected = nm.jacobian(member.model, params, x), differences(member, params, x)
    # Truncation is h²·f'''/6, rounding ε/h: both near 1e-10 here.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * max(1, np.abs(expected).max()))


def test_rows_are_sample_major_and_columns_are_in_the_order_of_ravel_pytree(
    rng: np.random.Generator,
):
    member = cast.OUTPUTS
    params, x = member.draw(rng), member.inputs(rng, 4)
    whole = nm.jacobian(member.model, params, x)
    alone = np.concatenate([nm.jacobian(member.model, params, sample[None]) for sample in x])
    np.testing.assert_allclose(whole, alone, rtol=0, atol=10 * EPS * np.abs(whole).max())
    output_major = whole.reshape(4, 3, -1).swapaxes(0, 1).reshape(whole.shape)
    assert not np.allclose(output_major, member.jacobian(params, x))
    # The last columns belong to the last bias: an identity for every sample.
    np.testing.assert_array_equal(whole[:, -3:], np.tile(np.eye(3), (4, 1)))


def test_a_bare_function_and_its_wrapper_have_the_same_jacobian(rng: np.random.Generator):
    params, x = cast.SHARED.draw(rng), cast.SHARED.inputs(rng, 4)
    bare, wrapped = (nm.jacobian(f, params, x) for f in (cast.SHARED.model.fn, cast.SHARED.model))
    np.testing.assert_array_equal(bare, wrapped)


def test_samples_of_any_shape_and_scalar_outputs():
    x = np.arange(1.0, 4.0)
    found = nm.jacobian(
        lambda params, x: params["a"] * x**2 + params["b"][0, 0],
        {"a": 1.0, "b": np.zeros((1, 2))},
        x,
    )
    np.testing.assert_array_equal(found, [[1, 1, 0], [4, 1, 0], [9, 1, 0]])


def test_integer_inputs_of_an_embedding(rng: np.random.Generator):
    tokens, table = np.array([2, 0, 2, 1]), rng.normal(size=(3, 2))
    found = nm.jacobian(lambda params, x: params[x], table, tokens)
    expected = np.kron(np.eye(3)[tokens], np.eye(2))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        nm.ntk(lambda params, x: params[x], table, tokens), expected @ expected.T
    )


def test_many_draws_at_once_are_the_draws_one_by_one(rng: np.random.Generator, draws):
    member, x = cast.EVERYTHING, cast.EVERYTHING.inputs(rng, 5)
    params = [member.draw(rng) for _ in range(draws(20))]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    with jax.enable_x64(True):
        together = np.asarray(jax.jit(jax.vmap(lambda p: nm.jacobian(member.model, p, x)))(stacked))
    alone = np.stack([member.jacobian(p, x) for p in params])
    np.testing.assert_allclose(together, alone, rtol=0, atol=100 * EPS * np.abs(alone).max())
