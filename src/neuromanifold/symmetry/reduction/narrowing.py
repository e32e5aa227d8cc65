"""The equivalent network with fewer channels, for any graph.

Where the channels of a hidden axis stay apart and are summed over with parameters that read them
(`discovery.dependence`), f is the same when

- a channel goes that nothing reads, or that is zero in every sum;
- a channel goes that is constant in every sum, and the shifts after the sums take it over;
- a channel goes that is t times another in every sum, and what reads the other takes over t times
  what read it: r_j + t r_i for r_j;
- all channels of a linear axis, written by W and read by R, are replaced by as many as RᵀW has
  rank, and so are those that are affine on the data (`linear_units`).

One pass over the data says which channels are zero, constant or multiples of each other there; the
parameters alone say which are so at every input. What is proposed is applied at once and confirmed
by f itself; where that fails, halves of it are.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.products import Convolution
from neuromanifold.graph.uses import leaves
from neuromanifold.models.adapters.torch.graph_writer import Smaller
from neuromanifold.models.arguments import Model
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.regions.reach import wide_inputs
from neuromanifold.symmetry.discovery.channels import Arrays, Channels, Slot, slots_by_atom
from neuromanifold.symmetry.discovery.dependence import Dependence, Exit, read_hidden_axes
from neuromanifold.symmetry.discovery.statistics import (
    Opened,
    WithStatistics,
    open_statistics,
    outputs_of,
    sample_blocks,
)
from neuromanifold.symmetry.reduction.box import Box, read_box
from neuromanifold.symmetry.reduction.folding import Folded, Folding, fold_scales, take_over
from neuromanifold.symmetry.reduction.linear_units import (
    LinearUnits,
    merge_units,
    numerical_rank,
    product_factors,
    units_of,
)
from neuromanifold.symmetry.reduction.readings import Data, Readings, read_channels
from neuromanifold.symmetry.reduction.rewriting import Removal

PROBES = 256
"""Wide inputs on which equality is tested, at most."""
_FEWEST = 8
_WORK = 2e10  # products that evaluating f once may take for its wide inputs
_LOST = 1e4  # roundings that a sum over a layer may add up to, in units of float64's
_ALIKE = 1e-9  # relative difference of random projections of channels that are worth a trial
_PARTS = 64  # parts of the channels that go together or not at all, within a tolerance
_EPS = float(np.finfo(np.float64).eps)

UNREAD, SILENT, OFF, INACTIVE, CONSTANT, STILL, PARALLEL, FOLDED = (
    "without outgoing weights", "without incoming weights", "inactive", "inactive on the sample", "constant",
    "constant on the sample", "equal or proportional to another", "folded into the weights beside them",
)  # fmt: skip
LINEAR = "linear on the sample"
NEARLY_STILL, NEARLY_PARALLEL = "nearly constant on the sample", "nearly a multiple of another"
_WHY = {
    UNREAD: "nothing reads it",
    SILENT: "nothing writes it, and what is made of zero is zero",
    OFF: "without incoming weights, it is what its bias makes it",
    CONSTANT: "the next shift takes its value over",
    PARALLEL: "its values are those of the other times the factor",
    FOLDED: "an affine map of parameters alone",
}


@dataclass(frozen=True)
class Limits:
    """What counts as equal: numbers that write channels to `rtol`, f to `tolerance` of its largest
    value (0: to rounding); with `everywhere` only what holds at every input is done, with a `box`
    what holds there too.
    """

    rtol: float = 8 * _EPS
    tolerance: float = 0.0
    everywhere: bool = False
    box: Box | None = None

    @property
    def rounding(self) -> float:
        """By how much f may differ, relative to its largest value at a sample."""
        return max(_LOST * _EPS, 100 * self.rtol)


@dataclass(frozen=True, eq=False)
class Narrowed:
    """A model at the parameters of fewer channels: the others are put back as zeros. A pure
    function of its parameters.

    `kept` are the places of each leaf that stayed, leaf by leaf and axis by axis, of the parameters
    and then of the statistics; `fixed` what is no parameter (any more), at its full size.
    """

    model: WithStatistics
    structure: Any
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kept: tuple[tuple[np.ndarray, ...], ...]
    fixed: Mapping[int, np.ndarray]

    def __call__(self, params: Any, x: Any) -> Any:
        """f with zeros for what was removed."""
        given = iter(jax.tree.leaves(params))
        full = [
            jnp.asarray(self.fixed[k]) if k in self.fixed else self._pad(k, next(given))
            for k in range(len(self.shapes))
        ]
        count = self.structure.num_leaves
        return self.model((self.structure.unflatten(full[:count]), tuple(full[count:])), x)

    def _pad(self, k: int, leaf: Any) -> Any:
        if not self.shapes[k] or np.shape(leaf) == self.shapes[k]:
            return jnp.asarray(leaf)
        leaf = jnp.asarray(leaf)
        return jnp.zeros(self.shapes[k], leaf.dtype).at[np.ix_(*self.kept[k])].set(leaf)

    @property
    def f(self) -> Model:
        """The network as it was given, before anything was folded or removed."""
        return self.model.f

    def smaller(self, k: int) -> np.ndarray:
        """What is no parameter, at the places that stayed."""
        a = self.fixed[k]
        return a[np.ix_(*self.kept[k])] if a.shape else a

    def direct(self) -> Model:
        """The network itself with smaller statistics, where it takes smaller parameters."""
        count = self.structure.num_leaves
        statistics = [self.smaller(k) for k in range(count, len(self.shapes))]
        folded = {k: self.smaller(k) for k in self.fixed if k < count}
        model = self.model.closed(statistics)
        return Folded(model, self.structure, folded) if folded else model


def smaller_parameters(model: Narrowed, params: dict[str, Any]) -> dict[str, Smaller]:
    """Each parameter of a dictionary by name, then each statistic: its values, and where they
    stood; what was folded at its neutral values.
    """
    found: dict[str, Smaller] = {}
    for k, name in enumerate(model.names):
        fixed = k in model.fixed
        values = model.smaller(k) if fixed else np.asarray(params[name])
        found[name] = Smaller(values, model.kept[k], model.shapes[k], fixed=fixed)
    return found


@dataclass(frozen=True, eq=False)
class SmallerNetwork:
    """(f, params) with fewer channels, the same with zeros put back, what went, how many channels,
    the largest difference on the sample and its largest value there, what was not looked at, and on
    how many wide inputs f was compared.
    """

    f: Model
    params: Any
    whole: Narrowed
    removed: tuple[Removal, ...]
    channels: int
    deviation: float
    size: float
    left_out: tuple[str, ...]
    probes: int


@dataclass(frozen=True)
class RemovalStep:
    """One channel of an axis goes, and why; `into` is the channel that takes it over with `factors`
    by exit, `constants` what it is in each exit's places.
    """

    axis: int
    channel: int
    reason: str
    everywhere: str = ""
    on_sample: bool = False
    on_box: bool = False
    into: int = -1
    factors: tuple[float, ...] = ()
    constants: tuple[np.ndarray, ...] = ()

    @property
    def here(self) -> bool:
        """Whether it is claimed on the sample or on the box only."""
        return self.on_sample or self.on_box


@dataclass(frozen=True, eq=False)
class _Outputs:
    """f as a function of all leaves at all inputs, samples first, then wide ones, and at the `few`
    among them, `few_samples` of which are samples. Most changes are seen at the few.
    """

    network: Opened
    data: Data
    samples: int
    few: np.ndarray
    few_samples: int

    @staticmethod
    def of(network: Opened, data: Data, wide: Data, few: int) -> "_Outputs":
        n, m = len(data[0]), len(wide[0])
        both = tuple(np.concatenate(each) for each in zip(data, wide, strict=True))
        some = np.arange(min(n, few)) * n // max(1, min(n, few))
        return _Outputs(
            network, both, n, np.concatenate([some, n + np.arange(min(m, few))]), len(some)
        )

    def rows(self, inputs: Any, arrays: Arrays) -> Iterator[np.ndarray]:
        """f at some of the inputs, one after another."""
        x = [a[inputs] for a in self.data]
        tree = jax.tree.unflatten(jax.tree.structure(self.network.x), x)
        return itertools.chain.from_iterable(self.network.outputs(arrays, tree))

    @cached_property
    def before(self) -> np.ndarray:
        """f at the parameters as they were given, at all inputs."""
        found = np.empty((len(self.data[0]), self.network.graph.outputs))
        for i, row in enumerate(self.rows(np.s_[:], self.network.leaves)):
            found[i] = row
        return found

    def same(self, arrays: Arrays, limit: float, *, on_sample: bool) -> bool:
        """Whether f is what it was, on the sample or on all inputs, relative to its size at each."""
        few = self.few[: self.few_samples] if on_sample else self.few
        every = np.arange(self.samples if on_sample else len(self.before))
        return all(self._stays(inputs, arrays, limit) for inputs in (few, every))

    def _stays(self, inputs: np.ndarray, arrays: Arrays, limit: float) -> bool:
        """Whether f differs by no more than `limit` of its largest value at each input."""
        tiny = np.finfo(np.float64).tiny
        for i, row in zip(inputs, self.rows(inputs, arrays), strict=True):
            moved, size = (_largest_entry(a) for a in (row - self.before[i], self.before[i]))
            if not moved <= limit * max(tiny, size) < np.inf:
                return False
        return True

    def moved(self, rows: Iterable[np.ndarray]) -> float:
        """By how much f on the sample, given by `rows`, differs from what it was."""
        pairs = zip(self.before[: self.samples], rows, strict=True)
        return max((_largest_entry(b - a) for a, b in pairs), default=0.0)

    @property
    def size(self) -> float:
        """The largest value of f on the sample."""
        return _largest_entry(self.before[: self.samples])

    def deviation(self, arrays: Arrays) -> float:
        """By how much f differs on the sample, relative to its largest value there."""
        return self.moved(self.rows(np.arange(self.samples), arrays)) / (self.size or 1.0)


@dataclass(frozen=True, eq=False)
class _Work:
    """The network at work: all leaves at full size, removed channels as zeros; `plain` the same with
    scales folded, by which channels are compared; the channels of each axis that are still there;
    what went. `neutral` are the leaves that were folded.
    """

    network: Opened
    outputs: _Outputs
    limits: Limits
    arrays: Arrays
    plain: Arrays
    axes: tuple[Dependence, ...]
    alive: tuple[np.ndarray, ...]
    removed: tuple[Removal, ...]
    neutral: frozenset[int]

    @cached_property
    def folding(self) -> Folding:
        """The affine chains of the network."""
        return Folding(self.network.graph, self.neutral)

    def noun(self, axis: int) -> str:
        """What the places of an axis are called: channels of convolutions, units that every token
        has, else neurons.
        """
        own = self.axes[axis]
        uses = [use for slot in own.channels.slots for use in self.folding.uses[slot.leaf].uses]
        if any(isinstance(use.node.primitive.product, Convolution) for use in uses):
            return "channel"
        shapes = [self.network.graph.program.values[exit.value].shape for exit in own.exits]
        places = [
            n
            for shape, exit in zip(shapes, own.exits, strict=True)
            for d, n in enumerate(shape)
            if d != exit.axis
        ]
        return "unit" if max(places, default=1) > 1 else "neuron"

    def every_slot(self, axis: int) -> tuple[Slot, ...]:
        """All slots of an axis, those of folded leaves and statistics too."""
        return _slots(self.network.graph)[self.axes[axis].channels.atom]

    def applied(self, steps: Sequence[RemovalStep]) -> tuple[Arrays, Arrays] | None:
        """The leaves after these steps; None where a constant cannot be taken over."""
        arrays, plain, same = self.arrays, self.plain, self.arrays is self.plain
        for k, own in itertools.groupby(sorted(steps, key=lambda s: s.axis), lambda s: s.axis):
            together = list(own)
            moved = self._shift(arrays, k, together)
            if moved is None:
                return None
            arrays = self.without(moved, k, together)
            plain = arrays if same else self.without(plain, k, together)
        return arrays, plain

    def without(self, arrays: Arrays, k: int, steps: list[RemovalStep]) -> Arrays:
        """The leaves without some channels of axis k, which others take over."""
        axis, found = self.axes[k], list(arrays)
        merged = [s for s in steps if s.into >= 0]
        readers: dict[int, int] = {}
        for number, exit in enumerate(axis.exits):
            readers.setdefault(exit.reader, number)
        for reader, number in readers.items() if merged else ():
            slot = axis.channels.slots[reader]
            factor = np.array([s.factors[number] for s in merged])
            source, target = [s.channel for s in merged], [s.into for s in merged]
            slot.add(found, target, factor[:, None] * slot.rows(found, source))
        gone = np.array([s.channel for s in steps])
        for slot in self.every_slot(k):
            if slot.leaf not in self.neutral:
                slot.clear(found, gone)
        return found

    def _shift(self, arrays: Arrays, k: int, steps: Sequence[RemovalStep]) -> Arrays | None:
        """The leaves where the shifts after the sums over axis k take over what is constant."""
        for number, exit in enumerate(self.axes[k].exits):
            own = [s for s in steps if len(s.constants) and s.constants[number].any()]
            if own:
                taken = self.taken_over(
                    arrays, exit, [(s.channel, s.constants[number]) for s in own]
                )
                if taken is None:
                    return None
                arrays = taken
        return arrays

    def taken_over(
        self, arrays: Arrays, exit: Exit, constants: Sequence[tuple[int, np.ndarray]]
    ) -> Arrays | None:
        """The leaves where the shift after an exit takes over constants of channels; None where
        there is no such shift.
        """
        slices = np.zeros((exit.place.size, exit.place.before * exit.place.after))
        for channel, value in constants:
            slices[channel] = value
        with arithmetic():
            return take_over(self.folding, arrays, exit, slices)

    def taking(self, steps: Sequence[RemovalStep], arrays: Arrays, plain: Arrays) -> "_Work":
        """The work after steps that were confirmed."""
        alive = [a.copy() for a in self.alive]
        counts: dict[Removal, int] = {}
        for s in steps:
            alive[s.axis][s.channel] = False
            name = self.axes[s.axis].channels.name
            kind = Removal(
                name,
                0,
                s.reason,
                self.noun(s.axis),
                everywhere=s.everywhere,
                on_sample=s.on_sample,
                on_box=s.on_box,
            )
            counts[kind] = counts.get(kind, 0) + 1
        removed = [replace(kind, count=count) for kind, count in counts.items()]
        return replace(
            self,
            arrays=arrays,
            plain=plain,
            alive=tuple(alive),
            removed=(*self.removed, *removed),
        )

    def confirmed(self, steps: Sequence[RemovalStep], *, on_sample: bool) -> "_Work":
        """As many of the steps as leave f as it was: all at once, else those of each half."""
        if not steps:
            return self
        together = self._confirm_together(steps, on_sample)
        if together is not None or len(steps) == 1:
            return together or self
        half = len(steps) // 2
        return self.confirmed(steps[:half], on_sample=on_sample).confirmed(
            steps[half:], on_sample=on_sample
        )

    def _confirm_together(self, steps: Sequence[RemovalStep], on_sample: bool) -> "_Work | None":
        """The work after all of the steps, where they leave f as it was."""
        found = self.applied(steps)
        if found and self.outputs.same(found[0], self.limits.rounding, on_sample=on_sample):
            return self.taking(steps, *found)
        return None


@lru_cache(maxsize=32)
def _slots(graph: Graph) -> dict[int, tuple[Slot, ...]]:
    return slots_by_atom(graph.labels, len(graph.parameters))


def _places(exit: Exit) -> Slot:
    """Where the channels are on the axis of an exit's value."""
    place = exit.place
    return Slot(0, 0, place.before, place.size, place.after, place.start)


def narrow(
    f: Model,
    params: Any,
    x: Any,
    limits: Limits,
    *,
    fold: bool,
    batches: Callable[[], Iterable[Data]] | None = None,
) -> SmallerNetwork:
    """The steps, until none is left; f itself at the smaller parameters where it takes them, else
    `Narrowed`. `batches` gives the data to be read where `x` is only a part of it.
    """
    network = open_statistics(f, params, x)
    graph, data = network.graph, tuple(np.asarray(a) for a in jax.tree.leaves(x))
    affordable = _WORK / max(1.0, products(graph))
    wide = wide_inputs(data, int(np.clip(affordable, _FEWEST, PROBES)), np.random.default_rng(0))
    outputs = _Outputs.of(network, data, wide, int(np.clip(affordable, 2, _FEWEST)))
    same = lambda arrays: outputs.same(arrays, limits.rounding, on_sample=False)  # noqa: E731
    folds = fold_scales(graph, network.leaves, same)
    levels = {k: float(a.flat[0]) for k, a in folds.neutral.items() if a.size}
    described = read_hidden_axes(network, levels)
    went = [
        Removal(
            " ".join(network.names[k] for k in together),
            sum(folds.arrays[k].size for k in together if k < network.count),
            FOLDED,
            "parameter",
            everywhere=_WHY[FOLDED],
        )
        for together in folds.together
    ]
    work = _Work(
        network=network,
        outputs=outputs,
        limits=limits,
        arrays=folds.arrays if fold else network.leaves,
        plain=folds.arrays,
        axes=described.axes,
        alive=tuple(np.ones(axis.channels.size, bool) for axis in described.axes),
        removed=tuple(went) if fold else (),
        neutral=frozenset(levels) if fold else frozenset(),
    )
    units = tuple(units_of(work.folding, axis) for axis in described.axes)
    sums = [(e.value, e.axis) for axis in described.axes for e in axis.exits]
    wanted = tuple(dict.fromkeys([*sums, *(unit.at for unit in units if unit is not None)]))
    held = sum(math.prod(graph.program.values[value].shape) for value in {v for v, _ in wanted})

    def parts(whole: Data) -> Iterator[Data]:
        return (tuple(a[b] for a in whole) for b in sample_blocks(graph, len(whole[0]), held))

    read_wide = read_channels(graph, work.arrays, parts(wide), wanted)
    if limits.box is None:
        given = itertools.chain.from_iterable(map(parts, batches() if batches else [data]))
        read = read_channels(graph, work.arrays, given, wanted)
    else:
        read = read_box(graph, work.arrays, limits.box, wanted)
    work = _exhaust(work, units, read, read_wide)
    if limits.tolerance > 0:
        work = _approximate(work, read)
    return _finish(work, described.left_out)


def products(graph: Graph) -> int:
    """How many products of parameters and values f makes at one sample."""
    uses = [use for leaf in leaves(graph.program, len(graph.parameters)) for use in leaf.uses]
    return sum(use.batch * use.positions * use.inner * use.outer for use in uses)


def _exhaust(
    work: _Work, units: Sequence[LinearUnits | None], read: Readings, wide: Readings
) -> _Work:
    """The steps in rounds, until a round finds nothing: what a channel is on the data stays the same
    while others go, or within the interval that was read.
    """
    while True:
        before = work
        proposed = [s for k in range(len(work.axes)) for s in _propose(work, k, read, wide)]
        work = work.confirmed([s for s in proposed if not s.here], on_sample=False)
        work = work.confirmed([s for s in proposed if s.here], on_sample=True)
        for k in range(len(work.axes)):
            work = _merge_linear(_compress(work, k), k, units[k], read)
        if work is before:
            return work


def _propose(work: _Work, k: int, read: Readings, wide: Readings) -> list[RemovalStep]:
    """Channels of axis k that may go, each with one reason."""
    axis = work.axes[k]
    if axis.mixed:
        return []
    still = list(_still(work, k, read))
    found: dict[int, RemovalStep] = {}
    rest = work.alive[k].copy()

    def take(steps: Iterable[RemovalStep]) -> None:
        for s in steps:
            if rest[s.channel]:
                found[s.channel] = s
                rest[s.channel] = False

    # What holds everywhere comes before what holds on the data.
    take(s for s in still if not s.here)
    take(_parallel(work, k, rest, read, wide))
    take(s for s in still if s.here)
    if not work.limits.everywhere and work.limits.box is None:
        take(_alike(work, k, rest, read, wide))
    steps = [s for s in found.values() if s.everywhere or not work.limits.everywhere]
    return sorted(steps, key=lambda s: s.channel)


def _still(work: _Work, k: int, read: Readings) -> Iterator[RemovalStep]:
    """Channels that nothing reads, or that are constant wherever they are read."""
    axis, n = work.axes[k], work.axes[k].channels.size
    slots = axis.channels.slots
    present = [slot.slices(work.plain).any(axis=1) for slot in slots]
    shape = (len(axis.exits), n)
    unread, zero, still, varies = (np.zeros(shape, bool) for _ in range(4))
    values: list[np.ndarray] = []
    for number, exit in enumerate(axis.exits):
        reading, view = read[exit.value, exit.axis], _places(exit)
        low, high = view.slices([reading.low]), view.slices([reading.high])
        values.append(low)
        unread[number] = exit.reader >= 0 and ~present[exit.reader]
        zero[number] = ((low == 0) & (high == 0)).all(axis=1)
        still[number] = (low == high).all(axis=1) & (exit.reader >= 0)
        for together in exit.form.data:
            varies[number] |= np.all([np.ones(n, bool), *(present[s] for s in together)], axis=0)
    enough = read.samples > 1
    proved = np.asarray((unread | (~varies & (zero | still))).all(axis=0))
    on_sample = (unread | zero | (still & enough)).all(axis=0)
    written = np.any(
        [np.zeros(n, bool), *(p for p, s in zip(present, slots, strict=True) if not s.reads)],
        axis=0,
    )
    for i in np.flatnonzero((proved | on_sample) & work.alive[k]):
        nothing = unread[:, i] | zero[:, i]
        constants = (
            ()
            if nothing.all()
            else tuple(np.where(unread[e, i], 0.0, v[i]) for e, v in enumerate(values))
        )
        taken = all(
            work.taken_over(work.arrays, exit, [(int(i), value)]) is not None
            for exit, value in zip(axis.exits, constants, strict=False)
            if value.any()
        )
        if not taken:
            continue  # it may still be a multiple of another
        if unread[:, i].all():
            reason = UNREAD
        elif proved[i]:
            reason = (OFF if written[i] else SILENT) if nothing.all() else CONSTANT
        else:
            reason = INACTIVE if nothing.all() else STILL
        on_box = not proved[i] and work.limits.box is not None
        yield RemovalStep(
            k,
            int(i),
            reason.replace("sample", "box") if on_box else reason,
            _WHY.get(reason, ""),
            on_sample=not proved[i] and not on_box,
            on_box=on_box,
            constants=constants,
        )


def _parallel(
    work: _Work, k: int, rest: np.ndarray, read: Readings, wide: Readings
) -> Iterator[RemovalStep]:
    """Channels that are written by multiples of what writes another."""
    axis = work.axes[k]
    writing = [s for s, slot in enumerate(axis.channels.slots) if not slot.reads]
    if not _mergeable(axis) or not writing:
        return
    rows = [axis.channels.slots[s].slices(work.plain) for s in writing]
    rtol = work.limits.rtol
    for i, j in _near_pairs(rows, rest, max(rtol, 64 * _EPS)):
        ratios = np.ones((len(axis.channels.slots), 1))
        own = [_ratio(row[j], row[i], rtol) for row in rows]
        # Zero is every multiple of zero: such a slot has the ratio of the others.
        there = [ratio for ratio, row in zip(own, rows, strict=True) if row[j].any()]
        for s, ratio, row in zip(writing, own, rows, strict=True):
            ratios[s, 0] = ratio if row[j].any() else (there or [1.0])[0]
        factors = axis.factors(ratios, 8 * rtol)[:, 0]
        if np.isfinite(factors).all() and _agree(axis, factors, rtol):
            actual = factors if work.arrays is work.plain else _measure_multiples(axis, i, j, wide)
            if actual is not None:
                yield RemovalStep(k, i, PARALLEL, _WHY[PARALLEL], into=j, factors=tuple(actual))


def _alike(
    work: _Work, k: int, rest: np.ndarray, read: Readings, wide: Readings
) -> Iterator[RemovalStep]:
    """Channels that are multiples of another at all samples and wide inputs."""
    axis = work.axes[k]
    if not _mergeable(axis):
        return
    rows = []
    for exit in axis.exits:
        view, parts = _places(exit), [r[exit.value, exit.axis].projections for r in (read, wide)]
        seen = [view.slices([p[c]]) for p in parts for c in range(len(p))]
        half = len(seen) // 2
        rows += [np.concatenate(seen[:half], axis=1), np.concatenate(seen[half:], axis=1)]
    limit = max(_ALIKE, work.limits.rtol)
    for i, j in _near_pairs(rows, rest, limit):
        ratios = [_ratio(row[j], row[i], limit) for row in rows]
        pairs = np.array(ratios).reshape(-1, 2)
        if (
            np.isfinite(pairs).all()
            and (np.abs(pairs[:, 0] - pairs[:, 1]) <= 10 * limit * np.abs(pairs[:, 1])).all()
        ):
            factors = pairs[:, 1]
            if _agree(axis, factors, limit):
                yield RemovalStep(k, i, PARALLEL, into=j, factors=tuple(factors))


def _mergeable(axis: Dependence) -> bool:
    """Whether parameters read the channels in every sum over them."""
    return bool(axis.exits) and all(exit.reader >= 0 for exit in axis.exits)


def _agree(axis: Dependence, factors: np.ndarray, rtol: float) -> bool:
    """Whether sums that share what reads the channels have one factor."""
    by_reader: dict[int, float] = {}
    for exit, factor in zip(axis.exits, factors.tolist(), strict=True):
        first = by_reader.setdefault(exit.reader, factor)
        if abs(first - factor) > 10 * rtol * abs(first):
            return False
    return True


def _measure_multiples(axis: Dependence, i: int, j: int, read: Readings) -> np.ndarray | None:
    """The multiple that channel i is of channel j in each sum, by their values."""
    found = []
    for exit in axis.exits:
        view, projections = _places(exit), read[exit.value, exit.axis].projections
        a, b = (np.concatenate([view.slices([p])[c] for p in projections]) for c in (i, j))
        found.append(_ratio(b, a, _ALIKE))
    return np.array(found) if np.isfinite(found).all() else None


def _near_pairs(
    rows: Sequence[np.ndarray], rest: np.ndarray, rtol: float
) -> Iterator[tuple[int, int]]:
    """Pairs (i, j) whose rows are nearly multiples of each other in every array, each i once, with
    the first j that is kept.

    Multiples have the same random projection of their directions, up to the sign and to what they
    may differ by: i is compared with those in whose range its number lies.
    """
    rng, numbers, spread = np.random.default_rng(0), np.zeros(len(rest)), np.zeros(len(rest))
    for row in rows:
        length = np.sqrt(np.einsum("ij,ij->i", row, row))
        length, peak = np.where(length > 0, length, 1.0), _largest(row)
        weight, weights = rng.uniform(1.0, 2.0), rng.standard_normal(row.shape[1])
        numbers += weight * np.abs(row @ weights) / length
        # Directions differ by no more than 2δ, δ = rtol √m peak / length, and their projections,
        # which are normal, by 8 · 2δ less than once in 10¹⁵ times.
        spread += weight * 16.0 * rtol * np.sqrt(row.shape[1]) * peak / length
    order = np.flatnonzero(rest)[np.argsort(numbers[rest], kind="stable")]
    first = np.searchsorted(numbers[order], numbers - spread, "left")
    stop = np.searchsorted(numbers[order], numbers + spread, "right")
    kept = np.zeros(len(rest), bool)
    for i in np.flatnonzero(rest).tolist():
        near = np.sort(order[first[i] : stop[i]])
        for j in near[kept[near]].tolist():
            if all(not np.isnan(_ratio(row[j], row[i], rtol)) for row in rows):
                yield i, j
                break
        else:
            kept[i] = True


def _largest(rows: np.ndarray) -> np.ndarray:
    """The largest magnitude in each row."""
    return np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))


def _ratio(base: np.ndarray, row: np.ndarray, rtol: float) -> float:
    """t with row = t·base, 1 where both are zero; nan where there is none."""
    pivot = int(np.abs(base).argmax()) if base.size else 0
    if not base.size or (base[pivot] == 0 and not row.any()):
        return 1.0
    if base[pivot] == 0 or row[pivot] == 0:
        return np.nan
    ratio = float(row[pivot] / base[pivot])
    return ratio if np.abs(row - ratio * base).max() <= rtol * np.abs(row).max() else np.nan


def _approximate(work: _Work, read: Readings) -> _Work:
    """As many channels gone as f allows within the tolerance: those that are nearly constant, or
    nearly a multiple of another, in the order of how much they are expected to move what reads
    them; where too many go at once, each half is tried.
    """
    steps = [s for k in range(len(work.axes)) for s in _near(work, k, read)]
    ordered = [s for _, s in sorted(steps, key=lambda pair: pair[0])]
    return _accept(work, ordered, max(1, len(ordered) // _PARTS))


def _accept(work: _Work, steps: Sequence[RemovalStep], least: int) -> _Work:
    chosen = _consistent(work, steps)
    found = work.applied(chosen) if chosen else None
    if found and work.outputs.deviation(found[0]) <= work.limits.tolerance:
        return work.taking(chosen, *found)
    if len(steps) <= least:
        return work
    half = len(steps) // 2
    return _accept(_accept(work, steps[:half], least), steps[half:], least)


def _near(work: _Work, k: int, read: Readings) -> Iterator[tuple[float, RemovalStep]]:
    """The channels of an axis, each with what it would cost to do without it."""
    axis, alive = work.axes[k], work.alive[k]
    if not _mergeable(axis) or axis.mixed or alive.sum() < 2:
        return
    n = axis.channels.size
    still, multiple = np.zeros(n), np.zeros((n, n))
    means, factors = [], np.zeros((len(axis.exits), n, n))
    for number, exit in enumerate(axis.exits):
        view, reading = _places(exit), read[exit.value, exit.axis]
        mean, square = view.slices([reading.mean]), view.slices([reading.square])
        if work.taken_over(work.arrays, exit, [(0, np.ones_like(mean[0]))]) is None:
            mean = np.zeros_like(mean)  # no shift takes a constant over: it goes as zero
        reader = axis.channels.slots[exit.reader].slices(work.arrays)
        weight = (reader**2).sum(axis=1)
        means.append(mean)
        still += weight * (square - mean**2).clip(0).sum(axis=1)
        P = np.concatenate([view.slices([p]) for p in reading.projections], axis=1)
        gram, own = P @ P.T, (P**2).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors[number] = np.where(own > 0, gram / own, 0.0)
            missed = 1 - np.where(own > 0, gram**2 / np.outer(own, own), 0.0)
        multiple += weight[:, None] * square.sum(axis=1)[:, None] * missed.clip(0)
    multiple[:, ~alive] = np.inf
    np.fill_diagonal(multiple, np.inf)
    for i in np.flatnonzero(alive):
        j = int(multiple[i].argmin())
        near = np.array([factors[e, i, j] for e in range(len(axis.exits))])
        if multiple[i, j] < still[i] and _agree(axis, near, 1e-3):
            yield (
                float(multiple[i, j]),
                RemovalStep(
                    k, int(i), NEARLY_PARALLEL, on_sample=True, into=j, factors=tuple(near)
                ),
            )
        else:
            constants = tuple(mean[i] for mean in means)
            yield (
                float(still[i]),
                RemovalStep(k, int(i), NEARLY_STILL, on_sample=True, constants=constants),
            )


def _consistent(work: _Work, steps: Sequence[RemovalStep]) -> list[RemovalStep]:
    """Those steps whose channel is taken over by one that is there and does not go too."""
    gone = {(s.axis, s.channel) for s in steps}
    return [
        s
        for s in steps
        if s.into < 0 or (work.alive[s.axis][s.into] and (s.axis, s.into) not in gone)
    ]


def _compress(work: _Work, k: int) -> _Work:
    """Linear channels: f is the same for (gW, g⁻ᵀR), W what writes them and R what reads them, so it
    depends on RᵀW alone, and as many channels as its rank do what all did.
    """
    axis, alive = work.axes[k], np.flatnonzero(work.alive[k])
    if not axis.linear or not _mergeable(axis) or axis.mixed or len(alive) < 2:
        return work
    apart = work.arrays is not work.plain
    if apart and {s.leaf for s in work.every_slot(k)} != {s.leaf for s in axis.channels.slots}:
        return work  # a scale between them was folded for comparison only
    found = _factorise(axis.channels, work.arrays, alive, work.limits.rtol)
    if found is None or not work.outputs.same(found[0], work.limits.rounding, on_sample=False):
        return work
    arrays, rank = found
    plain = _factorise(axis.channels, work.plain, alive, work.limits.rtol, rank) if apart else found
    mask = work.alive[k].copy()
    mask[alive[rank:]] = False
    why = "f is linear in these channels, and sees the product RᵀW alone"
    reason = f"linear: {rank} do what {len(alive)} did"
    went = Removal(axis.channels.name, len(alive) - rank, reason, work.noun(k), everywhere=why)
    return replace(
        work,
        arrays=arrays,
        plain=arrays if plain is None or not apart else plain[0],
        alive=tuple(mask if i == k else a for i, a in enumerate(work.alive)),
        removed=(*work.removed, went),
    )


def _merge_linear(work: _Work, k: int, units: LinearUnits | None, read: Readings) -> _Work:
    """Fewer channels for those of an axis that are affine on the data."""
    axis, limits = work.axes[k], work.limits
    if units is None or limits.everywhere:
        return work
    own = {slot.leaf for slot in work.every_slot(k)}
    if any(not np.array_equal(work.arrays[i], work.plain[i]) for i in own):
        return work  # a scale beside them was folded for comparison only

    def without(arrays: Arrays, channels: np.ndarray) -> Arrays:
        return work.without(arrays, k, [RemovalStep(k, int(c), LINEAR) for c in channels])

    found = merge_units(units, work.folding, work.arrays, read, work.alive[k], limits.rtol, without)
    if found is None or not work.outputs.same(found.arrays, limits.rounding, on_sample=True):
        return work
    alive = work.alive[k].copy()
    alive[found.went] = False
    where = LINEAR if limits.box is None else LINEAR.replace("sample", "box")
    went = len(found.went)
    removal = Removal(
        axis.channels.name,
        went,
        f"{where}: {found.before - went} do what {found.before} did",
        work.noun(k),
        on_sample=limits.box is None,
        on_box=limits.box is not None,
    )
    plain = [found.arrays[i] if i in own else a for i, a in enumerate(work.plain)]
    return replace(
        work,
        arrays=found.arrays,
        plain=found.arrays if work.arrays is work.plain else plain,
        alive=tuple(alive if i == k else a for i, a in enumerate(work.alive)),
        removed=(*work.removed, removal),
    )


def _factorise(
    channels: Channels, arrays: Arrays, alive: np.ndarray, rtol: float, rank: int | None = None
) -> tuple[Arrays, int] | None:
    """The leaves where the first of the channels do what all of them did, and how many do; None
    where all are needed.
    """
    W, R = channels.written(arrays), channels.read(arrays)
    U, s, V = product_factors(R[alive].T, W[alive])
    found = numerical_rank(s, (W.shape[1], R.shape[1], len(alive)), rtol)
    rank = found if rank is None else rank
    if rank >= len(alive):
        return None
    W, R = np.zeros_like(W), np.zeros_like(R)
    root = np.sqrt(s[:rank, None])
    W[alive[:rank]], R[alive[:rank]] = root * V[:rank], root * U[:, :rank].T
    return channels.rewritten(arrays, W, R), rank


def _finish(work: _Work, left_out: tuple[str, ...]) -> SmallerNetwork:
    """The parameters without the channels that went, with a model that takes them."""
    network, leaves = work.network, work.arrays
    kept = [[np.arange(n) for n in leaf.shape] for leaf in leaves]
    for k, alive in enumerate(work.alive):
        for slot in work.every_slot(k) if not alive.all() else ():
            places = kept[slot.leaf][slot.axis]
            kept[slot.leaf][slot.axis] = np.setdiff1d(places, slot.kept(~alive))
    small = [
        a if a.shape == tuple(map(len, places)) else a[np.ix_(*places)]
        for a, places in zip(leaves, kept, strict=True)
    ]
    fixed = {k: leaves[k] for k in (*work.neutral, *range(network.count, len(leaves)))}
    structure = jax.tree.structure(network.params)
    whole = Narrowed(
        network.model,
        structure,
        network.names,
        tuple(a.shape for a in leaves),
        tuple(map(tuple, kept)),
        fixed,
    )
    tree = structure.unflatten(
        [None if k in work.neutral else small[k] for k in range(network.count)]
    )
    model, deviation = network.model.f, 0.0
    if work.removed:
        direct, deviation = _compared(work.outputs, leaves, small)
        model = whole.direct() if direct else whole
    return SmallerNetwork(
        model,
        tree,
        whole,
        _count_removals(work.removed),
        sum(int((~a).sum()) for a in work.alive),
        deviation,
        work.outputs.size,
        left_out,
        len(work.outputs.before) - work.outputs.samples,
    )


def _compared(outputs: _Outputs, leaves: Arrays, small: Arrays) -> tuple[bool, float]:
    """Whether f itself runs at the smaller leaves and gives what it gives with zeros in the place
    of what went, and by how much the one that runs differs from f as it was.
    """
    sample = np.arange(outputs.samples)
    if all(a is b for a, b in zip(leaves, small, strict=True)):
        return True, outputs.moved(outputs.rows(sample, leaves))
    moved: list[float] = []
    try:
        for i, (a, b) in enumerate(
            zip(outputs.rows(sample, leaves), outputs.rows(sample, small), strict=True)
        ):
            if a.shape != b.shape or not np.allclose(b, a, rtol=1e-9, atol=1e-12):
                break
            moved.append(_largest_entry(b - outputs.before[i]))
        else:
            return True, max(moved, default=0.0)
    except Exception:  # a foreign network may raise anything at other shapes
        pass
    return False, outputs.moved(outputs.rows(sample, leaves))


def _largest_entry(a: np.ndarray) -> float:
    """The largest magnitude in an array; infinite where there is something that is no number."""
    found = max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))
    return found if np.isfinite(found) else np.inf


def _count_removals(removed: Iterable[Removal]) -> tuple[Removal, ...]:
    """Each kind of removal once, with how many went in all rounds."""
    counts: dict[Removal, int] = {}
    for each in removed:
        kind = replace(each, count=0)
        counts[kind] = counts.get(kind, 0) + each.count
    return tuple(replace(kind, count=count) for kind, count in counts.items())


def without_scales(f: Model, params: Any, x: Any) -> tuple[tuple[str, ...], Model, Any]:
    """What folds by name, and (f, params) without it."""
    graph = trace(f, params, x)
    arrays, structure = jax.tree.flatten(jax.tree.map(lambda a: np.asarray(a, np.float64), params))

    def values(leaves: Arrays) -> np.ndarray:
        return outputs_of(f, structure.unflatten(leaves), x, graph)

    before = values(arrays)
    size = np.abs(before).max(axis=1, keepdims=True, initial=np.finfo(np.float64).tiny)
    same = lambda leaves: bool((np.abs(values(leaves) - before) <= _LOST * _EPS * size).all())  # noqa: E731
    folds = fold_scales(graph, arrays, same)
    if not folds.neutral:
        return (), f, params
    names = tuple(graph.parameters[k] for together in folds.together for k in together)
    model = Folded(f, structure, folds.neutral)
    return names, model, model.parameters(folds.arrays)
