"""The numerical functional dimension: spectrum, threshold, gap, the warning, the sketch."""

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
    "ignore:the rank .* comes from numbers up to"
)  # of sizes far apart on purpose
def test_the_gap_is_smallest_kept_over_largest_dropped():
    rank = dimension([1.0, 0.5, 1e-3, 1e-20])
    assert (int(rank), list(range(rank)), rank.value + 1) == (3, [0, 1, 2], 4)
    np.testing.assert_allclose(rank.gap, 1e17, rtol=1e-9)
    assert dimension([1.0, 0.5, 1e-3]).gap == np.inf
    assert int(dimension([0.0, 0.0])) == 0


@pytest.mark.filterwarnings(
    "ignore:the rank .* comes from numbers up to"
)  # of sizes far apart on purpose
def test_a_small_gap_draws_a_warning_unless_asked_for():
    values = list(10.0 ** -np.arange(20))
    with pytest.warns(
        UserWarning,
        match=r"rank 15 rests on a gap of only 10 in the spectrum; it depends on the threshold",
    ):
        assert int(dimension(values)) == 15
    assert int(dimension(values, smallest_gap=5.0)) == 15
    assert int(dimension([1.0, 1e-3, 1e-20])) == 2


@pytest.mark.filterwarnings(
    "ignore:the rank .* comes from numbers up to"
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
