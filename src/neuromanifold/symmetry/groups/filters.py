"""`FilterScalingGroup`: the layers of a convolutional network may be rescaled against each
other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.models.arguments import Params
from neuromanifold.models.model_kind import require_filters
from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.symmetry.groups.base import LieGroup, flatten, namespace
from neuromanifold.symmetry.groups.monomial import Monomial


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

    def exponential(self, coordinates: Any) -> Monomial:
        """Return exp Σ ξ_l X_l for `coordinates` ξ."""
        return self._scale(self._factors(coordinates))

    def _factors(self, coordinates: Any) -> Any:
        numpy, end = namespace(coordinates), np.zeros(1)
        return numpy.exp(numpy.append(end, coordinates) - numpy.append(coordinates, end))

    def _scale(self, factors: Any) -> Monomial:
        """Return the element w_l ↦ λ_l w_l: the first axis of each filter takes its factor."""
        shapes = self.net.filter_shapes
        ones = [tuple(map(np.ones, shape)) for shape in shapes]
        return Monomial(
            tuple(tuple(map(np.arange, shape)) for shape in shapes),
            tuple((f * u, *rest) for f, (u, *rest) in zip(factors, ones, strict=True)),
        )

    def sample(self, *, key: Key) -> Monomial:
        """Draw ξ uniform in [−1, 1]; where the network is linear, an even number of random signs."""
        rng, depth = host_generator(key), self.net.depth
        signs = rng.choice([-1.0, 1.0], depth) if self.net.is_linear else np.ones(depth)
        signs[-1] *= np.prod(signs)
        return self._scale(signs * self._factors(rng.uniform(-1.0, 1.0, self.dimension)))

    def generators(self, params: Params) -> Float[Any, "g D"]:
        """Return X_l = (…, −w_l, w_{l+1}, …), one row for each pair of neighbouring layers."""
        self.net.check_params(params)
        sizes = [int(np.prod(shape)) for shape in self.net.filter_shapes]
        signs = np.eye(self.net.depth, k=1)[:-1] - np.eye(self.net.depth)[:-1]
        flat = (
            flatten(params)
            if is_traced(params)
            else flatten([np.asarray(w, np.float64) for w in params])
        )
        return np.repeat(signs, sizes, axis=1) * flat
