"""`structural_symmetries`: the symmetries that a network has by its structure, at any width.

How a hidden axis meets the operations says which groups act on it (`discovery.dependence`), however
long it is; their dimensions are closed forms in its length n:

- a scale or a shift that the weights beside it take over: one direction for each of its entries;
- an axis on which f is linear, written by W and read by R: (gW, g⁻ᵀR) for g in GL(n), for each of h
  heads apart, so that h·n² directions act, of which h·(n − rank W)(n − rank R) fix the parameters;
- an axis of channels that scale against each other: n directions for each solution of the
  conditions on their degrees;
- a shift of one side of a product that softmax removes (the keys' bias), or that goes through a
  mean into the next shift (the values' bias): one direction for each entry;
- the direction of the ones vector in what writes a stream whose mean every reader removes, and in
  what reads it without its mean: one direction for each column;
- rotations of a stream of which f sees linear maps and lengths alone (after the gains of its norms
  are folded): those that keep the ones vector, (n − 1)(n − 2)/2, or n(n − 1)/2 where no mean is
  taken.

The first three are read from the operations, and hold at every input; the others are tested. Of
every kind elements are drawn at full size and f is compared with what it was, in float64.

Directions are counted once. Let rules 1, …, m be in an order in which V_i, the fields of rule i, is
seen on parameters that no later rule moves. Then the matrix of all fields is block triangular, and

    dim Σ V_i ≥ Σ_i rank(V_i on parameters that rules i + 1, …, m leave alone),

with equality where each of these ranks is that of V_i on all parameters.
"""

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import arithmetic, boundary
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.rank import numerical_rank
from neuromanifold.numerics.results import Result, follows
from neuromanifold.numerics.validation import check_params, refuse_tracers, sample_arrays
from neuromanifold.symmetry.discovery.channels import Arrays, Slot, scale_slots, slots_by_atom
from neuromanifold.symmetry.discovery.dependence import (
    Dependence,
    Exit,
    null_vectors,
    read_hidden_axes,
)
from neuromanifold.symmetry.discovery.statistics import Opened, open_statistics
from neuromanifold.symmetry.reduction.folding import Folding, fold_scales, take_over

_SAME = 1e-9  # of f's largest value: rounding is far below it, a step that f sees far above it
_STEP = 0.2
READ, TESTED = "read from the operations", "tested"
FOLDED = "scales and shifts folded into the weights beside them"
_LINEAR = "GL({n}) of channels on which f is linear"
_HEADS = "GL({n}) of each of {blocks} heads, {which}"
SCALED = "scalings of channels"
_KEYS = "key biases, which softmax removes"
_UNSEEN = "biases that softmax or a mean removes"
_CARRIED = "a shift that the next shift takes over"
_ROTATED = "rotations of a stream of {n} channels"
_ONES = "the ones direction that a mean removes"
Part = tuple[int, int, int, int]
"""A leaf, an axis of it, and from where to where on it."""


@dataclass(frozen=True, repr=False)
class SymmetryRule(Result):
    """One group by its structure: what it is, which parameters it moves, its dimension at these
    shapes, how many directions it adds at these parameters, and how it is known.
    """

    kind: str
    leaves: tuple[str, ...]
    dimension: int
    orbit: int
    evidence: str

    def headline(self) -> str:
        """Say the rule in one line."""
        return f"{self.kind}: {self.dimension:,} ({' '.join(self.leaves)}; {self.evidence})"


@dataclass(frozen=True, repr=False)
class StructuralSymmetries(Result):
    """The symmetries of a network by its structure: the rules, by how much f moved when elements of
    all of them were drawn at full size (relative to its largest value), whether the number of
    directions is exact or a lower bound, how many numbers the network has, and which axes have no
    description.
    """

    rules: tuple[SymmetryRule, ...]
    deviation: float
    exact: bool
    parameters: int
    left_out: tuple[str, ...]

    @property
    def orbit(self) -> int:
        """The number of directions in which f does not change, by all rules, each counted once."""
        return sum(rule.orbit for rule in self.rules)

    @property
    def kinds(self) -> dict[str, int]:
        """The number of directions by kind of rule."""
        found: dict[str, int] = {}
        for rule in self.rules:
            found[rule.kind] = found.get(rule.kind, 0) + rule.orbit
        return found

    def known(self, kind: str) -> str:
        """Say how the rules of a kind are known."""
        return " and ".join(dict.fromkeys(r.evidence for r in self.rules if r.kind == kind))

    def headline(self) -> str:
        """Return how many directions the rules have."""
        least = "" if self.exact else "at least "
        return (
            f"{least}{self.orbit:,} of {self.parameters:,} directions leave f unchanged by "
            f"structure, deviation {self.deviation:.0e} at full size"
        )

    def __str__(self) -> str:
        lines = [f"  {kind}: {count:,}, {self.known(kind)}" for kind, count in self.kinds.items()]
        lines += [f"  not looked at: the channels of {each}" for each in self.left_out]
        return "\n".join([self.headline(), *lines])


@follows
def structural_symmetries(
    f: Model, params: Params, x: Samples, *, key: Key | None = None
) -> StructuralSymmetries:
    """Return the continuous symmetries that `f` has by its structure, at any width, with their
    dimensions in closed form; elements drawn with `key` are checked on the first samples of `x`.

    >>> def f(params, x):
    ...     return np.tanh(1.0) * (x @ params["w"] @ params["v"])
    >>> params = {"w": np.eye(3)[:, :2], "v": np.ones((2, 3))}
    >>> found = nm.symmetry.structural_symmetries(f, params, np.ones((4, 3)))
    >>> [rule.kind for rule in found.rules], found.orbit
    (['GL(2) of channels on which f is linear'], 4)
    """
    refuse_tracers((params, x), "`structural_symmetries`")
    check_params(params)
    x = sample_arrays(x)
    with boundary(params, x):
        check_arguments(f, params, x)
    rng = host_generator(jax.random.key(0) if key is None else key)
    return symmetries_of(open_statistics(f, params, x), rng)[0]


def symmetries_of(
    network: Opened, rng: np.random.Generator, closed: np.ndarray | None = None
) -> tuple[StructuralSymmetries, int]:
    """Return the symmetries of a network by its structure, and how many of their directions are
    others than those of the parameters that `closed` marks, which have no effect.
    """
    graph, count = network.graph, network.count
    folds = fold_scales(graph, network.leaves, lambda leaves: network.moved(leaves) <= _SAME)
    levels = {k: float(a.flat[0]) for k, a in folds.neutral.items() if a.size}
    described = read_hidden_axes(network, levels)
    work = _Work(network, folds.arrays, frozenset(levels), rng)
    found = work.found(described.axes)
    none = [np.broadcast_to(False, leaf.shape) for leaf in folds.arrays]
    counted, exact = _count(found, folds.arrays, none)
    folded = [k for together in folds.together for k in together if k < count]
    sizes = [sum(folds.arrays[k].size for k in each if k < count) for each in folds.together]
    rules = [
        SymmetryRule(
            FOLDED,
            tuple(network.names[k] for k in together),
            size,
            size,
            READ,
        )
        for together, size in zip(folds.together, sizes, strict=True)
    ]
    rules += [
        SymmetryRule(
            rule.kind, tuple(dict.fromkeys(network.names[p[0]] for p in rule.parts)),
            rule.dimension, orbit, rule.evidence,
        )
        for rule, orbit in counted
    ]  # fmt: skip
    deviation = network.moved(_act(found, folds.arrays, rng))
    size = sum(leaf.size for leaf in folds.arrays[:count])
    shown = tuple(rule for rule in rules if rule.dimension)
    symmetries = StructuralSymmetries(shown, deviation, exact, size, described.left_out)
    if closed is None:
        return symmetries, symmetries.orbit
    masks = _masks(folds.arrays, count, closed)
    beside, _ = _count(found, folds.arrays, masks)
    open_ = sum(int((~masks[k]).sum()) for k in folded)
    return symmetries, open_ + sum(orbit for _, orbit in beside)


def _masks(leaves: Arrays, count: int, marked: np.ndarray) -> list[np.ndarray]:
    """Say which entries of each leaf have no effect."""
    found, start = [], 0
    for k, leaf in enumerate(leaves):
        flat = marked[start : start + leaf.size] if k < count else marked[:0]
        none = np.zeros(leaf.size - flat.size, bool)
        found.append(np.concatenate([flat, none]).reshape(leaf.shape))
        start += leaf.size
    return found


@compiled("model")
def _gradient(model: Model, params: Any, x: Any) -> Any:
    def combined(params: Any) -> Any:
        ys, key = jax.tree.leaves(call(model, params, x)), jax.random.key(0)
        return sum(jnp.vdot(jax.random.normal(key, y.shape, y.dtype), y) for y in ys)

    return jax.grad(combined)(params)


def _part(slot: Slot) -> Part:
    return slot.leaf, slot.axis, slot.start, slot.start + slot.length


@dataclass(frozen=True, eq=False)
class _Rule(abc.ABC):
    """A group that may act on some slots, and how it is known."""

    slots: tuple[Slot, ...]
    evidence: str = field(default=TESTED, kw_only=True)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the parameters that it moves."""
        return tuple(map(_part, self.slots))

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """Say what kind of symmetry it is."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The dimension of the group."""

    @abc.abstractmethod
    def acted(self, leaves: Arrays, rng: np.random.Generator) -> Arrays | None:
        """Return the leaves moved by an element that is drawn; None where there is none."""

    @abc.abstractmethod
    def rank(self, leaves: Arrays, masks: Arrays, seen: Sequence[int]) -> int:
        """Return the rank of its fields on some of its parts, without the entries that masks mark."""


@dataclass(frozen=True, eq=False)
class _Mixing(_Rule):
    """Matrices g on the channels of an axis, for each head its own: slots with sign 1 are
    multiplied by g, those with sign −1 by g⁻ᵀ.
    """

    signs: tuple[int, ...]
    each: tuple[Slot | None, ...]

    @property
    def blocks(self) -> int:
        return self.each[0].size if self.each[0] else 1

    @property
    def kind(self) -> str:
        text = _HEADS if self.each[0] else _LINEAR
        which = "queries and keys" if self.meets else "values and outputs"
        return text.format(n=self.slots[0].size, blocks=self.blocks, which=which)

    @property
    def meets(self) -> bool:
        """Whether channels of two products meet each other, as queries and keys do."""
        return not any(slot.reads for slot in self.slots)

    @property
    def dimension(self) -> int:
        return self.blocks * self.slots[0].size ** 2

    def acted(self, leaves: Arrays, rng: np.random.Generator) -> Arrays:
        n, found = self.slots[0].size, list(leaves)
        g = np.eye(n) + _STEP * rng.standard_normal((self.blocks, n, n)) / np.sqrt(n)
        by_sign = {1: g, -1: np.swapaxes(np.linalg.inv(g), 1, 2)}
        for slot, sign, each in zip(self.slots, self.signs, self.each, strict=True):
            a = np.array(found[slot.leaf])
            view = slot.by_head(each, a)
            flat = view.reshape(self.blocks, n, -1)
            view[...] = (by_sign[sign] @ flat).reshape(view.shape)
            found[slot.leaf] = a
        return found

    def rank(self, leaves: Arrays, masks: Arrays, seen: Sequence[int]) -> int:
        n, ranks = self.slots[0].size, {}
        for sign in (1, -1):
            rows = []
            for k in (k for k in seen if self.signs[k] == sign):
                slot = self.slots[k]
                entries, mask = (
                    slot.by_head(self.each[k], a[slot.leaf]).reshape(self.blocks, n, -1)
                    for a in (leaves, masks)
                )
                # A column with entries that do not count is left out: a lower bound.
                rows.append(np.where(mask.any(axis=1, keepdims=True), 0.0, entries))
            ranks[sign] = np.array(
                [_rank_beside((row[b] for row in rows), n, n) for b in range(self.blocks)]
            )
        return int((n**2 - (n - ranks[1]) * (n - ranks[-1])).sum())


@dataclass(frozen=True, eq=False)
class _Scaling(_Rule):
    """Scalings of every channel of an axis: slot s is multiplied by exp(Σ_k t_k N_ks)."""

    exponents: np.ndarray

    @property
    def kind(self) -> str:
        return SCALED

    @property
    def dimension(self) -> int:
        return len(self.exponents) * self.slots[0].size

    def acted(self, leaves: Arrays, rng: np.random.Generator) -> Arrays:
        logs = rng.uniform(-_STEP, _STEP, (len(self.exponents), self.slots[0].size))
        return scale_slots(leaves, self.slots, np.exp(self.exponents.T @ logs))

    def rank(self, leaves: Arrays, masks: Arrays, seen: Sequence[int]) -> int:
        there = np.zeros((self.slots[0].size, len(self.slots)), bool)
        for k in seen:
            slot = self.slots[k]
            there[:, k] = ((slot.slices(leaves) != 0) & ~slot.slices(masks)).any(axis=1)
        patterns, counts = np.unique(there, axis=0, return_counts=True)
        ranks = [np.linalg.matrix_rank(self.exponents[:, p]) if p.any() else 0 for p in patterns]
        return int(np.dot(ranks, counts))


@dataclass(frozen=True, eq=False)
class _Shift(_Rule):
    """A vector that may be shifted; where an exit is given, the shift after it takes over what the
    sum makes of it.
    """

    exit: Exit | None = None
    work: "_Work | None" = None
    taker: int = -1
    of_keys: bool = False

    @property
    def kind(self) -> str:
        if self.exit is None:
            return _KEYS if self.of_keys else _UNSEEN
        return _CARRIED

    @property
    def parts(self) -> tuple[Part, ...]:
        taken = () if self.taker < 0 else ((self.taker, -1, 0, 0),)
        return (*map(_part, self.slots), *taken)

    @property
    def dimension(self) -> int:
        return self.slots[0].length

    def acted(self, leaves: Arrays, rng: np.random.Generator) -> Arrays | None:
        own = self.slots[0].slices(leaves)
        step = (1.0 + np.abs(own).max(initial=0.0)) * rng.standard_normal(own.shape)
        found = list(leaves)
        self.slots[0].put(found, own + step)
        if self.exit is None or self.work is None:
            return found
        return self.work.absorbed(found, self.exit, -step)

    def rank(self, leaves: Arrays, masks: Arrays, seen: Sequence[int]) -> int:
        return int((~self.slots[0].slices(masks)).sum()) if 0 in seen else 0


@dataclass(frozen=True, eq=False)
class _Ones(_Rule):
    """1uᵀ may be added to what writes the channels, for any u with an entry for each column."""

    columns: int

    @property
    def kind(self) -> str:
        return _ONES

    @property
    def dimension(self) -> int:
        return self.columns

    def acted(self, leaves: Arrays, rng: np.random.Generator) -> Arrays:
        found = list(leaves)
        self.slots[0].change(
            found,
            lambda own: own + (_STEP + np.abs(own).mean()) * rng.standard_normal(own.shape[1]),
        )
        return found

    def rank(self, leaves: Arrays, masks: Arrays, seen: Sequence[int]) -> int:
        return int((~self.slots[0].slices(masks)).any(axis=0).sum()) if seen else 0


@dataclass(frozen=True, eq=False)
class _Rotation(_Rule):
    """Orthogonal matrices on a stream, the same for what writes and what reads it; with `mean` those
    that keep the ones vector.
    """

    mean: bool

    @property
    def kind(self) -> str:
        return _ROTATED.format(n=self.slots[0].size)

    @property
    def free(self) -> int:
        """The dimension of the space that rotates."""
        return self.slots[0].size - self.mean

    @property
    def dimension(self) -> int:
        return self.free * (self.free - 1) // 2

    def acted(self, leaves: Arrays, rng: np.random.Generator) -> Arrays:
        n, found = self.slots[0].size, list(leaves)
        A = _STEP * rng.standard_normal((n, n)) / np.sqrt(n)
        A = A - A.T
        if self.mean:
            off = np.eye(n) - 1.0 / n
            A = off @ A @ off
        Q = np.linalg.solve(np.eye(n) - A, np.eye(n) + A)
        for slot in self.slots:
            slot.change(found, lambda own: Q @ own)
        return found

    def rank(self, leaves: Arrays, masks: Arrays, seen: Sequence[int]) -> int:
        rows = self._counted(leaves, masks, seen)
        still = max(0, self.free - _rank_beside(rows, self.slots[0].size, self.free))
        return self.dimension - still * (still - 1) // 2

    def _counted(self, leaves: Arrays, masks: Arrays, seen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield columns of the stream that count, a part of a leaf at a time."""
        for slot in (self.slots[k] for k in seen):
            for entries, mask in zip(slot.pieces(leaves), slot.pieces(masks), strict=True):
                own = np.where(mask.any(axis=0), 0.0, entries)
                yield own - own.mean(axis=0) if self.mean else own


def _rank_beside(parts: Iterable[np.ndarray], rows: int, most: int) -> int:
    """Return the rank of matrices side by side by the triangle of their transposes; no more of
    them are looked at than have rank `most`.
    """
    triangle, width, rank = np.zeros((0, rows)), 0, 0
    for part in parts:
        start, step = 0, 2 * rows
        while start < part.shape[1] and rank < most:
            columns = part[:, start : start + step]
            start, step, width = start + step, 2 * step, width + columns.shape[1]
            triangle = np.linalg.qr(np.concatenate([triangle, columns.T]), mode="r")
            rtol = max(rows, width) * float(np.finfo(np.float64).eps)
            rank = int(numerical_rank(triangle, rtol=rtol))
        if rank >= most:
            break
    return rank


@dataclass(frozen=True, eq=False)
class _Work:
    """A network at work: its leaves with scales folded, which of them were, and what f is."""

    network: Opened
    leaves: Arrays
    neutral: frozenset[int]
    rng: np.random.Generator

    @cached_property
    def folding(self) -> Folding:
        """The affine chains of the network."""
        return Folding(self.network.graph, self.neutral)

    def _unseen(self, axes: Sequence[Dependence]) -> frozenset[tuple[Slot, bool]]:
        """Return the slots of which f does not see shifts, to first order, and (with True) those of
        which it does not see shifts along the ones. The derivative is as large as the leaves, and
        is not kept.
        """
        network = self.network
        with arithmetic():
            leaves = [jax.device_put(a, may_alias=True) for a in self.leaves]
            moved = _gradient(network.model, network.tree(leaves), network.few)
            gradient = [np.asarray(a) for a in jax.tree.leaves(moved)]
        limit = _SAME * max(_largest(a) for a in gradient)
        slots = dict.fromkeys(slot for axis in axes for slot in axis.channels.slots)
        return frozenset(
            (slot, ones)
            for slot in slots
            for ones in (False, True)
            if all(
                _largest(part.sum(axis=0) if ones else part) <= limit
                for part in slot.pieces(gradient)
            )
        )

    def found(self, axes: Sequence[Dependence]) -> list[_Rule]:
        """Return the rules of all axes that hold: matrices first, then what these do not contain."""
        described = [axis for axis in axes if any(exit.reader < 0 for exit in axis.exits)]
        unseen = self._unseen(described) if described else frozenset()
        mixing = self._first_that_holds([self._mixings(axis) for axis in axes])
        beside = [
            (rule,)
            for axis in axes
            for rule in (
                *self._scalings(axis, mixing),
                *self._shifts(axis, mixing, unseen),
                *self._stream(axis, unseen),
            )
        ]
        return [*mixing, *self._first_that_holds(beside)]

    def _first_that_holds(self, asked: Sequence[Sequence[_Rule]]) -> list[_Rule]:
        """Return the first rule of each sequence that leaves f as it was."""
        found: list[_Rule] = []
        open_ = [list(each) for each in asked if each]
        while open_:
            held = self._keep_holding([each[0] for each in open_])
            found += held
            open_ = [each[1:] for each in open_ if each[0] not in held and len(each) > 1]
        return found

    def _keep_holding(self, rules: list[_Rule]) -> list[_Rule]:
        """Return those of the rules that leave f as it was: all at once, else those of each half."""
        if not rules or self.network.moved(_act(rules, self.leaves, self.rng)) <= _SAME:
            return rules
        half = len(rules) // 2
        return (
            []
            if half == 0
            else [*self._keep_holding(rules[:half]), *self._keep_holding(rules[half:])]
        )

    def _mixings(self, axis: Dependence) -> list[_Rule]:
        """Return matrices on a linear axis: for each place of an axis that all its slots share,
        else the same for all.
        """
        own, null = axis.own_scalings(self.network.count)
        slots = tuple(axis.channels.slots[k] for k in own)
        if not axis.linear or axis.mixed or len(null) != 1 or len(own) < len(axis.channels.slots):
            return []
        if not np.allclose(np.abs(null[0]), np.abs(null[0, 0])) or slots[0].size < 2:
            return []
        signs = tuple(1 if e > 0 else -1 for e in null[0])
        found: list[_Rule] = [_Mixing(slots, signs, each) for each in self._companions(axis, slots)]
        return [*found, _Mixing(slots, signs, (None,) * len(slots), evidence=READ)]

    def _companions(
        self, axis: Dependence, slots: Sequence[Slot]
    ) -> Iterator[tuple[Slot | None, ...]]:
        for atom, others in _slots(self.network).items():
            if atom == axis.channels.atom or others[0].size < 2:
                continue
            beside = [slot.beside(others) for slot in slots]
            if all(each is not None for each in beside):
                yield tuple(beside)

    def _scalings(self, axis: Dependence, mixing: Sequence[_Rule]) -> Iterator[_Rule]:
        own, null = axis.own_scalings(self.network.count)
        slots = tuple(axis.channels.slots[k] for k in own)
        acting = [rule for rule in mixing if isinstance(rule, _Mixing)]
        if any({*map(_part, slots)} & {*rule.parts} and rule.slots == slots for rule in acting):
            return
        inside = np.array([_exponents_within(slots, rule) for rule in acting]).reshape(
            -1, len(slots)
        )
        rest = null_vectors(np.concatenate([inside @ null.T, np.zeros((1, len(null)))])) @ null
        if len(rest):
            yield _Scaling(slots, rest, evidence=READ)

    def _shifts(
        self, axis: Dependence, mixing: Sequence[_Rule], unseen: frozenset[tuple[Slot, bool]]
    ) -> Iterator[_Rule]:
        if not axis.linear or len(axis.exits) != 1:
            return
        [exit], channels = axis.exits, axis.channels
        own = [r for r in mixing if isinstance(r, _Mixing) and r.slots[0] in channels.slots]
        blocks = max((r.blocks for r in own if r.slots[0].size == channels.size), default=1)
        for slot in channels.slots:
            if slot.reads or slot.width(self.leaves) != blocks or slot.leaf >= self.network.count:
                continue
            if exit.reader < 0:
                if (slot, False) in unseen:
                    keys = any(r.blocks > 1 and r.meets for r in own)
                    yield _Shift((slot,), of_keys=keys)
                continue
            moved = _Shift((slot,), exit, self).acted(self.leaves, self.rng)
            if moved is not None:
                pairs = enumerate(zip(moved, self.leaves, strict=True))
                taker = [k for k, (a, b) in pairs if a is not b and k != slot.leaf]
                yield _Shift((slot,), exit, self, taker[0] if taker else slot.leaf)

    def _stream(self, axis: Dependence, unseen: frozenset[tuple[Slot, bool]]) -> Iterator[_Rule]:
        """Yield the rules that norms over the channels leave free."""
        sums = [exit for exit in axis.exits if exit.reader < 0 and exit.partner < 0]
        own = tuple(slot for slot in axis.channels.slots if slot.leaf < self.network.count)
        if not sums or len(own) < len(axis.channels.slots):
            return
        mean = any(max(exit.degree) == 1 for exit in sums)
        if own[0].size > 1 + mean:
            yield _Rotation(own, mean)
        for slot in (s for s in own if mean and (s, True) in unseen):
            yield _Ones((slot,), slot.width(self.leaves))

    def absorbed(self, leaves: Arrays, exit: Exit, step: np.ndarray) -> Arrays | None:
        """Return the leaves where the shift after an exit takes over a step of every channel."""
        with arithmetic():
            return take_over(self.folding, leaves, exit, step)


def _largest(a: np.ndarray) -> float:
    """Return the largest magnitude in an array."""
    return float(max(a.max(initial=0.0), -a.min(initial=0.0)))


def _slots(network: Opened) -> Mapping[int, tuple[Slot, ...]]:
    return slots_by_atom(network.graph.labels, len(network.names))


def _exponents_within(slots: Sequence[Slot], rule: _Mixing) -> np.ndarray:
    """Return the exponents with which scalar matrices of each head act on the heads' own slots."""
    found = np.zeros(len(slots))
    heads = {_part(each): sign for each, sign in zip(rule.each, rule.signs, strict=True) if each}
    sizes = {each.size for each in rule.each if each}
    for k, slot in enumerate(slots):
        if slot.size in sizes:
            found[k] = heads.get(_part(slot), 0)
    return found


def _act(rules: Sequence[_Rule], leaves: Arrays, rng: np.random.Generator) -> Arrays:
    """Return the leaves moved by an element of every rule."""
    for rule in rules:
        leaves = rule.acted(leaves, rng) or leaves
    return leaves


def _meet(a: Part, b: Part) -> bool:
    """Whether two parts have entries in common."""
    if a[0] != b[0]:
        return False
    return a[1] != b[1] or a[1] < 0 or (a[2] < b[3] and b[2] < a[3])


def _count(
    rules: Sequence[_Rule], leaves: Arrays, masks: Arrays
) -> tuple[list[tuple[_Rule, int]], bool]:
    """Return each rule with how many directions it adds, and whether their sum is exact.

    The ones directions come last: matrices are counted modulo them, by weights whose mean along the
    stream is taken off; rotations that keep the ones vector have no part in them.
    """
    ones = [rule for rule in rules if isinstance(rule, _Ones)]
    rest = [rule for rule in rules if not isinstance(rule, _Ones)]
    found = _count_ones(ones, leaves, masks)
    taken = [part for rule in ones for part in rule.parts]
    mixed = {slot.leaf for rule in rest if isinstance(rule, _Mixing) for slot in rule.slots}
    centred = _center([rule for rule in ones if rule.slots[0].leaf in mixed], leaves)
    whole = {id(rule): rule.rank(leaves, masks, range(len(rule.parts))) for rule in rest}
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    exact = True
    while rest:
        best: tuple[int, _Rule] | None = None
        for rule in rest:
            mixes, rotates = (isinstance(rule, kind) for kind in (_Mixing, _Rotation))
            others = [part for other in rest if other is not rule for part in other.parts]
            alone = tuple(
                k
                for k, part in enumerate(rule.parts)
                if not any(_meet(part, o) for o in others)
                and not any(
                    _meet(part, o)
                    and not (mixes and part[1] != o[1])
                    and not (rotates and part == o)
                    for o in taken
                )
            )
            if (id(rule), alone) not in known:
                at = centred if mixes else leaves
                known[id(rule), alone] = rule.rank(at, masks, alone)
            missing = known[id(rule), alone] - whole[id(rule)]
            if best is None or missing > best[0]:
                best = missing, rule
            if missing == 0:
                break
        assert best is not None
        missing, rule = best
        found.append((rule, whole[id(rule)] + missing))
        exact &= missing == 0
        rest.remove(rule)
    order = {id(rule): k for k, rule in enumerate(rules)}
    return sorted(found, key=lambda pair: order[id(pair[0])]), exact


def _count_ones(ones: Sequence[_Ones], leaves: Arrays, masks: Arrays) -> list[tuple[_Rule, int]]:
    """Return the ones directions of each slot: those of two axes of one leaf, 1uᵀ and v1ᵀ, share
    11ᵀ.
    """
    found: list[tuple[_Rule, int]] = []
    for k, rule in enumerate(ones):
        own = rule.rank(leaves, masks, (0,))
        before = [o for o in ones[:k] if _meet(o.parts[0], rule.parts[0])]
        shared = sum(rule.columns // o.slots[0].length for o in before)
        found.append((rule, max(0, own - shared)))
    return found


def _center(ones: Sequence[_Ones], leaves: Arrays) -> Arrays:
    """Return the leaves without the means that ones directions move."""
    found = list(leaves)
    for rule in ones:
        rule.slots[0].change(found, lambda own: own - own.mean(axis=0))
    return found
