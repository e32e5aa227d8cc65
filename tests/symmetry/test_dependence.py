"""Why a reduction holds at every input: what operations do with a hidden axis, and which steps
are called proved for it.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from graph.test_axes import ATTENTION, selected_heads, split_heads
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.discovery.dependence import null_vectors, read_hidden_axes
from neuromanifold.symmetry.discovery.statistics import open_statistics
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


def axes_of(f, params, x):
    return read_hidden_axes(open_statistics(f, params, x))


LINEAR, HOMOGENEOUS, APART, MIXED, UNKNOWN = range(5)


def kind_of(f, params, x):
    """The strongest that holds of the one hidden axis: matrices may act, numbers may, nothing but
    permutations may, sums over the channels are not all made with parameters, none is known.
    """
    found = axes_of(f, params, x)
    if found.left_out:
        assert not found.axes
        return UNKNOWN
    [axis] = found.axes
    if any(exit.reader < 0 for exit in axis.exits):
        return MIXED
    return LINEAR if axis.linear else HOMOGENEOUS if len(null_vectors(axis.scalings)) else APART


@pytest.mark.parametrize(
    "bend, kind",
    [
        (lambda h: h, LINEAR),
        (relu, HOMOGENEOUS),
        (jnp.abs, HOMOGENEOUS),
        (lambda h: h**3, HOMOGENEOUS),
        (lambda h: jnp.sqrt(jnp.abs(h)), HOMOGENEOUS),
        (lambda h: jnp.where(h > 0, h, 0.2 * h), HOMOGENEOUS),
        (lambda h: jnp.where(h > 1, h, 0.0), APART),
        (lambda h: (h > 1).astype(h.dtype), APART),
        (jnp.tanh, APART),
        (lambda h: h * jax.nn.sigmoid(h), APART),
        (lambda h: relu(h + 1.0), APART),
        (normed, MIXED),
        (lambda h: relu(h - h.mean(-1, keepdims=True)), MIXED),
        (jax.nn.softmax, UNKNOWN),
        (lambda h: jnp.cumsum(h, -1), UNKNOWN),
        (lambda h: jnp.sort(h, -1), UNKNOWN),
    ],
)
def test_what_a_bend_makes_of_the_channels(bend, kind, rng):
    """Negative controls: norms, means, softmax, running sums and sorting mix the places of an axis."""
    assert kind_of(unit(bend), drawn(DENSE, rng), X) == kind


@pytest.mark.parametrize(
    "bend, flips",
    [
        (jnp.tanh, [(True, True, True)]),
        (jnp.cos, [(True, True, False)]),
        (lambda h: h, [(True, True, True)]),
        (lambda h: jnp.abs(h) * h, [(True, True, True)]),
        (relu, []),
        (jax.nn.gelu, []),
        (lambda h: jnp.where(h > 0, h, 0.2 * h), []),
    ],
)
def test_signs_of_odd_and_even_bends(bend, flips, rng):
    """Solutions modulo 2 of the conditions on parities: which of w, b, v change sign together."""
    [axis] = axes_of(unit(bend), drawn(DENSE, rng), X).axes
    names = ["w", "b", "v"]
    assert [slot.reads for slot in axis.channels.slots] == [False, False, True]
    found = [
        pattern
        for pattern in itertools.product((False, True), repeat=3)
        if any(pattern) and not (axis.flips.astype(int) @ np.array(pattern) % 2).any()
    ]
    assert (found, len(names)) == (flips, len(axis.channels.slots))


def test_data_that_meet_a_channel_otherwise_than_by_weights(rng):
    """Where a channel's weights are zero it does not depend on the sample, unless data come in
    besides: added, or as a factor of what the bias makes.
    """
    weights, biases = frozenset({0}), frozenset({1})
    for f, data in (
        (unit(relu), {weights}),
        (lambda p, x: (relu(x @ p["w"] + p["b"]) * x[:, :1]) @ p["v"], {weights, biases}),
        (lambda p, x: relu(x @ p["w"] + p["b"] + x[:, :1]) @ p["v"], {frozenset()}),
    ):
        [axis] = axes_of(f, drawn(DENSE, rng), X).axes
        [exit] = axis.exits
        assert exit.form.data == data


def test_a_convolutional_network_with_pooling_and_a_residual_block_is_homogeneous(rng):
    """Both writers of the residual stream scale together: one law for each axis."""
    found = axes_of(cnn, drawn(SHAPES, rng), rng.normal(size=(2, 1, 8, 8)))
    assert not found.left_out
    assert [len(null_vectors(axis.scalings)) for axis in found.axes] == [1, 1]


def test_heads_queries_and_values_of_attention(rng):
    """Queries and keys pair with each other, values with what reads them; scalings of whole heads
    are those of queries against keys and of values against what reads them.
    """
    params = drawn({name: a.shape for name, a in ATTENTION.items()}, rng)
    for f in (split_heads, selected_heads):
        found = axes_of(f, params, rng.normal(size=(2, 4, 5)))
        assert not found.left_out
        kinds = {
            (axis.channels.size, len(axis.channels.slots)): (
                axis.linear,
                [exit.reader >= 0 for exit in axis.exits],
                len(null_vectors(axis.scalings)),
            )
            for axis in found.axes
        }
        assert kinds == {
            (3, 4): (True, [False], 1),
            (2, 7): (False, [True], 2),
            (3, 3): (True, [True], 1),
        }


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
    # A norm over the channels does not see a zero, but it sees a copy.
    params["w"][:, 3], params["b"][3], params["v"][3] = 0.0, 0.0, 1.0
    mixed = S.reduce_width(unit(lambda h: relu(normed(h))), params, X)
    assert [r.reason for r in mixed.removed] == ["without incoming weights"] and mixed.proved
    assert (
        mixed.params["b"].shape == (3,)
        and far(unit(lambda h: relu(normed(h))), params, mixed) < 1e-13
    )


def test_channels_that_are_alike_at_every_input_tried_are_merged_and_called_tested(rng):
    """Two slices of one constant input make channels with other weights the same: nothing in the
    parameters says so.
    """
    f = lambda p, x: relu(jnp.concatenate([x, x[:, :1]], -1) @ p["w"] + p["b"]) @ p["v"]  # noqa: E731
    params = drawn({"w": (3, 4), "b": (4,), "v": (4, 2)}, rng)
    params["b"] = np.array([1.0, 2.0, 3.0, 1.0])  # on at some samples
    params["w"][:, 3] = params["w"][[2, 1, 0], 0]
    small = S.reduce_width(f, params, X)
    assert [(r.everywhere, r.on_sample) for r in small.removed] == [("", False)]
    assert "(tested)" in str(small) and not small.proved and far(f, params, small) < 1e-13
    assert not S.reduce_width(f, params, X, everywhere=True).removed


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
