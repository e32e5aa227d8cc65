"""Higher derivatives of activations, with and without Taylor rules in JAX, against closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.orbits.derivatives import derivatives
from neuromanifold.orbits.rings import Reals

# Derivatives at 0, from the power series; JAX's Taylor mode knows sin and exp, but neither arctan
# nor softplus.
AT_ZERO = {
    "sin": (jnp.sin, [0, 1, 0, -1, 0, 1]),
    "exp": (jnp.exp, [1] * 6),
    "arctan": (jnp.arctan, [0, 1, 0, -2, 0, 24]),
    "softplus": (jax.nn.softplus, [math.log(2), 1 / 2, 1 / 4, 0, -1 / 8, 0]),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_derivatives_at_zero_are_those_of_the_power_series(name):
    fn, expected = AT_ZERO[name]
    found = derivatives(Reals(), nm.Activation(fn), np.zeros(1), 5)
    np.testing.assert_allclose([d.item() for d in found], expected, rtol=1e-13, atol=1e-14)


def test_an_activation_without_taylor_rules_has_a_closure(key):
    """arctan is generic odd: three neurons at generic weights move in all (d + 1)·3 directions,
    a zero neuron in none.
    """
    net = nm.MLP((1, 3, 1), nm.Activation(jnp.arctan, parity="odd"), bias=False)
    weights, outgoing = np.array([[0.7], [-1.3], [0.4]]), np.array([[1.1, 0.6, -0.9]])
    full = nm.lie_closure(net, (nm.Layer(weights), nm.Layer(outgoing)), key=key)
    assert (int(full.dimension), full.certified) == (6, True)
    silent = np.array([1, 1, 0])
    params = (nm.Layer(weights * silent[:, None]), nm.Layer(outgoing * silent))
    assert int(nm.lie_closure(net, params, key=key).dimension) == 4


def test_an_error_of_the_activation_is_shown_as_it_is():
    """Not taken for a missing rule, though it is the same kind of error."""
    broken = False

    def table(z):
        if broken:
            raise KeyError("no table for this activation")
        return jnp.sin(z)

    activation = nm.Activation(table)
    broken = True
    with pytest.raises(KeyError, match="no table for this activation"):
        derivatives(Reals(), activation, np.zeros(1), 2)
