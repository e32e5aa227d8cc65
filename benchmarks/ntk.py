"""The kernel of all outputs of a ReLU MLP 784-1024-1024-10: ours, PyTorch's two ways, and
neural-tangents.
"""

import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import neuromanifold as nm
from benchmarks.harness import REPEATS, Routine, compare
from benchmarks.row import Row
from benchmarks.worker import Worker, save_network

WIDTHS = (784, 1024, 1024, 10)


def problem(n: int) -> tuple[nm.MLP, Any, np.ndarray]:
    """The network, its parameters and n samples, float32."""
    net = nm.MLP(WIDTHS, "relu")
    x = np.random.default_rng(0).standard_normal((n, WIDTHS[0]), dtype=np.float32)
    return net, net.init(key=jax.random.key(0), scheme=nm.init.he_bias), x


def rows(*, quick: bool) -> Iterator[Row]:
    """neural-tangents first, then PyTorch at the sizes that it can bear, ours always at the same
    size.
    """
    yield _row(128, "neural-tangents", "neural_tangents_ntk.py", "structured", target=2)
    n, repeats = (16, 1) if quick else (128, 3)
    yield _row(n, "torch", "torch_ntk.py", "contraction", target=500, repeats=repeats, chunk=32)
    n, repeats = (2, 1) if quick else (16, 3)
    yield _row(n, "torch", "torch_ntk.py", "products", target=500, repeats=repeats, chunk=8)


LABELS = {
    "structured": "neural-tangents, structured derivatives",
    "contraction": "torch, Jacobian contraction",
    "products": "torch, NTK–vector products",
}


def _norm(kernel: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(kernel, np.float64)))


def _row(
    n: int,
    environment: str,
    script: str,
    job: str,
    *,
    target: float,
    repeats: int = REPEATS,
    **options: Any,
) -> Row:
    net, params, x = problem(n)
    ours = Routine("ours", lambda: nm.ntk(net, params, x), _norm)
    with tempfile.TemporaryDirectory() as folder:
        arrays = save_network(folder, params, x=x)
        peer = Worker(environment, script, job, label=LABELS[job], arrays=arrays, **options)
        return compare(f"NTK 784-1024-1024-10, N={n}", ours, peer, target=target, repeats=repeats)
