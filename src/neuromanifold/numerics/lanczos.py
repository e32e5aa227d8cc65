"""Extreme eigenvalues of a symmetric operator that is only known by its products."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, eigsh


def largest_eigenvalues(
    matvec: Callable[[np.ndarray], np.ndarray], size: int, k: int, *, seed: int = 0, rtol: float = 0.0
) -> Float[np.ndarray, " k"]:
    """The `k` eigenvalues of largest magnitude, largest first, by implicitly restarted Lanczos (ARPACK) on the host.

    `rtol=0` asks for machine precision. The start vector is drawn from `seed`, so that results repeat.

    >>> import numpy as np
    >>> largest_eigenvalues(lambda v: np.arange(1.0, 101.0) * v, 100, 2).round(12).tolist()
    [100.0, 99.0]
    """
    if not 1 <= k < size:
        raise ValueError(f"`k` is {k} but the operator has size {size}; pass 1 ≤ k ≤ {size - 1}.")
    operator = LinearOperator((size, size), matvec=matvec, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    start = np.random.default_rng(seed).standard_normal(size)
    values = eigsh(operator, k=k, which="LM", v0=start, tol=rtol, return_eigenvectors=False)  # pyright: ignore[reportArgumentType]
    return values[np.argsort(-np.abs(values))]
