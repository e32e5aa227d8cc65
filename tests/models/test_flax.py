"""Flax modules as models, linen and nnx: state fixed to inference and cast with the parameters,
the caller's object untouched.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import neuromanifold as nm
from neuromanifold.inspection.recorder import MEASURES
from neuromanifold.numerics.precision import arithmetic


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first, self.norm = nnx.Linear(3, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.dropout, self.last = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))


class Writer(nnx.Module):
    """Counts its calls, whatever the mode."""

    def __init__(self, rngs: nnx.Rngs):
        self.linear, self.count = nnx.Linear(3, 2, rngs=rngs), nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x: Any) -> Any:
        self.count[...] = self.count[...] + 1
        return self.linear(x)


@pytest.fixture
def x(key: jax.Array) -> jax.Array:
    return 2 + jax.random.normal(key, (16, 3))


@pytest.fixture
def linen(key: jax.Array, x: jax.Array) -> tuple[Linen, dict[str, Any]]:
    module = Linen()
    variables = module.init({"params": key, "dropout": key}, x, train=True)
    for _ in range(3):
        _, updated = module.apply(
            variables, x, train=True, rngs={"dropout": key}, mutable=["batch_stats"]
        )
        variables = {**variables, **updated}
    return module, variables


def by_hand(x: Any, params: Any, mean: Any, var: Any, names: tuple[str, str, str]) -> np.ndarray:
    first, norm, last = (
        jax.tree.map(lambda a: np.asarray(a, np.float64), params[name]) for name in names
    )
    h = np.asarray(x, np.float64) @ first["kernel"] + first["bias"]
    h = (h - np.asarray(mean, np.float64)) / np.sqrt(np.asarray(var, np.float64) + 1e-5) * norm[
        "scale"
    ] + norm["bias"]
    return np.maximum(h, 0) @ last["kernel"] + last["bias"]


def test_linen_in_float64(linen: Any, x: jax.Array):
    module, variables = linen
    f, params = nm.from_flax(module, variables, kwargs={"train": False})
    assert jax.tree.structure(params) == jax.tree.structure(variables["params"])
    np.testing.assert_allclose(f(params, x), module.apply(variables, x, train=False), rtol=1e-6)
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    moments = variables["batch_stats"]["BatchNorm_0"]
    expected = by_hand(
        x, wide, moments["mean"], moments["var"], ("Dense_0", "BatchNorm_0", "Dense_1")
    )
    y = f(wide, np.asarray(x, np.float64))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_linen_in_training_mode_is_refused(linen: Any, x: jax.Array):
    module, variables = linen
    f, params = nm.from_flax(module, variables, kwargs={"train": True})
    with pytest.raises(
        ValueError, match=r"`module` Linen is not in evaluation mode .*kwargs=\{'train': False\}"
    ):
        f(params, x)
    with pytest.raises(
        TypeError, match=r"`variables` is \['batch_stats'\]; pass what `module\.init` returned"
    ):
        nm.from_flax(module, {"batch_stats": {}})
    with pytest.raises(
        TypeError, match=r"`module` is an int; pass a flax\.linen\.Module or a flax\.nnx\.Module"
    ):
        nm.from_flax(3)


def test_nnx_is_cloned_and_put_into_evaluation_mode(x: jax.Array):
    module = Nnx(nnx.Rngs(0))
    for _ in range(3):
        module(x)
    before = jax.tree.map(
        np.asarray, nnx.to_pure_dict(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat)))
    )
    f, params = nm.from_flax(module)
    y = f(params, x)
    after = jax.tree.map(
        np.asarray, nnx.to_pure_dict(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat)))
    )
    assert jax.tree.all(jax.tree.map(np.array_equal, before, after))
    assert not module.dropout.deterministic
    assert not module.norm.use_running_average
    assert set(params) == {"first", "norm", "last"}
    moments = module.norm.mean[...], module.norm.var[...]
    expected = by_hand(x, params, *moments, ("first", "norm", "last"))
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    np.testing.assert_allclose(f(wide, np.asarray(x, np.float64)), expected, rtol=1e-12)


def test_nnx_that_writes_is_refused(x: jax.Array):
    f, params = nm.from_flax(Writer(nnx.Rngs(0)))
    with pytest.raises(
        ValueError, match=r"`module` Writer is not in evaluation mode \(it writes .*count"
    ):
        f(params, x)
    with pytest.raises(TypeError, match=r"`variables` belong to linen"):
        nm.from_flax(Writer(nnx.Rngs(0)), {"params": {}})


def test_the_library_takes_both(linen: Any, x: jax.Array):
    module, variables = linen
    for f, params in (
        nm.from_flax(module, variables, kwargs={"train": False}),
        nm.from_flax(Nnx(nnx.Rngs(0))),
    ):
        assert nm.ntk(f, params, x[:4]).shape == (8, 8)
        with arithmetic():
            stacked = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), params)
            assert jax.jit(jax.vmap(f, (0, None)))(stacked, x).shape == (2, 16, 2)
        assert hash(f) == hash(f)


@pytest.fixture
def only_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tracker measures is tested elsewhere."""
    monkeypatch.setattr("neuromanifold.inspection.recorder.MEASURES", MEASURES[:1])


@pytest.mark.usefixtures("only_the_loss")
def test_a_tracker_reads_an_nnx_module_where_it_is(key: jax.Array, x: jax.Array):
    module = Nnx(nnx.Rngs(0))
    tracker = nm.Tracker(module, x, jnp.zeros((16, 2)))
    module.train()
    tracker(0)
    module(x)  # moves the running means
    module.last.bias[...] = jnp.ones(2)
    tracker(1)
    assert not module.dropout.deterministic
    module.eval()
    np.testing.assert_allclose(
        tracker.timeline.data["loss"].values[1], np.mean(np.square(module(x))), rtol=1e-5
    )
    with pytest.raises(
        ValueError,
        match=r"`params` was given, but the model is an nnx module, which is read where it is",
    ):
        tracker(2, nnx.state(module))
    with pytest.raises(
        TypeError, match=r"`f` is a Nnx of flax; .*`f, params = nm\.from_flax\(module\)`"
    ):
        nm.ntk(module, {"a": np.ones(2)}, x)


@pytest.mark.usefixtures("only_the_loss")
def test_a_tracker_takes_the_variables_of_each_step(
    linen: tuple[Linen, dict[str, Any]], x: jax.Array
):
    module, variables = linen
    fresh = module.init({"params": jax.random.key(0), "dropout": jax.random.key(0)}, x, train=True)
    tracker = nm.Tracker(
        module, x, jnp.zeros((16, 2)), kwargs={"train": False}, output=lambda y: 2 * y
    )
    tracker(0, {**variables, "batch_stats": fresh["batch_stats"]}), tracker(1, variables)
    expected = np.mean(np.square(2 * module.apply(variables, x, train=False)))
    found = tracker.timeline.data["loss"].values
    np.testing.assert_allclose(found[1], expected, rtol=1e-5)
    assert abs(found[0] - found[1]) > 1e-2, "the state matters"
