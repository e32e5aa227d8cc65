"""Maxima of windows: value as JAX has it, derivative as a choice of the first largest entry, in
all bits.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuromanifold.graph.bends import take_extremes
from neuromanifold.graph.reading import call, fully_precise, read

_PLAIN = {"base_dilation": (1, 1), "window_dilation": (1, 1)}
WINDOWS = {
    "halves": {
        "window_dimensions": (2, 2),
        "window_strides": (2, 2),
        "padding": ((0, 0), (0, 0)),
        **_PLAIN,
    },
    "overlap": {
        "window_dimensions": (3, 2),
        "window_strides": (1, 2),
        "padding": ((1, 1), (0, 1)),
        **_PLAIN,
    },
    "large": {
        "window_dimensions": (9, 9),
        "window_strides": (1, 2),
        "padding": ((2, 0), (1, 3)),
        **_PLAIN,
    },
    "dilated": {
        "window_dimensions": (2, 3),
        "window_strides": (1, 1),
        "padding": ((1, 0), (0, 2)),
        "base_dilation": (1, 1),
        "window_dilation": (2, 3),
    },
}


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


def _by_hand(options, sign, a, change):
    """(value, change) of each window, entry by entry; of equal entries the first."""
    (p, _), (q, _) = options["padding"]
    rows, columns = (
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, pad, d, k, s in zip(
            a.shape,
            options["padding"],
            options["window_dilation"],
            options["window_dimensions"],
            options["window_strides"],
            strict=True,
        )
    )
    value, moved = np.empty((2, rows, columns))
    for i, j in np.ndindex(rows, columns):
        places = [
            (i * options["window_strides"][0] + r * options["window_dilation"][0] - p,
             j * options["window_strides"][1] + c * options["window_dilation"][1] - q)
            for r, c in np.ndindex(*options["window_dimensions"])
        ]  # fmt: skip
        real = [
            place for place in places if 0 <= place[0] < a.shape[0] and 0 <= place[1] < a.shape[1]
        ]
        best = max(real, key=lambda place: sign * a[place])  # the first of equal ones
        value[i, j], moved[i, j] = a[best], change[best]
    return value, moved


@pytest.mark.parametrize("sign", (1, -1), ids=("largest", "smallest"))
@pytest.mark.parametrize("name", WINDOWS)
def test_value_and_derivative_by_hand_with_many_ties(name, sign, rng, wide):
    options = WINDOWS[name]
    a, change = rng.integers(0, 4, (12, 13)).astype(float), rng.normal(size=(12, 13))
    value, moved = _by_hand(options, sign, a, change)
    found, along = jax.jit(
        lambda a, t: jax.jvp(lambda a: take_extremes(sign, options, a), (a,), (t,))
    )(a, change)
    assert (found == value).all() and (along == moved).all()
    weights = rng.normal(size=value.shape)
    back = jax.jit(lambda a, w: jax.vjp(lambda a: take_extremes(sign, options, a), a)[1](w)[0])(
        a, weights
    )
    assert np.vdot(back, change) == pytest.approx(np.vdot(weights, moved), rel=1e-13)


def test_functions_of_others_are_given_it_at_any_depth(rng, wide):
    options = WINDOWS["overlap"]
    pool = jax.jit(lambda a: jax.lax.reduce_window(a, -np.inf, jax.lax.max, **options))

    def written(a):
        return jax.lax.scan(lambda c, _: (pool(c).sum() * c, pool(c)), a, None, length=2)[1]

    a, change = rng.normal(size=(12, 13)), rng.normal(size=(12, 13))
    value, along = jax.jvp(lambda a: call(written, a), (a,), (change,))
    expected, moved = jax.jvp(written, (a,), (change,))
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    np.testing.assert_allclose(along, moved, rtol=1e-11)
    text = str(
        jax.make_jaxpr(lambda a, t: jax.jvp(lambda a: call(written, a), (a,), (t,)))(a, change)
    )
    control = str(jax.make_jaxpr(lambda a, t: jax.jvp(written, (a,), (t,)))(a, change))
    assert "select_and_gather_add" not in text and "select_and_gather_add" in control


def test_gelu_by_tanh_is_not_left_to_cublas_on_a_gpu(wide, monkeypatch, rng):
    """What an H200 showed: as jax.nn.gelu writes it, after a product, outputs are off by
    1.5e-10; so rewritten, by 2e-16.
    """
    z, w = rng.normal(size=(5, 3)), rng.normal(size=(3, 4))

    def network(z):
        return jax.nn.gelu(z @ w)

    def text(z):
        return str(jax.make_jaxpr(lambda z: call(network, z))(z))

    assert "reduce_precision" not in text(z)
    here = jax.jit(lambda z: call(network, z))(z)
    monkeypatch.setattr(
        "neuromanifold.graph.reading.devices", lambda: [SimpleNamespace(platform="gpu")]
    )
    assert "reduce_precision" in text(z)
    assert "reduce_precision" not in text(
        z.astype(np.float32)
    )  # control: the epilogue is exact enough there
    there, slope = jax.jvp(lambda z: call(network, z), (z,), (np.ones_like(z),))
    assert (there == here).all() or np.abs(there - here).max() < 1e-15
    np.testing.assert_allclose(slope, jax.jvp(network, (z,), (np.ones_like(z),))[1], rtol=1e-13)


def test_a_program_without_windows_stays_the_same_object(wide):
    closed, _ = read(lambda a: jax.jit(jnp.tanh)(a).sum(), jnp.ones(3))
    assert fully_precise(closed) is closed
    pooling, _ = read(
        lambda a: jax.lax.reduce_window(a, -np.inf, jax.lax.max, **WINDOWS["halves"]),
        jax.ShapeDtypeStruct((4, 4), float),
    )
    assert fully_precise(pooling) is not pooling
    whole, _ = read(
        lambda a: jax.lax.reduce_window(
            a, np.iinfo(np.int32).min, jax.lax.max, **WINDOWS["halves"]
        ),
        jax.ShapeDtypeStruct((4, 4), np.int32),
    )
    assert fully_precise(whole) is whole
