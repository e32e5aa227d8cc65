"""What a walk holds at once: counted by hand, measured, and decisions that do not depend on how
many samples are walked together.
"""

import subprocess
import sys

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
    assert live_entries(nm.graph.trace(_conv, params, x)) >= windows + signal + output
    assert live_entries(nm.graph.trace(_conv, params, x)) <= 2 * (windows + signal + output)


def test_values_of_parameters_alone_do_not_count():
    def f(params, x):
        return x * jnp.sum(params @ params)

    graph = nm.graph.trace(f, np.ones((50, 50)), np.ones((3, 1)))
    assert live_entries(graph) < 50


def test_decisions_do_not_depend_on_the_memory(monkeypatch, rng):
    net = nm.MLP((3, 8, 8, 1))
    params, x = net.init(key=jax.random.key(0)), rng.normal(size=(10, 3))
    graph, sizes, original = nm.graph.trace(net, params, x), [], decisions._walk

    def walked(graph, arithmetic, leaves, data):
        sizes.append(len(data[0]))
        return original(graph, arithmetic, leaves, data)

    monkeypatch.setattr(decisions, "_walk", walked)
    large, small = decisions.decide(graph, params, x), decisions.decide(graph, params, x, memory=1)
    assert sizes == [10] + 10 * [1]
    for a, b in zip(large.gates, small.gates, strict=True):
        np.testing.assert_array_equal(a, b)


_MEASURED = """
import re
import jax, jax.numpy as jnp, numpy as np, neuromanifold as nm
from neuromanifold.graph.footprint import Footprint
from neuromanifold.regions.decisions import decide

def f(params, x):
    for w in params:
        x = jnp.maximum(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"), 0)
    return x.sum((2, 3))

rng = np.random.default_rng(0)
params, x = [rng.normal(size=(8, 8, 3, 3)) for _ in range(2)], rng.normal(size=(8, 8, 48, 48))
graph, peak = nm.graph.trace(f, params, x), lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
decide(graph, params, x[:1], memory="96M")
before = peak()
decide(graph, params, x, memory="96M")
decide(graph, params, x, balls_only=True, memory="96M")
kept = peak()
Footprint.samples = lambda self, budget, **_: budget // (48 * self.entries)
decide(graph, params, x, balls_only=True, memory="96M")
print(kept - before, peak() - before)
"""


def test_decisions_keep_to_the_memory():
    """Resident memory of a process of its own: FLINT's matrices are nobody else's to see. With 48
    bytes for every entry of a ball,
    as was once thought, the budget is exceeded, so the measurement would show it."""
    found = subprocess.run(
        [sys.executable, "-c", _MEASURED], capture_output=True, text=True, check=True
    ).stdout
    kept, careless = (int(word) * 2**10 for word in found.split())
    assert kept <= 96 * 2**20 < careless
