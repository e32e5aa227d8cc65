"""Estimates before an inspection: counts against counted ones, never seconds; and the clock that
shows what is left.
"""

import importlib
from dataclasses import replace

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection import costs
from neuromanifold.inspection.inspect import Clock, subject_of
from neuromanifold.inspection.sections import SECTIONS, LeftOut
from neuromanifold.models.losses import mse
from neuromanifold.symmetry.discovery.statistics import Opened
from neuromanifold.symmetry.reduction import narrowing

inspecting = importlib.import_module("neuromanifold.inspection.inspect")


def subject(f, params, x, y=None):
    return subject_of(f, params, x, y, None, None, None, mse)


def convolution(params, x):
    h = jax.nn.relu(jax.lax.conv_general_dilated(x, params["kernel"], (1, 1), "VALID"))
    return jax.nn.relu(h.mean((2, 3)) @ params["in"]) @ params["out"]


def drawn(rng):
    shapes = {"kernel": (4, 2, 3, 3), "in": (4, 6), "out": (6, 2)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}, rng.normal(
        size=(20, 2, 5, 5)
    )


def test_operations_in_convolutions_are_counted_and_those_of_dense_layers_are_none(rng):
    params, x = drawn(rng)
    s = subject(convolution, params, x)
    assert (
        s.convolving == 2 * 4 * 3 * 3 * 2 * 3 * 3
    )  # a product and a sum for each entry of the window at each place
    net = nm.MLP((3, 4, 2))
    assert subject(net, net.init(key=jax.random.key(0)), rng.normal(size=(5, 3))).convolving == 0.0


def test_a_reduction_runs_the_network_about_as_often_as_its_estimate_says(rng, monkeypatch):
    params, x = drawn(rng)
    calls, original = [], narrowing._Outputs.rows

    def counted(self, inputs, arrays):
        calls.append(len(self.data[0][inputs]))
        return original(self, inputs, arrays)

    monkeypatch.setattr(narrowing._Outputs, "rows", counted)
    nm.reduce_width(convolution, params, x)
    few = sum(n <= 2 * narrowing._FEWEST for n in calls)
    assert 1 < few <= costs._TRIED and 1 < len(calls) - few <= costs._TRIED


def test_scalings_are_tried_at_as_many_inputs_as_their_estimate_says(rng, monkeypatch):
    params, x = drawn(rng)
    tried, original = [], Opened.outputs

    def counted(self, leaves, at):
        tried.append(len(at))
        return original(self, leaves, at)

    monkeypatch.setattr(Opened, "outputs", counted)
    nm.symmetry.channel_scalings(convolution, params, x)
    assert tried == [costs._INPUTS] * 2


@pytest.mark.parametrize(
    "widths, samples, low, high",
    [((784, 256, 256, 10), 500, 25, 101), ((784, 1024, 1024, 10), 100, 10, 41)],
)
def test_estimates_of_two_networks_stay_within_a_factor_two_of_what_was_measured(
    rng, widths, samples, low, high
):
    """Measured with ranks and kernels by layer and symmetries by structure, processor time of a
    busy machine: 51 s and 20 s. Estimates are counts, the same on every machine.
    """
    net = nm.MLP(widths)
    s = subject(
        net,
        net.init(key=jax.random.key(0)),
        rng.normal(size=(samples, widths[0])).astype(np.float32),
    )
    asked = [c for c in SECTIONS if c.field not in inspecting._OF_TARGETS and c.concerns(s)]
    chosen = [c for c in asked if not (c.obstacle(s) or inspecting.too_much(c, s, 600))]
    assert low < sum(c.seconds(s) for c in chosen) < high


def test_what_is_left_follows_the_pace_and_never_goes_below_nothing():
    clock = Clock((4.0, 10.0, 6.0), now=lambda: 0.0)
    assert (
        clock.left(at=0.0) == 20.0 and clock.left(at=9.0) == 16.0
    )  # the first is late; the others are still to come
    clock.begin(1, at=8.0)  # twice as slow as estimated
    assert clock.left(at=8.0) == 32.0 and clock.left(at=18.0) == 22.0
    clock.begin(2, at=28.0)
    assert clock.left(at=1000.0) == 0.0 and clock.done(at=1000.0) == 1.0
    quick = Clock((1.0, 9.0), now=lambda: 0.0)
    quick.begin(1, at=50.0)  # too short a section to learn a pace from
    assert quick.left(at=50.0) == 9.0


def test_an_exact_rank_beyond_patience_is_had_where_the_last_layer_shows_it(rng):
    """And of two equal samples, which no layer tells apart, it is left out instead of late."""
    net, x = nm.MLP((6, 64, 64, 64, 4)), rng.normal(size=(8, 6))
    params, twice = net.init(key=jax.random.key(0)), x[[0, *range(7)]]
    [section] = [section for section in SECTIONS if section.field == "exact"]
    hasty = [replace(subject(net, params, data), patience=0.0) for data in (x, twice)]
    assert [s.head_rows for s in hasty] == [32, 32]
    assert costs.exact_seconds(hasty[0]) < costs.whole_rank_seconds(hasty[0])
    assert int(section.compute(hasty[0])) == 32
    with pytest.raises(LeftOut, match="the last layers do not show it, and all together take"):
        section.compute(hasty[1])
    assert int(section.compute(subject(net, params, twice))) == 28
    assert subject(convolution, *drawn(rng)).head_rows == 2 * 6  # rank(h) of six units without bias
