"""The quadrature's own error estimate, against integrals by ball arithmetic."""

import flint
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.tangent.infinite import nngp
from neuromanifold.tangent.infinite_quadrature import _ORDERS, Quadrature, _coefficients, _sums, estimated_error

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
    judged = 0
    for variance in VARIANCES:
        truth = second_moment(BALLS[name], variance)
        sums = [
            [_sums(h[: n // 2]) for h in _coefficients(activation, np.array([variance]), n)[:1]] for n in _ORDERS[:8]
        ]
        for first, second, third in zip(sums[:-2], sums[1:-1], sums[2:], strict=True):
            estimate, error = estimated_error(first, second, third), abs(third[0][0, 0] - truth) / truth
            assert error <= max(100 * estimate, 1e-13), (variance, error, estimate)
            assert estimate <= max(100 * error, 1e-13), (variance, error, estimate)
            judged += error > 1e-13
    tally(judged, of=30, what="rules with an error above 1e-13")


@pytest.mark.parametrize("name", sorted(BALLS))
def test_unit_scale_data_is_accepted_and_right(name):
    x = np.array([[1.2], [-3.0], [0.1]])
    found = np.diag(nngp(nm.MLP((1, 8, 1), name), x))
    expected = [1 + second_moment(BALLS[name], 1 + v**2) for v in x[:, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_jump_keeps_opposite_and_parallel_samples_apart():
    """NNGP(x, −x) = −1 and NNGP(x, 2x) = 1 through every layer of sign; an error ε in ρ grows to √ε in each."""
    sign = nm.Activation(jnp.sign, name="sign")
    x = np.array([[0.3, -1.1, 0.7]])
    net = nm.MLP((3, 2, 2, 2, 1), sign, bias=False)
    kernel = nngp(net, np.vstack([x, -x, 2 * x]), quadrature=Quadrature(kinks=(0.0,)))
    np.testing.assert_allclose(kernel, [[1, -1, 1], [-1, 1, -1], [1, -1, 1]], rtol=0, atol=1e-14)
