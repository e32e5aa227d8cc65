"""Vectors, ranks and kernels on the host."""

from fractions import Fraction
from math import gcd, lcm
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import arithmetic, to_host
from neuromanifold.numerics.rank import Rank, rank_from_spectrum


def flatten_on_host(tree: Any) -> Float[np.ndarray, " D"]:
    """A pytree as one float64 vector in `ravel_pytree` order."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def host_rank(matrix: np.ndarray, *, rtol: float | None = None) -> Rank:
    """The numerical rank with its evidence, all of it NumPy."""
    spectrum = np.linalg.svd(matrix, compute_uv=False) if matrix.size else np.zeros(0)
    with arithmetic():
        rank = rank_from_spectrum(spectrum, (max(1, matrix.shape[0]), matrix.shape[1]), rtol)
        return Rank(*to_host((rank.value, rank.spectrum, rank.threshold, rank.gap)))


def left_kernel(matrix: Float[np.ndarray, "m n"]) -> list[list[int]]:
    """Whole vectors c that span  {c : cᵀM = 0},  exactly: floats are dyadic rationals.

    >>> left_kernel(np.array([[0.5, 1.0], [0.25, 0.5]]))
    [[1, -2]]
    """
    import flint

    p = modular.random_prime()
    if modular_rank(modular.from_floats(matrix, p), p) == len(matrix):
        return []
    kernel, nullity = flint.fmpz_mat([_whole(column) for column in matrix.T]).nullspace()
    columns = [[int(kernel[i, j]) for i in range(len(matrix))] for j in range(nullity)]
    return [_primitive(column) for column in columns]


def _whole(column: np.ndarray) -> list[int]:
    """A multiple of the column in whole numbers."""
    fractions = [Fraction(float(entry)) for entry in column]
    scale = lcm(*(f.denominator for f in fractions))
    return [int(f * scale) for f in fractions]


def _primitive(vector: list[int]) -> list[int]:
    """Without common factors, the first nonzero entry positive."""
    divisor = gcd(*vector) * (-1 if next(v for v in vector if v) < 0 else 1)
    return [v // divisor for v in vector]


def input_features(f: Any, features: int | None) -> int:
    """How many inputs f takes: an MLP says so itself, any other function must be told."""
    if (net := perceptron(f)) is not None:
        return net.widths[0]
    if features is None:
        raise ValueError(
            "`features` is None; say how many inputs `f` takes, since only an nm.MLP tells."
        )
    return features
