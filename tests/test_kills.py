"""A training, a study, a verification, a kernel and features on the disk and an inspection are
killed (−9) at random moments, on one core or on all, and begun again: nothing is lost, nothing
differs. Under other flags of the compiler none goes on in silence.

One kill of each here, 26 of each with `--draws 13`.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import neuromanifold as nm

TRAINING = """
import hashlib, sys, jax, numpy as np, neuromanifold as nm
from neuromanifold.dynamics import training
training.LEAST_PAUSE = 0.02
net, d = nm.MLP((1, 8, 8, 1)), nm.data.load("f1")
params = net.init(key=jax.random.key(0), runs=6)
done = nm.train(net, params, d.x, d.y, key=jax.random.key(1), epochs=3000, batch_size=8, every=500,
                probes=[nm.dynamics.r_squared], checkpoint=sys.argv[1] + "/state")
values = [*jax.tree.leaves(done.params), done.history.r_squared.values]
print(hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in values)).hexdigest())
"""
STUDY = """
import sys, time, jax, numpy as np, xarray as xr, neuromanifold as nm
from pathlib import Path
from neuromanifold_papers.blocks import Block, run_blocks
from neuromanifold_papers.output import Claim, save_data

def block(number):
    def work(out, scale, progress):
        x = np.random.default_rng(number).standard_normal((20, 3))
        net = nm.MLP((3, 4, 1))
        kernel = nm.ntk(net, net.init(key=jax.random.key(number)), x)
        save_data(xr.Dataset({"kernel": (("i", "j"), kernel)}), out, f"k{number}")
        time.sleep(0.1)
        return [Claim(str(number), "a norm", {number: float(np.linalg.norm(kernel))}, True)]
    return Block(str(number), work)

out = Path(sys.argv[1])
print(run_blocks("riemann", [block(number) for number in range(12)], out, "small")["claims"])
"""
STORES = """
import hashlib, sys, jax, numpy as np, neuromanifold as nm
job, net = sys.argv[0], nm.MLP((3, 8, 2))
params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
x, place = np.random.default_rng(0).standard_normal((150, 3), dtype=np.float32), sys.argv[1] + "/store"
if "kernel" in job:
    found = nm.gram(net, params, x, store=place, tile=5).dense()
else:
    found = nm.features(net, params, x, key=jax.random.key(1), k=16, store=place, tile=2)[:]
print(hashlib.sha256(np.asarray(found).tobytes()).hexdigest())
"""
SCRIPTS = {"training": TRAINING, "study": STUDY, "kernel": STORES, "features": STORES}
JOBS = [*SCRIPTS, "verification", "inspection"]
OTHER_FLAGS = ("--xla_backend_optimization_level=0", "--xla_cpu_enable_fast_math=true")
STATEMENTS = [
    "Ex 15 (equations)",
    "Ex 15 (kernel)",
    "Ex 16 (kernels)",
    "Ex 19 (formula)",
    "Ex 20 (matrices)",
    "Obs 11 (a, t)",
]


def command(job: str, folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    if job in SCRIPTS:
        script = folder.parent / f"{job}.py"
        script.write_text(SCRIPTS[job])
        return [sys.executable, str(script), str(folder)]
    program = [sys.executable, "-m", "neuromanifold"]
    if job == "verification":
        file = ["--json", str(folder / "evidence.json"), "--resume"]
        return [*program, "verify", "riemann", *STATEMENTS, *file]
    model, data = folder.parent / "net.safetensors", folder.parent / "x.npy"
    if not data.exists():
        net = nm.MLP((1, 2, 1))
        nm.save(model, net, net.init(key=jax.random.key(0)))
        np.save(data, np.linspace(-1, 1, 5)[:, None])
    out = ["--out", str(folder), "--json", str(folder / "numbers.json"), "--format", "md"]
    return [*program, "inspect", str(model), str(data), *out]


def begun(job: str, folder: Path, cores: int = 0, flags: str = "") -> subprocess.Popen:
    """The job in a process of its own, on so many cores (0: all), with other flags if any."""
    environment = os.environ | {"PYTHONPATH": str(Path(nm.__file__).parents[1])}
    environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    mine = sorted(os.sched_getaffinity(0))[: cores or None]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command(job, folder), env=environment, **pipes)
    os.sched_setaffinity(child.pid, mine)  # long before it counts its cores
    return child


def finished(job: str, folder: Path) -> str:
    """What the job says in the end; of a verification the evidence under these flags, of an
    inspection the numbers, both without the seconds they took.
    """
    child = begun(job, folder)
    said, wrong = child.communicate(timeout=500)
    assert child.returncode == 0, wrong
    if job in SCRIPTS:
        return said
    name = {"verification": "evidence.json", "inspection": "numbers.json"}[job]
    listed = json.loads((folder / name).read_text())
    if job == "verification":
        listed = [item for item in listed if not any(f in item["flags"] for f in OTHER_FLAGS)]
    return json.dumps(timeless(listed))


def timeless(found: Any) -> Any:
    """Evidence without the seconds it took and the random prime that it was computed by."""
    if isinstance(found, dict):
        kept = {name: value for name, value in found.items() if name not in ("seconds", "prime")}
        return {name: timeless(value) for name, value in kept.items()}
    return [timeless(item) for item in found] if isinstance(found, list) else found


def killed(job: str, folder: Path, pause: float, cores: int) -> bool:
    """Kill the job a moment after its files changed twice: the first change may come before what
    says how they were computed. Whether it was still running; a kill that comes too late is tried
    again on the files as they were, sooner and sooner. An inspection writes all its files in the
    end: on a busy machine the last try kills it while it computes.
    """
    before = folder.with_name("before")
    tries = [(2, pause), (2, pause / 16), (1, 0.0), *[(0, 1 + pause)] * (job == "inspection")]
    for changes, wait in tries:
        shutil.rmtree(before, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        shutil.copytree(folder, before)
        if met_running(job, folder, changes, wait, cores):
            return True
        shutil.rmtree(folder)
        before.rename(folder)
    return False


def met_running(job: str, folder: Path, changes: int, pause: float, cores: int) -> bool:
    child, seen = begun(job, folder, cores), [state(folder)]
    while child.poll() is None and len(seen) <= changes:
        time.sleep(0.001)
        if (now := state(folder)) != seen[-1]:
            seen.append(now)
    time.sleep(pause)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return child.returncode == -signal.SIGKILL


def told(job: str, folder: Path, cores: int, flags: str) -> bool:
    """Whether the job under other flags refuses to go on, and changes no file; or where it does
    not mix numbers, goes on.
    """
    before, child = state(folder), begun(job, folder, cores, flags)
    _, wrong = child.communicate(timeout=500)
    if job in ("verification", "inspection"):
        return child.returncode == 0
    said = "compiler flags" in wrong and flags in wrong
    return child.returncode != 0 and said and state(folder) == before


def state(folder: Path) -> set[tuple[str, int]]:
    """The files, and when they changed; what goes meanwhile is not among them."""
    found = set()
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                found.add((path.as_posix(), path.stat().st_mtime_ns))
    return found


@pytest.mark.parametrize("job", JOBS)
def test_kills_change_nothing(job: str, tmp_path: Path, rng: np.random.Generator, draws, tally):
    whole, place, count = finished(job, tmp_path / "whole"), tmp_path / "killed", draws(2)
    met = 0
    for number, pause in enumerate(rng.uniform(0, 0.3, count)):
        met += killed(job, place, pause, int(rng.integers(2)))
        if number % 4 == 0:
            assert told(job, place, int(rng.integers(2)), str(rng.choice(OTHER_FLAGS)))
    assert finished(job, place) == whole
    tally(met, of=count, what="kills that met a running process")


def test_one_statement_keeps_the_evidence_of_the_others(tmp_path: Path):
    whole = finished("verification", tmp_path / "all")
    file = tmp_path / "all" / "evidence.json"
    again = [
        *command("verification", tmp_path / "all")[:5],
        STATEMENTS[2],
        "--json",
        str(file),
        "--resume",
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(nm.__file__).parents[1])}
    assert subprocess.run(again, env=environment, capture_output=True).returncode == 0
    kept = timeless(json.loads(file.read_text()))
    assert sorted(map(str, kept)) == sorted(map(str, json.loads(whole)))
    file.write_text(file.read_text()[:-40])
    refused = subprocess.run(again, env=environment, capture_output=True, text=True)
    assert (
        refused.returncode == 2 and "does not hold the evidence of this version" in refused.stderr
    )
    assert "Traceback" not in refused.stderr
