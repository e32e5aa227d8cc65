"""Normalisation, gains and linear channels of any network, folded: fewer parameters, the same
function, and nothing that must stay.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from symmetry.nets import NETS


def normalised_cnn(p, x):
    """A convolution, normalisation in evaluation mode, ReLU, mean, two linear layers in a row."""
    per_channel = lambda name: p[name][:, None, None]  # noqa: E731
    z = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME") + per_channel("c")
    z = (z - per_channel("mean")) / jnp.sqrt(per_channel("variance") + 1e-5) * per_channel(
        "g"
    ) + per_channel("b")
    return jax.nn.relu(z).mean((2, 3)) @ p["a"].T @ p["v"].T + p["d"]


def drawn_cnn(rng):
    shapes = {
        "w": (4, 2, 3, 3),
        "c": 4,
        "mean": 4,
        "g": 4,
        "b": 4,
        "a": (6, 4),
        "v": (2, 6),
        "d": 2,
    }
    return {k: rng.normal(size=s) for k, s in shapes.items()} | {
        "variance": rng.uniform(0.5, 2.0, 4)
    }


def largest_change(small, f, params, x):
    with arithmetic():
        before, after = np.asarray(f(params, x)), np.asarray(small.net(small.params, x))
    return np.abs(after - before).max() / np.abs(before).max()


def test_normalisation_and_linear_channels_of_a_cnn(rng):
    params, x = drawn_cnn(rng), rng.normal(size=(5, 2, 5, 5))
    small = S.reduce_width(normalised_cnn, params, x)
    assert {name for name, leaf in small.params.items() if leaf is None} == {
        "c",
        "mean",
        "variance",
        "g",
    }
    assert small.params["a"].shape == (2, 4) and small.params["v"].shape == (
        2,
        2,
    )  # rank 2 of six linear channels
    assert (small.neurons_saved, small.parameters_saved) == (
        4,
        4 * 4 + 4 * (4 + 2),
    ) and small.proved
    assert "16 parameters, folded into the weights" in str(small) and "equal everywhere" in str(
        small
    )
    assert largest_change(small, normalised_cnn, params, rng.normal(size=(40, 2, 5, 5))) < 1e-13
    with (
        arithmetic()
    ):  # and it is a model like any other: its derivative is that of f in the folded coordinates
        gradient = jax.grad(lambda p: small.net(p, x).sum())(small.params)
    assert np.isfinite(np.concatenate([np.ravel(a) for a in jax.tree.leaves(gradient)])).all()
    kept = S.reduce_width(normalised_cnn, params, x, fold=False)
    assert all(leaf is not None for leaf in kept.params.values()) and kept.parameters_saved == 24


@pytest.mark.parametrize(
    "name, gone", [("layer norm", "b g"), ("rms norm", "g"), ("block with gains", "g1 g2 g3")]
)
def test_gains_and_shifts_of_norms_are_folded_into_what_reads_them(name, gone, rng):
    net = NETS[name]
    params, x = net.draw(rng)
    small = S.reduce_width(net.f, params, x)
    assert [k for k in sorted(params) if small.params[k] is None] == gone.split()
    assert largest_change(small, net.f, params, net.draw(rng, 20)[1]) < 1e-13


def test_what_cannot_be_folded_stays(rng):
    """Negative controls: a gain after which something bends, one that two weights' products
    share with another reader, a gain of zero.
    """
    x = rng.normal(size=(6, 3))
    w, g = rng.normal(size=(3, 4)), rng.normal(size=4)
    params = {"w": w, "g": g, "v": rng.normal(size=(4, 2))}
    bent = lambda p, x: jnp.tanh(jnp.tanh(x @ p["w"]) * p["g"]) @ p["v"]  # noqa: E731
    shared = lambda p, x: (jnp.tanh(x @ p["w"]) * p["g"]) @ p["v"] + jnp.sum(p["g"] ** 2)  # noqa: E731
    for f in (bent, shared):
        assert not S.reduce_width(f, params, x).removed
    plain = lambda p, x: (jnp.tanh(x @ p["w"]) * p["g"]) @ p["v"]  # noqa: E731
    assert S.reduce_width(plain, params, x).params["g"] is None
    zero = S.reduce_width(
        lambda p, x: (jnp.tanh(x @ p["w"]) * p["g"] + p["b"]) @ p["v"],
        params | {"g": 0 * g, "b": g},
        x,
    )
    assert zero.params["g"] is not None


def test_bent_channels_are_not_merged_by_rank(rng):
    """Negative control: six ReLUs read by two outputs are six."""
    params = {"a": rng.normal(size=(3, 6)), "v": rng.normal(size=(6, 2))}
    x = rng.normal(size=(30, 3))
    assert not S.reduce_width(lambda p, x: jax.nn.relu(x @ p["a"]) @ p["v"], params, x).removed
    assert S.reduce_width(lambda p, x: x @ p["a"] @ p["v"], params, x).neurons_saved == 4


def test_outputs_on_the_sample_are_compared_in_rational_arithmetic(rng):
    f = lambda p, x: jax.nn.relu(x @ p["a"]) @ p["v"]  # noqa: E731
    params = {"a": np.round(rng.normal(size=(3, 4)), 2), "v": np.round(rng.normal(size=(4, 2)), 2)}
    params["a"][:, 3] = 2.0 * params["a"][:, 0]
    params["v"][1] = 0.0
    small = S.reduce_width(f, params, rng.normal(size=(8, 3)))
    assert small.neurons_saved == 2 and small.exact and small.deviation < 1e-15
    unread = {"a": params["a"][:, :3], "v": params["v"][:3]}
    small = S.reduce_width(f, unread, rng.normal(size=(8, 3)))
    assert small.exact and small.deviation == 0.0  # nothing was added: nothing was rounded
    assert not S.reduce_width(lambda p, x: jnp.tanh(f(p, x)), unread, rng.normal(size=(8, 3))).exact
