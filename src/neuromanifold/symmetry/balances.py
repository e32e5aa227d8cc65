"""Scalings of the channels of any network, and the balances that gradient flow keeps because of them.

A channel that is homogeneous (ReLU, max-pooling, none) does not mind when what writes it is multiplied by t and what reads it divided
by t. With a_s the exponent of slot s of the parameters, Σ_s a_s ‖θ_{s,i}‖² is then conserved for every channel i.
"""

import math
from collections.abc import Sequence
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
from neuromanifold.symmetry.channels import Channels, Slot, channels_of
from neuromanifold.symmetry.conserved import ConservedQuantities
from neuromanifold.symmetry.cut import null_space
from neuromanifold.symmetry.named import echelon

_POINTS, _INPUTS = 2, 4
_ROUNDED, _LARGEST = 1e-6, 12  # exponents this near to a fraction with a denominator up to that are one


@dataclass(frozen=True, repr=False)
class Balance(Result):
    """One law for all channels of a hidden axis: slot s of the parameters is multiplied by t^exponents[s]; `gap` of its spectrum."""

    channels: Channels
    leaves: tuple[str, ...]
    exponents: tuple[float, ...]
    gap: float

    def headline(self) -> str:
        """The quantity that is kept for each channel."""
        terms = [
            f"{'−' if a < 0 else '+'} {'' if abs(a) == 1 else f'{abs(a):g}'}‖{name}‖²"
            for name, a in sorted(zip(self.leaves, self.exponents, strict=True), key=lambda term: term[1] < 0)
            if a
        ]
        return " ".join(terms).removeprefix("+ ")

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
        return ", ".join(f"{b.channels.size} of {b.channels.name}" for b in self.balances) or "none"

    def generators(self, params: Any) -> np.ndarray:
        """Directions that change nothing, (k, D)."""
        leaves = _float64(params)
        none = np.zeros((0, sum(leaf.size for leaf in leaves)))
        return np.concatenate([none, *(balance.scaled(leaves) for balance in self.balances)])

    def quantities(self, params: Any) -> ConservedQuantities:
        """What gradient flow keeps: one number for each channel, labelled by the leaf that writes it."""
        leaves, seen = _float64(params), [b.channels.name for b in self.balances]
        names = [n if seen.count(n) == 1 else f"{n} ({seen[:k].count(n) + 1})" for k, n in enumerate(seen)]
        labels = [
            f"balance[{n}, {i}]" for n, b in zip(names, self.balances, strict=True) for i in range(b.channels.size)
        ]
        return ConservedQuantities(
            np.concatenate([np.zeros(0), *(b.values(leaves) for b in self.balances)]), tuple(labels)
        )


def channel_scalings(f: Model, params: Any, x: Any, *, key: Any = None) -> Scalings:
    """Scalings of single channels under which f does not change: of convolutions, residual streams, gated units, any graph.

    Hidden axes are read from the graph. On each, J Σ_i u_i θ_{s,i} is computed for every slot s with one random weight u_i a channel, at
    random parameters: combinations of slots that vanish do so channel by channel. What mixes channels is not sought here (`discover`).

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
        some = jax.tree.map(lambda a: np.asarray(a[:_INPUTS], np.float64 if is_floating(a) else None), x)
        leaves, structure = jax.tree.flatten(params)
        sizes = [float(np.sqrt(np.mean(np.square(leaf, dtype=np.float64)))) or 1.0 for leaf in map(np.asarray, leaves)]
        points = [
            [size * rng.standard_normal(np.shape(leaf)) for size, leaf in zip(sizes, leaves, strict=True)]
            for _ in range(_POINTS)
        ]
        image = jax.jit(
            lambda at, along: jax.jvp(lambda p: called(f, structure.unflatten(p), some), (at,), (along,))[1]
        )

        def rows_of(channels: Channels) -> np.ndarray:
            """J along each slot, (rows, slots)."""
            u = rng.standard_normal(channels.size)
            images = [[_ravelled(image(at, _along(slot, at, u))) for slot in channels.slots] for at in points]
            return np.concatenate([np.stack(each, axis=1) for each in images])

        found = [(channels, *null_space(rows_of(channels))) for channels in channels_of(graph)]
    names = graph.parameters
    return Scalings(
        tuple(
            Balance(channels, tuple(names[s.leaf] for s in channels.slots), _exponents(row, channels), cut.gap)
            for channels, null, cut in found
            if cut.decided
            for row in echelon(null)
        )
    )


def _exponents(row: np.ndarray, channels: Channels) -> tuple[float, ...]:
    """Whole numbers without a common divisor where they are such, positive for the first that reads the channels."""
    reading = [k for k, slot in enumerate(channels.slots) if slot.reads and abs(row[k]) > _ROUNDED * np.abs(row).max()]
    row = row / row[reading[0] if reading else int(np.abs(row).argmax())]
    near = [Fraction(float(a)).limit_denominator(_LARGEST) for a in row]
    if any(abs(float(q) - a) > _ROUNDED for q, a in zip(near, row, strict=True)):
        return tuple(map(float, row))
    whole = math.lcm(*(q.denominator for q in near))
    return tuple(float(q * whole) for q in near)


def _along(slot: Slot, leaves: Sequence[np.ndarray], u: np.ndarray) -> list[np.ndarray]:
    """The field that multiplies each channel's entries in one slot by its own number."""
    shape = [1] * leaves[slot.leaf].ndim
    shape[slot.axis] = -1
    return [
        leaf * slot.spread(u).reshape(shape) if k == slot.leaf else np.zeros_like(leaf) for k, leaf in enumerate(leaves)
    ]


def _number_of_channel(slot: Slot, shape: tuple[int, ...]) -> np.ndarray:
    """Which channel each entry of a leaf belongs to, flat."""
    axis = [1] * len(shape)
    axis[slot.axis] = -1
    return np.broadcast_to(slot.spread(np.arange(slot.size)).reshape(axis), shape).ravel()


def _ravelled(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def _float64(params: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params)]
