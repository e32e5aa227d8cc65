"""A model's family of fields at drawn inputs: what both routes to the closure ask of it."""

import abc
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.reading import called
from neuromanifold.models.arguments import Model
from neuromanifold.models.function import output_shape
from neuromanifold.models.mlp import MLP
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.orbits.bracket import induced_field, left_normed
from neuromanifold.orbits.derivatives import has_derivatives
from neuromanifold.orbits.fields import Control, DenseFields, Fields, WalkedFields
from neuromanifold.orbits.nested import iterated_brackets
from neuromanifold.orbits.rings import Reals, Ring
from neuromanifold.orbits.transport import Lift
from neuromanifold.tangent.rank.jacobian import sample_jacobians

_MIXED = 4  # inputs whose fields are added up to flow along


@dataclass(frozen=True)
class Brackets:
    """Brackets of one depth, one a row, with the size of the numbers each is a difference of."""

    vectors: np.ndarray
    sizes: np.ndarray


class Family(abc.ABC):
    """The fields X_{x,o} of a model at a pool of inputs."""

    @abc.abstractmethod
    def jacobian(self, theta: np.ndarray) -> np.ndarray:
        """All fields at θ, one a row."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator) -> Lift:
        """The tangent lift of a random combination of a few fields."""

    @abc.abstractmethod
    def brackets(
        self, theta: np.ndarray, depth: int, lanes: int, rng: np.random.Generator
    ) -> Brackets:
        """Left-normed brackets of `depth` random fields of unit length, one for each lane."""


@dataclass(frozen=True)
class NetworkFamily(Family):
    """The fields of a network over a ring."""

    fields: Fields
    inputs: np.ndarray
    outputs: tuple[int, ...]

    @property
    def ring(self) -> Ring:
        """What the numbers are."""
        return self.fields.ring

    def jacobian(self, theta: np.ndarray) -> np.ndarray:
        n, o = len(self.inputs), math.prod(self.outputs)
        units = self.ring.embed(np.eye(o)).reshape(o, 1, *self.outputs)
        control = Control(
            np.repeat(self.inputs, o, axis=0)[:, None], np.tile(units, (n, *[1] * (units.ndim - 1)))
        )
        return self.fields(np.broadcast_to(theta, (1, n * o, len(theta))), control)[0]

    def draw(self, rng: np.random.Generator) -> Lift:
        x, c = self._control(rng, 1, _MIXED)

        def lift(theta: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            lanes = max(1, len(V))
            point = np.zeros((2 if len(V) else 1, lanes, len(theta)))
            point[0] = theta
            point[1:, : len(V)] = V
            control = Control(*(np.broadcast_to(a, (lanes, *a.shape[1:])) for a in (x, c)))
            value = self.fields(point, control)
            return value[0, 0], value[-1] if len(V) else V

        return lift

    def brackets(
        self, theta: np.ndarray, depth: int, lanes: int, rng: np.random.Generator
    ) -> Brackets:
        points = np.broadcast_to(theta, (lanes, len(theta)))
        controls = [self._normalised(points, self._control(rng, lanes, 1)) for _ in range(depth)]
        vectors, sizes = iterated_brackets(self.fields, points, controls)
        return Brackets(vectors[-1], sizes[-1])

    def _control(self, rng: np.random.Generator, lanes: int, count: int) -> Control:
        chosen = rng.integers(0, len(self.inputs), (lanes, count))
        return Control(self.inputs[chosen], self.ring.draw(rng, (lanes, count, *self.outputs)))

    def _normalised(self, points: np.ndarray, control: Control) -> Control:
        """Cotangents scaled so that each field has length one at its point, where it does not
        vanish.
        """
        if not isinstance(self.ring, Reals):
            return control
        lengths = np.linalg.norm(self.fields(points[None], control)[0], axis=1)
        scale = np.where(lengths > 0, lengths, 1.0).reshape(-1, *[1] * (control.cotangent.ndim - 1))
        return Control(control.x, control.cotangent / scale)


@dataclass(frozen=True)
class TracedFamily(Family):
    """The fields of any JAX function, by nested forward mode."""

    f: Model
    params: Any
    inputs: np.ndarray
    outputs: tuple[int, ...]

    def jacobian(self, theta: np.ndarray) -> np.ndarray:
        with arithmetic():
            _, unravel = ravel_pytree(self.params)
            rows = sample_jacobians(self.f, unravel(jnp.asarray(theta)), jnp.asarray(self.inputs))
            return np.asarray(rows).reshape(-1, len(theta))

    def draw(self, rng: np.random.Generator) -> Lift:
        x, c = self._control(rng, (_MIXED,))

        def lift(theta: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            # As many columns as parameters, so that every call has one shape.
            columns = np.zeros((len(theta), len(theta)))
            columns[: len(V)] = V
            with arithmetic():
                value, pushed = _pushed(self.f, self.params, theta, columns, x, c)
                return np.asarray(value), np.asarray(pushed)[: len(V)]

        return lift

    def brackets(
        self, theta: np.ndarray, depth: int, lanes: int, rng: np.random.Generator
    ) -> Brackets:
        x, c = self._control(rng, (len(theta) + 8, depth, 1))
        with arithmetic():
            vectors = np.asarray(_chains(self.f, self.params, theta, x, c))
        return Brackets(vectors[:lanes], np.zeros(lanes))

    def _control(
        self, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.integers(0, len(self.inputs), shape)
        return self.inputs[chosen], rng.standard_normal((*shape, *self.outputs))


@jax.jit(static_argnums=0)
def _pushed(f: Model, params: Any, theta: Any, V: Any, x: Any, c: Any) -> tuple[Any, Any]:
    X = _flat_field(f, params, x, c)
    return X(theta), jax.vmap(lambda v: jax.jvp(X, (theta,), (v,))[1])(V)


@jax.jit(static_argnums=0)
def _chains(f: Model, params: Any, theta: Any, x: Any, c: Any) -> Float[Any, "lanes D"]:
    def unit(x: Any, c: Any):
        length = jnp.linalg.norm(_flat_field(f, params, x, c)(theta))
        return _flat_field(f, params, x, c / jnp.where(length > 0, length, 1.0))

    def one(xs: Any, cs: Any):
        return left_normed(*(unit(x, c) for x, c in zip(xs, cs, strict=True)))(theta)

    return jax.vmap(one)(x, c)


def _flat_field(f: Model, params: Any, x: Any, c: Any) -> Any:
    _, unravel = ravel_pytree(params)
    return induced_field(lambda theta, x: called(f, unravel(theta), x), x, c)


@dataclass(frozen=True)
class WalkedFamily(TracedFamily):
    """The fields of a function without bends: JAX compiles the flows, and one walk has all
    brackets of a depth.
    """

    def brackets(
        self, theta: np.ndarray, depth: int, lanes: int, rng: np.random.Generator
    ) -> Brackets:
        family = walked_family(trace(self.f, self.params, self.inputs), self.inputs, Reals())
        return family.brackets(theta, depth, lanes, rng)


def walked_family(graph: Graph, inputs: Float[np.ndarray, "n ..."], ring: Ring) -> NetworkFamily:
    """The family of a network without bends, over a ring."""
    return NetworkFamily(WalkedFields(graph, ring), ring.embed(inputs), (graph.outputs,))


def dense_family(net: MLP, inputs: Float[np.ndarray, "n ..."]) -> NetworkFamily:
    """Return the family of a perceptron in float64, layer by layer, whatever bends: a walk knows no
    bends, and takes 2 to 6 times the processor time with 16 neurons a layer, 1.6 to 4 times with 32
    (brackets to depth 4, Jacobians, flows; warm).
    """
    return NetworkFamily(DenseFields(net), inputs, net.widths[-1:])


def has_fast_brackets(family: Family) -> bool:
    """Whether brackets of any depth come from one sweep."""
    return isinstance(family, NetworkFamily | WalkedFamily)


def _is_walked(program: Program, node: Node) -> bool:
    """Whether nilpotent elements know the operation."""
    if node.primitive.arithmetic is None:
        return len(node.inputs) == 1 and has_derivatives(node.primitive)
    return not program.bends(node)


def family_of(f: Model, params: Any, inputs: Float[np.ndarray, "n ..."]) -> Family:
    """The family in float64."""
    if (net := perceptron(f)) is not None:
        return dense_family(net, inputs)
    program = trace(f, params, inputs).program
    walked = all(_is_walked(program, node) for node in program.nodes)
    with arithmetic():
        return (WalkedFamily if walked else TracedFamily)(
            f, params, inputs, output_shape(f, params, inputs)
        )
