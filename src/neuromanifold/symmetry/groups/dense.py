"""Elements that mix and translate the linear neurons of a layer."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.arguments import Params
from neuromanifold.models.init import Layer
from neuromanifold.symmetry.groups.base import Composition, Element


class AffineElement(Element):
    """z' = Az + t before and a' = Ba + c after the activation of each hidden layer.

    On parameters: W' = AW, b' = Ab + t, and for the next layer V' = VB⁻¹, b'_next = b_next −
    scale·VB⁻¹c.
    For neurons with σ(z) = Sz, B = SAS⁻¹ and c = St.   [complexity, Eq. 3]
    """

    into: tuple[Any, ...]
    out: tuple[Any, ...]
    shift_in: tuple[Any, ...]
    shift_out: tuple[Any, ...]
    scales: tuple[float, ...] = eqx.field(static=True)

    def act(self, params: Params) -> Any:
        """Return g(θ)."""
        layers = []
        for index, (weight, bias) in enumerate(params):
            if index:
                weight = solve(self.out[index - 1].T.astype(weight.dtype), weight.T).T
                shift = weight @ self.shift_out[index - 1].astype(weight.dtype)
                bias = (
                    None
                    if bias is None
                    else bias - (self.scales[index] * shift).astype(weight.dtype)
                )
            if index < len(self.into):
                matrix = self.into[index].astype(weight.dtype)
                weight = matrix @ weight
                bias = (
                    None
                    if bias is None
                    else matrix @ bias + self.shift_in[index].astype(weight.dtype)
                )
            layers.append(Layer(weight, bias))
        return tuple(layers)

    @property
    def inverse(self) -> "AffineElement":
        """z = A⁻¹z' − A⁻¹t."""
        into = tuple(inverse(a) for a in self.into)
        out = tuple(inverse(b) for b in self.out)
        return AffineElement(
            into,
            out,
            tuple(-a @ t for a, t in zip(into, self.shift_in, strict=True)),
            tuple(-b @ c for b, c in zip(out, self.shift_out, strict=True)),
            self.scales,
        )

    def __matmul__(self, other: Any) -> Element:
        if not isinstance(other, AffineElement):
            return Composition((self,)) @ other
        return AffineElement(
            tuple(a @ b for a, b in zip(self.into, other.into, strict=True)),
            tuple(a @ b for a, b in zip(self.out, other.out, strict=True)),
            tuple(
                a @ t + s for a, s, t in zip(self.into, self.shift_in, other.shift_in, strict=True)
            ),
            tuple(
                a @ t + s for a, s, t in zip(self.out, self.shift_out, other.shift_out, strict=True)
            ),
            self.scales,
        )


def inverse(matrix: Any) -> Any:
    """Return the inverse of a NumPy array or a tracer."""
    return np.linalg.inv(matrix) if isinstance(matrix, np.ndarray) else jnp.linalg.inv(matrix)


def solve(matrix: Any, right: Any) -> Any:
    """Return the solution of a linear system, for NumPy arrays or tracers."""
    numpy = isinstance(matrix, np.ndarray) and isinstance(right, np.ndarray)
    return np.linalg.solve(matrix, right) if numpy else jnp.linalg.solve(matrix, right)
