"""The learning coefficient against closed forms, quadrature and the rank's bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import neuromanifold as nm
from neuromanifold_papers.beyond.cast import CAST, aoyagi

ZERO = np.zeros(())
ONES = np.ones((10, 1))
SIGMAS = 4.0


def within(found: nm.dynamics.LearningCoefficient, expected: float) -> bool:
    return abs(found.value - expected) < SIGMAS * found.error


def test_a_regular_model_has_half_its_parameters():
    """For a quadratic loss E b(L − L*) = ½ Σ bh/(bh + γ), h the eigenvalues of the Hessian."""
    x = np.random.default_rng(0).normal(size=(200, 5)) * np.array([3.0, 1.0, 1.0, 0.3, 0.1])
    h = np.linalg.eigvalsh(2 * x.T @ x / len(x))
    found = nm.learning_coefficient(
        lambda w, x: x @ w,
        np.ones((5, 1)),
        x,
        x @ np.ones((5, 1)),
        key=jax.random.key(0),
        localisation=2.0,
    )
    b = found.inverse_temperature
    assert b == 200 / np.log(200)
    assert within(found, 0.5 * (b * h / (b * h + 2.0)).sum())
    assert found.lower_bound == 2.5
    assert found.error < 0.05


def crossing(b: float) -> float:
    """E b v²w² under exp(−b v²w² − (v² + w²)/2), with v integrated in closed form."""

    def weight(w: float) -> float:
        return np.exp(-(w**2) / 2) / np.sqrt(2 * b * w**2 + 1)

    near = [0.001, 0.01, 0.1, 1.0]
    above = quad(lambda w: weight(w) * b * w**2 / (2 * b * w**2 + 1), 0, 9, points=near)[0]
    return above / quad(weight, 0, 9, points=near)[0]


def power(b: float) -> float:
    """E b w⁴ under exp(−b w⁴ − w²/2)."""
    above, below = (
        quad(
            lambda w, k=k: (b * w**4) ** k * np.exp(-b * w**4 - w**2 / 2),
            0,
            4,
            points=[0.003, 0.03, 0.3],
        )[0]
        for k in (1, 0)
    )
    return above / below


@pytest.mark.parametrize(
    "f, params, expected, limit",
    [
        (lambda p, x: p[0] * p[1] * x, (ZERO, ZERO), crossing, 0.5),
        (lambda p, x: p**2 * x, ZERO, power, 0.25),
    ],
    ids=["vw", "w²"],
)
def test_singular_models_agree_with_quadrature(f, params, expected, limit):
    found = nm.learning_coefficient(
        f,
        params,
        ONES,
        0 * ONES,
        key=jax.random.key(1),
        inverse_temperature=300.0,
        draws=3000,
    )
    assert within(found, expected(300.0))
    assert found.lower_bound == 0
    # Half the number of parameters, which a regular model would have, is excluded.
    assert found.value + SIGMAS * found.error < 0.5 * len(jax.tree.leaves(params))
    assert abs(expected(1e10) - limit) < 0.05


def test_a_ladder_agrees_with_quadrature_at_every_rung():
    """Exchanges keep the density of each inverse temperature."""
    found = nm.learning_coefficient(
        lambda p, x: p[0] * p[1] * x,
        (ZERO, ZERO),
        ONES,
        0 * ONES,
        key=jax.random.key(1),
        inverse_temperature=1e4,
        leaps=4,
        ladder=6,
    )
    b, value, error = found.curve
    assert b[0] == 0 and b[-1] == 1e4 and (np.diff(b) > 0).all()
    assert value[-1] == pytest.approx(found.value) and found.r_hat < 1.05
    exact = np.array([crossing(float(at)) for at in b[1:]])
    assert (np.abs(value[1:] - exact) < 5 * error[1:]).all()
    # The control: the estimates of one rung are not those of its neighbour.
    assert (np.abs(value[1:-1] - exact[1:]) > 5 * error[1:-1]).any()


def test_reduced_rank_regression_agrees_with_its_formula():
    """2-3-2 of rank one: λ = 2, while half the rank is 3/2."""
    A, B = np.zeros((3, 2)), np.zeros((2, 3))
    A[0, 0] = B[0, 0] = 1.0

    def linear(p, x):
        return x @ p[0].T @ p[1].T

    x = np.random.default_rng(0).normal(size=(100, 2))
    found = nm.learning_coefficient(
        linear,
        (A, B),
        x,
        np.asarray(linear((A, B), x)),
        key=jax.random.key(1),
        inverse_temperature=1e4,
        draws=2000,
    )
    assert aoyagi(2, 3, 2, 1) == 2.0
    assert found.lower_bound == 1.5
    assert 1.5 + SIGMAS * found.error < found.value < 2.0 + SIGMAS * found.error
    assert abs(found.value - 2.0) < 0.2


@pytest.mark.parametrize("name", ["w²", "a tanh(wx + b) at 0"])
def test_five_seeds_agree_with_the_closed_form_on_a_ladder(name):
    """A small version of the study's first figure, which has seven models and 1,500 draws."""
    [case] = [case for case in CAST if case.name == name]
    b = 1e6
    found = [
        nm.learning_coefficient(
            case.f,
            case.params,
            case.x,
            case.y,
            key=jax.random.key(seed),
            inverse_temperature=b,
            draws=400,
            leaps=8,
            ladder=20,
        )
        for seed in range(5)
    ]
    for each in found:
        assert within(each, case.exact) and each.r_hat < 1.2, each
    half = len(jax.tree.leaves(case.params)) / 2
    assert all(each.value + SIGMAS * each.error < half for each in found)


def test_half_the_rank_of_a_perceptron_is_attained():
    net = nm.MLP((2, 3, 1), "tanh")
    with jax.enable_x64(True):
        params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias, dtype=jnp.float64)
        x = np.random.default_rng(0).normal(size=(50, 2))
        y = np.asarray(net(params, jnp.asarray(x)))
        params = jax.tree.map(np.asarray, params)
    found = nm.learning_coefficient(
        net, params, x, y, key=jax.random.key(1), inverse_temperature=1e6
    )
    assert found.lower_bound == 6.5
    assert within(found, 6.5)
    cold = nm.learning_coefficient(net, params, x, y, key=jax.random.key(1))
    assert "below what the rank proves" in cold.doubt()


def test_minibatches_agree_and_what_diverges_is_refused():
    x = np.random.default_rng(0).normal(size=(100, 2))
    line, at = (lambda w, x: x @ w), (np.zeros((2, 1)), x, np.zeros((100, 1)))
    found = nm.learning_coefficient(line, *at, key=jax.random.key(0), batch_size=50, draws=2000)
    assert found.acceptance is None
    assert abs(found.value - 1.0) < SIGMAS * found.error + found.step / (4 - found.step)
    with pytest.raises(ArithmeticError, match="chains diverged; pass a smaller `step`"):
        nm.learning_coefficient(line, *at, key=jax.random.key(0), batch_size=50, step=50.0)


def test_a_point_that_is_no_minimum_is_said():
    x = np.random.default_rng(0).normal(size=(100, 2))
    found = nm.learning_coefficient(
        lambda w, x: x @ w, np.ones((2, 1)), x, np.zeros((100, 1)), key=jax.random.key(0)
    )
    assert "no minimum" in found.doubt()
    assert found.rank is None
    assert found.lower_bound is None


@pytest.mark.parametrize(
    "options, said",
    [
        ({"chains": 1}, "`chains` is 1; pass at least 2"),
        ({"draws": 2}, "`draws` is 2; pass at least 4"),
        ({"localisation": 0.0}, "`localisation` is 0.0; pass a positive number"),
        ({"batch_size": 11}, "`batch_size` is 11; pass 1 to 10"),
        ({"step": -1.0}, "`step` is -1.0; pass a positive number"),
        ({"ladder": 0}, "`ladder` is 0; pass 1"),
        ({"ladder": 2, "batch_size": 5}, "leave one of them out"),
        ({"leaps": 0}, "`leaps` is 0; pass at least 1"),
        ({"inverse_temperature": 0.0}, "`inverse_temperature` is 0.0; pass a positive number"),
    ],
)
def test_bad_arguments_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        nm.learning_coefficient(
            lambda w, x: x * w, ZERO, ONES, ONES, key=jax.random.key(0), **options
        )
