"""Dual activations: E[σ(u)σ(v)] and E[σ'(u)σ'(v)] for Gaussian (u, v), in closed form.

A pair (u, v) is described by its variances a, b and its *angle* θ, with E[uv] = √(ab) cos θ. The angle keeps its digits where
two samples nearly agree; the correlation does not: there arccos turns a rounding error ε into √ε.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from neuromanifold.models.activation import BUILT_IN, Activation

Array = Any


class Moments(NamedTuple):
    """E[σ(u)σ(v)] and E[σ'(u)σ'(v)]."""

    value: Array
    slope: Array


@runtime_checkable
class Dual(Protocol):
    """What a hidden layer contributes to the recursion, entrywise over the pairs of samples."""

    def moments(self, a: Array, b: Array, angle: Array) -> Moments:
        """Both expectations; `a` is a column, `b` a row."""
        ...

    def variance(self, a: Array) -> Array:
        """E[σ(u)²]."""
        ...


@dataclass(frozen=True)
class PiecewiseLinear:
    """σ(z) = pz + m|z|, described by p² and m²: relu, leaky_relu, abs, identity, and mixtures of them.

    E[σσ] = √(ab) (p² cos θ + m² (2/π)(sin θ + (π/2 − θ) cos θ)),  E[σ'σ'] = p² + m² (1 − 2θ/π).

    >>> relu = PiecewiseLinear(0.25, 0.25)
    >>> round(float(relu.moments(1.0, 1.0, np.pi / 2).value) * 2 * np.pi, 12)      # E[σσ] = 1/2π for orthogonal samples
    1.0
    """

    odd: float
    even: float

    def moments(self, a: Array, b: Array, angle: Array) -> Moments:
        """Both expectations.   (Cho and Saul's arc-cosine kernels of orders 1 and 0)"""
        folded = np.sin(angle) + (np.pi / 2 - angle) * np.cos(angle)
        value = np.sqrt(a) * np.sqrt(b) * (self.odd * np.cos(angle) + self.even * 2 / np.pi * folded)
        return Moments(value, self.odd + self.even * (1 - 2 * angle / np.pi))

    def variance(self, a: Array) -> Array:
        """(p² + m²) a."""
        return (self.odd + self.even) * a

    def next_angle(self, a: Array, b: Array, angle: Array, weight: float, bias: float) -> Array:
        """The angle after the layer, without cancellation at θ → 0.

        1 − cos θ' is the sum of what the angle lost, p²(1 − cos θ) + m²(1 − (2/π)(…)), and of what the bias adds where the
        norms differ, αβ(√a − √b)²; both are sums of non-negative terms.
        """
        gain = weight * (self.odd + self.even)
        roots = np.sqrt(a) * np.sqrt(b)
        near = np.minimum(angle, np.pi - angle)
        lost = 2 * np.sin(near / 2) ** 2 - 2 / np.pi * (np.sin(near) - near * np.cos(near))
        lost = weight * roots * (self.odd * 2 * np.sin(angle / 2) ** 2 + self.even * np.maximum(lost, 0.0))
        after = np.sqrt(gain * a + bias) * np.sqrt(gain * b + bias)
        apart = gain * bias * (np.sqrt(a) - np.sqrt(b)) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            deficit = (lost + apart / (after + gain * roots + bias)) / after
        return np.where(after > 0, 2 * np.arcsin(np.sqrt(np.clip(deficit / 2, 0.0, 1.0))), np.pi / 2)


@dataclass(frozen=True)
class ClosedForm:
    """A smooth activation whose two expectations are known functions of (a, b, θ)."""

    name: str
    formula: Callable[[Array, Array, Array], Moments]

    def moments(self, a: Array, b: Array, angle: Array) -> Moments:
        """Both expectations."""
        return self.formula(a, b, angle)

    def variance(self, a: Array) -> Array:
        """E[σ(u)²]."""
        return self.formula(a, a, np.zeros_like(a)).value


@dataclass(frozen=True)
class Mixture:
    """A layer whose neurons have different activations, in fixed proportions."""

    parts: tuple[tuple[float, Dual], ...]

    def moments(self, a: Array, b: Array, angle: Array) -> Moments:
        """The weighted means."""
        each = [(share, dual.moments(a, b, angle)) for share, dual in self.parts]
        return Moments(sum(s * m.value for s, m in each), sum(s * m.slope for s, m in each))

    def variance(self, a: Array) -> Array:
        """The weighted mean."""
        return sum(share * dual.variance(a) for share, dual in self.parts)


def _covariance(a: Array, b: Array, angle: Array) -> Array:
    return np.sqrt(a) * np.sqrt(b) * np.cos(angle)


def _half_squared_difference(a: Array, b: Array, angle: Array) -> Array:
    """½E(u − v)² = (a + b)/2 − c, without cancellation."""
    return (np.sqrt(a) - np.sqrt(b)) ** 2 / 2 + 2 * np.sqrt(a) * np.sqrt(b) * np.sin(angle / 2) ** 2


def _half_squared_sum(a: Array, b: Array, angle: Array) -> Array:
    return (np.sqrt(a) - np.sqrt(b)) ** 2 / 2 + 2 * np.sqrt(a) * np.sqrt(b) * np.cos(angle / 2) ** 2


def _erf(a: Array, b: Array, angle: Array) -> Moments:
    """(2/π) asin(2c/√((1+2a)(1+2b))) and (4/π)/√((1+2a)(1+2b) − 4c²).   (Williams)"""
    root = np.sqrt(1 + 2 * a + 2 * b + 4 * a * b * np.sin(angle) ** 2)
    return Moments(2 / np.pi * np.arctan2(2 * _covariance(a, b, angle), root), 4 / np.pi / root)


def _sine(a: Array, b: Array, angle: Array) -> Moments:
    """e^{−(a+b)/2} sinh c and e^{−(a+b)/2} cosh c."""
    minus, plus = np.exp(-_half_squared_difference(a, b, angle)), np.exp(-_half_squared_sum(a, b, angle))
    c = _covariance(a, b, angle)
    small = np.exp(-(a + b) / 2) * np.sinh(np.clip(c, -1.0, 1.0))
    return Moments(np.where(np.abs(c) < 1.0, small, (minus - plus) / 2), (minus + plus) / 2)


def _cosine(a: Array, b: Array, angle: Array) -> Moments:
    """e^{−(a+b)/2} cosh c and e^{−(a+b)/2} sinh c."""
    slope, value = _sine(a, b, angle)
    return Moments(value, slope)


def _exponential(a: Array, b: Array, angle: Array) -> Moments:
    """e^{(a+b)/2 + c}, twice."""
    with np.errstate(over="ignore"):
        value = np.exp(_half_squared_sum(a, b, angle))
    return Moments(value, value)


CLOSED_FORMS: dict[Activation, ClosedForm] = {
    BUILT_IN[name]: ClosedForm(name, formula)
    for name, formula in {"erf": _erf, "sin": _sine, "cos": _cosine, "exp": _exponential}.items()
}


def closed_form(activation: Activation) -> PiecewiseLinear | ClosedForm | None:
    """The dual of a piecewise-linear activation, or of erf, sin, cos, exp; `None` for any other.

    >>> closed_form(BUILT_IN["abs"])
    PiecewiseLinear(odd=0.0, even=1.0)
    """
    if activation.slopes is not None:
        left, right = activation.slopes
        return PiecewiseLinear(((right + left) / 2) ** 2, ((right - left) / 2) ** 2)
    return CLOSED_FORMS.get(activation)


def mixture(parts: tuple[tuple[float, Dual], ...]) -> Dual:
    """The dual of a layer with the given shares; one object where that is enough."""
    if len(parts) == 1:
        return parts[0][1]
    linear = [(share, dual) for share, dual in parts if isinstance(dual, PiecewiseLinear)]
    if len(linear) == len(parts):
        return PiecewiseLinear(sum(s * d.odd for s, d in linear), sum(s * d.even for s, d in linear))
    return Mixture(parts)
