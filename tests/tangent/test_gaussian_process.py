"""Posterior, ensemble and marginal likelihood of infinitely wide networks: dense NumPy, ODEs,
finite differences, blocked solves.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import neuromanifold as nm
from neuromanifold.models import losses
from neuromanifold.models.layers import Conv, Dense, GlobalAvgPool
from neuromanifold.tangent.infinite import infinite_kernels, infinite_ntk, nngp
from neuromanifold.tangent.infinite.ensemble import EnsembleFlow, ensemble_flow
from neuromanifold.tangent.infinite.gaussian_process import (
    BlockedKernel,
    gp_posterior,
    log_marginal_likelihood,
)
from neuromanifold.tangent.prediction.kernel_flow import KernelFlow, Relaxation, kernel_flow

NET = nm.MLP((3, 1, 1, 2), "erf")
OPTIONS = {"weight_std": 1.2, "bias_std": 0.3}


@pytest.fixture
def data(rng):
    x, other = rng.standard_normal((8, 3)), rng.standard_normal((4, 3))
    return x, rng.standard_normal((8, 2)), other


@pytest.mark.parametrize("kernel", [nngp, infinite_ntk], ids=["nngp", "ntk"])
def test_posterior_is_the_dense_formula(data, kernel):
    x, y, other = data
    found = gp_posterior(NET, x, y, other, noise_std=0.1, kernel=kernel, **OPTIONS)
    K, cross, prior = (
        kernel(NET, x, **OPTIONS),
        kernel(NET, other, x, **OPTIONS),
        kernel(NET, other, **OPTIONS),
    )
    inverse = np.linalg.inv(K + 0.01 * np.eye(8))
    np.testing.assert_allclose(found.mean, cross @ inverse @ y, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        found.covariance, prior - cross @ inverse @ cross.T, rtol=0, atol=1e-8
    )
    np.testing.assert_array_equal(found.standard_deviation, np.sqrt(np.diagonal(found.covariance)))
    alone = gp_posterior(NET, x, y, other, noise_std=0.1, kernel=kernel, diagonal=True, **OPTIONS)
    np.testing.assert_allclose(alone.standard_deviation, found.standard_deviation, rtol=1e-9)
    assert alone.covariance.shape == (4,)
    assert found.residual < 1e-12
    assert found.products == 0


def test_a_kernel_beyond_memory_gives_the_same_posterior(rng):
    """Conjugate gradients on blocks, against the factorisation of the whole."""
    net = nm.MLP((3, 1, 1), "relu")
    x, y, other = (
        rng.standard_normal((300, 3)),
        rng.standard_normal((300, 1)),
        rng.standard_normal((5, 3)),
    )
    whole = gp_posterior(net, x, y, other, noise_std=0.3)
    cut = gp_posterior(net, x, y, other, noise_std=0.3, memory="256KB")
    assert whole.products == 0 < cut.products < 100
    assert cut.residual <= 1e-10
    np.testing.assert_allclose(cut.mean, whole.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(cut.covariance, whole.covariance, rtol=0, atol=1e-8)


def test_blocked_products_and_what_does_not_converge(rng):
    a = rng.standard_normal((7, 3))
    blocked = BlockedKernel(lambda x1, x2: x1 @ x2.T, a, 3)
    v = rng.standard_normal((7, 2))
    np.testing.assert_allclose(blocked @ v, a @ (a.T @ v), rtol=1e-13)
    with pytest.raises(
        ArithmeticError, match="conjugate gradients have not reached `rtol` 1e-14 in 1 steps"
    ):
        BlockedKernel(lambda x1, x2: np.exp(x1 @ x2.T), a, 3).solve(v, 1e-3, rtol=1e-14, steps=1)


def dense_ensemble(x, y, other, t, *, kappa, ridge):
    """Mean and covariance of f'(t) by matrix exponentials of (κΘ + ρ)t, nothing diagonalised by
    us.
    """
    from scipy.linalg import expm

    own, cross = infinite_kernels(NET, x, **OPTIONS), infinite_kernels(NET, other, x, **OPTIONS)
    stiffness = kappa * own.ntk + ridge * np.eye(len(x))
    gone = np.eye(len(x)) - (expm(-t * stiffness) if math.isfinite(t) else 0.0)
    follow = kappa * cross.ntk @ np.linalg.solve(stiffness, gone)
    covariance = nngp(NET, other, **OPTIONS) + follow @ own.nngp @ follow.T
    covariance -= follow @ cross.nngp.T + cross.nngp @ follow.T
    return follow @ y, covariance


@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("t", [0.0, 0.7, 30.0, math.inf])
def test_ensemble_is_the_dense_formula(data, t, ridge):
    x, y, other = data
    flow = ensemble_flow(
        NET, x, y, loss=losses.half_squared_error, other=other, ridge=ridge, **OPTIONS
    )
    kappa = flow.mean_flow.curvature
    found = (flow.limit() if math.isinf(t) else flow.at(t)).other
    mean, covariance = dense_ensemble(x, y, other, t, kappa=kappa, ridge=ridge)
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, rtol=0, atol=1e-8)


def test_training_only_the_last_layer_is_the_posterior(data):
    """With Θ = K the ensemble at infinite time samples the posterior without noise; with the
    tangent kernel it does not.
    """
    x, y, other = data
    prior, cross = nngp(NET, x, **OPTIONS), nngp(NET, other, x, **OPTIONS)
    kernels = nm.infinite.InfiniteKernels(prior, prior), nm.infinite.InfiniteKernels(cross, cross)
    flow = EnsembleFlow(kernels[0], y, losses.mse, kernels[1], nngp(NET, other, **OPTIONS))
    posterior = gp_posterior(NET, x, y, other, **OPTIONS)
    np.testing.assert_allclose(flow.limit().other.mean, posterior.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        flow.limit().other.covariance, posterior.covariance, rtol=0, atol=1e-8
    )
    trained = ensemble_flow(NET, x, y, other=other, **OPTIONS).limit().other
    assert np.abs(trained.covariance - posterior.covariance).max() > 1e-3


def test_ensemble_mean_is_the_flow_from_zero_and_the_start_is_the_prior(data):
    x, y, other = data
    flow = ensemble_flow(NET, x, y, other=other, **OPTIONS)
    np.testing.assert_allclose(flow.at(0.0).train.covariance, nngp(NET, x, **OPTIONS), rtol=1e-14)
    np.testing.assert_allclose(flow.limit().train.mean, y, rtol=0, atol=1e-7)
    np.testing.assert_allclose(flow.limit().train.covariance, 0.0, atol=1e-10)
    assert ensemble_flow(NET, x, y, **OPTIONS).at(1.0).other is None
    assert flow.largest_stable_lr(momentum=0.5) == pytest.approx(1.5 * flow.largest_stable_lr())


@pytest.mark.parametrize("friction", [0.0, 0.4, 2.0, 5.0])
def test_relaxation_with_friction_is_the_ode(friction):
    """ä + γȧ + sa = 1 from rest, undamped to overdamped; s = 1 and γ = 2 is critical."""
    stiffness, t = np.array([0.0, 0.25, 1.0, 9.0]), 2.3
    for s, found in zip(stiffness, Relaxation(friction).impulse(stiffness, t), strict=True):
        ball = solve_ivp(
            lambda _, a, s=s: [a[1], 1 - s * a[0] - friction * a[1]],
            (0, t),
            [0.0, 0.0],
            rtol=1e-11,
            atol=1e-13,
        )
        assert found == pytest.approx(ball.y[0, -1], abs=1e-9)


def test_friction_ridge_and_any_loss(key, rng):
    """The closed form against the ODE of the same flow, and the latter for a loss that has no
    closed form.
    """
    net = nm.MLP((2, 6, 1), "tanh", scaling="ntk")
    params, x, y = (
        net.init(key=key, dtype="float64"),
        rng.standard_normal((4, 2)),
        rng.standard_normal((4, 1)),
    )
    flow = kernel_flow(
        net, params, x, y, loss=losses.mse, ridge=0.3, friction=0.7, other=x[:2] + 0.1
    )
    closed, solved = flow.at(3.0), flow._move(flow._impulse_by_ode(3.0))
    np.testing.assert_allclose(closed.other, solved.other, rtol=0, atol=1e-8)
    rest = flow.start - flow.kernel @ np.linalg.solve(
        flow.kernel + 0.3 / flow.curvature * np.eye(4), flow.start - y
    )
    np.testing.assert_allclose(flow.limit().train, rest, rtol=1e-9)
    np.testing.assert_allclose(flow.at(400.0).train, rest, rtol=1e-9)
    assert np.abs(rest - y).max() > 1e-3


def test_momentum_follows_the_heavy_ball(rng):
    """Gradient descent with step η and momentum β at k steps is the ball with γ = (1 − β)/√η at
    √η k, to first order in √η.
    """
    kernel, y = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0], [-2.0]])
    gaps = []
    for eta in (1e-4, 1e-6):
        beta, t = 1 - 0.8 * math.sqrt(eta), 3.0
        f, speed = np.zeros((2, 1)), np.zeros((2, 1))
        for _ in range(round(t / math.sqrt(eta))):
            speed = beta * speed - eta * kernel @ (f - y)
            f = f + speed
        flow = KernelFlow(
            kernel, np.zeros((2, 1)), y, lambda p, t: ((p - t) ** 2).sum() / 2, friction=0.8
        )
        gaps.append(np.abs(flow.at(t).train - f).max())
    assert gaps[1] < 1e-2
    assert gaps[0] / gaps[1] == pytest.approx(10.0, rel=0.1)


def test_marginal_likelihood_is_the_gaussian_density(data):
    from scipy.stats import multivariate_normal

    x, y, _ = data
    covariance = nngp(NET, x, **OPTIONS) + 0.04 * np.eye(8)
    expected = sum(multivariate_normal(cov=covariance).logpdf(y[:, o]) for o in range(2))
    assert log_marginal_likelihood(NET, x, y, noise_std=0.2, **OPTIONS) == pytest.approx(
        expected, abs=1e-9
    )


@pytest.mark.parametrize("kernel", [nngp, infinite_ntk], ids=["nngp", "ntk"])
def test_gradient_of_the_marginal_likelihood(rng, kernel):
    """By deviations of weights and biases, noise and samples, for a convolutional network,
    against central differences.
    """
    net = nm.Sequential(Conv(1, 2), "relu", GlobalAvgPool(), Dense(1), input_shape=(4, 2))
    x, y = rng.standard_normal((5, 4, 2)), rng.standard_normal((5, 1))
    point = (np.array([1.3, 0.9]), np.array([0.4, 0.2]), np.array(0.5), x)

    def value(weight_std, bias_std, noise_std, x):
        options = {
            "noise_std": noise_std,
            "weight_std": weight_std,
            "bias_std": bias_std,
            "kernel": kernel,
        }
        return log_marginal_likelihood(net, x, y, **options)

    with jax.enable_x64(True):
        gradient = jax.grad(value, argnums=(0, 1, 2, 3))(*map(jnp.asarray, point))
    directions = [rng.standard_normal(np.shape(p)) for p in point]
    for index, (given, direction) in enumerate(zip(gradient, directions, strict=True)):
        moved = [
            [p + s * direction if i == index else p for i, p in enumerate(point)]
            for s in (1e-5, -1e-5)
        ]
        expected = (value(*moved[0]) - value(*moved[1])) / 2e-5
        assert abs(expected) > 1e-3
        assert float((np.asarray(given) * direction).sum()) == pytest.approx(expected, rel=1e-6)


def test_bad_arguments(data):
    x, y, other = data
    with pytest.raises(ValueError, match="`noise_std` is -1"):
        gp_posterior(NET, x, y, other, noise_std=-1.0)
    with pytest.raises(ValueError, match="`y` has 2 samples but `x` has 8"):
        gp_posterior(NET, x, y[:2], other)
    twice = np.concatenate([x, x])
    with pytest.raises(ValueError, match="`noise_std` is too small"):
        gp_posterior(NET, twice, np.concatenate([y, y]), other)
    with pytest.raises(ValueError, match="`y` has 2 samples"):
        ensemble_flow(NET, x, y[:2])
    with pytest.raises(ValueError, match="trained outputs are not Gaussian"):
        ensemble_flow(NET, x, y, loss=lambda p, t: jnp.abs(p - t).sum())
    with pytest.raises(ValueError, match="`friction` is -1"):
        ensemble_flow(NET, x, y, friction=-1.0)
    with pytest.raises(ValueError, match="`ridge` is nan"):
        ensemble_flow(NET, x, y, ridge=math.nan)
    with pytest.raises(ValueError, match="never comes to rest"):
        ensemble_flow(NET, x, y, friction=0.0).limit()
    with pytest.raises(ValueError, match="`y` has 2 samples"):
        log_marginal_likelihood(NET, x, y[:2])
