"""What a network does with the channels of a hidden axis, operation by operation: why scalings,
sign flips, mixings and removals of channels hold at every input and every width.

Let w_s be the part of the parameters at channel i in slot s (a row of a weight, a bias, a gain, a
column of what reads). Operation by operation, a value that has the axis is at channel i a function
of w_1, …, w_S at this channel and of values without the axis, the same function at every channel:
entrywise functions, products with values without the axis, sums and maxima over other axes. We say
that the channels stay *apart*. A value is kept with three properties:

- its *degree* in each slot: with w_s multiplied by t_s > 0 it is multiplied by Π_s t_s^{d_s};
- its *parity* in each slot: with the sign of w_s changed it changes its own, or not;
- whether it is *linear*: then the channels may be mixed by any matrix.

Where an operation has no such rule of its own, it holds under a condition: v₁ + v₂ is multiplied by
what both are if d₁·log t = d₂·log t, and tanh v by nothing if d·log t = 0. A sum Σ_i u_i v_i over
the channels, with u what reads them, stays the same if (d_u + d_v)·log t = 0. All conditions are
linear in log t (and, for signs, linear modulo 2): their solutions are symmetries of the network, by
induction over the operations, whatever the width. Any operation that is not known here leaves the
axis without such a description, and nothing is claimed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from neuromanifold.graph import axis_rules
from neuromanifold.graph.axes import Labels, Place
from neuromanifold.graph.dataflow import forward
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.primitives import Kind
from neuromanifold.graph.program import Node, Program
from neuromanifold.symmetry.discovery.channels import Channels, slots_by_atom
from neuromanifold.symmetry.discovery.statistics import Opened

Sets = frozenset[frozenset[int]]
_ALWAYS: Sets = frozenset({frozenset()})
_MOST_SETS = 64
Degree = tuple[float, ...]
Parity = tuple[bool, ...]


@dataclass(frozen=True, order=True)
class Where:
    """Where a value has the channels: an axis, the first place on it; `member` and `selector` where
    it has them at one place of another axis only, which was split from this one.
    """

    axis: int
    start: int
    member: int = -1
    selector: int = -1


@dataclass(frozen=True)
class DependenceForm:
    """How a value depends on the parameters at a channel.

    `slot` is the slot that it is a multiple of, rearranged, where it is no more than that; a `gate`
    is a truth value. It is made of the slots `of`. It can be other than zero only at channels where
    all slots of one of the sets in `support` are not zero, and depends on the sample only where all
    of one of those in `data` are not.
    """

    degree: Degree
    parity: Parity
    linear: bool = True
    slot: int = -1
    gate: bool = False
    of: frozenset[int] = frozenset()
    support: Sets = _ALWAYS
    data: Sets = frozenset()

    def times_data(self) -> "DependenceForm":
        """Return the form of this value times a value of the data."""
        return replace(self, slot=-1, data=self.support)


@dataclass(frozen=True)
class Exit:
    """A sum over the channels: of which value, how it depends on them, and what reads them: the
    slot of parameters or another value (`partner`); neither where they are added up as they are.

    `degree` and `parity` are those of the terms of the sum.
    """

    node: Node
    value: int
    axis: int
    place: Place
    form: DependenceForm
    degree: Degree
    parity: Parity
    reader: int = -1
    partner: int = -1


@dataclass(frozen=True, eq=False)
class Dependence:
    """What holds for every channel of an axis: the conditions on degrees and on parities within the
    network, one in each row with a column for each slot, and where the channels are summed over.

    `linear` says that all values are linear in what writes the channels and every sum over them is
    a product of two such, so that matrices may act. `mixed` are the slots that write channels and
    read them.
    """

    channels: Channels
    degrees: np.ndarray
    parities: np.ndarray
    exits: tuple[Exit, ...]
    linear: bool
    mixed: frozenset[int]

    @property
    def scalings(self) -> np.ndarray:
        """All conditions on the exponents of scalings that leave the network unchanged."""
        return np.concatenate([self.degrees, *(self._pair(e) for e in self.exits)])

    def own_scalings(self, count: int) -> tuple[list[int], np.ndarray]:
        """Return which slots belong to the first `count` leaves, the parameters, and a basis of the
        exponents of scalings that leave the other leaves, the statistics, as they are.
        """
        leaves = np.array([slot.leaf for slot in self.channels.slots])
        fixed = np.eye(len(leaves))[leaves >= count]
        null = null_vectors(np.concatenate([self.scalings, fixed]))
        own = np.flatnonzero(leaves < count).tolist()
        return own, null[:, own]

    @property
    def flips(self) -> np.ndarray:
        """All conditions, modulo 2, on changes of sign that leave the network unchanged."""
        sums = [np.array(exit.parity)[None] for exit in self.exits]
        return np.concatenate([self.parities, *sums])

    def _pair(self, exit: Exit) -> np.ndarray:
        return np.array(exit.degree)[None]

    def factors(self, ratios: np.ndarray, tolerance: float) -> np.ndarray:
        """Return by what each exit's value is multiplied, (exits, channels), where slots are
        multiplied by `ratios` (slots, channels); nan where that is not known.

        `tolerance` is what the logarithm of a ratio may be off by.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.abs(ratios))
            known = (np.abs(self.degrees @ logs) <= tolerance * len(logs)).all(axis=0)
            signs = (self.parities @ (ratios < 0) % 2 == 0).all(axis=0)
            found = []
            for each in self.exits:
                degree, parity = np.array(each.form.degree), np.array(each.form.parity)
                size = np.exp(degree @ np.where(degree[:, None] != 0, logs, 0.0))
                found.append(size * np.where(parity @ (ratios < 0) % 2 == 0, 1.0, -1.0))
        return np.where(known & signs, np.array(found).reshape(len(self.exits), -1), np.nan)


class Unknown(Exception):
    """An operation does something with the axis that has no rule here."""


_SAME, _DATA, _ZERO = "the same at every channel", "of the data", "zero"
"""What an operand without the axis is."""
Operand = list[DependenceForm] | str


@dataclass(frozen=True, eq=False)
class HiddenAxes:
    """The hidden axes of a network with what it does with each, in the order in which they are
    written; `left_out` names those that are not described, and why.
    """

    axes: tuple[Dependence, ...]
    left_out: tuple[str, ...]


def hidden_axes(
    program: Program, labels: Labels, names: Sequence[str], neutral: Mapping[int, float]
) -> HiddenAxes:
    """Return the axes of parameters that neither sample nor output shares and that two or more
    leaves have; the first inputs of the program are the leaves, by these names.

    `neutral` are leaves that have one number at every channel, which they keep.
    """
    count = len(names)
    outside, order = labels.outside(count), {}
    for at, node in enumerate(program.nodes):
        for i in node.inputs:
            order.setdefault(i, at)
    found, left_out = [], []
    for atom, every in slots_by_atom(labels, count).items():
        own = [slot for slot in every if slot.leaf not in neutral]
        slots = tuple(sorted(own, key=lambda s: order.get(program.inputs[s.leaf], len(order))))
        if atom in outside or len(slots) < 2 or atom in labels.pieces or atom in labels.copies:
            continue
        first = min(slots, key=lambda s: (order.get(program.inputs[s.leaf], len(order)), s.leaf))
        channels = Channels(names[first.leaf], atom, slots[0].size, slots)
        if atom in labels.rigid:
            if len({slot.leaf for slot in slots}) > 1:
                left_out.append(f"{channels.name} (its places are told apart)")
            continue
        try:
            found.append(_Pass(program, labels, names, channels, neutral).run())
        except Unknown as unknown:
            left_out.append(f"{channels.name} ({unknown})")
    found.sort(key=lambda d: order.get(program.inputs[names.index(d.channels.name)], len(order)))
    return HiddenAxes(tuple(found), tuple(left_out))


def read_hidden_axes(network: Opened, neutral: Mapping[int, float] | None = None) -> HiddenAxes:
    """Return the hidden axes of a network with its statistics among its leaves, read once."""
    return _read_hidden_axes(network.graph, network.names, tuple(sorted((neutral or {}).items())))


@lru_cache(maxsize=32)
def _read_hidden_axes(
    graph: Graph, names: tuple[str, ...], neutral: tuple[tuple[int, float], ...]
) -> HiddenAxes:
    return hidden_axes(graph.program, graph.labels, names, dict(neutral))


def null_vectors(rows: np.ndarray) -> np.ndarray:
    """Return a basis of the vectors that small whole-numbered rows annihilate, one in each row."""
    _, s, V = np.linalg.svd(rows)
    return V[int((s > 1e-9 * max(s.max(initial=0.0), 1.0)).sum()) :]


@dataclass(eq=False)
class _Pass:
    program: Program
    labels: Labels
    names: Sequence[str]
    channels: Channels
    neutral: Mapping[int, float]
    known: dict[int, list[DependenceForm]] = field(default_factory=dict)
    degrees: list[np.ndarray] = field(default_factory=list)
    parities: list[np.ndarray] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    linear: bool = True
    products: dict[int, int] = field(default_factory=dict)
    now: int = 0

    def run(self) -> Dependence:
        self.of_sample = self.program.depending(self.program.inputs[len(self.names) :])
        self.occurring: dict[int, list[Where]] = {}
        slots = self.channels.slots
        for leaf in dict.fromkeys(slot.leaf for slot in slots):
            own = {(s.axis, s.start): k for k, s in enumerate(slots) if s.leaf == leaf}
            value = self.program.inputs[leaf]
            at = self.where(value)
            if len(at) != len(own) or any(w.member >= 0 for w in at):
                raise Unknown("a parameter has it twice")
            self.known[value] = [self.basis(own[w.axis, w.start]) for w in at]
        forward(self.program, self.known | self._beside(), self._constant, self.step)
        return self.found()

    def _beside(self) -> dict[int, Operand]:
        """Return what the inputs without the axis are."""
        count, found = len(self.names), dict[int, Operand]()
        for k, i in enumerate(self.program.inputs):
            if i not in self.known:
                found[i] = _DATA if k >= count else _ZERO if self.neutral.get(k) == 0 else _SAME
        return found

    def _constant(self, i: int) -> Operand:
        return _SAME if np.any(self.program.constants[i]) else _ZERO

    def found(self) -> Dependence:
        slots, width = self.channels.slots, len(self.channels.slots)
        reading = {e.reader for e in self.exits}
        writing = _slots([e.form for e in self.exits])
        marked = tuple(
            replace(slot, reads=k in reading and k not in writing) for k, slot in enumerate(slots)
        )
        first = min(
            (k for k in range(width) if not marked[k].reads),
            key=lambda k: (self.products.get(k, len(self.program.nodes)), k),
            default=0,
        )
        return Dependence(
            replace(self.channels, name=self.names[slots[first].leaf], slots=marked),
            np.unique(np.array(self.degrees).reshape(-1, width), axis=0),
            np.unique(np.array(self.parities, bool).reshape(-1, width), axis=0),
            tuple(self.exits),
            self.linear,
            frozenset(reading & writing),
        )

    def basis(self, slot: int) -> DependenceForm:
        count = len(self.channels.slots)
        return DependenceForm(
            tuple(float(k == slot) for k in range(count)),
            tuple(k == slot for k in range(count)),
            slot=slot,
            of=frozenset({slot}),
            support=frozenset({frozenset({slot})}),
        )

    def where(self, value: int) -> list[Where]:
        """Where a value has the channels, in order."""
        if value not in self.occurring:
            self.occurring[value] = sorted(self._where(self.labels.values.get(value, ())))
        return self.occurring[value]

    def _where(self, axes: Any) -> list[Where]:
        found, atom = [], self.channels.atom
        for at, axis in enumerate(axes):
            for place in self.labels.places(axis):
                if place.atom == atom:
                    found.append(Where(at, place.start))
            for selector, others in enumerate(axes):
                names = self.labels.copies.get(others[0]) if len(others) == 1 else None
                if (
                    names is None
                    or selector == at
                    or not axis
                    or any(a not in names[0] for a in axis)
                ):
                    continue
                for member, copied in enumerate(names):
                    for place in self.labels.places(tuple(copied[a] for a in axis)):
                        if place.atom == atom:
                            found.append(Where(at, place.start, member, selector))
        return found

    def demand_degree(self, degree: Degree) -> None:
        if any(degree):
            self.degrees.append(np.array(degree))

    def demand_parity(self, parity: Parity) -> None:
        if any(parity):
            self.parities.append(np.array(parity))

    def step(self, node: Node, operands: list[Operand]) -> Sequence[Operand]:
        """What the results of a node are."""
        beside = _DATA if any(i in self.of_sample for i in node.inputs) else _SAME
        if all(isinstance(operand, str) for operand in operands):
            zero = node.primitive.kind is Kind.MOVES and all(o == _ZERO for o in operands)
            return [_ZERO if zero else beside] * len(node.outputs)
        self.now += 1
        try:
            results = _rule(node)(self, node, operands)
        except Unknown:
            raise Unknown(f"what `{node.operation}` does with it is not known") from None
        for value, forms in zip(node.outputs, results, strict=True):
            self.linear &= all(form.linear for form in forms)
            if forms:
                self.known[value] = forms
        return [forms or beside for forms in results]

    def leaving(self, node: Node, value: int, where: Where, *rest: Any) -> None:
        """Keep where the channels of a value are summed over."""
        [place] = [
            place
            for place in self.labels.places(self.labels.values[value][where.axis])
            if place.atom == self.channels.atom and place.start == where.start
        ]
        self.exits.append(Exit(node, value, where.axis, place, *rest))

    def reached(self, value: int, found: Mapping[Where, DependenceForm]) -> list[DependenceForm]:
        """Return the forms of a value by where it has the channels; all of them must be known."""
        at = self.where(value)
        if set(at) != set(found):
            raise Unknown
        return [found[w] for w in at]

    def in_order(self, value: int, forms: Sequence[DependenceForm]) -> list[DependenceForm]:
        """Return forms that go on in the order of where they are."""
        if len(self.where(value)) != len(forms):
            raise Unknown
        return list(forms)

    def on_axes(self, node: Node, axis_of: Callable[[int], int | None]) -> list[DependenceForm]:
        """Return the forms of the first operand where each axis becomes another."""
        found = {}
        for w, form in zip(self.where(node.inputs[0]), self.known[node.inputs[0]], strict=True):
            axis = axis_of(w.axis)
            selector = axis_of(w.selector) if w.selector >= 0 else -1
            if axis is None or selector is None:
                raise Unknown
            found[replace(w, axis=axis, selector=selector)] = form
        return self.reached(node.outputs[0], found)


Results = list[list[DependenceForm]]
Rule = Callable[[_Pass, Node, list[Operand]], Results]


def _align(
    at: _Pass, node: Node, operands: Sequence[Operand]
) -> list[tuple[list[DependenceForm], list[str]]]:
    """Return for each place of the result: the forms of the operands that have the channels there,
    and what the others are.
    """
    others = [operand for operand in operands if isinstance(operand, str)]
    keys, shape = at.where(node.outputs[0]), at.program.values[node.outputs[0]].shape
    found: list[tuple[list[DependenceForm], list[str]]] = [([], list(others)) for _ in keys]
    for value, operand in zip(node.inputs, operands, strict=True):
        if isinstance(operand, str):
            continue
        if len(at.program.values[value].shape) != len(shape):
            raise Unknown
        own = dict(zip(at.where(value), operand, strict=True))
        if set(own) != set(keys):
            raise Unknown
        for k, key in enumerate(keys):
            found[k][0].append(own[key])
    return found


def _join(at: _Pass, forms: Sequence[DependenceForm], others: Sequence[str]) -> DependenceForm:
    """A sum or a choice of values: they must have one degree and one parity; that of a value
    without the axis is zero, unless it is zero itself.
    """
    first = forms[0]
    beside = any(other != _ZERO for other in others)
    for form in forms[1:]:
        at.demand_degree(tuple(a - b for a, b in zip(first.degree, form.degree, strict=True)))
        at.demand_parity(tuple(a != b for a, b in zip(first.parity, form.parity, strict=True)))
    if beside:
        at.demand_degree(first.degree)
        at.demand_parity(first.parity)
    linear = all(form.linear for form in forms) and not beside
    return replace(
        first,
        linear=linear,
        slot=-1,
        of=_slots(forms),
        support=_ALWAYS if beside else _either(*(form.support for form in forms)),
        data=_unite(forms, any(other == _DATA for other in others)),
    )


def _slots(forms: Sequence[DependenceForm]) -> frozenset[int]:
    return frozenset[int]().union(*(form.of for form in forms))


def _either(*sets: Sets) -> Sets:
    """Where one of several conditions holds."""
    found = frozenset[frozenset[int]]().union(*sets)
    return _ALWAYS if frozenset() in found or len(found) > _MOST_SETS else found


def _both(one: Sets, two: Sets) -> Sets:
    """Where two conditions hold."""
    return _either(frozenset(a | b for a in one for b in two))


def _unite(forms: Sequence[DependenceForm], beside: bool = False) -> Sets:
    """Where some of several values depend on the sample."""
    return _ALWAYS if beside else _either(*(form.data for form in forms))


def _add(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    if len(operands) == 1:
        return _same_place(at, node, operands)
    return [[_join(at, forms, others) for forms, others in _align(at, node, operands)]]


def _bend(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    """Maxima, minima, comparisons: of one degree, and with no change of sign."""
    found = []
    gate = not at.program.values[node.outputs[0]].real
    for forms, others in _align(at, node, operands):
        joined = _join(at, forms, others)
        at.demand_parity(joined.parity)
        found.append(_gate(joined) if gate else replace(joined, linear=False))
    return [found]


def _gate(form: DependenceForm) -> DependenceForm:
    none = (0.0,) * len(form.degree)
    return DependenceForm(none, (False,) * len(none), False, gate=True, of=form.of, data=form.data)


def _logic(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    found = []
    for forms, others in _align(at, node, operands):
        if not all(form.gate for form in forms):
            raise Unknown
        data = _unite(forms, _DATA in others)
        found.append(replace(forms[0], of=_slots(forms), data=data))
    return [found]


def _select(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    which, *cases = operands
    gates = which if isinstance(which, list) else []
    if not all(form.gate for form in gates):
        raise Unknown
    if all(isinstance(case, str) for case in cases):
        data = any(case == _DATA for case in cases)
        found = [replace(f, gate=False, data=_unite([f], data)) for f in gates]
        return [at.in_order(node.outputs[0], found)]
    inner = replace(node, inputs=node.inputs[1:])
    found = []
    for k, (forms, others) in enumerate(_align(at, inner, cases)):
        joined = _join(at, forms, others)
        chosen = [joined, *gates[k : k + 1]]
        data = _unite(chosen, which == _DATA)
        linear = joined.linear and not gates
        found.append(replace(joined, linear=linear, of=_slots(chosen), data=data))
    return [found]


def _multiply(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    found, inverse = [], node.primitive.kind is Kind.DIVIDES
    for forms, others in _align(at, node, operands):
        if len(forms) == 1:
            [form] = forms
            form = _reciprocal(form) if inverse and isinstance(operands[1], list) else form
            found.append(form.times_data() if _DATA in others else form)
            continue
        one, two = forms
        found.append(_product(one, _reciprocal(two) if inverse else two))
    return [found]


def _reciprocal(form: DependenceForm) -> DependenceForm:
    degree = tuple(-d for d in form.degree)
    return replace(form, degree=degree, linear=False, slot=-1, support=_ALWAYS)


def _product(one: DependenceForm, two: DependenceForm) -> DependenceForm:
    data = _either(_both(one.data, two.support), _both(two.data, one.support))
    support = _both(one.support, two.support)
    if one.gate or two.gate:
        form = two if one.gate else one
        return replace(
            form, linear=False, slot=-1, of=_slots([one, two]), support=support, data=data
        )
    return DependenceForm(
        tuple(a + b for a, b in zip(one.degree, two.degree, strict=True)),
        tuple(a != b for a, b in zip(one.parity, two.parity, strict=True)),
        linear=False,
        of=_slots([one, two]),
        support=support,
        data=data,
    )


def _entrywise(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    """A function of one number that is homogeneous, or whose argument must stay as it is; odd, even,
    or one whose argument must keep its sign.
    """
    row, found = node.primitive, []
    degree, parity = row.degree, row.parity
    if row.exponent is not None:
        degree = float(row.exponent(node.options, at.program.values[node.inputs[0]].shape))
        parity = "odd" if degree % 2 else "even"
    for forms, others in _align(at, node, operands):
        if len(forms) > 1 or others or forms[0].gate:
            raise Unknown
        [form] = forms
        if degree is None:
            at.demand_degree(form.degree)
        if not parity:
            at.demand_parity(form.parity)
        found.append(
            replace(
                form,
                degree=tuple((degree or 0.0) * d for d in form.degree),
                parity=form.parity if parity == "odd" else (False,) * len(form.parity),
                linear=False,
                slot=-1,
                support=form.support if parity == "odd" or (degree or 0.0) > 0 else _ALWAYS,
            )
        )
    return [found]


def _convert(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    [forms, *_] = operands
    real = at.program.values[node.outputs[0]].real
    assert isinstance(forms, list)
    return [[replace(form, gate=False) if form.gate and real else form for form in forms]]


def _same_place(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    [forms, *_] = operands
    assert isinstance(forms, list)
    return [at.in_order(node.outputs[0], forms)]


def _transpose(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    order = list(node.options["permutation"])
    return [at.on_axes(node, order.index)]


def _broadcast(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    return [at.on_axes(node, lambda axis: int(node.options["broadcast_dimensions"][axis]))]


def _slice(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    starts, stops = node.options["start_indices"], node.options["limit_indices"]
    return [_cut(at, node.inputs[0], node.outputs[0], starts, stops)]


def _split(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    shape, axis = at.program.values[node.inputs[0]].shape, node.options["axis"]
    bounds = np.cumsum([0, *node.options["sizes"]]).tolist()
    found: Results = []
    for k, value in enumerate(node.outputs):
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = bounds[k], bounds[k + 1]
        found.append(_cut(at, node.inputs[0], value, starts, stops))
    return found


def _cut(at: _Pass, value: int, result: int, starts: Any, stops: Any) -> list[DependenceForm]:
    """Return what is left of the channels in a part of a value."""
    found = {}
    keys = at.where(result)
    for w, form in zip(at.where(value), at.known[value], strict=True):
        if w.member >= 0 and stops[w.selector] - starts[w.selector] == 1:
            if w.member == starts[w.selector]:
                found[replace(w, member=-1, selector=-1)] = form
            continue
        moved = replace(w, start=w.start - starts[w.axis])
        if moved in keys:
            found[moved] = form
    return at.reached(result, found)


def _concatenate(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    axis, offset, found = node.options["dimension"], 0, {}
    for value, operand in zip(node.inputs, operands, strict=True):
        if isinstance(operand, list):
            for w, form in zip(at.where(value), operand, strict=True):
                found[replace(w, start=w.start + offset) if w.axis == axis else w] = form
        offset += at.program.values[value].shape[axis]
    if len(found) == 1 and len(at.where(node.outputs[0])) == 1:
        return [list(found.values())]  # along another axis, where the others may be constants
    return [at.reached(node.outputs[0], found)]


def _pad(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    forms, fill = operands
    assert isinstance(forms, list)
    found = {}
    outside = [any((low, high, gap)) for low, high, gap in node.options["padding_config"]]
    for w, form in zip(at.where(node.inputs[0]), forms, strict=True):
        low = node.options["padding_config"][w.axis][0]
        among = any(outside[d] for d in range(len(outside)) if d != w.axis)
        found[replace(w, start=w.start + low)] = (
            _join(at, [form], [fill] if isinstance(fill, str) else []) if among else form
        )
    return [at.reached(node.outputs[0], found)]


def _reduce(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    """A sum or a maximum over axes; over the channels themselves a sum only."""
    [forms, *_] = operands
    assert isinstance(forms, list)
    gone, found, adds = node.options["axes"], {}, node.primitive.kind is Kind.ADDS
    left = lambda axis: axis - sum(d < axis for d in gone) if axis >= 0 else -1  # noqa: E731
    for w, form in zip(at.where(node.inputs[0]), forms, strict=True):
        if w.selector in gone or form.gate:
            raise Unknown
        if w.axis not in gone:
            moved = replace(w, axis=left(w.axis), selector=left(w.selector))
            found[moved] = _pool(at, form, adds)
        elif adds and w.member < 0:
            at.linear = False
            at.leaving(node, node.inputs[0], w, form, form.degree, form.parity)
        else:
            raise Unknown
    return [at.reached(node.outputs[0], found)]


def _window(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    """Pooling over other axes than the channels', which are rigid where it is over theirs."""
    [forms, *_] = operands
    assert isinstance(forms, list)
    adds = node.primitive.kind is Kind.ADDS
    return [at.in_order(node.outputs[0], [_pool(at, form, adds) for form in forms])]


def _pool(at: _Pass, form: DependenceForm, adds: bool) -> DependenceForm:
    """Return a sum or a maximum of one channel's numbers."""
    if not adds:
        at.demand_parity(form.parity)
    return replace(form, linear=form.linear and adds, slot=-1)


def _dot(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    (contracted, batch) = node.options["dimension_numbers"]
    free = [
        [d for d in range(len(at.program.values[i].shape)) if d not in (*contracted[k], *batch[k])]
        for k, i in enumerate(node.inputs)
    ]
    place = [
        {d: n for n, d in enumerate(batch[k])}
        | {d: len(batch[0]) + k * len(free[0]) + n for n, d in enumerate(free[k])}
        for k in (0, 1)
    ]
    return [
        _bilinear(
            at,
            node,
            operands,
            [{d: contracted[1 - k][n] for n, d in enumerate(contracted[k])} for k in (0, 1)],
            [{d: batch[1 - k][n] for n, d in enumerate(batch[k])} for k in (0, 1)],
            place,
        )
    ]


def _convolution(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    numbers, groups = node.options["dimension_numbers"], node.options["feature_group_count"]
    if node.options["batch_group_count"] != 1:
        raise Unknown
    (_, channels, *_), (out, into, *_) = numbers.lhs_spec, numbers.rhs_spec
    result = numbers.out_spec[1]
    if groups > 1 and {w.axis for w in at.where(node.inputs[1])} == {out}:
        own = isinstance(operands[0], list)
        batch = [{channels: out}, {out: channels}] if own else [{}, {}]
        return [_bilinear(at, node, operands, [{}, {}], batch, [{channels: result}, {out: result}])]
    return [
        _bilinear(
            at, node, operands, [{channels: into}, {into: channels}], [{}, {}], [{}, {out: result}]
        )
    ]


Partners = Sequence[Mapping[int, int]]


def _bilinear(
    at: _Pass,
    node: Node,
    operands: list[Operand],
    contracted: Partners,
    batch: Partners,
    place: Partners,
) -> list[DependenceForm]:
    """A product: for each operand, which axes are summed with which of the other's, which go side
    by side, and where each goes in the result.
    """
    keys = [
        at.where(i) if isinstance(o, list) else []
        for i, o in zip(node.inputs, operands, strict=True)
    ]
    own = [
        dict(zip(at.where(i), o, strict=True)) if isinstance(o, list) else {}
        for i, o in zip(node.inputs, operands, strict=True)
    ]
    found: dict[Where, DependenceForm] = {}
    for k in (0, 1):
        for w in keys[k]:
            form = own[k][w]
            if w.member >= 0 or form.gate:
                raise Unknown
            beside = contracted[k].get(w.axis, batch[k].get(w.axis))
            partner = None if beside is None else own[1 - k].get(replace(w, axis=beside))
            if beside is not None and partner is None:
                raise Unknown
            if w.axis in contracted[k]:
                assert partner is not None
                if k == 0:
                    _exit(at, node, (w, replace(w, axis=contracted[0][w.axis])), form, partner)
            elif w.axis in place[k]:
                moved = replace(w, axis=place[k][w.axis])
                if w.axis not in batch[k]:
                    if form.slot >= 0:
                        at.products.setdefault(form.slot, at.now)
                    varies = node.inputs[1 - k] in at.of_sample
                    found[moved] = form.times_data() if varies else form
                elif k == 0:
                    assert partner is not None
                    found[moved] = _product(form, partner)
            else:
                raise Unknown
    return _by_offset(at, node.outputs[0], found)


def _by_offset(at: _Pass, value: int, found: dict[Where, DependenceForm]) -> list[DependenceForm]:
    """Return forms by axis, and in the order of their places on it."""
    keys = at.where(value)
    if set(keys) == set(found):
        return [found[w] for w in keys]
    if [w.axis for w in keys] != [w.axis for w in sorted(found)]:
        raise Unknown
    return [found[w] for w in sorted(found)]


def _exit(
    at: _Pass, node: Node, where: tuple[Where, Where], one: DependenceForm, two: DependenceForm
) -> None:
    """A product of two values is summed over the channels."""
    degree = tuple(a + b for a, b in zip(one.degree, two.degree, strict=True))
    parity = tuple(a != b for a, b in zip(one.parity, two.parity, strict=True))
    left, right = node.inputs
    reads = [i not in at.of_sample and f.slot >= 0 for i, f in ((left, one), (right, two))]
    if reads[1] or not reads[0]:
        reader = two.slot if reads[1] else -1
        at.leaving(node, left, where[0], one, degree, parity, reader, right)
    else:
        at.leaving(node, right, where[1], two, degree, parity, one.slot, left)


def _gather(at: _Pass, node: Node, operands: list[Operand]) -> Results:
    """Look up rows of a table: axes that are taken whole go on."""
    table, index = operands
    if not isinstance(table, list) or isinstance(index, list):
        raise Unknown
    numbers = node.options["dimension_numbers"]
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [d for d in range(len(at.program.values[node.inputs[0]].shape)) if d not in gone]
    place = {d: numbers.offset_dims[n] for n, d in enumerate(kept)}
    forms = at.on_axes(replace(node, inputs=node.inputs[:1]), place.get)
    return [[form.times_data() for form in forms] if index == _DATA else forms]


def _rule(node: Node) -> Rule:
    """The rule of an operation, by its row in the table of operations: what it does to axes, and its
    kind.
    """
    row = node.primitive
    if row.entrywise or row.axes is axis_rules.entrywise:
        return _entrywise if row.degree is not None or row.parity else _ENTRYWISE[row.kind]
    pools = row.kind in (Kind.ADDS, Kind.BENDS)
    if row.axes in (axis_rules.reduce, axis_rules.window) and not pools:
        raise Unknown
    if row.axes is axis_rules.along_axis and row.kind not in (Kind.ADDS, Kind.MOVES):
        raise Unknown  # sorting, and running maxima and products, are not linear
    if row.axes not in _BY_AXES:
        raise Unknown
    return _BY_AXES[row.axes]


_ENTRYWISE: dict[Kind, Rule] = {
    Kind.MOVES: _convert,
    Kind.SELECTS: _select,
    Kind.ADDS: _add,
    Kind.MULTIPLIES: _multiply,
    Kind.DIVIDES: _multiply,
    Kind.RAISES: _entrywise,
    Kind.BENDS: _bend,
    Kind.CURVES: _entrywise,
    Kind.JUMPS: _entrywise,
    Kind.COUNTS: _logic,
}
_BY_AXES: dict[Any, Rule] = {
    axis_rules.transpose: _transpose,
    axis_rules.broadcast: _broadcast,
    axis_rules.reshape: _same_place,
    axis_rules.expand: _same_place,
    axis_rules.along_axis: _same_place,
    axis_rules.reduce: _reduce,
    axis_rules.window: _window,
    axis_rules.slice_axes: _slice,
    axis_rules.split: _split,
    axis_rules.concatenate: _concatenate,
    axis_rules.pad: _pad,
    axis_rules.dot: _dot,
    axis_rules.convolution: _convolution,
    axis_rules.gather: _gather,
}
