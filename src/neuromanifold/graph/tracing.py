"""JAX functions as programs: the only file that interprets jaxprs.

Calls are entered (`jit`, custom derivatives, checkpoints), loops of known length are unrolled,
branches on constants are chosen, and what depends on constants alone is computed once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.extend.source_info_util import summarize

from neuromanifold.graph.arithmetic import Array, Floats
from neuromanifold.graph.primitives import ControlFlow, Kind, primitive_named
from neuromanifold.graph.program import Node, Program, Value
from neuromanifold.graph.reading import read

_CALLS = (ControlFlow.CALL, ControlFlow.RULED)
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_LONGEST_LOOP = 4096


def program_of(fn: Callable[..., Any], *arguments: Any, whole: bool = False) -> Program:
    """The program of `fn` at arguments of these shapes and dtypes (arrays or
    `jax.ShapeDtypeStruct`s, in any pytrees).

    With `whole`, functions with derivative rules of their own stay single operations. Inputs and
    outputs are the leaves, in `jax.tree.leaves` order.
    """
    closed, _ = read(fn, *arguments)
    builder = _Builder(whole)
    inputs = [builder.fresh(var.aval) for var in closed.jaxpr.invars]
    outputs = builder.enter(closed, inputs)
    return builder.finish(inputs, outputs)


@dataclass
class _Builder:
    """Collects nodes while jaxprs are read. Constants are folded as they come, so that loops and
    branches can use them.
    """

    whole: bool
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    rounded: list[str] = field(default_factory=list)

    def fresh(self, aval: Any) -> int:
        self.values.append(Value(tuple(aval.shape), np.dtype(aval.dtype)))
        return len(self.values) - 1

    def constant(self, array: Any) -> int:
        array = np.asarray(array)
        self.values.append(Value(array.shape, array.dtype))
        self.constants[len(self.values) - 1] = array
        return len(self.values) - 1

    def enter(self, closed: Any, inputs: Sequence[int]) -> list[int]:
        """Read a closed jaxpr whose inputs are the values `inputs`; the values of its outputs."""
        jaxpr = closed.jaxpr if isinstance(closed, jex.ClosedJaxpr) else closed
        consts = closed.consts if isinstance(closed, jex.ClosedJaxpr) else ()
        known: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= {
            var: self.constant(const) for var, const in zip(jaxpr.constvars, consts, strict=True)
        }

        def read(atom: Any) -> int:
            if isinstance(atom, jex.Literal):
                return self.constant(np.asarray(atom.val, getattr(atom.aval, "dtype", None)))
            return known[atom]

        for equation in jaxpr.eqns:
            outputs = self.equation(equation, [read(atom) for atom in equation.invars])
            known |= dict(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, inputs: list[int]) -> list[int]:
        primitive, options = primitive_named(equation.primitive.name), equation.params
        if primitive.control in _CALLS:
            inner = next(options[key] for key in _INNER if key in options)
            own_rule = self.whole and not all(i in self.constants for i in inputs)
            if primitive.control is ControlFlow.CALL or not own_rule or _pools(inner):
                return self.enter(inner, inputs)
        if primitive.control is ControlFlow.SCAN:
            return self.scan(equation, inputs)
        if primitive.control is ControlFlow.COND and inputs[0] in self.constants:
            branch = int(np.clip(self.constants[inputs[0]], 0, len(options["branches"]) - 1))
            return self.enter(options["branches"][branch], inputs[1:])
        if primitive.control is ControlFlow.WHILE:
            return self.loop(equation, inputs)
        outputs = tuple(self.fresh(var.aval) for var in equation.outvars)
        evaluate, source = partial(_evaluate, equation), summarize(equation.source_info)
        return self.add(Node(primitive, tuple(inputs), outputs, options, evaluate, source))

    def add(self, node: Node) -> list[int]:
        """Keep the node, or compute it now where all its inputs are constants, or pass on its
        signal where it is held back by an infinite bound only.
        """
        if (signal := self.unbounded(node)) is not None:
            return [signal]
        if all(i in self.constants for i in node.inputs):
            folded = fold(
                node,
                [self.constants[i] for i in node.inputs],
                [self.values[o] for o in node.outputs],
            )
            self.constants |= dict(zip(node.outputs, folded.arrays, strict=True))
            self.rounded += folded.rounded
        else:
            self.nodes.append(node)
        return list(node.outputs)

    def unbounded(self, node: Node) -> int | None:
        """x of max(x, −∞) and min(x, ∞), which softmax and masked maxima have."""
        bend = node.primitive.bend
        if bend is None or not bend.commutes or len(bend.clips) != 1:
            return None
        bound = -np.inf if bend.clips == ("below",) else np.inf
        shape = self.values[node.outputs[0]].shape
        for signal, other in (node.inputs, node.inputs[::-1]):
            held = self.constants.get(other)
            if held is not None and self.values[signal].shape == shape and np.all(held == bound):
                return signal
        return None

    def scan(self, equation: Any, inputs: list[int]) -> list[int]:
        """Unrolled: carry and slices of the stacked inputs go through the body once for each
        step.
        """
        options, length = equation.params, equation.params["length"]
        if length > _LONGEST_LOOP:
            raise ValueError(
                f"`f` has a loop of {length} steps ({summarize(equation.source_info)}); at most "
                f"{_LONGEST_LOOP} are unrolled."
            )
        first, carried = _parts_of_scan(equation)
        fixed, carry, stacked = inputs[:first], inputs[first:carried], inputs[carried:]
        rows: list[list[int]] = [[] for _ in range(length)]
        for step in range(length)[:: -1 if options["reverse"] else 1]:
            found = self.enter(
                options["jaxpr"], [*fixed, *carry, *(self.row(i, step) for i in stacked)]
            )
            carry, rows[step] = found[: len(carry)], found[len(carry) :]
        return [*carry, *(self.stack(list(column)) for column in zip(*rows, strict=True))]

    def loop(self, equation: Any, inputs: list[int]) -> list[int]:
        """A `while` whose condition is a constant at every step, unrolled."""
        options = equation.params
        a, b = options["cond_nconsts"], options["body_nconsts"]
        of_condition, of_body, carry = inputs[:a], inputs[a : a + b], inputs[a + b :]
        for _ in range(_LONGEST_LOOP):
            [goes_on] = self.enter(options["cond_jaxpr"], [*of_condition, *carry])
            if goes_on not in self.constants:
                raise ValueError(
                    "`f` has a loop whose end depends on data "
                    f"({summarize(equation.source_info)}); use a fixed number of steps."
                )
            if not self.constants[goes_on]:
                return carry
            carry = self.enter(options["body_jaxpr"], [*of_body, *carry])
        raise ValueError(
            f"`f` has a loop of more than {_LONGEST_LOOP} steps "
            f"({summarize(equation.source_info)})."
        )

    def row(self, value: int, step: int) -> int:
        """`value[step]`."""
        shape = self.values[value].shape
        starts, stops = (step, *(0,) * (len(shape) - 1)), (step + 1, *shape[1:])
        kept = self.derived(
            jax.lax.slice_p,
            [value],
            (1, *shape[1:]),
            lambda a: jax.lax.slice(a, starts, stops),
            start_indices=starts,
            limit_indices=stops,
            strides=None,
        )
        return self.reshaped(kept, shape[1:])

    def stack(self, rows: list[int]) -> int:
        shape = self.values[rows[0]].shape
        raised = [self.reshaped(i, (1, *shape)) for i in rows]
        return self.derived(
            jax.lax.concatenate_p,
            raised,
            (len(rows), *shape),
            lambda *parts: jax.lax.concatenate(parts, 0),
            dimension=0,
        )

    def reshaped(self, value: int, shape: tuple[int, ...]) -> int:
        return self.derived(
            jax.lax.reshape_p,
            [value],
            shape,
            lambda a: jax.numpy.reshape(a, shape),
            new_sizes=shape,
            dimensions=None,
        )

    def derived(
        self,
        primitive: Any,
        inputs: list[int],
        shape: tuple[int, ...],
        evaluate: Callable[..., Any],
        **options: Any,
    ) -> int:
        """A node of our own making."""
        self.values.append(Value(tuple(shape), self.values[inputs[0]].dtype))
        node = Node(
            primitive_named(primitive.name),
            tuple(inputs),
            (len(self.values) - 1,),
            options,
            lambda *values: [evaluate(*values)],
        )
        return self.add(node)[0]

    def finish(self, inputs: list[int], outputs: list[int]) -> Program:
        program = Program(
            tuple(self.nodes), tuple(self.values), tuple(inputs), tuple(outputs), self.constants,
            tuple(dict.fromkeys(self.rounded)),
        )  # fmt: skip
        return program.slice(outputs)


def _parts_of_scan(equation: Any) -> tuple[int, int]:
    """Where the carry begins among the inputs of a `scan`, and where it ends: what is stacked has
    one axis more outside of the body.

    Versions of JAX say it in different words.
    """
    body = equation.params["jaxpr"]
    body = body.jaxpr if isinstance(body, jex.ClosedJaxpr) else body
    alike = [
        sum(outside.aval.ndim == inside.aval.ndim for outside, inside in zip(*pair, strict=True))
        for pair in ((equation.invars, body.invars), (equation.outvars, body.outvars))
    ]
    return alike[0] - alike[1], alike[0]


def _pools(closed: Any) -> bool:
    """Whether the program is one maximum or minimum of windows and nothing else."""
    rows = [primitive_named(equation.primitive.name) for equation in closed.jaxpr.eqns]
    return len(rows) == 1 and rows[0].bend is not None and rows[0].bend.pools != 0


def _evaluate(equation: Any, *values: Any) -> list[Any]:
    """The equation in JAX, with its own derivative rules."""
    if primitive_named(equation.primitive.name).control not in _CALLS:
        found = equation.primitive.bind(*values, **equation.params)
        return list(found) if equation.primitive.multiple_results else [found]
    given = {
        a: v for a, v in zip(equation.invars, values, strict=True) if not isinstance(a, jex.Literal)
    }
    name = jex.DebugInfo("a call kept whole", equation.primitive.name, None, None)
    jaxpr = jex.Jaxpr((), list(given), equation.outvars, [equation], equation.effects, name)
    return list(jex.jaxpr_as_fun(jex.ClosedJaxpr(jaxpr, ()))(*given.values()))


_FLOATS = Floats()


@dataclass(frozen=True)
class FoldedConstants:
    """The values of a node of constants, and the roundings they may hold, in words."""

    arrays: tuple[np.ndarray, ...]
    rounded: tuple[str, ...]


def fold(node: Node, arrays: Sequence[np.ndarray], values: Sequence[Value]) -> FoldedConstants:
    """The node computed now. Real numbers in float64; integers exactly."""
    primitive, options = node.primitive, node.options
    discrete = all(a.dtype.kind in "iub" for a in arrays)
    if primitive.numpy is not None and not (arrays and values[0].real):
        found = primitive.numpy(options, *arrays)
    elif not values[0].real or primitive.kind is Kind.CURVES:
        found = _by_jax(node, arrays)
    elif primitive.arithmetic is not None:
        lifted = (_FLOATS.lift(a) if a.dtype.kind not in "iub" else a for a in arrays)
        found = primitive.arithmetic(_FLOATS, options, *lifted)
    elif primitive.numpy is not None:
        found = primitive.numpy(options, *(np.asarray(a, np.float64) for a in arrays))
    else:
        found = _by_jax(node, arrays)
    listed = found if isinstance(found, list | tuple) else [found]
    kept = tuple(_as(a, value) for a, value in zip(listed, values, strict=True))
    exact = discrete or not primitive.rounds or not values[0].real
    return FoldedConstants(kept, () if exact else (f"{primitive.name} of constants",))


def _as(a: Array, value: Value) -> np.ndarray:
    """Integers in their dtype; real numbers stay in float64, the widest there is."""
    return np.asarray(a, value.dtype) if not value.real else np.asarray(a, np.float64)


def _by_jax(node: Node, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The node by JAX's own rule; constants of a narrower dtype join those that were folded before,
    which have 64 bits.
    """
    floats = {a.dtype for a in arrays if jnp.issubdtype(a.dtype, jnp.floating)}
    if len(floats) > 1:
        arrays = [np.asarray(a, np.float64) if a.dtype in floats else a for a in arrays]
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return [np.asarray(a) for a in node.evaluate(*arrays)]
