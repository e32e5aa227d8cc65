"""Leaving samples out by the kernel against refits, and the influence function against derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm

RNG = np.random.default_rng(0)
NET = nm.MLP((2, 4, 2), "tanh")
WIDE = nm.MLP((2, 30, 2), "tanh")
X, Y, OTHER = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 2)), RNG.normal(size=(5, 2))


def start(net: nm.MLP):
    return jax.tree.map(np.asarray, net.init(key=jax.random.key(0), dtype=jnp.float64))


def refit(net, params, x, y, other, ridge, scale, weights=None):
    """The outputs at `other` of the linearised model that minimises scale·Σ wᵢ‖fᵢ − yᵢ‖² + (ρ/2)‖δ‖²."""
    with jax.enable_x64(True):
        J, K = (nm.jacobian(net, params, points) for points in (x, other))
        r = (np.asarray(net(params, x)) - y).ravel()
        f = np.asarray(net(params, other))
    w = 2 * scale * np.repeat(np.ones(len(x)) if weights is None else weights, y.shape[1])
    A = np.vstack([np.sqrt(w)[:, None] * J, np.sqrt(ridge) * np.eye(J.shape[1])])
    delta = np.linalg.lstsq(A, -np.concatenate([np.sqrt(w) * r, np.zeros(J.shape[1])]), rcond=None)
    return f + (K @ delta[0]).reshape(f.shape)


@pytest.mark.parametrize(
    "net, ridge",
    [(NET, 1e-2), (WIDE, 1e-2), (WIDE, 0.0)],
    ids=["overdetermined", "wide", "interpolating"],
)
def test_leaving_one_out_is_refitting(net, ridge):
    params = start(net)
    found = nm.influence(net, params, X, Y, OTHER, ridge=ridge)
    scale = 1 / Y.size
    whole = refit(net, params, X, Y, OTHER, ridge, scale)
    assert np.allclose(found.fitted, whole, rtol=0, atol=1e-9)
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        alone = refit(net, params, X[rest], Y[rest], OTHER, ridge, scale)
        assert np.allclose(found.leave_one_out[:, :, i], alone - whole, rtol=0, atol=1e-8)
    # Another sample's change is another: the comparison can fail.
    assert not np.allclose(found.leave_one_out[:, :, 0], found.leave_one_out[:, :, 1], atol=1e-4)


def test_without_a_ridge_least_squares_are_exact():
    x = RNG.normal(size=(20, 3))
    y = x @ np.ones((3, 1)) + RNG.normal(size=(20, 1))
    found = nm.influence(lambda w, x: x @ w, np.zeros((3, 1)), x, y, np.eye(3))
    whole = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.allclose(found.fitted, whole, atol=1e-12)
    for i in range(20):
        rest = np.arange(20) != i
        alone = np.linalg.lstsq(x[rest], y[rest], rcond=None)[0]
        assert np.allclose(found.leave_one_out[:, :, i], alone - whole, atol=1e-12)
    residual = y - x @ whole
    leverage = np.einsum("ni,ij,nj->n", x, np.linalg.inv(x.T @ x), x)
    # Cook's two formulas differ by 1/(1 − leverage).
    ratio = found.first_order / found.leave_one_out
    assert np.allclose(ratio, (1 - leverage)[None, None], atol=1e-9)
    assert np.isfinite(residual).all()


def test_first_order_is_the_derivative_in_the_weight_of_a_sample():
    params, ridge = start(NET), 1e-2
    found = nm.influence(NET, params, X, Y, OTHER, ridge=ridge)
    step, i = 1e-5, 3
    values = []
    for sign in (1, -1):
        weights = np.ones(len(X))
        weights[i] += sign * step
        values.append(refit(NET, params, X, Y, OTHER, ridge, 1 / Y.size, weights))
    derivative = (values[0] - values[1]) / (2 * step)
    assert np.allclose(found.first_order[:, :, i], -derivative, atol=1e-6)


def test_any_loss_takes_a_newton_step():
    """For cross entropy: the minimiser of the quadratic model without the sample, solved directly."""
    params, ridge, i = start(NET), 0.1, 2
    classes = np.eye(2)[RNG.integers(2, size=len(X))]
    found = nm.influence(NET, params, X, classes, OTHER, loss=nm.losses.cross_entropy, ridge=ridge)
    with jax.enable_x64(True):
        J, K = (np.asarray(nm.jacobian(NET, params, points)) for points in (X, OTHER))
        logits = np.asarray(NET(params, X))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    H = np.zeros((24, 24))
    for k in range(12):
        H[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = (np.diag(p[k]) - np.outer(p[k], p[k])) / 12
    g = ((p - classes) / 12).ravel()

    def outputs(rows: np.ndarray) -> np.ndarray:
        A, B, c = J[rows], H[np.ix_(rows, rows)], g[rows]
        return -K @ np.linalg.solve(A.T @ B @ A + ridge * np.eye(A.shape[1]), A.T @ c)

    rest = np.delete(np.arange(24), [2 * i, 2 * i + 1])
    expected = (outputs(rest) - outputs(np.arange(24))).reshape(5, 2)
    assert np.allclose(found.leave_one_out[:, :, i], expected, atol=1e-10)


@pytest.mark.parametrize(
    "x, y, options, error, said",
    [
        (X, Y, {"ridge": -1.0}, ValueError, "`ridge` is -1.0; pass zero or a positive number"),
        (X, Y, {"memory": 100}, MemoryError, "pass fewer samples, or a larger `memory`"),
        (
            X,
            Y,
            {"loss": lambda p, t: ((p - t).sum()) ** 2},
            ValueError,
            "`loss` joins samples",
        ),
        (
            X,
            np.eye(2)[np.zeros(12, int)],
            {"loss": nm.losses.cross_entropy},
            ArithmeticError,
            "pass `ridge`, a positive number",
        ),
    ],
)
def test_what_cannot_be_answered_is_said(x, y, options, error, said):
    with pytest.raises(error, match=said):
        nm.influence(NET, start(NET), x, y, OTHER, **options)


def test_a_sample_that_alone_determines_a_parameter_is_named():
    x = np.eye(2)[[0, 0, 0, 1]]
    with pytest.raises(
        ArithmeticError, match="without sample 3 some parameters are not determined"
    ):
        nm.influence(lambda w, x: x @ w, np.zeros((2, 1)), x, np.ones((4, 1)), x)
