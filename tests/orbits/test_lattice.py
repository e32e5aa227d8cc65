"""All leaves of two-layer networks: counts, dimensions, order, and that they are a partition
(the printed list is not).
"""

import itertools

import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.orbits import invariant_leaf, invariant_leaves, leaf_count
from neuromanifold_papers.invariant.partition import printed_sets

BELL, DOWLING, EVEN = (1, 2, 5, 15), (2, 6, 24, 116), (2, 7, 31, 164)


def degenerate(rng, m, d):
    """Two-layer parameters from few values: equal, opposite and zero neurons all occur."""
    values = [(-1.0, 0.0, 1.0), (-1.0, 1.0), (0.0, 1.0)][rng.integers(3)]
    return nm.Layer(rng.choice(values, size=(m, d))), nm.Layer(rng.choice(values, size=(1, m)))


@pytest.mark.parametrize(
    ("activation", "counts"), [("exp", BELL), ("tanh", DOWLING), ("cos", EVEN)]
)
def test_counts(activation, counts):
    """Bell numbers; type B; and for even σ, where any block may have zero incoming weights."""
    for m, count in enumerate(counts, start=1):
        net = nm.MLP((1, m, 1), activation, bias=False)
        lattice = invariant_leaves(net)
        assert len(lattice) == len(set(lattice)) == leaf_count(net) == count


def test_neurons_of_different_activations_multiply_the_counts():
    net = nm.MLP((1, 5, 2), nm.Mixed(exp=3, tanh=2))
    assert leaf_count(net) == len(invariant_leaves(net)) == BELL[2] * DOWLING[1]


@pytest.mark.parametrize("d", [1, 2])
def test_dimensions_of_printed_partitions(d):
    """(d+1)s, and (d+1)(s−1) where one of the s blocks is the zero block.   [invariant, Cor 5.3]"""
    for m in (1, 2, 3):
        for leaf in invariant_leaves(nm.MLP((d, m, 1), "exp", bias=False)):
            assert leaf.dimension == (d + 1) * len(leaf.partition[0])
        for leaf in invariant_leaves(nm.MLP((d, m, 1), "tanh", bias=False)):
            assert leaf.dimension == (d + 1) * sum(not block.zero for block in leaf.partition[0])


@pytest.mark.parametrize("activation", ["exp", "tanh", "cos"])
def test_every_point_lies_on_exactly_one_leaf(activation, rng, draws, tally):
    """The leaves, each asked by itself (θ in its space, and in no smaller one's), against the
    search of `invariant_leaf`.
    """
    net = nm.MLP((2, 3, 1), activation, bias=False)
    lattice, small = invariant_leaves(net), 0
    for _ in range(draws(50)):
        params = degenerate(rng, 3, 2)
        theta = np.concatenate([params[0].weight.ravel(), params[1].weight.ravel()])
        closures = np.array([leaf.holds(theta[None])[0] for leaf in lattice])
        below = lattice.below & ~np.eye(len(lattice), dtype=bool)
        on = np.flatnonzero(closures & ~(below & closures[:, None]).any(axis=0))
        assert on.tolist() == [lattice.index(params)]
        assert lattice[int(on[0])].contains(params)
        small += int(on[0] != 0)
    tally(small, of=draws(50), what="points on smaller leaves than the whole space")


def test_the_enumeration_of_proposition_5_2_as_printed_is_no_partition(rng, draws, tally):
    """With an empty zero block nothing keeps the other blocks from zero: θ = 0, m = 1 lies in two
    of the sets.

    Required to be non-zero, the blocks make a partition, that of `invariant_leaf`; P 5.1 is one as
    printed.
    """
    zero = (np.zeros((1, 1)), np.zeros((1, 1)))
    assert len(printed_sets(*zero, signed=True)) == 2
    assert len(printed_sets(*zero, signed=True, repaired=True)) == 1
    net, overlapping = nm.MLP((1, 3, 1), "tanh", bias=False), 0
    for _ in range(draws(50)):
        params = degenerate(rng, 3, 1)
        w, a = params[0].weight, params[1].weight.T
        assert len(printed_sets(a, w, signed=False)) == 1
        found = printed_sets(a, w, signed=True, repaired=True)
        assert len(found) == 1
        blocks = {frozenset(block.neurons) for block in invariant_leaf(net, params).partition[0]}
        assert {frozenset(block) for block in found[0][0] if block} == blocks
        silent = int(((w == 0).all(axis=1) & (a == 0).all(axis=1)).sum())
        as_printed = len(printed_sets(a, w, signed=True))
        assert as_printed == (1 + 2 ** (silent - 1) if silent else 1), (
            "each choice of signs of the zero neurons is one more"
        )
        overlapping += as_printed > 1
    tally(
        overlapping,
        of=draws(50),
        what="points in several of the printed sets, all with a zero neuron",
    )


@pytest.mark.parametrize(("activation", "signs"), [("exp", 1), ("tanh", 2)])
def test_order_is_that_of_the_spaces(activation, signs):
    """A leaf with s non-zero blocks covers signs·s(s−1)/2 by merging two, and for odd σ s by one
    going to zero; meets intersect.
    """
    lattice = invariant_leaves(nm.MLP((1, 3, 1), activation, bias=False))
    lower = [sum(1 for _, upper in lattice.covers if upper == i) for i in range(len(lattice))]
    for count, leaf in zip(lower, lattice, strict=True):
        s = sum(not block.zero for block in leaf.partition[0])
        assert count == signs * s * (s - 1) // 2 + (s if activation == "tanh" else 0)
    for i, j in itertools.combinations(range(len(lattice)), 2):
        both = np.concatenate(
            [np.eye(6) - leaf.basis.T @ leaf.basis for leaf in (lattice[i], lattice[j])]
        )
        meet = lattice[lattice.meet(i, j)]
        assert 6 - np.linalg.matrix_rank(both) == meet.dimension
        assert meet <= lattice[i] <= lattice[lattice.join(i, j)]
    assert all(lattice.dimensions[j] - lattice.dimensions[i] >= 2 for i, j in lattice.covers)


def test_the_leaves_of_example_3_1():
    """a₁e^{w₁x} + a₂e^{w₂x}: ℝ⁴ without the equal neurons, and the equal neurons, of dimension
    2.
    """
    lattice = invariant_leaves(nm.MLP((1, 2, 1), "exp", bias=False))
    assert lattice.dimensions.tolist() == [4, 2]
    assert lattice.covers == ((1, 0),)
    equal = nm.Layer(np.array([[0.3], [0.3]])), nm.Layer(np.array([[2.0, 2.0]]))
    unequal = nm.Layer(np.array([[0.3], [0.3]])), nm.Layer(np.array([[2.0, 1.0]]))
    assert (lattice.index(equal), lattice.index(unequal)) == (1, 0)


def test_set_algebra(rng):
    """Unions, intersections and complements of leaves, as sets of points.   [invariant, P 3.2]"""
    lattice = invariant_leaves(nm.MLP((1, 3, 1), "tanh", bias=False))
    a, b = (lattice.set(np.flatnonzero(rng.random(len(lattice)) < 0.5)) for _ in range(2))
    for _ in range(30):
        params = degenerate(rng, 3, 1)
        x, y = a.contains(params), b.contains(params)
        assert ((a | b).contains(params), (a & b).contains(params), (~a).contains(params)) == (
            x or y,
            x and y,
            not x,
        )
    assert (a | ~a).is_everything and len(a & ~a) == 0
    assert lattice.set([len(lattice) - 1]).is_closed and not lattice.set([0]).is_closed


def test_drawing_and_refusals():
    axes = invariant_leaves(nm.MLP((1, 3, 1), "exp", bias=False)).draw()
    assert len(axes.texts) == 5 and len(axes.lines) == 6
    with pytest.raises(ValueError, match="2 hidden layers"):
        invariant_leaves(nm.MLP((1, 2, 2, 1)))
    with pytest.raises(ValueError, match="115975 leaves"):
        invariant_leaves(nm.MLP((1, 10, 1), "exp"))
    with pytest.raises(ValueError, match="even output activation"):
        invariant_leaves(nm.MLP((1, 2, 1), "exp", output_activation="cos"))
