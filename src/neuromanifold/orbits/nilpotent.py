"""The algebra R[ε₁, …, ε_N]/(ε_i²): one evaluation of a function over it holds every mixed
derivative.

An element is an array whose first axis has 2ⁿ entries, n ≤ N: entry S is the coefficient of ε_S =
Π_{i∈S} ε_i, the bits of S naming the generators. An element with fewer entries uses the first
generators only.
"""

import functools

import numpy as np

from neuromanifold.orbits.rings import Ring


def generators(a: np.ndarray) -> int:
    """n, the number of generators that the element may involve."""
    return len(a).bit_length() - 1


def extend(a: np.ndarray, n: int) -> np.ndarray:
    """The same element with 2ⁿ entries."""
    if len(a) == 1 << n:
        return a
    return np.concatenate([a, np.zeros(((1 << n) - len(a), *a.shape[1:]), a.dtype)])


def add(ring: Ring, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a + b."""
    n = max(generators(a), generators(b))
    return ring.add(extend(a, n), extend(b, n))


def multiply(ring: Ring, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a·b, entries multiplied entrywise:  (a·b)_S = Σ_{T ⊂ S} a_T b_{S∖T}.

    >>> from neuromanifold.orbits.rings import Reals
    >>> a = np.array([[1.0], [1.0], [1.0], [0.0]])              # 1 + ε₁ + ε₂
    >>> multiply(Reals(), a, a).ravel().tolist()                # 1 + 2ε₁ + 2ε₂ + 2ε₁ε₂
    [1.0, 2.0, 2.0, 2.0]
    """
    left, right, starts = _pairs(generators(a), generators(b))
    return ring.sum_runs(ring.multiply(a[left], b[right]), starts)


def matmul(ring: Ring, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a·b, entries multiplied as matrices (the last two axes)."""
    left, right, starts = _pairs(generators(a), generators(b))
    return ring.sum_runs(ring.matmul(a[left], b[right]), starts)


def compose(
    ring: Ring, derivatives: list[np.ndarray], z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(g(z), g'(z)), given g, g', …, g^(n+1) at the constant term of z.

    One generator at a time, by  g(u + ε_i v) = g(u) + ε_i g'(u)·v: together this costs less than
    two products.
    """
    tower = [d[None] for d in derivatives]
    for i in range(generators(z)):
        v = z[1 << i : 2 << i]
        tower = [
            np.concatenate([low, multiply(ring, high, v)])
            for low, high in zip(tower[:-1], tower[1:], strict=True)
        ]
    return tower[0], tower[1]


@functools.lru_cache
def _pairs(m: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All disjoint (T, U) with T among the first m generators and U among the first n, sorted by
    T ∪ U, and where each run begins.
    """
    T, U = (
        axis.ravel() for axis in np.meshgrid(np.arange(1 << m), np.arange(1 << n), indexing="ij")
    )
    disjoint = (T & U) == 0
    T, U = T[disjoint], U[disjoint]
    order = np.argsort(T | U, kind="stable")
    T, U = T[order], U[order]
    _, starts = np.unique(T | U, return_index=True)
    return T, U, starts
