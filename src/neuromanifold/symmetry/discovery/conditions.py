"""What `discover` asks of a network: random parameters and inputs, rows of conditions, and how
places may be renamed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.axes import Axes, Labels, axis_labels
from neuromanifold.graph.program import Program
from neuromanifold.graph.reading import call, evaluate, read
from neuromanifold.graph.tracing import program_of
from neuromanifold.models.arguments import Model, Signature
from neuromanifold.numerics.precision import is_floating
from neuromanifold.symmetry.discovery.ansatz import Ansatz, orbit_numbers

_AT_ONCE = 2**24
_INPUTS_PER_ROW = 32
_EQUAL = 1e-9
_SMALL_ROW = 1e-2
MARGIN = 40
"""Rows beyond the unknowns."""


@dataclass(frozen=True, eq=False)
class NetworkSampler:
    """A network f on inputs shaped like `x` (samples in front), with parameters of the sizes that
    `params` has, leaf by leaf.

    With `batch` the whole of `x` is one input. Parameters are drawn N(0, s²), s the root mean
    square of the leaf (1 for a leaf of zeros); real inputs likewise, whole numbers uniformly
    between the smallest and the largest.
    """

    f: Model
    params: Any
    x: Any
    batch: bool

    @cached_property
    def structure(self) -> Any:
        """How leaves make parameters."""
        return jax.tree.structure(self.params)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the leaves."""
        return tuple(np.shape(leaf) for leaf in jax.tree.leaves(self.params))

    @property
    def size(self) -> int:
        """D."""
        return sum(int(np.prod(shape, dtype=int)) for shape in self.shapes)

    @cached_property
    def one(self) -> Any:
        """One input, samples in front."""
        return self.x if self.batch else jax.tree.map(lambda a: a[:1], self.x)

    @cached_property
    def reading(self) -> "_Reading":
        """f as a program."""
        return _reading(self.f, *map(Signature.of, (self.params, self.one)))

    @property
    def labels(self) -> Labels:
        """The labels of the axes of parameters, input and output."""
        return self.reading.labels

    @property
    def leaf_labels(self) -> tuple[Axes, ...]:
        """Those of the parameters' leaves."""
        return self.labels.inputs[: len(self.shapes)]

    @cached_property
    def scales(self) -> list[float]:
        """The root mean square of each leaf."""
        return [_scale(leaf) for leaf in jax.tree.leaves(self.params)]

    def draw(self, rng: np.random.Generator, count: int | None = None) -> list[np.ndarray]:
        """Draw random leaves; with `count`, so many of each in front."""
        front = () if count is None else (count,)
        return [
            s * rng.standard_normal((*front, *shape))
            for s, shape in zip(self.scales, self.shapes, strict=True)
        ]

    def draw_input(self, rng: np.random.Generator, count: int) -> Any:
        """Draw `count` random inputs."""
        return jax.tree.map(lambda leaf: _like(rng, leaf, count), self.one)

    def draw_cotangent(self, rng: np.random.Generator, count: int) -> Any:
        """Draw `count` random directions in the space of outputs."""
        shapes = self.reading.outputs
        return jax.tree.map(lambda a: rng.standard_normal((count, *a.shape)), shapes)

    @cached_property
    def moving(self) -> frozenset[int]:
        """The atoms whose places f does not tell apart: a random permutation of each was tried
        on parameters, input and output.
        """
        proposed = [
            a for a in sorted(self.labels.outer - self.labels.rigid) if self.labels.sizes[a] > 3
        ]
        return frozenset(a for a in proposed if self.is_moving(a))

    def is_moving(self, atom: int) -> bool:
        """Whether f does not tell the places of an atom apart: a random permutation, tried at
        random parameters and inputs.
        """
        rng = np.random.default_rng(atom)
        order = {atom: rng.permutation(self.labels.sizes[atom])}
        leaves, x = self.draw(rng), jax.tree.map(lambda a: a[0], self.draw_input(rng, 1))
        inputs = [*leaves, *jax.tree.leaves(x)]
        moved = [
            self.permuted(a, axes, order)
            for a, axes in zip(inputs, self.labels.inputs, strict=True)
        ]

        def outputs(values: list[Any]) -> list[Any]:
            theta = jax.tree.unflatten(self.structure, values[: len(leaves)])
            sample = jax.tree.unflatten(jax.tree.structure(x), values[len(leaves) :])
            return [np.asarray(a) for a in jax.tree.leaves(evaluate(self.f, theta, sample))]

        expected = [
            self.permuted(a, axes, order)
            for a, axes in zip(outputs(inputs), self.labels.outputs, strict=True)
        ]
        pairs = zip(outputs(moved), expected, strict=True)
        return all(bool(np.abs(a - b).max() <= _EQUAL * np.abs(b).max()) for a, b in pairs)

    def permuted(self, a: Any, axes: Axes, order: dict[int, np.ndarray]) -> Any:
        """Return an array with the places of some atoms permuted on all its axes."""
        for at, axis in enumerate(axes):
            places = self.places(axis, order)
            if places is not None:
                a = a.take(places, at)
        return a

    def places(self, axis: tuple[int, ...], order: dict[int, np.ndarray]) -> np.ndarray | None:
        """Say which place of an axis goes where; None where none moves."""
        grid = None
        for place in self.labels.places(axis):
            if place.atom in order:
                grid = np.arange(place.total) if grid is None else grid
                own = slice(place.start, place.start + place.before * place.size * place.after)
                part = grid[own].reshape(place.before, place.size, place.after)
                grid[own] = part[:, order[place.atom]].ravel()
        return grid

    def numbers(self, ansatz: Ansatz, moving: frozenset[int]) -> np.ndarray:
        """Return for each coefficient, the number of the one it shares with all that a renaming of
        places makes of it.
        """
        found, start = [], 0
        for term in ansatz.terms:
            numbers = orbit_numbers(term, self.labels.sizes, moving)
            found.append(start + numbers)
            start += int(numbers.max(initial=-1)) + 1
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def conditions(
        self, ansatz: Ansatz, numbers: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> Iterator[np.ndarray]:
        """Yield ⟨Jᵀu, V_a(θ)⟩ for every candidate a, at random (θ, x, u), for each generator in
        turn: each row has parameters of its own.
        """
        unknowns = int(numbers.max(initial=-1)) + 1
        count = int(1.2 * unknowns) + MARGIN
        step = _at_once(ansatz.size, count)
        for rng in rngs:
            parts = [self._rows(ansatz, numbers, rng, step) for _ in range(0, count, step)]
            yield np.concatenate(parts)

    def _rows(
        self, ansatz: Ansatz, numbers: np.ndarray, rng: np.random.Generator, count: int
    ) -> np.ndarray:
        unknowns = int(numbers.max(initial=-1)) + 1
        drawn = self.draw(rng, count), self.draw_input(rng, count), self.draw_cotangent(rng, count)
        return np.asarray(
            _condition_rows(self.f, self.structure, ansatz, unknowns, numbers, *drawn)
        )

    def products(
        self, ansatz: Ansatz, fields: np.ndarray, rng: np.random.Generator, count: int
    ) -> np.ndarray:
        """Return ⟨Jᵀu, V_c(θ)⟩ at random (θ, x, u) for some fields, relative to the lengths of c
        and of the row over all candidates.
        """
        found, step, numbers = [], _at_once(ansatz.size, count), np.arange(ansatz.size)
        for _ in range(0, count, step):
            rows = self._rows(ansatz, numbers, rng, step)
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            # A row far below the others (a saturated softmax) is what cancellation left of them:
            # its rounding is theirs.
            lengths = np.maximum(lengths, _SMALL_ROW * np.sqrt((lengths**2).mean()))
            found.append(rows @ fields.T / np.where(lengths > 0, lengths, 1.0))
        return np.concatenate(found) / np.linalg.norm(fields, axis=1)

    def tangent_rows(self, leaves: Any, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return rows of J at θ, each a random combination of rows at a few random inputs."""
        each = _INPUTS_PER_ROW if self.bends else 4
        step = each * max(1, _at_once(self.size, each * count) // each)
        found = []
        for _ in range(0, each * count, step):
            drawn = self.draw_wide(rng, step), self.draw_cotangent(rng, step)
            part = np.asarray(_tangent_rows(self.f, self.structure, leaves, *drawn))
            found.append(part.reshape(-1, each, self.size).sum(1))
        return np.concatenate(found)

    @property
    def bends(self) -> bool:
        """Whether f has a bend: its derivative then differs from region to region."""
        return any(map(self.reading.program.bends, self.reading.program.nodes))

    def draw_wide(self, rng: np.random.Generator, count: int) -> Any:
        """Draw random inputs; where f bends, half of them from a tenth of the size to a hundred
        times, so that rare units are met.
        """
        x = self.draw_input(rng, count)
        if not self.bends:
            return x
        sizes = np.where(rng.random(count) < 0.5, 1.0, 10.0 ** rng.uniform(-1.0, 2.0, count))
        return jax.tree.map(
            lambda a: a * sizes.reshape(-1, *[1] * (a.ndim - 1)) if is_floating(a) else a, x
        )


class _Reading(NamedTuple):
    """A function as a program, the labels of its axes, and the shapes of what it returns."""

    program: Program
    labels: Labels
    outputs: Any


@lru_cache(maxsize=64)
def _reading(f: Model, params: Signature, x: Signature) -> _Reading:
    """Read `f` once for each shape of its arguments. Call inside `arithmetic`."""
    arguments = params.structs(), x.structs()
    program = program_of(f, *arguments)
    return _Reading(program, axis_labels(program), read(f, *arguments)[1])


def _pull_back(f: Model, structure: Any, leaves: Any, x: Any, u: Any) -> list[Any]:
    """Return Jᵀu for the leaves of the parameters of `f`."""

    def outputs(leaves: Any) -> Any:
        found = call(f, jax.tree.unflatten(structure, leaves), x)
        return jax.tree.map(lambda a, like: a.astype(like.dtype), found, u)

    return jax.vjp(outputs, leaves)[1](u)[0]


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _condition_rows(
    f: Model,
    structure: Any,
    ansatz: Ansatz,
    unknowns: int,
    numbers: Any,
    leaves: Any,
    x: Any,
    u: Any,
) -> Any:
    """Return ⟨Jᵀu, V_a(θ)⟩ at each (θ, x, u), added up over candidates of one number."""

    def row(leaves: Any, x: Any, u: Any) -> Any:
        full = ansatz.pull(_pull_back(f, structure, leaves, x, u), leaves)
        return jax.ops.segment_sum(full, numbers, num_segments=unknowns)

    return jax.vmap(row)(leaves, x, u)


@partial(jax.jit, static_argnums=(0, 1))
def _tangent_rows(f: Model, structure: Any, leaves: Any, x: Any, u: Any) -> Any:
    """Return Jᵀu at one θ and each (x, u)."""

    def row(x: Any, u: Any) -> Any:
        return jnp.concatenate(
            [leaf.reshape(-1) for leaf in _pull_back(f, structure, leaves, x, u)]
        )

    return jax.vmap(row)(x, u)


def _at_once(cost: int, count: int) -> int:
    """Return how many rows to compute together: a multiple of 4, at most 256."""
    return 4 * int(np.clip(_AT_ONCE // max(1, 4 * cost), 1, min(64, -(-count // 4))))


def _scale(leaf: Any) -> float:
    size = (
        float(np.sqrt(np.mean(np.square(np.asarray(leaf, np.float64))))) if np.size(leaf) else 0.0
    )
    return size if size > 0 else 1.0


def _like(rng: np.random.Generator, leaf: Any, count: int) -> np.ndarray:
    if is_floating(leaf):
        return _scale(leaf) * rng.standard_normal((count, *np.shape(leaf)))
    leaf = np.asarray(leaf)
    return rng.integers(int(leaf.min()), int(leaf.max()) + 1, (count, *leaf.shape)).astype(
        leaf.dtype
    )
