"""Infinite-width kernels: neural-tangents' numbers, quadrature against closed forms, limits, and
finite nets.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.infinite import Quadrature, infinite_ntk, nngp
from neuromanifold.tangent.infinite.duals import CLOSED_FORMS, GaussianPair, PiecewiseLinear

REFERENCE = Path(__file__).parents[1] / "data" / "neural_tangents.npz"
EPS = np.finfo(np.float64).eps
CASES = [
    (activation, hidden, bias, kind)
    for activation in ("relu", "erf", "identity")
    for hidden in (1, 2, 3)
    for bias in (0, 1)
    for kind in ("ntk", "nngp")
]
SMOOTH = ("erf", "sin", "cos", "exp", "identity")
KINKED = ("relu", "abs", "leaky_relu(0.2)")


def deep(activation, hidden=2, *, inputs=5, bias=True):
    return nm.MLP((inputs, *[3] * hidden, 1), activation, bias=bias, scaling="ntk")


@pytest.mark.parametrize("activation, hidden, bias, kind", CASES)
def test_neural_tangents_numbers(activation, hidden, bias, kind):
    with np.load(REFERENCE) as reference:
        expected = reference[f"infinite/{activation}/hidden{hidden}/bias{bias}/{kind}"]
        x1, x2 = reference["x1"], reference["x2"]
    kernel = infinite_ntk if kind == "ntk" else nngp
    found = kernel(deep(activation, hidden, bias=bool(bias)), x1, x2)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("kernel", [infinite_ntk, nngp])
def test_hermite_series_agrees_with_the_closed_form(kernel, activation, bias, rng):
    x = rng.standard_normal((6, 5)) * (0.3 if activation == "exp" else 0.8)
    net = deep(activation, 1 if activation == "exp" else 2, bias=bias)
    closed, series = (
        kernel(net, x, bias_std=0.5, quadrature=Quadrature(always=a)) for a in (False, True)
    )
    np.testing.assert_allclose(series, closed, rtol=1e-12, atol=1e-12 * np.abs(closed).max())


@pytest.mark.parametrize("activation", KINKED)
def test_split_panels_agree_with_the_closed_form(activation, rng):
    x = rng.standard_normal((4, 3))
    x = np.concatenate([x, x[:1] + 1e-5, -x[:1]])
    net = deep(activation, 1, inputs=3)
    for kernel in (infinite_ntk, nngp):
        closed, split = (
            kernel(net, x),
            kernel(net, x, quadrature=Quadrature(kinks=(0.0,), always=True)),
        )
        np.testing.assert_allclose(split, closed, rtol=1e-12, atol=1e-12 * np.abs(closed).max())


def test_a_kink_that_is_not_named_is_refused(rng):
    hard = nm.Activation(lambda z: jnp.clip(z, -1.0, 1.0), name="hardtanh")
    x = rng.standard_normal((3, 2))
    with pytest.raises(ArithmeticError, match=r"hardtanh has not reached 1e-12.*Quadrature\(kinks"):
        infinite_ntk(deep(hard, 1, inputs=2), x)
    split = nngp(deep(hard, 1, inputs=2, bias=False), x, quadrature=Quadrature(kinks=(-1.0, 1.0)))
    u = np.random.default_rng(0).standard_normal((200_000, 2)) @ x.T / np.sqrt(2)
    drawn = np.clip(u, -1, 1).T @ np.clip(u, -1, 1) / len(u)
    np.testing.assert_allclose(split, drawn, rtol=0, atol=5 / np.sqrt(len(u)))


def test_an_activation_without_closed_form_against_a_dense_double_integral(rng):
    x = rng.standard_normal((3, 2))
    net = deep("tanh", 1, inputs=2, bias=False)
    z, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()
    covariance = x @ x.T / 2
    value, slope = np.empty((3, 3)), np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            a, b = np.sqrt(covariance[i, i]), np.sqrt(covariance[j, j])
            rho = np.clip(covariance[i, j] / (a * b), -1, 1)
            u, v = a * z[:, None], b * (rho * z[:, None] + np.sqrt(1 - rho**2) * z[None, :])
            weight = w[:, None] * w[None, :]
            value[i, j] = (weight * np.tanh(u) * np.tanh(v)).sum()
            slope[i, j] = (weight / np.cosh(u) ** 2 / np.cosh(v) ** 2).sum()
    np.testing.assert_allclose(nngp(net, x), value, rtol=1e-9)
    np.testing.assert_allclose(infinite_ntk(net, x), value + covariance * slope, rtol=1e-9)


def test_coincident_and_opposite_samples_keep_their_digits(rng):
    """Θ of relu at distance δ falls by a multiple of δ: an arccos of the correlation would stop
    at √ε.
    """
    x = rng.standard_normal((1, 4))
    direction = rng.standard_normal((1, 4))
    direction -= x * (x @ direction.T) / (x @ x.T)
    direction *= np.linalg.norm(x) / np.linalg.norm(direction)
    net = deep("relu", 3, inputs=4, bias=False)
    steps = 10.0 ** -np.arange(3.0, 11.0)
    drop = np.array(
        [
            float(infinite_ntk(net, x)[0, 0] - infinite_ntk(net, x, x + s * direction)[0, 0])
            for s in steps
        ]
    )
    slope = drop / steps
    np.testing.assert_allclose(slope, slope[3], rtol=2e-3)
    assert np.ptp(np.diag(infinite_ntk(net, np.vstack([x, x, 2 * x]))[:2, :2])) == 0.0
    same = infinite_ntk(net, np.vstack([x, x]), np.vstack([x, x]))
    assert np.ptp(same) == 0.0
    kernel, limit = nngp(net, x, -x), nngp(net, x)
    assert kernel < limit
    with arithmetic():
        opposite = PiecewiseLinear(0.25, 0.25).pairs(
            GaussianPair(1.0, 1.0, jnp.asarray(2.0), jnp.asarray(0.0)), None, None
        )
    assert abs(float(opposite.covariance)) < EPS
    assert abs(float(opposite.distance) - 0.5) < EPS
    assert float(opposite.slope) == 0.0


@pytest.mark.parametrize("name", ["erf", "sin", "cos", "gelu"])
def test_closed_forms_stay_finite_at_huge_variance(name):
    dual = next(d for d in CLOSED_FORMS.values() if d.name == name)
    with arithmetic():
        for variance in (1e-300, 1e-8, 1e8, 1e150):
            a = jnp.asarray(variance)
            own = dual.own(a)
            moments = dual.pairs(
                GaussianPair(jnp.sqrt(a), jnp.sqrt(a), jnp.zeros(()), 2 * a), own, own
            )
            assert np.isfinite([own.variance, moments.distance, moments.slope]).all()
            assert moments.distance == 0.0
        limit = float(dual.own(jnp.asarray(1e8)).variance)
    assert limit == pytest.approx(
        {"erf": 1.0, "sin": 0.5, "cos": 0.5, "gelu": 0.5e8}[name], rel=1e-4
    )


def test_overflow_is_reported_and_a_zero_sample_is_not():
    x = np.ones((2, 5))
    with pytest.raises(
        OverflowError, match=r"overflows float64 after weight layer 3 .*fewer layers"
    ):
        infinite_ntk(deep("exp", 3), x)
    assert np.isfinite(infinite_ntk(deep("relu", 60), x)).all()
    with pytest.raises(OverflowError, match="scale `x` or `weight_std` down"):
        nngp(deep("relu", 60, bias=False), x, weight_std=1e6)
    zero = infinite_ntk(deep("relu", bias=False), np.vstack([np.zeros(5), np.ones(5)]))
    np.testing.assert_array_equal(zero[0], 0.0)


def test_symmetric_positive_and_independent_of_the_blocks(rng):
    x = rng.standard_normal((23, 5))
    for activation in ("relu", "sin"):
        net = deep(activation)
        whole, cut = infinite_ntk(net, x), infinite_ntk(net, x, memory=16 * 8 * 7 * 7)
        assert (whole == whole.T).all()
        np.testing.assert_allclose(cut, whole, rtol=1e-13)
        np.testing.assert_allclose(infinite_ntk(net, x, x), whole, rtol=1e-13)
        assert np.linalg.eigvalsh(whole)[0] > -1e-12 * np.linalg.eigvalsh(whole)[-1]


def test_a_mixed_layer_counts_by_its_proportions(rng):
    x = rng.standard_normal((4, 5))
    mixed = nm.MLP((5, 4, 1), (nm.Mixed(relu=1, sin=3),), bias=False, scaling="ntk")
    parts = [nngp(deep(name, 1, bias=False), x) for name in ("relu", "sin")]
    np.testing.assert_allclose(nngp(mixed, x), 0.25 * parts[0] + 0.75 * parts[1], rtol=1e-13)
    linear = nm.MLP((5, 2, 1), (nm.Mixed(relu=1, identity=1),), bias=False, scaling="ntk")
    parts = [infinite_ntk(deep(name, 1, bias=False), x) for name in ("relu", "identity")]
    np.testing.assert_allclose(infinite_ntk(linear, x), (parts[0] + parts[1]) / 2, rtol=1e-13)


def test_standard_deviations_enter_as_in_neural_tangents(rng):
    """A linear net of two layers: Σ² = σ_w²(σ_w² K + σ_b²) + σ_b², Θ² = Σ² + σ_w²(σ_w² K +
    σ_b²).
    """
    x = rng.standard_normal((4, 5))
    first = 1.7**2 * (x @ x.T) / 5 + 0.3**2
    net = deep("identity", 1)
    np.testing.assert_allclose(
        nngp(net, x, weight_std=1.7, bias_std=0.3), 1.7**2 * first + 0.3**2, rtol=1e-13
    )
    expected = 1.7**2 * first + 0.3**2 + 1.7**2 * first
    np.testing.assert_allclose(
        infinite_ntk(net, x, weight_std=1.7, bias_std=0.3), expected, rtol=1e-13
    )


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (
            (nm.MLP((2, 3, 1)), np.ones((3, 4))),
            {},
            r"`x` has shape \(3, 4\); the network takes \(n, 2\)",
        ),
        (
            (nm.MLP((2, 3, 1), output_activation="tanh"), np.ones((3, 2))),
            {},
            "output activation tanh",
        ),
        (
            (nm.MLP((2, 3, 1)), np.ones((3, 2))),
            {"weight_std": 0.0},
            "`weight_std` is 0.0; pass positive",
        ),
        ((nm.MLP((2, 3, 1)), np.ones((3, 2))), {"bias_std": -1.0}, "`bias_std` is -1.0"),
        (
            (nm.MLP((2, 3, 1)), np.ones((3, 2))),
            {"weight_std": (1, 2, 3)},
            "one for each of the 2 weight layers",
        ),
        ((nm.MLP((2, 3, 1)), np.full((3, 2), np.nan)), {}, "`x` is nan"),
    ],
)
def test_bad_arguments(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        infinite_ntk(*arguments, **options)


def test_a_function_is_refused():
    with pytest.raises(TypeError, match=r"descriptions nm\.MLP and nm\.Sequential"):
        infinite_ntk(lambda p, x: x, np.ones((1, 1)))
    with pytest.raises(ValueError, match="`scaling` is 'mup'"):
        infinite_ntk(nm.MLP((1, 1)), np.ones((1, 1)), scaling="mup")


@pytest.mark.parametrize("activation", ["gelu", "tanh", "silu"])
def test_rows_and_columns_of_different_variance_share_one_series(activation):
    """Small and large samples settle at different orders when asked apart; a cross kernel is a
    corner of the whole.
    """
    net, x = nm.MLP((1, 8, 1), activation), np.array([[0.01], [1.0], [3.0]])
    for kernel in (infinite_ntk, nngp):
        whole = kernel(net, x, quadrature=Quadrature(rtol=1e-6))
        cross = kernel(net, x[:1], x[2:], quadrature=Quadrature(rtol=1e-6))
        np.testing.assert_allclose(cross, whole[:1, 2:], rtol=1e-6)
        assert kernel(net, x[:2], x).shape == (2, 3)


def test_standard_deviations_per_layer(rng):
    """A linear net of three layers by hand, and the scalar as the case of equal entries."""
    x = rng.standard_normal((4, 5))
    weights, biases = (1.0, 2.0, 3.0), (0.5, 0.0, 0.25)
    net, covariance, tangent = deep("identity", 2), x @ x.T / 5, 0.0
    for w, b in zip(weights, biases, strict=True):
        covariance = w**2 * covariance + b**2
        tangent = covariance + w**2 * tangent
    scale = np.abs(tangent).max()
    np.testing.assert_allclose(
        nngp(net, x, weight_std=weights, bias_std=biases), covariance, atol=1e-13 * scale
    )
    np.testing.assert_allclose(
        infinite_ntk(net, x, weight_std=weights, bias_std=biases), tangent, atol=1e-13 * scale
    )
    np.testing.assert_array_equal(
        infinite_ntk(net, x, weight_std=(1.3,) * 3), infinite_ntk(net, x, weight_std=1.3)
    )
