"""Models and trackers that hold functions: pickled by name, refused in a sentence where a
function has none.
"""

import copy
import pickle

import equinox as eqx
import jax
import numpy as np
import pytest

import neuromanifold as nm

NET, X = nm.MLP((2, 4, 1)), np.random.default_rng(0).normal(size=(6, 2))
PARAMS = NET.init(key=jax.random.key(0))
doubled = lambda params, x: 2.0 * x @ params  # noqa: E731  (a lambda that its module has a name for)


def twin(thing):
    return pickle.loads(pickle.dumps(thing))


def test_a_linearized_network_is_pickled_with_the_point_it_was_linearized_at():
    line = nm.linearize(NET, PARAMS, order=1)
    moved = jax.tree.map(lambda a: 1.5 * a, PARAMS)
    np.testing.assert_array_equal(twin(line)(moved, X), line(moved, X))
    assert twin(line).name == line.name


@pytest.mark.parametrize(
    "module",
    [eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(1)), eqx.nn.Linear(2, 3, key=jax.random.key(2))],
)
def test_a_network_from_equinox_is_pickled_with_its_activations(module):
    f, params = nm.from_equinox(module)
    g, own = twin((f, params))
    np.testing.assert_array_equal(g(own, X), f(params, X))


def test_a_tracker_goes_on_where_it_was_pickled():
    tracker = nm.Tracker(NET, X, X[:, :1], every=5)
    tracker(0, PARAMS)
    other = twin(tracker)
    for each in (tracker, other):
        each(5, jax.tree.map(lambda a: 1.1 * a, PARAMS))
    assert other.timeline.steps.tolist() == [0, 5]
    assert other.timeline.data.equals(tracker.timeline.data)
    assert float(other.timeline.data["kernel_drift"][-1]) > 0


def test_a_lambda_that_its_module_has_a_name_for_is_pickled():
    assert twin(nm.FunctionModel(doubled)).fn is doubled


@pytest.mark.parametrize(
    "holder, name",
    [
        (nm.FunctionModel(lambda params, x: x), "fn"),
        (nm.linearize(lambda params, x: x @ params, np.ones((2, 1))), "f"),
        (nm.Tracker(lambda params, x: x @ params, X), "model"),
        (nm.Tracker(NET, X, X[:, :1], loss=lambda a, b: ((a - b) ** 2).mean()), "options"),
        (
            nm.from_equinox(eqx.nn.MLP(2, 1, 4, 1, activation=lambda a: a, key=jax.random.key(1)))[
                0
            ],
            "state",
        ),
    ],
)
def test_a_nameless_function_is_refused_in_a_sentence_but_copied_in_memory(holder, name):
    with pytest.raises(
        TypeError,
        match=f"`{name}` cannot be pickled .*define its functions with `def` at the top of a "
        "module",
    ):
        pickle.dumps(holder)
    assert type(copy.deepcopy(holder)) is type(holder) and type(copy.copy(holder)) is type(holder)
