"""Kernel gradient flow: closed form, ODE, and gradient descent on the linearised model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.infinite import infinite_ntk
from neuromanifold.tangent.prediction.kernel_flow import KernelFlow, kernel_flow
from neuromanifold.tangent.prediction.linearize import linearize


def half(prediction, target):
    return ((prediction - target) ** 2).sum() / (2 * len(prediction))


def cross_entropy(prediction, target):
    return -(target * jax.nn.log_softmax(prediction)).sum() / len(prediction)


def huber(prediction, target):
    r = jnp.abs(prediction - target)
    return jnp.where(r < 0.5, r**2 / 2, 0.5 * (r - 0.25)).mean()


@pytest.fixture
def problem(key, rng):
    net = nm.MLP((3, 16, 2), "tanh", scaling="ntk")
    params = net.init(key=key, dtype="float64")
    y = np.eye(2)[rng.integers(0, 2, 6)]
    return net, params, rng.standard_normal((6, 3)), y, rng.standard_normal((4, 3))


def descended(net, params, x, y, other, loss, t, steps=4000):
    """Gradient descent in small steps on the linearised model, extrapolated to step zero."""
    line = linearize(net, params)

    def run(count):
        @jax.jit
        def go(p):
            step = lambda p, _: (  # noqa: E731
                jax.tree.map(
                    lambda a, g: a - t / count * g, p, jax.grad(lambda q: loss(line(q, x), y))(p)
                ),
                None,
            )
            return jax.lax.scan(step, p, None, length=count)[0]

        end = go(jax.tree.map(jnp.asarray, params))
        return np.asarray(line(end, x)), np.asarray(line(end, other))

    with arithmetic():
        coarse, fine = run(steps), run(2 * steps)
    return [2 * f - c for c, f in zip(coarse, fine, strict=True)]


@pytest.mark.parametrize("loss, curvature", [(half, 1 / 6), (cross_entropy, None), (huber, None)])
def test_agrees_with_descent_on_the_linearised_model(problem, loss, curvature):
    net, params, x, y, other = problem
    flow = kernel_flow(net, params, x, y, loss=loss, other=other)
    assert flow.curvature == (pytest.approx(curvature) if curvature else None)
    found = flow.at(3.0)
    for one, two in zip(found, descended(net, params, x, y, other, loss, 3.0), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=2e-6)


def test_closed_form_and_ode_agree(problem):
    net, params, x, y, other = problem
    flow = kernel_flow(net, params, x, y, loss=half, other=other)
    closed, solved = flow.at(5.0), flow._move(flow._impulse_by_ode(5.0))
    for one, two in zip(closed, solved, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-8)


def test_early_and_late(problem):
    net, params, x, y, other = problem
    flow = kernel_flow(net, params, x, y, loss=half, other=other)
    np.testing.assert_array_equal(flow.at(0.0).train, flow.start)
    times = np.array([1e-2, 1e-3])
    gaps = [np.abs(flow.at(t).other - flow.early(t).other).max() for t in times]
    assert np.log10(gaps[0] / gaps[1]) == pytest.approx(2.0, abs=0.05)
    limit = flow.limit()
    np.testing.assert_allclose(limit.train, y, atol=1e-8)
    kernel, cross = nm.ntk(net, params, x), nm.ntk(net, params, other, x)
    ridgeless = flow.other_start.ravel() - cross @ np.linalg.solve(kernel, (flow.start - y).ravel())
    np.testing.assert_allclose(limit.other.ravel(), ridgeless, rtol=1e-7)
    np.testing.assert_allclose(flow.at(1e9).other, limit.other, rtol=1e-6)


def test_directions_without_kernel_are_never_learned():
    x = np.array([[1.0], [1.0], [2.0]])
    y = np.array([[0.0], [1.0], [3.0]])
    flow = kernel_flow(lambda p, x: p * x, 0.0, x, y, loss=half, other=np.array([[1.0]]))
    slope = float((x * y).sum() / (x * x).sum())
    assert flow.limit().other == pytest.approx(slope)
    assert flow.at(1e6).other == pytest.approx(slope)


def test_an_infinite_kernel_acts_on_each_output(key, rng):
    net = nm.MLP((3, 1, 2), scaling="ntk")
    x, other, y = (
        rng.standard_normal((5, 3)),
        rng.standard_normal((2, 3)),
        rng.standard_normal((5, 2)),
    )
    small, cross = infinite_ntk(net, x), infinite_ntk(net, other, x)
    zero, zeros = np.zeros((5, 2)), np.zeros((2, 2))
    one = KernelFlow(small, zero, y, half, cross, zeros).at(2.0)
    eye = np.eye(2)
    two = KernelFlow(np.kron(small, eye), zero, y, half, np.kron(cross, eye), zeros).at(2.0)
    np.testing.assert_allclose(one.other, two.other, rtol=1e-11)
    params = net.init(key=key, dtype="float64")
    flow = kernel_flow(net, params, x, y, loss=half, other=other, kernel=infinite_ntk)
    starts = (np.asarray(net(params, v)) for v in (x, other))
    by_hand = KernelFlow(small, next(starts), y, half, cross, next(starts)).at(np.inf)
    np.testing.assert_allclose(flow.at(np.inf).other, by_hand.other, rtol=1e-11)
    np.testing.assert_array_equal(flow.at(np.inf).other, flow.limit().other)


def test_bad_arguments(problem):
    net, params, x, y, _ = problem
    flow = kernel_flow(net, params, x, y, loss=cross_entropy)
    assert flow.at(0.1).other is None
    with pytest.raises(ValueError, match="no squared error"):
        flow.limit()
    for t in (-1.0, np.nan):
        with pytest.raises(ValueError, match=r"`t` is (-1\.0|nan); pass a time"):
            flow.at(t)
    with pytest.raises(ValueError, match="`kernel` has shape"):
        KernelFlow(np.eye(3), y, y, half)
    with pytest.raises(ValueError, match="belong together"):
        KernelFlow(np.eye(6), y, y, half, cross=np.eye(6))
    with pytest.raises(ValueError, match="`y` has shape"):
        kernel_flow(net, params, x, y[:2], loss=half)
