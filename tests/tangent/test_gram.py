"""The kernel on a disk: equal to the kernel in memory, whole after every kill, and never wrong
in silence.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import neuromanifold as nm
from cast import unchecked
from neuromanifold.numerics import krylov
from neuromanifold.runtime.devices import BlockHalved
from neuromanifold.tangent.kernel import gram, tiles

NET = nm.MLP((3, 8, 2))
PARAMS = NET.init(key=jax.random.key(0), scheme=nm.init.he_bias)
X = np.random.default_rng(0).standard_normal((23, 3), dtype=np.float32)
EPS = float(np.finfo(np.float32).eps)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of the store that is not a remnant of a kill."""
    files = (path for path in folder.rglob("*") if path.is_file() and "partial" not in path.name)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("tile", [1, 7, 23, None])
def test_it_is_the_kernel(trace: bool, tile: int | None, tmp_path: Path, rng):
    kernel = np.asarray(nm.ntk(NET, PARAMS, X, trace=trace))
    made = nm.gram(NET, PARAMS, X, store=tmp_path, tile=tile, trace=trace)
    assert made.shape == kernel.shape and made.dense().dtype == np.float32
    np.testing.assert_allclose(made.dense(), kernel, atol=8 * EPS * np.abs(kernel).max(), rtol=0)
    v = rng.standard_normal((len(kernel), 2))
    np.testing.assert_allclose(
        made @ v, made.dense().astype(np.float64) @ v, rtol=1e-10, atol=1e-10
    )
    side = -(-23 // (tile or 23))
    stored = list((tmp_path / "kernel.zarr" / "c").rglob("*"))
    assert sum(path.is_file() for path in stored) == side * (side + 1) // 2


def test_what_is_asked_of_the_store_is_what_the_matrix_says(tmp_path: Path, rng):
    made = nm.gram(NET, PARAMS, X, store=tmp_path, tile=6, trace=True)
    kernel = made.dense().astype(np.float64)
    values = np.linalg.eigvalsh(kernel)[::-1]
    found = made.spectrum(5, vectors=True)
    np.testing.assert_allclose(found.eigenvalues, values[:5], rtol=1e-9)
    assert (found.residuals <= 1e-10 * values[0]).all() and found.trace == pytest.approx(
        np.trace(kernel)
    )
    np.testing.assert_allclose(made.spectrum(23).eigenvalues, values, atol=1e-12 * values[0])
    p = np.maximum(values, 0) / values[values > 0].sum()
    exact = float(np.exp(-(p[p > 0] * np.log(p[p > 0])).sum()))
    low, high = made.effective_rank(8)
    assert low <= exact <= high and high / low < 1.5
    y, other, ridge = rng.standard_normal((23, 2)), X[:4] + 0.1, 0.05
    cross = np.asarray(nm.ntk(NET, PARAMS, other, X, trace=True), np.float64)
    inverse = np.linalg.inv(kernel + ridge * np.eye(23))
    solved = made.solve(y, ridge=ridge, rtol=1e-11)
    assert (solved.residuals < 1e-10).all()
    np.testing.assert_allclose(solved.x, inverse @ y, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        made.regression(y, other, ridge=ridge, rtol=1e-11),
        cross @ inverse @ y,
        rtol=1e-5,
        atol=1e-6,
    )
    mean, covariance = made.posterior(y, other, noise=ridge, rtol=1e-11)
    prior = np.asarray(nm.ntk(NET, PARAMS, other, trace=True), np.float64)
    np.testing.assert_allclose(mean, cross @ inverse @ y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        covariance, prior - cross @ inverse @ cross.T, atol=1e-5 * prior.max()
    )


@pytest.mark.parametrize("trace", [False, True])
def test_bounds_on_the_functional_dimension(trace: bool, tmp_path: Path):
    """Scalings of hidden neurons leave directions that no kernel sees; half of the digits
    suffice here, so that the bound is the rank.
    """
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), PARAMS)
    made = nm.gram(NET, params, X.astype(np.float64), store=tmp_path, tile=9, trace=trace)
    rank = nm.functional_dimension(NET, params, X.astype(np.float64))
    found = made.functional_dimension_bounds()
    assert found.upper == min(2 * 23, NET.n_params) > int(rank)
    J = np.asarray(nm.jacobian(NET, params, X.astype(np.float64))).reshape(23, -1)  # (23, 2·D)
    assert found.lower == (-(-np.linalg.matrix_rank(J) // 2) if trace else int(rank))
    assert made.functional_dimension_bounds(3).lower == (2 if trace else 3)


def test_bounds_need_float64(tmp_path: Path):
    made = nm.gram(NET, PARAMS, X, store=tmp_path)
    with pytest.raises(ValueError, match="`store` holds a float32 kernel, too coarse for a rank"):
        made.functional_dimension_bounds()


def test_tiles_that_do_not_fit_are_computed_in_pieces(tmp_path: Path, monkeypatch):
    real, sizes = tiles.tile, []

    def small(made, left, right, **options):
        rows = max(side.samples.shape[0] for side in (left, right))
        if rows > 4:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
            )
        sizes.append(rows)
        return real(made, left, right, **options)

    monkeypatch.setattr(tiles, "tile", small)
    with pytest.warns(BlockHalved, match="going on with blocks of 4 samples"):
        made = nm.gram(NET, PARAMS, X, store=tmp_path / "pieces", tile=9)
    monkeypatch.undo()
    whole = nm.gram(NET, PARAMS, X, store=tmp_path / "whole", tile=9).dense()
    np.testing.assert_allclose(made.dense(), whole, rtol=0, atol=8 * EPS * np.abs(whole).max())
    assert max(sizes) <= 4


def test_regression_of_all_outputs(tmp_path: Path, rng):
    made = nm.gram(NET, PARAMS, X, store=tmp_path, tile=10)
    y, other = rng.standard_normal((23, 2)), X[:3]
    K, cross = (
        made.dense().astype(np.float64),
        np.asarray(nm.ntk(NET, PARAMS, other, X), np.float64),
    )
    expected = (cross @ np.linalg.solve(K + 0.1 * np.eye(46), y.ravel())).reshape(3, 2)
    np.testing.assert_allclose(
        made.regression(y, other, ridge=0.1, rtol=1e-11), expected, rtol=1e-5, atol=1e-6
    )


def test_blocked_lanczos_finds_equal_and_negative_eigenvalues(rng):
    values = np.concatenate([[-9.0, 7.0, 7.0, 7.0, -5.0], np.linspace(0, 1, 295)])
    U = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    A = (U * values) @ U.T
    found = krylov.largest_eigenpairs(lambda v: A @ v, 300, 5)
    np.testing.assert_allclose(found.values, values[:5], rtol=1e-9)
    np.testing.assert_allclose(
        np.abs(found.vectors @ A - found.values[:, None] * found.vectors), 0, atol=1e-8
    )
    with pytest.raises(ValueError, match=r"`k` is 301 but the matrix has 300 rows"):
        krylov.largest_eigenpairs(lambda v: A @ v, 300, 301)


def test_a_flipped_bit_is_noticed_and_repaired(tmp_path: Path, rng, draws, tally):
    nm.gram(NET, PARAMS, X, store=tmp_path, tile=6)
    whole, count, repaired = content(tmp_path), draws(12), 0
    for _ in range(count):
        name = str(rng.choice(sorted(whole)))
        damaged = bytearray(whole[name])
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        (tmp_path / name).write_bytes(damaged)
        if name in ("gram.json", "kernel.zarr/zarr.json"):
            with pytest.raises(ValueError, match=r"damaged|no checksum"):
                nm.gram(NET, PARAMS, X, store=tmp_path, tile=6)
            (tmp_path / name).write_bytes(whole[name])
        else:
            with pytest.warns(
                UserWarning, match=r"1 tiles of .* were damaged and are computed anew"
            ):
                nm.gram(NET, PARAMS, X, store=tmp_path, tile=6)
            repaired += 1
        assert content(tmp_path) == whole
    tally(repaired, of=count, what="damaged tiles computed anew, the others refused")


def test_a_damaged_or_missing_tile_is_not_read(tmp_path: Path):
    made = nm.gram(NET, PARAMS, X, store=tmp_path, tile=6)
    file = tmp_path / "kernel.zarr" / "c" / "1" / "2"
    data = bytearray(file.read_bytes())
    data[9] ^= 4
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"tile \(1, 2\) of .* is damaged .*; make the call again"):
        made.dense()
    file.unlink()
    with pytest.raises(ValueError, match=r"tile \(1, 2\) of .* is missing"):
        made @ np.ones(46)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"params": jax.tree.map(lambda a: 2 * a, PARAMS)}, r"holds something else \(params"),
        ({"x": X + 1}, r"holds something else \(x "),
        ({"f": nm.MLP((3, 8, 2), "tanh")}, r"holds something else \(model"),
        ({"tile": 5}, r"holds something else \(tile 12 there and 10 here\)"),
        ({"trace": True}, r"holds something else \(kind 'all' there and 'trace' here"),
        ({"tile": 0}, r"`tile` is 0; pass a number of samples"),
        ({"precision": "high"}, r"`precision` is 'high' \('high' is one pass of TF32 on a GPU"),
        ({"tile": 20, "memory": 10_000}, r"`tile` is 20 but `memory` holds \d+ samples a side"),
    ],
)
def test_another_kernel_is_refused(change: dict, message: str, tmp_path: Path):
    given = {"f": NET, "params": PARAMS, "x": X, "tile": 6}
    nm.gram(**given, store=tmp_path)
    with unchecked(), pytest.raises(ValueError, match=message):
        nm.gram(**(given | change), store=tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(
        ValueError, match=r"holds other files \(thesis.tex, …\); name an empty or a new folder"
    ):
        nm.gram(NET, PARAMS, X, store=tmp_path)
    with pytest.raises(ValueError, match=r"`ridge` is 0.0; pass a positive number"):
        nm.gram(NET, PARAMS, X, store=tmp_path / "new").solve(np.ones(46), ridge=0.0)


CHILD = """
import sys, jax, numpy as np, neuromanifold as nm
net = nm.MLP((3, 8, 2))
x = np.random.default_rng(0).standard_normal((150, 3), dtype=np.float32)
params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
workers = int(sys.argv[2]) or None
if __name__ == "__main__":
    nm.gram(net, params, x, store=sys.argv[1], tile=5, workers=workers)
"""


def started(script: Path, folder: Path, workers: int = 0, **options: Any) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(Path(nm.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), str(workers)], env=environment, **options
    )


def test_other_flags_are_refused_and_other_digits_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
):
    """The second stands for another number of threads, or another processor."""

    def made() -> gram.Gram:
        (tmp_path / "kernel.zarr" / "c" / "1" / "1").unlink(missing_ok=True)
        return nm.gram(NET, PARAMS, X, store=tmp_path, tile=12)

    whole = made().dense()
    assert np.array_equal(made().dense(), whole) and not recwarn
    real = gram._tile
    monkeypatch.setattr(gram, "_tile", lambda *given: real(*given) * np.float32(1 + 3e-7))
    with pytest.warns(gram.OtherDigits, match=r"tile \(0, 0\), computed again here, differs by"):
        assert np.array_equal(made().dense(), whole)
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} --xla_cpu_enable_fast_math=true")
    with pytest.raises(ValueError, match=r"compiler flags .* there and .*fast_math=true.*' here"):
        made()


WIDE = """
import os, sys, jax, numpy as np, neuromanifold as nm
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[2])])
net = nm.MLP((784, 512, 2))
x = np.random.default_rng(0).standard_normal((300, 784), dtype=np.float32)
nm.gram(net, net.init(key=jax.random.key(0)), x, store=sys.argv[1], tile=100, trace=True)
"""


def test_another_number_of_cores_gives_the_same_bytes_or_says_that_not(tmp_path: Path):
    (tmp_path / "child.py").write_text(WIDE)
    kept = tmp_path / "whole"
    assert started(tmp_path / "child.py", kept, 2).wait() == 0
    last, before = kept / "kernel.zarr" / "c" / "2" / "2", content(kept)
    last.unlink()
    child = started(tmp_path / "child.py", kept, 1, stderr=subprocess.PIPE, text=True)
    said = child.communicate()[1]
    assert child.returncode == 0 and ("was begun elsewhere" in said or content(kept) == before)


def test_a_cluster_computes_the_same(tmp_path: Path):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    assert started(script, tmp_path / "alone").wait() == 0
    assert started(script, tmp_path / "cluster", workers=2).wait() == 0
    assert content(tmp_path / "alone") == content(tmp_path / "cluster")


KILLED_WORKER = """
import os, signal, sys, threading, time, jax, numpy as np, neuromanifold as nm
from pathlib import Path
from dask.distributed import Client, LocalCluster

def kill(worker):
    while sum(1 for path in Path(sys.argv[1], "kernel.zarr", "c").rglob("*") if path.is_file()) < 40:
        time.sleep(0.002)
    os.kill(worker, signal.SIGKILL)
    print("killed", flush=True)

if __name__ == "__main__":
    net = nm.MLP((3, 8, 2))
    x = np.random.default_rng(0).standard_normal((150, 3), dtype=np.float32)
    params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": "", "silence_logs": 50}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        victim = next(iter(client.run(os.getpid).values()))
        threading.Thread(target=kill, args=(victim,), daemon=True).start()
        nm.gram(net, params, x, store=sys.argv[1], tile=5, scheduler=cluster.scheduler_address)
"""


def test_a_worker_that_is_killed_is_made_up_for(tmp_path: Path):
    for name, text in (("child.py", CHILD), ("killing.py", KILLED_WORKER)):
        (tmp_path / name).write_text(text)
    assert started(tmp_path / "child.py", tmp_path / "alone").wait() == 0
    child = started(tmp_path / "killing.py", tmp_path / "cluster", stdout=subprocess.PIPE)
    assert b"killed" in child.communicate()[0] and child.returncode == 0
    assert content(tmp_path / "cluster") == content(tmp_path / "alone")
