"""Infinite-width kernels of architectures: neural-tangents' numbers, second routes, and what has
no limit.
"""

import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from described import ATTENTIVE, POOLED
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
from neuromanifold.tangent.infinite import infinite_kernels, infinite_ntk, nngp
from neuromanifold.tangent.infinite.program import program

STORED = dict(np.load(Path(__file__).parents[1] / "data" / "neural_tangents_architectures.npz"))
WEIGHT, BIAS = float(STORED["weight_std"]), float(STORED["bias_std"])
STDS = {"weight_std": WEIGHT, "bias_std": BIAS}
NAMES = sorted({name.split("/")[0] for name in STORED if "/" in name})
SIGMOID_LIKE = nm.Activation(
    lambda z: (jax.lax.erf(z / 2.4020563531719796) + 1) / 2, name="sigmoid_like"
)
RBF = nm.Activation(lambda z: np.sqrt(2) * jnp.sin(np.sqrt(2) * z + np.pi / 4), name="rbf")
LAYERS = {
    "conv3": Conv(1, 3, **STDS),
    "conv3valid": Conv(1, 3, padding="VALID", **STDS),
    "conv3circular": Conv(1, 3, padding="CIRCULAR", **STDS),
    "conv3stride2": Conv(1, 3, strides=2, **STDS),
    "dense": Dense(1, **STDS),
    "flatten": Flatten(),
    "globalavgpool": GlobalAvgPool(),
    "avgpool2": AvgPool(2),
    "layernorm": LayerNorm(),
    "attention": Attention(1, key_std=WEIGHT, value_std=WEIGHT, out_std=WEIGHT, bias_std=BIAS),
    "sigmoid_like": SIGMOID_LIKE,
    "rbf": RBF,
}


def layers(name: str) -> list:
    """The layers that a stored name lists."""
    residual = re.fullmatch(r"(.*)-residual\((.*)\)-(.*)", name)
    if residual is None:
        return [LAYERS.get(part, part) for part in name.split("-")]
    before, inside, after = map(layers, residual.groups())
    return [*before, Residual(*inside), *after]


def samples(name: str) -> tuple[np.ndarray, np.ndarray]:
    kind = "x" if name.startswith("conv") else "s" if name.startswith("attention") else "v"
    return STORED[f"{kind}1"], STORED[f"{kind}2"]


def error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in NAMES if "-exp-" not in name])
def test_neural_tangents_numbers(name):
    """To rounding, but for its own tangent kernels of equal samples behind a kink, which lose
    half of their digits.
    """
    x1, x2 = samples(name)
    net = nm.Sequential(*layers(name), input_shape=x1.shape[1:])
    for cross, kernels in (
        ("", infinite_kernels(net, x1, x2)),
        ("self/", infinite_kernels(net, x1)),
    ):
        for kind in ("nngp", "ntk"):
            found, expected = getattr(kernels, kind), STORED[f"{name}/{cross}{kind}"].copy()
            if cross and kind == "ntk":
                assert error(np.diag(found), np.diag(expected)) < 1e-8
                np.fill_diagonal(expected, np.diag(found))
            assert error(found, expected) < 1e-12


def test_exponential_nets_where_they_are_finite():
    """Twice exponentiated, the stored numbers span 10⁵ to overflow; entry by entry where both
    sides are finite.
    """
    name = "dense-exp-dense-exp-dense"
    net = nm.Sequential(*layers(name), input_shape=(4,))
    x1, x2 = STORED["v1"][1:4], STORED["v2"][1:]
    kernels = infinite_kernels(net, x1, x2)
    for kind in ("nngp", "ntk"):
        np.testing.assert_allclose(
            getattr(kernels, kind), STORED[f"{name}/{kind}"][1:4, 1:], rtol=1e-11
        )
    with pytest.raises(OverflowError, match="after weight layer 2"):
        nngp(net, STORED["v1"])


def mean_of_taps(a: np.ndarray) -> np.ndarray:
    wide = np.pad(a, ((0, 0), (1, 1), (1, 1)))
    return (
        sum(wide[:, i : i + a.shape[1], j : j + a.shape[2]] for i in range(3) for j in range(3)) / 9
    )


@pytest.mark.parametrize(
    "activation, gain", [("relu", 0.5), ("abs", 1.0), ("leaky_relu(0.2)", 0.52)]
)
def test_equal_samples_by_hand(activation, gain):
    """At θ = 0 a piecewise-linear layer multiplies variance and tangent kernel by E[σ'²]: what
    neural-tangents has to 2e-9.
    """
    name = f"conv3-{activation}-conv3-{activation}-flatten-dense"
    x = STORED["x1"]
    variance, tangent = (x**2).mean(axis=-1), np.zeros(x.shape[:3])
    for _ in range(2):
        variance, tangent = (mean_of_taps(v) for v in (variance, tangent))
        variance = WEIGHT**2 * variance + BIAS**2
        tangent = (variance + WEIGHT**2 * tangent) * gain
        variance = variance * gain
    variance, tangent = variance.mean(axis=(1, 2)), tangent.mean(axis=(1, 2))
    expected = (WEIGHT**2 * variance + BIAS**2) + WEIGHT**2 * tangent
    net = nm.Sequential(*layers(name), input_shape=x.shape[1:])
    assert error(np.diag(infinite_ntk(net, x)), expected) < 1e-14
    assert 1e-12 < error(np.diag(STORED[f"{name}/self/ntk"]), expected) < 1e-8


def test_equal_positions_are_the_diagonal_of_all_pairs(rng):
    """A network whose output keeps its positions carries all pairs of them; flattened, only
    equal ones are computed.
    """
    x = rng.standard_normal((3, 4, 5, 2))
    body = (Conv(1, 3, strides=2), "relu", Conv(1, 2), "erf")
    whole = infinite_kernels(nm.Sequential(*body, input_shape=(4, 5, 2)), x)
    flat = infinite_kernels(nm.Sequential(*body, Flatten(), input_shape=(4, 5, 2)), x)
    assert whole.ntk.shape == (3, 2, 3, 3, 2, 3)
    for kind in ("nngp", "ntk"):
        means = np.einsum("ipqjpq->ij", getattr(whole, kind)) / 6
        np.testing.assert_allclose(getattr(flat, kind), means, rtol=1e-13)


@pytest.mark.parametrize("net", [POOLED, ATTENTIVE], ids=["pooled", "attentive"])
def test_the_diagonal_alone(net, rng):
    """Each sample with itself: the diagonal of the whole kernel, with pooling, attention and
    normalisation, in blocks.
    """
    x = rng.standard_normal((7, *net.input_shape))
    whole, alone = infinite_kernels(net, x), infinite_kernels(net, x, diagonal=True, memory="1M")
    for kind in ("nngp", "ntk"):
        np.testing.assert_allclose(getattr(alone, kind), np.diag(getattr(whole, kind)), rtol=1e-12)
    with pytest.raises(ValueError, match="`x2` is given; leave one of them out"):
        nngp(net, x, x, diagonal=True)


def test_the_diagonal_drops_pairs_of_positions_where_it_can(rng):
    """A network that keeps its positions: equal ones only; its derivative against a central
    difference.
    """
    x = rng.standard_normal((3, 5, 2))
    net = nm.Sequential(Conv(1, 3, strides=2), "erf", Conv(1, 2), "relu", input_shape=(5, 2))
    whole, alone = infinite_kernels(net, x), infinite_kernels(net, x, diagonal=True)
    assert not replace(program(net, None, None), diagonal=True).full
    assert program(net, None, None).full
    for kind in ("nngp", "ntk"):
        np.testing.assert_allclose(
            getattr(alone, kind), np.einsum("ipip->ip", getattr(whole, kind)), rtol=1e-12
        )
    with jax.enable_x64(True):
        slope = jax.grad(lambda s: infinite_ntk(net, x, weight_std=s, diagonal=True).sum())(1.5)
    up, down = (
        infinite_ntk(net, x, weight_std=1.5 + h, diagonal=True).sum() for h in (1e-5, -1e-5)
    )
    np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-8)


def test_a_dense_net_three_ways(rng):
    """An MLP, its description, and a convolution whose window is the whole sample."""
    x = rng.standard_normal((4, 5, 2))
    mlp = infinite_kernels(nm.MLP((10, 1, 1)), x.reshape(4, 10))
    described = infinite_kernels(
        nm.Sequential(Flatten(), Dense(1), "relu", Dense(1), input_shape=(5, 2)), x
    )
    window = nm.Sequential(
        Conv(1, 5, padding="VALID"), "relu", Flatten(), Dense(1), input_shape=(5, 2)
    )
    for other in (described, infinite_kernels(window, x)):
        np.testing.assert_allclose(other.ntk, mlp.ntk, rtol=1e-13)
        np.testing.assert_allclose(other.nngp, mlp.nngp, rtol=1e-13)


def test_averages_in_two_steps(rng):
    """A global average is the average of averages; one position is none."""
    x = rng.standard_normal((3, 4, 4, 2))
    start = (Conv(1, 3), "relu")
    one = nm.Sequential(*start, GlobalAvgPool(), Dense(1), input_shape=(4, 4, 2))
    two = nm.Sequential(*start, AvgPool(2), GlobalAvgPool(), Dense(1), input_shape=(4, 4, 2))
    three = nm.Sequential(
        *start, AvgPool(4), AvgPool(1), Flatten(), Dense(1), input_shape=(4, 4, 2)
    )
    expected = infinite_ntk(one, x)
    for net in (two, three):
        np.testing.assert_allclose(infinite_ntk(net, x), expected, rtol=1e-13)


def test_layers_before_the_first_weights_act_on_the_data(rng):
    x = rng.standard_normal((3, 4, 2))
    net = nm.Sequential(
        AvgPool(2), "tanh", LayerNorm(), Flatten(), Dense(1), "relu", Dense(1), input_shape=(4, 2)
    )
    pooled = np.tanh(x.reshape(3, 2, 2, 2).mean(axis=2))
    pooled = (pooled - pooled.mean(axis=-1, keepdims=True)) / pooled.std(axis=-1, keepdims=True)
    expected = infinite_ntk(nm.MLP((4, 1, 1)), pooled.reshape(3, 4))
    np.testing.assert_allclose(infinite_ntk(net, x), expected, rtol=1e-9)


def test_sums_of_branches(rng):
    """Independent branches add; `Residual` is a sum with the identity."""
    x = rng.standard_normal((4, 3))
    first, second = Dense(1, weight_std=1.3), (Dense(1), "relu", Dense(1, bias_std=0.2))
    total = infinite_kernels(nm.Sequential(Sum(first, second), input_shape=(3,)), x)
    parts = [
        infinite_kernels(nm.Sequential(*branch, input_shape=(3,)), x)
        for branch in ((first,), second)
    ]
    for kind in ("nngp", "ntk"):
        added = sum(getattr(part, kind) for part in parts)
        np.testing.assert_allclose(getattr(total, kind), added, rtol=1e-13)


def test_standard_parametrisation_counts_the_fan_in(rng):
    """Two linear layers by hand: Θ¹ = n₀K + 1, Θ² = n₁Σ¹ + 1 + σ_w²Θ¹; the covariance does not
    depend on it.
    """
    x = rng.standard_normal((3, 4))
    given = (Dense(7, weight_std=1.2, bias_std=0.3), Dense(2, weight_std=0.8, bias=False))
    ntk, standard = (
        nm.Sequential(*given, input_shape=(4,), scaling=scaling) for scaling in ("ntk", "standard")
    )
    data = x @ x.T / 4
    covariance = 1.2**2 * data + 0.3**2
    expected = 7 * covariance + 0.8**2 * (4 * data + 1)
    np.testing.assert_allclose(infinite_ntk(standard, x), expected, rtol=1e-13)
    np.testing.assert_allclose(infinite_ntk(ntk, x, scaling="standard"), expected, rtol=1e-13)
    np.testing.assert_array_equal(nngp(ntk, x), nngp(standard, x))
    assert error(infinite_ntk(ntk, x), expected) > 0.1


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("scaling", ["ntk", "standard"])
def test_attention_by_hand(heads, scaling, rng):
    """G = softmax(σ_k²Σ), Σ' = σ_v²σ_o² GΣGᵀ + σ_b²; Θ' counts GΣGᵀ once for V and once for O,
    whatever the number of heads, or
    fan_in times each in standard scaling: there the heads' number is that of O."""
    x = rng.standard_normal((3, 4, 6))
    layer = Attention(
        5, heads=heads, value_features=7, key_std=0.9, value_std=1.1, out_std=1.2, bias_std=0.3
    )
    found = infinite_kernels(nm.Sequential(layer, input_shape=(4, 6), scaling=scaling), x)
    data = np.einsum("ipc,jqc->ijpq", x, x) / 6
    weights = np.exp(0.81 * np.stack([data[i, i] for i in range(3)]))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = np.einsum("ipr,ijrs,jqs->ipjq", weights, data, weights)
    value, out = 1.1**2, 1.2**2
    rate, offset = (
        (2 * value * out, 0.09) if scaling == "ntk" else (6 * out + 7 * heads * value, 1.0)
    )
    np.testing.assert_allclose(found.nngp, value * out * mixed + 0.09, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, rate * mixed + offset, rtol=1e-12)
    other = np.einsum("ipr,ijrs,jqs->ipjq", weights**0 / 4, data, weights**0 / 4)
    assert error(value * out * other + 0.09, found.nngp) > 0.01


def test_deviations_given_with_the_call_replace_the_layers_own(rng):
    x = rng.standard_normal((3, 5, 2))
    own = nm.Sequential(
        Attention(1, key_std=0.9, value_std=1.1, out_std=1.2, bias_std=0.1),
        Flatten(),
        Dense(1, weight_std=1.5, bias_std=0.2),
        input_shape=(5, 2),
    )
    plain = nm.Sequential(Attention(1), Flatten(), Dense(1), input_shape=(5, 2))
    given = infinite_ntk(plain, x, weight_std=((0.9, 1.1, 1.2), 1.5), bias_std=(0.1, 0.2))
    np.testing.assert_allclose(given, infinite_ntk(own, x), rtol=1e-14)
    with pytest.raises(ValueError, match="has 2 entries for attention"):
        infinite_ntk(plain, x, weight_std=((0.9, 1.1), 1.5))
    with pytest.raises(ValueError, match="for a Dense layer; pass one number"):
        infinite_ntk(plain, x, weight_std=(1.0, (1.0, 2.0)))


def test_blocks_and_the_memory_budget_change_nothing(rng):
    net, x, y = POOLED, rng.standard_normal((7, 8, 7, 2)), rng.standard_normal((4, 8, 7, 2))
    whole, cut = infinite_ntk(net, x), infinite_ntk(net, x, memory=16 * 8 * 56**2 * 9)
    assert (whole == whole.T).all()
    np.testing.assert_allclose(cut, whole, rtol=1e-12)
    np.testing.assert_allclose(infinite_ntk(net, x, y), infinite_ntk(net, y, x).T, rtol=1e-12)
    assert np.linalg.eigvalsh(whole)[0] > 0


@pytest.mark.parametrize(
    "given, shape, message",
    [
        (
            (Attention(1, tied=False), Flatten()),
            (3, 2),
            r"the attention weights stay random .* pass tied=True",
        ),
        ((Residual(Dense(2)),), (2,), "adds the data themselves"),
        ((Dense(2), Residual("relu")), (2,), "made of the same weights"),
        ((Dense(2), "relu", "tanh"), (2,), r"`layers\[2\]` applies tanh to random features"),
        ((Dense(2), "relu", LayerNorm()), (2,), "applies LayerNorm to random features"),
        ((Conv(2, 2), Flatten(), "relu"), (3, 2), r"`layers\[2\]` applies relu to random features"),
        (
            (Sum(("relu", Dense(2)), Dense(2)),),
            (2,),
            r"`layers\[0\]\.branch0\[0\]` applies relu to data",
        ),
    ],
)
def test_what_has_no_gaussian_limit_is_refused(given, shape, message, rng):
    net = nm.Sequential(*given, input_shape=shape)
    with pytest.raises(ValueError, match=message):
        nngp(net, rng.standard_normal((2, *shape)))
