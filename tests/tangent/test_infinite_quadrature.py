"""The quadrature's own error estimate, against integrals by ball arithmetic."""

import flint
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.infinite import Quadrature, infinite_ntk, nngp
from neuromanifold.tangent.infinite.series import ORDERS, HermiteSeries

VARIANCES = np.array([0.01, 0.3, 1.0, 2.44, 5.0])
BALLS = {
    "tanh": lambda z: z.tanh(),
    "sigmoid": lambda z: 1 / (1 + (-z).exp()),
    "softplus": lambda z: (1 + z.exp()).log(),
    "silu": lambda z: z / (1 + (-z).exp()),
    "gelu": lambda z: z * (1 + (z / flint.acb(2).sqrt()).erf()) / 2,
}


def second_moment(function, variance: float) -> float:
    """E[σ(√a z)²] to about twenty digits."""
    root = flint.acb(variance).sqrt()
    integral = flint.acb.integral(
        lambda z, _: function(root * z) ** 2 * (-z * z / 2).exp(), flint.acb(-13), flint.acb(13)
    )
    return float((integral / (2 * flint.acb.pi()).sqrt()).real)


@pytest.mark.parametrize("name", sorted(BALLS))
def test_the_estimate_is_within_a_hundred_of_the_true_error(name, tally):
    """Or below 1e-13, where both are rounding."""
    activation = nm.MLP((1, 1, 1), name).activation[0]
    judged, rules = 0, ORDERS[2:8]
    for variance in VARIANCES:
        truth = second_moment(BALLS[name], variance)
        for order in rules:
            with arithmetic():
                own = HermiteSeries(activation, order).own(jnp.asarray([variance]))
            estimate, error = float(own.error), abs(float(own.variance[0]) - truth) / truth
            assert error <= max(100 * estimate, 1e-13), (variance, error, estimate)
            judged += error > 1e-13
    tally(judged, of=len(rules) * len(VARIANCES), what="rules with an error above 1e-13")


@pytest.mark.parametrize("name", sorted(BALLS))
def test_unit_scale_data_is_accepted_and_right(name):
    x = np.array([[1.2], [-3.0], [0.1]])
    found = np.diag(nngp(nm.MLP((1, 8, 1), name), x))
    expected = [1 + second_moment(BALLS[name], 1 + v**2) for v in x[:, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_jump_keeps_opposite_and_parallel_samples_apart():
    """NNGP(x, −x) = −1 and NNGP(x, 2x) = 1 through every layer of sign; an error ε in ρ grows to
    √ε in each.
    """
    sign = nm.Activation(jnp.sign, name="sign")
    x = np.array([[0.3, -1.1, 0.7]])
    net = nm.MLP((3, 2, 2, 2, 1), sign, bias=False)
    kernel = nngp(net, np.vstack([x, -x, 2 * x]), quadrature=Quadrature(kinks=(0.0,)))
    np.testing.assert_allclose(kernel, [[1, -1, 1], [-1, 1, -1], [1, -1, 1]], rtol=0, atol=1e-14)


def test_a_step_has_a_closed_form_that_split_panels_confirm():
    heaviside = nm.Activation(lambda z: jnp.where(z > 0, 1.0, 0.0), name="heaviside")
    x = np.array([[0.3, -1.1], [0.4, 0.2], [-0.3, 1.1]])
    net = nm.MLP((2, 1, 1), heaviside)
    split = nngp(net, x, quadrature=Quadrature(kinks=(0.0,), always=True))
    np.testing.assert_allclose(nngp(net, x), split, rtol=1e-12)
    np.testing.assert_allclose(np.diag(split), 1.5, rtol=1e-12)


def test_polynomials_are_exact():
    """σ = z² in one layer: E[u²v²] = ab + 2c²; with a bias and a slope, by hand."""
    x = np.array([[1.0, 2.0], [0.5, -1.0]])
    covariance = x @ x.T / 2
    variance = np.diag(covariance)
    square = nngp(nm.MLP((2, 1, 1), nm.power(2), bias=False), x)
    np.testing.assert_allclose(square, np.outer(variance, variance) + 2 * covariance**2, rtol=1e-14)
    tangent = infinite_ntk(nm.MLP((2, 1, 1), nm.power(2), bias=False), x)
    np.testing.assert_allclose(tangent, square + covariance * 4 * covariance, rtol=1e-14)


def test_the_number_of_nodes_can_be_fixed():
    net, x = nm.MLP((1, 1, 1), "tanh"), np.array([[1.0], [0.2]])
    fixed = nngp(net, x, quadrature=Quadrature(order=512, rtol=1e-9))
    np.testing.assert_allclose(fixed, nngp(net, x), rtol=1e-9)
    with pytest.raises(ArithmeticError, match="tanh has not reached 1e-12 with 32 nodes"):
        nngp(net, x, quadrature=Quadrature(order=32))
    with pytest.raises(ValueError, match="`order` is 33; pass one of 32, 64"):
        Quadrature(order=33)
