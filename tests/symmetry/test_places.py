"""Permutations and signs of channels, units and heads: read from the graph of any network, they
act and keep f.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from symmetry.nets import NETS, attend, conv
from symmetry.test_narrowing import SHAPES, cnn


def odd_cnn(p, x):
    """tanh after a convolution with bias, a residual block on its channels, pooling, flattening,
    a dense layer.
    """
    h = jnp.tanh(conv(x, p["w"]) + p["b"])
    h = h + jnp.tanh(h @ p["a"]) @ p["c"]
    h = h.reshape(len(h), 2, 2, 2, 2, -1).mean((2, 4))
    return h.reshape(len(h), -1) @ p["v"]


def even(p, x):
    return jnp.cos(x @ p["w"] + p["b"]) @ p["v"] + p["c"]


def normed_heads(p, x):
    """A stream with RMS norms and gains, two heads of two, T = 3."""
    h = x @ p["e"]
    z = h / jnp.sqrt((h**2).mean(-1, keepdims=True)) * p["gain"]
    return (h + attend(z @ p["q"], z @ p["k"], z @ p["v"], p["o"], 2)) @ p["u"]


def normalised(p, x):
    """Normalisation in evaluation mode: the statistics are parameters too."""
    z = (x @ p["w"] - p["mean"]) / jnp.sqrt(p["variance"] ** 2 + 1e-3) * p["g"] + p["b"]
    return jax.nn.relu(z) @ p["v"]


CAST = {
    "relu cnn": (cnn, SHAPES, (1, 8, 8)),
    "odd cnn": (odd_cnn, {"w": (2, 2, 1, 3), "b": (3,), "a": (3, 2), "c": (2, 3), "v": (12, 2)}, (5, 5, 1)),
    "even": (even, {"w": (2, 3), "b": (3,), "v": (3, 2), "c": (2,)}, (2,)),
    "heads": (normed_heads, {"e": (5, 4), "gain": (4,), "q": (4, 4), "k": (4, 4), "v": (4, 4), "o": (4, 4), "u": (4, 2)}, (3, 5)),
    "normalised": (normalised, {"w": (2, 3), "mean": (3,), "variance": (3,), "g": (3,), "b": (3,), "v": (3, 2)}, (2,)),
}  # fmt: skip
# For each factor: kind, places, parameters, and what generates the sets that change sign together.
EXPECTED = {
    "relu cnn": {
        ("channels", 5, "first.b first.w second.w", ()),
        ("channels", 6, "block.w dense.w second.b second.w", ()),
    },
    "odd cnn": {("channels", 3, "a b c v w", ("a b c v w",)), ("channels", 2, "a c", ("a c",))},
    "even": {("channels", 3, "b v w", ("b w",))},  # cos is even: incoming weights alone
    "heads": {
        ("channels", 4, "e gain k o q u v", ("e k o q u v", "gain k q v")),
        ("heads", 2, "k o q v", ("k q", "o v")), ("channels", 2, "k q", ("k q",)), ("channels", 2, "o v", ("o v",)),
    },
    "normalised": {("channels", 3, "b g mean v variance w", ("g mean w", "variance"))},
}  # fmt: skip


def drawn(name, rng):
    f, shapes, one = CAST[name]
    params = jax.tree.map(
        lambda s: rng.normal(size=s), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )
    return f, params, rng.normal(size=(3, *one))


def deviation(f, params, element, x):
    with arithmetic():
        before, after = (np.asarray(f(p, x)) for p in (params, element(params)))
    return np.abs(after - before).max() / np.abs(before).max()


def described(group):
    return (
        group.kind,
        group.size,
        " ".join(group.parameters),
        spanned(frozenset(leaf_of(group, k) for k in flip) for flip in group.flips),
    )


def spanned(flips):
    """All sets of parameters that change sign together."""
    found = {frozenset()}
    for flip in flips:
        found |= {each ^ flip for each in found}
    return frozenset(found)


def leaf_of(group, k):
    leaves = sorted({slot.leaf for slot in group.slots})
    return group.parameters[leaves.index(group.slots[k].leaf)]


@pytest.mark.parametrize("name", CAST)
def test_groups_are_those_of_theory_and_keep_f(name, rng, key, draws):
    f, params, x = drawn(name, rng)
    group = nm.symmetry_group(f, params, x)
    expected = {
        (*rest, spanned(frozenset(flip.split()) for flip in flips))
        for *rest, flips in EXPECTED[name]
    }
    assert {described(factor) for factor in group.factors} == expected
    for k in jax.random.split(key, draws(3)):
        element = group.sample(key=k)
        assert deviation(f, params, element, x) < 1e-13
        back = element.inverse(element(params))
        assert all(
            np.array_equal(a, b)
            for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(params), strict=True)
        )
    for factor in group.factors:
        g, h = (factor.sample(key=k) for k in jax.random.split(key))
        composed, in_turn = (g @ h)(params), g(h(params))
        assert all(
            np.array_equal(a, b)
            for a, b in zip(jax.tree.leaves(composed), jax.tree.leaves(in_turn), strict=True)
        )
        assert factor.order == 2 ** (len(factor.flips) * factor.size) * math.factorial(factor.size)


def test_elements_that_are_not_symmetries_change_f(rng):
    """Negative control: signs of a ReLU's channels, a permutation of one leaf only, a flip of
    one slot only.
    """
    f, params, x = drawn("odd cnn", rng)
    group = next(factor for factor in nm.symmetry_group(f, params, x).factors if factor.size == 3)
    whole = group.element([1, 2, 0], [[-1.0, 1.0, 1.0]])
    assert deviation(f, params, whole, x) < 1e-13
    for leaf in range(5):
        orders = tuple(
            axes if k == leaf else group.identity.orders[k] for k, axes in enumerate(whole.orders)
        )
        signs = tuple(
            axes if k == leaf else group.identity.factors[k] for k, axes in enumerate(whole.factors)
        )
        assert deviation(f, params, S.Monomial(orders, signs), x) > 1e-3
    bent = lambda p, x: jax.nn.relu(x @ p["w"] + p["b"]) @ p["v"]  # noqa: E731
    theta = {"w": rng.normal(size=(2, 3)), "b": rng.normal(size=3), "v": rng.normal(size=(3, 1))}
    assert [factor.flips for factor in nm.symmetry_group(bent, theta, x[:, 0, :2, 0]).factors] == [
        ()
    ]


def test_places_that_differ_are_left_alone(rng):
    """Negative control: a constant that varies along the axis, a causal mask, a cut of the axis."""
    f = lambda p, x: jnp.tanh(x @ p["w"] * np.array([1.0, 2.0, 3.0])) @ p["v"]  # noqa: E731
    params = {"w": rng.normal(size=(2, 3)), "v": rng.normal(size=(3, 1))}
    assert not nm.symmetry_group(f, params, np.ones((4, 2))).factors


def test_flows_join_where_a_key_is_given_and_the_element_keeps_f(rng, key):
    net = NETS["swiglu"]
    params, x = net.draw(rng)
    group = nm.symmetry_group(net.f, params, x, key=key)
    assert (
        group.names == ("permutations of 3 channels with signs: d g u", "flows of 3 fields")
        and group.dimension == 3
    )
    assert np.linalg.matrix_rank(group.generators(params)) == 3
    assert deviation(net.f, params, group.sample(key=key), x) < 1e-12
    assert deviation(net.f, params, group.identity, x) == 0.0


def test_elements_follow_the_parameters_dtype_and_trace(rng, key):
    f, params, x = drawn("even", rng)
    element = nm.symmetry_group(f, params, x).sample(key=key)
    single = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), params)
    assert {leaf.dtype for leaf in jax.tree.leaves(element(single))} == {np.dtype("float32")}
    traced = jax.jit(lambda p: element(p))(single)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(traced), jax.tree.leaves(element(single)), strict=True)
    )


def test_refusals(rng):
    f, params, x = drawn("even", rng)
    with pytest.raises(TypeError, match="`x` is None; pass parameters and samples together"):
        nm.symmetry_group(f, params)
    group = nm.symmetry_group(f, params, x).factors[0]
    with pytest.raises(ValueError, match=r"`order` is \[0, 0, 1\]; pass a permutation of 0 … 2"):
        group.element([0, 0, 1])
    with pytest.raises(
        ValueError, match=r"`signs` has shape \(1, 2\); pass ±1 for each of 1 flips and 3 positions"
    ):
        group.element([0, 1, 2], [[1.0, -1.0]])
