"""Each mistake has one clear sentence: the argument, what was passed, what to do."""

import jax
import numpy as np
import optax
import pytest

import cast
import neuromanifold as nm
from neuromanifold.dynamics import adam_l2, gradient_flow, r_squared, train, weight_norm
from neuromanifold.models import losses

NET = nm.MLP((2, 3, 1))
PARAMS = NET.init(key=jax.random.key(0), runs=2)
ONE = NET.init(key=jax.random.key(0))
SQUARE = nm.MLP((3, 3, 3))
X, Y = np.ones((5, 2)), np.ones((5, 1))


class Unhashable:
    """A network that carries its arrays with it."""

    __hash__ = None

    def __call__(self, params, x):
        return NET(params, x)


def attempt(f=NET, params=PARAMS, x=X, y=Y, **options):
    with cast.unchecked():
        return train(f, params, x, y, **{"key": jax.random.key(0), "epochs": 0, **options})


def nan(a: np.ndarray) -> np.ndarray:
    return np.where(np.arange(a.size).reshape(a.shape) == 1, np.nan, a)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"params": ONE, "single": False},
            r"`single` is False but `params` has no common run axis in front .*; draw runs with `net.init\(key=key, runs=R\)`",
        ),
        ({"chunk": 0}, r"`chunk` is 0; pass a number of members"),
        ({"params": ()}, r"`params` has no arrays"),
        ({"x": np.ones((5, 3))}, r"`x` has 3 features but the network takes 2"),
        ({"x": nan(X)}, r"`x` is nan at \[0, 1\]"),
        ({"y": nan(Y)}, r"`y` is nan at \[1, 0\]"),
        ({"x": X[:0], "y": Y[:0]}, r"`x` has shape \(0, 2\), so it is empty"),
        (
            {"y": Y[:4]},
            r"`x` has shape \(5, 2\) but `y` has \(4, 1\); both must begin with the same \(samples,\)",
        ),
        ({"y": np.ones((5, 2))}, r"`y` has shape \(5, 2\) but `f` returns \(5, 1\)"),
        ({"y": np.ones(5)}, r"`y` has shape \(5,\) but `f` returns \(5, 1\)"),
        ({"x": np.ones((4, 5, 2)), "y": np.ones((3, 5, 1))}, r"same \(data sets, samples\)"),
        ({"epochs": -1}, r"`epochs` is -1; pass a whole number"),
        ({"epochs": 2.5}, r"`epochs` is 2\.5; pass a whole number"),
        ({"every": 0}, r"`every` is 0; pass a number of epochs"),
        ({"batch_size": 0}, r"`batch_size` is 0; pass a number of samples"),
        ({"hyper": {"run": [1.0]}}, r"`hyper` has an axis 'run', a name the history uses"),
        (
            {"hyper": {"weight_decay": []}},
            r"`hyper\['weight_decay'\]` is \[\]; pass a non-empty list",
        ),
        (
            {"hyper": {"weight_decay": 0.1}},
            r"`hyper\['weight_decay'\]` is 0\.1; pass a non-empty list",
        ),
        ({"memory": "much"}, r"`memory` is 'much'"),
        ({"probes": [r_squared, r_squared]}, r"`probes` has 2 entries named 'r_squared'"),
    ],
)
def test_values_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        attempt(**options)


def test_a_square_network_is_one_network(key):
    """Every array has three rows, which could be three runs, but no network takes what they
    hold.
    """
    done = attempt(SQUARE, SQUARE.init(key=key), np.ones((5, 3)), np.ones((5, 3)))
    assert done.axes == ()


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"params": jax.tree.map(lambda a: a.astype(int), PARAMS)},
            r"has dtype int32, which has no derivative",
        ),
        (
            {"optimizer": optax.adam(0.1), "hyper": {"weight_decay": [0.0]}},
            r"pass a function of weight_decay that returns one",
        ),
        ({"optimizer": 0.01}, r"`optimizer` is 0\.01; pass an optax optimiser"),
        (
            {"optimizer": lambda: 3},
            r"`optimizer` returns an int; it must return an optax optimiser",
        ),
        (
            {"hyper": {"momentum": [0.9]}},
            r"`optimizer` cannot be called with momentum .*unexpected keyword",
        ),
        ({"probes": r_squared}, r"`probes` is <function r_squared.*pass a sequence"),
        ({"probes": [1]}, r"`probes` contains 1; pass functions"),
        (
            {"probes": [nm.probes.loss]},
            r"`probes` contains loss_probe, which does not take \(f, params, x, y\); .* nm.probes.loss\(nm.losses.mse\)",
        ),
        (
            {"f": Unhashable()},
            r"`f` is a Unhashable, which cannot be hashed, as modules that hold arrays; keep arrays in the parameters",
        ),
    ],
)
def test_things_of_the_wrong_kind(options, message):
    with pytest.raises(TypeError, match=message):
        attempt(**options)


def test_samples_with_several_axes_need_a_word_about_the_first(key):
    images, theta = np.ones((4, 5, 5)), np.ones((2, 25, 1))
    flat = lambda params, x: x.reshape(len(x), 25) @ params  # noqa: E731
    with pytest.raises(
        ValueError, match=r"`x` has 3 axes: say `stacked=True` if the first one counts data sets"
    ):
        attempt(flat, theta, images, np.ones((4, 1)))
    assert attempt(flat, theta, images, np.ones((4, 1)), stacked=False).axes == ("run",)
    assert attempt(flat, theta, images[None], np.ones((1, 4, 1)), stacked=True).axes == (
        "dataset",
        "run",
    )


def test_probes_must_keep_their_shape_and_name_their_axes(key):
    sizes = iter(range(1, 100))
    growing = nm.dynamics.Probe(lambda *_: np.zeros(next(sizes)), "growing", host=True)
    with pytest.raises(ValueError, match=r"array dimensions|same shape|shape"):
        attempt(probes=[growing])
    flat = nm.dynamics.Probe(lambda *_: np.zeros((2, 2)), "flat", ("one",), host=True)
    with pytest.raises(
        ValueError, match=r"probe 'flat' names the axes \('one',\) but its values have 2"
    ):
        attempt(probes=[flat])


def test_members_are_asked_for_by_their_axes(key):
    done = attempt(probes=[weight_norm])
    with pytest.raises(
        ValueError, match=r"`weight_decay` is not an axis of this training; its axes are run"
    ):
        done.member(weight_decay=0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"t1": 0}, r"`t1` is 0; pass a positive, finite time"),
        ({"t1": np.inf}, r"`t1` is inf; pass a positive, finite time"),
        (
            {"saveat": [0.5, 0.2]},
            r"`saveat` is \[0.5, 0.2\]; pass increasing times between 0 and `t1` = 1.0",
        ),
        ({"saveat": [2.0]}, r"`saveat` is \[2.0\]; pass increasing times"),
        ({"rtol": 0.0}, r"`rtol` is 0.0; pass a positive number"),
        ({"max_steps": 0}, r"`max_steps` is 0; pass a positive number"),
        ({"y": np.ones(5)}, r"`y` has shape \(5,\) but `f` returns \(5, 1\)"),
        ({"x": np.ones((5, 3))}, r"`x` has 3 features but the network takes 2"),
        ({"x": nan(X)}, r"`x` is nan at \[0, 1\]"),
    ],
)
def test_flows_that_cannot_be(options, message):
    with cast.unchecked(), pytest.raises(ValueError, match=message):
        given = {"x": X, "y": Y, "t1": 1.0, **options}
        gradient_flow(NET, ONE, given.pop("x"), given.pop("y"), loss=losses.mse, **given)


def test_a_flow_is_not_traced():
    with pytest.raises(
        TypeError,
        match=r"`gradient_flow` chooses its steps by value, so not inside jit, vmap or grad",
    ):
        jax.jit(lambda params: gradient_flow(NET, params, X, Y, t1=1.0).losses)(ONE)
    with pytest.raises(
        TypeError, match=r"`event` returns float64 of shape \(2,\); it must return one truth value"
    ):
        gradient_flow(NET, ONE, X, Y, t1=1.0, event=lambda t, params: params[1].weight[0, :2])


def test_equal_optimisers_are_one():
    assert adam_l2(0.01, 1e-4) is adam_l2(lr=0.01, weight_decay=0.0001)
    assert adam_l2(0.01, 1e-4) is not adam_l2(0.01, 1e-3)
