"""neural-tangents' infinite kernels the way they are fastest: one jitted call, in float64 as
ours are.
"""

import ctypes
import gc
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from neural_tangents import stax  # noqa: E402
from protocol import serve  # noqa: E402

SPREAD = {"W_std": 1.3, "b_std": 0.4}


def problem(job: str, n: int) -> tuple[Callable[..., jax.Array], jax.Array]:
    """The kernel function and the samples of `benchmarks.infinite`."""
    if job == "mlp":
        layers, shape = (
            [part for _ in range(4) for part in (stax.Dense(1, **SPREAD), stax.Relu())],
            (100,),
        )
    else:
        convolutions = [
            (stax.Conv(1, (3, 3), padding="SAME", **SPREAD), stax.Relu()) for _ in range(4)
        ]
        layers, shape = (
            [*(part for pair in convolutions for part in pair), stax.GlobalAvgPool()],
            (16, 16, 3),
        )
    kernel = stax.serial(*layers, stax.Dense(1, **SPREAD))[2]
    x = jnp.asarray(np.random.default_rng(0).standard_normal((n, *shape)))
    return jax.jit(lambda x: kernel(x, None, "ntk")), x


def timed(job: str, n: int) -> Callable[[], Any]:
    """One warm repetition."""
    kernel, x = problem(job, n)
    kernel(x).block_until_ready()
    return lambda: float(np.linalg.norm(np.asarray(kernel(x))))


def peak(job: str, n: int) -> Callable[[], Any]:
    """The bytes by which one kernel raises the process above what a first one has left."""
    kernel, x = problem(job, n)
    kernel(x).block_until_ready()

    def repetition() -> int:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(
            0
        )  # as `benchmarks.peak` does: memory kept for later would be reused unseen
        Path("/proc/self/clear_refs").write_text("5")
        before = _high_water()
        kernel(x).block_until_ready()
        return _high_water() - before

    return repetition


def _high_water() -> int:
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024


if __name__ == "__main__":
    jobs = {job: partial(timed, job) for job in ("mlp", "cnn")} | {
        f"peak-{job}": partial(peak, job) for job in ("mlp", "cnn")
    }
    serve(jobs, summary=float)
