"""The dimension account against theory, exhaustively over small shapes, every rank exact; and Prop A.8."""

import itertools

import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.tangent.generators import generators


def dyadic(rng: np.random.Generator, shape, step: float = 16.0) -> np.ndarray:
    """Generic small dyadic numbers: exact in every arithmetic."""
    return rng.integers(-999, 1000, shape) / step


def draw(rng: np.random.Generator, net: nm.MLP):
    return tuple(
        nm.Layer(dyadic(rng, (b, a)), dyadic(rng, b) if net.bias else None)
        for a, b in zip(net.widths[:-1], net.widths[1:], strict=True)
    )


def closes(widths: tuple[int, ...]) -> bool:
    """Running minima from the left are n_0 or r, from the right n_L or r, r the smallest width."""
    r = min(widths)
    left, right = np.minimum.accumulate(widths), np.minimum.accumulate(widths[::-1])
    return set(left.tolist()) <= {widths[0], r} and set(right.tolist()) <= {widths[-1], r}


@pytest.mark.parametrize("bias", [False, True], ids=["GL", "affine"])
def test_generic_deep_linear_networks_close_exactly_when_the_running_minima_allow(bias, rng, tally):
    shapes = [
        w
        for depth, widest in ((2, 4), (3, 3), (4, 2))
        for w in itertools.product(range(1, widest + 1), repeat=depth + 1)
    ]
    closed = 0
    for widths in shapes:
        net = nm.MLP(widths, "identity", bias=bias)
        account = S.dimension_account(net, draw(rng, net), dyadic(rng, (widths[0] + 2, widths[0])))
        r = min(widths)
        assert int(account.functional) == r * (widths[0] + widths[-1] - r) + bias * widths[-1]
        assert account.in_kernel
        assert account.closes == closes(widths), widths
        closed += account.closes
        if len(widths) == 3:
            d, h, c = widths
            if min(c, d) <= h <= max(c, d):
                assert account.unexplained == (h - c) * (d - h)
    tally(len(shapes) - closed, of=len(shapes), what="shapes that do not close")


@pytest.mark.parametrize("n_in", [1, 2, 3])
def test_one_hidden_layer_closes_with_at_most_one_or_at_least_n0_active_neurons(n_in, rng, tally):
    """With k always-active neurons and one output the residual is (k − 1)(n_0 − k) for 1 ≤ k ≤ n_0, else 0."""
    cases = residuals = 0
    for width, active in itertools.product(range(1, 6), range(6)):
        if active > width:
            continue
        net = nm.MLP((n_in, width, 1))
        (W, b), out = draw(rng, net)
        W, b = W / 64, b / 64
        b[:active] = 64.0
        params, x = (nm.Layer(W, b), out), dyadic(rng, (40 * n_in + 40, n_in), 512.0)
        account = S.dimension_account(net, params, x)
        [status] = account.equivalence.layers
        if len(status.linear) != active or len(status.inactive) or not _well_sampled(account.equivalence, n_in):
            continue
        cases += 1
        expected = (active - 1) * (n_in - active) if 1 <= active <= n_in else 0
        assert account.unexplained == expected
        assert account.closes == (active <= 1 or active >= n_in)
        residuals += expected > 0
    tally(cases, of=20, what="networks with all kinks sampled")
    assert residuals > 0 or n_in < 3


def _well_sampled(group: S.HiddenEquivalence, n_in: int) -> bool:
    """Every moving neuron has more than n_0 + 1 samples on both sides that differ in its sign."""
    moving = group.signs.layers[0][:, group.layers[0].scaled] > 0
    return bool((moving.sum(axis=0) > n_in + 2).all() and ((~moving).sum(axis=0) > n_in + 2).all())


def test_the_paper_network_on_100_points(key):
    """[complexity, Sec. 5]: the parts add up, the generators are in the kernel, and the span agrees with tangent's own kernel vectors."""
    net, x = nm.MLP((1, 10, 10, 10, 10, 1)), np.linspace(0, 1, 100)[:, None]
    params = net.init(key=key, dtype="float64")
    account = S.dimension_account(net, params, x)
    assert sum(count for _, count in account.rows) == account.parameters == 361
    assert account.in_kernel
    assert int(account.functional) <= account.sample_limit <= 100
    group, p = account.equivalence, modular.random_prime()
    free, theirs = group.problem.zero_columns(), generators(group.problem, p)
    ours = group.fields.modulo(params, p)
    units = np.eye(net.n_params, dtype=np.int64)[free]
    both = np.concatenate([ours, theirs, units])
    assert (
        modular_rank(ours, p)
        == modular_rank(np.concatenate([theirs, units]), p)
        == modular_rank(both, p)
        == account.symmetric
    )
    assert "unexplained" in str(account)
    assert f"{account.parameters}" in str(account)


def test_generators_in_floating_point_and_modulo_a_prime_are_the_same_numbers(rng):
    net = nm.MLP((2, 4, 3, 2), (nm.Mixed(relu=2, identity=2), nm.power(2)))
    params = draw(rng, net)
    group = S.hidden_equivalence(net, params, dyadic(rng, (30, 2)))
    p = modular.random_prime()
    assert (modular.from_floats(group.generators(), p) == group.fields.modulo(params, p)).all()
    J = nm.jacobian(net, params, group.x)
    assert np.abs(J @ group.generators().T).max() <= 1e-12 * np.abs(J).max() * np.abs(group.generators()).max()
    assert int(group.orbit_dimension(exact=False)) == group.orbit_dimension()
    assert group.orbit_dimension() + group.stabiliser_dimension() == group.dimension


def test_under_leaky_relu_a_fixed_negative_neuron_is_linear_and_not_dead():
    params = (nm.Layer(np.array([[1.0], [1.0]]), np.array([-9.0, 0.0])), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    x = np.array([[-1.0], [1.0], [2.0]])
    leaky = S.hidden_equivalence(nm.MLP((1, 2, 1), nm.leaky_relu(0.25)), params, x)
    assert (leaky.layers[0].linear.tolist(), leaky.layers[0].slopes.tolist()) == ([0], [0.25])
    relu = S.hidden_equivalence(nm.MLP((1, 2, 1)), params, x)
    assert relu.layers[0].inactive.tolist() == [0]
    assert relu.sources["inactive neurons"].count == 3


def test_roughly_monotonic_architectures_have_trivial_stabilisers_by_condition_i_but_not_by_condition_ii(rng, tally):
    """[complexity, Prop A.8] fails as printed: (1, 3 | 2) satisfies (ii), and its generic stabiliser has dimension 1.

    For one hidden layer X[W|b] = 0 and VX = 0 leave (n_1 − n_0 − 1)₊(n_1 − n_2)₊ dimensions.
    """
    shapes = [w for length in (3, 4) for w in itertools.product(range(1, 5), repeat=length)]
    failing, first = [], 0
    for widths in shapes:
        shrinking = all(b - 1 <= a for a, b in zip(widths[:-1], widths[1:], strict=True))
        growing = all(a - 1 <= b for a, b in zip(widths[:-1], widths[1:], strict=True))
        net = nm.MLP(widths, "identity")
        group = S.GeneralLinearGroup(net)
        dimension = group.stabiliser_dimension(draw(rng, net))
        if len(widths) == 3:
            a, h, c = widths
            assert dimension == max(0, h - a - 1) * max(0, h - c)
        if shrinking:
            assert dimension == 0, widths
            first += 1
        elif growing and dimension:
            failing.append((widths, dimension))
    tally(first, of=len(shapes), what="architectures with condition (i)")
    assert failing[0] == ((1, 3, 2), 1)


def test_neurons_of_one_sign_pattern_mix_freely():
    """(1, 2 | 1) with z = x and 2x + ½ on {±2, ±3}: nullity 4; five neurons of one pattern: 25 generators, orbit 13."""
    x = np.array([[-2.0], [2.0], [-3.0], [3.0]])
    two = (nm.Layer(np.array([[1.0], [2.0]]), np.array([0.0, 0.5])), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    group = S.hidden_equivalence(nm.MLP((1, 2, 1)), two, x)
    assert (group.dimension, group.orbit_dimension(), group.sources["shared sign patterns"].count) == (4, 4, 2)
    assert 7 - int(nm.functional_dimension(nm.MLP((1, 2, 1)), two, x, exact=True)) == 4
    weights = np.array([1.0, 1.25, 1.5, 1.75, 2.0])
    five = (nm.Layer(weights[:, None], weights[::-1] / 16), nm.Layer(weights[None] - 1.375, np.zeros(1)))
    account = S.dimension_account(nm.MLP((1, 5, 1)), five, x)
    assert (account.equivalence.dimension, account.symmetric, account.closes, account.in_kernel) == (25, 13, True, True)
    apart = (nm.Layer(np.array([[1.0], [-2.0]]), np.array([0.0, 0.5])), two[1])
    assert S.hidden_equivalence(nm.MLP((1, 2, 1)), apart, x).sources["shared sign patterns"].count == 0
    opposite = S.hidden_equivalence(nm.MLP((1, 2, 1), "abs"), apart, x)
    assert (opposite.layers[0].mixed, opposite.orbit_dimension()) == (((0, 1, -1.0), (1, 0, -1.0)), 4)
    assert np.abs(nm.jacobian(nm.MLP((1, 2, 1), "abs"), apart, x) @ opposite.generators().T).max() == 0


def test_bad_input_is_refused(rng):
    net = nm.MLP((1, 2, 1), "tanh")
    with pytest.raises(ValueError, match=r"`f` uses tanh .* has no exact value at rational numbers"):
        S.dimension_account(net, net_params := draw(rng, net), np.ones((3, 1)))
    with pytest.raises(ValueError, match="`x` has 2 features but the network takes 1"):
        S.dimension_account(nm.MLP((1, 2, 1)), net_params, np.ones((3, 2)))
