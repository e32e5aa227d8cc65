"""Gradient flow against closed forms: matrix exponentials, conservation laws, stopping times,
sliding on a kink.
"""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import neuromanifold as nm
from dynamics.compilations import compilations
from neuromanifold.dynamics import gradient_flow
from neuromanifold.models import losses

RTOL = 1e-10  # the default; errors of some hundred steps add up


def linear(params, x):
    return x @ params


def quadratic(x, y, start, t, c):
    """θ(t) = θ* + exp(−c XᵀX t)(θ_0 − θ*): the flow of ½c‖Xθ − y‖²."""
    optimum = np.linalg.lstsq(x, y, rcond=None)[0]
    return optimum + expm(-c * t * x.T @ x) @ (start - optimum)


def test_the_flow_of_a_quadratic_is_a_matrix_exponential(rng):
    x, y, start = rng.normal(size=(12, 3)), rng.normal(size=(12, 2)), rng.normal(size=(3, 2))
    flow = gradient_flow(linear, start, x, y, t1=3)  # mse: c = 2 / (12·2)
    times = np.linspace(0, 3, 32).reshape(4, 8)
    exact = np.array([quadratic(x, y, start, t, 1 / 12) for t in times.ravel()]).reshape(4, 8, 3, 2)
    np.testing.assert_allclose(flow.at(times), exact, rtol=100 * RTOL, atol=100 * RTOL)
    for t, params, loss in zip(flow.times, flow.params, flow.losses, strict=True):
        np.testing.assert_allclose(
            params, quadratic(x, y, start, t, 1 / 12), rtol=100 * RTOL, atol=100 * RTOL
        )
        np.testing.assert_allclose(loss, ((x @ params - y) ** 2).mean(), rtol=1e-13)
    assert flow.times[0] == 0 and flow.times[-1] == flow.t1 == 3 and not flow.stopped
    assert np.array_equal(flow.params[0], start) and (np.diff(flow.losses) < 0).all()
    assert flow.stats["accepted"] == len(flow.times) - 1 and flow.stats["solver"] == "Dopri8"
    assert repr(flow).startswith("Trajectory(t ≤ 3, complete, loss")


def test_a_stiff_flow_takes_few_implicit_steps():
    x, y, start = np.zeros((12, 3)), np.zeros((12, 2)), np.ones((3, 2))
    x[:3] = np.diag([1.0, 30.0, 300.0])
    options = {"t1": 3.0, "rtol": 1e-6, "atol": 1e-9}
    explicit = gradient_flow(linear, start, x, y, **options)
    implicit = gradient_flow(linear, start, x, y, stiff=True, **options)
    exact = np.exp(-3.0 / 12 * np.array([1.0, 900.0, 90000.0]))[:, None] * start
    for flow in (explicit, implicit):
        np.testing.assert_allclose(flow.params[-1], exact, rtol=1e-4, atol=1e-6)
    assert (
        implicit.stats["solver"] == "Kvaerno5"
        and implicit.stats["accepted"] < explicit.stats["accepted"] / 10
    )
    with pytest.raises(
        ArithmeticError,
        match=r"more than \d+ steps, having come to t = .* of 3; pass `stiff=True` if",
    ):
        gradient_flow(linear, start, x, y, max_steps=300, **options)


LINEAR_NET = nm.MLP((3, 4, 2), "identity", bias=False)


def balance(params, weight: float = 1.0) -> np.ndarray:
    """W₂ᵀW₂ − weight · W₁W₁ᵀ: conserved for weight 1, and for 1/3 where the first layer moves
    three times as fast.
    """
    first, second = (layer.weight for layer in params)
    return second.mT @ second - weight * first @ first.mT


def _faster_first_layer(params):
    return lambda gradient: (jax.tree.map(lambda a: 3 * a, gradient[0]), gradient[1])


def _late(t, params):
    return t > 0.5


def test_linear_networks_conserve_their_balance_with_respect_to_the_metric(rng):
    params = (nm.Layer(rng.normal(size=(4, 3))), nm.Layer(rng.normal(size=(2, 4))))
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    euclidean = gradient_flow(LINEAR_NET, params, x, y, t1=1.0)
    other = gradient_flow(LINEAR_NET, params, x, y, t1=1.0, metric=_faster_first_layer, event=_late)
    for flow, weight in ((euclidean, 1.0), (other, 1 / 3)):
        kept = abs(balance(flow.params, weight) - balance(params, weight)).max()
        lost = abs(balance(flow.params, 4 / 3 - weight) - balance(params, 4 / 3 - weight)).max()
        assert kept < 1000 * RTOL and lost > 1e-2
    assert not euclidean.stopped and other.stopped
    assert other.times[-2] <= 0.5 < other.times[-1] == other.t1 < 1


def scalar(params, x):
    return params * x


def _half_way(t, params):
    return params - 1.0


def follow(**options):
    """θ(t) = 2(1 − e⁻ᵗ), solved three steps at a time."""
    one, two = np.array([[1.0]]), np.array([[2.0]])
    given = {"t1": 5.0, "loss": losses.half_squared_error, "memory": 20 * 8 * 3}
    return gradient_flow(scalar, np.array(0.0), one, two, **{**given, **options})


def test_pieces_join():
    times = np.linspace(0, 5, 101)
    flow = follow()
    assert len(flow.interpolations) > 3
    np.testing.assert_allclose(
        flow.at(times), 2 - 2 * np.exp(-times), rtol=100 * RTOL, atol=100 * RTOL
    )
    saved = follow(saveat=[0.2, 5.0], dense=False)
    assert saved.times.tolist() == [0.2, 5.0]
    np.testing.assert_allclose(saved.params, 2 - 2 * np.exp(-saved.times), rtol=100 * RTOL)
    np.testing.assert_allclose(
        saved.losses, 2 * np.exp(-2 * saved.times), rtol=100 * RTOL / np.exp(-5)
    )
    with pytest.raises(ValueError, match=r"`at` needs a trajectory computed with `dense=True`"):
        saved.at(0.3)
    with pytest.raises(ValueError, match=r"`t` is -1\.0; the trajectory runs from 0 to 5\.0"):
        flow.at([0.5, -1.0])


def test_an_event_stops_the_flow_at_its_zero():
    flow = follow(event=_half_way)
    assert flow.stopped and "stopped by its event" in repr(flow)
    np.testing.assert_allclose(flow.t1, np.log(2), rtol=100 * RTOL)
    np.testing.assert_allclose(flow.params[-1], 1.0, rtol=100 * RTOL)
    assert (flow.times <= flow.t1).all()
    saved = follow(event=_half_way, saveat=[0.0, 0.1, 0.5, 4.0])
    np.testing.assert_allclose(saved.times, [0.0, 0.1, 0.5, np.log(2)], rtol=100 * RTOL)
    np.testing.assert_allclose(saved.params, 2 - 2 * np.exp(-saved.times), rtol=100 * RTOL)
    with pytest.raises(ValueError, match=r"`t` is 1\.0; the trajectory runs from 0 to 0\.693"):
        flow.at(1.0)


def test_float64_whatever_comes_in_and_nothing_compiled_twice(x64: bool):
    def again():
        start, one, two = jnp.float32(0.0), jnp.ones((1, 1)), jnp.full((1, 1), 2.0)
        flow = gradient_flow(
            scalar, start, one, two, t1=4, loss=losses.half_squared_error, memory=20 * 8 * 3
        )
        return flow, flow.at(1.0)

    again()
    with compilations() as second:
        flow, value = again()
    assert second == []
    assert flow.params.dtype == flow.losses.dtype == value.dtype == np.float64
    np.testing.assert_allclose(value, 2 - 2 * np.exp(-1), rtol=100 * RTOL)


def folded(params, x):
    return jnp.abs(params) * x


def test_a_flow_that_slides_along_a_kink_needs_a_smallest_step():
    """½(|θ| + 1)² draws θ to 0 from both sides: θ(t) = 2e⁻ᵗ − 1 until log 2, and 0 from there
    on.
    """
    one = np.array([[1.0]])
    options = {"t1": 2.0, "loss": losses.half_squared_error}
    with pytest.raises(
        ArithmeticError,
        match=r"come to t = 0\.693147 of 2; .* `dtmin=` if it may slide along a kink",
    ):
        gradient_flow(folded, np.array(1.0), one, -one, max_steps=1000, **options)
    flow = gradient_flow(folded, np.array(1.0), one, -one, dtmin=1e-3, **options)
    exact = np.maximum(2 * np.exp(-flow.times) - 1, 0)
    # Near the kink a field of ±(1 + |θ|) is followed for 1e-3, in stages whose weights alternate.
    reach = 1e-3 * np.abs(diffrax.Dopri8.tableau.b_sol).sum()
    assert abs(flow.params - exact).max() < 1.01 * reach
