"""Linear segments between units that switch: one direction of a residual stream that no affine
field gives, in closed form.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from symmetry.nets import bent_stream

THETA = {
    "a": np.array([[0.625, 0.375], [-0.75, 0.625], [1.625, 0.125]]),
    "b": np.array([[2.0, 1.5, 0.5], [-0.375, 0.375, 0.0625]]),
    "v": np.array([[-0.75, 0.75], [-1.25, 0.25], [-1.0, -0.875]]),
    "w": np.array([[-0.375, 1.0, -0.375], [0.5, -0.25, 0.375], [-0.5, -1.125, 0.375]]),
}
"""Branch 1 is on wherever h is not zero (its weights are positive), and so are z_1 and z_2; all
other units switch.
"""


def scaled(theta, t):
    """The third unit of z scaled by t: e_0 + A_1B_10 is its weight, so A_1 turns, and V and B of
    the other two take that back.
    """
    a, b, v = (theta[name].copy() for name in "abv")
    unit = np.eye(3)[0] + a[:, 1] * b[1, 0]
    reach = (np.eye(3)[:, 1:] + np.outer(a[:, 1], b[1, 1:])) @ v[1:]
    other = b[0, 1:] @ v[1:]
    a[:, 1] = (t * unit - np.eye(3)[0]) / b[1, 0]
    beta = reach[0] / a[0, 1]
    v[0], v[1:] = v[0] / t, reach[1:] - np.outer(a[1:, 1], beta)
    b[0, 0], b[0, 1:], b[1, 1:] = (
        t * b[0, 0],
        other @ np.linalg.inv(v[1:]),
        beta @ np.linalg.inv(v[1:]),
    )
    return theta | {"a": a, "b": b, "v": v}


def sample(rng):
    return rng.normal(size=(400, 3))


def test_the_direction_in_closed_form_keeps_the_function_and_is_no_scaling(rng):
    x = 10.0 * sample(rng)
    moved = scaled(THETA, 1.02)
    with arithmetic():
        before, after = (np.asarray(bent_stream(theta, x)) for theta in (THETA, moved))
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-12 * np.abs(before).max())
    # Scalings keep the entries of A_1 in proportion up to those of h, which W shows: here W stays
    # and A_1 turns.
    ratios = moved["a"][:, 1] / THETA["a"][:, 1]
    assert (moved["w"] == THETA["w"]).all() and np.ptp(ratios) > 1e-2


def test_the_account_names_it_and_counts_it_once(rng, monkeypatch):
    account = S.dimension_account(bent_stream, THETA, sample(rng))
    assert account.chain[2:] == (21, 27) and account.unexplained == 0 and account.refuted == 0
    assert account.everywhere["linear segments"] == 1 and sum(dict(account.rows).values()) == 27
    module = importlib.import_module("neuromanifold.symmetry.account.dimension_account")
    monkeypatch.setattr(
        module, "segment_directions", lambda rows, *_: np.zeros((0, rows.columns), np.int64)
    )
    assert S.dimension_account(bent_stream, THETA, sample(rng)).unexplained == 1


@pytest.mark.parametrize("unit", [1, 2])
def test_where_one_of_the_units_switches_there_is_no_such_direction(unit, rng):
    """Negative control: B_1 pulls z_1 or z_2 below zero, so that a second unit would have to be
    scaled with A_1 alone.
    """
    b = THETA["b"].copy()
    b[1, unit] = -2.0
    account = S.dimension_account(bent_stream, THETA | {"b": b}, sample(rng))
    assert account.chain[3] - account.chain[2] == 5 and account.everywhere["linear segments"] == 0


def test_discovery_names_it_beyond_the_orbit():
    discover = importlib.import_module("neuromanifold.symmetry.discovery.discover")
    x, rng = sample(np.random.default_rng(0))[:5], np.random.default_rng(1)
    leaves = [THETA[name] for name in sorted(THETA)]
    with arithmetic():
        sampler = discover.network_sampler(bent_stream, THETA, x, False)
        found = discover.explain_excess(sampler, leaves, rng, 5, 6)
    assert (found.held, found.segments, found.unseen, found.rest) == (
        0,
        1,
        0,
        0,
    ) and "along linear segments" in repr(found)


def test_networks_without_units_that_switch_are_not_explained_by_themselves():
    """f = x AB, width between: 3·2 + 2·1 parameters of 3 numbers; GL(2) explains 4 of 5, the
    rest stays.
    """
    params = (np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]]), np.array([[1.0], [2.0]]))
    account = S.dimension_account(
        lambda p, x: x @ p[0] @ p[1], params, np.random.default_rng(0).normal(size=(9, 3))
    )
    assert "linear segments" not in account.explained or account.explained["linear segments"] == 0
    assert jax.tree.leaves(params)[0].shape == (3, 2) and sum(dict(account.rows).values()) == 8


RELU = nm.MLP((1, 1, 1)).activations[0]
BENT_OTHERWISE = {
    "leaky": lambda z: jnp.where(z > 0, z, 0.1 * z),
    "mirrored": lambda z: jnp.where(z > 0, 0.0, z),
    "turned": lambda z: jnp.where(z > 0, -z, 0.0),
    "raised": lambda z: jnp.where(z > 1, z, 0.0),
    "of another": lambda z: jnp.where(z > 0, z[..., ::-1], 0.0),
}


def chosen_stream(act):
    def f(p, x):
        h = act(x @ p["w"])
        return act(h + act(h @ p["a"]) @ p["b"]) @ p["v"]

    return f


@pytest.mark.parametrize("act", [RELU, lambda z: jnp.where(z >= 0, z, 0.0)])
def test_a_rectifier_that_is_written_as_a_choice_is_one(act, rng):
    graph = nm.graph.trace(chosen_stream(act), THETA, sample(rng))
    assert graph.rectifies
    account = S.dimension_account(chosen_stream(act), THETA, sample(rng))
    assert account.everywhere["linear segments"] == 1 and account.left_out == ()


@pytest.mark.parametrize("act", BENT_OTHERWISE.values(), ids=BENT_OTHERWISE)
def test_other_choices_are_none(act, rng):
    assert not nm.graph.trace(chosen_stream(act), THETA, sample(rng)).rectifies
