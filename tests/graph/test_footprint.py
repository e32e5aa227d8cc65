"""What a walk holds at once: counted by hand, and decisions that do not depend on how many samples are walked together."""

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm
from neuromanifold.graph.footprint import live_entries
from neuromanifold.regions import decisions


def _conv(params, x):
    h = jax.lax.conv_general_dilated(x, params["w"], (1, 1), "VALID")
    return jnp.maximum(h, 0).sum((1, 2, 3))[:, None]


def test_the_windows_of_a_convolution_are_counted():
    params, x = {"w": np.ones((5, 2, 3, 3))}, np.ones((4, 2, 6, 6))
    windows = 4 * 4 * 2 * 9  # places × channels × offsets
    signal, output = 2 * 6 * 6, 5 * 4 * 4
    assert live_entries(nm.trace(_conv, params, x)) >= windows + signal + output
    assert live_entries(nm.trace(_conv, params, x)) <= 2 * (windows + signal + output)


def test_values_of_parameters_alone_do_not_count():
    def f(params, x):
        return x * jnp.sum(params @ params)

    graph = nm.trace(f, np.ones((50, 50)), np.ones((3, 1)))
    assert live_entries(graph) < 50


def test_decisions_do_not_depend_on_the_memory(monkeypatch, rng):
    net = nm.MLP((3, 8, 8, 1))
    params, x = net.init(key=jax.random.key(0)), rng.normal(size=(10, 3))
    graph, sizes, original = nm.trace(net, params, x), [], decisions._walked

    def walked(graph, arithmetic, leaves, data):
        sizes.append(len(data[0]))
        return original(graph, arithmetic, leaves, data)

    monkeypatch.setattr(decisions, "_walked", walked)
    large, small = decisions.decide(graph, params, x), decisions.decide(graph, params, x, memory=1)
    assert sizes == [10] + 10 * [1]
    for a, b in zip(large.gates, small.gates, strict=True):
        np.testing.assert_array_equal(a, b)
