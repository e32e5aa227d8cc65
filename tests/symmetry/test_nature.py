"""Why a reduction holds at every input: what operations do with a hidden axis, and which steps
are called proved for it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.discovery.channels import channels_of
from neuromanifold.symmetry.reduction.channel_dependence import Kind, nature_of
from symmetry.test_narrowing import SHAPES, cnn

relu = jax.nn.relu
X = np.random.default_rng(0).normal(size=(5, 2))
DENSE = {"w": (2, 3), "b": (3,), "v": (3, 2)}


def drawn(shapes, rng):
    return jax.tree.map(
        lambda shape: rng.normal(size=shape), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )


def unit(bend):
    return lambda p, x: bend(x @ p["w"] + p["b"]) @ p["v"]


def normed(h):
    return h / jnp.sqrt((h**2).sum(-1, keepdims=True) + 1.0)


@pytest.mark.parametrize(
    "bend, kind, steady",
    [
        (lambda h: h, Kind.LINEAR, True),
        (relu, Kind.HOMOGENEOUS, True),
        (jnp.abs, Kind.HOMOGENEOUS, True),
        (lambda h: jnp.where(h > 0, h, 0.2 * h), Kind.HOMOGENEOUS, True),
        (lambda h: jnp.where(h > 1, h, 0.0), Kind.APART, True),
        (lambda h: (h > 0).astype(h.dtype), Kind.APART, True),
        (jnp.tanh, Kind.APART, True),
        (lambda h: h * jax.nn.sigmoid(h), Kind.APART, True),
        (lambda h: relu(h + 1.0), Kind.APART, True),
        (normed, None, None),
        (lambda h: relu(h - h.mean(-1, keepdims=True)), None, None),
        (jax.nn.softmax, None, None),
        (lambda h: jnp.cumsum(h, -1), None, None),
    ],
)
def test_what_a_bend_makes_of_the_channels(bend, kind, steady, rng):
    """Negative controls: norms, means, softmax and running sums mix the places of an axis."""
    graph = nm.graph.trace(unit(bend), drawn(DENSE, rng), X)
    natures = [nature_of(graph, channels) for channels in channels_of(graph)]
    assert all(each is None for each in natures) if kind is None else [(each.kind, each.steady) for each in natures] == [
        (kind, steady)
    ]  # fmt: skip


def test_data_that_meet_a_channel_otherwise_than_by_weights(rng):
    for f in (
        lambda p, x: (relu(x @ p["w"] + p["b"]) * x[:, :1]) @ p["v"],
        lambda p, x: relu(x @ p["w"] + p["b"] + x[:, :1]) @ p["v"],
    ):
        graph = nm.graph.trace(f, drawn(DENSE, rng), X)
        assert [nature_of(graph, channels).steady for channels in channels_of(graph)] == [False]


def test_a_convolutional_network_with_pooling_and_a_residual_block_is_homogeneous(rng):
    graph = nm.graph.trace(cnn, drawn(SHAPES, rng), rng.normal(size=(2, 1, 8, 8)))
    assert [nature_of(graph, channels).kind for channels in channels_of(graph)] == [
        Kind.HOMOGENEOUS
    ] * 2


def far(f, params, small):
    """The largest difference on inputs far from the sample, relative to f."""
    x = 30.0 * np.random.default_rng(1).normal(size=(2000, 2))
    with arithmetic():
        before, after = np.asarray(f(params, x)), np.asarray(small.net(small.params, x))
    return np.abs(after - before).max() / np.abs(before).max()


def test_a_channel_that_is_off_by_its_bias_is_off_everywhere_and_one_that_is_off_on_the_sample_is_not(
    rng,
):
    f = unit(relu)
    params = drawn(DENSE, rng)
    params["w"][:, 1], params["b"][1] = 0.0, -2.0
    small = S.reduce_width(f, params, X)
    assert [(r.reason, r.everywhere != "", r.on_sample) for r in small.removed] == [
        ("inactive", True, False)
    ]
    assert (
        small.proved
        and not small.on_sample
        and "everywhere" in str(small)
        and far(f, params, small) < 1e-14
    )
    params["w"][:, 1], params["b"][1] = 0.1, -2.0
    small = S.reduce_width(f, params, X)
    assert [(r.everywhere, r.on_sample) for r in small.removed] == [("", True)]
    assert small.on_sample and not small.proved and far(f, params, small) > 1e-3


def test_a_constant_channel_that_nobody_hears_on_the_sample_is_not_called_off_everywhere(rng):
    """Negative control: its weights are zero, but not its value; what reads it is off on the
    sample and on elsewhere.
    """

    def f(p, x):
        return relu(relu(x @ p["w"] + p["b"]) @ p["u"] + p["c"]) @ p["v"]

    params = drawn({"w": (2, 3), "b": (3,), "u": (3, 2), "c": (2,), "v": (2, 1)}, rng)
    params["w"][:, 1], params["b"][1], params["u"][1] = 0.0, 1.0, (3.0, 0.0)
    params["w"][:, 0], params["u"][0, 0], params["c"][0] = 0.1, 1.0, -20.0
    small = S.reduce_width(f, params, X)
    assert not small.proved and all(
        not r.everywhere for r in small.removed if "inactive" in r.reason
    )


def test_steps_of_other_networks_are_proved_where_the_operations_say_so(rng):
    params = drawn({"w": (2, 4), "b": (4,), "v": (4, 2)}, rng)
    params["w"][:, 2], params["b"][2] = 2.0 * params["w"][:, 0], 2.0 * params["b"][0]
    params["v"][3] = 0.0
    small = S.reduce_width(unit(relu), params, X)
    assert (
        sorted(r.reason.split()[0] for r in small.removed) == ["equal", "without"] and small.proved
    )
    assert far(unit(relu), params, small) < 1e-13
    linear = S.reduce_width(unit(lambda h: h), params, X)
    assert linear.proved and linear.params["b"].shape == (2,)
    # A norm over the channels still lets what nothing reads stay, and equality of copies is tested,
    # not proved.
    params["w"][:, 3], params["b"][3], params["v"][3] = 0.0, 0.0, 1.0
    mixed = S.reduce_width(unit(lambda h: relu(normed(h))), params, X)
    assert mixed.removed and not mixed.proved and not mixed.on_sample and "(tested)" in str(mixed)


def test_folded_normalisation_is_proved(rng):
    f = lambda p, x: relu((x @ p["w"] + p["b"]) * p["g"] + p["s"]) @ p["v"]  # noqa: E731
    params = drawn(DENSE | {"g": (3,), "s": (3,)}, rng)
    small = S.reduce_width(f, params, X)
    assert (
        small.proved
        and {r.what for r in small.removed} == {"parameter"}
        and far(f, params, small) < 1e-13
    )


def test_perceptrons_say_for_each_step_where_it_holds(rng):
    net = nm.MLP((2, 4, 1))
    W, b = rng.normal(size=(4, 2)), rng.normal(size=4)
    W[1], b[1], W[3], b[3] = 0.0, -1.0, 3.0 * W[0], 3.0 * b[0]
    params = (nm.Layer(W, b), nm.Layer(np.ones((1, 4)), np.zeros(1)))
    small = S.reduce_width(net, params, X)
    assert small.proved and not small.on_sample and all(r.everywhere for r in small.removed)
    b[2] = -50.0
    small = S.reduce_width(net, params, X)
    assert not small.proved and [r.on_sample for r in small.removed].count(True) == 1
