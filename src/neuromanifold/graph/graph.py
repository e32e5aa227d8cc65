"""`Graph`: a network at one sample as a program, with its parameters by name and what it allows."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.axes import Labels, axis_labels
from neuromanifold.graph.bends import Deciding, Gated
from neuromanifold.graph.dataflow import backward, forward
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.needed import keep_needed_parts
from neuromanifold.graph.primitives import Kind
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.reading import as_written
from neuromanifold.graph.selection import leaf_names
from neuromanifold.graph.tracing import program_of
from neuromanifold.numerics.precision import is_floating
from neuromanifold.numerics.results import Shown
from neuromanifold.numerics.validation import check_param_types, sample_arrays

_CURVED = 2


@dataclass(frozen=True)
class Degree:
    """The degree of a value in the `data` once every bend is decided (0, 1, or 2 for anything
    else), and in the `parameters`.

    `lowest` is the lowest degree in the data of any term: 0 where there may be a constant one.
    The others say what the value went through: `bends`, a decision; `divides`, a division by
    something that varies; `smooth`, a function without an exact value; `jumps`, one that jumps;
    `infinite`, a choice between numbers and an infinite constant, as masks have it.
    """

    data: int = 0
    parameters: int = 0
    lowest: int = 0
    bends: bool = False
    divides: bool = False
    smooth: bool = False
    jumps: bool = False
    infinite: bool = False

    @property
    def constant(self) -> bool:
        """Whether the value depends on nothing."""
        return self.data == 0 and self.parameters == 0

    @property
    def exact(self) -> bool:
        """Whether the value at rational numbers is one."""
        return not (self.smooth or self.jumps or self.infinite)


_DISCRETE = Degree(lowest=_CURVED)
_LINEAR = {Kind.MOVES, Kind.SELECTS, Kind.ADDS}
_SMOOTH = {Kind.CURVES, Kind.CALLS}


def degrees(program: Program, parameters: int) -> dict[int, Degree]:
    """The degree of every value; the first `parameters` inputs are parameters, the others data."""
    values = program.values
    start = {
        i: Degree(parameters=1)
        if at < parameters
        else Degree(data=1, lowest=1)
        if values[i].real
        else _DISCRETE
        for at, i in enumerate(program.inputs)
    }

    def constant(i: int) -> Degree:
        zero = not (values[i].real and np.any(program.constants[i]))
        infinite = values[i].real and not np.isfinite(program.constants[i]).all()
        return Degree(lowest=_CURVED if zero else 0, infinite=bool(infinite))

    return forward(program, start, constant, lambda node, given: _carry(program, node, given))


def join(a: Degree, b: Degree) -> Degree:
    """The degree of a sum, or of a choice."""
    return Degree(
        max(a.data, b.data),
        max(a.parameters, b.parameters),
        min(a.lowest, b.lowest),
        a.bends or b.bends,
        a.divides or b.divides,
        a.smooth or b.smooth,
        a.jumps or b.jumps,
        a.infinite or b.infinite,
    )


def _carry(program: Program, node: Node, given: Sequence[Degree]) -> list[Degree]:
    joint, kind = reduce(join, given), node.primitive.kind
    of_reals = any(program.values[i].real for i in node.inputs)
    found = _of_reals(program, node, given, joint) if of_reals else replace(joint, lowest=0)
    gate = replace(
        _DISCRETE,
        bends=joint.bends or of_reals,
        smooth=joint.smooth or (of_reals and kind in _SMOOTH),
        jumps=joint.jumps or (of_reals and kind not in _SMOOTH and not program.bends(node)),
    )
    return [found if program.values[o].real else gate for o in node.outputs]


def _of_reals(program: Program, node: Node, given: Sequence[Degree], joint: Degree) -> Degree:
    kind = node.primitive.kind
    if kind in _LINEAR:
        return joint
    if program.bends(node):
        return replace(joint, bends=True)
    if kind is Kind.MULTIPLIES:
        return replace(
            joint,
            data=_sum(a.data for a in given),
            parameters=_sum(a.parameters for a in given),
            lowest=_sum(a.lowest for a in given),
        )
    if node.primitive.exponent is not None:
        times = node.primitive.exponent(node.options, program.values[node.inputs[0]].shape)
        return replace(
            joint,
            data=min(_CURVED, joint.data * abs(times)),
            parameters=min(_CURVED, joint.parameters * abs(times)),
            lowest=min(_CURVED, joint.lowest * abs(times)),
            divides=joint.divides or times < 0,
        )
    if kind is Kind.DIVIDES:
        return given[0] if given[1].constant else replace(_curve(joint), divides=True)
    if kind in _SMOOTH:
        return replace(_curve(joint), smooth=True)
    return replace(_curve(joint), jumps=True)


def _sum(degrees: Iterable[int]) -> int:
    return min(_CURVED, sum(degrees))


def _curve(a: Degree) -> Degree:
    return replace(
        a, data=_CURVED if a.data else 0, parameters=_CURVED if a.parameters else 0, lowest=0
    )


_BELOW = ("below",)


@dataclass(frozen=True)
class Units:
    """The scalar decisions of one bend: `shape` of them at each sample, named after the parameters
    before them.

    A maximum over `candidates` has places among them; `inside` marks those that do not lie in the
    padding of a pooling. `channels` is the axis along which the parameters before them differ,
    where it is one: channels, in whatever layout, or features. `exact` says whether they can be
    proved: nothing smooth comes before them. `orders`: they compare entries that are sorted.
    `stopped`: no derivative passes them, as with the largest entry that softmax subtracts.
    """

    name: str
    operation: str
    shape: tuple[int, ...]
    candidates: int | None = None
    inside: np.ndarray | None = field(default=None, repr=False)
    channels: int | None = None
    exact: bool = True
    orders: bool = False
    stopped: bool = False

    @property
    def size(self) -> int:
        """How many there are."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def switches(self) -> bool:
        """Whether each of them is on or off: they are no places of a maximum, order nothing, and
        derivatives pass them.
        """
        return self.candidates is None and not (self.orders or self.stopped)


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Shown):
    """A network f(params, x) at one sample, traced once.

    `program` takes the leaves of `params` (named `parameters`, in `jax.tree.leaves` order), then
    those of one sample. Capabilities are read from the operations, not from a class. `model` is the
    function it was traced from, which is what is pickled.
    """

    program: Program
    parameters: tuple[str, ...]
    params: Any
    sample: Any
    model: Any = None
    whole: bool = False

    def __reduce__(self) -> Any:
        if self.model is None:
            raise TypeError(
                "a part of a `Graph` cannot be pickled; pickle the whole one, or the function and "
                "its arguments."
            )
        return _again, (self.model, self.params, self.sample, self.whole)

    def __deepcopy__(self, memo: Any) -> "Graph":
        return self

    @cached_property
    def degrees(self) -> dict[int, Degree]:
        """How every value depends on data and parameters."""
        return degrees(self.program, len(self.parameters))

    @cached_property
    def _output(self) -> Degree:
        return reduce(join, [self.degrees[i] for i in self.program.outputs])

    @property
    def exact(self) -> bool:
        """Whether outputs and derivatives at floats are rational numbers that a walk can
        compute.
        """
        return self._output.exact

    @property
    def piecewise_linear(self) -> bool:
        """Whether f is an affine function of the sample on every region where its bends are
        decided alike.
        """
        return self.exact and self._output.data <= 1

    @property
    def polynomial(self) -> bool:
        """Whether f is a polynomial of parameters and sample."""
        return self.exact and not (self._output.bends or self._output.divides)

    @property
    def analytic(self) -> bool:
        """Whether f is real analytic where it is defined."""
        return not (self._output.bends or self._output.jumps)

    @cached_property
    def text(self) -> str:
        """Operations, options and constants as text: what tells one program from another."""
        constants = [(a.shape, a.tobytes()) for a in self.program.constants.values()]
        return repr(
            ([(n.operation, n.inputs, _plain(n.options)) for n in self.program.nodes], constants)
        )

    @property
    def outputs(self) -> int:
        """How many numbers f gives at one sample."""
        return sum(math.prod(self.program.values[i].shape) for i in self.program.outputs)

    @property
    def affine_dimension(self) -> int:
        """How many numbers an affine function of one sample is determined by: its real entries,
        and 1 for a constant term.
        """
        return self.inputs + (0 if self._output.lowest else 1)

    @property
    def inputs(self) -> int:
        """How many real numbers one sample holds."""
        real = [
            leaf for leaf in jax.tree.leaves(self.sample) if np.issubdtype(leaf.dtype, np.floating)
        ]
        return sum(math.prod(leaf.shape) for leaf in real)

    @cached_property
    def bending(self) -> tuple[Node, ...]:
        """The nodes that make decisions about real numbers."""
        return tuple(filter(self.program.bends, self.program.nodes))

    @cached_property
    def felt(self) -> tuple[Node, ...]:
        """The bends that a derivative passes; the others are those of constants, so to speak."""
        start = dict.fromkeys(self.program.outputs, True)
        passed = backward(
            self.program,
            start,
            lambda n, given: [any(given) and not n.primitive.stops] * len(n.inputs),
            or_,
        )
        return tuple(n for n in self.bending if any(passed.get(o) for o in n.outputs))

    @cached_property
    def deciding(self) -> frozenset[int]:
        """The values that the decisions of `felt` depend on."""
        return self.program.needed([i for node in self.felt for i in node.inputs])

    def before_output(self) -> "Graph":
        """Return the graph without the functions of one number that its outputs pass through last:
        they only scale the rows of J.
        """
        makers = {o: node for node in self.program.nodes for o in node.outputs}
        outputs = [_strip_functions(self.program, i, makers) for i in self.program.outputs]
        return replace(self, program=self.program.slice(outputs), model=None)

    def with_needed_parts(self) -> "Graph":
        """Return the graph without those parts of values that its outputs do not need."""
        program = keep_needed_parts(self.program)
        return self if program is self.program else replace(self, program=program, model=None)

    @cached_property
    def units(self) -> tuple[Units, ...]:
        """Where it bends, in the order of computation."""
        with jax.enable_x64(True):
            gates = jax.eval_shape(self.decide, self.params, self.sample)
        found, at = [], 0
        for node in self.bending:
            for _ in range(self._questions(node)):
                shape = tuple(gates[at].shape)
                found.append(
                    Units(
                        self._origin(node),
                        node.operation,
                        shape,
                        *self._candidates(node),
                        self._channels(node, shape),
                        all(self.degrees[i].exact for i in node.inputs),
                        node.primitive.bend is not None and node.primitive.bend.orders,
                        not any(node is other for other in self.felt),
                    )
                )
                at += 1
        return tuple(found)

    @cached_property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """Which of the `units` are bends of the same scalars: a clamp, or maxima and minima with
        constants one right after another,
        as in ReLU6. With all their gates open a unit passes its signal; otherwise it is
        constant."""
        uses = Counter(i for node in self.program.nodes for i in node.inputs) + Counter(
            self.program.outputs
        )
        found: list[tuple[int, ...]] = []
        ends: dict[int, int] = {}
        for node, mine in zip(self.bending, self._asked, strict=True):
            signal = self._signal(node)
            if signal in ends and uses[signal] == 1:
                found[ends[signal]] += mine
                ends[node.outputs[0]] = ends[signal]
                continue
            found += [(i,) for i in mine] if signal is None else [mine]
            if signal is not None:
                ends[node.outputs[0]] = len(found) - 1
        return tuple(found)

    @property
    def _asked(self) -> list[tuple[int, ...]]:
        """Which of the units each bending node asks about."""
        stops = np.cumsum([0, *map(self._questions, self.bending)]).tolist()
        return [tuple(range(a, b)) for a, b in itertools.pairwise(stops)]

    def _signal(self, node: Node) -> int | None:
        """What a maximum, a minimum or a clamp with constants bends."""
        free = [i for i in node.inputs if i not in self.program.constants]
        clips = node.primitive.bend is not None and node.primitive.bend.clips
        return free[0] if clips and len(free) == 1 else None

    def _questions(self, node: Node) -> int:
        """How many decisions the node makes about each of its scalars."""
        bend = node.primitive.bend
        assert bend is not None
        same = bend.of_equals is not None and node.inputs[0] == node.inputs[1]
        return 0 if same else bend.questions

    @cached_property
    def labels(self) -> Labels:
        """Which axes of its values are one axis."""
        return axis_labels(self.program)

    @cached_property
    def _writers(self) -> dict[int, int]:
        """Which parameters each value depends on: bit k for the k-th."""
        own = {i: 1 << k for k, i in enumerate(self.program.inputs[: len(self.parameters)])}
        return forward(
            self.program,
            own,
            lambda i: 0,
            lambda node, given: [reduce(or_, given)] * len(node.outputs),
        )

    def _channels(self, node: Node, shape: tuple[int, ...]) -> int | None:
        alike = [
            i
            for i in node.inputs
            if self.program.values[i].shape == shape and i not in self.program.constants
        ]
        if not alike:
            return None
        writers = self._writers[alike[0]]
        parameters = [i for k, i in enumerate(self.program.inputs) if writers >> k & 1]
        written = {a for i in parameters for axis in self.labels.values[i] for a in axis}
        own = [at for at, axis in enumerate(self.labels.values[alike[0]]) if written & set(axis)]
        return own[0] if len(own) == 1 else None

    @property
    def decisions(self) -> int:
        """How many scalar decisions it makes at one sample."""
        return sum(unit.size for unit in self.units)

    def _candidates(self, node: Node) -> tuple[int | None, np.ndarray | None]:
        bend = node.primitive.bend
        if bend is None or bend.candidates is None:
            return None, None
        return bend.candidates(node.options, self.program.values[node.inputs[0]].shape)

    @cached_property
    def _origins(self) -> dict[int, tuple[int, str, bool]]:
        """For every value, where in the program the last parameter before it entered, that
        parameter's name, and whether the value is still the parameter itself, rearranged.
        """
        at = {id(node): k for k, node in enumerate(self.program.nodes)}

        def carry(node: Node, given: list[tuple[int, str, bool]]) -> list[tuple[int, str, bool]]:
            entered = [(at[id(node)] if own else k, name, False) for k, name, own in given]
            alone = len(given) == 1 and given[0][2]
            return [given[0] if alone else max(entered)] * len(node.outputs)

        names = zip(self.program.inputs, self.parameters, strict=False)
        own = {i: (0, name, True) for i, name in names}
        return forward(self.program, own, lambda i: (-1, "input", False), carry)

    def _origin(self, node: Node) -> str:
        found = [self._origins[i] for i in node.inputs]
        return max([(k, name) for k, name, own in found if not own], default=(-1, "input"))[1]

    def decide(self, params: Any, sample: Any, known: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Return the gates of all bends at one sample, in JAX; those in `known` that are not None
        are taken as they are.
        """
        ask = Deciding(known)
        interpret(self.program, [*jax.tree.leaves(params), *jax.tree.leaves(sample)], ask)
        return tuple(ask.gates)

    def gated(self, params: Any, sample: Any, gates: Sequence[Any]) -> Any:
        """Return all outputs at one sample, flat, with the bends decided as `gates` say: polynomials or rational
        functions of parameters and sample.
        """
        found = interpret(
            self.program, [*jax.tree.leaves(params), *jax.tree.leaves(sample)], Gated(gates)
        )
        return jnp.concatenate([value.reshape(-1) for value in found])

    def quantities(self, params: Any, sample: Any, gates: Sequence[Any]) -> tuple[Any, ...]:
        """Return what each decision at `sample` was about, `gates` held fixed: zero where it is a tie."""
        ask = Gated(gates)
        interpret(self.program, [*jax.tree.leaves(params), *jax.tree.leaves(sample)], ask)
        return tuple(ask.quantities)

    @property
    def rectifies(self) -> bool:
        """Whether every bend is max(q, 0), up to a positive factor: what a unit gives where it is
        off is zero.
        """
        return all(value is not None for value in self._rectified)

    @cached_property
    def _rectified(self) -> list[int | None]:
        """For every bend, the value that is max(q, 0) or a positive multiple of it: of a maximum
        with zero, or what a comparison with zero selects between multiples of q and of zero.
        """
        program, constants = self.program, self.program.constants
        writers = {o: node for node in program.nodes for o in node.outputs}

        def factor(i: int, q: int) -> float | None:
            """c where value i is cq, or 0 where it is zero."""
            if i in constants or i == q:
                return 1.0 if i == q else None if np.any(constants[i]) else 0.0
            if i not in writers or writers[i].operation != "mul":
                return None
            a, b = writers[i].inputs
            signal, number = (a, constants.get(b)) if b in constants else (b, constants.get(a))
            if number is None or signal != q or number.min() != number.max():
                return None
            return float(number.min())

        def rectified(node: Node) -> int | None:
            zero = [i in constants and not np.any(constants[i]) for i in node.inputs]
            if node.primitive.bend is not None and node.primitive.bend.clips == _BELOW:
                return node.outputs[0] if any(zero) else None
            uses = [other for other in program.nodes if node.outputs[0] in other.inputs]
            if node.operation not in ("gt", "ge") or not zero[1] or len(uses) != 1:
                return None
            if uses[0].operation != "select_n" or len(uses[0].inputs) != 3:
                return None
            chosen, off, on = uses[0].inputs
            left, right = factor(off, node.inputs[0]), factor(on, node.inputs[0])
            multiple = left == 0 and right is not None and right > 0
            return uses[0].outputs[0] if multiple and chosen == node.outputs[0] else None

        return [rectified(node) for node in self.bending]

    def opened(
        self, params: Any, sample: Any, gates: Sequence[Any], added: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Return all outputs at one sample and what every decision was about, flat: the gates held,
        `added` to what each bend gives.
        """
        ask, at = (
            Gated(gates),
            {i: a for i, a in zip(self._rectified, added, strict=True) if i is not None},
        )
        found = interpret(
            self.program, [*jax.tree.leaves(params), *jax.tree.leaves(sample)], ask, added=at
        )
        return _flat(found), _flat(ask.quantities)

    def segment_gradient(
        self, params: Any, sample: Any, gates: Sequence[Any], added: Sequence[Any], c: Any
    ) -> Any:
        """Return ∇_θ⟨c, Φ⟩ for Φ = (f, q) of `opened`, then for each decision c_q q − r ∂_r⟨c, Φ⟩,
        r what was added to it: what ⟨c, Φ⟩ changes by when q and r are multiplied by a number.
        """
        paired = lambda p, r: (c * jnp.concatenate(self.opened(p, sample, gates, r))).sum()  # noqa: E731
        by_params, by_added = jax.grad(paired, (0, 1))(params, added)
        q, mine = self.opened(params, sample, gates, added)[1], c[self.outputs :]
        return jnp.concatenate(
            [_flat(jax.tree.leaves(by_params)), mine * q - _flat(added) * _flat(by_added)]
        )

    def headline(self) -> str:
        """Return how long it is and what it takes."""
        return (
            f"{len(self.program.nodes)} operations, {len(self.parameters)} parameters, "
            f"{self.inputs} inputs, {self.outputs} outputs"
        )

    def __str__(self) -> str:
        return "\n".join(_table(self))


def _flat(values: Sequence[Any]) -> Any:
    return jnp.concatenate([value.reshape(-1) for value in values])


def _table(graph: Graph) -> list[str]:
    rows = [("", "operation", "shape", "parameters", "allows", "where")]
    names = dict(zip(graph.program.inputs, graph.parameters, strict=False))
    for at, node in enumerate(graph.program.nodes):
        used = ", ".join(names[i] for i in node.inputs if i in names)
        shape = "×".join(map(str, graph.program.values[node.outputs[0]].shape)) or "1"
        rows.append(
            (
                str(at),
                node.operation,
                shape,
                used,
                _allows(graph.degrees[node.outputs[0]]),
                node.source,
            )
        )
    wide = [max(len(row[c]) for row in rows) for c in range(5)]
    return [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, [*wide, 0], strict=True)).rstrip()
        for row in rows
    ]


def _allows(degree: Degree) -> str:
    if degree.jumps:
        return "jumps"
    if degree.smooth:
        return "smooth"
    kind = "linear" if degree.data <= 1 else "rational" if degree.divides else "polynomial"
    return f"piecewise {kind}" if degree.bends else kind


def _plain(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Options without what has an address in memory instead of a value."""
    return [(k, text) for k, v in sorted(options.items()) if " at 0x" not in (text := repr(v))]


def _strip_functions(program: Program, value: int, makers: Mapping[int, Node]) -> int:
    """The value before the last entrywise functions of it alone, looked for through index maps."""
    at, kept = value, value
    while at in makers:
        node = makers[at]
        sizes = {math.prod(program.values[i].shape) for i in (node.inputs[0], at)}
        if len(node.inputs) != 1 or len(sizes) > 1:
            break
        if node.primitive.entrywise and node.primitive.kind in (Kind.RAISES, Kind.CURVES):
            kept = node.inputs[0]
        elif not node.primitive.carries:
            break
        at = node.inputs[0]
    return kept


def trace(
    f: Callable[[Any, Any], Any],
    params: Any,
    x: Any,
    *,
    dtype: Any = np.float64,
    whole: bool = False,
) -> Graph:
    """Read the network as a program, from one sample of `x` (an array with the samples in front, or
    a pytree of such).

    Real numbers are traced in `dtype`: float64 is what exact answers are about; below it the
    constants that a model closes over (`x / np.sqrt(d)`) are as narrow as its parameters. With
    `whole=True` functions with derivative rules of their own stay single operations, so that JAX
    differentiates them as their author says.

    >>> net = nm.MLP((2, 3, 1))
    >>> graph = nm.graph.trace(net, net.init(key=jax.random.key(0)), np.ones((5, 2)))
    >>> graph.piecewise_linear, graph.polynomial, [unit.size for unit in graph.units]
    (True, False, [3])
    """
    if not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves((params, x))):
        check_param_types(params)
        x = sample_arrays(x)
    with jax.enable_x64(np.dtype(dtype) == np.float64):
        spec = jax.tree.map(lambda leaf: _struct(leaf, dtype), params)
        sample = jax.tree.map(lambda leaf: _struct(leaf, dtype, 1), x)
        return _trace_leaves(f, *_hashable(spec), *_hashable(sample), whole)


def _struct(leaf: Any, dtype: Any, skip: int = 0) -> jax.ShapeDtypeStruct:
    leaf = leaf if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) else np.asarray(leaf)
    return jax.ShapeDtypeStruct(
        leaf.shape[skip:], np.dtype(dtype) if is_floating(leaf) else leaf.dtype
    )


def _hashable(tree: Any) -> tuple[Any, Any]:
    leaves, structure = jax.tree.flatten(tree)
    return tuple((leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves), structure


@lru_cache(maxsize=64)
def _trace_leaves(
    f: Any, leaves: Any, structure: Any, sample_leaves: Any, sample_structure: Any, whole: bool
) -> Graph:
    params = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    sample = jax.tree.unflatten(
        sample_structure, [jax.ShapeDtypeStruct(*leaf) for leaf in sample_leaves]
    )

    def one(params: Any, sample: Any) -> Any:
        y = as_written(f, params, jax.tree.map(lambda leaf: leaf[None], sample))
        return jax.tree.map(lambda leaf: leaf[0], y)

    program = program_of(one, params, sample, whole=whole)
    return Graph(program, leaf_names(params), params, sample, f, whole)


def _again(f: Any, params: Any, sample: Any, whole: bool) -> Graph:
    """A graph that was pickled: traced as the first time."""
    with jax.enable_x64(any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(params))):
        return _trace_leaves(f, *_hashable(params), *_hashable(sample), whole)
