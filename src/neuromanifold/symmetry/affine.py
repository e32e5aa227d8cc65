"""`AffineFields`: the generators of a group as vector fields θ ↦ Aθ + b, and their combinations."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.numerics.precision import arithmetic, is_traced
from neuromanifold.numerics.validation import indefinite
from neuromanifold.symmetry.base import LieGroup
from neuromanifold.symmetry.flow import FlowGroup
from neuromanifold.symmetry.hadamard import HadamardGroup
from neuromanifold.symmetry.product import NetworkGroup

_ROUNDED = 1e-10


@dataclass(frozen=True, eq=False)
class AffineFields:
    """Σ_k c_k X_k(θ) = Aθ + b for each row c of `combinations`, X_k the generators of `group`; `shapes` has the shapes of θ."""

    group: LieGroup | HadamardGroup
    shapes: Any
    combinations: Float[np.ndarray, "k g"]
    labels: tuple[str, ...]

    @staticmethod
    def of(group: Any) -> "AffineFields":
        """All generators of a group, or one sentence on why they are no such fields."""
        own = _continuous(group)
        fields = AffineFields(own, _shapes(own), np.eye(own.dimension), _labels(own))
        fields._check()
        return fields

    @property
    def dimension(self) -> int:
        """How many fields."""
        return len(self.combinations)

    def generators(self, params: Any) -> Float[Any, "k D"]:
        """The fields at θ, one row each, columns in `ravel_pytree(params)` order."""
        rows = self.group.generators(params)
        return jnp.asarray(self.combinations, rows.dtype) @ rows if is_traced(rows) else self.combinations @ rows

    def linear_images(self, params: Any) -> Float[Any, "k D"]:
        """Aθ for the linear part A of each field."""
        return self.generators(params) - self.generators(jax.tree.map(lambda a: 0.0 * a, params))

    def combined(self, combinations: Float[np.ndarray, "k g"], labels: tuple[str, ...]) -> "AffineFields":
        """Combinations of these."""
        return AffineFields(self.group, self.shapes, combinations @ self.combinations, labels)

    def draw(self, rng: np.random.Generator) -> Any:
        """Standard normal θ."""
        return jax.tree.map(lambda a: rng.standard_normal(a.shape), self.shapes)

    def _check(self) -> None:
        """X(θ + η) − X(θ) = X(η) − X(0) at random θ, η."""
        rng = np.random.default_rng(0)
        with arithmetic():
            one, two = self.draw(rng), self.draw(rng)
            both = self.generators(jax.tree.map(np.add, one, two))
            off = both - self.generators(one) - self.linear_images(two)
        if np.abs(off).max(initial=0.0) > _ROUNDED * max(float(np.abs(both).max(initial=0.0)), 1.0):
            raise ValueError(
                f"`group` is {indefinite(self.group)}, whose generators are not affine in the parameters; "
                "pass a group of linear maps and translations."
            )


def _continuous(group: Any) -> LieGroup | HadamardGroup:
    if isinstance(group, NetworkGroup):
        return group.flows
    if not isinstance(group, LieGroup | HadamardGroup):
        raise TypeError(
            f"`group` is {indefinite(group)}, which has no generators; pass a continuous group such as "
            "`nm.symmetry_group(net)`, or the `.group` of what `nm.symmetry.discover` found."
        )
    return group


def _shapes(group: Any) -> Any:
    """θ as a tree of shapes."""
    if isinstance(group, FlowGroup):
        return [jax.ShapeDtypeStruct(shape, np.float64) for shape in group.ansatz.shapes]
    drawn = jax.eval_shape(lambda key: group.net.init(key=key), jax.random.key(0))
    return group.extend(jax.tree.map(lambda a: np.zeros(a.shape), drawn))


def _labels(group: Any) -> tuple[str, ...]:
    if isinstance(group, FlowGroup) and group.labels:
        return group.labels
    name = type(group).__name__.removesuffix("Group").lower()
    return tuple(f"{name}[{k}]" for k in range(group.dimension))
