"""Infinitely wide networks: their covariance, their tangent kernel, and the arithmetic of
covariances behind both.
"""

from neuromanifold.tangent.infinite.description import describe
from neuromanifold.tangent.infinite.kernels import (
    InfiniteKernels,
    KernelOptions,
    infinite_kernels,
    infinite_ntk,
    nngp,
)
from neuromanifold.tangent.infinite.monte_carlo import Estimate, MonteCarlo, monte_carlo_kernels
from neuromanifold.tangent.infinite.quadrature import Quadrature

__all__ = [
    "Estimate",
    "InfiniteKernels",
    "KernelOptions",
    "MonteCarlo",
    "Quadrature",
    "describe",
    "infinite_kernels",
    "infinite_ntk",
    "monte_carlo_kernels",
    "nngp",
]
