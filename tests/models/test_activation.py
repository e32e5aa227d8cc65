"""What an activation declares about itself is true, and what the library measures about a user's
function agrees.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import naive
import neuromanifold as nm

NAMES = [
    "relu",
    "identity",
    "tanh",
    "sigmoid",
    "softplus",
    "gelu",
    "silu",
    "erf",
    "sin",
    "cos",
    "exp",
    "abs",
]
SLOPES = [-1.0, 0.0, 0.25, 1.0, 2.0]
BUILT_IN = [
    *[nm.MLP((1, 1, 1), name).activations[0] for name in NAMES],
    *[nm.leaky_relu(alpha) for alpha in SLOPES],
    *[nm.power(degree) for degree in (1, 2, 3, 4)],
]
REFERENCE = [
    *[
        {**naive.SMOOTH, "relu": naive.RELU, "identity": naive.IDENTITY, "abs": naive.ABS}[name]
        for name in NAMES
    ],
    *[naive.leaky(alpha) for alpha in SLOPES],
    *[naive.power(degree) for degree in (1, 2, 3, 4)],
]
GRID = np.concatenate([-np.geomspace(3, 0.01, 20), np.geomspace(0.013, 2.9, 20)])
EPS = 2.0**-52


def label(activation: nm.Activation) -> str:
    return activation.name


def values(activation: nm.Activation, z: np.ndarray) -> np.ndarray:
    return np.asarray(activation.fn(jnp.asarray(z)), np.float64)


def close(a: np.ndarray, b: np.ndarray, rtol: float = 1e3 * EPS) -> bool:
    return bool(np.abs(a - b).max() <= rtol * (1 + np.abs(a).max()))


def false_claims(activation: nm.Activation) -> list[str]:
    """The declared properties that the values of the function contradict; needs 64-bit types."""
    z, f = GRID, lambda z: values(activation, z)
    parities = {"odd": close(f(-z), -f(z)), "even": close(f(-z), f(z))}
    scalars = {"positive": [0.5, 3.0], "real": [0.5, 3.0, -1.0, -2.0], None: []}[activation.scalars]
    degree = activation.degree
    h = 2.0**-30
    corner = abs(f(np.array([2 * h])) + f(np.array([-2 * h])) - 2 * f(np.zeros(1)))[0] / (2 * h)
    # The slope from the left, by Richardson extrapolation of one-sided differences.
    steps = np.array([0.0, -(2.0**-17), -(2.0**-18), -(2.0**-19)])
    at, one, half, quarter = f(steps)
    d1, d2, d3 = (at - one) * 2.0**17, (at - half) * 2.0**18, (at - quarter) * 2.0**19
    left = ((4 * (2 * d3 - d2)) - (2 * d2 - d1)) / 3
    claims = {
        "parity": parities
        == {"odd": activation.parity == "odd", "even": activation.parity == "even"},
        "degree": all(
            close(f(c * z), np.sign(c) ** degree * abs(c) ** degree * f(z)) for c in scalars
        ),
        "at_zero": abs(f(np.zeros(1))[0] - activation.at_zero) <= 2 * EPS,
        "slope_at_zero": abs(left - activation.slope_at_zero) <= 1e-9,
        "analytic": (corner < 1e-6) == activation.analytic,
        "polynomial": activation.polynomial is None
        or close(np.polyval(activation.polynomial[::-1], z), f(z)),
        "slopes": activation.slopes is None
        or close(np.where(z > 0, activation.slopes[1], activation.slopes[0]) * z, f(z)),
    }
    return [claim for claim, holds in claims.items() if not holds]


@pytest.mark.parametrize("x64", [True], indirect=True)
@pytest.mark.parametrize("activation", BUILT_IN, ids=label)
def test_declared_properties_are_true(activation: nm.Activation, x64: bool):
    assert false_claims(activation) == []
    assert activation.measured == frozenset()


@pytest.mark.parametrize("x64", [True], indirect=True)
@pytest.mark.parametrize(
    "claim, wrong",
    [
        ("parity", nm.Activation(jnp.tanh, parity="even")),
        ("parity", nm.Activation(jnp.exp, parity="odd")),
        ("parity", nm.Activation(jnp.cos, parity=None)),
        ("degree", nm.Activation(jnp.abs, degree=1.0, scalars="real")),
        ("degree", nm.Activation(jnp.square, degree=3.0, scalars="positive")),
        ("at_zero", nm.Activation(jnp.cos, at_zero=0.0)),
        ("slope_at_zero", nm.Activation(jnp.abs, slope_at_zero=0.0)),
        ("analytic", nm.Activation(jnp.abs, analytic=True)),
        ("analytic", nm.Activation(jnp.sin, analytic=False)),
        ("polynomial", nm.Activation(jnp.square, polynomial=(0.0, 1.0, 1.0))),
        ("slopes", nm.Activation(jnp.abs, slopes=(0.0, 1.0))),
    ],
)
def test_a_false_claim_is_caught(claim: str, wrong: nm.Activation, x64: bool):
    assert claim in false_claims(wrong)
    assert claim not in wrong.measured


@pytest.mark.parametrize(
    "activation, reference",
    list(zip(BUILT_IN, REFERENCE, strict=True)),
    ids=[a.name for a in BUILT_IN],
)
@pytest.mark.parametrize("x64", [True], indirect=True)
def test_values_and_slopes_are_the_hand_written_ones(
    activation: nm.Activation, reference: naive.Scalar, x64: bool
):
    z = np.concatenate([GRID, [-30.0, 30.0]]) if activation.name != "exp" else GRID
    value, slope = (np.array([float(g(v)) for v in z]) for g in (reference.value, reference.slope))
    np.testing.assert_allclose(values(activation, z), value, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(
        np.asarray(activation.derivative(jnp.asarray(z))), slope, rtol=1e-12, atol=1e-14
    )
    assert math.isclose(
        float(activation.derivative(jnp.zeros(()))), reference.slope(0.0), rel_tol=1e-14
    )


@pytest.mark.parametrize("activation", BUILT_IN, ids=label)
def test_measured_properties_of_a_users_function_agree_with_the_declared_ones(
    activation: nm.Activation, x64: bool
):
    own = nm.Activation(activation.fn)
    for claim in ("parity", "degree", "scalars", "analytic"):
        assert getattr(own, claim) == getattr(activation, claim)
    for claim in ("at_zero", "slope_at_zero", "polynomial", "slopes"):
        found, declared = getattr(own, claim), getattr(activation, claim)
        assert (found is None) == (declared is None)
        if declared is not None:
            np.testing.assert_allclose(found, declared, rtol=1e-9, atol=1e-12)
    assert "parity" in own.measured and "slopes" in own.measured


def test_a_declared_property_is_not_measured():
    own = nm.Activation(jnp.tanh, parity="odd")
    assert own.parity == "odd"
    assert "parity" not in own.measured and "at_zero" in own.measured


@pytest.mark.parametrize("shift", [0.5, -1.0])
def test_kinks_away_from_zero_are_not_taken_for_analytic_or_homogeneous(shift: float):
    own = nm.Activation(lambda z: jnp.maximum(z - shift, 0))
    assert own.slopes is None and own.polynomial is None and own.degree is None and not own.analytic


def test_equal_activations_are_equal_and_hash_alike():
    assert nm.leaky_relu(0.25) == nm.leaky_relu(0.25) and hash(nm.power(2)) == hash(nm.power(2))
    assert nm.leaky_relu(0.25) != nm.leaky_relu(0.5) and nm.power(2) != nm.power(3)
