"""Scalings of the channels of any network, and the balances that gradient flow keeps because of
them.

A channel that is homogeneous (ReLU, max-pooling, none) does not mind when what writes it is
multiplied by t and what reads it divided by t. With a_s the exponent of slot s of the parameters,
Σ_s a_s ‖θ_{s,i}‖² is then conserved for every channel i.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.symmetry.conservation.conserved import ConservedQuantities
from neuromanifold.symmetry.discovery.channels import Arrays, Channels, Slot, scale_slots
from neuromanifold.symmetry.discovery.dependence import Dependence, read_hidden_axes
from neuromanifold.symmetry.discovery.statistics import Opened, open_statistics

_ROUNDED, _LARGEST = 1e-6, 12
"""Exponents this near to a fraction with a denominator up to that are one."""


@dataclass(frozen=True, repr=False)
class Balance(Result):
    """One law for all channels of a hidden axis: slot s of the parameters is multiplied by
    t^exponents[s].
    """

    channels: Channels
    leaves: tuple[str, ...]
    exponents: tuple[float, ...]

    def headline(self) -> str:
        """Say which quantity is kept for each channel."""
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
        writing = [name for name, _ in sorted(used, key=lambda each: each[1].reads)]
        return self.channels.name if self.channels.name in writing else writing[0]

    def scaled(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Return Σ_s a_s θ_s for each channel, (channels, D): the generators at θ = `leaves`."""
        starts = np.cumsum([0, *(leaf.size for leaf in leaves)])
        rows = np.zeros((self.channels.size, starts[-1]))
        for slot, a in zip(self.channels.slots, self.exponents, strict=True):
            part = rows[:, starts[slot.leaf] : starts[slot.leaf + 1]]
            place = _number_of_channel(slot, leaves[slot.leaf].shape)
            own = np.flatnonzero(place >= 0)
            part[place[own], own] += a * leaves[slot.leaf].ravel()[own]
        return rows

    def acted(self, leaves: Sequence[np.ndarray], logs: np.ndarray) -> Arrays:
        """Return `leaves` with channel i scaled by t = exp(logs[i])."""
        return scale_slots(leaves, self.channels.slots, np.exp(np.outer(self.exponents, logs)))

    def values(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Return the quantity of each channel at the parameters `leaves`."""
        sums = [slot.squares(leaves) for slot in self.channels.slots]
        return np.asarray(self.exponents) @ np.stack(sums)


@dataclass(frozen=True, repr=False)
class Scalings(Result):
    """The scalings of channels that leave a network unchanged, as balances by hidden axis.

    `deviation` is by how much f moved, relative to its largest value, when all channels were scaled
    at random; `left_out` says which hidden axes were not looked at, and why.
    """

    balances: tuple[Balance, ...]
    deviation: float = 0.0
    left_out: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many channels' scalings there are."""
        return sum(b.channels.size for b in self.balances)

    def headline(self) -> str:
        """Say how many channels of which weights scale."""
        found = ", ".join(f"{b.channels.size} of {b.writer}" for b in self.balances) or "none"
        unseen = f"; not looked at: {', '.join(self.left_out)}" if self.left_out else ""
        return found + unseen

    def generators(self, params: Params) -> np.ndarray:
        """Return directions that change nothing, (k, D)."""
        leaves = _float64(params)
        none = np.zeros((0, sum(leaf.size for leaf in leaves)))
        return np.concatenate([none, *(balance.scaled(leaves) for balance in self.balances)])

    def quantities(self, params: Params) -> ConservedQuantities:
        """Return what gradient flow keeps: one number for each channel, labelled by the leaf that
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


def channel_scalings(f: Model, params: Params, x: Samples, *, key: Key | None = None) -> Scalings:
    """Return scalings of single channels under which f does not change: of convolutions, residual
    streams, gated units, any graph.

    Hidden axes are read from the graph, and the scalings from its operations: the exponents a_s of
    the slots solve linear equations, one for each sum and each function that is not homogeneous
    (`discovery.dependence`), so that they hold at all parameters, inputs and widths. Running
    statistics stay as they are. That f stays the same is tried at `params` with random scalings,
    drawn by `key`. What mixes channels is not sought here (`discover`).

    >>> f = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
    >>> params = {"in": np.ones((3, 2)), "out": np.ones((2, 1))}
    >>> found = nm.symmetry.channel_scalings(f, params, np.ones((4, 3)))
    >>> found.balances, found.quantities(params).values.tolist()         # 1 − 3
    ((Balance(‖out‖² − ‖in‖²),), [-2.0, -2.0])
    """
    refuse_tracers((params, x), "`channel_scalings`")
    with arithmetic():
        check_arguments(f, params, x)
    network = open_statistics(f, params, x)
    found = read_hidden_axes(network)
    balances = tuple(_balances(found.axes, network))
    rng = host_generator(jax.random.key(0) if key is None else key)
    return Scalings(balances, _deviation(network, balances, rng), found.left_out)


def _balances(axes: Sequence[Dependence], network: Opened) -> Iterator[Balance]:
    for axis in axes:
        slots, (own, null) = axis.channels.slots, axis.own_scalings(network.count)
        channels = replace(axis.channels, slots=tuple(slots[k] for k in own))
        leaves = tuple(network.names[slots[k].leaf] for k in own)
        for row in _canonical(null):
            yield Balance(channels, leaves, _exponents(row, channels))


def _deviation(network: Opened, balances: Sequence[Balance], rng: np.random.Generator) -> float:
    """Return by how much f moves when every channel is scaled at random, relative to its largest
    value.
    """
    leaves = list(network.leaves)
    for balance in balances:
        leaves = balance.acted(leaves, rng.uniform(-0.5, 0.5, balance.channels.size))
    return network.moved(leaves)


def _canonical(null: np.ndarray) -> np.ndarray:
    """Return the basis of a space with the identity at the first slots that allow it: the same,
    however the space was found.
    """
    first: list[int] = []
    for slot in range(null.shape[1]):
        if np.linalg.matrix_rank(null[:, [*first, slot]], tol=_ROUNDED) > len(first):
            first.append(slot)
    rows = np.linalg.solve(null[:, first], null)
    return np.where(np.abs(rows) > _ROUNDED * np.abs(rows).max(initial=0.0), rows, 0.0)


def _exponents(row: np.ndarray, channels: Channels) -> tuple[float, ...]:
    """Return whole numbers without a common divisor where they are such, positive for the first
    that reads the channels.
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


def _number_of_channel(slot: Slot, shape: tuple[int, ...]) -> np.ndarray:
    """Say which channel each entry of a leaf belongs to, flat; −1 where it belongs to none."""
    axis = [1] * len(shape)
    axis[slot.axis] = -1
    numbers = slot.spread(np.arange(slot.size), shape[slot.axis], fill=-1.0).astype(int)
    return np.broadcast_to(numbers.reshape(axis), shape).ravel()


def _float64(params: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params)]
