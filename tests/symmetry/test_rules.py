"""Symmetries by structure: closed forms against the rank of J, and controls that have fewer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.account.dimension_account import account_by_rules
from neuromanifold.symmetry.account.rules import _rank_beside as rules_rank
from neuromanifold.symmetry.discovery import channels
from neuromanifold.tangent.rank.geometry import Geometry

relu = jax.nn.relu


def drawn(rng, **shapes):
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def kernel(f, params, x):
    """D − rank J at inputs that show all of it."""
    rank = nm.functional_dimension(f, params, x)
    assert float(rank.gap) > 1e4
    return sum(a.size for a in params.values()) - int(rank)


def linear(params, x):
    return x @ params["w"] @ params["v"] @ params["u"]


def tangent(act, size):
    """The rank of an orbit's tangent, by brute force: θ ↦ the derivative of the action at the
    identity.
    """
    with arithmetic():
        J = np.asarray(jax.jacfwd(act)(jnp.zeros(size)))
    return int(np.linalg.matrix_rank(J.reshape(-1, size), tol=1e-9 * np.abs(J).max()))


@pytest.mark.parametrize("widths", [(5, 4, 4, 5), (5, 3, 4, 5), (7, 5, 3, 6), (2, 5, 5, 2)])
def test_a_linear_stack_has_a_matrix_for_each_hidden_layer(widths, rng):
    """The directions are those of the orbit, or fewer and said to be; where all weights have the
    rank of the product, they are all that J does not see.
    """
    a, b, c, d = widths
    params = drawn(rng, w=(a, b), v=(b, c), u=(c, d))
    found = nm.symmetry.structural_symmetries(linear, params, rng.normal(size=(30, a)))
    assert sorted(rule.dimension for rule in found.rules) == sorted((b**2, c**2))

    def act(t):
        X, Y = t[: b * b].reshape(b, b), t[b * b :].reshape(c, c)
        w, v, u = (params[name] for name in "wvu")
        return jnp.concatenate([(w @ X).ravel(), (v @ Y - X @ v).ravel(), (Y @ u).ravel()])

    orbit = tangent(act, b * b + c * c)
    assert found.orbit == orbit if found.exact else found.orbit < orbit
    assert found.exact == (widths != (2, 5, 5, 2))
    r = min(widths)
    lost = a * b + b * c + c * d - r * (a + d - r)
    assert kernel(linear, params, rng.normal(size=(60, a))) == lost
    assert (found.orbit == lost) == (widths == (5, 4, 4, 5))


def test_a_matrix_that_the_weights_do_not_feel_is_not_counted(rng):
    """1 → 3 → 1 without bends: GL(3) has 9 directions, of which (3 − 1)² move nothing."""

    def f(params, x):
        return x @ params["w"] @ params["v"]

    params = drawn(rng, w=(1, 3), v=(3, 1))
    found = nm.symmetry.structural_symmetries(f, params, rng.normal(size=(5, 1)))
    [rule] = found.rules
    assert (rule.dimension, rule.orbit) == (9, 5) == (9, kernel(f, params, rng.normal(size=(9, 1))))


def layers(bend):
    def f(params, x):
        h = bend(x @ params["w"] + params["b"])
        return bend(h @ params["v"] + params["c"]) @ params["u"]

    return f


@pytest.mark.parametrize("bend, scales", [(relu, True), (jnp.tanh, False), (jax.nn.gelu, False)])
def test_channels_scale_where_the_bend_is_homogeneous(bend, scales, rng):
    params = drawn(rng, w=(3, 5), b=(5,), v=(5, 7), c=(7,), u=(7, 2))
    f, x = layers(bend), rng.normal(size=(400, 3))
    hidden = np.maximum(x @ params["w"] + params["b"], 0.0) @ params["v"]
    params["c"] = -np.median(hidden, axis=0)  # every unit switches
    found = nm.symmetry.structural_symmetries(f, params, x)
    assert found.orbit == (5 + 7 if scales else 0) == kernel(f, params, x)
    assert found.exact and not found.left_out


def normalised(params, x):
    h = relu(x @ params["w"]) @ params["v"]
    h = h - h.mean(-1, keepdims=True)
    h = h / jnp.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) * params["g"] + params["s"]
    return jnp.tanh(h @ params["u"] + params["c"]) @ params["o"]


def test_gains_and_offsets_fold_and_means_remove_the_ones_direction(rng):
    """5 scalings, 6 gains, 6 offsets, the ones directions (5 of the writer, 4 of the reader), and
    rotations of the stream that keep the ones vector: so(5).
    """
    params = drawn(rng, w=(3, 5), v=(5, 6), g=(6,), s=(6,), u=(6, 4), c=(4,), o=(4, 2))
    x = rng.normal(size=(200, 3))
    found = nm.symmetry.structural_symmetries(normalised, params, x)
    assert sorted(found.kinds.values()) == [5, 5 + 4, 10, 6 + 6]
    assert found.exact and found.orbit == kernel(normalised, params, x)


def test_elements_of_each_rule_are_drawn_at_full_size(rng):
    """Wide layers of 2,002,000 parameters: the dimensions are closed forms, f stays as it was."""
    params = drawn(rng, w=(10, 1000), v=(1000, 1000), u=(1000, 1000))
    params = {name: a / np.sqrt(len(a)) for name, a in params.items()}

    def f(params, x):
        return relu(x @ params["w"]) @ params["v"] @ params["u"]

    found = nm.symmetry.structural_symmetries(f, params, rng.normal(size=(2, 10)))
    assert {rule.dimension for rule in found.rules} == {1000, 1000**2}
    assert found.orbit == 1000 + 1000**2 and found.exact
    assert 0 < found.deviation < 1e-11
    with arithmetic():
        before = np.asarray(f(params, np.ones((1, 10))))
        other = np.asarray(f({**params, "v": 1.01 * params["v"]}, np.ones((1, 10))))
    assert np.abs(other - before).max() > 1e-3 * np.abs(before).max()


def test_the_account_by_rules_bounds_the_enumerated_one(rng):
    """On a network that can be enumerated: r_S is the same, r_∞ by rules is no smaller, and equal
    where the rules are all; a unit that is off leaves its parameters without effect on the sample.
    """
    params = drawn(rng, w=(3, 5), b=(5,), v=(5, 7), c=(7,), u=(7, 2))
    f, x = layers(relu), rng.normal(size=(400, 3))
    params["b"][0], params["b"][1:] = -100.0, 0.1 * params["b"][1:]
    hidden = np.maximum(x @ params["w"] + params["b"], 0.0) @ params["v"]
    params["c"] = -np.median(hidden, axis=0)
    geometry = Geometry(f, params, x)
    ruled = account_by_rules(geometry, nm.functional_dimension(f, params, x))
    listed = nm.dimension_account(f, params, x)
    assert ruled.chain[0] == listed.chain[0] and ruled.chain[2] >= listed.chain[2]
    assert ruled.chain[1] == ruled.chain[0] == listed.chain[1]
    assert (
        ruled.chain[3] - ruled.chain[2] == 5 + 7 and ruled.on_regions["closed paths"] == 4 + 7 - 1
    )
    assert ruled.closes and sum(count for _, count in ruled.rows) == ruled.parameters


def test_a_large_network_has_an_account(rng):
    params = drawn(rng, w=(3, 40), b=(40,), v=(40, 30), u=(30, 200))

    def f(params, x):
        return relu(x @ params["w"] + params["b"]) @ params["v"] @ params["u"]

    account = nm.dimension_account(f, params, rng.normal(size=(8, 3)))
    assert account.chain[2:] == (7360 - 40 - 900, 7360)
    assert account.chain[0] <= account.chain[1] <= account.chain[2]
    assert "GL(30) of channels on which f is linear" in str(account)


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_the_rank_of_matrices_side_by_side_is_that_of_the_whole(rank, rng):
    """By pieces and triangles; one more column of a new direction is one more."""
    whole = rng.normal(size=(7, rank)) @ rng.normal(size=(rank, 400))
    parts = np.split(whole, [1, 90, 95], axis=1)
    assert rules_rank(parts, 7, 7) == np.linalg.matrix_rank(whole) == rank
    assert rules_rank([*parts, rng.normal(size=(7, 1))], 7, 7) == min(7, rank + 1)
    assert rules_rank(parts, 7, 2) >= min(2, rank)  # it stops where `most` is reached


@pytest.mark.parametrize("axis, before, after", [(0, 1, 1), (1, 1, 1), (1, 2, 3), (2, 1, 1)])
def test_the_pieces_of_a_slot_are_its_slices(axis, before, after, rng, monkeypatch):
    """In parts of a few entries: the same entries, sums of squares and changes, and nothing else is
    changed.
    """
    monkeypatch.setattr(channels, "_PIECE", 10)
    shape = [5, 6, 7]
    shape[axis] = before * 4 * after + 2
    leaf = rng.normal(size=shape)
    slot = channels.Slot(0, axis, before, 4, after, start=1)
    slices = slot.slices([leaf])
    pieces = [*slot.pieces([leaf])]
    assert len(pieces) > 1 and slot.width([leaf]) == slices.shape[1]
    joined = np.concatenate(pieces, axis=1)
    np.testing.assert_array_equal(np.sort(joined, axis=1), np.sort(slices, axis=1))
    np.testing.assert_allclose(slot.squares([leaf]), (slices**2).sum(axis=1), rtol=1e-13)
    found = [leaf]
    slot.change(found, lambda own: 3 * own)
    np.testing.assert_array_equal(slot.slices(found), 3 * slices)
    outside = np.delete(leaf, slot.kept(np.ones(4, bool)), axis)
    np.testing.assert_array_equal(np.delete(found[0], slot.kept(np.ones(4, bool)), axis), outside)
    assert not np.array_equal(found[0], leaf)
