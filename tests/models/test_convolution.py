"""Linear convolutional networks: the definition by loops, the composition law two ways, exact
arithmetic, errors.
"""

from fractions import Fraction
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.precision import arithmetic

NETS = [
    LinearConvNet((3, 2), (2, 1)),
    LinearConvNet((2, 3, 2), (3, 1, 2)),
    LinearConvNet((2, 2, 3, 2), (1, 2, 1, 3)),
    LinearConvNet(((2, 3), (3, 1)), ((1, 2), (2, 1))),
    LinearConvNet(((2, 2), (1, 2), (3, 2)), ((2, 1), (1, 3), (2, 2))),
    LinearConvNet(((2, 2, 1), (1, 2, 2)), ((2, 1, 1), (1, 2, 2))),
]


def filters(net: LinearConvNet, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return tuple(rng.normal(size=shape) for shape in net.filter_shapes)


def convolve(w: np.ndarray, stride: tuple[int, ...], signal: np.ndarray) -> np.ndarray:
    """[riemann, Eq 2 and 3] as loops."""
    out = tuple((d - k) // s + 1 for d, k, s in zip(signal.shape, w.shape, stride, strict=True))
    result = np.zeros(out)
    for i in product(*map(range, out)):
        for j in product(*map(range, w.shape)):
            result[i] += (
                w[j] * signal[tuple(a * s + b for a, s, b in zip(i, stride, j, strict=True))]
            )
    return result


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_the_layers_are_the_loops_of_the_definition(net, rng):
    params = filters(net, rng)
    x = rng.normal(size=(2, *net.signal_shape((2,) * net.dimension)))
    expected = x
    for w, stride in zip(params, net.strides, strict=True):
        expected = np.stack([convolve(w, stride, signal) for signal in expected])
    with arithmetic():
        y = np.asarray(net(params, x))
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_composing_layers_multiplies_polynomials(net, rng):
    """[riemann, Eq 8, Lem 9]: convolving with the end-to-end filter is the network; swapped
    index order is not.
    """
    params = filters(net, rng)
    v = net.end_to_end(params)
    whole = LinearConvNet([net.end_to_end_shape], [net.end_to_end_stride])
    x = rng.normal(size=(3, *net.signal_shape((2,) * net.dimension)))
    with arithmetic():
        y, z = np.asarray(net(params, x)), np.asarray(whole((v,), x))
        flipped = np.asarray(whole((np.flip(v),), x))
        traced = np.asarray(jax.jit(net.end_to_end)(tuple(map(jnp.asarray, params))))
    assert v.shape == net.end_to_end_shape
    np.testing.assert_allclose(y, z, rtol=0, atol=1e-13 * np.abs(y).max())
    np.testing.assert_allclose(traced, v, rtol=0, atol=1e-14 * np.abs(v).max())
    assert np.abs(y - flipped).max() > 1e-3 * np.abs(y).max()


@pytest.mark.parametrize("net", NETS, ids=repr)
def test_end_to_end_filters_of_rationals_are_exact(net, rng):
    import flint

    params = tuple(
        rng.integers(-9, 10, shape).astype(object) * Fraction(1, 3) for shape in net.filter_shapes
    )
    names = [f"y{m}" for m in range(net.dimension)]
    context = flint.fmpq_mpoly_ctx.get(names, flint.Ordering.lex)
    polynomial = context.constant(1)
    for w, t in zip(params, net.dilations, strict=True):
        entries = np.ndenumerate(w)
        terms = {
            tuple(s * i for s, i in zip(t, at, strict=True)): flint.fmpq(e.numerator, e.denominator)
            for at, e in entries
            if e
        }
        polynomial *= context.from_dict(terms)
    v = net.end_to_end(params)
    found = {
        tuple(map(int, at)): Fraction(int(e.p), int(e.q)) for at, e in polynomial.to_dict().items()
    }
    assert {at: e for at, e in np.ndenumerate(v) if e} == found


def test_the_last_stride_does_not_enter_the_filter(rng):
    first, second = LinearConvNet((3, 2), (2, 1)), LinearConvNet((3, 2), (2, 5))
    params = filters(first, rng)
    np.testing.assert_array_equal(first.end_to_end(params), second.end_to_end(params))
    third = LinearConvNet((3, 2), (3, 1))
    assert third.end_to_end_shape != first.end_to_end_shape


def test_sizes_of_the_running_example():
    net = LinearConvNet((3, 2), (2, 1))
    assert (net.depth, net.dimension, net.n_params) == (2, 1, 5)
    assert (net.end_to_end_shape, net.end_to_end_stride, net.dilations) == (
        (5,),
        (2,),
        ((1,), (2,)),
    )
    assert net.signal_shape(3) == (9,)
    assert repr(net) == "LinearConvNet((3, 2), (2, 1))"


def test_a_relu_sits_between_the_layers_and_not_after_them(rng):
    linear, relu = LinearConvNet((2, 2), (1, 1)), LinearConvNet((2, 2), (1, 1), activation="relu")
    positive = (np.array([1.0, 2.0]), np.array([-1.0, 0.5]))
    x = np.abs(rng.normal(size=(4, 6)))
    with arithmetic():
        np.testing.assert_allclose(
            np.asarray(linear(positive, x)), np.asarray(relu(positive, x)), rtol=1e-14
        )
        assert np.asarray(relu(positive, x)).min() < 0
        assert np.abs(np.asarray(linear(positive, -x)) - np.asarray(relu(positive, -x))).min() > 0
    with pytest.raises(ValueError, match="only a linear net has an end-to-end filter"):
        relu.end_to_end(positive)


def test_one_key_one_network(key):
    net = LinearConvNet(((2, 2), (3, 2)), ((1, 1), (1, 1)))
    single, double = net.init(key=key), net.init(key=key, dtype="float64")
    assert [w.dtype for w in double] == [np.float64] * 2
    for a, b in zip(single, double, strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float64), b)
    assert [w.shape for w in net.init(key=key, runs=5)] == [(5, 2, 2), (5, 3, 2)]
    spread = np.concatenate([np.ravel(w) for w in net.init(key=key, runs=2000, scale=3.0)[1:]])
    assert abs(np.std(spread) * 6**0.5 / 3 - 1) < 0.05


def test_signals_and_filters_of_any_dtype_and_flag(x64, rng):
    net = LinearConvNet((2, 2), (1, 1))
    y = net((np.ones(2, np.float32), np.ones(2, np.float32)), np.ones((1, 4), np.int32))
    assert y.tolist() == [[4.0, 4.0]]
    assert net.end_to_end((np.ones(2), np.ones(2))).dtype == np.float64


@pytest.mark.parametrize(
    "arguments, text",
    [
        (
            ((3, 1), (1, 1)),
            r"`filter_shapes\[1\]` is \(1,\), a layer that only multiplies by a number; leave it out",
        ),
        (((3, 2), (1,)), "`strides` has 1 entries for 2 layers; give one for each."),
        (((3, (2, 2)), (1, 1)), r"mix dimensions \[1, 2\]; use D-tuples throughout"),
        (((3, 0), (1, 1)), "pass one entry per layer, all positive whole numbers"),
        (((3, 2.5), (1, 1)), "pass one entry per layer, all positive whole numbers"),
        (((), ()), "pass one entry per layer, all positive whole numbers"),
    ],
)
def test_architectures_that_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        LinearConvNet(*arguments)
    with pytest.raises(TypeError, match="pass one whole number, or one D-tuple of them, per layer"):
        LinearConvNet("three", (1,))


def test_signals_and_parameters_that_are_refused():
    net = LinearConvNet((3, 2), (2, 1))
    params = (np.ones(3), np.ones(2))
    with pytest.raises(
        ValueError,
        match=r"`x` has size 6 along axis 1; the network takes 5 \+ 2·j, so crop or pad it to 5 or 7",
    ):
        net(params, np.ones((1, 6)))
    with pytest.raises(ValueError, match="`x` has size 3 along axis 1"):
        net(params, np.ones((1, 3)))
    with pytest.raises(
        ValueError, match=r"`x` has shape \(5,\); pass signals of shape \(n, d\) for D = 1"
    ):
        net(params, np.ones(5))
    with pytest.raises(
        ValueError,
        match=r"`params` is 1 filters but the network has 2 layers; pass a tuple of filters.",
    ):
        net.end_to_end((np.ones(3),))
    with pytest.raises(
        ValueError, match=r"`params\[1\]` has shape \(3,\); the network needs \(2,\)."
    ):
        net.end_to_end((np.ones(3), np.ones(3)))
