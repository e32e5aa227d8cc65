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
from neuromanifold.symmetry.account.linear_segments import (
    constant_units,
    has_linear_segments,
    switching_units,
)
from neuromanifold.symmetry.discovery.conditions import MARGIN, NetworkSampler
from neuromanifold.symmetry.discovery.numerical_null_space import null_space, spectral_gap
from neuromanifold.symmetry.reduction.narrowing import without_scales

_INPUTS = 4096
_VERIFIED = 1e-9
_FEW, _SEARCHED = 16, 1024
Leaves = list[np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Excess(Result):
    """Nullity less orbit, explained: `rational` + `held` + `segments` + `unseen` + `rest`.

    `rational`: scales and shifts that fold into the weights beside them (`folded` names them) leave
    a network f' with f = f' ∘ Φ, Φ a submersion. The kernel of J is that of J' with one more
    dimension for each parameter that folds; the affine fields of f' lift to fields of f that are
    rational in what was folded. `held`: units that never switch at these parameters (`still` of all
    `units`, on 4,096 random inputs) make f' equal to the network in which they are held; its affine
    fields at these parameters beyond those of f' are dead parameters and mixings of linear units.
    `segments`: directions that change no linear segment between the units that switch, and are no
    affine fields (see `linear_segments`). `unseen`: J has a larger rank on regions that a search reaches
    (`chain`) than on the random inputs behind the nullity. `rest`: none of these.
    """

    folded: tuple[str, ...]
    rational: int
    held: int
    segments: int
    unseen: int
    still: int
    units: int
    rest: int

    @property
    def total(self) -> int:
        """The nullity less the dimension of the orbit."""
        return self.rational + self.held + self.segments + self.unseen + self.rest

    def headline(self) -> str:
        """Say what the kernel has beyond the orbit."""
        parts = (
            (self.rational, f"rational in {' '.join(self.folded)}"),
            (self.held, f"with {self.still} of {self.units} units held that never bend"),
            (self.segments, "along linear segments"),
            (self.unseen, "that regions beyond the random inputs show"),
            (self.rest, "unexplained"),
        )
        return ", ".join(f"{count} {why}" for count, why in parts if count) or "nothing"


NONE = Excess((), 0, 0, 0, 0, 0, 0, 0)


def explain_excess(
    sampler: NetworkSampler,
    theta: Leaves,
    rng: np.random.Generator,
    orbit: int,
    nullity: int,
    fields_at: Callable[[NetworkSampler, Leaves, np.random.Generator], np.ndarray],
) -> Excess:
    """Explain `nullity` less `orbit` at the parameters `theta`; `fields_at` gives a basis of a
    network's affine fields at a point.
    """
    if nullity == orbit:
        return NONE
    names, inner, point = _fold(sampler, theta, rng)
    gone = sampler.size - inner.size
    own = len(fields_at(inner, point, rng)) if gone else orbit
    held = HeldNetwork.of(inner, point, rng)
    fixed = fields_at(NetworkSampler(held, inner.params, inner.x, inner.batch), point, rng)
    rest = nullity - gone - len(fixed)
    segments = held.count_segment_directions(point, fixed, rng) if rest > 0 else 0
    rest -= segments
    unseen = min(rest, held.count_unseen(point, nullity - gone, rng)) if rest > 0 else 0
    counts = (gone + own - orbit, len(fixed) - own, segments, unseen)
    return Excess(names, *counts, held.still, held.units, rest - unseen)


def _fold(
    sampler: NetworkSampler, theta: Leaves, rng: np.random.Generator
) -> tuple[tuple[str, ...], NetworkSampler, Leaves]:
    if sampler.batch:
        return (), sampler, theta
    x = jax.tree.map(lambda a: a[:, 0], sampler.draw_input(rng, _FEW))
    names, model, small = without_scales(sampler.f, jax.tree.unflatten(sampler.structure, theta), x)
    inner = NetworkSampler(model, small, x, False) if names else sampler
    return names, inner, jax.tree.leaves(small) if names else theta


@dataclass(frozen=True, eq=False)
class HeldNetwork:
    """A network in which units that did not switch at some parameters, on random inputs, are
    held as they were.
    """

    sampler: NetworkSampler
    on: tuple[np.ndarray, ...]
    off: tuple[np.ndarray, ...]

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """What makes two held networks the same function."""
        sampler, held = self.sampler, (*self.on, *self.off)
        shapes = Signature.of(sampler.params), Signature.of(sampler.one)
        return sampler.f, *shapes, sampler.batch, *((a.shape, a.tobytes()) for a in held)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldNetwork) and self._key == other._key

    @staticmethod
    def of(sampler: NetworkSampler, theta: Leaves, rng: np.random.Generator) -> "HeldNetwork":
        """Return the network of `sampler` with its units held as they are at `theta`."""
        graph = _graph(sampler)
        params = jax.tree.unflatten(sampler.structure, [jnp.asarray(leaf) for leaf in theta])
        x = sampler.draw_wide(rng, _INPUTS)
        x = x if sampler.batch else jax.tree.map(lambda a: a[:, 0], x)
        gates, zeros = ([np.asarray(a) for a in each] for each in _decide(graph, params, x))
        return HeldNetwork(sampler, *constant_units(gates, zeros))

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
        return _graph(self.sampler)

    def count_segment_directions(
        self, theta: Leaves, known: np.ndarray, rng: np.random.Generator
    ) -> int:
        """Count the directions that change no linear segment, and f nowhere, outside of the space
        `known`.
        """
        switching, D = switching_units(self.on, self.off), self.sampler.size
        scaled = np.concatenate([np.zeros(0, bool), *(units.ravel() for units in switching)])
        if not has_linear_segments(self.graph, D) or not scaled.any():
            return 0
        rows = self._rows(theta, rng, _FEW)
        whole = rows.segment_rows(self.on, switching, D + len(scaled) + MARGIN, rng)
        found = null_space(whole[:, np.append(np.ones(D, bool), scaled)])
        J = self.sampler.tangent_rows(theta, rng, D + MARGIN)
        J = J / np.maximum(np.linalg.norm(J, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        inside = found[0][np.abs(J @ found[0][:, :D].T).max(axis=0) <= _VERIFIED, :D]
        spectrum = np.linalg.svd(np.concatenate([known, inside]), compute_uv=False)
        return spectral_gap(spectrum, min(len(known) + len(inside), D)).rank - len(known)

    def count_unseen(self, theta: Leaves, nullity: int, rng: np.random.Generator) -> int:
        """Count the directions of a nullity that are none: by how much J has a larger rank on all
        regions that a search reaches.
        """
        if not self.graph.bending:
            return 0
        *_, rank, D = chain_of(self._rows(theta, rng, _SEARCHED), rng).ranks
        return max(0, nullity - (D - rank))

    def _rows(self, theta: Leaves, rng: np.random.Generator, count: int) -> FloatRows:
        """Return the Jacobian of the network at `theta`, on `count` random inputs."""
        x = self.sampler.draw_wide(rng, count)
        data = jax.tree.leaves(x if self.sampler.batch else jax.tree.map(lambda a: a[:, 0], x))
        params = jax.tree.unflatten(self.sampler.structure, theta)
        return FloatRows(self.graph, params, tuple(map(np.asarray, data)), FloatSpaces())

    def __call__(self, params: Any, x: Any) -> Any:
        """Return the outputs of f with these units held, flat."""
        if self.sampler.batch:
            return self._one(params, x)[None]
        return jax.vmap(lambda sample: self._one(params, sample))(x)

    def _one(self, params: Any, sample: Any) -> Any:
        found = interpret(
            self.graph.program,
            [*jax.tree.leaves(params), *jax.tree.leaves(sample)],
            _Holding(self.on, self.off),
        )
        return jnp.concatenate([value.reshape(-1) for value in found])


@jax.jit(static_argnums=0)
def _decide(graph: Graph, params: Any, x: Any) -> tuple[Any, Any]:
    """Return the gates of `graph` at every sample of `x`, and where the quantity behind a gate is
    zero: at random numbers, because nothing that it is made of is on.
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


def _graph(sampler: NetworkSampler) -> Graph:
    """Return the network of `sampler` at one input: with `batch` the whole batch is the sample."""
    if not sampler.batch:
        return trace(sampler.f, sampler.params, sampler.one)

    whole = jax.tree.map(lambda a: a[None], sampler.one)
    return trace(_OneBatch(sampler.f), sampler.params, whole)


@dataclass(frozen=True)
class _OneBatch:
    """A model whose one sample is a whole batch of `f`."""

    f: Model

    def __call__(self, params: Any, x: Any) -> Any:
        outputs = self.f(params, jax.tree.map(lambda a: a[0], x))
        return jax.tree.map(lambda y: y[None], outputs)
