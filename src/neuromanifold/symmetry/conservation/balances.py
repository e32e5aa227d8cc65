"""Scalings of the channels of any network, and the balances that gradient flow keeps because of
them.

A channel that is homogeneous (ReLU, max-pooling, none) does not mind when what writes it is
multiplied by t and what reads it divided by t. With a_s the exponent of slot s of the parameters,
Σ_s a_s ‖θ_{s,i}‖² is then conserved for every channel i.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from neuromanifold.graph.graph import trace
from neuromanifold.graph.reading import called
from neuromanifold.models.arguments import Model, checked
from neuromanifold.numerics.precision import arithmetic, is_floating
from neuromanifold.numerics.randomness import host_generator
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.symmetry.conservation.conserved import ConservedQuantities
from neuromanifold.symmetry.discovery.channels import Arrays, Channels, Slot, channels_of
from neuromanifold.symmetry.discovery.numerical_null_space import null_space

_POINTS, _INPUTS, _COVECTORS = 2, 4, 2
_ROUNDED, _LARGEST = (
    1e-6,
    12,
)  # exponents this near to a fraction with a denominator up to that are one


@dataclass(frozen=True, repr=False)
class Balance(Result):
    """One law for all channels of a hidden axis: slot s of the parameters is multiplied by
    t^exponents[s]; `gap` of its spectrum.
    """

    channels: Channels
    leaves: tuple[str, ...]
    exponents: tuple[float, ...]
    gap: float

    def headline(self) -> str:
        """The quantity that is kept for each channel."""
        terms = [
            f"{'−' if a < 0 else '+'} {'' if abs(a) == 1 else f'{abs(a):g}'}‖{name}‖²"
            for name, a in sorted(
                zip(self.leaves, self.exponents, strict=True), key=lambda term: term[1] < 0
            )
            if a
        ]
        return " ".join(terms).removeprefix("+ ")

    @property
    def writer(self) -> str:
        """The leaf that its channels are called by: the axis's own where it is scaled, else the
        first weight that is and writes them.
        """
        used = [
            (n, s)
            for n, s, a in zip(self.leaves, self.channels.slots, self.exponents, strict=True)
            if a
        ]
        writing = [
            each[0] for each in sorted(used, key=lambda each: (each[1].reads, not each[1].weighs))
        ]
        return self.channels.name if self.channels.name in writing else writing[0]

    def scaled(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Σ_s a_s θ_s for each channel, (channels, D): the generators at θ."""
        starts = np.cumsum([0, *(leaf.size for leaf in leaves)])
        rows = np.zeros((self.channels.size, starts[-1]))
        for slot, a in zip(self.channels.slots, self.exponents, strict=True):
            part = rows[:, starts[slot.leaf] : starts[slot.leaf + 1]]
            place = _number_of_channel(slot, leaves[slot.leaf].shape)
            part[place, np.arange(place.size)] += a * leaves[slot.leaf].ravel()
        return rows

    def values(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """The quantity of each channel."""
        sums = [(slot.slices(leaves) ** 2).sum(axis=1) for slot in self.channels.slots]
        return np.asarray(self.exponents) @ np.stack(sums)


@dataclass(frozen=True, repr=False)
class Scalings(Result):
    """The scalings of channels that leave a network unchanged, as balances by hidden axis."""

    balances: tuple[Balance, ...]

    def headline(self) -> str:
        """How many of which."""
        return ", ".join(f"{b.channels.size} of {b.writer}" for b in self.balances) or "none"

    def generators(self, params: Any) -> np.ndarray:
        """Directions that change nothing, (k, D)."""
        leaves = _float64(params)
        none = np.zeros((0, sum(leaf.size for leaf in leaves)))
        return np.concatenate([none, *(balance.scaled(leaves) for balance in self.balances)])

    def quantities(self, params: Any) -> ConservedQuantities:
        """What gradient flow keeps: one number for each channel, labelled by the leaf that
        writes it.
        """
        leaves, seen = _float64(params), [b.writer for b in self.balances]
        names = [
            n if seen.count(n) == 1 else f"{n} ({seen[:k].count(n) + 1})"
            for k, n in enumerate(seen)
        ]
        labels = [
            f"balance[{n}, {i}]"
            for n, b in zip(names, self.balances, strict=True)
            for i in range(b.channels.size)
        ]
        return ConservedQuantities(
            np.concatenate([np.zeros(0), *(b.values(leaves) for b in self.balances)]), tuple(labels)
        )


def channel_scalings(f: Model, params: Any, x: Any, *, key: Any = None) -> Scalings:
    """Scalings of single channels under which f does not change: of convolutions, residual streams,
    gated units, any graph.

    Hidden axes are read from the graph. A combination of slots belongs to a scaling when Σ_s a_s
    Jθ_{s,i} = 0 for every channel i, which is the case when Σ_s a_s ⟨Jᵀw, θ_{s,i}⟩ = 0 for random w
    at random parameters: one Jᵀw says it of all axes, slots and channels at once. What mixes
    channels is not sought here (`discover`).

    >>> f = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
    >>> params = {"in": np.ones((3, 2)), "out": np.ones((2, 1))}
    >>> found = nm.symmetry.channel_scalings(f, params, np.ones((4, 3)))
    >>> found.balances, found.quantities(params).values.tolist()         # 1 − 3
    ((Balance(‖out‖² − ‖in‖²),), [-2.0, -2.0])
    """
    refuse_tracers((params, x), "`channel_scalings`")
    with arithmetic():
        checked(f, params, x)
    graph, rng = trace(f, params, x), host_generator(jax.random.key(0) if key is None else key)
    with arithmetic():
        some = jax.tree.map(
            lambda a: np.asarray(a[:_INPUTS], np.float64 if is_floating(a) else None), x
        )
        leaves, structure = jax.tree.flatten(params)
        sizes = [
            float(np.sqrt(np.mean(np.square(leaf, dtype=np.float64)))) or 1.0
            for leaf in map(np.asarray, leaves)
        ]
        points = [
            [
                np.asarray(size * rng.standard_normal(np.shape(leaf)))
                for size, leaf in zip(sizes, leaves, strict=True)
            ]
            for _ in range(_POINTS)
        ]
        pulled = _pulled(lambda leaves: called(f, structure.unflatten(leaves), some), points, rng)
        found = [
            (channels, *null_space(_rows_of(channels, pulled, rng)))
            for channels in channels_of(graph)
        ]
    names = graph.parameters
    return Scalings(
        tuple(
            Balance(
                channels,
                tuple(names[s.leaf] for s in channels.slots),
                _exponents(row, channels),
                cut.gap,
            )
            for channels, null, cut in found
            if cut.decided
            for row in _canonical(null)
        )
    )


def _canonical(null: np.ndarray) -> np.ndarray:
    """The basis of a space with the identity at the first slots that allow it: the same, however
    the space was found.
    """
    first: list[int] = []
    for slot in range(null.shape[1]):
        if np.linalg.matrix_rank(null[:, [*first, slot]], tol=_ROUNDED) > len(first):
            first.append(slot)
    rows = np.linalg.solve(null[:, first], null)
    return np.where(np.abs(rows) > _ROUNDED * np.abs(rows).max(initial=0.0), rows, 0.0)


def _exponents(row: np.ndarray, channels: Channels) -> tuple[float, ...]:
    """Whole numbers without a common divisor where they are such, positive for the first that
    reads the channels.
    """
    reading = [
        k
        for k, slot in enumerate(channels.slots)
        if slot.reads and abs(row[k]) > _ROUNDED * np.abs(row).max()
    ]
    row = row / row[reading[0] if reading else int(np.abs(row).argmax())]
    near = [Fraction(float(a)).limit_denominator(_LARGEST) for a in row]
    if any(abs(float(q) - a) > _ROUNDED for q, a in zip(near, row, strict=True)):
        return tuple(map(float, row))
    whole = math.lcm(*(q.denominator for q in near))
    return tuple(float(q * whole) for q in near)


def _pulled(
    g: Callable[[Any], Any], points: Sequence[Arrays], rng: np.random.Generator
) -> list[Arrays]:
    """θ ∘ Jᵀw at each point for some random w: the sum over a part of the parameters is how ⟨w,
    f⟩ answers to scaling it.
    """
    pull = jax.jit(lambda at, w: jax.vjp(g, at)[1](w)[0])
    outputs = jax.eval_shape(g, points[0])
    found = []
    for at in itertools.chain.from_iterable(itertools.repeat(at, _COVECTORS) for at in points):
        w = jax.tree.map(lambda y: rng.standard_normal(y.shape).astype(y.dtype), outputs)
        found.append([np.asarray(leaf * back) for leaf, back in zip(at, pull(at, w), strict=True)])
    return found


def _rows_of(channels: Channels, pulled: Sequence[Arrays], rng: np.random.Generator) -> np.ndarray:
    """Σ_i u_i ⟨Jᵀw, θ_{s,i}⟩, (rows, slots), with twice as many random u as there are slots for
    each w.
    """
    sums = [
        np.stack([slot.slices(each).sum(axis=1) for slot in channels.slots], axis=1)
        for each in pulled
    ]
    return np.concatenate(
        [rng.standard_normal((2 * len(channels.slots), channels.size)) @ each for each in sums]
    )


def _number_of_channel(slot: Slot, shape: tuple[int, ...]) -> np.ndarray:
    """Which channel each entry of a leaf belongs to, flat."""
    axis = [1] * len(shape)
    axis[slot.axis] = -1
    return np.broadcast_to(slot.spread(np.arange(slot.size)).reshape(axis), shape).ravel()


def _float64(params: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params)]
