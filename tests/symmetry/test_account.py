"""The dimension account against theory, exhaustively over small shapes, every rank exact; and
Prop A.8.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.tangent.rank.certificate import certify_rank
from neuromanifold.tangent.rank.generators import generators


def dyadic(rng: np.random.Generator, shape, step: float = 16.0) -> np.ndarray:
    """Generic small dyadic numbers: exact in every arithmetic."""
    return rng.integers(-999, 1000, shape) / step


def draw(rng: np.random.Generator, net: nm.MLP):
    return tuple(
        nm.Layer(dyadic(rng, (b, a)), dyadic(rng, b) if net.bias else None)
        for a, b in zip(net.widths[:-1], net.widths[1:], strict=True)
    )


def left_over(net: nm.MLP, params, x) -> tuple[int, int]:
    """Rank, and D − rank − dim orbit of the hidden equivalence."""
    group = S.hidden_equivalence(net, params, x)
    rank = certify_rank(group.problem, prove=False).rank
    return rank, net.n_params - rank - int(group.orbit_dimension())


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
        rank, rest = left_over(net, draw(rng, net), dyadic(rng, (widths[0] + 2, widths[0])))
        r = min(widths)
        assert rank == r * (widths[0] + widths[-1] - r) + bias * widths[-1]
        assert (rest == 0) == closes(widths), widths
        closed += rest == 0
        if len(widths) == 3:
            d, h, c = widths
            if min(c, d) <= h <= max(c, d):
                assert rest == (h - c) * (d - h)
    tally(len(shapes) - closed, of=len(shapes), what="shapes that do not close")


@pytest.mark.parametrize("n_in", [1, 2, 3])
def test_one_hidden_layer_closes_with_at_most_one_or_at_least_n0_active_neurons(n_in, rng, tally):
    """With k always-active neurons and one output the residual is (k − 1)(n_0 − k) for 1 ≤ k ≤
    n_0, else 0.
    """
    cases = residuals = 0
    for width, active in itertools.product(range(1, 6), range(6)):
        if active > width:
            continue
        net = nm.MLP((n_in, width, 1))
        (W, b), out = draw(rng, net)
        W, b = W / 64, b / 64
        b[:active] = 64.0
        params, x = (nm.Layer(W, b), out), dyadic(rng, (40 * n_in + 40, n_in), 512.0)
        group = S.hidden_equivalence(net, params, x)
        [status] = group.layers
        if len(status.linear) != active or len(status.inactive) or not _well_sampled(group, n_in):
            continue
        cases += 1
        expected = (active - 1) * (n_in - active) if 1 <= active <= n_in else 0
        assert left_over(net, params, x)[1] == expected == group.relation_dimension()
        residuals += expected > 0
    tally(cases, of=20, what="networks with all kinks sampled")
    assert residuals > 0 or n_in < 3


def _well_sampled(group: S.HiddenEquivalence, n_in: int) -> bool:
    """Every moving neuron has more than n_0 + 1 samples on both sides that differ in its sign."""
    moving = group.signs.layers[0][:, group.layers[0].scaled] > 0
    return bool((moving.sum(axis=0) > n_in + 2).all() and ((~moving).sum(axis=0) > n_in + 2).all())


def test_the_paper_network_on_100_points(key):
    """[complexity, Sec. 5]: the rows add up, the generators are in the kernel, and the span
    agrees with tangent's own kernel vectors.
    """
    net, x = nm.MLP((1, 10, 10, 10, 10, 1)), np.linspace(0, 1, 100)[:, None]
    params = net.init(key=key, dtype="float64")
    account = S.dimension_account(net, params, x)
    assert sum(count for _, count in account.rows) == account.parameters == 361
    assert min(count for _, count in account.rows) >= 0
    assert sorted(account.chain) == list(account.chain)
    assert account.in_kernel
    assert account.exact
    assert int(account.functional) == account.chain[0] <= account.sample_limit <= 100
    assert account.unexplained <= 20
    group, p = account.equivalence, modular.random_prime()
    free, theirs = group.problem.zero_columns, generators(group.problem, p)
    ours = group.fields.modulo(params, p)
    units = np.eye(net.n_params, dtype=np.int64)[free]
    both = np.concatenate([ours, theirs, units])
    assert (
        modular_rank(ours, p)
        == modular_rank(np.concatenate([theirs, units]), p)
        == modular_rank(both, p)
        == account.symmetric
    )
    assert str(account).startswith("100 samples × 1 output allow at most 100 of 361 parameters\n")


def test_rows_add_up_and_a_one_hidden_layer_network_is_explained_by_its_patterns(rng, tally):
    """One hidden layer: on generic inputs of its regions ker J is what the patterns' relations
    say, so that nothing is confined or left.
    """
    net, related = nm.MLP((2, 5, 2)), 0
    for case in range(6):
        params, x = draw(rng, net), dyadic(rng, (3 + case, 2), 8.0)
        account = S.dimension_account(net, params, x)
        assert sum(count for _, count in account.rows) == net.n_params
        assert account.in_kernel
        assert account.unexplained == 0
        assert not any(
            count for name, count in account.explained.items() if name.startswith("confined")
        )
        related += account.explained["relations between patterns"] > 0
        first = S.hidden_equivalence(net, params, x)
        assert (
            account.chain[1] == net.n_params - first.orbit_dimension() - first.relation_dimension()
        )
    tally(related, of=6, what="networks with related patterns")


def _planted() -> tuple[nm.MLP, Any, np.ndarray]:
    """Two neurons that bend far outside the sample, one that never does anything, one region
    with a single sample.
    """
    net = nm.MLP((1, 4, 1))
    hidden = nm.Layer(np.array([[1.0], [1.0], [-1.0], [1.0]]), np.array([0.0, 40.0, -64.0, -1.0]))
    return (
        net,
        (hidden, nm.Layer(np.array([[1.0, 2.0, 3.0, 4.0]]), np.zeros(1))),
        np.array([[-2.0], [-1.0], [0.5], [0.75], [2.0]]),
    )


def test_the_chain_says_where_directions_are_lost():
    """Ranks by hand: pieces x < 0, 0 < x < 1, x > 1 with 2, 2 and 1 samples; neuron 1 bends at
    −40, neuron 2 at −64.
    """
    net, params, x = _planted()
    account = S.dimension_account(net, params, x)
    # On three pieces f spans 1 and x on all, on x > 0, on x > 1: 6; every kink shows two more
    # directions.
    assert account.chain == (5, 6, 9, 13)
    assert (account.everywhere["scalings"], account.unexplained, account.regions) == (4, 0, 3)
    assert account.reached == 5
    assert account.explained["too few samples in a region"] == 1
    assert account.on_regions["inactive neurons"] > 0
    wide = S.dimension_account(net, params, np.linspace(-99.0, 99.0, 400)[:, None])
    assert wide.chain == (9, 9, 9, 13)
    assert sum(wide.on_regions.values()) == 0


def test_a_group_that_is_none_is_refuted_and_one_that_is_counts_once(rng):
    net = nm.MLP((2, 3, 1))
    params, x = draw(rng, net), dyadic(rng, (40, 2))
    wrong = S.GeneralLinearGroup(nm.MLP((2, 3, 1), "identity"))
    plain, offered = (
        S.dimension_account(net, params, x),
        S.dimension_account(net, params, x, groups=[wrong]),
    )
    assert (plain.in_kernel, offered.in_kernel) == (True, False)
    assert offered.explained["generallinear group"] == 0
    assert offered.unexplained == plain.unexplained


def _attention(params, x):
    q, k, v = (x @ params[name] for name in "qkv")
    return (jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2), axis=-1) @ v @ params["o"]).mean(axis=1)


def test_other_networks_have_an_account_too(rng):
    """Convolutions exactly (2 channel scalings, modulo a prime), attention in float64 (GL(2)
    twice); by name, unless `groups=()`.
    """
    shapes = {"conv": {"w": (2, 1, 3), "b": (2,)}, "dense": {"w": (2, 8), "b": (2,)}}
    params = jax.tree.map(
        lambda s: dyadic(rng, s, 512.0), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )

    def conv(params, x):
        y = jax.lax.conv_general_dilated(x[:, None], params["conv"]["w"], (1,), "VALID")
        y = jax.nn.relu(y + params["conv"]["b"][None, :, None]).reshape(len(x), -1)
        return y @ params["dense"]["w"].T + params["dense"]["b"]

    account = S.dimension_account(conv, params, dyadic(rng, (30, 6)))
    assert account.exact
    assert account.chain == (24, 24, 24, 26)
    assert sum(count for _, count in account.rows) == 26
    assert (
        account.explained["scaling of conv.b conv.w dense.w"] == 2
        and account.closes
        and account.in_kernel
    )
    heads = {name: rng.normal(size=(3, 2)) for name in "qkv"} | {"o": rng.normal(size=(2, 3))}
    x = rng.normal(size=(20, 4, 3))
    soft, bare = (
        S.dimension_account(_attention, heads, x),
        S.dimension_account(_attention, heads, x, groups=()),
    )
    assert (soft.exact, soft.chain, soft.unexplained, bare.unexplained) == (
        False,
        (16, 16, 16, 24),
        0,
        8,
    )
    assert soft.explained["GL(2) of k q"] == soft.explained["GL(2) of o v"] == 4
    assert soft.gap > 1e6


def test_related_patterns_are_directions_of_their_own():
    """z = x and −x on {±2, ±3}: 1_A + 1_B = 1, nullity 3 = 2 scalings + 1, though no group says
    so.
    """
    x = np.array([[-2.0], [2.0], [-3.0], [3.0]])
    net, hidden = nm.MLP((1, 2, 1)), nm.Layer(np.array([[1.0], [-1.0]]), np.zeros(2))
    params = (hidden, nm.Layer(np.array([[1.0, 3.0]]), np.zeros(1)))
    group = S.hidden_equivalence(net, params, x)
    assert (group.orbit_dimension(), group.relation_dimension()) == (2, 1)
    assert left_over(net, params, x) == (4, 1)
    found = group.relation_directions()
    assert len(found) == 3
    assert np.abs(nm.jacobian(net, params, x) @ found.T).max() < 1e-14
    assert S.dimension_account(net, params, x).explained["relations between patterns"] == 1
    apart = (nm.Layer(np.array([[1.0], [-1.0]]), np.array([0.0, 2.5])), params[1])
    assert S.hidden_equivalence(net, apart, x).relation_dimension() == 0
    ntk = nm.MLP((1, 2, 1), scaling="ntk")
    found = S.hidden_equivalence(ntk, params, x).relation_directions()
    assert np.abs(nm.jacobian(ntk, params, x) @ found.T).max() < 1e-14


def test_generators_in_floating_point_and_modulo_a_prime_are_the_same_numbers(rng):
    net = nm.MLP((2, 4, 3, 2), (nm.Mixed(relu=2, identity=2), nm.power(2)))
    params = draw(rng, net)
    group = S.hidden_equivalence(net, params, dyadic(rng, (30, 2)))
    p = modular.random_prime()
    assert (modular.from_floats(group.generators(), p) == group.fields.modulo(params, p)).all()
    J = nm.jacobian(net, params, group.x)
    assert (
        np.abs(J @ group.generators().T).max()
        <= 1e-12 * np.abs(J).max() * np.abs(group.generators()).max()
    )
    assert int(group.orbit_dimension(exact=False)) == group.orbit_dimension()
    assert group.orbit_dimension() + group.stabiliser_dimension() == group.dimension


def test_under_leaky_relu_a_fixed_negative_neuron_is_linear_and_not_dead():
    params = (
        nm.Layer(np.array([[1.0], [1.0]]), np.array([-9.0, 0.0])),
        nm.Layer(np.ones((1, 2)), np.zeros(1)),
    )
    x = np.array([[-1.0], [1.0], [2.0]])
    leaky = S.hidden_equivalence(nm.MLP((1, 2, 1), nm.leaky_relu(0.25)), params, x)
    assert (leaky.layers[0].linear.tolist(), leaky.layers[0].slopes.tolist()) == ([0], [0.25])
    relu = S.hidden_equivalence(nm.MLP((1, 2, 1)), params, x)
    assert relu.layers[0].inactive.tolist() == [0]
    assert relu.sources["inactive neurons"].count == 3


def test_roughly_monotonic_architectures_have_trivial_stabilisers_by_condition_i_but_not_by_condition_ii(
    rng, tally
):
    """[complexity, Prop A.8] fails as printed: (1, 3 | 2) satisfies (ii), and its generic
    stabiliser has dimension 1.

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
    """(1, 2 | 1) with z = x and 2x + ½ on {±2, ±3}: nullity 4; five neurons of one pattern: 25
    generators, orbit 13.
    """
    x = np.array([[-2.0], [2.0], [-3.0], [3.0]])
    two = (
        nm.Layer(np.array([[1.0], [2.0]]), np.array([0.0, 0.5])),
        nm.Layer(np.ones((1, 2)), np.zeros(1)),
    )
    group = S.hidden_equivalence(nm.MLP((1, 2, 1)), two, x)
    assert (
        group.dimension,
        group.orbit_dimension(),
        group.sources["shared sign patterns"].count,
    ) == (4, 4, 2)
    assert 7 - int(nm.functional_dimension(nm.MLP((1, 2, 1)), two, x, exact=True)) == 4
    weights = np.array([1.0, 1.25, 1.5, 1.75, 2.0])
    five = (
        nm.Layer(weights[:, None], weights[::-1] / 16),
        nm.Layer(weights[None] - 1.375, np.zeros(1)),
    )
    account = S.dimension_account(nm.MLP((1, 5, 1)), five, x)
    assert (
        account.equivalence.dimension,
        account.symmetric,
        account.closes,
        account.in_kernel,
    ) == (25, 13, True, True)
    apart = (nm.Layer(np.array([[1.0], [-2.0]]), np.array([0.0, 0.5])), two[1])
    assert (
        S.hidden_equivalence(nm.MLP((1, 2, 1)), apart, x).sources["shared sign patterns"].count == 0
    )
    opposite = S.hidden_equivalence(nm.MLP((1, 2, 1), "abs"), apart, x)
    assert (opposite.layers[0].mixed, opposite.orbit_dimension()) == (
        ((0, 1, -1.0), (1, 0, -1.0)),
        4,
    )
    assert (
        np.abs(nm.jacobian(nm.MLP((1, 2, 1), "abs"), apart, x) @ opposite.generators().T).max() == 0
    )


def test_bad_input_is_refused(rng):
    net = nm.MLP((1, 2, 1), "tanh")
    with pytest.raises(
        ValueError, match=r"`f` uses tanh .* has no exact value at rational numbers"
    ):
        S.hidden_equivalence(net, net_params := draw(rng, net), np.ones((3, 1)))
    with pytest.raises(ValueError, match="`x` has 2 features but the network takes 1"):
        S.dimension_account(nm.MLP((1, 2, 1)), net_params, np.ones((3, 2)))
