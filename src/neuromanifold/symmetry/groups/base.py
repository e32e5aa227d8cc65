"""What a group of symmetries and its elements are."""

import abc
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.models.arguments import Params
from neuromanifold.models.mlp import MLP
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import (
    arithmetic,
    follower,
    full_products,
    is_traced,
    to_host,
    widest,
)
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.rank import numerical_rank
from neuromanifold.numerics.results import Shown
from neuromanifold.numerics.validation import check_rtol
from neuromanifold.tangent.rank.fields import VectorFields

Tree = TypeVar("Tree")


class Element(Shown, eqx.Module):
    """A map g of parameters with `g(params)`, `g.inverse` and `g @ h`, the map θ ↦ g(h(θ)).

    An element is a pytree, so that one can differentiate by it. Parameters keep their dtype;
    results follow them.
    """

    def __call__(self, params: Any) -> Any:
        """g(θ)."""
        if is_traced((params, self)):
            with full_products():
                return self.act(params)
        follow = follower(params)
        with arithmetic():
            dtype = widest(params)
            on_host = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), params)
            moved = to_host(self._move(on_host))
        return follow(moved)

    def _move(self, params: Any) -> Any:
        """g(θ), or one sentence where θ has not the form that g acts on."""
        try:
            return self.act(params)
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            if str(error).startswith("`"):
                raise
            shapes = [np.shape(leaf) for leaf in jax.tree.leaves(params)]
            raise ValueError(
                f"`params` has arrays of shapes {shapes}, on which this {type(self).__name__} "
                "does not act; "
                "pass parameters of the network that its group was built for."
            ) from error

    @abc.abstractmethod
    def act(self, params: Params) -> Any:
        """Return g(θ) on NumPy arrays or tracers alike."""

    @property
    @abc.abstractmethod
    def inverse(self) -> "Element":
        """Return g⁻¹."""

    @abc.abstractmethod
    def __matmul__(self, other: Any) -> "Element":
        """The composition: (g @ h)(θ) = g(h(θ))."""


class Composition(Element):
    """g₁ ∘ g₂ ∘ … for elements that have no common form."""

    parts: tuple[Element, ...]

    def act(self, params: Params) -> Any:
        """Return g₁(g₂(…θ))."""
        for part in reversed(self.parts):
            params = part.act(params)
        return params

    @property
    def inverse(self) -> "Composition":
        """The inverses in the opposite order."""
        return Composition(tuple(part.inverse for part in reversed(self.parts)))

    def __matmul__(self, other: Any) -> "Composition":
        return Composition(
            (*self.parts, *(other.parts if isinstance(other, Composition) else (other,)))
        )


class AbstractGroup(abc.ABC):
    """A group acting on the parameters of `net` without changing the function, or refusing the
    network by name.
    """

    net: MLP

    @property
    def model(self) -> Any:
        """The model f(params, x) that the group leaves unchanged."""
        return self.net

    def extend(self, params: Params) -> Any:
        """Return the parameters of `model` that stand for `params`."""
        return params

    @property
    @abc.abstractmethod
    def identity(self) -> Element:
        """The neutral element."""

    @abc.abstractmethod
    def sample(self, *, key: Key) -> Element:
        """Draw a random element."""


class LieGroup(AbstractGroup):
    """A group with coordinates: `element(ξ)` is the exponential of the Lie algebra element ξ."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The dimension of the group."""

    @abc.abstractmethod
    def generators(self, params: Params) -> Float[Any, "g D"]:
        """Return d/dt g(exp tX_k)θ at t = 0, one row per generator, columns in
        `ravel_pytree(params)` order.
        """

    @abc.abstractmethod
    def exponential(self, coordinates: Any) -> Element:
        """Return exp Σ ξ_k X_k for coordinates that are a NumPy array or a tracer."""

    def element(self, coordinates: Any) -> Element:
        """Return the exponential of Σ ξ_k X_k for `coordinates` ξ, X_k the k-th generator; in float64, or in the dtype
        of a tracer.
        """
        if np.shape(coordinates) != (self.dimension,):
            raise ValueError(
                f"`coordinates` has shape {np.shape(coordinates)} but {type(self).__name__} has "
                "dimension "
                f"{self.dimension}; pass one number for each generator."
            )
        if is_traced(coordinates):
            return self.exponential(coordinates)
        return self.exponential(np.asarray(coordinates, np.float64))

    def clip(self, coordinates: Any, bound: float) -> Any:
        """Bring `coordinates` to where ‖Γ‖ ≤ `bound` is certain."""
        return jnp.clip(coordinates, -np.log(bound) / 2, np.log(bound) / 2)

    @property
    def identity(self) -> Element:
        """The neutral element."""
        return self.element(np.zeros(self.dimension))

    def shortest(self, params: Params, *, rtol: float = 1e-12, steps: int = 1000) -> Any:
        """Return the point of the orbit's closure that is nearest to the origin, in float64.

        The orbit is left where it is by the group, and for groups closed under transposition the
        nearest point is unique up to orthogonal elements [Kempf–Ness]: a metric that the group
        preserves is the Euclidean one there, carried along. Newton's method: ½‖exp(ξ)θ‖² has
        gradient ⟨V_k, θ⟩ and, for symmetric generators, Hessian 2⟨V_k, V_l⟩, so ξ = −½V⁺θ, halved
        until it descends.

        >>> net = nm.MLP((1, 1, 1), bias=False)
        >>> params = (nm.Layer(np.array([[8.0]])), nm.Layer(np.array([[2.0]])))
        >>> [round(float(layer.weight[0, 0]), 12) for layer in nm.symmetry.ScalingGroup(net).shortest(params)]
        [4.0, 4.0]
        """
        check_rtol(rtol)
        theta = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
        for _ in range(steps):
            flat = flatten(theta)
            fields = np.asarray(self.generators(theta))
            xi = np.linalg.lstsq(fields.T, -flat / 2, rcond=1e-10)[0]
            if np.linalg.norm(fields.T @ xi) <= rtol * np.linalg.norm(flat):
                return theta
            theta = self._descend(theta, xi)
        raise ArithmeticError(
            f"no point of the orbit was found to be nearest to the origin in {steps} steps; pass "
            f"a larger `rtol` than {rtol:.0e}."
        )

    def _descend(self, theta: Any, xi: np.ndarray) -> Any:
        """Return exp(ξ)θ, or with ξ halved until it is shorter than θ."""
        before = np.linalg.norm(flatten(theta))
        for _ in range(60):
            moved = self.element(xi)(theta)
            if np.linalg.norm(flatten(moved)) <= before:
                return moved
            xi = xi / 2
        return theta


def flatten(tree: Any) -> Any:
    """Return the leaves of `tree` as one vector in `ravel_pytree` order, NumPy arrays or tracers."""
    leaves = jax.tree.leaves(tree)
    on_host = all(isinstance(leaf, np.ndarray) for leaf in leaves)
    return (np if on_host else jnp).concatenate([leaf.reshape(-1) for leaf in leaves])


class ContinuousGroup(LieGroup):
    """A group of an MLP whose generators are sparse fields, so that they are known exactly."""

    @property
    @abc.abstractmethod
    def fields(self) -> VectorFields:
        """The generators as vector fields on parameter space."""

    @property
    def dimension(self) -> int:
        """The dimension of the group."""
        return self.fields.count

    def generators(self, params: Params) -> Float[Any, "g D"]:
        """Return d/dt g(exp tX_k)θ at t = 0, one row per generator, columns in
        `ravel_pytree(params)` order.

        >>> net = nm.MLP((1, 1, 1), bias=False)
        >>> nm.symmetry.ScalingGroup(net).generators((nm.Layer(np.array([[2.0]])), nm.Layer(np.array([[3.0]])))).tolist()
        [[2.0, -3.0]]
        """
        return self.fields.at(params)

    def orbit_dimension(self, params: Params, *, exact: bool = True) -> Any:
        """Return the dimension of the orbit through θ, the rank of the generators: with `exact` modulo
        a random prime, else from singular values.
        """
        if exact:
            p = modular.random_prime()
            return modular_rank(self.fields.modulo(params, p), p)
        return numerical_rank(self.generators(params))

    def stabiliser_dimension(self, params: Params, *, exact: bool = True) -> int:
        """Return the dimension of {g : gθ = θ} = dim G − dim Gθ, with `exact` modulo a random prime.
        [complexity, Cor. A.6]"""
        return self.dimension - int(self.orbit_dimension(params, exact=exact))


def namespace(array: Any) -> Any:
    """Return NumPy for its own arrays, `jax.numpy` for everything else: on the host nothing is
    compiled.
    """
    return np if isinstance(array, np.ndarray) else jnp


def check_element(g: Any) -> None:
    """Refuse what is no element."""
    if not isinstance(g, Element):
        raise TypeError(
            f"`g` is a {type(g).__name__}, no element of a group; pass `group.sample(key=key)` or "
            "`group.element(…)`."
        )


def check_net(net: Any, group: str) -> None:
    """Refuse what is no MLP, and networks without hidden neurons."""
    require_perceptron(
        net,
        f"{group} acts on the parameters of an nm.MLP: `nm.symmetry.discover` finds groups of "
        "other networks",
    )
    if net.hidden == 0:
        raise ValueError(
            f"`net` is {net}, which has no hidden neurons for {group} to act on; add a hidden "
            "layer."
        )
