"""Kernels at infinite width against neural-tangents, both in float64: time, and peak memory in
processes of their own.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import neuromanifold as nm
from benchmarks.harness import REPEATS, Routine, compare
from benchmarks.peak import in_child
from benchmarks.row import Row
from benchmarks.worker import Absent, Worker
from neuromanifold.models.layers import Conv, Dense, GlobalAvgPool

SPREAD = {"weight_std": 1.3, "bias_std": 0.4}
SCRIPT = "neural_tangents_infinite.py"


def problem(job: str, n: int) -> tuple[Any, np.ndarray]:
    """A five-layer MLP on vectors of 100 numbers, or four convolutions with global pooling on
    16×16 images of 3 channels.
    """
    if job == "mlp":
        layers, shape = [part for _ in range(4) for part in (Dense(1, **SPREAD), "relu")], (100,)
    else:
        layers, shape = (
            [part for _ in range(4) for part in (Conv(1, 3, **SPREAD), "relu")],
            (16, 16, 3),
        )
        layers.append(GlobalAvgPool())
    net = nm.Sequential(*layers, Dense(1, **SPREAD), input_shape=shape)
    return net, np.random.default_rng(0).standard_normal((n, *shape))


def rows(*, quick: bool) -> Iterator[Row]:
    """Both jobs, timed, then measured."""
    for job, n, target in (("mlp", 200 if quick else 2000, 2.0), ("cnn", 4 if quick else 32, 1.0)):
        yield _time(job, n, target, 2 if quick else REPEATS)
        yield _memory(job, n)


def _name(job: str, n: int) -> str:
    what = "five-layer MLP" if job == "mlp" else "four convolutions of 16×16 images, global pooling"
    return f"infinite NTK, {what}, N={n:,}"


def _time(job: str, n: int, target: float, repeats: int) -> Row:
    net, x = problem(job, n)
    ours = Routine(
        "ours", lambda: nm.infinite_ntk(net, x), lambda kernel: float(np.linalg.norm(kernel))
    )
    peer = Worker("neural-tangents", SCRIPT, job, label="neural-tangents, jitted, float64", n=n)
    return compare(_name(job, n), ours, peer, target=target, repeats=repeats, tolerance=1e-6)


def _memory(job: str, n: int) -> Row:
    ours = in_child("benchmarks.infinite_child", job=job, n=n)["peak"]
    try:
        with Worker("neural-tangents", SCRIPT, f"peak-{job}", label="", n=n) as peer:
            theirs, note = peer.repeat().value, ""
    except Absent as absent:
        theirs, note = None, str(absent)
    name = f"peak memory of the {_name(job, n)}"
    return Row(name, ours, "neural-tangents, jitted, float64", theirs, 1.0, note=note, unit="B")
