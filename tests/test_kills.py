"""A training, a study and a verification are killed (−9) at random moments and begun again: nothing
is lost, nothing differs.

`nm.gram` has its own in tests/tangent/test_gram.py. Two kills of each here, 26 of each with
`--draws 13`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuromanifold as nm

TRAINING = """
import hashlib, sys, jax, numpy as np, neuromanifold as nm
from neuromanifold.dynamics import keeping
keeping.LEAST_PAUSE = 0.02
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
    if job == "verification":
        file = str(folder / "evidence.json")
        return [
            sys.executable,
            "-m",
            "neuromanifold",
            "verify",
            "riemann",
            *STATEMENTS,
            "--json",
            file,
            "--resume",
        ]
    script = folder.parent / f"{job}.py"
    script.write_text({"training": TRAINING, "study": STUDY}[job])
    return [sys.executable, str(script), str(folder)]


def begun(job: str, folder: Path) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(Path(nm.__file__).parents[1])}
    return subprocess.Popen(
        command(job, folder), env=environment, stdout=subprocess.PIPE, text=True
    )


def finished(job: str, folder: Path) -> str:
    """What the job says in the end; of a verification the evidence without the seconds it took."""
    child = begun(job, folder)
    said, _ = child.communicate(timeout=500)
    assert child.returncode == 0
    if job != "verification":
        return said
    listed = json.loads((folder / "evidence.json").read_text())
    return json.dumps(timeless(listed))


def timeless(found: Any) -> Any:
    """Evidence without the seconds it took."""
    if isinstance(found, dict):
        return {name: timeless(value) for name, value in found.items() if name != "seconds"}
    return [timeless(item) for item in found] if isinstance(found, list) else found


def killed(job: str, folder: Path, pause: float) -> bool:
    """Kill the job a moment after its files first change; whether it was still running."""
    child, before = begun(job, folder), state(folder)
    while child.poll() is None and state(folder) == before:
        time.sleep(0.001)
    time.sleep(pause)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return child.returncode == -signal.SIGKILL


def state(folder: Path) -> set[tuple[str, int]]:
    found = set()
    for path in folder.rglob("*"):
        try:
            found.add((path.as_posix(), path.stat().st_mtime_ns))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("job", ["training", "study", "verification"])
def test_kills_change_nothing(job: str, tmp_path: Path, rng: np.random.Generator, draws, tally):
    whole, count = finished(job, tmp_path / "whole"), draws(2)
    met = sum(killed(job, tmp_path / "killed", pause) for pause in rng.uniform(0, 0.3, count))
    assert finished(job, tmp_path / "killed") == whole
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
