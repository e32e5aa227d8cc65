"""Fibres: planted parameters recovered, counts in closed form and by a many-start search,
degenerate filters, errors.
"""

import time
from fractions import Fraction
from math import factorial

import numpy as np
import pytest

from neuromanifold.functionspace.fiber import fiber
from neuromanifold.functionspace.polynomial import exact
from neuromanifold.functionspace.rescale import norm_differences
from neuromanifold.functionspace.search import join, search_fiber
from neuromanifold.functionspace.smoothness import layer_permutations
from neuromanifold.models.convolution import LinearConvNet

ONE_DIMENSION = [
    LinearConvNet(*net)
    for net in [
        ((3, 2), (2, 1)),
        ((2, 3), (3, 1)),
        ((3, 2), (1, 1)),
        ((4, 3), (1, 1)),
        ((2, 2, 2), (1, 1, 1)),
        ((3, 3, 2), (2, 1, 1)),
        ((3, 4, 2), (3, 1, 2)),
        ((5, 2), (2, 1)),
        ((2, 3, 2, 2), (2, 3, 1, 1)),
        ((2, 2, 2, 2), (1, 2, 1, 3)),
    ]
]
MORE_DIMENSIONS = [
    LinearConvNet(*net)
    for net in [
        (((2, 2), (2, 2)), ((1, 1), (1, 1))),
        (((2, 2), (3, 2)), ((1, 1), (1, 1))),
        (((2, 3), (3, 2)), ((1, 2), (2, 1))),
        (((2, 2), (2, 2)), ((2, 2), (1, 1))),
        (((3, 3), (3, 3), (3, 3)), ((1, 1), (1, 1), (1, 1))),
        (((2, 2), (2, 3), (3, 2)), ((1, 2), (2, 1), (1, 1))),
        (((2, 2), (2, 2), (2, 2), (2, 2)), ((1, 2), (2, 1), (1, 3), (1, 1))),
        (((2, 2, 2), (2, 2, 2)), ((1, 1, 1), (1, 1, 1))),
        (((2, 2, 1), (2, 2, 1)), ((1, 1, 2), (1, 1, 1))),
        (((2, 2, 1), (1, 2, 2), (2, 1, 2)), ((3, 1, 1), (1, 2, 1), (1, 1, 1))),
    ]
]


def filters(net, rng):
    return tuple(rng.normal(size=shape) for shape in net.filter_shapes)


def contains(tuples, params) -> bool:
    flat = join(params)
    return any(
        np.linalg.norm(join(other) - flat) <= 1e-6 * np.linalg.norm(flat) for other in tuples
    )


def check(over, net, v, delta):
    assert over.residual <= 1e-10
    for params in over:
        assert np.linalg.norm(net.end_to_end(params) - v) <= 1e-9 * np.linalg.norm(v)
        size = max(np.sum(w * w) for w in params)
        np.testing.assert_allclose(norm_differences(net, params), delta, rtol=0, atol=1e-12 * size)
    flats = [tuple(np.round(join(params) / np.linalg.norm(join(params)), 8)) for params in over]
    assert len(set(flats)) == len(over)


@pytest.mark.parametrize("net", ONE_DIMENSION, ids=repr)
def test_planted_parameters_and_their_mates_are_found_by_roots(net, rng, draws, tally):
    cases = draws(25)
    several = 0
    for _ in range(cases):
        params = filters(net, rng)
        v, delta = net.end_to_end(params), norm_differences(net, params)
        over = fiber(net, v, delta)
        check(over, net, v, delta)
        assert contains(over, params)
        assert contains(over, tuple(-w if l < 2 else w for l, w in enumerate(params)))
        assert len(over) == over.factorisations * 2 ** (net.depth - 1)
        if all(s[0] > 1 for s in net.strides[:-1]):
            assert over.factorisations == 1
        several += over.factorisations > 1
    tally(cases, of=cases, what=f"planted fibres found ({several} with several factorisations)")


@pytest.mark.parametrize("net", MORE_DIMENSIONS, ids=repr)
def test_planted_parameters_and_their_mates_are_found_by_factors(net, rng, draws, tally):
    """[riemann, Cor 10, Obs 11]: generic filters are irreducible, so the mates are the
    permutations of like layers.
    """
    cases = draws(6)
    orders = list(layer_permutations(net))
    for _ in range(cases):
        params = filters(net, rng)
        v, delta = net.end_to_end(params), norm_differences(net, params)
        over = fiber(net, v, delta)
        check(over, net, v, delta)
        assert contains(over, params)
        assert over.factorisations == len(orders)
        assert over.method == "factors"
    tally(cases, of=cases, what=f"planted fibres found, {len(orders)} factorisations each")


@pytest.mark.parametrize(
    "net, starts",
    [
        (LinearConvNet((3, 2), (2, 1)), 40),
        (LinearConvNet((3, 2), (1, 1)), 60),
        (LinearConvNet((2, 2, 2), (1, 1, 1)), 80),
        (LinearConvNet((3, 3), (1, 1)), 80),
        (LinearConvNet((3, 2, 2), (2, 1, 1)), 60),
        (LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1))), 20),
        (LinearConvNet(((3, 1), (2, 1)), ((1, 1), (1, 1))), 60),
        (LinearConvNet(((2, 2), (2, 1)), ((1, 1), (1, 1))), 30),
    ],
    ids=repr,
)
def test_a_search_without_algebra_counts_the_same(net, starts, rng, tally):
    """The many-start solver knows no roots and no factors; it must find nothing new and, given
    time, everything.
    """
    agreed = 0
    for _ in range(3):
        params = filters(net, rng)
        v, delta = net.end_to_end(params), norm_differences(net, params)
        over, found = fiber(net, v, delta), search_fiber(net, v, delta, starts=starts)
        assert all(contains(over, other) for other in found)
        assert all(contains(found, other) for other in over)
        agreed += len(found) == len(over)
    tally(agreed, of=3, what="fibres counted alike by the search")


def test_filters_too_large_to_factor_as_a_whole(rng):
    """14 × 14 × 14 entries: one tuple by least squares, its mates by the layers' factors; the
    method says so.
    """
    net = LinearConvNet(((2, 2, 2),) * 3, ((3, 3, 3), (3, 3, 3), (1, 1, 1)))
    params = filters(net, rng)
    over = fiber(net, net.end_to_end(params), norm_differences(net, params))
    assert (len(over), over.method) == (4, "search")
    assert contains(over, params)


def test_counts_in_closed_form(rng):
    """H linear factors with distinct real roots in H layers of size two: every order, every sign
    pattern.
    """
    for depth in (2, 3, 4):
        net = LinearConvNet((2,) * depth, (1,) * depth)
        v = net.end_to_end(tuple(np.array([1, root], object) for root in range(1, depth + 1)))
        for given in (v, v.astype(np.float64), v.astype(np.int64)):
            assert len(fiber(net, given, 1.0)) == factorial(depth) * 2 ** (depth - 1)


@pytest.mark.parametrize("given", [np.float64, np.int64, object])
@pytest.mark.parametrize(
    "shapes, strides, parts, expected",
    [
        ((2, 2), (1, 1), [[1, 1], [1, 1]], 1),
        ((3, 2), (1, 1), [[1, 1]] * 3, 1),
        ((3, 3), (1, 1), [[2, 1]] * 4, 1),
        ((3, 4), (1, 1), [[1, 2], [1, 2], [1, 2], [1, -3], [1, -3]], 3),
        ((3, 4), (1, 1), [[1, 2, 3], [1, 2, 3], [1, 2]], 1),
        ((3, 2), (2, 1), [[0, 0, 1], [1, 0, 3]], 2),
        ((3, 2), (2, 1), [[1, 0, 0], [1, 0, 3]], 2),
        ((3, 2), (2, 1), [[1, 2, 3], [0, 0, 1]], 1),
        ((3, 2), (2, 1), [[0, 1, 0], [1, 0, 3]], 1),
        ((3, 2), (2, 1), [[1, 0, 2], [2, 0, 1]], 2),
        ((3, 2), (2, 1), [[1, 0, 1], [1, 0, 1]], 1),
        ((5, 2), (2, 1), [[1, 0, 0, 0, 1], [1, 0, 1]], 1),
        ((5, 2), (2, 1), [[1, 0, -5, 0, 4], [1, 0, -9]], 3),
        ((4, 2), (3, 1), [[1, 0, 0, 2], [1, 0, 0, 5]], 2),
        ((2, 2, 2), (1, 2, 1), [[1, 3], [1, -3], [1, 0, 7]], 2),
        ((2, 2, 2), (1, 2, 1), [[1, 3], [1, -3], [1, 0, -4]], 4),
        ((2, 2), (1, 1), [[1, 0, 1]], 0),
    ],
)
def test_degenerate_filters(shapes, strides, parts, expected, given):
    """Repeated roots, roots at 0 and ∞ (where z ↦ z^t ramifies), orbits of roots; counted by
    hand.
    """
    net = LinearConvNet(shapes, strides)
    v = np.ones(1, object)
    for part in parts:
        v = np.convolve(v, np.array(part, object))
    over = fiber(net, v.astype(given), [0.7] * (net.depth - 1))
    assert over.factorisations == expected
    assert over.in_neuromanifold is (expected > 0)


@pytest.mark.parametrize("given", [np.float64, np.int64])
@pytest.mark.parametrize(
    "net, params, expected",
    [
        # two equal filters: one factorisation, not two
        ((((2, 2), (2, 2)), ((1, 1), (1, 1))), ([[1, 2], [3, 5]], [[1, 2], [3, 5]]), 1),
        # (1 + y_1)(1 + y_2) in one layer: its two factors and the other layer's can be dealt out
        # differently
        ((((2, 2), (2, 2)), ((1, 1), (1, 1))), ([[1, 1], [1, 1]], [[1, 2], [2, 4]]), 4),
        # a square inside one layer: the small layer takes one of two factors
        (
            (((3, 3), (2, 2)), ((1, 1), (1, 1))),
            ([[1, 4, 4], [6, 22, 20], [9, 30, 25]], [[1, 0], [0, 1]]),
            2,
        ),
        # a coordinate factor in each layer
        ((((2, 2), (2, 2)), ((1, 1), (1, 1))), ([[0, 1], [0, 2]], [[1, 3], [0, 0]]), 4),
        # irreducible over ℚ, not over ℝ: y² − 2
        ((((2, 1), (2, 2)), ((1, 1), (1, 1))), ([[1], [1]], [[1, 2], [3, 5]]), 1),
        ((((3, 1), (1, 2)), ((1, 1), (1, 1))), ([[-2], [0], [1]], [[1, 2]]), 1),
        # a filter in y_1² may sit in the layer that sees y_1 only squared, or not
        ((((3, 2), (2, 2)), ((2, 1), (1, 1))), ([[1, 2], [0, 0], [3, 5]], [[1, 7], [2, 1]]), 2),
    ],
)
def test_degenerate_filters_in_two_dimensions(net, params, expected, given):
    net = LinearConvNet(*net)
    v = net.end_to_end(tuple(np.array(w, object) for w in params)).astype(given)
    assert fiber(net, v, 0.4).factorisations == expected


def test_irrational_factors_of_integer_filters():
    """x² − 2y² is irreducible over ℚ and splits over ℝ."""
    over = fiber(LinearConvNet(((2, 1), (2, 1)), ((1, 1), (1, 1))), np.array([[-2], [0], [1]]))
    assert over.factorisations == 2
    assert abs(abs(over[0][0][0, 0] / over[0][0][1, 0]) - 2**0.5) < 1e-12
    exactly = fiber(LinearConvNet((2, 2), (1, 1)), exact([Fraction(-2), 0, 1]))
    assert exactly.factorisations == 2


def test_filters_off_the_neuromanifold_are_told_with_their_distance(rng):
    net = LinearConvNet((3, 2), (2, 1))
    over = fiber(net, np.array([1.0, 1.0, 1.0, 1.0, -3.0]))
    assert not over.in_neuromanifold
    assert 0.01 < over.distance < 1
    assert "v is not in the neuromanifold" in str(over)
    params = filters(net, rng)
    v = net.end_to_end(params)
    off = rng.normal(size=5)
    for size in (1e-3, 1e-5, 1e-7):
        moved = v + size * off
        near = fiber(net, moved)
        assert not near.in_neuromanifold
        assert near.distance <= size * np.linalg.norm(off) / np.linalg.norm(moved) * (1 + 1e-6)
        assert fiber(net, moved, rtol=10 * size).in_neuromanifold
    square = fiber(LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1))), rng.normal(size=(3, 3)))
    assert len(square) == 0 < square.distance


@pytest.mark.parametrize(
    "net", [ONE_DIMENSION[0], ONE_DIMENSION[2], *MORE_DIMENSIONS[:2], MORE_DIMENSIONS[4]], ids=repr
)
def test_filters_known_approximately(net, rng, tally):
    """With noise of relative size 1e-7, or 1e-5, and `rtol` above it, the tuples are those
    without noise, nearly.
    """
    found = 0
    for size in (1e-7, 1e-5):
        for _ in range(4):
            v = net.end_to_end(filters(net, rng))
            noise = rng.normal(size=v.shape)
            moved = v + size * np.linalg.norm(v) / np.linalg.norm(noise) * noise
            clean, noisy = fiber(net, v, 0.5), fiber(net, moved, 0.5, rtol=4 * size)
            assert noisy.in_neuromanifold
            assert noisy.residual <= 4 * size
            found += len(noisy) == len(clean)
    tally(found, of=8, what="noisy fibres as large as the clean ones")
    assert found >= 7


def test_the_fibre_over_zero():
    net = LinearConvNet((3, 2), (2, 1))
    assert fiber(net, np.zeros(5), [1.0]).infinite
    assert "infinitely many" in str(fiber(net, np.zeros(5), [1.0]))
    balanced = fiber(net, np.zeros(5), [0.0])
    assert len(balanced) == 1
    assert not join(balanced[0]).any()


def test_fibres_that_are_refused():
    net = LinearConvNet((3, 2), (2, 1))
    with pytest.raises(
        ValueError,
        match=r"`v` has shape \(4,\); the end-to-end filter of LinearConvNet.* has shape \(5,\).",
    ):
        fiber(net, np.ones(4))
    with pytest.raises(TypeError, match=r"`v` is array\(.*; pass an array of real numbers."):
        fiber(net, np.ones(5) * 1j)
    with pytest.raises(ValueError, match="`v` has 1 entries that are not finite"):
        fiber(net, np.array([1.0, np.nan, 1, 1, 1]))
    with pytest.raises(ValueError, match="fibres are those of linear networks"):
        fiber(LinearConvNet((3, 2), (2, 1), activation="relu"), np.ones(5))
    with pytest.raises(
        ValueError, match=r"`v` has more than 10 factorisations; raise `limit` to list them all."
    ):
        fiber(LinearConvNet((2,) * 4, (1,) * 4), np.poly([1.0, 2.0, 3.0, 4.0]), limit=10)


def test_throughput(rng):
    """A floor far below what an idle core does (2,000 a second, 13 ms), so that a loaded machine
    does not fail it.
    """
    net = LinearConvNet((3, 2), (2, 1))
    filters_ = [net.end_to_end(filters(net, rng)) for _ in range(200)]
    fiber(net, filters_[0])
    start = time.process_time()
    assert all(len(fiber(net, v, 0.5)) == 2 for v in filters_)
    assert 200 / (time.process_time() - start) > 300
    square = LinearConvNet(((3, 3),) * 3, ((1, 1),) * 3)
    v = square.end_to_end(filters(square, rng))
    fiber(square, v)
    start = time.process_time()
    assert len(fiber(square, v, 0.5)) == 24
    assert time.process_time() - start < 0.5
