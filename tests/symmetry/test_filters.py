"""Rescalings of convolutional layers: the function stays, δ_l is conserved, and a single
rescaled filter is the control.
"""

import jax
import numpy as np
import pytest

import neuromanifold as nm

NETS = [
    nm.LinearConvNet((3, 2, 2), (2, 1, 1)),
    nm.LinearConvNet(((2, 3), (2, 2)), ((1, 2), (1, 1))),
]


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_rescalings_are_a_group_that_keeps_the_filter(net, key, draws):
    group = nm.symmetry.FilterScalingGroup(net)
    params = net.init(key=key, dtype="float64")
    for k in jax.random.split(key, draws(5)):
        first, second = (group.sample(key=part) for part in jax.random.split(k))
        np.testing.assert_allclose(
            net.end_to_end(first(params)), net.end_to_end(params), rtol=1e-12, atol=1e-12
        )
        for a, b in zip((first @ second)(params), first(second(params)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)
        for a, b in zip(first.inverse(first(params)), params, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)
    control = (2.0 * params[0], *params[1:])
    assert np.abs(net.end_to_end(control) - net.end_to_end(params)).max() > 1e-3


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_generators_are_the_derivatives_of_the_action(net, key):
    group, params = nm.symmetry.FilterScalingGroup(net), net.init(key=key, dtype="float64")
    step = 1e-6
    for index, row in enumerate(group.generators(params)):
        xi = step * np.eye(group.dimension)[index]
        ahead, behind = (
            np.concatenate([w.ravel() for w in group.element(s * xi)(params)]) for s in (1, -1)
        )
        np.testing.assert_allclose(row, (ahead - behind) / (2 * step), atol=1e-8)


def test_delta_is_conserved_by_gradient_flow(rng):
    net = NETS[0]
    params = net.init(key=jax.random.key(5), dtype="float64")
    x = rng.normal(size=(12, *net.signal_shape(1)))
    y = rng.normal(size=(12, 1))
    before = nm.conserved_quantities(net, params)
    flow = nm.gradient_flow(net, params, x, y, t1=1.0, loss=nm.losses.squared_error)
    after = nm.conserved_quantities(net, flow.at(1.0))
    assert before.labels == ("delta[1]", "delta[2]")
    np.testing.assert_allclose(after.values, before.values, atol=1e-8)
    moved = sum(float(np.abs(a - b).max()) for a, b in zip(flow.at(1.0), params, strict=True))
    assert moved > 1e-2
    np.testing.assert_allclose(before.values, nm.functionspace.norm_differences(net, params))


def test_other_networks_are_refused():
    with pytest.raises(
        TypeError,
        match=r"`net` is an MLP; FilterScalingGroup acts on the filters of an nm.LinearConvNet",
    ):
        nm.symmetry.FilterScalingGroup(nm.MLP((1, 2, 1)))
    with pytest.raises(
        ValueError, match=r"`coordinates` has shape \(3,\) but FilterScalingGroup has dimension 2"
    ):
        nm.symmetry.FilterScalingGroup(NETS[0]).element(np.zeros(3))
