"""`FilterScalingGroup`: the layers of a convolutional network may be rescaled against each other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.models.described import require_filters
from neuromanifold.numerics.randomness import host_generator
from neuromanifold.symmetry.base import AbstractGroup, Composition, Element


class FilterScaling(Element):
    """w_l ↦ λ_l w_l."""

    factors: Any

    def act(self, params: Any) -> Any:
        """(λ_1 w_1, …, λ_H w_H)."""
        return tuple(factor * w for factor, w in zip(self.factors, params, strict=True))

    @property
    def inverse(self) -> "FilterScaling":
        """1/λ_l."""
        return FilterScaling(1.0 / self.factors)

    def __matmul__(self, other: Any) -> Element:
        return (
            FilterScaling(self.factors * other.factors)
            if isinstance(other, FilterScaling)
            else Composition((self, other))
        )


@dataclass(frozen=True)
class FilterScalingGroup(AbstractGroup):
    """Rescalings w_l ↦ λ_l w_l with Π λ_l = 1 of a convolutional network.   [riemann, Prop. 2]

    λ_l > 0, and negative pairs as well where the network is linear. Coordinates ξ ∈ ℝ^{H−1}: λ_l = exp(ξ_{l−1} − ξ_l).

    >>> group = nm.symmetry.FilterScalingGroup(nm.LinearConvNet((2, 2), (1, 1)))
    >>> [w.tolist() for w in group.element(np.log([2.0]))((np.array([2.0, 4.0]), np.array([1.0, 0.0])))]
    [[1.0, 2.0], [2.0, 0.0]]
    """

    net: Any

    def __post_init__(self):
        require_filters(self.net, "FilterScalingGroup acts on the filters of an nm.LinearConvNet")

    @property
    def dimension(self) -> int:
        """H − 1."""
        return self.net.depth - 1

    def element(self, coordinates: Any) -> FilterScaling:
        """exp Σ ξ_l X_l."""
        if np.shape(coordinates) != (self.dimension,):
            raise ValueError(
                f"`coordinates` has shape {np.shape(coordinates)} but the group has dimension {self.dimension}; "
                "pass one number for each pair of neighbouring layers."
            )
        xi = np.asarray(coordinates, np.float64)
        return FilterScaling(np.exp(np.append(0.0, xi) - np.append(xi, 0.0)))

    @property
    def identity(self) -> FilterScaling:
        """The neutral element."""
        return self.element(np.zeros(self.dimension))

    def sample(self, *, key: Any) -> FilterScaling:
        """ξ uniform in [−1, 1]; where the network is linear, an even number of random signs."""
        rng = host_generator(key)
        signs = rng.choice([-1.0, 1.0], self.net.depth) if self.net.is_linear else np.ones(self.net.depth)
        signs[-1] *= np.prod(signs)
        return FilterScaling(signs * self.element(rng.uniform(-1.0, 1.0, self.dimension)).factors)

    def generators(self, params: Any) -> Float[np.ndarray, "g D"]:
        """X_l = (…, −w_l, w_{l+1}, …), one row for each pair of neighbouring layers."""
        self.net.check_params(params)
        filters = [np.asarray(w, np.float64).ravel() for w in params]
        stops = np.cumsum([len(w) for w in filters])
        rows = np.zeros((self.dimension, int(stops[-1])))
        for index, row in enumerate(rows):
            row[stops[index] - len(filters[index]) : stops[index]] = -filters[index]
            row[stops[index] : stops[index + 1]] = filters[index + 1]
        return rows
