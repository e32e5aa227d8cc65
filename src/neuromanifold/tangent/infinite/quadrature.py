"""`Quadrature`: how expectations of an activation without closed form are computed, and which
dual that makes.

Adaptive quadrature of both variables (`quadgk` of quadax 0.3.1, nested) gives the same numbers to
5e-16 and takes 30 times as long for tanh and 40 times for softplus (36 pairs of samples, two cores,
19 November 2026).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import Activation, Mixed
from neuromanifold.tangent.infinite.duals import Dual, Moments, Own, closed_form, mixture
from neuromanifold.tangent.infinite.pairs import Array, GaussianPair, difference, root
from neuromanifold.tangent.infinite.series import ORDERS, HermiteSeries


@dataclass(frozen=True)
class Quadrature:
    """How expectations over an activation without closed form are computed.

    `rtol` bounds the estimated error of E[σ(u)σ(v)], relative to √(E[σ(u)²] E[σ(v)²]), and likewise
    for the slopes. `kinks` are the points where σ or a derivative of it jumps: integrals are split
    there. `reach` is the radius, in standard deviations, of the split integrals. `order` fixes the
    number of nodes; without it the data decide, and under `jit`, where they cannot be seen, 1024
    are taken (64 between kinks) and kernels that miss `rtol` are nan. `always` takes quadrature
    even where a closed form is known, which tests both.
    """

    rtol: float = 1e-12
    kinks: tuple[float, ...] = ()
    reach: float = 10.0
    order: int | None = None
    always: bool = False

    def __post_init__(self):
        if not 0 < self.rtol < 1:
            raise ValueError(
                f"`rtol` is {self.rtol!r}; pass a number between 0 and 1, such as 1e-12."
            )
        if not np.isfinite(self.kinks).all():
            raise ValueError(f"`kinks` is {self.kinks!r}; pass finite numbers.")
        if self.order is not None and self.order not in (
            PANEL_ORDERS if self.kinks else ORDERS[2:]
        ):
            allowed = PANEL_ORDERS if self.kinks else ORDERS[2:]
            raise ValueError(
                f"`order` is {self.order!r}; pass one of {', '.join(map(str, allowed))}, or None."
            )

    @property
    def ladder(self) -> tuple[int, ...]:
        """The numbers of nodes to try, in order."""
        if self.order is not None:
            return (self.order,)
        return PANEL_ORDERS if self.kinks else ORDERS[2:]

    @property
    def blind(self) -> int:
        """The number of nodes where the data cannot be seen."""
        return self.order or (PANEL_ORDERS[-1] if self.kinks else 1024)

    def dual(self, entry: Activation | Mixed, order: int) -> Dual:
        """Return the dual of the activation `entry`, with `order` nodes where it needs quadrature."""
        parts = ((entry, 1),) if isinstance(entry, Activation) else entry.parts
        width = sum(count for _, count in parts)
        return mixture(
            tuple((count / width, self._dual(activation, order)) for activation, count in parts)
        )

    def needs_order(self, entry: Activation | Mixed) -> bool:
        """Return whether the number of nodes matters to the activation `entry`."""
        parts = (
            (entry,)
            if isinstance(entry, Activation)
            else tuple(activation for activation, _ in entry.parts)
        )
        return any(not self._exact(activation) for activation in parts)

    def _exact(self, activation: Activation) -> bool:
        return not self.always and (
            activation.polynomial is not None or closed_form(activation) is not None
        )

    def _dual(self, activation: Activation, order: int) -> Dual:
        known = None if self.always else closed_form(activation)
        if known is not None:
            return known
        if not self.always and activation.polynomial is not None:
            return HermiteSeries(activation, len(activation.polynomial), exact=True)
        if self.kinks:
            return SplitPanels(activation, order, self.kinks, self.reach)
        return HermiteSeries(activation, order)


PANEL_ORDERS = (24, 40, 64)
_COARSER = {24: (10, 16), 40: (16, 24), 64: (24, 40)}
_PAIRS_AT_ONCE = 64
_TRANSITION = 9.0
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class SplitPanels:
    """E over z₁ and z₂ with u = √a z₁, v = √b (cos θ z₁ + sin θ z₂): Gauss–Legendre between the
    kinks of u and of v.

    The inner integral is a smooth function of z₁ that changes over a width tan θ where v's mean
    crosses a kink; the outer panels also end there. The errors of two rules with fewer nodes
    predict that of this one: they fall like rⁿ.
    """

    activation: Activation
    order: int
    kinks: tuple[float, ...]
    reach: float
    recorded: bool = False

    def own(self, a: Array) -> Own:
        """E[σ(u)²], and E[σ'(u)²] to measure errors by."""
        z, w = self._panels(self._crossings(root(a)), self.order)
        value, slope = self._evaluate(root(a)[..., None] * z)
        return Own((w * value**2).sum(axis=-1), (w * slope**2).sum(axis=-1))

    def pairs(self, between: GaussianPair, left: Own, right: Own) -> Moments:
        """Both integrals, a few pairs at a time."""
        shape = between.minus.shape
        arrays = [jnp.broadcast_to(v, shape).ravel() for v in between]
        both = jax.lax.map(
            lambda pair: self._control(GaussianPair(*pair)),
            tuple(arrays),
            batch_size=_PAIRS_AT_ONCE,
        )
        value, slope, *errors = (v.reshape(shape) for v in both)
        scales = (
            root(left.variance) * root(right.variance),
            root(left.record) * root(right.record),
        )
        worst = [(e / jnp.maximum(s, _TINY)).max() for e, s in zip(errors, scales, strict=True)]
        distance = difference((left.variance + right.variance) / 2, value, terms=self.order)
        return Moments(value, distance, slope, jnp.maximum(*worst))

    def _control(self, pair: GaussianPair) -> tuple[Array, ...]:
        orders = (*_COARSER[self.order], self.order)
        rules = [self._integrals(pair, order) for order in orders]
        power = (orders[2] - orders[1]) / (orders[1] - orders[0])
        errors = []
        for first, second, third in zip(*rules, strict=True):
            before, after = jnp.abs(second - first), jnp.abs(third - second)
            errors.append(after * jnp.minimum(1.0, after / jnp.maximum(before, _TINY)) ** power)
        return (*rules[-1], *errors)

    def _integrals(self, pair: GaussianPair, order: int) -> tuple[Array, Array]:
        rho, size = pair.correlation, jnp.maximum(pair.minus + pair.plus, _TINY)
        rest = 2 * root(pair.minus) * root(pair.plus) / size
        crossing, flat = self._crossings(pair.right), jnp.where(rho == 0, 1.0, rho)
        centre, width = crossing / flat, jnp.abs(rest / flat)
        steps = [centre + s * width for s in (-_TRANSITION, -1.0, 0.0, 1.0, _TRANSITION)]
        z1, w1 = self._panels(jnp.concatenate([self._crossings(pair.left), *steps]), order)
        level = jnp.where(rest == 0, 1.0, rest)
        breaks = (crossing - (rho * z1)[:, None]) / level
        z2, w2 = self._panels(jnp.where(rest == 0, self.reach, breaks), order)
        outer = self._evaluate(pair.left * z1)
        inner = self._evaluate(pair.right * ((rho * z1)[:, None] + rest * z2))
        value, slope = (
            (w1 * o * (w2 * i).sum(axis=-1)).sum() for o, i in zip(outer, inner, strict=True)
        )
        return value, slope

    def _evaluate(self, z: Array) -> tuple[Array, Array]:
        return self.activation(z), self.activation.derivative(z)

    def _crossings(self, size: Array) -> Array:
        """Where √a z meets a kink, on a last axis; beyond the reach where it never does."""
        kinks = jnp.asarray(self.kinks)
        never = jnp.where(kinks == 0, 0.0, jnp.copysign(2 * self.reach, kinks))
        there = size[..., None] > 0
        return jnp.where(there, kinks / jnp.where(there, size[..., None], 1.0), never)

    def _panels(self, breaks: Array, order: int) -> tuple[Array, Array]:
        """Nodes and weights of ∫ … φ(z) dz over [−R, R], split at the breaks on the last axis."""
        ends = jnp.full((*breaks.shape[:-1], 1), self.reach)
        inside = jnp.clip(breaks, -self.reach, self.reach)
        edges = jnp.sort(jnp.concatenate([-ends, inside, ends], axis=-1), axis=-1)
        nodes, weights = np.polynomial.legendre.leggauss(order)
        middle, half = (
            (edges[..., 1:] + edges[..., :-1]) / 2,
            (edges[..., 1:] - edges[..., :-1]) / 2,
        )
        z = middle[..., None] + half[..., None] * nodes
        density = half[..., None] * weights * jnp.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return z.reshape(*z.shape[:-2], -1), density.reshape(*z.shape[:-2], -1)
