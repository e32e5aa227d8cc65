"""The state of the recursion: what is known of two samples' activations at one layer of an
infinitely wide network.

At each position of a sample, every channel holds an independent copy of one random number: u for
the first sample, v for the second. `Pairs` holds their variances a = E[u²], b = E[v²], their
covariance c = E[uv], the half squared distance d = ½E(u − v)² = (a + b)/2 − c, and the tangent
kernel Θ. Either of c and d follows from the other, but with different digits: d keeps them where
two samples nearly agree, and there an arccos of c would turn a rounding error ε into √ε; c keeps
them where one sample is much larger than the other.

Arrays have the samples first: (n1, …) for a, (n2, …) for b, (n1, n2, …) for the others, or (n, …)
for all where each sample is paired with itself. Positions follow: those of one sample for a and b;
for the others the position that both share, or, where `full`, pairs of positions, axis by axis: (…,
p, p', q, q').
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
EPS = float(np.finfo(np.float64).eps)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["left", "right", "covariance", "distance", "tangent"],
    meta_fields=["crossed", "full"],
)
@dataclass(frozen=True)
class Pairs:
    """Covariances of all pairs of samples (`crossed`), or of each sample with itself."""

    left: Array
    right: Array
    covariance: Array
    distance: Array
    tangent: Array | None
    crossed: bool
    full: bool

    @property
    def positions(self) -> tuple[int, ...]:
        """The sizes of the axes of positions."""
        return self.left.shape[1:]

    @property
    def batch(self) -> int:
        """How many axes of `distance` count samples."""
        return 2 if self.crossed else 1

    def over_left(self, v: Array) -> Array:
        """An array over the first sample's positions, shaped to meet `distance`; further axes
        may follow.
        """
        return self._interleave(v[:, None] if self.crossed else v, 1)

    def over_right(self, v: Array) -> Array:
        """An array over the second sample's positions, shaped to meet `distance`; further axes
        may follow.
        """
        return self._interleave(v[None] if self.crossed else v, 0)

    def _interleave(self, v: Array, offset: int) -> Array:
        """(…, p, q, …) → (…, p, 1, q, 1, …) for offset 1, (…, 1, p, 1, q, …) for offset 0."""
        axes = range(len(self.positions)) if self.full else ()
        return jnp.expand_dims(v, tuple(self.batch + 2 * j + offset for j in axes))

    @property
    def mean_variance(self) -> Array:
        """(a + b)/2."""
        return (self.over_left(self.left) + self.over_right(self.right)) / 2

    def map_pairs(self, linear: Callable[[Array], Array]) -> dict[str, Any]:
        """A linear map of covariance and tangent kernel, by name."""
        return {
            "covariance": linear(self.covariance),
            "tangent": None if self.tangent is None else linear(self.tangent),
        }


def on_diagonal(v: Array, batch: int) -> Array:
    """Pairs of positions → equal positions."""
    axes = (v.ndim - batch) // 2
    samples, places = list(range(batch)), [batch + j for j in range(axes)]
    return jnp.einsum(v, samples + [p for p in places for _ in range(2)], samples + places)


def root(a: Array) -> Array:
    """√a with derivative 0 where a = 0."""
    positive = a > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, a, 1.0)), 0.0)


def difference(m: Array, c: Array, *, terms: int = 1) -> Array:
    """m − c ≥ 0, and exactly 0 where it is no more than the rounding of sums of that many terms."""
    found = m - c
    return jnp.where(found > (16.0 + 4.0 * terms**0.5) * EPS * m, found, 0.0)


class GaussianPair(NamedTuple):
    """Two Gaussian numbers by their norms √a, √b and the gaps √(ab) − c and √(ab) + c, either
    exactly 0 where they are collinear.
    """

    left: Array
    right: Array
    minus: Array
    plus: Array

    @property
    def covariance(self) -> Array:
        """c."""
        return (self.plus - self.minus) / 2

    @property
    def correlation(self) -> Array:
        """c/√(ab); 0 where a or b vanishes."""
        size = self.plus + self.minus
        return jnp.where(size > 0, (self.plus - self.minus) / jnp.where(size > 0, size, 1.0), 0.0)

    @property
    def squared_area(self) -> Array:
        """ab − c², without cancellation."""
        return self.minus * self.plus

    @property
    def radial(self) -> Array:
        """½(√a − √b)²."""
        return (self.left - self.right) ** 2 / 2


def geometry(pairs: Pairs) -> GaussianPair:
    """√(ab) − c, or d − ½(√a − √b)² where that has the smaller error; what rounding alone could
    have left counts as zero.
    """
    left, right = pairs.over_left(root(pairs.left)), pairs.over_right(root(pairs.right))
    apart, product = jnp.abs(left - right), left * right
    rounding = apart * (left + right)
    close = rounding + pairs.distance < product
    minus = jnp.where(close, pairs.distance - apart**2 / 2, product - pairs.covariance)
    minus = jnp.where(minus > EPS * jnp.where(close, 8 * rounding, 16 * product), minus, 0.0)
    plus = product + pairs.covariance
    plus = jnp.where(plus > 16 * EPS * product, plus, 0.0)
    return GaussianPair(left, right, minus, plus)


@jax.custom_jvp
def half_angle(low: Array, high: Array) -> Array:
    """atan √(low/high), half the angle whose gaps are low ≤ high; π/4 where both vanish. Its
    derivative is taken as 0 at low = 0.

    The angle has a cusp there: nearby samples lie on all sides of it, so that 0 is the mean of its
    one-sided derivatives.
    """
    there = high > 0
    return jnp.where(
        there, jnp.arctan(jnp.sqrt(low) / jnp.sqrt(jnp.where(there, high, 1.0))), jnp.pi / 4
    )


@half_angle.defjvp
def _half_angle_jvp(primals: Any, tangents: Any) -> Any:
    (low, high), (low_dot, high_dot) = primals, tangents
    area = jnp.sqrt(low) * jnp.sqrt(high) * (low + high)
    open_ = area > 0
    change = (low_dot * high - low * high_dot) / 2
    return half_angle(low, high), jnp.where(open_, change / jnp.where(open_, area, 1.0), 0.0)


@jax.custom_jvp
def lens(low: Array, high: Array) -> Array:
    """√(ab)(sin θ − θ cos θ) for the angle θ ≤ π/2 whose gaps are low ≤ high: of third order in
    θ, and smooth enough to differentiate.
    """
    return jnp.sqrt(low) * jnp.sqrt(high) - half_angle(low, high) * (high - low)


@lens.defjvp
def _lens_jvp(primals: Any, tangents: Any) -> Any:
    (low, high), (low_dot, high_dot) = primals, tangents
    value, angle = lens(low, high), 2 * half_angle(low, high)
    size = low + high
    there = size > 0
    change = (low_dot + high_dot) * value + angle * (low_dot * high - low * high_dot)
    return value, jnp.where(there, change / jnp.where(there, size, 1.0), 0.0)
