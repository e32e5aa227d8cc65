"""`ScalingGroup`: homogeneous neurons may be rescaled."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.symmetry.groups import neurons
from neuromanifold.symmetry.groups.base import ContinuousGroup, check_net, namespace
from neuromanifold.symmetry.groups.monomial import Monomial, monomial
from neuromanifold.tangent.rank.fields import ParameterLayout, VectorFields, join, mixing


@dataclass(frozen=True)
class ScalingGroup(ContinuousGroup):
    """Rescalings of neurons homogeneous of degree d: incoming weights and bias × c, outgoing
    weights × c^{−d}.   [teleport, Eq. 5]

    c > 0, and c < 0 as well where σ(cz) = c^d σ(z) holds for all real c (identity, power). Neurons
    that are not homogeneous stay. Coordinates are ξ = log c, one for each homogeneous neuron in
    network order.

    >>> group = nm.symmetry.ScalingGroup(nm.MLP((1, 1, 1), nm.power(2), bias=False))
    >>> g = group.element(np.log([2.0]))
    >>> [float(layer.weight[0, 0]) for layer in g((nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]]))))]
    [2.0, 0.25]
    """

    net: MLP

    def __post_init__(self):
        check_net(self.net, "ScalingGroup")
        neurons.require(
            self.net,
            "ScalingGroup",
            lambda a: a.degree is not None,
            "is not homogeneous",
            "σ(cz) = c^d σ(z), as relu, leaky_relu, abs, power(d) and identity have it",
        )

    @cached_property
    def degrees(self) -> tuple[np.ndarray, ...]:
        """d for each hidden neuron, nan where the activation is not homogeneous."""
        return tuple(neurons.hidden_property(self.net, neurons.degree))

    @cached_property
    def fields(self) -> VectorFields:
        """δ(W, b)_i = (W, b)_i, δV_{·i} = −d V_{·i}."""
        layout = ParameterLayout(self.net)
        parts = [
            mixing(layout, layer, int(i), int(i), 1.0, float(d[i]))
            for layer, d in enumerate(self.degrees)
            for i in np.flatnonzero(~np.isnan(d))
        ]
        return join(self.net, parts)

    def exponential(self, coordinates: Any) -> Monomial:
        """Return the element with factors c = exp ξ for `coordinates` ξ."""
        xp, start, into, out = namespace(coordinates), 0, [], []
        # The last entry, 0, is the logarithm of every neuron that has no factor.
        extended = xp.append(coordinates, xp.zeros((), coordinates.dtype))
        for d in self.degrees:
            scaled = ~np.isnan(d)
            logs = extended[np.where(scaled, start + np.cumsum(scaled) - 1, -1)]
            into.append(xp.exp(logs))
            out.append(xp.exp(np.nan_to_num(d).astype(coordinates.dtype) * logs))
            start += int(scaled.sum())
        return monomial(self.net, into=into, out=out)

    def clip(self, coordinates: Any, bound: float) -> Any:
        """Clip `coordinates` log c to |log c| ≤ log(`bound`)/(1 + d): Γ multiplies a weight between
        neurons j and i by c_j^d/c_i, so ‖Γ‖ ≤ `bound`.
        """
        largest = max(float(np.nanmax(d, initial=0.0)) for d in self.degrees)
        limit = np.log(bound) / (1 + largest)
        return jnp.clip(coordinates, -limit, limit)

    def sample(self, *, key: Key) -> Monomial:
        """Draw log|c| uniform in [−1, 1]; a random sign where negative factors are allowed."""
        rng = host_generator(key)
        logs = rng.uniform(-1.0, 1.0, self.dimension)
        element = self._flips(rng.random(self.net.hidden) < 0.5) @ self.element(logs)
        assert isinstance(element, Monomial)
        return element

    def _flips(self, flips: np.ndarray) -> Monomial:
        real = np.concatenate(neurons.hidden_property(self.net, neurons.is_real))
        signs = np.where(flips & real, -1.0, 1.0)
        by_layer = np.split(signs, np.cumsum(self.net.widths[1:-1])[:-1])
        out = [
            s ** np.nan_to_num(d)
            for s, d in zip(by_layer, map(_integer, self.degrees), strict=True)
        ]
        return monomial(self.net, into=by_layer, out=out)


def _integer(degrees: np.ndarray) -> np.ndarray:
    """Degrees that allow negative factors are whole numbers; the parity of the others is not
    asked for.
    """
    return np.where(degrees == np.round(degrees), degrees, 0.0)
