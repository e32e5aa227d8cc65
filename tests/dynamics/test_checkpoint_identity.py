"""A checkpoint continues its own training, on any number of cores, and no other."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neuromanifold as nm
from neuromanifold.dynamics import Probe, r_squared, train, training

NET = nm.MLP((2, 4, 1))
X, Y = np.linspace(-1, 1, 20).reshape(10, 2), np.linspace(0, 1, 10)[:, None]
START = NET.init(key=jax.random.key(0), runs=2)


def rate(momentum):
    return optax.sgd(0.1, momentum)


def other_rate(momentum):
    return optax.sgd(0.1, momentum / 2)


def scaled(factor: float):
    return lambda params, x: factor * NET(params, x)


def watched(factor: float):
    return Probe(lambda f, params, x, y: factor * np.abs(f(params, x)).max(), "watched", host=True)


def traced(factor: float):
    return Probe(lambda f, params, x, y: factor * jnp.abs(f(params, x)).max(), "traced")


PAIRS = {
    "learning rate of optax.adam": (
        {"optimizer": optax.adam(0.01)},
        {"optimizer": optax.adam(0.02)},
    ),
    "schedule": (
        {"optimizer": optax.adam(optax.cosine_decay_schedule(0.1, 10))},
        {"optimizer": optax.adam(optax.cosine_decay_schedule(0.1, 20))},
    ),
    "schedule of adam_l2": (
        {"optimizer": nm.dynamics.adam_l2(optax.cosine_decay_schedule(0.1, 10))},
        {"optimizer": nm.dynamics.adam_l2(optax.cosine_decay_schedule(0.1, 20))},
    ),
    "lambda as a model": ({"f": scaled(1.0)}, {"f": scaled(2.0)}),
    "lambda as a loss": (
        {"loss": lambda a, b: ((a - b) ** 2).mean()},
        {"loss": lambda a, b: ((a - b) ** 4).mean()},
    ),
    "activation": ({"f": NET}, {"f": nm.MLP((2, 4, 1), nm.leaky_relu(0.01))}),
    "custom activation": (
        {"f": nm.MLP((2, 4, 1), nm.Activation(lambda z: jnp.sin(z)))},
        {"f": nm.MLP((2, 4, 1), nm.Activation(lambda z: jnp.cos(z)))},
    ),
    "hyperparameter function": (
        {"hyper": {"momentum": [0.5]}, "optimizer": rate},
        {"hyper": {"momentum": [0.5]}, "optimizer": other_rate},
    ),
    "constants of a model": ({"f": scaled(np.ones(1))}, {"f": scaled(np.array([1.5]))}),
    "traced probe": ({"probes": [traced(1.0)]}, {"probes": [traced(2.0)]}),
    "host probe": ({"probes": [watched(1.0)]}, {"probes": [watched(2.0)]}),
    "chunk": ({"chunk": 1}, {"chunk": 2}),
}


def run(path: Path, *, f=NET, epochs: int = 1, **options):
    given = {"key": jax.random.key(1), "checkpoint": path, "epochs": epochs, "batch_size": 4}
    return train(f, START, X, Y, **{**given, **options})


@pytest.mark.parametrize("name", PAIRS)
def test_another_training_is_refused_and_the_same_goes_on(name: str, tmp_path: Path):
    ours, theirs = PAIRS[name]
    run(tmp_path / "c", **ours)
    with pytest.raises(
        ValueError,
        match=r"`checkpoint` .* belongs to another training \(.* there, .* here.*\); delete it",
    ):
        run(tmp_path / "c", epochs=2, **theirs)
    assert run(tmp_path / "c", epochs=2, **ours).history.attrs["epochs"] == 2


def test_names_in_the_source_do_not_matter(tmp_path: Path):
    run(tmp_path / "c", f=lambda params, x: 2.0 * NET(params, x))
    run(tmp_path / "c", f=lambda weights, samples: 2.0 * NET(weights, samples), epochs=2)


def test_a_step_that_calls_python_is_refused_with_a_checkpoint(tmp_path: Path):
    def shouting(params, x):
        jax.debug.callback(lambda: None)
        return NET(params, x)

    with pytest.raises(
        ValueError,
        match=r"`checkpoint` cannot tell this training from another: .* calls back into Python",
    ):
        run(tmp_path / "c", f=shouting)
    train(shouting, START, X, Y, key=jax.random.key(0), epochs=1)


def test_other_flags_of_the_compiler_are_refused_and_those_without_effect_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Under another optimisation level every number ends elsewhere."""
    ours = os.environ.get("XLA_FLAGS", "")
    run(tmp_path / "c")
    monkeypatch.setenv("XLA_FLAGS", f"{ours} --xla_backend_optimization_level=0")
    with pytest.raises(
        ValueError, match=r"compiler flags: .* there, .*--xla_backend_optimization_level=0.* here"
    ):
        run(tmp_path / "c", epochs=2)
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count=2 {ours}")
    assert run(tmp_path / "c", epochs=2).history.attrs["epochs"] == 2


def test_other_digits_are_refused_with_the_way_out(tmp_path: Path, monkeypatch):
    """Stands for another processor or number of threads: the step is the same, its rounding is
    not.
    """
    run(tmp_path / "c", probes=[r_squared])
    real = training.replay_first_group
    monkeypatch.setattr(training, "pool_size", lambda: 64)
    monkeypatch.setattr(training, "replay_first_group", lambda *a: ("another", real(*a)[1]))
    with pytest.raises(
        ValueError,
        match=r"cannot be continued bit for bit: .* 64 here.*; set NPROC=\d+ in the environment",
    ):
        run(tmp_path / "c", epochs=2, probes=[r_squared])
    monkeypatch.setattr(
        training,
        "replay_first_group",
        lambda *a: (real(*a)[0], {"r_squared": real(*a)[1]["r_squared"] + 1e-7}),
    )
    with pytest.raises(ValueError, match=r"cannot be continued bit for bit"):
        run(tmp_path / "c", epochs=2, probes=[r_squared])


SCRIPT = """
import os, sys
cores, path, epochs, width, out = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
import jax, numpy as np, optax
import neuromanifold as nm
net = nm.MLP((1, width, width, 1)) if width < 100 else nm.MLP((784, width, 10))
rng = np.random.default_rng(0)
x, y = (rng.normal(size=(100 if width < 100 else 600, n)).astype("float32") for n in (net.widths[0], net.widths[-1]))
params = net.init(key=jax.random.key(0), runs=9 if width < 100 else 1)
probes = [nm.probes.r_squared, nm.probes.functional_dimension] if width < 100 else []
done = nm.train(net, params, x, y, key=jax.random.key(1), epochs=epochs, batch_size=16 if width < 100 else None,
                optimizer=optax.adam(0.05), probes=probes, every=5, checkpoint=path)
np.savez(out, *jax.tree.leaves(done.params), *(done.history[name].values for name in done.history))
"""


def trained(tmp_path: Path, cores: int, path: str, epochs: int, width: int, **environment: str):
    code = [
        sys.executable,
        "-c",
        SCRIPT,
        str(cores),
        str(tmp_path / path),
        str(epochs),
        str(width),
        str(tmp_path / "out.npz"),
    ]
    done = subprocess.run(code, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    with np.load(tmp_path / "out.npz") as found:
        return [found[name] for name in found.files]


def test_another_number_of_cores_ends_at_the_same_bits(tmp_path: Path):
    whole = trained(tmp_path, 1, "whole", 20, 10)
    trained(tmp_path, 1, "cut", 8, 10)
    resumed = trained(tmp_path, 2, "cut", 20, 10)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(whole, resumed, strict=True))
    assert len(whole) == 8 and np.abs(whole[0]).max() > 0


def test_products_that_depend_on_the_pool_are_refused_or_given_the_pool(tmp_path: Path):
    """A product of this size adds in another order on one thread than on two; `NPROC` gives one
    core two threads.
    """
    two = trained(tmp_path, 2, "whole", 4, 512)
    trained(tmp_path, 2, "cut", 2, 512)
    refused = trained(tmp_path, 1, "cut", 4, 512)
    if isinstance(refused, str):
        assert "set NPROC=2 in the environment" in refused
    else:
        assert all(map(np.array_equal, refused, two))
    resumed = trained(tmp_path, 1, "cut", 4, 512, NPROC="2")
    assert all(map(partial(np.array_equal), resumed, two))
