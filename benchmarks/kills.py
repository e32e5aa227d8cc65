"""`nm.gram` killed (−9) again and again, against one that nobody disturbs: `python -m
benchmarks.kills FOLDER`.

The trace kernel of a 784-512-10 network on random images. A kill comes when a drawn share of the
tiles is there; at the end every file of both stores is compared byte for byte.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

import neuromanifold as nm


def child(folder: Path, n: int, tile: int) -> None:
    """The kernel, from whatever the folder holds."""
    net = nm.MLP((784, 512, 10))
    x = np.random.default_rng(0).standard_normal((n, 784), dtype=np.float32)
    nm.gram(net, net.init(key=jax.random.key(0)), x, store=folder, tile=tile, trace=True)


def _begun(folder: Path, n: int, tile: int) -> subprocess.Popen:
    options = ["--n", str(n), "--tile", str(tile), "--child"]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kills", str(folder), *options], env=os.environ
    )


def _files(folder: Path) -> dict[str, Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and "partial" not in path.name)
    return {path.relative_to(folder).as_posix(): path for path in found}


def _tiles(folder: Path) -> int:
    return sum("/c/" in name for name in _files(folder))


def _killed(folder: Path, n: int, tile: int, until: int) -> bool:
    """Whether a process was running when it was killed."""
    process = _begun(folder, n, tile)
    while process.poll() is None and _tiles(folder) < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def _finished(folder: Path, n: int, tile: int) -> float:
    start = time.perf_counter()
    if _begun(folder, n, tile).wait():
        raise RuntimeError("the undisturbed process failed")
    return time.perf_counter() - start


def measure(folder: Path, n: int, tile: int, kills: int) -> None:
    """Print how many kills met a running process and how many files differ."""
    side = -(-n // tile)
    seconds = _finished(folder / "whole", n, tile)
    shares = np.sort(np.random.default_rng(1).uniform(0, 0.95, kills))
    met = sum(
        _killed(folder / "killed", n, tile, int(share * side * (side + 1) / 2)) for share in shares
    )
    last = _finished(folder / "killed", n, tile)
    whole, again = _files(folder / "whole"), _files(folder / "killed")
    differing = set(whole) ^ set(again) | {
        f for f in whole if f in again and whole[f].read_bytes() != again[f].read_bytes()
    }
    print(
        f"N = {n:,}, {side * (side + 1) // 2} tiles: {seconds:.0f} s undisturbed; {met} of "
        f"{kills} kills met a running process, "
        f"the last call took {last:.0f} s; {len(differing)} of {len(whole)} files differ (load "
        f"{os.getloadavg()[0]:.1f})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n", type=int, default=30_000)
    parser.add_argument("--tile", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        child(given.folder, given.n, given.tile)
    else:
        measure(given.folder, given.n, given.tile, given.kills)
