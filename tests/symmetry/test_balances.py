"""Scalings of channels read from the graph: against closed forms, against J, and where there are
none.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.symmetry import channel_scalings


def convolution(params, x):
    """Two convolutions with a bias, ReLU, max-pooling, a dense layer."""
    h = x
    for layer in ("one", "two"):
        kernel = params[layer]["kernel"]
        h = jax.lax.conv_general_dilated(
            h, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC")
        )
        h = jax.nn.relu(h + params[layer]["bias"])
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return h.mean(axis=(1, 2)) @ params["out"]


def drawn(rng, smooth=False):
    shapes = {
        "one": {"kernel": (3, 1, 3, 3), "bias": (3,)},
        "two": {"kernel": (4, 3, 3, 3), "bias": (4,)},
        "out": (4, 2),
    }
    params = jax.tree.map(
        lambda shape: rng.standard_normal(shape), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )
    return params, rng.standard_normal((6, 4, 4, 1))


def test_balances_of_convolutions_are_the_closed_form_and_in_the_kernel_of_the_jacobian(rng):
    params, x = drawn(rng)
    found = channel_scalings(convolution, params, x)
    out, one, two = params["out"], params["one"], params["two"]

    def squares(a, axis):
        return (np.moveaxis(a, axis, 0) ** 2).reshape(a.shape[axis], -1).sum(axis=1)

    by_layer = [
        squares(two["kernel"], 1) - squares(one["kernel"], 0) - one["bias"] ** 2,
        squares(out, 0) - squares(two["kernel"], 0) - two["bias"] ** 2,
    ]
    quantities = found.quantities(params)
    expected = np.concatenate(
        [by_layer[0] if "one" in b.channels.name else by_layer[1] for b in found.balances]
    )
    np.testing.assert_allclose(quantities.values, expected, rtol=1e-13)
    assert len(quantities) == 3 + 4 and all(
        label.startswith("balance[") for label in quantities.labels
    )
    J, G = np.asarray(nm.jacobian(convolution, params, x)), found.generators(params)
    assert np.linalg.matrix_rank(G) == 7
    assert np.abs(J @ G.T).max() < 1e-12 * np.abs(J).max() * np.abs(G).max() * J.shape[1]
    assert found.deviation < 1e-13 and not found.left_out


def test_a_step_of_gradient_descent_changes_a_balance_by_its_square_only(rng):
    params, x = drawn(rng)
    found, y, lr = channel_scalings(convolution, params, x), rng.standard_normal((6, 2)), 1e-3
    with jax.enable_x64(True):
        gradient = jax.grad(lambda p: nm.losses.mse(convolution(p, x), y))(
            jax.tree.map(jnp.asarray, params)
        )
    stepped = jax.tree.map(lambda p, g: p - lr * np.asarray(g), params, gradient)
    before, after, of_gradient = (found.quantities(p).values for p in (params, stepped, gradient))
    np.testing.assert_allclose(after - before, lr**2 * of_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "bend, laws", [(jnp.tanh, 0), (jax.nn.gelu, 0), (jax.nn.relu, 1), (lambda h: h**2, 1)]
)
def test_only_homogeneous_bends_let_a_channel_be_scaled(rng, bend, laws):
    params = {"in": rng.standard_normal((3, 5)), "out": rng.standard_normal((5, 2))}
    found = channel_scalings(
        lambda p, x: bend(x @ p["in"]) @ p["out"], params, rng.standard_normal((8, 3))
    )
    assert len(found.balances) == laws
    if laws:
        exponents = dict(zip(found.balances[0].leaves, found.balances[0].exponents, strict=True))
        assert exponents == {
            "in": -1.0,
            "out": 2.0 if bend(jnp.float32(3.0)) == 9 else 1.0,
        }  # d‖V‖² − ‖W‖²


def test_gated_units_have_two_scalings_and_a_residual_stream_none(rng):
    shapes = {"gate": (3, 4), "up": (3, 4), "down": (4, 3)}
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}

    def linear_gate(p, x):
        return x + ((x @ p["gate"]) * (x @ p["up"])) @ p["down"]

    found = channel_scalings(linear_gate, params, rng.standard_normal((8, 3)))
    assert [b.channels.size for b in found.balances] == [4, 4]
    J, G = (
        np.asarray(nm.jacobian(linear_gate, params, rng.standard_normal((8, 3)))),
        found.generators(params),
    )
    assert (
        np.linalg.matrix_rank(G) == 8
        and np.abs(J @ G.T).max() < 1e-12 * np.abs(J).max() * np.abs(G).max() * 40
    )


def test_inspect_counts_the_balances_and_the_account_explains_them(rng):
    params, x = drawn(rng)
    found = nm.inspect(convolution, params, x)
    assert len(found.conserved) == 7
    assert found.account.explained["scalings"] > 0 and found.account.in_kernel


def test_laws_do_not_depend_on_the_random_numbers_that_found_them(rng):
    """A gain between a product and the next one: three slots scale together in two ways, and any
    mixture of these is a law too.
    """
    shapes = {"in": (3, 4), "gain": (4,), "out": (4, 2), "second": (4, 2)}
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}

    def f(p, x):
        h = jax.nn.relu(x @ p["in"] * p["gain"])
        return h @ p["out"] + jnp.sin(h @ p["second"])

    x = rng.standard_normal((6, 3))
    one, two = (channel_scalings(f, params, x, key=jax.random.key(k)) for k in (0, 1))
    assert [b.exponents for b in one.balances] == [b.exponents for b in two.balances]
    assert one.quantities(params).labels == two.quantities(params).labels and len(one.balances) == 2
    J, G = np.asarray(nm.jacobian(f, params, x)), one.generators(params)
    assert (
        np.linalg.matrix_rank(G) == 8
        and np.abs(J @ G.T).max() < 1e-12 * np.abs(J).max() * np.abs(G).max() * 40
    )
