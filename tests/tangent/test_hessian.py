"""Hessian norms, sharpness and stable learning rates: dense matrices, divergence just beyond the
bound, the width's slope.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.curvature import (
    curvatures,
    gauss_newton_curvature,
    largest_stable_lr,
    output_hessian_norm,
    sharpness,
)
from neuromanifold.tangent.prediction.linearize import linearize


def half(prediction, target):
    return ((prediction - target) ** 2).sum() / (2 * len(prediction))


def cross_entropy(prediction, target):
    return -(target * jax.nn.log_softmax(prediction)).sum() / len(prediction)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_norm_of_the_dense_hessian(activation, key, rng):
    net = nm.MLP((3, 7, 2), activation)
    params, x = net.init(key=key, dtype="float64"), rng.standard_normal((3, 3))
    found = output_hessian_norm(net, params, x, output=1, rtol=1e-10)
    with arithmetic():
        flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
        dense = [
            jax.hessian(lambda p, s=s: net(unravel(p), s[None])[0, 1])(flat) for s in jnp.asarray(x)
        ]
    np.testing.assert_allclose(found, [np.linalg.norm(np.asarray(h), 2) for h in dense], rtol=1e-8)


def test_a_linear_model_has_no_hessian(key, rng):
    net = nm.MLP((3, 1), "tanh")
    np.testing.assert_allclose(
        output_hessian_norm(net, net.init(key=key), rng.standard_normal((1, 3))), 0.0, atol=1e-12
    )


def test_gauss_newton_of_squared_errors_is_the_kernels_top_eigenvalue(key, rng):
    net = nm.MLP((3, 9, 2), "tanh")
    params, x, y = net.init(key=key), rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    top = np.linalg.eigvalsh(nm.ntk(net, jax.tree.map(np.float64, params), x))[-1]
    assert gauss_newton_curvature(net, params, x, y, loss=half) == pytest.approx(top / 6, rel=1e-9)


def test_gauss_newton_of_cross_entropy_against_the_dense_matrix(key, rng):
    net = nm.MLP((3, 9, 2), "tanh")
    params, x = net.init(key=key, dtype="float64"), rng.standard_normal((6, 3))
    y = np.eye(2)[rng.integers(0, 2, 6)]
    jacobian = nm.jacobian(net, params, x)
    with arithmetic():
        hessian = np.asarray(
            jax.hessian(cross_entropy)(jnp.asarray(net(params, x)), jnp.asarray(y))
        ).reshape(12, 12)
    expected = np.linalg.eigvalsh(jacobian.T @ hessian @ jacobian)[-1]
    found = gauss_newton_curvature(net, params, x, y, loss=cross_entropy)
    assert found == pytest.approx(expected, rel=1e-9)


def _loss_at(net, unravel, x, y):
    return lambda flat: half(net(unravel(flat), x), y)


def test_sharpness_is_the_largest_eigenvalue_of_the_hessian_and_not_of_largest_magnitude(key, rng):
    """Large residuals make the term Σ (∂loss/∂f)·∇²f outweigh the Gauss–Newton part."""
    net = nm.MLP((3, 5, 1), "tanh")
    params, x = net.init(key=key, dtype="float64"), rng.standard_normal((6, 3))
    signs = set()
    for y in (np.full((6, 1), 9.0), np.full((6, 1), -9.0), 9.0 * rng.standard_normal((6, 1))):
        with arithmetic():
            flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
            dense = np.asarray(jax.hessian(_loss_at(net, unravel, x, y))(flat))
        values = np.linalg.eigvalsh(dense)[::-1]
        signs.add(bool(-values[-1] > values[0]))
        assert sharpness(net, params, x, y, loss=half) == pytest.approx(values[0], rel=1e-8)
        np.testing.assert_allclose(
            curvatures(net, params, x, y, k=3, loss=half), values[:3], rtol=1e-7
        )
        assert values[0] != pytest.approx(
            gauss_newton_curvature(net, params, x, y, loss=half), rel=1e-2
        )
    assert True in signs, "no case had its largest magnitude at the negative end"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_descent_diverges_just_beyond_the_bound_and_not_before(momentum, key, rng):
    net = nm.MLP((3, 9, 2), "tanh")
    params, x, y = (
        net.init(key=key, dtype="float64"),
        rng.standard_normal((6, 3)),
        rng.standard_normal((6, 2)),
    )
    line = linearize(net, params)
    bound = largest_stable_lr(line, params, x, y, loss=half, momentum=momentum)
    newton = gauss_newton_curvature(net, params, x, y, loss=half)
    assert bound == pytest.approx(2 * (1 + momentum) / newton, rel=1e-8)

    def final_loss(lr):
        def step(state, _):
            p, m = state
            g = jax.grad(lambda q: half(line(q, x), y))(p)
            m = jax.tree.map(lambda a, b: momentum * a + b, m, g)
            return (jax.tree.map(lambda a, b: a - lr * b, p, m), m), None

        start = jax.tree.map(jnp.asarray, params)
        p, _ = jax.lax.scan(step, (start, jax.tree.map(jnp.zeros_like, start)), None, length=2000)[
            0
        ]
        return half(line(p, x), y)

    with arithmetic():
        run = jax.jit(final_loss)
        before, start, beyond = (
            float(run(0.99 * bound)),
            half(net(params, x), y),
            float(run(1.01 * bound)),
        )
    assert before < start < 100 * start < beyond


def test_the_norm_falls_like_one_over_root_width(rng, tally):
    widths = np.array([16, 32, 64, 128])
    x = rng.standard_normal((2, 10))
    norms = []
    for width in widths:
        net = nm.MLP((10, int(width), int(width), 1), "tanh", bias=False, scaling="ntk")
        norms.append(
            np.mean(
                [
                    output_hessian_norm(net, net.init(key=jax.random.key(s)), x, rtol=1e-4)
                    for s in range(3)
                ]
            )
        )
    slope = np.polyfit(np.log(widths), np.log(norms), 1)[0]
    tally(len(widths), of=len(widths), what=f"widths; fitted slope {slope:.3f}")
    assert slope == pytest.approx(-0.5, abs=0.1)


def test_bad_arguments(key):
    net = nm.MLP((3, 9, 2))
    params, x = net.init(key=key), np.ones((1, 3))
    with pytest.raises(ValueError, match="`output` is 2 but the model has 2 outputs"):
        output_hessian_norm(net, params, x, output=2)
    with pytest.raises(ValueError, match=r"`momentum` is 1\.0"):
        largest_stable_lr(net, params, x, np.ones((1, 2)), loss=half, momentum=1.0)


@pytest.mark.parametrize("width", [3, 20])
def test_the_derivative_of_sharpness_is_its_difference_quotient(width, key, rng, x64):
    """Below and above the size up to which the matrix itself is formed."""
    net = nm.MLP((2, width, 1), "tanh")
    x, y = rng.standard_normal((4, 2)), np.ones((4, 1))
    params = jax.tree.map(np.float64, net.init(key=key))
    leaves, structure = jax.tree.flatten(params)
    direction = [rng.standard_normal(leaf.shape) for leaf in leaves]

    def at(t):
        moved = [leaf + t * d for leaf, d in zip(leaves, direction, strict=True)]
        return sharpness(net, structure.unflatten(moved), x, y, rtol=1e-12)

    expected = (at(1e-5) - at(-1e-5)) / 2e-5
    start = jax.tree.map(jnp.asarray, params)
    for value in (lambda p: sharpness(net, p, x, y), jax.jit(lambda p: sharpness(net, p, x, y))):
        with warnings.catch_warnings():  # JAX's own, of an integer, through `jit` alone
            warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
            slope = jax.grad(value)(start)
        found = sum(np.vdot(g, d) for g, d in zip(jax.tree.leaves(slope), direction, strict=True))
        assert found == pytest.approx(expected, rel=1e-5 if x64 else 1e-4)
        along = jax.jvp(value, (start,), (structure.unflatten([*map(jnp.asarray, direction)]),))[1]
        assert along == pytest.approx(expected, rel=1e-5 if x64 else 1e-4)
    assert abs(at(1.0) - at(0.0)) > 1e-3  # it is not constant


def test_the_derivative_of_an_output_hessians_norm(key, rng):
    net = nm.MLP((2, 20, 1), "tanh")
    x, params = rng.standard_normal((2, 2)), jax.tree.map(np.float64, net.init(key=key))
    grown = jax.tree.map(lambda a: a * (1 + 1e-6), params)
    difference = output_hessian_norm(net, grown, x) - output_hessian_norm(net, params, x)
    with arithmetic():
        start = jax.tree.map(jnp.asarray, params)
        slope = jax.grad(lambda p: output_hessian_norm(net, p, x).sum())(start)
    found = sum(map(np.vdot, jax.tree.leaves(slope), jax.tree.leaves(params)))
    assert found == pytest.approx(difference.sum() / 1e-6, rel=1e-3)
