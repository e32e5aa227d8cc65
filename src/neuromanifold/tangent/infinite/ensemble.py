"""Infinitely many infinitely wide networks, trained: a Gaussian process at every time."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.models.arguments import Model, Samples, Targets
from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.results import Array, Result, follows, show_record
from neuromanifold.numerics.validation import check_sample
from neuromanifold.tangent.infinite.kernels import InfiniteKernels, infinite_kernels, nngp
from neuromanifold.tangent.infinite.quadrature import Quadrature
from neuromanifold.tangent.prediction.kernel_flow import KernelFlow, mode_gains


class Gaussian(NamedTuple):
    """Mean (n, *out) and covariance (n, n) of outputs that are independent of each other and
    share the covariance.
    """

    mean: Array
    covariance: Array

    def __repr__(self) -> str:
        return show_record(self)

    @property
    def standard_deviation(self) -> Array:
        """Return the standard deviation at each sample."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))


class Gaussians(NamedTuple):
    """The trained ensemble on the training samples and on the others (`None` where there are
    none).
    """

    train: Gaussian
    other: Gaussian | None

    def __repr__(self) -> str:
        return show_record(self)


@dataclass(frozen=True, eq=False, repr=False)
class EnsembleFlow(Result):
    """Networks with initial outputs f₀ ~ N(0, K) that all follow  f_t(X') = f₀(X') − Θ(X', X) A_t
    (f₀(X) − y).

    K is the NNGP, Θ the tangent kernel, and A_t = κ(κΘ + ρ)^{-1} g_t, with g_t the relaxation of
    `KernelFlow`: gradient flow of squared errors κ/2 ‖f − y‖² with ridge ρ and friction. Mean and
    covariance at time t are

    Θ'A_t y   and   K'' − Θ'A_t K(X, X') − K(X', X)A_tΘ'ᵀ + Θ'A_t K A_tΘ'ᵀ.

    >>> one = InfiniteKernels(np.eye(1), np.eye(1))
    >>> flow = EnsembleFlow(one, np.array([[2.0]]), mse, one, np.eye(1))      # κ = 2
    >>> mean, covariance = flow.at(np.log(2.0) / 2).other
    >>> float(mean[0, 0]), float(covariance[0, 0])
    (1.0, 0.25)
    """

    kernels: InfiniteKernels
    target: Array
    loss: Loss
    cross: InfiniteKernels | None = None
    other_nngp: Array | None = None
    ridge: float = 0.0
    friction: float | None = None

    def __post_init__(self):
        if (self.cross is None) != (self.other_nngp is None):
            raise ValueError("`cross` and `other_nngp` belong together; pass both, or neither.")
        if self.mean_flow.curvature is None:
            raise ValueError(
                "`loss` is no squared error, so that trained outputs are not Gaussian; pass "
                "nm.losses.mse or the like."
            )

    @cached_property
    def mean_flow(self) -> KernelFlow:
        """The flow of the ensemble's mean, which starts at zero."""
        others = (
            None
            if self.other_nngp is None
            else np.zeros((len(self.other_nngp), *self.target.shape[1:]))
        )
        return KernelFlow(
            kernel=self.kernels.ntk,
            start=np.zeros_like(self.target),
            target=self.target,
            loss=self.loss,
            cross=None if self.cross is None else self.cross.ntk,
            other_start=others,
            ridge=self.ridge,
            friction=self.friction,
        )

    def at(self, t: float) -> Gaussians:
        """Return the mean and the covariance at time t ≥ 0."""
        return self._gaussians(self.mean_flow.at(t), t)

    def limit(self) -> Gaussians:
        """Return the mean and the covariance at infinite time."""
        return self._gaussians(self.mean_flow.limit(), math.inf)

    def largest_stable_lr(self, *, momentum: float = 0.0) -> float:
        """Return 2(1 + β)/(κλ_max(Θ) + ρ), β being `momentum`."""
        return self.mean_flow.largest_stable_lr(momentum=momentum)

    def _gaussians(self, mean: Any, t: float) -> Gaussians:
        values, vectors = self.mean_flow.modes
        gain = mode_gains(values, self.mean_flow.curvature or 0.0, self.ridge, self.friction, t)
        follow = (vectors * gain) @ vectors.T
        prior = self.kernels.nngp
        train = Gaussian(mean.train, _covariance(prior, prior, self.kernels.ntk @ follow, prior))
        if self.cross is None or self.other_nngp is None:
            return Gaussians(train, None)
        other = _covariance(prior, self.cross.nngp, self.cross.ntk @ follow, self.other_nngp)
        return Gaussians(train, Gaussian(mean.other, other))


def _covariance(prior: Array, cross: Array, follow: Array, start: Array) -> Array:
    """K'' − B Kᵀ' − K' Bᵀ + B K Bᵀ with B = Θ'A_t: the covariance of f₀' − B f₀, symmetric to
    the last digit.
    """
    mixed = follow @ cross.T
    found = start - mixed - mixed.T + follow @ prior @ follow.T
    return (found + found.T) / 2


@follows
def ensemble_flow(
    net: Model,
    x: Samples,
    y: Targets,
    *,
    loss: Loss = mse,
    other: Samples | None = None,
    ridge: float = 0.0,
    friction: float | None = None,
    weight_std: Any = None,
    bias_std: Any = None,
    scaling: str | None = None,
    quadrature: Quadrature | None = None,
    memory: int | str | None = None,
) -> EnsembleFlow:
    """Return the trained ensemble of infinitely wide networks: mean and covariance at any time, on
    training and `other` samples.

    `ridge` and `friction` are as for `KernelFlow`; `weight_std`, `bias_std`, `scaling` and
    `quadrature` are as for `infinite_ntk`.

    >>> flow = ensemble_flow(nm.MLP((1, 8, 1)), np.array([[1.0], [2.0]]), np.array([[0.5], [1.5]]), other=np.array([[1.0]]))
    >>> mean, covariance = flow.limit().other                   # a training sample: learned, and certain
    >>> round(float(mean[0, 0]), 9), abs(float(covariance[0, 0])) < 1e-9
    (0.5, True)
    """
    options: dict[str, Any] = {
        "weight_std": weight_std,
        "bias_std": bias_std,
        "quadrature": quadrature,
        "memory": memory,
    }
    y = np.asarray(check_sample(y, "y"), np.float64)
    kernels = infinite_kernels(net, x, scaling=scaling, **options)
    if len(y) != len(kernels.ntk):
        raise ValueError(
            f"`y` has {len(y)} samples but `x` has {len(kernels.ntk)}; pass one target for each "
            "sample."
        )
    return EnsembleFlow(
        kernels=kernels,
        target=y,
        loss=loss,
        cross=None
        if other is None
        else infinite_kernels(net, other, x, scaling=scaling, **options),
        other_nngp=None if other is None else nngp(net, other, **options),
        ridge=ridge,
        friction=friction,
    )
