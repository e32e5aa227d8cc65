"""The tangent kernel: the layerwise trace, Theorem 7, Corollary 8, Proposition 9."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from bottleneck_room.networks import near_isometric, random_params
from neuromanifold.bottleneck import (
    activation_bound,
    balance,
    balance_defect,
    bottleneck_frames,
    kernel_curvature,
    ntk_trace_by_layer,
    planarity_bound,
    segment_bound,
)
from neuromanifold.bottleneck.passage import squared_norm

NETS = [
    nm.MLP((3, 5, 4, 2)),
    nm.MLP((3, 5, 4, 2), bias=False),
    nm.MLP((2, 4, 4, 4, 3), nm.leaky_relu(0.5)),
    nm.MLP((3, 4, 2), scaling="ntk"),
]


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_the_trace_by_layer_sums_to_the_trace_of_the_kernel(net, rng):
    params, x = random_params(rng, net.widths, net.bias), rng.normal(size=(6, net.widths[0]))
    traces = ntk_trace_by_layer(net, params, x)
    kernel = nm.ntk(net, params, x, trace=True)
    np.testing.assert_allclose(traces.sum(axis=1), np.diag(kernel), rtol=1e-12)
    J = nm.jacobian(net, params, x).reshape(6, net.widths[-1], -1)
    sizes = np.cumsum(
        [0, *(p.weight.size + (0 if p.bias is None else p.bias.size) for p in params)]
    )
    by_layer = [
        np.sum(J[:, :, a:b] ** 2, axis=(1, 2)) for a, b in zip(sizes[:-1], sizes[1:], strict=True)
    ]
    np.testing.assert_allclose(traces, np.stack(by_layer, axis=1), rtol=1e-12)
    assert np.all(ntk_trace_by_layer(net, params, x, bias=False) <= traces * (1 + 1e-15))


def test_balancing_keeps_the_function_and_is_the_cheapest_scaling(rng, draws, tally):
    net = nm.MLP((3, 6, 5, 6, 2))
    cheaper, total = 0, draws(20)
    for _ in range(total):
        params = random_params(rng, net.widths)
        balanced = balance(net, params)
        x = rng.normal(size=(10, 3))
        np.testing.assert_allclose(net(balanced, x), net(params, x), rtol=1e-9, atol=1e-12)
        assert balance_defect(net, balanced) < 1e-12
        scales = [np.exp(0.2 * rng.normal(size=w)) for w in net.widths[1:-1]]
        ends = [np.ones(3), *scales, np.ones(2)]
        other = tuple(
            nm.Layer(p.weight * (b[:, None] / a[None, :]), p.bias * b)
            for p, a, b in zip(balanced, ends[:-1], ends[1:], strict=True)
        )
        assert squared_norm(net, other) >= squared_norm(net, balanced) * (1 - 1e-12)
        cheaper += squared_norm(net, balanced) < squared_norm(net, params)
    tally(cheaper, of=total, what="random networks made cheaper")


def test_theorem_7_holds_at_balanced_parameters(rng, draws, tally):
    net = nm.MLP((3, 6, 6, 6, 3))
    total, used = draws(60), 0
    for case in range(total):
        params = near_isometric(rng, net.widths, 1 + case % 3, 10.0 ** rng.uniform(-4, 0))
        params = balance(net, params if case % 4 else random_params(rng, net.widths))
        x = np.abs(rng.normal(size=(5, 3)))
        x = x[[int(bottleneck_frames(net, params, p[None]).rank) > 0 for p in x]]
        if len(x):
            for rank in (None, 1):
                sides = activation_bound(net, params, x, rank=rank)
                assert sides.hypotheses["balanced"]
                assert sides.holds
            used += 1
    tally(used, of=total, what="balanced networks with a Jacobian of positive rank")


def test_theorem_7_needs_balance():
    """f(x) = x as 1.1 then 1/1.1: 1 + 1.21 exceeds the right side 2.112."""
    net = nm.MLP((1, 1, 1), bias=False)
    sides = activation_bound(
        net, (nm.Layer(np.array([[1.1]])), nm.Layer(np.array([[1 / 1.1]]))), np.ones((1, 1))
    )
    assert not sides.hypotheses["balanced"]
    assert not sides.holds
    np.testing.assert_allclose(sides.left, 2.21)


def test_corollary_8_holds_for_every_fraction(rng, draws, tally):
    net = nm.MLP((4, *[6] * 9, 4))
    total, positive = draws(20), 0
    for _ in range(total):
        params = balance(net, near_isometric(rng, net.widths, 2, 10.0 ** rng.uniform(-3, -0.5)))
        x = np.abs(rng.normal(size=(30, 4)))
        x = x[[bottleneck_frames(net, params, p[None]).rank >= 2 for p in x]]
        for averaged in (True, False):
            found = planarity_bound(net, params, x, rank=2, averaged=averaged)
            assert found.hypotheses["balanced"]
            assert found.holds
        positive += bool(found.values.max() > 1e-6)
        m = 3
        p = m / net.depth
        assert np.sum(found.values > found.bound(p)) <= m, "the same statement, counted directly"
    tally(positive, of=total, what="networks whose representations leave the plane")


def test_corollary_8_with_the_averaged_trace_is_false():
    """Printed with c = (1/N) Tr Θ(X, X)/L; Theorem 7 gives the trace of each point in its own term,
    and that holds.

    f(x) = σ(x₁) + η²σ(x₂), balanced, k = 1, c₁ = 2η², N = η⁻⁴ = 1024. All points but one, (M, 0),
    see the first neuron; a far one, (0, M√N/η), the second, where Jf is small and the activations
    are large. Both singular values of α̃_1(X)/√N are about M; the printed bound at p = ½ is about
    4ηM = 0.71M, so one layer of two is above it. With the smallest |Jf| of the sample in the first
    factor instead of the largest it would hold; the statement leaves that x open.
    """
    n, size = 1024, 100.0
    eta = n**-0.25
    net = nm.MLP((2, 2, 1), bias=False)
    params = (nm.Layer(np.diag([1.0, eta])), nm.Layer(np.array([[1.0, eta]])))
    x = np.array([[size, -1e-3]] * (n - 1) + [[-1e-3, size * np.sqrt(n) / eta]])
    printed = planarity_bound(net, params, x, rank=1)
    pointwise = planarity_bound(net, params, x, rank=1, averaged=False)
    assert printed.hypotheses["balanced"]
    np.testing.assert_allclose(printed.budget, 2 * eta**2, rtol=1e-9)
    np.testing.assert_allclose(printed.values, [size, 0.0], rtol=1e-2)
    assert np.sum(printed.values > printed.bound(0.49)) == 1, (
        "one layer of two is above, more than 49 %"
    )
    assert not printed.holds
    assert pointwise.holds


def mixed_derivative(net, params, point):
    """∂²_{xy}Θ(x, y) at y = x by automatic differentiation of the kernel, as a matrix of order
    d_in·d_out.
    """
    flat = jax.flatten_util.ravel_pytree

    def gradients(x):
        J = jax.jacrev(lambda p: net(p, x[None])[0])(params)
        return jax.vmap(lambda i: flat(jax.tree.map(lambda a: a[i], J))[0])(
            jnp.arange(net.widths[-1])
        )

    slope = jax.jacfwd(gradients)(point)
    d = (
        slope.reshape(net.widths[-1], -1, net.widths[0])
        .transpose(2, 0, 1)
        .reshape(-1, slope.shape[1])
    )
    return d @ d.T


@pytest.mark.parametrize("net", NETS[:1], ids=repr)
def test_the_mixed_second_derivative_two_ways(net, rng):
    params, x = random_params(rng, net.widths, net.bias), rng.normal(size=(4, net.widths[0]))
    found = kernel_curvature(net, params, x)
    with jax.enable_x64(True):
        arrays = jax.tree.map(jnp.asarray, params)
        norms = [
            np.linalg.norm(np.asarray(mixed_derivative(net, arrays, jnp.asarray(p))), ord=2)
            for p in x
        ]
    np.testing.assert_allclose(found.value, norms, rtol=1e-10)


def test_proposition_9_holds_with_the_constant_of_its_proof(rng, draws, tally):
    smallest, steep, total = np.inf, 0, draws(40)
    for case in range(total):
        net = NETS[case % 2]
        params = random_params(rng, net.widths, net.bias, scale=float(np.exp(rng.normal())))
        found = kernel_curvature(net, params, rng.normal(size=(10, net.widths[0])))
        alive = found.jacobian_power > 1e-12
        assert np.all(found.value[alive] >= found.proved[alive] * (1 - 1e-12))
        smallest = min([smallest, *(found.value[alive] / found.proved[alive])])
        steep += int(alive.any())
    tally(steep, of=total, what="networks with a nonzero Jacobian")
    assert smallest < 2, "random networks already violate the printed constant"


@pytest.mark.parametrize("depth", [1, 2, 5, 30])
def test_the_printed_constant_of_proposition_9_is_false_at_every_depth(depth):
    net = nm.MLP((1,) * (depth + 1), bias=False)
    found = kernel_curvature(net, (nm.Layer(np.ones((1, 1))),) * depth, np.ones((1, 1)))
    assert found.value.item() == found.proved.item() == depth
    assert found.value.item() < found.printed.item() == 2 * depth
    assert found.constant == 1.0


def test_proposition_9_is_one_about_relu():
    """With slope a = ½ on the left, (1, 1, 1) with weights 1 and x < 0: 2a² = ½ against
    2·a^{2−1} = 1.
    """
    net = nm.MLP((1, 1, 1), nm.leaky_relu(0.5), bias=False)
    found = kernel_curvature(net, (nm.Layer(np.ones((1, 1))),) * 2, -np.ones((1, 1)))
    np.testing.assert_allclose([found.value.item(), found.proved.item()], [0.5, 1.0], rtol=1e-14)


def test_the_segment_version_holds_and_is_attained(rng, draws, tally):
    net, used, total = NETS[0], 0, draws(200)
    for _ in range(total):
        params = random_params(rng, net.widths)
        x = rng.normal(size=3)
        found = segment_bound(net, params, np.stack([x, x + 0.3 * rng.normal(size=3)]))
        if found.one_region:
            used += 1
            assert found.value >= found.bound
    tally(used, of=total, what="segments inside one region")
    for depth in (1, 4):
        line = nm.MLP((1,) * (depth + 1), "identity", bias=False)
        sharp = segment_bound(line, (nm.Layer(np.ones((1, 1))),) * depth, np.array([[-1.0], [1.0]]))
        np.testing.assert_allclose(sharp.value, sharp.bound, rtol=1e-14)
