"""`FilterScalingGroup`: the layers of a convolutional network may be rescaled against each
other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.models.model_kind import require_filters
from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.randomness import host_generator
from neuromanifold.symmetry.groups.base import Composition, Element, LieGroup, namespace
from neuromanifold.symmetry.groups.hadamard import flatten


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
class FilterScalingGroup(LieGroup):
    """Rescalings w_l ↦ λ_l w_l with Π λ_l = 1 of a convolutional network.   [riemann, Prop. 2]

    λ_l > 0, and negative pairs as well where the network is linear. Coordinates ξ ∈ ℝ^{H−1}: λ_l =
    exp(ξ_{l−1} − ξ_l).

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

    def exponential(self, coordinates: Any) -> FilterScaling:
        """exp Σ ξ_l X_l."""
        numpy, end = namespace(coordinates), np.zeros(1)
        return FilterScaling(
            numpy.exp(numpy.append(end, coordinates) - numpy.append(coordinates, end))
        )

    def sample(self, *, key: Any) -> FilterScaling:
        """ξ uniform in [−1, 1]; where the network is linear, an even number of random signs."""
        rng = host_generator(key)
        signs = (
            rng.choice([-1.0, 1.0], self.net.depth)
            if self.net.is_linear
            else np.ones(self.net.depth)
        )
        signs[-1] *= np.prod(signs)
        return FilterScaling(
            signs * self.exponential(rng.uniform(-1.0, 1.0, self.dimension)).factors
        )

    def generators(self, params: Any) -> Float[Any, "g D"]:
        """X_l = (…, −w_l, w_{l+1}, …), one row for each pair of neighbouring layers."""
        self.net.check_params(params)
        sizes = [int(np.prod(shape)) for shape in self.net.filter_shapes]
        signs = np.eye(self.net.depth, k=1)[:-1] - np.eye(self.net.depth)[:-1]
        flat = (
            flatten(params)
            if is_traced(params)
            else flatten([np.asarray(w, np.float64) for w in params])
        )
        return np.repeat(signs, sizes, axis=1) * flat
