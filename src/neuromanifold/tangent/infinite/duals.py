"""Dual activations in closed form: what σ does to the covariances of two Gaussian numbers.

A dual knows E[σ(u)²] of one number and, for two, E[σ(u)σ(v)], the half squared distance ½E(σ(u) −
σ(v))² and E[σ'(u)σ'(v)].
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import BUILT_IN, Activation
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.infinite.pairs import Array, GaussianPair, difference, half_angle, lens

Formula = Callable[[Array, Array, GaussianPair], tuple[Array, Array]]


class Own(NamedTuple):
    """What a dual knows of one sample: E[σ(u)²], what it keeps for the pairs, and the error it
    estimates for that.
    """

    variance: Array
    record: Any = ()
    error: Any = 0.0


class Moments(NamedTuple):
    """E[σ(u)σ(v)], ½E(σ(u) − σ(v))², E[σ'(u)σ'(v)], and the error estimated for the pairs."""

    covariance: Array
    distance: Array
    slope: Array
    error: Any = 0.0


@runtime_checkable
class Dual(Protocol):
    """What an activation contributes to the recursion."""

    @property
    def recorded(self) -> bool:
        """Whether `own` is worth computing once per sample."""
        ...

    def own(self, a: Array) -> Own:
        """For numbers of variance a."""
        ...

    def pairs(self, between: GaussianPair, left: Own, right: Own) -> Moments:
        """For pairs; `left` and `right` broadcast against them."""
        ...


@dataclass(frozen=True)
class PiecewiseLinear:
    """σ(z) = pz + m|z|, described by p² and m²: relu, leaky_relu, abs, identity, and mixtures of
    them.

    E[σσ] = √(ab) (p² cos θ + m² (2/π)(sin θ + (π/2 − θ) cos θ)),  E[σ'σ'] = p² + m² (1 − 2θ/π).

    >>> relu, orthogonal = PiecewiseLinear(0.25, 0.25), GaussianPair(1.0, 1.0, jnp.asarray(1.0), jnp.asarray(1.0))
    >>> round(float(relu.pairs(orthogonal, None, None).covariance) * 2 * np.pi, 5)      # E[σσ] = 1/2π
    1.0
    """

    odd: float
    even: float
    recorded: bool = False

    def own(self, a: Array) -> Own:
        """(p² + m²) a."""
        return Own((self.odd + self.even) * a)

    def pairs(self, between: GaussianPair, left: Own | None, right: Own | None) -> Moments:
        """Cho and Saul's arc-cosine kernels of orders 1 and 0, as sums of non-negative terms:
        nothing cancels at θ → 0.
        """
        gain = self.odd + self.even
        if not self.even:
            slope = jnp.full_like(between.minus, self.odd)
            return Moments(
                gain * between.covariance, gain * (between.minus + between.radial), slope
            )
        low, high = (
            jnp.minimum(between.minus, between.plus),
            jnp.maximum(between.minus, between.plus),
        )
        folded = jnp.maximum(low - 2 / jnp.pi * lens(low, high), 0.0)
        angle = 2 * half_angle(low, high)
        angle = jnp.where(between.minus <= between.plus, angle, jnp.pi - angle)
        slope = self.odd + self.even * (1 - 2 / jnp.pi * angle)
        lost = self.odd * between.minus + self.even * folded
        return Moments(
            gain * between.left * between.right - lost, lost + gain * between.radial, slope
        )


@dataclass(frozen=True)
class StepFunction:
    """σ(z) = e + o·sign(z), described by e² and o²:  E[σσ] = e² + o²(1 − 2θ/π),  σ' = 0 almost
    everywhere.
    """

    even: float
    odd: float
    recorded: bool = False

    def own(self, a: Array) -> Own:
        """e² + o²."""
        return Own(jnp.full_like(a, self.even + self.odd))

    def pairs(self, between: GaussianPair, left: Own, right: Own) -> Moments:
        """½E(σ(u) − σ(v))² = o² 2θ/π."""
        low, high = (
            jnp.minimum(between.minus, between.plus),
            jnp.maximum(between.minus, between.plus),
        )
        angle = 2 * half_angle(low, high)
        angle = jnp.where(between.minus <= between.plus, angle, jnp.pi - angle)
        lost = self.odd * 2 / jnp.pi * angle
        return Moments(self.even + self.odd - lost, lost, jnp.zeros_like(angle))


@dataclass(frozen=True)
class ClosedForm:
    """A smooth activation whose E[σσ] and E[σ'σ'] are known functions of √a, √b and the gaps."""

    name: str
    formula: Formula
    recorded: bool = False

    def own(self, a: Array) -> Own:
        """E[σ(u)²]."""
        size = jnp.sqrt(jnp.where(a > 0, a, 1.0)) * (a > 0)
        return Own(self.formula(a, a, GaussianPair(size, size, jnp.zeros_like(a), 2 * a))[0])

    def pairs(self, between: GaussianPair, left: Own, right: Own) -> Moments:
        """The covariance subtracted from the mean of the variances."""
        value, slope = self.formula(between.left**2, between.right**2, between)
        return Moments(value, difference((left.variance + right.variance) / 2, value), slope)


@dataclass(frozen=True)
class Mixture:
    """A layer whose channels have different activations, in fixed proportions."""

    parts: tuple[tuple[float, Dual], ...]

    @property
    def recorded(self) -> bool:
        """Whether any part is."""
        return any(dual.recorded for _, dual in self.parts)

    def own(self, a: Array) -> Own:
        """The weighted mean; the parts' own are kept."""
        each = tuple(dual.own(a) for _, dual in self.parts)
        kept = tuple(own._replace(error=()) for own in each)
        return Own(
            self._mean([own.variance for own in each]), kept, _largest([own.error for own in each])
        )

    def pairs(self, between: GaussianPair, left: Own, right: Own) -> Moments:
        """The weighted means."""
        each = [
            dual.pairs(between, own, other)
            for (_, dual), own, other in zip(self.parts, left.record, right.record, strict=True)
        ]
        covariance, distance, slope = (
            self._mean(list(v)) for v in list(zip(*each, strict=True))[:3]
        )
        return Moments(covariance, distance, slope, _largest([m.error for m in each]))

    def _mean(self, values: list[Array]) -> Array:
        return sum(share * value for (share, _), value in zip(self.parts, values, strict=True))


def _largest(errors: list[Any]) -> Any:
    return reduce(jnp.maximum, errors)


def _erf(a: Array, b: Array, between: GaussianPair) -> tuple[Array, Array]:
    """(2/π) asin(2c/√((1+2a)(1+2b))) and (4/π)/√((1+2a)(1+2b) − 4c²).   (Williams)"""
    rest = jnp.sqrt(1 + 2 * a + 2 * b + 4 * between.squared_area)
    return 2 / jnp.pi * jnp.arctan2(2 * between.covariance, rest), 4 / jnp.pi / rest


def _sine(a: Array, b: Array, between: GaussianPair) -> tuple[Array, Array]:
    """e^{−(a+b)/2} sinh c and e^{−(a+b)/2} cosh c."""
    radial, c = between.radial, between.covariance
    minus, plus = jnp.exp(-radial - between.minus), jnp.exp(-radial - between.plus)
    small = jnp.exp(-(a + b) / 2) * jnp.sinh(jnp.clip(c, -1.0, 1.0))
    return jnp.where(jnp.abs(c) < 1.0, small, (minus - plus) / 2), (minus + plus) / 2


def _cosine(a: Array, b: Array, between: GaussianPair) -> tuple[Array, Array]:
    """e^{−(a+b)/2} cosh c and e^{−(a+b)/2} sinh c."""
    slope, value = _sine(a, b, between)
    return value, slope


def _exponential(a: Array, b: Array, between: GaussianPair) -> tuple[Array, Array]:
    """e^{(a+b)/2 + c}, twice."""
    value = jnp.exp(between.radial + between.plus)
    return value, value


def _gelu(a: Array, b: Array, between: GaussianPair) -> tuple[Array, Array]:
    """For σ = zΦ(z), with p = (1+a)(1+b) and s² = p − c²:

    E[σσ] = c/4 + (c atan(c/s) + c²/(ps) + ab s/p)/2π,
    E[σ'σ'] = 1/4 + (atan(c/s) + (c/s)(1/s² + (1 − ab)/p + 1))/2π.   (Tsuchida et al.)
    """
    c, outer, share = between.covariance, (1 + a) * (1 + b), a / (1 + a) * (b / (1 + b))
    square = 1 + a + b + between.squared_area
    s = jnp.sqrt(square)
    angle = jnp.arctan2(c, s)
    value = c / 4 + (c * angle + (c / outer) * (c / s) + share * s) / (2 * jnp.pi)
    slope = 1 / 4 + (angle + c / s * (1 / square + 1 / outer - share + 1)) / (2 * jnp.pi)
    return value, slope


CLOSED_FORMS: dict[Activation, ClosedForm] = {
    BUILT_IN[name]: ClosedForm(name, formula)
    for name, formula in {
        "erf": _erf,
        "sin": _sine,
        "cos": _cosine,
        "exp": _exponential,
        "gelu": _gelu,
    }.items()
}


def closed_form(activation: Activation) -> Dual | None:
    """The dual of a piecewise-linear or piecewise-constant activation, or of erf, sin, cos, exp,
    gelu; `None` for any other.

    >>> closed_form(BUILT_IN["abs"])
    PiecewiseLinear(odd=0.0, even=1.0, recorded=False)
    """
    if activation.slopes is not None:
        left, right = activation.slopes
        return PiecewiseLinear(((right + left) / 2) ** 2, ((right - left) / 2) ** 2)
    if activation.degree == 0:
        left, right = _plateaus(activation)
        return StepFunction(((right + left) / 2) ** 2, ((right - left) / 2) ** 2)
    return CLOSED_FORMS.get(activation)


def _plateaus(activation: Activation) -> tuple[float, float]:
    with arithmetic():
        left, right = np.asarray(activation(jnp.asarray([-1.0, 1.0])))
    return float(left), float(right)


def mixture(parts: tuple[tuple[float, Dual], ...]) -> Dual:
    """The dual of a mixed layer; piecewise-linear parts merge into one."""
    if all(isinstance(dual, PiecewiseLinear) for _, dual in parts):
        linear = [(share, dual) for share, dual in parts if isinstance(dual, PiecewiseLinear)]
        return PiecewiseLinear(
            sum(s * d.odd for s, d in linear), sum(s * d.even for s, d in linear)
        )
    return parts[0][1] if len(parts) == 1 else Mixture(parts)
