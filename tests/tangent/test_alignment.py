"""Alignments against the dense kernel, and the identity between alignment and the norm of the
loss gradient.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cast
import neuromanifold as nm

RTOL = 1e-11


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


# Each loss and its derivative with respect to the prediction, by hand.
LOSSES = {
    nm.losses.mse: lambda p, y: 2 * (p - y) / p.size,
    nm.losses.half_squared_error: lambda p, y: (p - y) / len(p),
    nm.losses.cross_entropy: lambda p, y: (softmax(p) - y) / len(p),
    nm.losses.huber: lambda p, y: np.clip(p - y, -1, 1) / p.size,
}


def values(member: cast.Member, params, x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(member.model(params, x)).reshape(len(x), -1)


def targets(rng: np.random.Generator, n: int, outputs: int) -> np.ndarray:
    """Rows that are positive and sum to one, so that every loss takes them."""
    return softmax(rng.normal(size=(n, outputs)))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("member", [cast.OUTPUTS, cast.TANH, cast.NTK, cast.SHARED], ids=str)
def test_alignment_is_the_quotient_by_the_dense_kernel(
    member: cast.Member, loss, rng: np.random.Generator
):
    params, x, lr = member.draw(rng), member.inputs(rng, 6), 0.3
    y = targets(rng, 6, member.outputs)
    jacobian = member.jacobian(params, x)
    f = 6 * LOSSES[loss](values(member, params, x), y).ravel()
    theta = lr * jacobian @ jacobian.T
    found = nm.alignment(member.model, params, x, y, loss=loss, lr=lr)
    np.testing.assert_allclose(found, f @ theta @ f / (f @ f), rtol=RTOL)
    # [teleport, P 5.1]
    gradient = jacobian.T @ f / 6
    np.testing.assert_allclose(gradient @ gradient, (f @ f) * found / (lr * 6**2), rtol=RTOL)
    assert (
        abs(
            found
            - nm.alignment(
                member.model, params, x, y + 0.1 * rng.normal(size=y.shape), loss=loss, lr=lr
            )
        )
        > 1e-6
    )


@pytest.mark.parametrize(
    "member", [cast.BIAS_FREE, cast.SQUARE, cast.EVERYTHING, cast.CONVOLUTION], ids=str
)
def test_alignment_lies_in_the_numerical_range_of_its_kernel(member: cast.Member, rng):
    params, x = member.draw(rng), member.inputs(rng, 6)
    jacobian = member.jacobian(params, x)
    shape = np.shape(member.model(params, x))
    y = rng.normal(size=shape)
    f = (values(member, params, x) - y.reshape(6, -1)).ravel()
    found = nm.alignment(member.model, params, x, y, loss=nm.losses.mse)
    np.testing.assert_allclose(found, np.sum((jacobian.T @ f) ** 2) / (f @ f), rtol=RTOL)
    assert 0 <= found <= np.linalg.eigvalsh(jacobian @ jacobian.T)[-1] * (1 + RTOL)


def test_alignment_does_not_depend_on_the_normalisation_of_the_loss_but_on_the_learning_rate(rng):
    params, x, y = cast.TANH.draw(rng), cast.TANH.inputs(rng, 6), rng.normal(size=(6, 2))
    found = [
        nm.alignment(cast.TANH.model, params, x, y, loss=loss)
        for loss in (
            nm.losses.mse,
            nm.losses.half_squared_error,
            lambda p, t: 7 * jnp.sum((p - t) ** 2),
        )
    ]
    np.testing.assert_allclose(found, found[0], rtol=RTOL)
    np.testing.assert_allclose(
        nm.alignment(cast.TANH.model, params, x, y, loss=nm.losses.mse, lr=0.5),
        found[0] / 2,
        rtol=RTOL,
    )


@pytest.mark.parametrize("member", [cast.OUTPUTS, cast.SHARED, cast.BIAS_FREE], ids=str)
def test_kernel_alignment_is_the_quotient_by_the_dense_kernel(
    member: cast.Member, rng: np.random.Generator
):
    params, x = member.draw(rng), member.inputs(rng, 6)
    y = rng.normal(size=(6, member.outputs))
    jacobian = member.jacobian(params, x)
    theta, v = jacobian @ jacobian.T, y.ravel()
    quotient = v @ theta @ v / (v @ v)
    spectral, frobenius = np.linalg.norm(theta, 2), np.linalg.norm(theta)
    assert spectral < 0.99 * frobenius
    np.testing.assert_allclose(
        nm.kernel_alignment(member.model, params, x, y), quotient / spectral, rtol=1e-8
    )
    np.testing.assert_allclose(
        nm.kernel_alignment(member.model, params, x, y, norm="spectral"),
        quotient / spectral,
        rtol=1e-8,
    )
    np.testing.assert_allclose(
        nm.kernel_alignment(member.model, params, x, y, norm="frobenius"),
        quotient / frobenius,
        rtol=1e-8,
    )


def test_kernel_alignment_is_one_along_the_leading_eigenvector_and_zero_across(
    rng: np.random.Generator,
):
    x = np.array([[1.0], [3.0]])
    assert nm.kernel_alignment(lambda p, x: p * x, 1.0, x, x) == pytest.approx(1, rel=1e-12)
    assert nm.kernel_alignment(
        lambda p, x: p * x, 1.0, x, np.array([[3.0], [-1.0]])
    ) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "measure",
    [lambda *a: nm.alignment(*a, loss=nm.losses.mse), nm.kernel_alignment],
    ids=["alignment", "kernel_alignment"],
)
@pytest.mark.parametrize(
    "y, text",
    [
        (np.ones((6, 1)), r"`y` has shape \(6, 1\).*\(6, 2\)"),
        (np.ones((5, 2)), r"`y` has shape \(5, 2\).*\(6, 2\)"),
        (np.full((6, 2), np.nan), r"`y` is nan at \[0, 0\]"),
    ],
)
def test_targets_that_do_not_fit_are_refused(
    measure, y: np.ndarray, text: str, rng: np.random.Generator
):
    with cast.unchecked(), pytest.raises(ValueError, match=text):
        measure(cast.TANH.model, cast.TANH.draw(rng), cast.TANH.inputs(rng, 6), y)


def test_an_unknown_norm_is_refused(rng: np.random.Generator):
    with cast.unchecked(), pytest.raises(ValueError, match="`norm` is 'nuclear'; pass"):
        nm.kernel_alignment(
            cast.TANH.model, cast.TANH.draw(rng), np.ones((6, 2)), np.ones((6, 2)), norm="nuclear"
        )
