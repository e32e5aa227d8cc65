"""Gradient descent on C(v) = ‖vvᵀ − wwᵀ‖² and the two numbers that describe it.
[bottleneck, Sec. 5]
"""

from typing import Any

import numpy as np
from jaxtyping import Float


def summary_statistics(v: Any, w: Any) -> Float[np.ndarray, "n 2"]:
    """u(v) = ((wᵀv)², ‖(1 − wwᵀ)v‖²) for a unit vector w and vectors v in rows.
    [bottleneck, Sec. 5]

    >>> from neuromanifold_papers.bottleneck.summary_statistics import summary_statistics
    >>> summary_statistics(np.array([[3.0, 4.0]]), np.array([1.0, 0.0])).tolist()
    [[9.0, 16.0]]
    """
    v, w = np.atleast_2d(np.asarray(v, np.float64)), np.asarray(w, np.float64)
    if abs(float(w @ w) - 1) > 1e-9:
        raise ValueError(f"`w` has norm {np.linalg.norm(w):.6g}; pass a unit vector.")
    along = v @ w
    return np.stack([along**2, np.sum((v - along[:, None] * w) ** 2, axis=1)], axis=1)


def summary_rates(u: Any) -> Float[np.ndarray, "*n 2"]:
    """du/dt under gradient flow: (−8(‖v‖² − 1)u₁, −8‖v‖²u₂) with ‖v‖² = u₁ + u₂.
    [bottleneck, Sec. 5]

    >>> from neuromanifold_papers.bottleneck.summary_statistics import summary_rates
    >>> summary_rates(np.array([[0.5, 0.25]])).tolist()
    [[1.0, -1.5]]
    """
    u = np.asarray(u, np.float64)
    norm = u.sum(axis=-1)
    return np.stack([-8 * (norm - 1) * u[..., 0], -8 * norm * u[..., 1]], axis=-1)


def summary_step(u: Any, rate: float) -> Float[np.ndarray, "*n 2"]:
    """u after one step of gradient descent, exactly: (u₁(1 − 4η(‖v‖² − 1))², u₂(1 − 4η‖v‖²)²)."""
    u = np.asarray(u, np.float64)
    norm = u.sum(axis=-1)
    return np.stack(
        [u[..., 0] * (1 - 4 * rate * (norm - 1)) ** 2, u[..., 1] * (1 - 4 * rate * norm) ** 2],
        axis=-1,
    )


def summary_cost(u: Any) -> Any:
    """C = ‖v‖⁴ − 2(wᵀv)² + 1, from the statistics alone.

    >>> from neuromanifold_papers.bottleneck.summary_statistics import summary_cost
    >>> float(summary_cost(np.array([1.0, 0.0])))                     # v = w
    0.0
    """
    u = np.asarray(u, np.float64)
    return u.sum(axis=-1) ** 2 - 2 * u[..., 0] + 1


def descent(
    v: Any, w: Any, *, rate: float, steps: int, noise: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The path v(0 … T) of gradient descent on C(v) = ‖vvᵀ − (wwᵀ + E)‖² and the costs C(v(1 … T)):
    shapes (T+1, n, d) and (n, T).

    ∇C = 4‖v‖²v − 2(M + Mᵀ)v with M = wwᵀ + E.
    """
    v, w = np.atleast_2d(np.asarray(v, np.float64)), np.asarray(w, np.float64)
    M = np.outer(w, w) + (0.0 if noise is None else np.asarray(noise, np.float64))
    path = [v]
    for _ in range(steps):
        v = path[-1]
        path.append(v - rate * (4 * np.sum(v**2, axis=1, keepdims=True) * v - 2 * v @ (M + M.T)))
    found = np.stack(path)
    quadratic = np.einsum("tni,ij,tnj->tn", found, M, found)
    costs = np.sum(found**2, axis=2) ** 2 - 2 * quadratic + np.sum(M**2)
    return found, costs[1:].T
