"""`Sequential` and its layers: against NumPy loops, both scalings, shapes, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from cast import unchecked
from described import EVERYTHING
from neuromanifold.models.layers import (
    Attention,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    LayerNorm,
    Residual,
    Sum,
)

EPS = np.finfo(np.float64).eps


def windows(size: int, window: int, stride: int, padding: str) -> list[list[int | None]]:
    """The positions under each window; `None` beyond the margin."""
    count = (size - window) // stride + 1 if padding == "VALID" else -(-size // stride)
    before = 0 if padding == "VALID" else max((count - 1) * stride + window - size, 0) // 2
    found = []
    for i in range(count):
        places = [i * stride - before + k for k in range(window)]
        wrapped = [p % size if padding == "CIRCULAR" else p for p in places]
        found.append([p if 0 <= p < size else None for p in wrapped])
    return found


def naive_conv(weight, bias, x, layer, factor):
    """Every output position by itself."""
    out, _, *sizes = weight.shape
    axes = [
        windows(n, k, layer.strides, layer.padding)
        for n, k in zip(x.shape[1:-1], sizes, strict=True)
    ]
    result = np.zeros((len(x), *(len(a) for a in axes), out))
    for place in itertools.product(*(range(len(a)) for a in axes)):
        for tap in itertools.product(*(range(k) for k in sizes)):
            source = [axes[d][place[d]][tap[d]] for d in range(len(sizes))]
            if None not in source:
                result[(slice(None), *place)] += (
                    x[(slice(None), *source)] @ weight[(slice(None), slice(None), *tap)].T
                )
    return result * factor + bias


@pytest.mark.parametrize("padding", ["SAME", "VALID", "CIRCULAR"])
@pytest.mark.parametrize(
    "positions, window, stride",
    [((7,), 3, 1), ((6, 5), 3, 2), ((5, 4), (2, 3), 1), ((3, 4, 3), 2, 1)],
)
def test_convolutions_in_any_dimension(positions, window, stride, padding, key, rng):
    layer = Conv(3, window, strides=stride, padding=padding, weight_std=1.5, bias_std=0.5)
    net = nm.Sequential(layer, input_shape=(*positions, 2))
    [params] = net.init(key=key, dtype="float64")
    x = rng.standard_normal((2, *positions, 2))
    factor = 1.5 / np.sqrt(params.weight[0].size)
    expected = naive_conv(params.weight, 0.5 * params.bias, x, layer, factor)
    np.testing.assert_allclose(net((params,), x), expected, rtol=0, atol=1e-13)
    assert net.output_shape == expected.shape[1:]


@pytest.mark.parametrize("padding", ["SAME", "VALID", "CIRCULAR"])
def test_pooling_counts_its_margins(padding, rng):
    net = nm.Sequential(AvgPool(3, strides=2, padding=padding), input_shape=(5, 4, 2))
    x = rng.standard_normal((2, 5, 4, 2))
    axes = [windows(n, 3, 2, padding) for n in (5, 4)]
    expected = np.zeros((2, len(axes[0]), len(axes[1]), 2))
    for (i, rows), (j, columns) in itertools.product(enumerate(axes[0]), enumerate(axes[1])):
        inside = [x[:, r, c] for r in rows for c in columns if r is not None and c is not None]
        expected[:, i, j] = np.sum(inside, axis=0) / 9
    np.testing.assert_allclose(net(((),), x), expected, rtol=0, atol=1e-14)


def test_layer_norm_flatten_and_global_average(rng):
    x = rng.standard_normal((3, 4, 5, 6))
    centred = x - x.mean(axis=-1, keepdims=True)
    expected = centred / x.std(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        nm.Sequential(LayerNorm(), input_shape=(4, 5, 6))(((),), x), expected, rtol=1e-9
    )
    whole = nm.Sequential(LayerNorm(positions=True), input_shape=(4, 5, 6))(((),), x)
    np.testing.assert_allclose(whole.reshape(3, -1).std(axis=1), 1.0, rtol=1e-10)
    np.testing.assert_array_equal(
        nm.Sequential(Flatten(), input_shape=(4, 5, 6))(((),), x), x.reshape(3, -1)
    )
    pooled = nm.Sequential(GlobalAvgPool(), input_shape=(4, 5, 6))(((),), x)
    np.testing.assert_allclose(pooled, x.mean(axis=(1, 2)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("tied", [True, False])
def test_attention_head_by_head(tied, key, rng):
    layer = Attention(
        5,
        heads=2,
        key_features=3,
        value_features=4,
        tied=tied,
        key_std=1.2,
        value_std=0.7,
        out_std=1.1,
        bias_std=0.3,
    )
    net = nm.Sequential(layer, input_shape=(3, 2, 6))
    [params] = net.init(key=key, dtype="float64")
    x = rng.standard_normal((2, 3, 2, 6))
    flat, heads = x.reshape(2, 6, 6), []
    for h in range(2):
        keys = 1.2 * flat @ params.key[h].T / np.sqrt(6)
        queries = keys if tied else 1.2 * flat @ params.query[h].T / np.sqrt(6)
        logits = queries @ keys.transpose(0, 2, 1) / (3 if tied else np.sqrt(3))
        weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        heads.append(weights @ (0.7 * flat @ params.value[h].T / np.sqrt(6)))
    expected = 1.1 * np.concatenate(heads, axis=-1) @ params.out.T / np.sqrt(8) + 0.3 * params.bias
    np.testing.assert_allclose(net((params,), x), expected.reshape(2, 3, 2, 5), rtol=0, atol=1e-13)
    assert (params.query is None) == tied


def test_both_scalings_are_one_network(key, rng):
    """The parameters of standard scaling are those of NTK scaling times their deviations: one
    key, one function.
    """
    shape = EVERYTHING.input_shape
    nets = [
        nm.Sequential(*EVERYTHING.layers, input_shape=shape, scaling=scaling)
        for scaling in ("ntk", "standard")
    ]
    x = rng.standard_normal((3, *shape))
    outputs = [net(net.init(key=key, dtype="float64"), x) for net in nets]
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-5)
    assert (
        nets[0].n_params
        == nets[1].n_params
        == sum(leaf.size for leaf in jax.tree.leaves(nets[0].init(key=key)))
    )


def test_it_is_a_model_like_any_other(key, rng, x64):
    net = nm.Sequential(Conv(3, 2), "tanh", GlobalAvgPool(), Dense(2), input_shape=(3, 2))
    x = rng.standard_normal((3, 3, 2))
    params = net.init(key=key, dtype="float64")
    kernel, jacobian = nm.ntk(net, params, x), nm.jacobian(net, params, x)
    np.testing.assert_allclose(
        kernel, jacobian @ jacobian.T, rtol=0, atol=1e-12 * np.abs(kernel).max()
    )
    assert jacobian.shape == (6, net.n_params)
    runs = net.init(key=key, runs=3)
    many = jax.vmap(lambda p: net(p, jnp.asarray(x, jnp.float32)))(runs)
    assert many.shape == (3, 3, 2)
    assert net(net.init(key=key), x.astype(np.float32)).dtype == np.float32
    single = nm.linearize(net, params)(params, x)
    np.testing.assert_allclose(single, net(params, x), rtol=1e-12)
    assert hash(net) == hash(nm.Sequential(*net.layers, input_shape=(3, 2)))


def test_its_graph_holds_nothing_but_the_network(key):
    """Traced before anything else asked for its shapes."""
    net = nm.Sequential(Dense(3), "relu", Dense(1), input_shape=(2,))
    params = net.init(key=key)
    fresh = nm.Sequential(*net.layers, input_shape=(2,))
    assert nm.graph.trace(fresh, params, np.ones((2, 2))).piecewise_linear


def test_drawn_parameters_have_the_deviations_they_say(key):
    net = nm.Sequential(
        Dense(300, weight_std=1.7, bias_std=0.2), input_shape=(200,), scaling="standard"
    )
    [layer] = net.init(key=key)
    assert np.std(layer.weight) == pytest.approx(1.7 / np.sqrt(200), rel=0.02)
    assert np.std(layer.bias) == pytest.approx(0.2, rel=0.15)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Dense(0), "`features` is 0; pass a positive whole number"),
        (lambda: Dense(2, weight_std=-1.0), "`weight_std` is -1.0; pass a positive number"),
        (lambda: Dense(2, bias_std=float("nan")), "`bias_std` is nan"),
        (lambda: Conv(2, 0), "`window` is 0"),
        (
            lambda: Conv(2, 3, padding="HALF"),
            "`padding` is 'HALF'; pass one of SAME, VALID, CIRCULAR",
        ),
        (lambda: LayerNorm(eps=-1.0), "`eps` is -1.0"),
        (lambda: Sum(Dense(2)), "`Sum` is given 1 branches"),
        (lambda: nm.Sequential(Dense(2), input_shape=()), "`input_shape` is ()"),
        (lambda: nm.Sequential(Dense(2), input_shape=(3,), scaling="mup"), "`scaling` is 'mup'"),
        (lambda: nm.Sequential(Conv(2, 3), input_shape=(3,)), "reaches Conv as (3,)"),
        (
            lambda: nm.Sequential(Conv(2, 5, padding="VALID"), input_shape=(3, 2)),
            "does not fit into 3 positions",
        ),
        (
            lambda: nm.Sequential(Conv(2, (3, 3)), input_shape=(3, 2)),
            "the samples have 1 axes of positions",
        ),
        (lambda: nm.Sequential(GlobalAvgPool(), input_shape=(3,)), "no positions left"),
        (lambda: nm.Sequential(Attention(2), input_shape=(3,)), "reaches Attention as (3,)"),
        (
            lambda: nm.Sequential(Residual(Dense(2)), input_shape=(3,)),
            "`Residual` adds a branch of shape (2,)",
        ),
        (
            lambda: nm.Sequential(Sum(Dense(2), Dense(3)), input_shape=(3,)),
            "`Sum` adds branches of shapes (2,), (3,)",
        ),
        (lambda: nm.Sequential(nm.Mixed(relu=2), input_shape=(3,)), "with 2 neurons to 3 channels"),
        (
            lambda: nm.Sequential("softmax", input_shape=(3,)),
            "`activation` is 'softmax', which is not built in",
        ),
    ],
)
def test_descriptions_that_make_no_sense(build, message):
    with unchecked(), pytest.raises(ValueError) as caught:  # noqa: PT011
        build()
    assert message in str(caught.value)


def test_wrong_types_parameters_and_samples(key, rng):
    with unchecked():
        with pytest.raises(TypeError, match=r"`layers\[0\]` is 3; pass a layer"):
            nm.Sequential(3, input_shape=(2,))
        with pytest.raises(TypeError, match=r"`features` is 2\.5"):
            Dense(2.5)
    net = nm.Sequential(Dense(2), "relu", Dense(1), input_shape=(3,))
    params = net.init(key=key)
    with pytest.raises(ValueError, match=r"`x` has shape \(4, 2\); the network takes \(n, 3\)"):
        net(params, rng.standard_normal((4, 2)))
    with pytest.raises(ValueError, match="`params` has the structure"):
        net(params[:1], rng.standard_normal((4, 3)))
    with pytest.raises(ValueError, match=r"`params\[0\]\.weight` has shape \(2, 2\)"):
        net((nm.Layer(np.ones((2, 2)), np.ones(2)), *params[1:]), rng.standard_normal((4, 3)))
