"""How much a reduction may change: exact by default, a tolerance with its measured deviation,
steps that hold everywhere or on a box, samples held out, batches one after another.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic

relu = jax.nn.relu


def two_layers(params, x):
    return relu(relu(x @ params["w"] + params["b"]) @ params["u"] + params["c"]) @ params["v"]


def drawn(rng, width=6):
    shapes = {"w": (3, width), "b": (width,), "u": (width, 5), "c": (5,), "v": (5, 2)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def moved(f, params, small, x):
    with arithmetic():
        return float(
            np.abs(np.asarray(f(params, x)) - np.asarray(small.net(small.params, x))).max()
        )


def test_a_constant_unit_goes_into_the_next_shift_everywhere(rng):
    """Zero weights and a bias of 0.7: what it adds to the next layer is a constant."""
    params, x = drawn(rng), rng.normal(size=(40, 3))
    params["w"][:, 2], params["b"][2] = 0.0, 0.7
    small = nm.reduce_width(two_layers, params, x, everywhere=True)
    [removal] = [r for r in small.removed if r.reason == "constant"]
    assert removal.everywhere and removal.count == 1
    np.testing.assert_allclose(small.params["c"], params["c"] + 0.7 * params["u"][2], rtol=1e-14)
    assert moved(two_layers, params, small, 50 * rng.normal(size=(500, 3))) < 1e-11
    net = nm.MLP((3, 6, 5, 2))
    layers = (
        nm.Layer(params["w"].T, params["b"]),
        nm.Layer(params["u"].T, params["c"]),
        nm.Layer(params["v"].T, np.zeros(2)),
    )
    assert nm.reduce_width(net, layers).net.widths == (3, 5, 5, 2)


def test_a_constant_behind_a_padded_convolution_stays_and_behind_a_plain_one_goes(rng):
    """Negative control: at the edge of a padded image the next layer sees less of the constant."""

    def convolved(padding):
        def f(params, x):
            h = relu(jax.lax.conv_general_dilated(x, params["a"], (1, 1), "SAME") + params["s"])
            h = jax.lax.conv_general_dilated(h, params["k"], (1, 1), padding) + params["t"]
            return relu(h).mean((2, 3)) @ params["v"]

        return f

    shapes = {"a": (4, 1, 3, 3), "s": (4, 1, 1), "k": (3, 4, 3, 3), "t": (3, 1, 1), "v": (3, 2)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    params["a"][1], params["s"][1] = 0.0, 0.7
    x = rng.normal(size=(10, 1, 6, 6))
    assert not nm.reduce_width(convolved("SAME"), params, x).removed
    small = nm.reduce_width(convolved("VALID"), params, x)
    assert [(r.reason, r.count) for r in small.removed] == [("constant", 1)] and small.proved


def test_rtol_says_what_counts_as_a_multiple(rng):
    params, x = drawn(rng), rng.normal(size=(40, 3))
    params = {name: a.astype(np.float32) for name, a in params.items()}
    params["w"][:, 4] = np.float32(1.7) * params["w"][:, 1]
    params["b"][4] = np.float32(1.7) * params["b"][1]
    assert nm.reduce_width(two_layers, params, x).neurons_saved == 0
    small = nm.reduce_width(two_layers, params, x, rtol=1e-6)
    assert small.neurons_saved == 1
    assert 0 < small.deviation < 1e-5


def test_a_tolerance_is_kept_and_measured(rng):
    params, x = drawn(rng, 24), rng.normal(size=(60, 3))
    with arithmetic():
        size = float(np.abs(np.asarray(two_layers(params, x))).max())
    saved = []
    for tolerance in (0.0, 0.02, 0.3):
        small = nm.reduce_width(two_layers, params, x, max_deviation=tolerance)
        assert small.deviation <= max(tolerance, 1e-12) * size
        assert small.deviation == pytest.approx(
            moved(two_layers, params, small, x), rel=1e-6, abs=1e-13
        )
        assert ("within" in str(small)) == (tolerance > 0)
        saved.append(small.neurons_saved)
    assert saved[0] == nm.reduce_width(two_layers, params, x).neurons_saved
    assert saved[0] < saved[1] < saved[2]


def test_a_tolerance_of_a_perceptron(rng):
    net = nm.MLP((3, 24, 5, 2))
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), net.init(key=jax.random.key(0)))
    x = rng.normal(size=(60, 3))
    exact, near = (nm.reduce_width(net, params, x, max_deviation=t) for t in (0.0, 0.3))
    assert near.net.hidden < exact.net.hidden and isinstance(near.net, nm.MLP)
    size = float(np.abs(net(params, x)).max())
    assert near.deviation <= 0.3 * size
    assert near.deviation == pytest.approx(
        float(np.abs(near.net(near.params, x) - net(params, x)).max())
    )


def planted_off(params):
    """Unit 3 is off for x within ±1, on far away."""
    params["w"][:, 3], params["b"][3] = 0.1, -2.0
    return params


def test_everywhere_keeps_what_is_off_on_the_sample_only(rng):
    params, x = planted_off(drawn(rng)), rng.uniform(-1, 1, size=(60, 3))
    params["u"][5] = 0.0
    small = nm.reduce_width(two_layers, params, x, everywhere=True)
    assert small.proved and [r.reason for r in small.removed] == ["without outgoing weights"]
    assert nm.reduce_width(two_layers, params, x).on_sample
    assert moved(two_layers, params, small, 100 * rng.normal(size=(300, 3))) < 1e-10


def test_a_box_proves_units_off_and_a_larger_one_does_not(rng):
    params, x = planted_off(drawn(rng)), rng.uniform(-1, 1, size=(60, 3))
    small = nm.reduce_width(two_layers, params, x, domain=(-1.0, 1.0))
    first = small.removed[0]
    assert (first.reason, first.on_box, first.on_sample) == ("inactive on the box", True, False)
    assert "on the box" in str(small)
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
    assert moved(two_layers, params, small, corners) < 1e-12
    wide = nm.reduce_width(two_layers, params, x, domain=(-100.0, 100.0))
    assert not any(r.on_box for r in wide.removed)
    net = nm.MLP((3, 6, 1))
    layers = (nm.Layer(params["w"].T, params["b"]), nm.Layer(np.ones((1, 6)), np.zeros(1)))
    assert nm.reduce_width(net, layers, domain=(-1.0, 1.0)).net.widths[1] < 6
    assert nm.reduce_width(net, layers, domain=(-100.0, 100.0)).net.widths[1] == 6


@pytest.mark.parametrize(
    "bend",
    [
        jnp.tanh,
        jnp.abs,
        jax.nn.silu,
        lambda h: h**2,
        lambda h: h / (2 + jnp.abs(h)),
        jax.nn.softplus,
    ],
)
def test_bounds_on_a_box_hold_at_random_inputs(bend, rng):
    from neuromanifold.symmetry.reduction.box import Box, read_box

    f = lambda p, x: (jnp.where(x @ p["w"] > 0.3, bend(x @ p["w"]), x @ p["w"] - 1.0)) @ p["v"]  # noqa: E731
    params = {"w": rng.normal(size=(3, 4)), "v": rng.normal(size=(4, 2))}
    graph = nm.graph.trace(f, params, np.ones((1, 3)))
    box = Box.of((-1.0, np.array([0.5, 1.0, 2.0])), graph)
    [out] = graph.program.outputs
    leaves = [params["v"], params["w"]]
    reading = read_box(graph, leaves, box, ((out, 0),))[out, 0]
    with arithmetic():
        y = np.asarray(f(params, box.drawn(3000, rng)[0]))
    assert (reading.low <= y.min(0)).all() and (y.max(0) <= reading.high).all()
    assert (reading.high - reading.low < 40 * (y.max(0) - y.min(0)) + 10).all()


def test_samples_held_out_show_what_the_sample_does_not(rng):
    params, x = planted_off(drawn(rng)), rng.uniform(-1, 1, size=(60, 3))
    new = 30 * rng.normal(size=(60, 3))
    small = nm.reduce_width(two_layers, params, x, held_out=new)
    assert small.held_out == pytest.approx(moved(two_layers, params, small, new))
    assert small.held_out > 1e-3 > small.deviation and "held out" in str(small)
    assert nm.reduce_width(two_layers, params, x).held_out is None


def test_batches_are_read_one_after_another(rng):
    """A unit that is on in the last batch only stays; where the batches end before, it goes."""
    params = planted_off(drawn(rng))
    batches = [rng.uniform(-1, 1, size=(20, 3)) for _ in range(5)]
    last = np.full((20, 3), 40.0)
    assert nm.reduce_width(two_layers, params, iter(batches)).on_sample
    kept = nm.reduce_width(two_layers, params, iter([*batches, last]))
    assert "inactive" not in str(kept)
    with pytest.raises(ValueError, match="`x` has no batches; pass at least one"):
        nm.reduce_width(two_layers, params, iter([]))


@pytest.mark.parametrize(
    "options, said",
    [
        ({"max_deviation": -1.0}, "`max_deviation` is -1.0; pass a finite number, 0 or more"),
        ({"rtol": float("nan")}, "`rtol` is nan; pass a fraction, at least 0 and at most 1"),
        ({"domain": (1.0, -1.0)}, "`domain` has a lower bound above the upper one"),
        ({"domain": (np.zeros(2), np.ones(2))}, "`domain` has arrays of shapes"),
    ],
)
def test_bad_limits_are_refused(options, said, rng):
    with pytest.raises(ValueError, match=said):
        nm.reduce_width(two_layers, drawn(rng), rng.normal(size=(5, 3)), **options)
