"""Units that bend twice are one unit each, on where they pass their signal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection.units import statuses
from neuromanifold.regions.decisions import decide
from neuromanifold.regions.patterns import pattern_columns

X = np.linspace(0.5, 1.5, 5)[:, None]
PARAMS = {
    "in": np.array([[20.0, 2.0, -1.0, 5.0]]),
    "out": np.ones((4, 1)),
}  # above 6, between, below 0, crossing 6


def _statuses(f):
    graph = nm.graph.trace(f, PARAMS, X)
    gates = decide(graph, PARAMS, X + 1e-3).gates
    return statuses(f, graph, pattern_columns(f, graph, gates, len(X)))


@pytest.mark.parametrize(
    "activation",
    [jax.nn.relu6, lambda z: jnp.clip(z, 0, 6), lambda z: jax.lax.clamp(0.0, z, 6.0)],
    ids=["relu6", "clip", "clamp"],
)
def test_a_unit_that_is_cut_off_on_both_sides_is_one_unit(activation):
    (layer,) = _statuses(lambda params, x: activation(x @ params["in"]) @ params["out"])
    assert (layer.width, layer.active, layer.inactive, layer.switching) == (4, 1, 2, 1)


def test_bends_that_others_see_apart_stay_apart():
    def f(params, x):
        h = jax.nn.relu(x @ params["in"])
        return (jnp.minimum(h, 6.0) + h) @ params["out"]

    assert [layer.width for layer in _statuses(f)] == [4, 4]
