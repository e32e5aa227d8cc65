"""The numerical functional dimension: spectrum, threshold, gap, the warning, the sketch."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cast
import naive
import neuromanifold as nm


def linear(params, x):
    """Its Jacobian is X itself, so that any spectrum can be ordered."""
    return x @ params


def dimension(values: list[float], **options) -> nm.Rank:
    return nm.functional_dimension(
        linear, np.ones(len(values)), np.diag(np.array(values)), **options
    )


@pytest.mark.parametrize("member", cast.ALL, ids=str)
def test_the_spectrum_is_that_of_the_jacobian(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 6)
    jacobian = member.jacobian(params, x)
    expected = np.linalg.svd(jacobian, compute_uv=False)
    rank = nm.functional_dimension(member.model, params, x, smallest_gap=1.0)
    assert rank.spectrum.dtype == np.float64
    np.testing.assert_allclose(rank.spectrum, expected, rtol=0, atol=200 * 2.0**-52 * expected[0])
    np.testing.assert_allclose(
        rank.threshold, max(jacobian.shape) * 2.0**-52 * expected[0], rtol=1e-6
    )
    assert int(rank.value) == (expected > max(jacobian.shape) * 2.0**-52 * expected[0]).sum()
    assert not rank.exact
    assert rank.certificate is None


@pytest.mark.filterwarnings(
    "ignore:the rank .* when rows and columns of the Jacobian are scaled"
)  # of sizes far apart on purpose
def test_the_gap_is_smallest_kept_over_largest_dropped():
    rank = dimension([1.0, 0.5, 1e-3, 1e-20])
    assert (int(rank), list(range(rank)), rank.value + 1) == (3, [0, 1, 2], 4)
    np.testing.assert_allclose(rank.gap, 1e17, rtol=1e-9)
    assert dimension([1.0, 0.5, 1e-3]).gap == np.inf
    assert int(dimension([0.0, 0.0])) == 0


@pytest.mark.filterwarnings(
    "ignore:the rank .* when rows and columns of the Jacobian are scaled"
)  # of sizes far apart on purpose
def test_a_small_gap_draws_a_warning_unless_asked_for():
    values = list(10.0 ** -np.arange(20))
    with pytest.warns(
        UserWarning,
        match=r"rank 15 rests on a gap of only 10 in the spectrum: it depends on the threshold",
    ):
        assert int(dimension(values)) == 15
    assert int(dimension(values, smallest_gap=5.0)) == 15
    assert int(dimension([1.0, 1e-3, 1e-20])) == 2


@pytest.mark.filterwarnings(
    "ignore:the rank .* when rows and columns of the Jacobian are scaled"
)  # of sizes far apart on purpose
def test_the_tolerance_is_relative_to_the_largest_singular_value():
    for scale in (1e-8, 1.0, 1e8):
        assert int(dimension([scale, 1e-4 * scale, 1e-9 * scale], rtol=1e-6)) == 2
        assert int(dimension([scale, 1e-4 * scale, 1e-9 * scale], rtol=1e-2)) == 1
        assert int(dimension([scale, 1e-4 * scale, 1e-9 * scale])) == 3


def test_a_wide_jacobian_beyond_the_budget_is_sketched_and_says_so(rng: np.random.Generator):
    net = nm.MLP((2, 60, 60, 1))
    params = cast.drawn(net.widths, True)(rng)
    x = np.concatenate([rng.normal(size=(20, 2))] * 2)
    sketched = nm.functional_dimension(net, params, x, memory=300_000)
    whole = nm.functional_dimension(net, params, x)
    assert "sketched" in str(sketched) and sketched.sketched
    assert "sketched" not in str(whole) and not whole.sketched
    assert (
        int(sketched)
        == int(whole)
        == int(nm.functional_dimension(net, params, x, exact=True))
        == 20
    )


@pytest.mark.parametrize(
    "dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64], ids=lambda t: t.__name__
)
def test_ranks_are_computed_in_float64_whatever_comes_in(
    dtype, rng: np.random.Generator, x64: bool
):
    """Cast before the Jacobian is taken, not after: the float32 Jacobian of this net has another
    rank.
    """
    net = nm.MLP((2, 8, 8, 1), "tanh")
    params = [
        nm.Layer(*(np.asarray(leaf).astype(dtype) for leaf in layer))
        for layer in cast.drawn(net.widths, True)(rng)
    ]
    x = rng.normal(size=(120, 2)).astype(dtype)
    rank = nm.functional_dimension(net, tuple(params), x, smallest_gap=1.0)
    reference = naive.Network(cast.every(naive.SMOOTH["tanh"], 8, 8))
    expected = np.linalg.svd(
        naive.jacobian(reference, naive.plain(params), x.astype(np.float64)), compute_uv=False
    )
    assert rank.spectrum.dtype == np.float64
    np.testing.assert_allclose(rank.spectrum, expected, rtol=0, atol=1e-13 * expected[0])


def test_the_float32_rank_of_a_tanh_net_is_wrong(rng: np.random.Generator):
    """Why ranks are float64's business: the control for the test above."""
    net = nm.MLP((2, 8, 8, 1), "tanh")
    params = [
        nm.Layer(*(leaf.astype(np.float32) for leaf in layer))
        for layer in cast.drawn(net.widths, True)(rng)
    ]
    x = rng.normal(size=(120, 2)).astype(np.float32)
    single = nm.jacobian(net, tuple(params), x)
    assert single.dtype == np.float32
    rank, gap = naive.singular_rank(single, 2.0**-23)
    assert gap < 10
    assert rank < int(nm.functional_dimension(net, tuple(params), x, smallest_gap=1.0)) - 10


def test_a_jacobian_with_nan_has_no_rank():
    with pytest.raises((ValueError, ArithmeticError, FloatingPointError), match="nan"):
        nm.functional_dimension(
            lambda params, x: linear(params, x) * jnp.nan, np.ones(2), np.eye(2)
        )


def _scaled(net: nm.MLP, rng: np.random.Generator, way: str) -> tuple[nm.Layer, ...]:
    """Weights and biases whose layers, units or entries lie up to 10¹⁶ apart in size."""
    layers = []
    for fan_in, fan_out in itertools.pairwise(net.widths):
        weight, bias = rng.normal(size=(fan_out, fan_in)), rng.normal(size=fan_out)
        shape = {"layer": (), "unit": (fan_out, 1), "entry": weight.shape, "plain": None}[way]
        size = 1.0 if shape is None else 10.0 ** rng.uniform(-8, 8, shape)
        layers.append(nm.Layer(weight * size, bias * np.ravel(size)[0]))
    return tuple(layers)


@pytest.mark.filterwarnings("ignore:the rank")
def test_every_wrong_rank_is_doubted_and_hardly_a_right_one(rng, tally):
    net, x = nm.MLP((2, 4, 4, 1)), rng.normal(size=(20, 2))
    wrong, doubted = 0, 0
    draws = [("plain", 10), ("layer", 20), ("unit", 30), ("entry", 30)]
    for way in (way for way, count in draws for _ in range(count)):
        params = _scaled(net, rng, way)
        rank = nm.functional_dimension(net, params, x)
        if int(rank) != int(nm.functional_dimension(net, params, x, exact=True)):
            wrong += 1
            assert rank.doubt() and "doubtful" in str(rank)
        else:
            doubted += not rank.trusted
            assert rank.trusted or way != "plain"
    tally(wrong, of=90, what=f"wrong float64 ranks, all doubted; right ones doubted: {doubted}")
    assert wrong >= 10 and doubted <= 10


def test_terms_of_different_sizes_are_no_reason_to_doubt(rng):
    """A residual branch behind a layer scale of 1e-6, a mask of −1e9, a bias that softmax removes
    up to rounding: every digit that counts is there.
    """

    def f(params, x):
        scores = x @ params["w"] + params["b"] + jnp.array([0.0, 0.0, -1e9])
        return (x + 1e-6 * jnp.tanh(x @ params["w"]) + jax.nn.softmax(scores)) @ params["v"]

    params = {"w": rng.normal(size=(3, 3)), "v": rng.normal(size=(3, 1)), "b": rng.normal()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rank = nm.functional_dimension(f, params, rng.normal(size=(30, 3)))
    assert int(rank) == 12 and rank.trusted
    assert 0 < rank.rounding < rank.spectrum[11]


def test_a_rank_at_a_kink_is_doubted(rng):
    """0.3·0.1 − 0.1·0.3 is zero, and the last bit decides whether the unit is on."""
    params = {"w": np.array([[0.1], [-0.3]]), "v": np.ones((1, 1))}

    def f(params, x):
        return jax.nn.relu(x @ params["w"]) @ params["v"]

    with pytest.warns(UserWarning, match=r"lies on a kink\. `exact=True` decides it\.$"):
        assert int(nm.functional_dimension(f, params, np.array([[0.3, 0.1]]))) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert int(nm.functional_dimension(f, params, np.array([[0.5, 0.1]]))) == 1


def test_the_remedy_names_exact_only_where_it_is_possible():
    f = lambda params, x: jnp.exp(x) * params * 10.0 ** -jnp.arange(20.0)  # noqa: E731
    with pytest.warns(UserWarning, match=r"it depends on the threshold\.$"):
        nm.functional_dimension(f, np.ones(20), np.zeros((1, 1)))
