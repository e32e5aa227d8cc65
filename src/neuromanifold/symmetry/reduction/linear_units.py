"""Channels that are affine on the data although their network bends: rectifiers that are always on,
clamps that never clamp.

Let the channels of an axis be written by one product, P = A ⊙ Wh + B, and let what enters each sum
over them be a function of P_i and of parameters alone. On the interval where P_i is on the data that
function is affine for a set L of channels, s_i P_i + c_i. What the sums see of L is then RᵀDWh and a
constant (R what reads the channels, D the slopes times A), and as many channels as that matrix has
rank do what all did. Each of them stays within the interval of a channel of L, scaled and shifted, so
that its function is the one that was looked at: the network keeps its operations. Shifts on both
sides must take the constants over; where one does not (none there, or zeros around an image), those
of L go whose P is a combination of the others', which needs no shift.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.primitives import Kind
from neuromanifold.graph.program import Program
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.symmetry.discovery.channels import Arrays, Slot
from neuromanifold.symmetry.discovery.dependence import Dependence, Exit
from neuromanifold.symmetry.reduction.folding import Chain, Folding, shift_to, take_over
from neuromanifold.symmetry.reduction.readings import Readings

_STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of an interval, where a function is compared with a line
_SAME = 64 * float(np.finfo(np.float64).eps)
_LEAST = 1e-5  # of its size, which a value must vary for a curve to be seen above rounding
_INSIDE = 1 - 1e-9  # the part of an interval that a channel in its place may use


@dataclass(frozen=True, eq=False)
class LinearUnits:
    """The channels of an axis from the product that writes them to the sums over them: the slot of
    its weight, the chain to P, the axis of P that has them, the channel of each place on it, and
    the part of the program that makes of P what enters the sums.
    """

    axis: Dependence
    slot: Slot
    chain: Chain
    along: int
    channel: np.ndarray
    after: Program

    @property
    def at(self) -> tuple[int, int]:
        """P, and its axis that has the channels."""
        return self.chain.end, self.along

    def interval(self, read: Readings) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest P of each channel on the data."""
        reading, own = read[self.at], self.channel >= 0
        ends = []
        for side in (reading.low, reading.high):
            found = np.zeros(self.axis.channels.size)
            found[self.channel[own]] = side[own]
            ends.append(found)
        return ends[0], ends[1]

    def by_channel(self, a: np.ndarray) -> np.ndarray:
        """The numbers of an array like P, one for each channel; nan where they differ."""
        rows = np.moveaxis(a, self.along, 0).reshape(a.shape[self.along], -1)
        own = self.channel >= 0
        found = np.full(self.axis.channels.size, np.nan)
        same = np.ptp(rows, axis=1) <= _SAME * np.abs(rows).max(axis=1, initial=0.0)
        found[self.channel[own]] = np.where(same, rows[:, 0], np.nan)[own]
        return found

    def field(self, numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """An array like P with one number for each channel."""
        lengths = [-1 if d == self.along else 1 for d in range(len(shape))]
        values = np.where(self.channel >= 0, numbers[self.channel], 0.0)
        return np.array(np.broadcast_to(values.reshape(lengths), shape))


def units_of(folding: Folding, axis: Dependence) -> LinearUnits | None:
    """The units of an axis, where one product writes it and parameters read it in sums of their
    own; None where it is linear anyway or anything else happens to it.
    """
    readers = [exit.reader for exit in axis.exits]
    if axis.linear or axis.mixed or not readers or min(readers) < 0:
        return None
    writing = {s.leaf: s for s in axis.channels.slots if not s.reads}
    made = [
        (value, writing[leaf])
        for value, (leaf, _) in folding.products.items()
        if leaf in writing and value in folding.of_sample
    ]
    if len(made) != 1 or len(set(readers)) < len(readers):
        return None
    [(value, slot)] = made
    chain = folding.starting(value)
    weight, after = folding.writer(chain), _after(folding, chain.end, axis.exits)
    if weight is None or after is None or slot.before * slot.after != 1:
        return None
    shape = folding.program.values[folding.program.inputs[slot.leaf]].shape
    numbered = np.full(shape[slot.axis], -1)
    numbered[slot.kept(np.arange(slot.size))] = np.arange(slot.size)
    lengths = [-1 if d == slot.axis else 1 for d in range(len(shape))]
    rows = weight.moved(np.broadcast_to(numbered.reshape(lengths), shape))
    channel = np.moveaxis(rows, weight.axis, 0)[:, *(0,) * (rows.ndim - 1)][weight.place]
    for along in range(channel.ndim):
        lines = np.moveaxis(channel, along, 0).reshape(channel.shape[along], -1)
        present = lines[:, 0][lines[:, 0] >= 0]
        if (lines == lines[:, :1]).all() and len(set(present.tolist())) == slot.size:
            fits = len(present) == slot.size
            return LinearUnits(axis, slot, chain, along, lines[:, 0], after) if fits else None
    return None


def _after(folding: Folding, start: int, exits: Sequence[Exit]) -> Program | None:
    """What makes of a value what enters the sums: entry by entry, with moves and sums over other
    axes, of that value and parameters alone.
    """
    program, ends = folding.program, tuple(exit.value for exit in exits)
    depending = program.depending([start])
    nodes = [
        node
        for node in program.slice(ends).nodes
        if start not in node.outputs and any(i in depending for i in node.inputs)
    ]
    others = {i for node in nodes for i in node.inputs if i not in depending}
    known = (Kind.MOVES, Kind.ADDS)
    apart = all(node.primitive.entrywise or node.primitive.kind in known for node in nodes)
    met = [program.values[i] for node in nodes for i in (*node.inputs, *node.outputs)]
    apart &= all(value.dtype == np.float64 for value in met if value.real)  # nothing is cast
    if not apart or others & folding.of_sample or any(end not in depending for end in ends):
        return None
    inputs = (start, *sorted(others - set(program.constants)))
    return replace(program, nodes=tuple(nodes), inputs=inputs, outputs=ends)


@dataclass(frozen=True, eq=False)
class _Affine:
    """What enters each sum, s P + c on an interval: s for each exit and channel, c for each exit
    in the places of its channels; `fits` says for which channels this is so.
    """

    slopes: np.ndarray
    constants: tuple[np.ndarray, ...]
    fits: np.ndarray


def _affine(
    units: LinearUnits, folding: Folding, arrays: Arrays, low: np.ndarray, high: np.ndarray
) -> _Affine:
    shape = folding.program.values[units.chain.end].shape
    given = [folding.parameter(i, arrays) for i in units.after.inputs[1:]]
    found = [
        interpret(
            units.after, [jnp.asarray(units.field(low + u * (high - low), shape)), *given], None
        )
        for u in _STEPS
    ]
    fits = high > low
    slopes, constants = [], []
    for number, exit in enumerate(units.axis.exits):
        place = exit.place
        view = Slot(0, exit.axis, place.before, place.size, place.after, place.start)
        values = [view.slices([np.asarray(each[number])]) for each in found]
        first, last = values[0], values[-1]
        size = np.maximum(np.abs(first), np.abs(last)).max(axis=1, keepdims=True)
        for u, value in zip(_STEPS, values, strict=True):
            fits &= (np.abs(value - first - u * (last - first)) <= _SAME * size).all(axis=1)
        fits &= (np.abs(last - first) >= _LEAST * size).all(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (last - first) / (high - low)[:, None]
        around = len(first[0]) // (place.before * place.after)
        apart = (first - slope * low[:, None]).reshape(len(first), -1, around)
        fits &= (np.ptp(slope, axis=1) * (high - low) <= _SAME * size[:, 0]) & (
            np.ptp(apart, axis=2) <= _SAME * size
        ).all(axis=1)
        slopes.append(slope[:, 0])
        constants.append(apart[:, :, 0])
    return _Affine(np.array(slopes), tuple(constants), fits)


@dataclass(frozen=True, eq=False)
class Merged:
    """The leaves where some channels of an axis do what more did, before those that `went` are set
    to zero and after; how many were and are needed.
    """

    arrays: Arrays
    went: np.ndarray
    before: int


Without = Callable[[Arrays, np.ndarray], Arrays]


def merge_units(
    units: LinearUnits,
    folding: Folding,
    arrays: Arrays,
    read: Readings,
    alive: np.ndarray,
    rtol: float,
    without: Without,
) -> Merged | None:
    """Fewer channels for those that are affine on the data; `without` sets all that belongs to a
    channel to zero. None where all are needed.
    """
    with arithmetic(), np.errstate(invalid="ignore"):
        low, high = units.interval(read)
        line = _affine(units, folding, arrays, low, high)
        A, B = map(units.by_channel, folding.affine(units.chain, arrays))
        chosen = (
            line.fits & alive & np.isfinite(A) & np.isfinite(B) & (line.slopes != 0).all(axis=0)
        )
        L = np.flatnonzero(chosen)
        if len(L) < 2:
            return None
        state = _State(units, folding, arrays, line, L, A, B, rtol, without)
        return state.shifted(low, high) or state.combined()


@dataclass(frozen=True, eq=False)
class _State:
    units: LinearUnits
    folding: Folding
    arrays: Arrays
    line: _Affine
    L: np.ndarray
    A: np.ndarray
    B: np.ndarray
    rtol: float
    without: Without

    @property
    def written(self) -> np.ndarray:
        """A W for the channels of L."""
        return self.A[self.L, None] * self.units.slot.rows(self.arrays, self.L)

    @property
    def read(self) -> list[np.ndarray]:
        """What reads P in each sum, for the channels of L."""
        slots = self.units.axis.channels.slots
        return [
            slots[exit.reader].rows(self.arrays, self.L) * slope[self.L, None]
            for exit, slope in zip(self.units.axis.exits, self.line.slopes, strict=True)
        ]

    def shifted(self, low: np.ndarray, high: np.ndarray) -> Merged | None:
        """As many channels as the product has rank, each in the interval of one that was there."""
        W, R, L = self.written, np.concatenate(self.read, axis=1), self.L
        U, s, V = product_factors(R.T, W)
        rank = numerical_rank(s, (*W.shape, R.shape[1]), self.rtol)
        chain, folding = self.units.chain, self.folding
        moved = self._constants(self.arrays, L, self.B, 1.0)
        if rank >= len(L) or moved is None:
            return None
        size = np.maximum(np.abs(low), np.abs(high))[L]
        widest = L[np.argsort((low - high)[L] / size, kind="stable")]
        hosts, went = widest[:rank], widest[rank:]
        # V h is a combination of the P of L, and no larger than these allow.
        G = np.linalg.lstsq(W.T, V[:rank].T, rcond=None)[0].T
        middle, half = (low + high)[L] / 2 - self.B[L], (high - low)[L] / 2
        scale = _INSIDE * (high - low)[hosts] / 2 / (np.abs(G) @ half)
        shift = self.B.copy()
        shift[hosts] = (low + high)[hosts] / 2 - scale * (G @ middle)
        R = (s[:rank] * U[:, :rank] / scale).T
        moved = self.without(self._put(moved, hosts, scale[:, None] * V[:rank], R), went)
        B = folding.affine(chain, moved)[1]
        here = self.units.field(np.isin(np.arange(len(shift)), hosts), B.shape) > 0
        target = np.where(here, self.units.field(shift, B.shape), B)
        found = shift_to(folding, chain, moved, target)
        found = None if found is None else self._constants(found, hosts, shift, -1.0)
        return None if found is None else Merged(found, went, len(L))

    def combined(self) -> Merged | None:
        """Those whose P is a combination of the others' go."""
        from scipy.linalg import qr

        rows, L = np.concatenate([self.written, self.B[self.L, None]], axis=1), self.L
        triangle, order = qr(rows.T, mode="r", pivoting=True)  # pyright: ignore
        sizes = np.abs(np.diag(triangle))
        rank = numerical_rank(sizes, rows.shape, self.rtol)
        if rank >= len(L):
            return None
        kept, went = order[:rank], order[rank:]
        C = np.linalg.lstsq(rows[kept].T, rows[went].T, rcond=None)[0].T
        found = self._constants(self.arrays, L[went], np.zeros(len(self.B)), 1.0)
        if found is None:
            return None
        R = np.concatenate(self.read, axis=1)
        W = self.written[kept]
        found = self._put(found, L[kept], W, R[kept] + C.T @ R[went])
        return Merged(self.without(found, L[went]), L[went], len(L))

    def _put(self, arrays: Arrays, hosts: np.ndarray, W: np.ndarray, R: np.ndarray) -> Arrays:
        """The leaves where the channels `hosts` have P = Wh + B and are read by R."""
        found, start = list(arrays), 0
        self.units.slot.put_rows(found, hosts, W / self.A[hosts, None])
        for exit, slope in zip(self.units.axis.exits, self.line.slopes, strict=True):
            slot = self.units.axis.channels.slots[exit.reader]
            width = slot.rows(found, hosts[:1]).size
            rows = R[:, start : start + width] / slope[hosts, None]
            slot.put_rows(found, hosts, rows)
            start += width
        return found

    def _constants(
        self, arrays: Arrays, channels: np.ndarray, P: np.ndarray, sign: float
    ) -> Arrays | None:
        """The leaves where the shifts after the sums take over what these channels give at P."""
        found: Arrays | None = arrays
        for exit, slope, constant in zip(
            self.units.axis.exits, self.line.slopes, self.line.constants, strict=True
        ):
            values = np.zeros_like(constant)
            values[channels] = sign * (slope[channels] * P[channels])[:, None]
            values[channels] += sign * constant[channels]
            if found is not None and values.any():
                found = take_over(self.folding, found, exit, values)
        return found


def numerical_rank(s: np.ndarray, sizes: Sequence[int], rtol: float) -> int:
    """How many singular values of a product of matrices with these sizes are not rounding."""
    return int((s > rtol * max(sizes) * s.max(initial=0.0)).sum())


def product_factors(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, Any, Any]:
    """The singular value decomposition of AB by those of small matrices: A = QR, Bᵀ = PS, AB =
    Q(RSᵀ)Pᵀ.
    """
    (Q, R), (P, S) = np.linalg.qr(A), np.linalg.qr(B.T)
    U, s, V = np.linalg.svd(R @ S.T, full_matrices=False)
    return Q @ U, s, V @ P.T
