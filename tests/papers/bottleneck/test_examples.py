"""Theorem 10's interpolants, Example 20, and the summary statistics of gradient descent."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import ortho_group

import neuromanifold as nm
from neuromanifold.bottleneck import (
    folded_interpolant,
    jacobian_rank,
    ntk_trace_by_layer,
    polyline_interpolant,
    two_point_bound,
)
from neuromanifold.bottleneck.passage import squared_norm
from neuromanifold_papers.bottleneck.example20 import (
    example20,
    example20_excess,
    representation_lipschitz,
)
from neuromanifold_papers.bottleneck.summary_statistics import (
    descent,
    summary_cost,
    summary_rates,
    summary_statistics,
    summary_step,
)


@pytest.mark.parametrize("dimension, folds", [(2, (2, 3, 4)), (3, (1, 2, 3))])
def test_folded_interpolants_grow_as_theorem_10_says(dimension, folds):
    found = [folded_interpolant(dimension, q, 24) for q in folds]
    sizes = np.array([len(i.y) for i in found])
    for i in found:
        np.testing.assert_allclose(i.net(i.params, i.x), i.y, atol=1e-9)
        cells = np.floor(i.y * 2 ** folds[found.index(i)]).astype(int)
        assert len(np.unique(cells, axis=0)) == len(i.y), (
            "one point in each cell: the target is k*-dimensional"
        )
    assert int(jacobian_rank(found[0].net, found[0].params, found[0].x, exact=True)) == 1
    steep = np.polyfit(np.log(sizes), np.log([i.steepest for i in found]), 1)[0]
    traces = np.polyfit(np.log(sizes), np.log([i.trace for i in found]), 1)[0]
    c1 = np.array([i.c1 for i in found])
    assert abs(steep - (1 - 1 / dimension)) < 0.05
    assert traces > 2 - 2 / dimension - 0.1, "the rate of the theorem at its least c₁"
    assert np.all(c1 >= 2 * (1 - 1 / dimension) * np.log(sizes))
    assert np.ptp(np.diff(c1) / np.diff(np.log(sizes))) < 0.35 * np.mean(
        np.diff(c1) / np.diff(np.log(sizes))
    )
    assert all(i.trace >= i.exponent_side for i in found), "with the theorem's constant taken as 1"


def test_polylines_fit_any_points_at_a_higher_price(rng):
    points = [rng.uniform(size=(n, 2)) for n in (8, 16, 32, 64)]
    found = [polyline_interpolant(p, 20) for p in points]
    for i in found:
        np.testing.assert_allclose(i.net(i.params, i.x), i.y, atol=1e-7)
    c1 = np.array([i.c1 for i in found])
    folded = folded_interpolant(2, 3, 20)
    assert len(folded.y) == len(points[-1])
    assert c1[-1] > 4 * folded.c1
    assert np.all(np.diff(c1) > 0)
    assert np.all(c1 >= np.log([len(p) for p in points]))


def test_an_interpolant_that_keeps_both_dimensions_has_no_blow_up(rng):
    """Control: rank 2 fits the same points with the identity, whatever N."""
    net = nm.MLP((2, *[2] * 19, 2), bias=False)
    params = (nm.Layer(np.eye(2)),) * 20
    y = folded_interpolant(2, 5, 20).y
    assert np.array_equal(net(params, y), y)
    assert squared_norm(net, params) - 2 * 20 == 0
    assert ntk_trace_by_layer(net, params, y).sum(axis=1).max() <= 2 * 20 * 2


@pytest.mark.parametrize("depth", [2, 3, 8, 41, 200])
def test_example_20_represents_its_function(depth, rng):
    net, params = example20(depth)
    assert net.depth == depth
    x = rng.uniform(size=(100, 3))
    expected = np.stack([x[:, 0], x[:, 1], x[:, 2] + np.maximum(x[:, 0] - x[:, 1], 0)], axis=1)
    np.testing.assert_allclose(net(params, x), expected, rtol=1e-9)


def test_example_20_costs_three_per_layer_while_its_representations_diverge(rng):
    depths = np.array([10, 60, 300])
    x = rng.uniform(size=(50, 3))
    nets = [example20(int(L)) for L in depths]
    excess = np.array([squared_norm(*n) - 3 * L for n, L in zip(nets, depths, strict=True)])
    closed = [example20_excess(int(L), float(L) ** -0.75) for L in depths]
    np.testing.assert_allclose(excess, closed, rtol=1e-8)
    far = np.array([example20_excess(10**j, 10.0 ** (-0.75 * j)) for j in range(3, 9)])
    assert np.all(np.diff(far) < 0)
    np.testing.assert_allclose(far[-1], 12 * (10.0**8) ** -0.5, rtol=0.01)
    stretch = [representation_lipschitz(*n, x).max() for n in nets]
    np.testing.assert_allclose(
        np.log(stretch[1:]), (depths[1:] - 2) / 2 * depths[1:] ** -0.75, rtol=0.2
    )
    assert stretch[0] < stretch[1] < stretch[2]
    for n in nets:
        assert two_point_bound(*n, x).excess >= -1e-9


def test_example_20_with_bounded_representations_costs_more():
    """Control: with ε = 0 nothing diverges, and the norm stays 3 above 3L at every depth."""
    for depth in (10, 1000):
        np.testing.assert_allclose(
            squared_norm(*example20(depth, epsilon=0.0)) - 3 * depth, 3.0, rtol=1e-12
        )


def test_summary_statistics_follow_their_own_equation(rng):
    w = ortho_group.rvs(5, random_state=rng)[0]
    v = 0.7 * rng.normal(size=5)

    def flow(_, v):
        return -(4 * (v @ v) * v - 4 * (w @ v) * w)

    options = {"rtol": 1e-11, "atol": 1e-13, "t_eval": np.linspace(0, 1, 20)}
    high = solve_ivp(flow, (0, 1), v, **options).y.T
    low = solve_ivp(
        lambda _, u: summary_rates(u), (0, 1), summary_statistics(v, w)[0], **options
    ).y.T
    np.testing.assert_allclose(summary_statistics(high, w), low, atol=1e-8)
    np.testing.assert_allclose(
        summary_cost(low), [np.sum((np.outer(a, a) - np.outer(w, w)) ** 2) for a in high], atol=1e-8
    )


def test_gradient_descent_follows_the_discrete_map_exactly_and_noise_breaks_it(rng):
    w = ortho_group.rvs(6, random_state=rng)[0]
    v = 0.5 * rng.normal(size=(10, 6))
    path, costs = descent(v, w, rate=0.02, steps=15)
    u = summary_statistics(v, w)
    for t in range(15):
        u = summary_step(u, 0.02)
        np.testing.assert_allclose(summary_statistics(path[t + 1], w), u, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(costs[:, t], summary_cost(u), rtol=1e-10, atol=1e-13)
    noise = 0.1 * rng.normal(size=(6, 6))
    noisy, noisy_costs = descent(v, w, rate=0.02, steps=15, noise=noise)
    assert np.abs(summary_statistics(noisy[-1], w) - u).max() > 1e-3
    direct = [np.sum((np.outer(a, a) - np.outer(w, w) - noise) ** 2) for a in noisy[-1]]
    np.testing.assert_allclose(noisy_costs[:, -1], direct, rtol=1e-10)


def test_a_direction_that_is_no_unit_vector_is_refused():
    with pytest.raises(ValueError, match="`w` has norm 2; pass a unit vector"):
        summary_statistics(np.ones((1, 2)), np.array([2.0, 0.0]))
