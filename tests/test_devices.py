"""Eight simulated devices, and two processes of `jax.distributed`: the same kernels and
trainings as on one device.
"""

import json
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.runtime.devices import BlockHalved
from neuromanifold.tangent.kernel import contraction, tiles

JOB = """
import hashlib, json, os, sys, jax, numpy as np
if len(sys.argv) > 2:
    # the backend of collectives on CPUs must be named before anything runs
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
import neuromanifold as nm

net = nm.MLP((5, 16, 16, 3))
params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
x = np.random.default_rng(0).standard_normal((333, 5), dtype=np.float32)
kernels = {
    "all": nm.ntk(net, params, x),
    "trace": nm.ntk(net, params, x, trace=True),
    "cross": nm.ntk(net, params, x, x[:101], trace=True),
    "diagonal": nm.ntk(net, params, x, diagonal=True),
}
small = nm.MLP((1, 6, 1))
d = nm.data.load("f1")
runs = small.init(key=jax.random.key(1), runs=19)
done = nm.train(small, runs, d.x, d.y, key=jax.random.key(2), epochs=7, batch_size=16, chunk=4, every=3, probes=[nm.dynamics.r_squared])
def place(a):
    # On which devices an array is, and whether each has all of it.
    return [sorted(d.id for d in a.devices()), bool(a.sharding.is_fully_replicated)]

def places():
    # Where results of the host go: of inputs on a mesh, on one device, and nowhere in particular.
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    rows, whole = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
    at = jax.tree.map(lambda a: np.asarray(a, np.float64), small.init(key=jax.random.key(3)))
    points = np.linspace(-1, 1, 16)[:, None]
    with jax.enable_x64(True):
        put = lambda tree, where: jax.tree.map(lambda a: jax.device_put(a, where), tree)
        on_mesh, alone = (put(at, whole), put(points, rows)), (put(at, jax.devices()[5]), put(points, jax.devices()[5]))
        follow = nm.numerics.precision.follower(on_mesh[1])
        scaled = nm.symmetry.ScalingGroup(small).sample(key=jax.random.key(4))
        return {
            "kernel on a mesh": place(nm.ntk(small, *on_mesh)),
            "spectrum on a mesh": place(nm.spectrum(small, *on_mesh).eigenvalues),
            "rank on a mesh": place(nm.functional_dimension(small, *on_mesh).spectrum),
            "rows that fit": place(follow(np.ones((16, 3)))),
            "rows that do not": place(follow(np.ones(3))),
            "a number": place(follow(np.array(1.0))),
            "parameters on a mesh": place(scaled(on_mesh[0])[0].weight),
            "kernel on a device": place(nm.ntk(small, *alone)),
            "spectrum on a device": place(nm.spectrum(small, *alone).eigenvalues),
            "parameters on a device": place(scaled(alone[0])[0].weight),
            "spectrum anywhere": place(nm.spectrum(small, at, jax.numpy.asarray(points)).eigenvalues),
            "different devices": place(nm.numerics.precision.follower(alone, on_mesh)(np.ones(3))),
        }

weights = hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in jax.tree.leaves(done.params))).hexdigest()
seen = hashlib.sha256(done.history.r_squared.values.tobytes()).hexdigest()
if jax.process_index() == 0:
    np.savez(sys.argv[1], **{name: np.asarray(kernel) for name, kernel in kernels.items()})
    where = places() if jax.local_device_count() == 8 else {}
    print(json.dumps({"devices": jax.device_count(), "weights": weights, "seen": seen, "places": where}), flush=True)
"""


def run(
    script: Path, out: Path, devices: int, processes: int = 1
) -> tuple[dict, dict[str, np.ndarray]]:
    """The job on so many devices in each of so many processes: what it says and its kernels."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(nm.__file__).parents[1]),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    more = [[address, str(i)] if processes > 1 else [] for i in range(processes)]
    commands = [[sys.executable, str(script), str(out), *arguments] for arguments in more]
    children = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for command in commands
    ]
    said = [child.communicate(timeout=540)[0] for child in children]
    assert [child.returncode for child in children] == [0] * processes
    with np.load(out) as kernels:
        return json.loads(said[0].splitlines()[-1]), dict(kernels)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("devices")
    (folder / "job.py").write_text(JOB)
    return run(folder / "job.py", folder / "one.npz", 1)


@pytest.mark.parametrize("devices, processes", [(8, 1), (2, 2)])
def test_many_devices_give_what_one_gives(devices: int, processes: int, one, tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text(JOB)
    said, kernels = run(script, tmp_path / "many.npz", devices, processes)
    assert said["devices"] == devices * processes and one[0]["devices"] == 1
    if devices == 8:
        check_places(said["places"])
    for name, kernel in one[1].items():
        eps = float(np.finfo(kernel.dtype).eps)
        np.testing.assert_allclose(
            kernels[name], kernel, rtol=0, atol=16 * eps * np.abs(kernel).max()
        )
    assert (said["weights"], said["seen"]) == (one[0]["weights"], one[0]["seen"]), (
        "training is the same bit for bit"
    )


def check_places(places: dict[str, list]) -> None:
    """Results of the host are where their inputs are: on all eight, in parts or as copies; on
    the sixth; on the first by default.
    """
    everywhere = list(range(8))
    assert places == {
        "kernel on a mesh": [everywhere, True],
        "spectrum on a mesh": [everywhere, True],
        "rank on a mesh": [everywhere, True],
        "rows that fit": [everywhere, False],
        "rows that do not": [everywhere, True],
        "a number": [everywhere, True],
        "parameters on a mesh": [everywhere, True],
        "kernel on a device": [[5], True],
        "spectrum on a device": [[5], True],
        "parameters on a device": [[5], True],
        "spectrum anywhere": [[0], True],
        "different devices": [[0], True],
    }


def test_a_device_without_memory_halves_the_block_and_says_so(monkeypatch: pytest.MonkeyPatch, rng):
    net = nm.MLP((2, 8, 1))
    params, x = net.init(key=jax.random.key(0)), rng.standard_normal((90, 2), dtype=np.float32)
    expected, sizes = np.asarray(nm.ntk(net, params, x)), []

    def short(plan, left, right, **options):
        sizes.append(left.samples.shape[0])
        if sizes[-1] > 12:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
            )
        return contraction.tile(plan, left, right, **options)

    monkeypatch.setattr(tiles, "tile", short)
    monkeypatch.setattr(tiles.Tiles, "largest", 40)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kernel = np.asarray(nm.ntk(net, params, x))
    assert [str(w.message) for w in told if w.category is BlockHalved] == [
        f"a device ran out of memory; going on with blocks of {n} samples. Pass a smaller "
        "`memory` to begin there."
        for n in (20, 10)
    ]
    np.testing.assert_allclose(
        kernel, expected, rtol=0, atol=8 * float(np.finfo(np.float32).eps) * expected.max()
    )

    def broken(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(tiles, "tile", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        nm.ntk(net, params, x)


def test_tiles_of_a_symmetric_kernel_leave_out_half(monkeypatch: pytest.MonkeyPatch, rng):
    net = nm.MLP((2, 4, 1))
    params, x = net.init(key=jax.random.key(0)), rng.standard_normal((160, 2), dtype=np.float32)
    whole, made = np.asarray(nm.ntk(net, params, x)), []

    def counted(plan, left, right, **options):
        made.append((left.samples.shape[0], right.samples.shape[0]))
        return contraction.tile(plan, left, right, **options)

    monkeypatch.setattr(tiles, "tile", counted)
    monkeypatch.setitem(tiles._SMALLEST, "cpu", 10)
    kernel = np.asarray(nm.ntk(net, params, x))
    assert sum(a * b for a, b in made) <= 0.54 * 160**2
    assert (kernel == kernel.T).all()
    np.testing.assert_allclose(
        kernel, whole, rtol=0, atol=8 * float(np.finfo(np.float32).eps) * whole.max()
    )
