"""Regions enumerated: arrangements in closed form, breakpoints sorted exactly, all patterns tried."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import neuromanifold as nm
from neuromanifold.regions import enumerate_regions


def drawn(rng, widths, bias=True):
    return tuple(
        nm.Layer(rng.normal(size=(b, a)), rng.normal(size=b) if bias else None)
        for a, b in itertools.pairwise(widths)
    )


def confirm(net, params, found, samples, rng, scale=3.0):
    """Every region's point has its pattern, no two are alike, and no sample is elsewhere."""
    patterns = nm.activation_patterns(net, params, found.points, exact=True)
    np.testing.assert_array_equal(patterns, found.patterns)
    known = {row.tobytes() for row in found.patterns}
    assert len(known) == found.lower and (found.radii > 0).all()
    x = scale * rng.normal(size=(samples, *found.points.shape[1:]))
    met = nm.activation_patterns(net, params, x, exact=True)
    assert {row.tobytes() for row in met} <= known


@pytest.mark.parametrize("n, m", [(1, 6), (2, 7), (3, 5)])
def test_one_layer_in_general_position_is_the_formula_of_arrangements(rng, n, m):
    """Σ_{i ≤ n} C(m, i) regions, C(m − 1, n) of them bounded.   [Zaslavsky 1975]"""
    net, params = nm.MLP((n, m, 1)), drawn(rng, (n, m, 1))
    found = enumerate_regions(net, params)
    assert found.exact and found.count == sum(math.comb(m, i) for i in range(n + 1))
    assert found.bounded.sum() == math.comb(m - 1, n)
    confirm(net, params, found, 500, rng)


def pieces(params):
    """The exact intervals of a ReLU network of one input on which its pattern is constant, and how
    many patterns they have: layer by layer, cut where an affine function is zero.
    """
    exact = [[[Fraction(float(v)) for v in row] for row in layer.weight] for layer in params[:-1]]
    biases = [[Fraction(float(v)) for v in layer.bias] for layer in params[:-1]]
    cells = [(None, None, [(Fraction(1), Fraction(0))], ())]
    for W, b in zip(exact, biases, strict=True):
        found = []
        for low, high, maps, gates in cells:
            z = [(sum(w * s for w, (s, _) in zip(row, maps, strict=True)),
                  sum(w * o for w, (_, o) in zip(row, maps, strict=True)) + c)
                 for row, c in zip(W, b, strict=True)]  # fmt: skip
            cuts = sorted({-o / s for s, o in z if s})
            inner = [c for c in cuts if (low is None or c > low) and (high is None or c < high)]
            ends = [low, *inner, high]
            for a, c in itertools.pairwise(ends):
                point = (
                    (a + c) / 2 if a is not None and c is not None
                    else Fraction(0) if a is c else (c - 1 if a is None else a + 1)
                )  # fmt: skip
                on = tuple(s * point + o > 0 for s, o in z)
                zero = (Fraction(0), Fraction(0))
                kept = [q if g else zero for q, g in zip(z, on, strict=True)]
                found.append((a, c, kept, gates + on))
        cells = found
    return {gates for *_, gates in cells}


@pytest.mark.parametrize("widths", [(1, 6, 5, 1), (1, 4, 4, 4, 1)])
def test_networks_of_one_input_have_the_intervals_between_sorted_breakpoints(rng, widths):
    net, params = nm.MLP(widths), drawn(rng, widths)
    found = enumerate_regions(net, params)
    assert found.exact and {tuple(row) for row in found.patterns} == pieces(params)


def test_a_deep_network_has_the_patterns_that_are_feasible_among_all(rng):
    """The second route: one linear program for each of the 2⁶ patterns, nothing incremental."""
    net, params = nm.MLP((2, 3, 3, 1)), drawn(rng, (2, 3, 3, 1))
    (V, b), (W, c), _ = params
    feasible = set()
    for pattern in itertools.product((False, True), repeat=6):
        first, second = np.array(pattern[:3]), np.array(pattern[3:])
        gated = W * first
        rows = np.concatenate([V, gated @ V]) * np.where(pattern, 1, -1)[:, None]
        offsets = np.concatenate([b, gated @ b + c]) * np.where(pattern, 1, -1)
        solved = linprog(
            [0, 0, -1], A_ub=np.c_[-rows, np.ones(6)], b_ub=offsets,
            bounds=[(None, None)] * 2 + [(None, 1)], method="highs-ds",
        )  # fmt: skip
        if solved.x[2] > 1e-8:
            feasible.add((*first.tolist(), *second.tolist()))
    found = enumerate_regions(net, params)
    assert found.exact and {tuple(row) for row in found.patterns.tolist()} == feasible
    confirm(net, params, found, 500, rng)


@pytest.mark.parametrize(
    "rows, offsets, count",
    [
        ([[1, 2], [1, 2], [2, 4]], [0, 1, 4], 4),  # three parallels
        ([[1, 2], [1, 2], [2, 4]], [0, 1, 2], 3),  # two of them are one line
        ([[1, 0], [0, 1], [1, 1]], [0, 0, 0], 6),  # through one point
        ([[1, 0], [0, 1], [1, 1]], [0, 0, 1], 7),  # in general position
        ([[1, 0], [0, 0], [0, 0]], [0, 0, -1], 2),  # units that do not read the input
    ],
)
def test_degenerate_arrangements_are_counted_as_they_are(rows, offsets, count):
    """Cells that are empty by nothing are proved so, over the rationals."""
    params = (
        nm.Layer(np.array(rows, float), np.array(offsets, float)),
        nm.Layer(np.ones((1, 3)), np.zeros(1)),
    )
    found = enumerate_regions(nm.MLP((2, 3, 1)), params)
    assert found.exact and found.count == count and found.thin == 0


def test_a_strip_thinner_than_the_tolerance_is_neither_counted_nor_denied():
    """One line on paper, parallels in floats: 0.3/3 is not 0.1."""
    offsets = np.array([0.1, 0.3, 0.7])
    first = nm.Layer(np.array([[1.0, 3.0], [3.0, 9.0], [7.0, 21.0]]), offsets)
    found = enumerate_regions(nm.MLP((2, 3, 1)), (first, nm.Layer(np.ones((1, 3)), np.zeros(1))))
    places = {Fraction(c) / k for c, k in zip(offsets.tolist(), (1, 3, 7), strict=True)}
    assert len(places) > 1 and not found.exact and found.thin > 0
    assert found.lower == 2 < len(places) + 1 <= found.upper


def test_without_biases_regions_are_cones_and_the_box_around_zero_meets_them_all(rng):
    net, params = nm.MLP((2, 4, 4, 1), bias=False), drawn(rng, (2, 4, 4, 1), bias=False)
    everywhere, box = enumerate_regions(net, params), enumerate_regions(net, params, domain=(-1, 1))
    assert everywhere.exact and box.exact and everywhere.count == box.count
    assert not everywhere.bounded.any() and box.bounded.all()
    assert (np.abs(box.points) < 1).all()


def test_a_box_has_the_regions_that_meet_it(rng):
    net, params = nm.MLP((1, 5, 4, 1)), drawn(rng, (1, 5, 4, 1))
    found = enumerate_regions(net, params, domain=(np.array([-0.5]), np.array([2.0])))
    grid = np.linspace(-0.5, 2.0, int(2 * 2.5 / found.radii.min()))[1:-1, None]
    assert found.exact and found.count == nm.sampled_regions(net, params, grid)


def streamed(p, x):
    """A residual stream with leaky units, absolute values and a clamp."""
    h = x @ p["in"]
    h = h + jax.nn.leaky_relu(h @ p["a"] + p["b"], 0.1)
    return jnp.clip(jnp.abs(h) @ p["out"], -1.0, 1.0)


def test_any_network_of_switches_is_enumerated(rng):
    shapes = {"in": (1, 3), "a": (3, 3), "b": (3,), "out": (3, 1)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    found = enumerate_regions(streamed, params, x=np.ones((1, 1)), domain=(-4.0, 4.0))
    grid = np.linspace(-4, 4, min(400_000, int(16 / found.radii.min())))[1:-1, None]
    assert found.exact and found.count == nm.sampled_regions(streamed, params, grid)


def test_a_limit_leaves_bounds_that_hold(rng):
    net, params = nm.MLP((2, 5, 5, 1)), drawn(rng, (2, 5, 5, 1))
    whole = enumerate_regions(net, params)
    bounds = [enumerate_regions(net, params, limit=k) for k in (1, 5, 12, 30)]
    assert all(b.lower <= whole.count <= b.upper for b in bounds)
    assert bounds[0].lower == 1 and bounds[0].upper == 16**2  # Σ C(5, i), i ≤ 2, twice
    assert sorted(b.lower for b in bounds) == [b.lower for b in bounds]
    with pytest.raises(ValueError, match=r"the number is between 1 and 256; read `\.lower`"):
        _ = bounds[0].count
    known = {row.tobytes() for row in whole.patterns}
    assert all({row.tobytes() for row in b.patterns} <= known for b in bounds)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"limit": 0}, "`limit` is 0; pass a whole number of cells"),
        ({"domain": 1.0}, "`domain` is a float; pass a pair"),
        ({"domain": (1.0, -1.0)}, "`domain` has a lower bound that is not below"),
        ({"domain": (np.zeros(3), 1.0)}, "`domain` has arrays of shapes"),
        ({"x": np.ones((2, 2), int)}, "`x` is no array of real numbers"),
    ],
)
def test_mistakes_are_named(rng, options, message):
    net, params = nm.MLP((2, 3, 1)), drawn(rng, (2, 3, 1))
    with pytest.raises((ValueError, TypeError), match=message):
        enumerate_regions(net, params, **options)


def test_what_is_not_piecewise_linear_in_switches_is_refused(rng):
    params = {"w": rng.normal(size=(2, 3))}
    with pytest.raises(ValueError, match="several candidates"):
        enumerate_regions(lambda p, x: (x @ p["w"]).max(axis=1), params, x=np.ones((1, 2)))
    with pytest.raises(ValueError, match="before a kink"):
        smooth = lambda p, x: jax.nn.relu(jnp.tanh(x @ p["w"]))  # noqa: E731
        enumerate_regions(smooth, params, x=np.ones((1, 2)))
    linear = lambda p, x: x @ p["w"]  # noqa: E731
    with pytest.raises(TypeError, match="`x` is None; pass a sample"):
        enumerate_regions(linear, params)
    assert enumerate_regions(linear, params, x=np.ones((1, 2))).count == 1
