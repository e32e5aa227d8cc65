"""The exact functional dimension against elimination over the rationals, and against spectra
with a clear gap.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cast
import naive
import neuromanifold as nm
from neuromanifold.regions import exact_signs


def degenerate(rng: np.random.Generator, params: tuple[nm.Layer, ...]) -> tuple[nm.Layer, ...]:
    """Zero a layer, silence a neuron, or copy one neuron onto another."""
    if len(params) == 1:
        return params
    index = int(rng.integers(len(params) - 1))
    weight, bias = (
        params[index].weight.copy(),
        None if params[index].bias is None else params[index].bias.copy(),
    )
    kind, first, last = rng.integers(3), 0, len(weight) - 1
    if kind == 0:
        weight[:] = 0
    elif kind == 1 and bias is not None:
        weight[first], bias[first] = 0, -1
    else:
        weight[last] = weight[first]
        if bias is not None:
            bias[last] = bias[first]
    return (*params[:index], nm.Layer(weight, bias), *params[index + 1 :])


SMOOTH = (naive.IDENTITY, naive.SQUARE, cast.NAIVE_PARABOLA)


def kinks(member: cast.Member, params, x: np.ndarray) -> set[tuple[int, int, int]]:
    """(sample, layer, neuron) where a neuron with a kink gets exactly zero."""
    exact, reference = naive.exact(list(params)), member.reference
    return {
        (i, l, k)
        for i, sample in enumerate(naive.exact(x))
        for l, z in enumerate(naive.run(reference, exact, sample)[0])
        for k, entry in enumerate(z)
        if not entry > 0 and not entry < 0 and reference.scalars(l, len(z))[k] not in SMOOTH
    }


def test_exact_rank_is_the_one_over_the_rationals(rng: np.random.Generator, draws, tally):
    total, deficient, singular = draws(80), 0, 0
    for number in range(total):
        member = cast.architecture(rng, width=4, depth=4, roots=number % 5 == 0)
        params = cast.coarse(rng, member.draw(rng))
        params = degenerate(rng, params) if number % 2 else params
        x = cast.coarse(rng, member.inputs(rng, int(rng.integers(1, 7))))
        x = x[rng.integers(0, len(x), len(x))] if number % 3 == 0 else x
        rank = nm.functional_dimension(member.model, params, x, exact=True)
        assert rank.exact
        assert int(rank) == naive.functional_dimension(member.reference, params, x), (
            member.model,
            params,
            x,
        )
        assert len(rank.certificate.kinks) + rank.certificate.ties == len(kinks(member, params, x))
        deficient += int(rank) < min(len(x) * member.outputs, member.model.n_params)
        singular += bool(rank.certificate.kinks)
    tally(deficient, of=total, what="exact ranks below full")
    tally(singular, of=total, what="samples with a pre-activation that is exactly zero")


@pytest.mark.parametrize(
    "dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64], ids=lambda t: t.__name__
)
@pytest.mark.parametrize(
    "member", [cast.BIAS_FREE, cast.SQUARE, cast.MIXED_RELU, cast.NTK], ids=str
)
def test_floats_of_every_width_are_taken_at_their_exact_value(
    member: cast.Member, dtype, rng: np.random.Generator
):
    params = jax.tree.map(lambda leaf: np.asarray(leaf).astype(dtype), member.draw(rng))
    x = member.inputs(rng, 4).astype(dtype)
    rank = nm.functional_dimension(member.model, params, x, exact=True)
    assert int(rank) == naive.functional_dimension(member.reference, params, x)
    assert rank.certificate.verify(member.model, params, x)


def test_exact_rank_is_the_float64_rank_wherever_the_gap_is_clear(
    rng: np.random.Generator, draws, tally
):
    """Rows of very different size mislead float64 even so (once in 2,000 networks, by compositions
    of squares): then
    the exact rank is the larger one, and the one of the Jacobian with rows of length one."""
    total, clear, deficient, misled = draws(120), 0, 0, 0
    for _ in range(total):
        member = cast.architecture(rng, width=12, depth=5)
        params, x = member.draw(rng), member.inputs(rng, int(rng.integers(2, 40)))
        exact = int(nm.functional_dimension(member.model, params, x, exact=True))
        jacobian = member.jacobian(params, x)
        rank, gap = naive.singular_rank(jacobian)
        if gap > 1e6:
            clear += 1
            deficient += exact < min(len(x) * member.outputs, member.model.n_params)
            if exact != rank:
                misled += 1
                lengths = np.linalg.norm(jacobian, axis=1, keepdims=True)
                assert lengths.max() > 1e12 * lengths[lengths > 0].min(), (member.model, params, x)
                rank, gap = naive.singular_rank(jacobian / np.where(lengths > 0, lengths, 1))
                assert gap > 1e6
            assert exact == rank, (member.model, params, x)
    assert misled <= max(1, total / 200)
    tally(
        clear,
        of=total,
        what=f"spectra with a gap above 1e6, {total - clear} excluded, {misled} misled by their "
        "scale",
    )
    tally(deficient, of=clear, what="of them below full rank")


@pytest.mark.parametrize("member", cast.EXACT, ids=str)
def test_exact_rank_of_the_cast_is_the_numerical_one(
    member: cast.Member, rng: np.random.Generator, x64: bool
):
    params, x = member.draw(rng), member.inputs(rng, 40)
    exact, numerical = (
        nm.functional_dimension(member.model, params, x, exact=e) for e in (True, False)
    )
    assert int(exact) == int(numerical.value) and numerical.gap > 1e6
    assert (exact.exact, numerical.exact) == (True, False)


@pytest.mark.parametrize(
    "x, rank",
    [([[1, 1], [1, 1 + 2.0**-52]], 2), ([[1, 1], [1, 1]], 1), ([[0.1, 0.7], [0.3, 2.1]], 2)],
)
def test_a_rank_that_floats_cannot_see(x: list, rank: int):
    """The Jacobian of a linear unit is X itself; 0.1·2.1 and 0.7·0.3 are equal decimals and
    unequal floats.
    """
    net, params, x = nm.MLP((2, 1), bias=False), (nm.Layer(np.ones((1, 2)), None),), np.array(x)
    assert naive.exact_rank(naive.exact(x)) == rank
    assert int(nm.functional_dimension(net, params, x, exact=True)) == rank
    assert naive.singular_rank(x)[0] == 1


def test_numbers_of_every_size(rng: np.random.Generator):
    net, reference = nm.MLP((2, 3, 1)), naive.Network(((naive.RELU,) * 3,))
    params = (
        nm.Layer(
            np.array([[1e300, 5e-324], [1e-300, -1.0], [2.0**-1022, 2.0**1000]]),
            np.array([0.0, 1e-310, -(2.0**900)]),
        ),
        nm.Layer(np.array([[1e-308, 1e308, 1.0]]), np.zeros(1)),
    )
    x = rng.normal(size=(6, 2))
    assert int(nm.functional_dimension(net, params, x, exact=True)) == naive.functional_dimension(
        reference, params, x
    )


def test_an_activation_that_underflows_is_not_zero():
    """z⁸¹ at 1e-5 is 1e-405, and (1e-120)³ is 1e-360: both are zero in float64 and positive in
    truth.
    """
    chain = nm.MLP((1,) * 7, ("power(3)",) * 4 + ("relu",), bias=False)
    ones = tuple(nm.Layer(np.ones((1, 1))) for _ in range(6))
    assert int(nm.functional_dimension(chain, ones, np.array([[1e-5]]), exact=True)) == 1
    net = nm.MLP((1, 2, 2, 1), ("power(3)", "relu"))
    first = nm.Layer(np.array([[1e-120], [2e-120]]), np.zeros(2))
    params = (first, nm.Layer(np.eye(2), np.zeros(2)), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    assert (
        int(nm.functional_dimension(net, params, np.array([[1.0], [2.0], [3.0]]), exact=True)) == 3
    )


def _of_any_size(rng: np.random.Generator, tree):
    """The same tree with entries ±10^e, e uniform in [−300, 300], and a fifth of them zero."""

    def drawn(leaf):
        signs = rng.choice([-1.0, 0.0, 1.0], leaf.shape, p=(0.4, 0.2, 0.4))
        return signs * 10.0 ** rng.uniform(-300, 300, leaf.shape)

    return jax.tree.map(drawn, tree)


def test_signs_of_numbers_of_any_size_are_proved(rng: np.random.Generator, draws, tally):
    """The float64 pass against ball arithmetic, weights and data over 10^±300: products
    underflow, overflow and do not.
    """
    total, escalated = draws(60), 0
    for _ in range(total):
        member = cast.architecture(rng, width=3, depth=3)
        params, x = _of_any_size(rng, member.draw(rng)), _of_any_size(rng, member.inputs(rng, 4))
        fast, slow = (
            exact_signs(member.model, params, x, balls_only=balls) for balls in (False, True)
        )
        for a, b in zip(fast.layers, slow.layers, strict=True):
            np.testing.assert_array_equal(a, b)
        escalated += fast.escalated > 0
    tally(escalated, of=total, what="networks with a sign that float64 leaves open")


@pytest.mark.parametrize("member", [cast.OUTPUTS, cast.NTK, cast.SQUARE], ids=str)
def test_a_certificate_verifies_and_a_tampered_one_does_not(
    member: cast.Member, rng: np.random.Generator
):
    params, x = member.draw(rng), member.inputs(rng, 30)
    certificate = nm.functional_dimension(member.model, params, x, exact=True).certificate
    assert certificate.verify(member.model, params, x)
    moved = jax.tree.map(lambda leaf: leaf + 2.0**-20, params)
    assert not certificate.verify(member.model, moved, x)
    assert not certificate.verify(member.model, params, x + 2.0**-20)
    assert not certificate.verify(member.model, params, x[:-1])
    for change in (-1, 1):
        assert not tampered(certificate, rank=certificate.rank + change).verify(
            member.model, params, x
        )
    height, width = certificate.shape
    for change in (
        {"rank": -5},
        {"shape": (height + 1, width)},
        {"prime": certificate.prime + 1},
        {"rows": (*certificate.rows, 0)},
        {"ties": certificate.ties + 1},
        {"rounded": ("tanh of constants",)},
    ):
        assert not tampered(certificate, **change).verify(member.model, params, x), change


def tampered(certificate, **changes):
    """A copy with other fields, past whatever freezes it."""
    copy = object.__new__(type(certificate))
    for field in certificate.__dataclass_fields__:
        object.__setattr__(copy, field, changes.get(field, getattr(certificate, field)))
    return copy


def test_a_certificate_names_its_route_and_its_risk(rng: np.random.Generator, draws, tally):
    total, proved = draws(40), 0
    for number in range(total):
        member = cast.architecture(rng, width=6, depth=4)
        params, x = member.draw(rng), member.inputs(rng, 12)
        certificate = nm.functional_dimension(member.model, params, x, exact=True).certificate
        proved += certificate.proved
        assert certificate.proved == (certificate.failure_probability == 0)
        assert certificate.failure_probability < 1e-9
        assert certificate.verify(member.model, params, x)
        if number % 5 == 0:
            insisted = nm.functional_dimension(
                member.model, params, x, exact=True, prove=True
            ).certificate
            assert insisted.proved
            assert insisted.rank == certificate.rank
    tally(proved, of=total, what="exact ranks proved without insisting")


def test_a_claim_of_proof_is_verified_too(rng: np.random.Generator, tally):
    uncertain = 0
    for _ in range(20):
        member = cast.architecture(rng, width=6, depth=4)
        params, x = member.draw(rng), member.inputs(rng, 12)
        certificate = nm.functional_dimension(member.model, params, x, exact=True).certificate
        if not certificate.proved:
            uncertain += 1
            for reason in ("full rank", "kernel vectors", "regions", certificate.reason):
                claim = tampered(certificate, reason=reason, failure_probability=0.0)
                assert not claim.verify(member.model, params, x), reason
    tally(uncertain, of=20, what="certificates with a failure probability, tampered to be proofs")


@pytest.mark.parametrize(
    "activation, scalar",
    [
        (
            nm.Activation(lambda z: 1 + 2 * z - 3 * z**2, polynomial=(1.0, 2.0, -3.0)),
            cast.NAIVE_PARABOLA,
        ),
        (
            nm.Activation(lambda z: jnp.where(z > 0, 2 * z, -z / 2), slopes=(-0.5, 2.0)),
            naive.Scalar(
                lambda z: 2 * z if z > 0 else -z / 2, lambda z: 2 if z > 0 else Fraction(-1, 2)
            ),
        ),
    ],
    ids=["polynomial", "slopes"],
)
def test_a_declared_function_has_exact_ranks(
    activation: nm.Activation, scalar: naive.Scalar, rng: np.random.Generator
):
    params = cast.coarse(rng, cast.drawn((2, 3, 2), True)(rng))
    x = cast.coarse(rng, rng.normal(size=(9, 2)))
    expected = naive.functional_dimension(naive.Network(((scalar,) * 3,)), params, x)
    assert (
        int(nm.functional_dimension(nm.MLP((2, 3, 2), activation), params, x, exact=True))
        == expected
    )


def test_a_function_is_read_from_its_operations_not_from_what_is_declared():
    """w₂(w₁x + b₁)² + b₂ at x = 1, 1, 2 has rows (2, 1, 2, 1)-like of rank 2; a transcendental
    function is refused by name and line.
    """
    params = (nm.Layer(np.ones((1, 1)), np.zeros(1)), nm.Layer(np.ones((1, 1)), np.zeros(1)))
    net = nm.MLP((1, 1, 1), nm.Activation(lambda z: z**2))
    assert (
        int(nm.functional_dimension(net, params, np.array([[1.0], [1.0], [2.0]]), exact=True)) == 2
    )
    smooth = nm.MLP((1, 1, 1), nm.Activation(lambda z: jnp.tanh(z) ** 2))
    with pytest.raises(
        ValueError,
        match=r"`f` uses tanh \(.*test_exact\.py:\d+.*\), which has no exact value at rational numbers; pass `exact=False`",
    ):
        nm.functional_dimension(smooth, params, np.ones((2, 1)), exact=True)


def _wide(rng: np.random.Generator, alive: int = 64):
    """A network whose Jacobian on 8 samples is sketched; so many units before its head are alive."""
    net = nm.MLP((6, 64, 64, 64, 4))
    draw = lambda *shape: rng.normal(size=shape) / 8  # noqa: E731
    params = [
        nm.Layer(draw(b, a), draw(b)) for a, b in zip(net.widths, net.widths[1:], strict=False)
    ]
    params[2].bias[:4], params[2].bias[alive:] = 1e3, -1e3
    return net, tuple(params), rng.normal(size=(8, 6))


@pytest.mark.parametrize("alive", [64, 4])
def test_the_last_layers_prove_full_rank_where_they_have_it(alive: int, rng: np.random.Generator):
    """The head alone has rank 4·rank(h, 1): 32 for 64 units, 20 for 4, where the layer before it
    helps out.
    """
    net, params, x = _wide(rng, alive)
    rank = nm.functional_dimension(net, params, x, exact=True)
    certificate = rank.certificate
    assert int(rank) == naive.singular_rank(np.asarray(nm.jacobian(net, params, x)))[0] == 32
    assert certificate.sketched and certificate.reason == "full rank"
    layers = {name.partition(".")[0] for name in certificate.witness}
    assert layers == ({"3"} if alive == 64 else {"2", "3"})
    assert certificate.verify(net, params, x)
    head = tampered(certificate, witness=("3.weight", "3.bias"))
    assert head.verify(net, params, x) == (alive == 64)


def test_equal_samples_leave_no_full_rank_to_be_claimed(rng: np.random.Generator):
    net, params, x = _wide(rng)
    x[1] = x[0]
    rank = nm.functional_dimension(net, params, x, exact=True)
    assert int(rank) == 28 and rank.certificate.witness == ()
    claimed = tampered(
        rank.certificate, rank=32, reason="full rank", witness=("3.weight", "3.bias")
    )
    assert not claimed.verify(net, params, x)


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_behind_a_dead_layer_f_is_any_constant_and_nothing_else(
    dead: int, rng: np.random.Generator
):
    """f is the same at every sample, and its last bias makes it any vector: rank J = o = 4, proved
    by the columns without effect and the symmetries of the units that are linear behind it.
    """
    net, params, x = _wide(rng)
    params[dead].bias[:] = -1e3
    rank = nm.functional_dimension(net, params, x, exact=True)
    certificate = rank.certificate
    assert int(rank) == 4 and certificate.reason == "kernel vectors" and certificate.proved
    assert certificate.verify(net, params, x)
    assert not tampered(certificate, rank=3).verify(net, params, x)
    alive = [nm.Layer(layer.weight, layer.bias.copy()) for layer in params]
    alive[dead].bias[0] = 1e3
    assert not certificate.verify(net, tuple(alive), x)


def test_a_rank_far_below_the_sample_is_found_by_a_narrow_sketch(rng: np.random.Generator):
    """W₄W₃W₂W₁ of rank 2 in the middle: the matrices of rank at most 2 have dimension 2·(6 + 4 − 2)
    at such a product, and so many directions of 6·4 = 24 are reached: all, as W₄ and W₁ are free.
    """
    net = nm.MLP((6, 40, 2, 40, 4), "identity", bias=False)
    params = tuple(
        nm.Layer(rng.normal(size=(b, a)), None)
        for a, b in zip(net.widths, net.widths[1:], strict=False)
    )
    rank = nm.functional_dimension(net, params, rng.normal(size=(60, 6)), exact=True)
    assert int(rank) == 2 * (6 + 4 - 2) and rank.certificate.rank < 24
    assert rank.certificate.verify(net, params, rank.certificate.problem.data[0])
