"""What the kernel of J has beyond the orbit of a network's affine fields, at parameters that
were drawn.
"""

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
from neuromanifold.models.arguments import Model, Signature
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.spaces import FloatSpaces
from neuromanifold.symmetry.account.chain import FloatRows, chain_of
from neuromanifold.symmetry.account.linear_segments import looked_at
from neuromanifold.symmetry.discovery.conditions import MARGIN, Problem
from neuromanifold.symmetry.discovery.numerical_null_space import cut as cut_of
from neuromanifold.symmetry.discovery.numerical_null_space import null_space
from neuromanifold.symmetry.reduction.narrowing import without_scales

_INPUTS = 4096
_VERIFIED = 1e-9
_FEW, _SEARCHED = 16, 1024
Leaves = list[np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Excess(Result):
    """Nullity less orbit, explained: `rational` + `held` + `stretched` + `unseen` + `rest`.

    `rational`: scales and shifts that fold into the weights beside them (`folded` names them) leave
    a network f' with f = f' ∘ Φ, Φ a submersion. The kernel of J is that of J' with one more
    dimension for each parameter that folds; the affine fields of f' lift to fields of f that are
    rational in what was folded. `held`: units that never switch at these parameters (`still` of all
    `units`, on 4,096 random inputs) make f' equal to the network in which they are held; its affine
    fields at these parameters beyond those of f' are dead parameters and mixings of linear units.
    `stretched`: directions that change no linear stretch between the units that switch, and are no
    affine fields (see `stretches`). `unseen`: J has a larger rank on regions that a search reaches
    (`chain`) than on the random inputs behind the nullity. `rest`: none of these.
    """

    folded: tuple[str, ...]
    rational: int
    held: int
    stretched: int
    unseen: int
    still: int
    units: int
    rest: int

    @property
    def total(self) -> int:
        """Nullity less orbit."""
        return self.rational + self.held + self.stretched + self.unseen + self.rest

    def headline(self) -> str:
        """What is beyond the orbit."""
        parts = (
            (self.rational, f"rational in {' '.join(self.folded)}"),
            (self.held, f"with {self.still} of {self.units} units held that never bend"),
            (self.stretched, "along linear stretches"),
            (self.unseen, "that regions beyond the random inputs show"),
            (self.rest, "unexplained"),
        )
        return ", ".join(f"{count} {why}" for count, why in parts if count) or "nothing"


NONE = Excess((), 0, 0, 0, 0, 0, 0, 0)


def excess_of(
    problem: Problem,
    theta: Leaves,
    rng: np.random.Generator,
    orbit: int,
    nullity: int,
    fields_at: Callable[[Problem, Leaves, np.random.Generator], np.ndarray],
) -> Excess:
    """The explanation; `fields_at` gives a basis of a network's affine fields at a point."""
    if nullity == orbit:
        return NONE
    names, inner, point = _folded(problem, theta, rng)
    gone = problem.size - inner.size
    own = len(fields_at(inner, point, rng)) if gone else orbit
    held = Held.of(inner, point, rng)
    fixed = fields_at(Problem(held, inner.params, inner.x, inner.batch), point, rng)
    rest = nullity - gone - len(fixed)
    stretched = held.stretched(point, fixed, rng) if rest > 0 else 0
    rest -= stretched
    unseen = min(rest, held.unseen(point, nullity - gone, rng)) if rest > 0 else 0
    counts = (gone + own - orbit, len(fixed) - own, stretched, unseen)
    return Excess(names, *counts, held.still, held.units, rest - unseen)


def _folded(
    problem: Problem, theta: Leaves, rng: np.random.Generator
) -> tuple[tuple[str, ...], Problem, Leaves]:
    if problem.batch:
        return (), problem, theta
    x = jax.tree.map(lambda a: a[:, 0], problem.draw_input(rng, _FEW))
    names, model, small = without_scales(problem.f, jax.tree.unflatten(problem.structure, theta), x)
    inner = Problem(model, small, x, False) if names else problem
    return names, inner, jax.tree.leaves(small) if names else theta


@dataclass(frozen=True, eq=False)
class Held:
    """A network in which units that did not switch at some parameters, on random inputs, are
    held as they were.
    """

    problem: Problem
    on: tuple[np.ndarray, ...]
    off: tuple[np.ndarray, ...]

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """What two of them that are the same function have in common."""
        problem, held = self.problem, (*self.on, *self.off)
        shapes = Signature.of(problem.params), Signature.of(problem.one)
        return problem.f, *shapes, problem.batch, *((a.shape, a.tobytes()) for a in held)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self._key == other._key

    @staticmethod
    def of(problem: Problem, theta: Leaves, rng: np.random.Generator) -> "Held":
        """At these parameters."""
        graph = _graph(problem)
        params = jax.tree.unflatten(problem.structure, [jnp.asarray(leaf) for leaf in theta])
        x = problem.draw_wide(rng, _INPUTS)
        x = x if problem.batch else jax.tree.map(lambda a: a[:, 0], x)
        gates, silent = _asked(graph, params, x)
        found = [_steady(np.asarray(g), np.asarray(z)) for g, z in zip(gates, silent, strict=True)]
        return Held(problem, tuple(on for on, _ in found), tuple(off for _, off in found))

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

    def stretched(self, theta: Leaves, known: np.ndarray, rng: np.random.Generator) -> int:
        """How many directions that change no linear stretch, and f nowhere, are outside of a
        space that is known.
        """
        cut = tuple(~on & ~off for on, off in zip(self.on, self.off, strict=True))
        D, scaled = (
            self.problem.size,
            np.concatenate([np.zeros(0, bool), *(c.ravel() for c in cut)]),
        )
        if not looked_at(self.graph, D) or not scaled.any():
            return 0
        rows = self._rows(theta, rng, _FEW)
        found = null_space(
            rows.stretches(self.on, cut, D + len(scaled) + MARGIN, rng)[
                :, np.append(np.ones(D, bool), scaled)
            ]
        )
        J = self.problem.tangent_rows(theta, rng, D + MARGIN)
        J = J / np.maximum(np.linalg.norm(J, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        inside = found[0][np.abs(J @ found[0][:, :D].T).max(axis=0) <= _VERIFIED, :D]
        spectrum = np.linalg.svd(np.concatenate([known, inside]), compute_uv=False)
        return cut_of(spectrum, min(len(known) + len(inside), D)).rank - len(known)

    def unseen(self, theta: Leaves, nullity: int, rng: np.random.Generator) -> int:
        """How many directions of a nullity are none: by how much J has a larger rank on all
        regions that a search reaches.
        """
        if not self.graph.bending:
            return 0
        *_, rank, D = chain_of(self._rows(theta, rng, _SEARCHED), rng).ranks
        return max(0, nullity - (D - rank))

    def _rows(self, theta: Leaves, rng: np.random.Generator, count: int) -> FloatRows:
        """J of the network at θ, random inputs for a sample."""
        x = self.problem.draw_wide(rng, count)
        data = jax.tree.leaves(x if self.problem.batch else jax.tree.map(lambda a: a[:, 0], x))
        params = jax.tree.unflatten(self.problem.structure, theta)
        return FloatRows(self.graph, params, tuple(map(np.asarray, data)), FloatSpaces())

    def __call__(self, params: Any, x: Any) -> Any:
        """f with these units held, all outputs flat."""
        if self.problem.batch:
            return self._one(params, x)[None]
        return jax.vmap(lambda sample: self._one(params, sample))(x)

    def _one(self, params: Any, sample: Any) -> Any:
        found = interpret(
            self.graph.program,
            [*jax.tree.leaves(params), *jax.tree.leaves(sample)],
            _Holding(self.on, self.off),
        )
        return jnp.concatenate([value.reshape(-1) for value in found])


def _steady(gate: np.ndarray, silent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which units are on at every input where they are not zero, and which at none; a maximum
    over several is neither.
    """
    if gate.dtype != bool:
        return np.zeros(gate.shape[1:], bool), np.zeros(gate.shape[1:], bool)
    return np.asarray((gate | silent).all(0) & gate.any(0)), np.asarray(~gate.any(0))


@jax.jit(static_argnums=0)
def _asked(graph: Graph, params: Any, x: Any) -> tuple[Any, Any]:
    """The gates at every sample, and where what they are about is zero: at random numbers, because
    nothing that it is made of is on.
    """

    def one(sample: Any) -> tuple[Any, Any]:
        gates = graph.decide(params, sample)
        pairs = zip(graph.quantities(params, sample, gates), gates, strict=True)
        return gates, tuple(q == 0 if g.dtype == bool else g for q, g in pairs)

    return jax.vmap(one)(x)


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

    whole = jax.tree.map(lambda a: a[None], problem.one)
    return trace(_OneBatch(problem.f), problem.params, whole)


@dataclass(frozen=True)
class _OneBatch:
    """A model whose one sample is a whole batch of `f`."""

    f: Model

    def __call__(self, params: Any, x: Any) -> Any:
        outputs = self.f(params, jax.tree.map(lambda a: a[0], x))
        return jax.tree.map(lambda y: y[None], outputs)
