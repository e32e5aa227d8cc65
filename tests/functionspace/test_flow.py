"""Flows in function space against flows of parameters; losses of data; the dense analogue."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuromanifold.functionspace.dense import (
    balanced_factors,
    balanced_flow,
    balanced_operator,
    dense_kernel,
    dense_parameter_flow,
    end_to_end_matrix,
    gauge_between,
    gram_differences,
    level_set_sample,
    rotate_factors,
)
from neuromanifold.functionspace.fiber import fiber
from neuromanifold.functionspace.flow import gradient_of, parameter_flow, riemannian_flow
from neuromanifold.functionspace.kernel import kernel_distance
from neuromanifold.functionspace.loss import FilterLoss, filter_loss
from neuromanifold.functionspace.rescale import norm_differences
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.models.init import Layer
from neuromanifold.numerics.precision import arithmetic


def filters(net, rng):
    return tuple(rng.normal(size=shape) for shape in net.filter_shapes)


def data(net, rng):
    n = int(np.prod(net.end_to_end_shape))
    x = rng.normal(size=(n, *net.signal_shape((2,) * net.dimension))) / (4 * n) ** 0.5
    return x, rng.normal(size=(n, *(2,) * net.dimension)) / (4 * n) ** 0.5


@pytest.mark.parametrize(
    "net",
    [
        LinearConvNet((3, 2), (2, 3)),
        LinearConvNet(((2, 2), (2, 3)), ((2, 1), (1, 2))),
        LinearConvNet(((2, 2, 1), (1, 2, 2)), ((1, 2, 1),) * 2),
    ],
    ids=repr,
)
def test_the_squared_error_is_a_quadratic_form_of_the_filter(net, rng):
    """[riemann, before Lem 18]: Σ‖α(x) − y‖² = (v − u)ᵀA(v − u) + constant with A positive
    definite.
    """
    x, y = data(net, rng)
    loss = filter_loss(net, x, y)
    assert np.linalg.eigvalsh(loss.A).min() > 0
    for _ in range(3):
        params = filters(net, rng)
        with arithmetic():
            direct = float(np.sum((np.asarray(net(params, x)) - y) ** 2))
            slope = jax.grad(lambda p: jnp.sum((net(p, x) - y) ** 2))(
                tuple(map(jnp.asarray, params))
            )
        v = net.end_to_end(params)
        assert abs(loss(v) - direct) < 1e-11 * direct
        from neuromanifold.functionspace.kernel import filter_jacobian

        pulled = filter_jacobian(net, params).T @ loss.gradient(v).ravel()
        np.testing.assert_allclose(
            pulled, np.concatenate([np.ravel(s) for s in slope]), atol=1e-10 * np.abs(pulled).max()
        )
    with pytest.raises(
        ValueError, match=r"`x` has patches of rank .*; a positive definite loss on"
    ):
        filter_loss(net, x[:1] * 0 + 1.0, y[:1])
    with pytest.raises(ValueError, match=r"`y` has shape"):
        filter_loss(net, x, y[:, :1])


@pytest.mark.parametrize(
    "net",
    [
        LinearConvNet((3, 2), (2, 1)),
        LinearConvNet((2, 2, 2), (2, 2, 1)),
        LinearConvNet(((2, 2), (3, 2)), ((1, 1), (1, 1))),
    ],
    ids=repr,
)
def test_function_space_alone_follows_the_parameters(net, rng):
    """[riemann, Thm 4, 13]: to 1e-8 at t = 5, for δ ≠ 0; with another δ the flow is another."""
    params = filters(net, rng)
    loss, delta, v = (
        filter_loss(net, *data(net, rng)),
        norm_differences(net, params),
        net.end_to_end(params),
    )
    options = {"times": 11, "rtol": 1e-11, "atol": 1e-12}
    down, up = (
        parameter_flow(net, params, loss=loss, t1=5.0, **options),
        riemannian_flow(net, v, delta, loss=loss, t1=5.0, **options),
    )
    np.testing.assert_allclose(up.v, down.v, rtol=0, atol=1e-8 * np.linalg.norm(v))
    assert down.drift < 1e-10
    assert up.off < 1e-8
    assert loss(down.v[-1]) < loss(v)
    other = riemannian_flow(net, v, delta + 1.0, loss=loss, t1=0.5, times=2, rtol=1e-7, atol=1e-8)
    assert np.abs(other.v[-1] - down.v[1]).max() > 1e-4 * np.linalg.norm(v)


@pytest.mark.parametrize(
    "net",
    [LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1))), LinearConvNet((3, 2), (1, 1))],
    ids=repr,
)
def test_mates_with_different_kernels_part(net, rng):
    """Thm 13 fails for like layers with δ ≠ 0, as stride one does in one dimension: one (v, δ),
    two flows.
    """
    loss, over = filter_loss(net, *data(net, rng)), None
    while over is None or over.kernel_spread < 0.1:
        over = fiber(net, net.end_to_end(filters(net, rng)), 1.0)
    with pytest.raises(ValueError, match="choose one with `params`"):
        riemannian_flow(net, over.v, 1.0, loss=loss, t1=1.0)
    ends = []
    for params in over.up_to_signs[:2]:
        down = parameter_flow(net, params, loss=loss, t1=0.5, times=3, rtol=1e-11)
        up = riemannian_flow(
            net, over.v, 1.0, loss=loss, t1=0.5, params=params, times=3, rtol=1e-11
        )
        np.testing.assert_allclose(up.v, down.v, rtol=0, atol=1e-8 * np.linalg.norm(over.v))
        ends.append(down.v[-1])
    assert np.linalg.norm(ends[0] - ends[1]) > 1e-4 * np.linalg.norm(over.v)
    signs = [
        parameter_flow(net, params, loss=loss, t1=0.5, times=3, rtol=1e-10).v[-1]
        for params in over.params[:2]
    ]
    np.testing.assert_allclose(signs[0], signs[1], atol=1e-10)


def test_the_parameter_flow_is_that_of_the_network_on_the_data(rng):
    """The room dynamics integrates the network itself, by another solver, without filters or
    kernels.
    """
    from neuromanifold.dynamics.flow import gradient_flow
    from neuromanifold.models.losses import squared_error

    net = LinearConvNet((3, 2), (2, 1))
    params, (x, y) = filters(net, rng), data(net, rng)
    ours = parameter_flow(net, params, loss=filter_loss(net, x, y), t1=2.0, times=3)
    theirs = gradient_flow(net, params, x, y, t1=2.0, loss=squared_error, saveat=ours.t[1:])
    for index in (1, 2):
        end = tuple(w[index - 1] for w in theirs.params)
        np.testing.assert_allclose(net.end_to_end(end), ours.v[index], rtol=0, atol=1e-8)


def test_any_loss_and_bad_times(rng):
    net = LinearConvNet((3, 2), (2, 1))
    params, u = filters(net, rng), rng.normal(size=5)
    quadratic, written = FilterLoss(np.eye(5), u), lambda v: jnp.sum((v - u) ** 2)
    first, second = (
        parameter_flow(net, params, loss=loss, t1=1.0, times=3, rtol=1e-8)
        for loss in (quadratic, written)
    )
    np.testing.assert_allclose(first.v, second.v, atol=1e-9)
    assert gradient_of(written)(u).dtype == np.float64
    with pytest.raises(ValueError, match=r"`t1` is 0.0; pass a positive time."):
        parameter_flow(net, params, loss=quadratic, t1=0.0)


def test_a_flow_that_is_not_euclidean_does_not_conserve_the_invariants(rng):
    """Control for [riemann, Eq 1]: scaling one layer's speed changes δ."""
    net = LinearConvNet((3, 2), (2, 1))
    params, loss = filters(net, rng), FilterLoss(np.eye(5), rng.normal(size=5))
    from neuromanifold.functionspace.kernel import filter_jacobian

    slope = filter_jacobian(net, params).T @ loss.gradient(net.end_to_end(params))
    change = [2 * params[0] @ slope[:3], 2 * params[1] @ slope[3:]]
    assert abs(change[1] - change[0]) < 1e-12 * abs(change[0])
    assert abs(change[1] - 3 * change[0]) > 0.1 * abs(change[0])


@pytest.mark.parametrize("depth, d", [(2, 2), (2, 3), (3, 3), (4, 2)])
def test_balanced_dense_networks(depth, d, rng):
    """[riemann, Eq 6, 7, Thm 14]: one kernel, one orbit of orthogonal matrices, one flow of the
    product.
    """
    W = rng.normal(size=(d, d))
    first = balanced_factors(W, depth)
    np.testing.assert_allclose(end_to_end_matrix(first), W, atol=1e-13)
    assert max(np.abs(Delta).max() for Delta in gram_differences(first)) < 1e-13
    A = balanced_operator(W, depth)
    np.testing.assert_allclose(
        dense_kernel(first).matrix, A.matrix, atol=1e-12 * np.linalg.norm(A.matrix)
    )
    Z = rng.normal(size=(d, d))
    np.testing.assert_allclose(A.matrix @ Z.ravel(), A(Z).ravel(), rtol=1e-12)
    rotations = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(depth - 1)]
    turned = rotate_factors(first, rotations)
    np.testing.assert_allclose(
        dense_kernel(turned).matrix, A.matrix, atol=1e-12 * np.linalg.norm(A.matrix)
    )
    for second in (turned, *level_set_sample(first, 2)):
        gauge = gauge_between(first, second)
        assert gauge.orthogonality < 1e-8
        assert gauge.residual < 1e-8
    skew = rotate_factors(turned, [np.eye(d)] * (depth - 1))
    assert gauge_between(first, (2 * skew[0], *skew[1:-1], skew[-1] / 2)).orthogonality > 1
    loss = FilterLoss(np.eye(d * d), rng.normal(size=(d, d)))
    down, up = (
        dense_parameter_flow(turned, loss=loss, t1=5.0, times=6),
        balanced_flow(W, depth, loss=loss, t1=5.0, times=6),
    )
    np.testing.assert_allclose(up.W, down.W, rtol=0, atol=1e-8 * np.linalg.norm(W))
    assert down.drift < 1e-10


def test_dense_kernels_are_those_of_the_jacobian(rng):
    shapes = [(3, 2), (4, 3), (2, 4)]
    params = tuple(rng.normal(size=shape) for shape in shapes)
    with arithmetic():
        blocks = jax.jacobian(lambda p: p[2] @ p[1] @ p[0])(tuple(map(jnp.asarray, params)))
        J = np.concatenate([np.asarray(b).reshape(4, -1) for b in blocks], axis=1)
    np.testing.assert_allclose(
        dense_kernel(params).matrix, J @ J.T, atol=1e-12 * np.linalg.norm(J) ** 2
    )
    np.testing.assert_allclose(
        dense_kernel([Layer(W) for W in params]).matrix,
        J @ J.T,
        atol=1e-12 * np.linalg.norm(J) ** 2,
    )
    wide = balanced_factors(rng.normal(size=(2, 4)), 3)
    np.testing.assert_allclose(
        dense_kernel(wide).matrix, balanced_operator(end_to_end_matrix(wide), 3).matrix, atol=1e-12
    )


def test_unbalanced_dense_kernels_depend_on_the_parameters(rng):
    """[riemann, Ex 20], with what it leaves out: width one and Δ = c·I do not."""
    generic = tuple(rng.normal(size=(2, 2)) for _ in range(2))
    mates = level_set_sample(generic, 3)
    assert (
        max(
            kernel_distance(dense_kernel(generic).matrix, dense_kernel(mate).matrix)
            for mate in mates
        )
        > 1e-3
    )
    W = rng.normal(size=(2, 2))
    values, U = np.linalg.eigh(W @ W.T + 2 * np.eye(2))
    scalar = (W, (U * np.sqrt(values)) @ U.T)
    np.testing.assert_allclose(gram_differences(scalar)[0], 2 * np.eye(2), atol=1e-12)
    narrow = (rng.normal(size=(1, 2)), rng.normal(size=(3, 1)))
    for params in (scalar, narrow):
        mates = level_set_sample(params, 3)
        assert len(mates) == 3
        assert (
            max(
                kernel_distance(dense_kernel(params).matrix, dense_kernel(mate).matrix)
                for mate in mates
            )
            < 1e-7
        )


def test_dense_parameters_that_are_refused():
    with pytest.raises(
        ValueError,
        match=r"`params\[1\]` has shape \(2, 3\) but layer 0 gives 2 outputs; order them W_1 first.",
    ):
        dense_kernel((np.ones((2, 2)), np.ones((2, 3))))
    with pytest.raises(ValueError, match="pass one matrix per layer, the first layer first"):
        dense_kernel((np.ones(3),))
    with pytest.raises(
        ValueError, match=r"`depth` is 0; pass a whole number of layers, one or more."
    ):
        balanced_operator(np.eye(2), 0)
    with pytest.raises(
        ValueError, match=r"`rotations` has 2 entries; 2 layers have 1 hidden spaces."
    ):
        rotate_factors((np.eye(2), np.eye(2)), [np.eye(2)] * 2)
