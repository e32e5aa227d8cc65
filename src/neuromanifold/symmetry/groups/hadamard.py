"""Generalised symmetries: any invertible matrix, once the model is extended by it.
[teleport, App. C]
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.graph.reading import call, evaluate
from neuromanifold.models.init import Layer
from neuromanifold.models.losses import Loss, mse
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics.precision import (
    arithmetic,
    boundary,
    full_products,
    is_traced,
    promote,
    to_host,
    widest,
)
from neuromanifold.numerics.randomness import host_generator
from neuromanifold.numerics.results import Shown, brief, show_record
from neuromanifold.symmetry.conservation.scales import SEARCH, ScaleSearch, hadamard_scales
from neuromanifold.symmetry.groups.base import AbstractGroup, Element, LieGroup, flatten, namespace
from neuromanifold.symmetry.groups.dense import inverse, solve
from neuromanifold.symmetry.groups.linear import random_invertible


class Extended(NamedTuple):
    """The parameters (Γ̃, θ) of an extended model: `factors` (a tree c like θ, or a D×D matrix)
    and `params`.
    """

    factors: Any
    params: Any

    def __repr__(self) -> str:
        return show_record(self)


def _product(factors: Any, params: Any) -> Any:
    """Return c ⊙ θ, or Γ̃θ when `factors` is a matrix."""
    if isinstance(factors, tuple):
        return jax.tree.map(lambda c, p: jnp.asarray(c, p.dtype) * p, factors, params)
    flat, unravel = ravel_pytree(params)
    return unravel(factors.astype(flat.dtype) @ flat)


@dataclass(frozen=True)
class ExtendedModel:
    """F̃(Γ̃, θ) = F(Γ̃θ), a model whose parameters are `Extended`; `frozen(factors)` is the model
    of θ alone.   [teleport, Eq. 44, 47]

    >>> model = nm.symmetry.ExtendedModel(lambda params, x: params[0] * x)
    >>> float(model(nm.symmetry.Extended((np.array(2.0),), (np.array(3.0),)), np.ones((1, 1)))[0, 0])
    6.0
    """

    f: Any

    def __call__(self, params: Any, x: Any) -> Any:
        """F(Γ̃θ)(x)."""
        if is_traced((params, x)):
            with full_products():
                return call(self.f, _product(*params), x)
        with boundary(params, x) as leave:
            dtype = widest(params, x)
            return leave(
                evaluate(self.f, _product(*promote(tuple(params), dtype)), promote(x, dtype))
            )

    def frozen(self, factors: Any) -> "TransformedModel":
        """Return the model θ ↦ F(Γ̃θ) with Γ̃ = `factors` no longer a parameter: what one trains after the
        transformation.
        """
        return TransformedModel(self.f, _Static(to_host(factors)))


@dataclass(frozen=True, eq=False)
class _Static:
    """Constant arrays, hashed by identity, so that a model holding them can be a static argument
    of `jit`.
    """

    value: Any


@dataclass(frozen=True, repr=False)
class TransformedModel(Shown):
    """θ ↦ F(Γ̃θ) with Γ̃ fixed.   [teleport, Eq. 48]"""

    f: Any
    constant: _Static

    def headline(self) -> str:
        """Say the model and how many numbers are fixed."""
        return f"{brief(self.f)}, factors {brief(self.constant.value)}"

    def __call__(self, params: Any, x: Any) -> Any:
        """F(Γ̃θ)(x)."""
        return ExtendedModel(self.f)(Extended(self.constant.value, params), x)


class Reparametrization(Element):
    """(Γ̃, θ) ↦ (Γ̃Γ, Γ⁻¹θ): the function stays, its gradient by θ becomes Γᵀ∇F.
    [teleport, Eq. 45]
    """

    factors: Any

    def act(self, params: Any) -> Any:
        """Return g(Γ̃, θ)."""
        found, theta = params
        if isinstance(self.factors, tuple):
            return Extended(
                jax.tree.map(lambda c, g: c * g.astype(c.dtype), found, self.factors),
                jax.tree.map(lambda p, g: p / g.astype(p.dtype), theta, self.factors),
            )
        matrix = self.factors.astype(jax.tree.leaves(theta)[0].dtype)
        return Extended(found @ matrix, unflatten(theta, solve(matrix, flatten(theta))))

    @property
    def inverse(self) -> "Reparametrization":
        """Return the element by Γ⁻¹."""
        if isinstance(self.factors, tuple):
            return Reparametrization(jax.tree.map(lambda c: 1 / c, self.factors))
        return Reparametrization(inverse(self.factors))

    def __matmul__(self, other: "Reparametrization") -> "Reparametrization":
        if isinstance(self.factors, tuple):
            return Reparametrization(jax.tree.map(lambda a, b: a * b, self.factors, other.factors))
        return Reparametrization(other.factors @ self.factors)


@dataclass(frozen=True)
class HadamardGroup(LieGroup):
    """c ∈ ℝ^D, c > 0, acting on F̃(c̃, θ) = F(c̃ ⊙ θ) by (c̃, θ) ↦ (c̃ ⊙ c, θ ⊘ c).
    [teleport, Eq. 47]

    A symmetry of the extended model of *any* network. Where a true scaling symmetry multiplies θ by
    c⁻¹, the function of θ after both has the same derivatives. Coordinates are ξ = log c.

    >>> nm.symmetry.HadamardGroup(nm.MLP((1, 2, 1), "tanh")).dimension
    7
    """

    net: MLP

    def __post_init__(self):
        require_perceptron(self.net, "HadamardGroup acts on the parameters of an nm.MLP")

    @property
    def model(self) -> ExtendedModel:
        """F̃(c̃, θ) = F(c̃ ⊙ θ)."""
        return ExtendedModel(self.net)

    @property
    def dimension(self) -> int:
        """D."""
        return self.net.n_params

    def extend(self, params: Params) -> Extended:
        """Return (1, θ)."""
        with arithmetic():
            dtype = widest(params)
            return to_host(
                Extended(jax.tree.map(lambda p: jnp.ones(np.shape(p), dtype), params), params)
            )

    def exponential(self, coordinates: Any) -> Reparametrization:
        """Return the element c = exp ξ for `coordinates` ξ."""
        return Reparametrization(
            unflatten(template(self.net), namespace(coordinates).exp(coordinates))
        )

    def clip(self, coordinates: Any, bound: float) -> Any:
        """Clip `coordinates` ξ to |ξ| ≤ log(`bound`), since Γ = diag(c)."""
        return jnp.clip(coordinates, -np.log(bound), np.log(bound))

    def generators(self, params: Any) -> Float[Any, "g both"]:
        """Return δc̃_k = c̃_k, δθ_k = −θ_k, one row for each parameter, columns those of
        `Extended`.
        """
        with boundary(params) as leave:
            factors, theta = (ravel_pytree(promote(part, widest(params)))[0] for part in params)
            return leave(jnp.concatenate([jnp.diag(factors), -jnp.diag(theta)], axis=1))

    def sample(self, *, key: Any) -> Reparametrization:
        """Draw log c uniform in [−1, 1]."""
        return self.exponential(host_generator(key).uniform(-1.0, 1.0, self.dimension))

    def search(
        self, params: Params, x: Any, y: Any, *, loss: Loss = mse, method: ScaleSearch = SEARCH
    ) -> Reparametrization:
        """Search a c that raises ‖∇L‖ by `method`, as in App. E: Adam on c itself from c = 1, in the dtype of
        `params`.   [teleport, App. E]

        `teleport` with this group searches log c instead, and returns its best point with evidence.

        >>> group = nm.symmetry.HadamardGroup(nm.MLP((1, 1, 1), bias=False))
        >>> params = (nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]])))
        >>> squared = lambda prediction, target: ((prediction - target) ** 2).sum()
        >>> c = group.search(params, np.ones((1, 1)), np.zeros((1, 1)), loss=squared)      # four steps of 0.01
        >>> round(float(c.factors[0].weight[0, 0]), 4)
        1.04
        """
        with arithmetic():
            params, x, y = promote((params, x, y), widest(params))
            return Reparametrization(to_host(hadamard_scales(self.net, loss, method, params, x, y)))


@dataclass(frozen=True)
class MatrixGroup(AbstractGroup):
    """All invertible D×D matrices Γ acting on F̃(Γ̃, θ) = F(Γ̃θ) by (Γ̃, θ) ↦ (Γ̃Γ, Γ⁻¹θ).
    [teleport, Eq. 45]

    For small networks: Γ has D² entries. (It acts on the right, so g @ h multiplies the matrices in
    the order h, g.)
    """

    net: MLP

    @property
    def model(self) -> ExtendedModel:
        """F̃(Γ̃, θ) = F(Γ̃θ)."""
        return ExtendedModel(self.net)

    def extend(self, params: Params) -> Extended:
        """Return (I, θ)."""
        return Extended(np.eye(self.net.n_params), params)

    @property
    def identity(self) -> Reparametrization:
        """Return the element with Γ = I."""
        return Reparametrization(np.eye(self.net.n_params))

    def sample(self, *, key: Any) -> Reparametrization:
        """Draw U diag(e^u) V with U, V Haar-orthogonal, u uniform in [−½, ½]."""
        return Reparametrization(random_invertible(host_generator(key), self.net.n_params))


def unflatten(tree: Any, flat: Any) -> Any:
    """Return a vector in the form of `tree`."""
    leaves, structure = jax.tree.flatten(tree)
    stops = np.cumsum([leaf.size for leaf in leaves])
    parts = [
        flat[stop - leaf.size : stop].reshape(leaf.shape)
        for leaf, stop in zip(leaves, stops, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)


def template(net: MLP) -> Params:
    """Zero parameters of the network's shapes, on the host."""
    return tuple(
        Layer(np.zeros((out, fan_in)), np.zeros(out) if net.bias else None)
        for fan_in, out in zip(net.widths[:-1], net.widths[1:], strict=True)
    )
