"""Infinitely wide networks: their covariance, their tangent kernel, and what both predict."""

from neuromanifold.tangent.infinite.description import describe
from neuromanifold.tangent.infinite.ensemble import EnsembleFlow, ensemble_flow
from neuromanifold.tangent.infinite.gaussian_process import (
    Posterior,
    gp_posterior,
    log_marginal_likelihood,
)
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
    "EnsembleFlow",
    "Estimate",
    "InfiniteKernels",
    "KernelOptions",
    "MonteCarlo",
    "Posterior",
    "Quadrature",
    "describe",
    "ensemble_flow",
    "gp_posterior",
    "infinite_kernels",
    "infinite_ntk",
    "log_marginal_likelihood",
    "monte_carlo_kernels",
    "nngp",
]
