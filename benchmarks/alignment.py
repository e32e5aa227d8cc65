"""The alignment A = gᵀΘg/‖g‖² by one vector–Jacobian product, against the ways that form the
kernel Θ.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import neuromanifold as nm
from benchmarks.harness import REPEATS, Routine, compare
from benchmarks.ntk import problem
from benchmarks.row import Row


def rows(*, quick: bool) -> Iterator[Row]:
    """Our structured kernel where it is largest, Jacobian contraction where it still fits."""
    yield _row(128 if quick else 1_000, "our structured kernel", nm.ntk, target=10, repeats=REPEATS)
    yield _row(8 if quick else 64, "Jacobian contraction", contracted_kernel, target=100, repeats=3)


def contracted_kernel(net: nm.MLP, params: Any, x: np.ndarray, *, chunk: int = 16) -> np.ndarray:
    """JJᵀ from the Jacobian itself, taken `chunk` samples at a time."""
    parts = [
        nm.jacobian(net, params, x[start : start + chunk]) for start in range(0, len(x), chunk)
    ]
    return np.block([[np.asarray(_contract(left, right)) for right in parts] for left in parts])


@jax.jit
def _contract(left: Any, right: Any) -> Any:
    return left @ right.T


def _row(
    n: int, label: str, kernel: Callable[..., np.ndarray], *, target: float, repeats: int
) -> Row:
    net, params, x = problem(n)
    y = np.random.default_rng(1).standard_normal((n, net.widths[-1]), dtype=np.float32)

    def through_the_kernel() -> float:
        g = (np.asarray(net(params, x)) - y).ravel()
        return float(g @ (kernel(net, params, x) @ g) / (g @ g))

    ours = Routine(
        "ours", lambda: nm.alignment(net, params, x, y, loss=nm.losses.half_squared_error), float
    )
    return compare(
        f"alignment 784-1024-1024-10, N={n:,}",
        ours,
        Routine(label, through_the_kernel, float),
        target=target,
        repeats=repeats,
    )
