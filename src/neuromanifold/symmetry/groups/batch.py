"""`BatchGroup`: a nonlinear symmetry that depends on the data."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import apply_activation
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.results import Shown
from neuromanifold.symmetry.groups.base import AbstractGroup, Element, check_net
from neuromanifold.symmetry.groups.dense import inverse


class BatchElement(Element):
    """(V, b) ↦ (gV, gb), U ↦ U σ(Z) σ(gZ)⁻¹ with Z = VXᵀ + b: hidden features change, the
    outputs on the batch do not.
    """

    matrix: Any
    x: Any
    net: MLP = eqx.field(static=True)

    def act(self, params: Any) -> Any:
        """Return g(θ)."""
        (weight, bias), output = params
        matrix = self.matrix.astype(weight.dtype)
        before = self._features(weight, bias)
        weight, bias = matrix @ weight, None if bias is None else matrix @ bias
        after = self._features(weight, bias)
        return Layer(weight, bias), Layer(
            jnp.linalg.solve(after.T, before.T @ output.weight.T).T, output.bias
        )

    def _features(self, weight: Any, bias: Any) -> Any:
        z = self.x.astype(weight.dtype) @ weight.T * self.net.weight_scales[0]
        return apply_activation(self.net.activation[0], z if bias is None else z + bias).T

    @property
    def inverse(self) -> "BatchElement":
        """Return the element by g⁻¹."""
        return BatchElement(inverse(self.matrix), self.x, self.net)

    def __matmul__(self, other: "BatchElement") -> "BatchElement":
        return BatchElement(self.matrix @ other.matrix, self.x, self.net)


@dataclass(frozen=True, eq=False, repr=False)
class BatchGroup(Shown, AbstractGroup):
    """GL(h) near the identity acting on a network with one hidden layer of width h, for a batch of
    h samples.

    g·(V, b, U) = (gV, gb, U σ(Z)σ(gZ)⁻¹), Z = VXᵀ + b. Any activation will do, where σ(Z) and σ(gZ)
    are invertible. The action is nonlinear in θ, so the Hessian of the loss on the batch transforms
    with both terms of [teleport, Eq. 67]. It changes the function off the batch.
    """

    net: MLP
    x: np.ndarray

    def __post_init__(self):
        check_net(self.net, "BatchGroup")
        if self.net.depth != 2 or len(self.x) != self.net.widths[1]:
            raise ValueError(
                f"`net` is {self.net} and `x` has {len(self.x)} samples; BatchGroup needs one "
                "hidden layer and as many "
                "samples as hidden neurons."
            )

    @property
    def identity(self) -> BatchElement:
        """Return the element with g = I."""
        return BatchElement(np.eye(self.net.widths[1]), np.asarray(self.x, np.float64), self.net)

    def sample(self, *, key: Key) -> BatchElement:
        """Draw exp of a matrix with entries N(0, 1/16h)."""
        from scipy.linalg import expm

        h = self.net.widths[1]
        matrix = expm(host_generator(key).standard_normal((h, h)) / (4 * h**0.5))
        return BatchElement(matrix, np.asarray(self.x, np.float64), self.net)
