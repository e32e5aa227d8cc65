"""Peak memory of one job in a process of its own."""

import contextlib
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.worker import ROOT


def rise(job: Callable[[], Any]) -> int:
    """Bytes by which this process's resident memory rises, at its highest, above where it stands
    now while `job` runs.
    """
    gc.collect()
    _release_freed_memory()
    before = _reset_high_water()
    job()
    return _high_water() - before


def in_child(module: str, **options: Any) -> dict[str, Any]:
    """The JSON that `python -m module '{options}'` prints, run from the source tree."""
    paths = (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    child = subprocess.run(
        [sys.executable, "-m", module, json.dumps(options)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(child.stdout.splitlines()[-1])


def _release_freed_memory() -> None:
    """Memory that the allocator keeps for later would be reused unseen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def _reset_high_water() -> int:
    """Let the high-water mark start from the present; where the system cannot, it stays that of
    the whole life.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _high_water()


def _high_water() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
