"""The smooth locus and the metric on it: closed forms, exact ranks, two routes, boundaries."""

import numpy as np
import pytest

from neuromanifold.functionspace.fiber import fiber
from neuromanifold.functionspace.kernel import filter_kernel
from neuromanifold.functionspace.metric import level_set_tangents, metric
from neuromanifold.functionspace.rescale import norm_differences
from neuromanifold.functionspace.smoothness import (
    exact_jacobian_rank,
    is_smooth,
    jacobian_rank,
    layer_permutations,
    merge_layers,
    neuromanifold_dimension,
    swappable,
)
from neuromanifold.models.convolution import LinearConvNet

RUNNING = LinearConvNet((3, 2), (2, 1))
SQUARE = LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1)))
NETS = [
    RUNNING,
    LinearConvNet((2, 3, 2), (2, 3, 1)),
    LinearConvNet(((2, 2), (3, 2)), ((1, 1), (1, 1))),
    LinearConvNet(((2, 2), (2, 2)), ((2, 1), (1, 1))),
    LinearConvNet(((2, 2, 1), (2, 1, 2)), ((1, 1, 1), (1, 1, 1))),
]


@pytest.mark.parametrize("net", [*NETS, SQUARE, LinearConvNet((4, 3, 2), (1, 1, 1))], ids=repr)
def test_the_dimension_is_the_exact_rank_at_generic_filters(net, rng):
    """[riemann, Sec 2]: Σ(k_l − 1) + 1 in one dimension; one less parameter per rescaling in
    all.
    """
    for _ in range(5):
        params = tuple(rng.integers(-99, 100, shape) for shape in net.filter_shapes)
        assert (
            exact_jacobian_rank(net, params)
            == neuromanifold_dimension(net)
            == int(jacobian_rank(net, params))
        )
    if net.dimension == 1:
        assert neuromanifold_dimension(net) == sum(k - 1 for (k,) in net.filter_shapes) + 1
    same = tuple(np.ones(shape, int) for shape in net.filter_shapes)
    if net in (RUNNING, SQUARE):
        shared = (np.array([1, 0, 1]), np.array([1, 1])) if net is RUNNING else same
        assert (
            exact_jacobian_rank(net, shared)
            == int(jacobian_rank(net, shared))
            < neuromanifold_dimension(net)
        )


def test_smooth_points_of_the_running_example(rng, draws):
    """[riemann, Ex 15]: smooth exactly when v_1 ≠ 0 or v_3 ≠ 0."""
    for _ in range(draws(100)):
        v = RUNNING.end_to_end(
            tuple(rng.integers(-2, 3, shape).astype(object) for shape in RUNNING.filter_shapes)
        )
        for given in (v, v.astype(np.float64)):
            assert bool(is_smooth(RUNNING, given)) == bool(v[1] or v[3])
    assert (
        is_smooth(RUNNING, np.array([2, 0, 5, 0, 2])).reason == "several filter tuples lie over v"
    )
    assert is_smooth(RUNNING, np.array([1, 0, 2, 0, 1])).reason == "the differential drops rank"
    assert is_smooth(RUNNING, np.zeros(5)).reason.startswith("v is zero")


@pytest.mark.parametrize(
    "net, v, smooth",
    [
        (((3, 2), (1, 1)), [1, 3, 3, 1], True),  # M = ℝ⁴, even where the differential drops rank
        (((3, 2), (1, 1)), [0, 0, 0, 0], True),
        (((2, 2), (1, 1)), [1, 2, 1], False),  # the boundary of {discriminant ≥ 0}
        (((2, 2), (1, 1)), [1, 3, 1], True),
        (((2, 2), (1, 1)), [0, 0, 0], False),
        (((2, 4), (1, 1)), [1, 0, 2, 0, 1], False),  # (x² + y²)² needs two real roots
        (((3, 3), (1, 1)), [1, 0, 2, 0, 1], True),
        (
            ((5, 2), (2, 1)),
            [1, 0, 1, 0, 1, 0, 1],
            True,
        ),  # one real tuple, although three complex ones
        (((5, 2), (2, 1)), [1, 0, 6, 0, 11, 0, 6], False),
        (((2, 2, 2), (1, 2, 1)), [1, 5, 6, 0, 0], True),
    ],
)
def test_smoothness_over_the_reals(net, v, smooth):
    net = LinearConvNet(*net)
    if fiber(net, np.array(v)).in_neuromanifold:
        assert bool(is_smooth(net, np.array(v))) is smooth
    else:
        assert not smooth
        with pytest.raises(ValueError, match="`v` is not in the neuromanifold"):
            is_smooth(net, np.array(v))


def test_smoothness_in_two_dimensions(rng):
    params = ([[0, 1], [1, 0]], [[1, 0], [0, 1]])
    v = SQUARE.end_to_end(tuple(np.array(w, object) for w in params))
    assert is_smooth(SQUARE, v).factorisations == 1  # up to the swap
    reducible = SQUARE.end_to_end((np.array([[1, 1], [1, 1]]), np.array([[1, 2], [3, 6]])))
    assert not is_smooth(SQUARE, reducible)
    doubled = SQUARE.end_to_end((np.array([[1, 2], [3, 5]]), np.array([[1, 2], [3, 5]])))
    assert is_smooth(SQUARE, doubled).reason == "the differential drops rank"
    with pytest.raises(ValueError, match="every layer has two sizes above 1"):
        is_smooth(LinearConvNet(((3, 1), (2, 1)), ((1, 1), (1, 1))), np.ones((4, 1)))


def test_layers_that_can_be_swapped():
    """[riemann, Obs 11 c)]: equal shapes, equal dilations wherever a size exceeds one."""
    thin = LinearConvNet(((2, 2, 1), (2, 2, 1)), ((1, 1, 2), (1, 1, 1)))
    assert swappable(thin, 0, 1)
    assert thin.dilations[0] != thin.dilations[1]
    assert not swappable(LinearConvNet(((2, 2), (2, 2)), ((2, 1), (1, 1))), 0, 1)
    assert (
        len(list(layer_permutations(LinearConvNet(((2, 2), (3, 2), (2, 2)), ((1, 1),) * 3)))) == 2
    )
    assert merge_layers(LinearConvNet((3, 2, 4), (1, 2, 1))) == LinearConvNet((4, 4), (2, 1))


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_the_metric_two_ways(net, rng, draws, tally):
    """[riemann, Lem 5, Cor 6]: K⁻¹ on T_vM is the pushforward of the Euclidean metric of Θ_δ,
    for every δ.
    """
    cases = draws(5)
    for _ in range(cases):
        params = tuple(rng.normal(size=shape) for shape in net.filter_shapes)
        delta = 2 * rng.normal(size=net.depth - 1)
        g = metric(net, net.end_to_end(params), delta)
        assert g.disagreement < 1e-9
        assert np.linalg.eigvalsh(g.matrix).min() > 0
        tangents = level_set_tangents(net, g.params)
        assert tangents.shape == (net.n_params, neuromanifold_dimension(net))
        np.testing.assert_allclose(
            tangents.T @ tangents, np.eye(neuromanifold_dimension(net)), atol=1e-12
        )
        a = (g.basis @ rng.normal(size=neuromanifold_dimension(net))).reshape(net.end_to_end_shape)
        pseudo = np.linalg.pinv(filter_kernel(net, g.params), rcond=1e-12)
        assert abs(g(a, a) - a.ravel() @ pseudo @ a.ravel()) < 1e-8 * g(a, a)
        other = metric(net, net.end_to_end(params), delta + 1.0)
        assert np.linalg.norm(other.kernel - g.kernel) > 1e-6 * np.linalg.norm(g.kernel)
    tally(cases, of=cases, what="metrics agree two ways")


def test_where_there_is_no_metric(rng):
    v = SQUARE.end_to_end(tuple(rng.normal(size=(2, 2)) for _ in range(2)))
    assert metric(SQUARE, v, 0.0).disagreement < 1e-9
    with pytest.raises(
        ValueError,
        match=r"the kernel is no function of `v` and `delta`: 2 factorisations .* choose one with `params`",
    ):
        metric(SQUARE, v, 1.0)
    over = fiber(SQUARE, v, 1.0)
    first, second = (metric(SQUARE, v, 1.0, params=params) for params in over.up_to_signs)
    assert np.linalg.norm(first.kernel - second.kernel) > 1e-3 * np.linalg.norm(first.kernel)
    with pytest.raises(ValueError, match="`params` is not in the fibre"):
        metric(SQUARE, v, 1.0, params=(np.ones((2, 2)), np.ones((2, 2))))
    with pytest.raises(ValueError, match="`v` is a singular point: dμ has rank 3 there"):
        metric(RUNNING, np.array([1, 0, 2, 0, 1]), 0.0)
    with pytest.raises(
        ValueError, match="`v` has no finite fibre to take the kernel from: no tuples"
    ):
        metric(RUNNING, np.array([1.0, 1.0, 1.0, 1.0, -3.0]))
    g = metric(RUNNING, np.array([1.0, 2.0, 13.0, 20.0, 30.0]))
    with pytest.raises(ValueError, match="the vector is not tangent to the neuromanifold"):
        g(np.linalg.svd(g.basis)[0][:, -1], g.basis[:, 0])


def test_lemma_5_kernel_of_the_differential(rng):
    """T_θΘ_δ is orthogonal to the layer rescalings, which span ker dμ at smooth points."""
    net = NETS[1]
    params = tuple(rng.normal(size=shape) for shape in net.filter_shapes)
    tangents = level_set_tangents(net, params)
    for l in range(net.depth - 1):
        moved = [np.zeros(shape) for shape in net.filter_shapes]
        moved[l], moved[l + 1] = -params[l], params[l + 1]
        assert np.abs(tangents.T @ np.concatenate(moved)).max() < 1e-12
    assert norm_differences(net, params).shape == (2,)
