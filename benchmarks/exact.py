"""The exact functional dimension of the complexity paper's networks."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import neuromanifold as nm
from benchmarks.harness import Routine, compare, within
from benchmarks.row import Row

HIDDEN = (10, 10, 10, 10)


def rows(*, quick: bool) -> Iterator[Row]:
    """A bound for the univariate network, which no other software can answer, and a float64 SVD
    for the energy-sized one.
    """
    x = np.linspace(0, 1, 100, dtype=np.float32)[:, None]
    yield within("exact functional dimension, 100×361", _exact(x)[0], 0.012)

    x = np.random.default_rng(0).standard_normal((768, 8)).astype(np.float32)
    ours, net, params = _exact(x)
    J = nm.jacobian(net, jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params), x)
    svd = Routine(
        "numpy.linalg.svd, float64", lambda: np.linalg.svd(J, full_matrices=False), _numerical_rank
    )
    yield compare("exact functional dimension, 768×431", ours, svd, target=1 / 3)


def _exact(x: np.ndarray) -> tuple[Routine, nm.MLP, Any]:
    net = nm.MLP((x.shape[1], *HIDDEN, 1), "relu")
    params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
    return (
        Routine("ours", lambda: nm.functional_dimension(net, params, x, exact=True), int),
        net,
        params,
    )


def _numerical_rank(decomposition: Any) -> float:
    values = decomposition.S
    return float(np.sum(values > len(decomposition.U) * np.finfo(values.dtype).eps * values[0]))
