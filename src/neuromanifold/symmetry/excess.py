"""What the kernel of J has beyond the orbit of a network's affine fields, at parameters that were drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.bends import Oracle
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.interpret import interpret
from neuromanifold.numerics.results import Result
from neuromanifold.symmetry.narrowing import without_scales
from neuromanifold.symmetry.problem import Problem

_INPUTS = 4096
_FEW = 16
Leaves = list[np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Excess(Result):
    """Nullity less orbit, explained: `rational` + `held` + `rest`.

    `rational`: scales and shifts that fold into the weights beside them (`folded` names them) leave a network f' with f = f' ∘ Φ, Φ a
    submersion. The kernel of J is that of J' with one more dimension for each parameter that folds; the affine fields of f' lift to
    fields of f that are rational in what was folded. `held`: units that never switch at these parameters (`still` of all `units`, on 4,096
    random inputs) make f' equal to the network in which they are held; its affine fields at these parameters beyond those
    of f' are dead parameters and mixings of linear units. `rest`: neither; fields that are not affine, or relations between pieces.
    """

    folded: tuple[str, ...]
    rational: int
    held: int
    still: int
    units: int
    rest: int

    @property
    def total(self) -> int:
        """Nullity less orbit."""
        return self.rational + self.held + self.rest

    def headline(self) -> str:
        """What is beyond the orbit."""
        parts = (
            (self.rational, f"rational in {' '.join(self.folded)}"),
            (self.held, f"with {self.still} of {self.units} units held that never bend"),
            (self.rest, "unexplained"),
        )
        return ", ".join(f"{count} {why}" for count, why in parts if count) or "nothing"


NONE = Excess((), 0, 0, 0, 0, 0)


def excess_of(
    problem: Problem,
    theta: Leaves,
    rng: np.random.Generator,
    orbit: int,
    nullity: int,
    orbit_at: Callable[[Problem, Leaves, np.random.Generator], int],
) -> Excess:
    """The explanation; `orbit_at` gives the dimension of the orbit of a network's affine fields at a point."""
    if nullity == orbit:
        return NONE
    names, inner, point = _folded(problem, theta, rng)
    gone = problem.size - inner.size
    own = orbit_at(inner, point, rng) if gone else orbit
    held = Held.of(inner, point, rng)
    fixed = orbit_at(Problem(held, inner.params, inner.x, inner.batch), point, rng) if held.still else own
    return Excess(names, gone + own - orbit, fixed - own, held.still, held.units, nullity - gone - fixed)


def _folded(problem: Problem, theta: Leaves, rng: np.random.Generator) -> tuple[tuple[str, ...], Problem, Leaves]:
    if problem.batch:
        return (), problem, theta
    x = jax.tree.map(lambda a: a[:, 0], problem.draw_input(rng, _FEW))
    names, model, small = without_scales(problem.f, jax.tree.unflatten(problem.structure, theta), x)
    inner = Problem(model, small, x, False) if names else problem
    return names, inner, jax.tree.leaves(small) if names else theta


@dataclass(frozen=True, eq=False)
class Held:
    """A network in which units that did not switch at some parameters, on random inputs, are held as they were."""

    problem: Problem
    on: tuple[np.ndarray, ...]
    off: tuple[np.ndarray, ...]

    @staticmethod
    def of(problem: Problem, theta: Leaves, rng: np.random.Generator) -> "Held":
        """At these parameters."""
        graph = _graph(problem)
        params = jax.tree.unflatten(problem.structure, [jnp.asarray(leaf) for leaf in theta])
        x = problem.draw_wide(rng, _INPUTS)
        x = x if problem.batch else jax.tree.map(lambda a: a[:, 0], x)
        gates = jax.jit(jax.vmap(lambda sample: graph.decide(params, sample)))(x)
        signs = [np.asarray(g) if g.dtype == bool else None for g in gates]
        none = lambda g: np.zeros(g.shape[1:], bool)  # noqa: E731
        on = tuple(none(g) if s is None else np.asarray(s.all(0)) for g, s in zip(gates, signs, strict=True))
        off = tuple(none(g) if s is None else np.asarray(~s.any(0)) for g, s in zip(gates, signs, strict=True))
        return Held(problem, on, off)

    @property
    def still(self) -> int:
        """How many units did not switch."""
        return sum(int((a | b).sum()) for a, b in zip(self.on, self.off, strict=True))

    @property
    def units(self) -> int:
        """How many units there are."""
        return sum(a.size for a in self.on)

    @cached_property
    def graph(self) -> Graph:
        """The network at one input."""
        return _graph(self.problem)

    def __call__(self, params: Any, x: Any) -> Any:
        """f with these units held, all outputs flat."""
        if self.problem.batch:
            return self._one(params, x)[None]
        return jax.vmap(lambda sample: self._one(params, sample))(x)

    def _one(self, params: Any, sample: Any) -> Any:
        found = interpret(
            self.graph.program, [*jax.tree.leaves(params), *jax.tree.leaves(sample)], _Holding(self.on, self.off)
        )
        return jnp.concatenate([value.reshape(-1) for value in found])


class _Holding(Oracle):
    def __init__(self, on: tuple[np.ndarray, ...], off: tuple[np.ndarray, ...]) -> None:
        self._held = iter(zip(on, off, strict=True))

    def positive(self, quantity: Any) -> Any:
        on, off = next(self._held)
        return ((quantity > 0) | on) & ~off

    def largest(self, candidates: Any) -> Any:
        next(self._held)
        return jnp.argmax(candidates, axis=-1)


def _graph(problem: Problem) -> Graph:
    """The network at one input: with `batch` the whole batch is the sample."""
    if not problem.batch:
        return trace(problem.f, problem.params, problem.one)
    whole = lambda params, x: jax.tree.map(lambda y: y[None], problem.f(params, jax.tree.map(lambda a: a[0], x)))  # noqa: E731
    return trace(whole, problem.params, jax.tree.map(lambda a: a[None], problem.one))
