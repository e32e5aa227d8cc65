"""Conservation laws of gradient flow and of momentum, from the affine fields that leave a
network unchanged.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.models.arguments import Params
from neuromanifold.numerics.precision import arithmetic, follower, is_traced, promote, to_host
from neuromanifold.numerics.rank import SMALLEST_GAP
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import indefinite
from neuromanifold.symmetry.discovery.numerical_null_space import spectral_gap
from neuromanifold.symmetry.groups.base import LieGroup, flatten
from neuromanifold.symmetry.groups.flow import FlowGroup
from neuromanifold.symmetry.groups.product import NetworkGroup

_ROUNDED = 1e-10


@dataclass(frozen=True, eq=False)
class AffineFields:
    """Σ_k c_k X_k(θ) = Aθ + b for each row c of `combinations`, X_k the generators of `group`;
    `shapes` has the shapes of θ.
    """

    group: LieGroup
    shapes: Any
    combinations: Float[np.ndarray, "k g"]
    labels: tuple[str, ...]

    @staticmethod
    def of(group: Any) -> "AffineFields":
        """Return all generators of a group, or one sentence on why they are no such fields."""
        own = _continuous(group)
        fields = AffineFields(own, _shapes(own), np.eye(own.dimension), _labels(own))
        fields._check()
        return fields

    @property
    def dimension(self) -> int:
        """How many fields."""
        return len(self.combinations)

    def generators(self, params: Any) -> Float[Any, "k D"]:
        """Return the fields at θ, one row each, columns in `ravel_pytree(params)` order."""
        rows = self.group.generators(params)
        return (
            jnp.asarray(self.combinations, rows.dtype) @ rows
            if is_traced(rows)
            else self.combinations @ rows
        )

    def linear_images(self, params: Any) -> Float[Any, "k D"]:
        """Return Aθ for the linear part A of each field."""
        return self.generators(params) - self.generators(jax.tree.map(lambda a: 0.0 * a, params))

    def combined(
        self, combinations: Float[np.ndarray, "k g"], labels: tuple[str, ...]
    ) -> "AffineFields":
        """Return combinations of these fields."""
        return AffineFields(self.group, self.shapes, combinations @ self.combinations, labels)

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw θ from the standard normal distribution."""
        return jax.tree.map(lambda a: rng.standard_normal(a.shape), self.shapes)

    def _check(self) -> None:
        """Check that X(θ + η) − X(θ) = X(η) − X(0) at random θ, η."""
        rng = np.random.default_rng(0)
        with arithmetic():
            one, two = self.draw(rng), self.draw(rng)
            both = self.generators(jax.tree.map(np.add, one, two))
            off = both - self.generators(one) - self.linear_images(two)
        if np.abs(off).max(initial=0.0) > _ROUNDED * max(float(np.abs(both).max(initial=0.0)), 1.0):
            raise ValueError(
                f"`group` is {indefinite(self.group)}, whose generators are not affine in the "
                "parameters; "
                "pass a group of linear maps and translations."
            )


def _continuous(group: Any) -> LieGroup:
    if isinstance(group, NetworkGroup):
        return group.flows
    if not isinstance(group, LieGroup):
        raise TypeError(
            f"`group` is {indefinite(group)}, which has no generators; pass a continuous group "
            "such as "
            "`nm.symmetry_group(net)`, or the `.group` of what `nm.symmetry.discover` found."
        )
    return group


def _shapes(group: Any) -> Any:
    """Return θ as a tree of shapes."""
    if isinstance(group, FlowGroup):
        return [jax.ShapeDtypeStruct(shape, np.float64) for shape in group.ansatz.shapes]
    drawn = jax.eval_shape(lambda key: group.net.init(key=key), jax.random.key(0))
    return group.extend(jax.tree.map(lambda a: np.zeros(a.shape), drawn))


def _labels(group: Any) -> tuple[str, ...]:
    if isinstance(group, FlowGroup) and group.labels:
        return group.labels
    name = type(group).__name__.removesuffix("Group").lower()
    return tuple(f"{name}[{k}]" for k in range(group.dimension))


_DEPENDENT = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class ConservationLaws(Result):
    """What flows on a loss of f keep, whatever data and loss: `symmetric` are the fields Aθ + b
    with A = Aᵀ, `skew` those with A = −Aᵀ.

    Gradient flow θ̇ = −∇L keeps Q = ½⟨θ, Aθ⟩ + ⟨b, θ⟩ for symmetric A, since Q̇ = ⟨Aθ + b, θ̇⟩ = 0.
    The heavy ball θ̈ + μθ̇ = −∇L keeps e^{μt}⟨θ̇, Aθ + b⟩ for skew A, since ⟨θ̇, Aθ̇⟩ = 0.
    Translations (A = 0) are both. Each family is independent at random parameters. `gap` is the
    narrowest ratio of what counted to what did not, over the spectra behind both numbers.
    """

    symmetric: AffineFields
    skew: AffineFields
    gap: float

    @property
    def decided(self) -> bool:
        """Whether the numbers of laws have a gap."""
        return self.gap >= SMALLEST_GAP

    def headline(self) -> str:
        """Say how many laws of each kind there are."""
        doubt = "" if self.decided else f" (undecided: gap {self.gap:.2g})"
        return (
            f"{self.symmetric.dimension} of gradient flow, {self.skew.dimension} of momentum{doubt}"
        )

    def quantities(self, params: Params) -> Any:
        """Return Q(θ) of every law of gradient flow."""
        if is_traced(params):
            return _quadratic(self.symmetric, params)
        follow = follower(params)
        with arithmetic():
            found = np.asarray(_quadratic(self.symmetric, promote(params, np.float64)))
        return follow(found)

    def momenta(
        self, params: Params, velocity: Any, time: Any = 0.0, *, friction: float = 0.0
    ) -> Any:
        """Return e^{μt}⟨θ̇, Aθ + b⟩ of every law of the heavy ball: θ̇ is `velocity`, t `time`, μ `friction`."""
        given, expected = (
            [np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (velocity, params)
        )
        if given != expected:
            raise ValueError(
                f"`velocity` has arrays of shapes {given} and `params` {expected}; pass θ̇ in the "
                "form of θ."
            )
        if is_traced((params, velocity)):
            return jnp.exp(friction * time) * (self.skew.generators(params) @ flatten(velocity))
        follow = follower(params, velocity)
        with arithmetic():
            theta, speed = promote((params, velocity), np.float64)
            found = np.exp(friction * time) * (
                np.asarray(self.skew.generators(theta)) @ np.asarray(flatten(speed))
            )
        return follow(found)


def conservation_laws(group: Any) -> ConservationLaws:
    """Return the laws that a continuous group's symmetric and skew fields give; a field that is
    neither gives none.

    Of every group with generators: of a described network (`nm.symmetry_group(net)`,
    `ScalingGroup`, …), of any network (`nm.symmetry_group(f, params, x, key=key)`), and of one that
    `discover` found.

    `group` is a continuous one, such as `discover` finds.

    >>> f = lambda params, x: x @ params[0] @ params[1]
    >>> params = (np.ones((3, 2)), np.ones((2, 3)))
    >>> nm.symmetry.conservation_laws(nm.symmetry.discover(f, params, np.ones((1, 3)), key=jax.random.key(0)).group)
    ConservationLaws(3 of gradient flow, 1 of momentum)
    >>> nm.symmetry.conservation_laws(nm.symmetry_group(nm.MLP((3, 2, 3), "identity", bias=False)))
    ConservationLaws(3 of gradient flow, 1 of momentum)
    """
    fields, rng = AffineFields.of(group), np.random.default_rng(0)
    with arithmetic():
        points = [fields.draw(rng) for _ in range(int(np.ceil(np.sqrt(2 * fields.dimension))) + 4)]
        flat = np.array([np.asarray(flatten(point)) for point in points])
        images = [to_host(fields.linear_images(point)) for point in points]
        linear = np.stack(
            [image @ flat.T for image in images], axis=1
        )  # ⟨u_j, A_k u_i⟩ at (k, i, j)
        linear = linear / max(np.abs(linear).max(initial=0.0), _size(fields, points[0]))
        turned = linear.transpose(0, 2, 1)
        (symmetric, one), (skew, two) = (
            _subspace(fields, linear - turned, "law"),
            _subspace(fields, linear + turned, "momentum"),
        )
        (symmetric, three), (skew, four) = (
            _independent(symmetric, points[:2]),
            _independent(skew, points[:2]),
        )
        return ConservationLaws(symmetric, skew, min(one, two, three, four))


def _size(fields: AffineFields, point: Any) -> float:
    """Return what a linear part of the fields' own size would be at least: translations have none
    but rounding.
    """
    return max(
        _DEPENDENT * float(np.linalg.norm(fields.generators(point), axis=1).max(initial=0.0)),
        1e-300,
    )


def _subspace(
    fields: AffineFields, conditions: np.ndarray, name: str
) -> tuple[AffineFields, float]:
    """Return the fields whose conditions, linear in them and of the size of 1, all vanish (the
    group's own where they suffice), and the gap.
    """
    if not fields.dimension:
        return fields, np.inf
    _, s, V = np.linalg.svd(conditions.reshape(fields.dimension, -1).T)
    # The 1 is the size of what is not rounding, in case all of it is.
    found = spectral_gap(np.sort(np.append(1.0, s))[::-1], len(s) + 1)
    combinations = V[found.rank - 1 :]
    labels = tuple(f"{name}[{k}]" for k in range(len(combinations)))
    own = [k for k in range(fields.dimension) if np.abs(conditions[k]).max() <= _DEPENDENT]
    if len(own) == len(combinations):
        combinations, labels = np.eye(fields.dimension)[own], tuple(fields.labels[k] for k in own)
    return fields.combined(combinations, labels), found.gap


def _independent(fields: AffineFields, points: list[Any]) -> tuple[AffineFields, float]:
    """Return the fields that are independent at a point, translations first, then those that do not
    follow; and the gap.
    """
    if not fields.dimension:
        return fields, np.inf
    values = np.asarray(fields.generators(points[0]))
    linear = np.asarray(fields.linear_images(points[1]))
    order = np.argsort(
        np.linalg.norm(linear, axis=1) > _DEPENDENT * np.linalg.norm(values, axis=1), kind="stable"
    )
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
    return fields.combined(
        np.eye(fields.dimension)[kept], tuple(fields.labels[k] for k in kept)
    ), gap


def _quadratic(fields: AffineFields, params: Any) -> Any:
    """Return ½⟨θ, V(θ)⟩ + ½⟨θ, V(0)⟩."""
    whole, constant = (
        fields.generators(at) for at in (params, jax.tree.map(jnp.zeros_like, params))
    )
    return (whole + constant) @ flatten(params) / 2
