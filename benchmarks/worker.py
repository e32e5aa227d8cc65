"""A peer in its own environment: a process that performs the job once more whenever it is asked."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.repetition import Repetition

ROOT = Path(__file__).resolve().parents[1]


class Absent(Exception):
    """The peer is not installed, or did not finish; the message says which."""


class Worker:
    """`with Worker("torch", "torch_ntk.py", "contraction", chunk=32) as worker: worker.repeat()`.

    `environment` is a folder of `.peers`; the script follows `peers/protocol.py`. Entering starts
    the process and waits until it is warm. One repetition that holds several `units` of work is
    reported per unit. An answer that takes longer than `patience` seconds ends the worker.
    """

    def __init__(
        self,
        environment: str,
        script: str,
        job: str,
        *,
        label: str,
        units: int = 1,
        patience: float = 900,
        **options: Any,
    ):
        self.label, self.units = label, units
        self._environment, self._patience = environment, patience
        self._home = ROOT / ".peers" / environment
        self._command = [
            str(self._home / "bin" / "python"),
            str(ROOT / "benchmarks" / "peers" / script),
            job,
            json.dumps(options),
        ]

    def __enter__(self) -> "Worker":
        if not (self._home / "stamp").exists():
            raise Absent(f"{self._environment}: absent (run `make peers`)")
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_own_environment(),
        )
        try:
            self._answer()
        except Absent:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def repeat(self) -> Repetition:
        assert self._process.stdin is not None
        with contextlib.suppress(
            BrokenPipeError
        ):  # a worker that died is reported by its missing answer
            print(file=self._process.stdin, flush=True)
        answer = self._answer()
        return Repetition(answer["seconds"] / self.units, answer["value"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(self._patience, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise Absent(f"{self._environment}: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        if self._process.wait() < 0:
            return (
                f"ended by signal {-self._process.returncode} (out of memory, or no answer within "
                f"{self._patience:g} s)"
            )
        self._errors.seek(0)
        return "failed with: " + (self._errors.read().strip().splitlines() or ["no message"])[-1]


def _own_environment() -> dict[str, str]:
    """Our environment variables without those that would steer the peer's python or its JAX."""
    return {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTHON", "JAX_", "XLA_", "VIRTUAL_ENV"))
    }


def save_network(folder: str | Path, params: Any, **data: Any) -> str:
    """An npz from which a peer builds the same network: `weight0`, `bias0`, …, and the data."""
    path = Path(folder) / "network.npz"
    layers = {
        f"{kind}{i}": np.asarray(array)
        for i, layer in enumerate(params)
        for kind, array in layer._asdict().items()
    }
    np.savez(path, **layers, **{name: np.asarray(array) for name, array in data.items()})
    return str(path)
