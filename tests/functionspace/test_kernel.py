"""Polynomials, kernels and rescalings: exact matrices, autodiff as second route, controls."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuromanifold.functionspace.kernel import filter_jacobian, filter_kernel, filter_kernel_blocks
from neuromanifold.functionspace.polynomial import (
    compose_exactly,
    exact,
    factor_exactly,
    multiply,
    primitive,
    spread,
)
from neuromanifold.functionspace.rescale import norm_differences, rescale, sign_patterns
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.precision import arithmetic

NETS = [
    LinearConvNet((3, 2), (2, 1)),
    LinearConvNet((2, 3, 2), (3, 1, 2)),
    LinearConvNet(((2, 3), (3, 2)), ((1, 2), (2, 1))),
    LinearConvNet(((2, 2, 1), (1, 2, 2), (2, 1, 1)), ((2, 1, 1), (1, 2, 2), (1, 1, 1))),
]


def filters(net, rng):
    return tuple(rng.normal(size=shape) for shape in net.filter_shapes)


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_the_jacobian_is_that_of_the_network(net, rng):
    params = filters(net, rng)
    with arithmetic():
        blocks = jax.jacobian(net.end_to_end)(tuple(map(jnp.asarray, params)))
        expected = np.concatenate(
            [np.asarray(b).reshape(np.prod(net.end_to_end_shape), -1) for b in blocks], axis=1
        )
    J = filter_jacobian(net, params)
    np.testing.assert_allclose(J, expected, rtol=0, atol=1e-14 * np.abs(expected).max())
    np.testing.assert_allclose(
        filter_kernel(net, params), expected @ expected.T, atol=1e-13 * np.abs(expected).max() ** 2
    )
    np.testing.assert_allclose(
        sum(filter_kernel_blocks(net, params)), J @ J.T, atol=1e-13 * np.abs(J).max() ** 2
    )


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_euler_the_rescalings_and_homogeneity(net, rng):
    """[riemann, Obs 3, Lem 5]: J θ = H μ(θ); (−w_l, w_{l+1}) is in the kernel; K_l has degree
    two in w_j, j ≠ l.
    """
    params = filters(net, rng)
    J, v = filter_jacobian(net, params), net.end_to_end(params).ravel()
    np.testing.assert_allclose(
        J @ np.concatenate([w.ravel() for w in params]), net.depth * v, atol=1e-12 * np.abs(v).max()
    )
    for l in range(net.depth - 1):
        moved = [np.zeros(shape) for shape in net.filter_shapes]
        moved[l], moved[l + 1] = -params[l], params[l + 1]
        assert (
            np.abs(J @ np.concatenate([w.ravel() for w in moved])).max() < 1e-12 * np.abs(J).max()
        )
    blocks = filter_kernel_blocks(net, params)
    scaled = filter_kernel_blocks(net, (3.0 * params[0], *params[1:]))
    np.testing.assert_allclose(scaled[0], blocks[0], rtol=1e-14)
    np.testing.assert_allclose(scaled[1], 9 * blocks[1], rtol=1e-13)


def test_the_printed_matrices_of_example_15():
    """K_1 and K_2 as printed, at integers that tell every product apart."""
    (a0, a1, a2), (b0, b1) = (2, 3, 5), (7, 11)
    K1 = [
        [b0 * b0, 0, b0 * b1, 0, 0],
        [0, b0 * b0, 0, b0 * b1, 0],
        [b0 * b1, 0, b0 * b0 + b1 * b1, 0, b0 * b1],
        [0, b0 * b1, 0, b1 * b1, 0],
        [0, 0, b0 * b1, 0, b1 * b1],
    ]
    K2 = [
        [a0 * a0, a0 * a1, a0 * a2, 0, 0],
        [a0 * a1, a1 * a1, a1 * a2, 0, 0],
        [a0 * a2, a1 * a2, a0 * a0 + a2 * a2, a0 * a1, a0 * a2],
        [0, 0, a0 * a1, a1 * a1, a1 * a2],
        [0, 0, a0 * a2, a1 * a2, a2 * a2],
    ]
    params = (np.array([a0, a1, a2], object), np.array([b0, b1], object))
    first, second = filter_kernel_blocks(LinearConvNet((3, 2), (2, 1)), params)
    assert first.tolist() == K1
    assert second.tolist() == K2
    assert filter_kernel_blocks(LinearConvNet((3, 2), (1, 1)), params)[0].tolist() != K1


def test_rational_kernels_are_exact(rng):
    net = NETS[2]
    params = tuple(exact(rng.integers(-5, 6, shape)) / 7 for shape in net.filter_shapes)
    K = filter_kernel(net, params)
    assert all(isinstance(entry, (Fraction, int)) for entry in K.ravel())
    floats = filter_kernel(net, tuple(w.astype(np.float64) for w in params))
    np.testing.assert_allclose(
        K.astype(np.float64), floats, rtol=0, atol=1e-14 * np.abs(floats).max()
    )


def test_sparse_polynomials_multiply_exactly(rng):
    w = rng.integers(-3, 4, (2, 3))
    assert spread(w, (2, 3)).shape == (3, 7)
    assert (spread(w, (2, 3))[::2, ::3] == w).all()
    p, q = exact(rng.integers(-3, 4, (3, 2))), exact([[0.5, 0.25]])
    whole = multiply(p, q)
    assert whole[0, 0] == p[0, 0] / 2
    assert whole.sum() == p.sum() * q.sum()
    assert primitive(exact([Fraction(1, 2), Fraction(1, 3)])) == [3, 2]
    assert compose_exactly(LinearConvNet((2, 2), (1, 1)), ([0.1, 1.0], [1.0, 1.0]))[0] == Fraction(
        0.1
    )
    product = multiply(
        multiply(exact([[1, 2], [3, 5]]), exact([[1, 2], [3, 5]])), exact([[1, 0, 1]])
    )
    assert [(factor.tolist(), power) for factor, power in factor_exactly(product)] == [
        ([[1, 0, 1]], 1),
        ([[1, 2], [3, 5]], 2),
    ]


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_one_rescaling_up_to_signs(net, rng, draws, tally):
    """[riemann, Prop 2, 12]: any δ is attained once up to signs; a second positive solution is
    searched for in vain.
    """
    cases = draws(40)
    for _ in range(cases):
        params = filters(net, rng)
        delta = rng.normal(size=net.depth - 1) * 10.0 ** rng.uniform(-3, 3)
        scaled = rescale(net, params, delta)
        assert len(scaled) == 2 ** (net.depth - 1) == len({tuple(s) for s in scaled.signs.tolist()})
        assert abs(np.prod(scaled.scales) - 1) < 1e-12
        assert (scaled.scales > 0).all()
        assert scaled.residual < 1e-14 * (1 + np.abs(delta).sum())
        for member in scaled.all_params:
            v = net.end_to_end(params)
            np.testing.assert_allclose(
                net.end_to_end(member), v, rtol=0, atol=1e-12 * np.abs(v).max()
            )
        squared = np.array([np.sum(w * w) for w in params])
        offsets = np.concatenate([[0.0], np.cumsum(delta)])
        polynomial = np.poly(-offsets)
        polynomial[-1] -= squared.prod()
        roots = np.roots(polynomial)
        real = roots[np.abs(roots.imag) < 1e-9 * np.abs(roots).max()].real
        assert sum(((r + offsets) > 1e-9 * np.abs(offsets).max()).all() for r in real) <= 1
    tally(cases, of=cases, what="rescalings attain δ")


def test_extreme_invariants_are_attained():
    net = LinearConvNet((2, 2, 2), (1, 1, 1))
    params = (np.array([1e-8, 0.0]), np.array([1.0, 1.0]), np.array([3.0, 4.0]))
    for delta in ([1e6, -1e6], [-1e8, 5.0], [0.0, 0.0], [1e-12, 1e12]):
        scaled = rescale(net, params, delta)
        assert abs(np.log(scaled.scales).sum()) < 1e-10
        assert (scaled.scales > 0).all()
    assert sign_patterns(1).tolist() == [[1]]
    np.testing.assert_allclose(
        norm_differences(net, rescale(net, params, 2.5).params), [2.5, 2.5], rtol=1e-12
    )


def test_filters_and_invariants_that_are_refused():
    net = LinearConvNet((3, 2), (2, 1))
    with pytest.raises(
        ValueError, match=r"`params\[1\]` is zero, so no rescaling keeps the end-to-end filter"
    ):
        rescale(net, (np.ones(3), np.zeros(2)), [1.0])
    with pytest.raises(
        ValueError, match=r"`delta` has shape \(2,\); a network with 2 layers has 1 invariants."
    ):
        rescale(net, (np.ones(3), np.ones(2)), [1.0, 2.0])
    with pytest.raises(ValueError, match=r"`delta` is \[nan\]; pass finite numbers."):
        rescale(net, (np.ones(3), np.ones(2)), [np.nan])
    with pytest.raises(TypeError, match=r"`params` is complex; filters are real."):
        filter_kernel(net, (np.ones(3) * 1j, np.ones(2)))
    with pytest.raises(ValueError, match="function space needs a linear network"):
        filter_kernel(LinearConvNet((3, 2), (2, 1), activation="relu"), (np.ones(3), np.ones(2)))
