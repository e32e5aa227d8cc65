"""Activation patterns, regions and fixed neurons against the naive network; exact signs against
rounded ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cast
import naive
import neuromanifold as nm
from neuromanifold.regions.problem import Problem


def expected_patterns(member: cast.Member, params, x: np.ndarray) -> np.ndarray:
    """z > 0 for neurons with a kink, true for the others; decided over the rationals."""
    signs = naive.patterns(member.reference, naive.exact(list(params)), naive.exact(x))
    smooth = [scalar is naive.IDENTITY for layer in member.reference.hidden for scalar in layer]
    return signs | np.array(smooth)


@pytest.mark.parametrize("member", cast.PIECEWISE_LINEAR, ids=str)
def test_patterns_are_the_naive_ones(member: cast.Member, rng: np.random.Generator, x64: bool):
    params, x = member.draw(rng), member.inputs(rng, 20)
    expected = expected_patterns(member, params, x)
    assert 0 < expected.mean() < 1
    for exact in (False, True):
        found = nm.activation_patterns(member.model, params, x, exact=exact)
        assert found.dtype == bool
        np.testing.assert_array_equal(found, expected)


def test_exact_patterns_of_drawn_networks_are_those_over_the_rationals(
    rng: np.random.Generator, draws, tally
):
    total, zeros = draws(100), 0
    for number in range(total):
        member = cast.architecture(rng, width=4, depth=4, roots=number % 5 == 0)
        hidden = {scalar for layer in member.reference.hidden for scalar in layer}
        if not hidden or hidden & {naive.SQUARE, cast.NAIVE_PARABOLA}:
            continue
        params, x = cast.coarse(rng, member.draw(rng)), cast.coarse(rng, member.inputs(rng, 5))
        expected = expected_patterns(member, params, x)
        np.testing.assert_array_equal(
            nm.activation_patterns(member.model, params, x, exact=True), expected
        )
        exactly = naive.preactivations(member.reference, naive.exact(list(params)), naive.exact(x))
        zeros += any(not z > 0 and not z < 0 for z in exactly.flat)
    tally(zeros, of=total, what="networks with a pre-activation that is exactly zero")


# A row of weights, a sample, and whether the exact sum is positive; half of them round to zero or
# to the other sign.
SUMS = [
    ([1.0, 2.0**-60, -1.0], [1.0, 1.0, 1.0], True),
    ([2.0**60, 1.0, -(2.0**60)], [1.0, 1.0, 1.0], True),
    ([0.1, 0.1, 0.1, -0.3], [1.0, 1.0, 1.0, 1.0], True),
    ([0.1, 0.2, -0.3], [1.0, 1.0, 1.0], True),
    ([1 + 2.0**-52, -1.0], [1 - 2.0**-52, 1.0], False),
    ([1e-200, 0.0], [1e-200, 1.0], True),
    ([1.0, -1.0], [1.0, 1.0], False),
    ([1.0, 1.0], [1.0, 1.0], True),
]


@pytest.mark.parametrize("scaling", ["standard", "ntk"])
@pytest.mark.parametrize("weights, sample, positive", SUMS)
def test_signs_that_rounding_gets_wrong_are_right_exactly(
    weights: list, sample: list, positive: bool, scaling: str
):
    net = nm.MLP((len(weights), 1, 1), scaling=scaling)
    params = (nm.Layer(np.array([weights]), np.zeros(1)), nm.Layer(np.ones((1, 1)), np.zeros(1)))
    x = np.array([sample])
    reference = naive.Network(((naive.RELU,),), ntk=scaling == "ntk")
    assert naive.patterns(reference, naive.exact(list(params)), naive.exact(x)).item() == positive
    assert nm.activation_patterns(net, params, x, exact=True).item() == positive


def test_floats_do_get_some_of_these_signs_wrong(tally):
    wrong = 0
    for weights, sample, positive in SUMS:
        net = nm.MLP((len(weights), 1, 1))
        params = (
            nm.Layer(np.array([weights]), np.zeros(1)),
            nm.Layer(np.ones((1, 1)), np.zeros(1)),
        )
        wrong += nm.activation_patterns(net, params, np.array([sample])).item() != positive
    tally(wrong, of=len(SUMS), what="sums whose sign float64 gets wrong")
    assert wrong >= 3


def test_an_error_of_rounding_in_one_layer_is_seen_in_the_next():
    """The hidden value is 2^-60, not 0, and the next layer multiplies it by 2^80."""
    net = nm.MLP((3, 1, 1, 1))
    params = (
        nm.Layer(np.array([[1.0, 2.0**-60, -1.0]]), np.zeros(1)),
        nm.Layer(np.array([[2.0**80]]), np.array([-1.0])),
        nm.Layer(np.ones((1, 1)), np.zeros(1)),
    )
    assert nm.activation_patterns(net, params, np.ones((1, 3)), exact=True).tolist() == [
        [True, True]
    ]
    assert nm.activation_patterns(net, params, np.ones((1, 3))).tolist() == [[False, False]]


def test_zero_is_inactive_and_reported():
    net = nm.MLP((1, 2, 1))
    params = (
        nm.Layer(np.array([[1.0], [1.0]]), np.array([0.0, -1.0])),
        nm.Layer(np.ones((1, 2)), np.zeros(1)),
    )
    x = np.array([[-1.0], [0.0], [0.5], [1.0], [2.0]])
    expected = [[0, 0], [0, 0], [1, 0], [1, 0], [1, 1]]
    assert nm.activation_patterns(net, params, x, exact=True).tolist() == expected
    certificate = nm.functional_dimension(net, params, x, exact=True).certificate
    assert certificate.kinks == ((1, 0, 0), (3, 0, 1))
    assert "2 kinks met exactly" in str(certificate)
    assert nm.functional_dimension(net, params, x + 0.25, exact=True).certificate.kinks == ()


def test_the_docstring_example_meets_three_regions():
    net = nm.MLP((1, 2, 1))
    params = (
        nm.Layer(jnp.array([[1.0], [1.0]]), jnp.array([0.0, -1.0])),
        nm.Layer(jnp.ones((1, 2)), jnp.zeros(1)),
    )
    x = jnp.array([[-1.0], [0.5], [0.7], [2.0]])
    assert nm.sampled_regions(net, params, x) == nm.sampled_regions(net, params, x, exact=True) == 3
    assert nm.sampled_regions(net, params, x[1:3]) == 1


@pytest.mark.parametrize("member", cast.PIECEWISE_LINEAR, ids=str)
def test_regions_and_fixed_neurons_are_the_naive_ones(
    member: cast.Member, rng: np.random.Generator
):
    params, x = member.draw(rng), member.inputs(rng, 20)
    patterns = expected_patterns(member, params, x)
    for exact in (False, True):
        regions = nm.sampled_regions(member.model, params, x, exact=exact)
        assert regions == len({tuple(row) for row in patterns.tolist()}) and isinstance(
            regions, int
        )
        fixed = nm.fixed_neurons(member.model, params, x, exact=exact)
        np.testing.assert_array_equal(np.concatenate(fixed.active), patterns.all(0))
        np.testing.assert_array_equal(np.concatenate(fixed.inactive), ~patterns.any(0))
        assert [len(layer) for layer in fixed.active] == [
            len(layer) for layer in member.reference.hidden
        ]


def test_fixed_neurons_are_counted_by_layer():
    """Always on, always off, and one that changes; then a second layer that is always on."""
    net = nm.MLP((1, 3, 1, 1))
    params = (
        nm.Layer(np.array([[1.0], [1.0], [1.0]]), np.array([3.0, -3.0, 0.5])),
        nm.Layer(np.ones((1, 3)), np.zeros(1)),
        nm.Layer(np.ones((1, 1)), np.zeros(1)),
    )
    fixed = nm.fixed_neurons(net, params, np.array([[-1.0], [0.0], [1.0]]))
    assert [layer.tolist() for layer in fixed.active] == [[True, False, False], [True]]
    assert [layer.tolist() for layer in fixed.inactive] == [[False, True, False], [False]]
    assert list(fixed.fixed_by_layer) == [2, 1]
    assert fixed.total == 3


def test_the_order_and_the_multiplicity_of_samples_do_not_matter(rng: np.random.Generator):
    member = cast.RELU
    params, x = member.draw(rng), member.inputs(rng, 20)
    shuffled = np.concatenate([x, x])[rng.permutation(40)]
    assert nm.sampled_regions(member.model, params, shuffled) == nm.sampled_regions(
        member.model, params, x
    )


def test_transformed_values_are_the_eager_ones(rng: np.random.Generator):
    member = cast.MIXED_RELU
    params, x = [member.draw(rng) for _ in range(4)], member.inputs(rng, 20)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    for verb in (nm.activation_patterns, nm.sampled_regions, nm.fixed_neurons):
        mapped = jax.jit(jax.vmap(lambda p, verb=verb: verb(member.model, p, x)))(stacked)
        eager = jax.tree.map(
            lambda *leaves: np.stack(leaves), *[verb(member.model, p, x) for p in params]
        )
        for a, b in zip(jax.tree.leaves(mapped), jax.tree.leaves(eager), strict=True):
            np.testing.assert_array_equal(a, b)


def test_exact_signs_refuse_tracers_in_one_sentence(rng: np.random.Generator):
    params, x = cast.RELU.draw(rng), jnp.asarray(cast.RELU.inputs(rng, 5), jnp.float32)
    for verb in (nm.activation_patterns, nm.sampled_regions, nm.fixed_neurons):
        with pytest.raises(
            TypeError,
            match=r"^`exact=True` needs concrete values and runs on the host; call it outside [^.]*\.",
        ):
            jax.jit(lambda data, verb=verb: verb(cast.RELU.model, params, data, exact=True))(x)


@pytest.mark.parametrize("member", [cast.TANH, cast.SQUARE], ids=str)
def test_networks_without_linear_regions_are_refused(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 5)
    for verb in (nm.activation_patterns, nm.sampled_regions, nm.fixed_neurons):
        with pytest.raises(ValueError, match=r"so it has no linear regions; use relu"):
            verb(member.model, params, x)


def hidden(params, x):
    """Six ReLUs of which the first is off everywhere, two outputs."""
    z = jnp.maximum(x @ params["in"] + params["offset"], 0.0)
    return z, z @ params["out"]


def masked(params, x):
    """The largest of the units that a mask of −∞ lets pass."""
    z, y = hidden(params, x)
    kept = jnp.where(x[:, :1] > 0, z, jnp.where(jnp.arange(6) < 3, z, -jnp.inf))
    return y + kept.max(axis=-1, keepdims=True)


ENDS = {
    "sigmoid": lambda params, x: jax.nn.sigmoid(hidden(params, x)[1]),
    "softmax": lambda params, x: jax.nn.softmax(hidden(params, x)[1]),
    "log_softmax": lambda params, x: jax.nn.log_softmax(hidden(params, x)[1]),
    "normalised": lambda params, x: (
        hidden(params, x)[1] / jnp.linalg.norm(1 + hidden(params, x)[0], axis=-1, keepdims=True)
    ),
}


@pytest.fixture(name="dead_first")
def _dead_first(rng):
    shapes = {"in": (4, 6), "offset": (6,), "out": (6, 2)}
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    params["offset"][0] = -1e3
    return params, rng.standard_normal((40, 4))


@pytest.mark.parametrize("end", ["sigmoid", "softmax", "log_softmax"])
def test_what_comes_after_the_last_bend_takes_nothing_away(end, dead_first):
    """The largest entry that softmax subtracts is no bend of f: without it there are as many
    regions.
    """
    params, x = dead_first
    regions = [
        nm.sampled_regions(f, params, x, exact=exact)
        for f in (lambda params, x: hidden(params, x)[1], ENDS[end])
        for exact in (False, True)
    ]
    assert len(set(regions)) == 1 < regions[0]
    fixed = nm.fixed_neurons(ENDS[end], params, x)
    assert [layer.tolist() for layer in fixed.inactive] == [[True] + 5 * [False]]


@pytest.mark.parametrize("f", [*ENDS.values(), masked], ids=[*ENDS, "mask"])
def test_parameters_without_effect_need_no_exact_values(f, dead_first):
    """The first unit's four weights, offset and two outgoing weights, and nothing else; the
    numerical Jacobian has zero columns there.
    """
    params, x = dead_first
    problem = Problem.of(f, params, x, require_exact=False)
    dead = jax.tree.map(np.zeros_like, params)
    dead["in"][:, 0] = dead["offset"][0] = dead["out"][0] = 1
    expected = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(dead)]) == 1
    np.testing.assert_array_equal(problem.zero_columns, expected)
    J = np.asarray(nm.jacobian(f, params, x))
    np.testing.assert_array_equal((J == 0).all(axis=0), expected)
    with pytest.raises(ValueError, match="rational operations, and `f` uses"):
        Problem.of(f, params, x)
