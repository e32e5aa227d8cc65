"""Conservation laws of gradient flow and of momentum, from the affine fields that leave a network unchanged."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.precision import arithmetic, is_traced, promote, to_host
from neuromanifold.numerics.rank import SMALLEST_GAP
from neuromanifold.numerics.results import Result
from neuromanifold.symmetry.cut import cut
from neuromanifold.symmetry.flow import FlowGroup

_DEPENDENT = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class ConservationLaws(Result):
    """What flows on a loss of f keep, whatever data and loss: `symmetric` are the fields Aθ + b with A = Aᵀ, `skew` those with A = −Aᵀ.

    Gradient flow θ̇ = −∇L keeps Q = ½⟨θ, Aθ⟩ + ⟨b, θ⟩ for symmetric A, since Q̇ = ⟨Aθ + b, θ̇⟩ = 0. The heavy ball θ̈ + μθ̇ = −∇L
    keeps e^{μt}⟨θ̇, Aθ + b⟩ for skew A, since ⟨θ̇, Aθ̇⟩ = 0. Translations (A = 0) are both. Each family is independent at random parameters.
    `gap` is the narrowest ratio of what counted to what did not, over the spectra behind both numbers.
    """

    symmetric: FlowGroup
    skew: FlowGroup
    gap: float

    @property
    def decided(self) -> bool:
        """Whether the numbers of laws have a gap."""
        return self.gap >= SMALLEST_GAP

    def headline(self) -> str:
        """How many of each."""
        doubt = "" if self.decided else f" (undecided: gap {self.gap:.2g})"
        return f"{self.symmetric.dimension} of gradient flow, {self.skew.dimension} of momentum{doubt}"

    def quantities(self, params: Any) -> Any:
        """Q(θ) of every law of gradient flow."""
        if is_traced(params):
            return _quadratic(self.symmetric, params)
        with arithmetic():
            return to_host(_quadratic(self.symmetric, promote(params, np.float64)))

    def momenta(self, params: Any, velocity: Any, time: Any = 0.0, *, friction: float = 0.0) -> Any:
        """e^{μt}⟨θ̇, Aθ + b⟩ of every law of the heavy ball with friction μ."""
        fields = self.skew.generators(params)
        flat = (
            jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(velocity)])
            if is_traced(velocity)
            else _flat(velocity)
        )
        return np.exp(friction * time) * (fields @ flat)


def conservation_laws(group: FlowGroup) -> ConservationLaws:
    """The laws that a group's symmetric and skew fields give; a field that is neither gives none.

    >>> f = lambda params, x: x @ params[0] @ params[1]
    >>> params = (np.ones((3, 2)), np.ones((2, 3)))
    >>> nm.symmetry.conservation_laws(nm.symmetry.discover(f, params, np.ones((1, 3)), key=jax.random.key(0)).group)
    ConservationLaws(3 of gradient flow, 1 of momentum)
    """
    with arithmetic():
        rng = np.random.default_rng(0)
        probes = int(np.ceil(np.sqrt(2 * group.dimension))) + 4
        points = [[rng.standard_normal(shape) for shape in group.ansatz.shapes] for _ in range(probes)]
        flat = np.array([_flat(point) for point in points])
        linear = np.stack(
            [group.linear_images(point) @ flat.T for point in points], axis=1
        )  # ⟨u_j, A_k u_i⟩ at (k, i, j)
        linear = linear / max(np.abs(linear).max(initial=0.0), _size(group))
        turned = linear.transpose(0, 2, 1)
        (symmetric, one), (skew, two) = (
            _subgroup(group, linear - turned, "law"),
            _subgroup(group, linear + turned, "momentum"),
        )
        (symmetric, three), (skew, four) = _independent(symmetric, points[:2]), _independent(skew, points[:2])
        return ConservationLaws(symmetric, skew, min(one, two, three, four))


def _size(group: FlowGroup) -> float:
    """What a linear part of the fields' own size would be at least: translations have none but rounding."""
    return max(_DEPENDENT * float(np.linalg.norm(group.coefficients, axis=1).max(initial=0.0)), 1e-300)


def _subgroup(group: FlowGroup, conditions: np.ndarray, name: str) -> tuple[FlowGroup, float]:
    """The fields whose conditions, linear in them and of the size of 1, all vanish (the group's own where they suffice), and the gap."""
    if not group.dimension:
        return group, np.inf
    _, s, V = np.linalg.svd(conditions.reshape(group.dimension, -1).T)
    # The 1 is the size of what is not rounding, in case all of it is.
    found = cut(np.sort(np.append(1.0, s))[::-1], len(s) + 1)
    combinations = V[found.rank - 1 :]
    labels = tuple(f"{name}[{k}]" for k in range(len(combinations)))
    own = [k for k in range(group.dimension) if np.abs(conditions[k]).max() <= _DEPENDENT]
    if len(own) == len(combinations):
        combinations, labels = np.eye(group.dimension)[own], tuple(group.labels[k] for k in own)
    return replace(group, coefficients=combinations @ group.coefficients, labels=labels), found.gap


def _independent(group: FlowGroup, points: list[Any]) -> tuple[FlowGroup, float]:
    """The fields that are independent at a point, translations first, then those that do not follow; and the gap."""
    if not group.dimension:
        return group, np.inf
    values, linear = group.generators(points[0]), group.linear_images(points[1])
    sizes = np.linalg.norm(linear, axis=1)
    order = np.argsort(sizes > _DEPENDENT * np.linalg.norm(group.coefficients, axis=1), kind="stable")
    kept, basis, rests = list[int](), np.empty((0, values.shape[1])), np.ones(len(values))
    for k in order:
        rest = values[k] - basis.T @ (basis @ values[k])
        rest -= basis.T @ (basis @ rest)
        rests[k] = np.linalg.norm(rest) / max(float(np.linalg.norm(values[k])), 1e-300)
        if rests[k] > _DEPENDENT:
            basis = np.vstack([basis, rest / np.linalg.norm(rest)])
            kept.append(int(k))
    kept.sort()
    dropped = max(np.delete(rests, kept).max(initial=0.0), np.finfo(np.float64).eps)
    gap = float(rests[kept].min(initial=np.inf) / dropped) if len(kept) < len(rests) else np.inf
    labels = tuple(group.labels[k] for k in kept)
    return replace(group, coefficients=group.coefficients[kept], labels=labels), gap


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def _quadratic(group: FlowGroup, params: Any) -> Any:
    """½⟨θ, V(θ)⟩ + ½⟨θ, V(0)⟩."""
    leaves = jax.tree.leaves(params)
    flat = jnp.concatenate([leaf.reshape(-1) for leaf in leaves])
    whole, constant = (group.generators_at(at) for at in (leaves, [jnp.zeros_like(leaf) for leaf in leaves]))
    return (whole + constant) @ flat / 2
