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
import numpy as np
from jax.extend.source_info_util import summarize

from neuromanifold.graph.arithmetic import Array, Floats
from neuromanifold.graph.discrete import DISCRETE
from neuromanifold.graph.pooling import pools
from neuromanifold.graph.program import Node, Program, Value
from neuromanifold.graph.reading import read
from neuromanifold.graph.rules import RULES, SEVERAL
from neuromanifold.graph.structural import MAPS

_CALLS = {
    "jit", "pjit", "closed_call", "core_call", "call", "remat", "remat2", "checkpoint", "custom_jvp_call",
    "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin", "xla_call",
}  # fmt: skip
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_LONGEST_LOOP = 4096


def program_of(fn: Callable[..., Any], *arguments: Any, whole: Sequence[str] = ()) -> Program:
    """The program of `fn` at arguments of these shapes and dtypes (arrays or
    `jax.ShapeDtypeStruct`s, in any pytrees).

    Calls named in `whole` stay single operations. Inputs and outputs are the leaves, in
    `jax.tree.leaves` order.
    """
    closed, _ = read(fn, *arguments)
    builder = _Builder(frozenset(whole))
    inputs = [builder.fresh(var.aval) for var in closed.jaxpr.invars]
    outputs = builder.enter(closed, inputs)
    return builder.finish(inputs, outputs)


@dataclass
class _Builder:
    """Collects nodes while jaxprs are read. Constants are folded as they come, so that loops and
    branches can use them.
    """

    whole: frozenset[str]
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
        name, options = equation.primitive.name, equation.params
        if name in _CALLS:
            inner = next(options[key] for key in _INNER if key in options)
            if name not in self.whole or pools(inner):
                return self.enter(inner, inputs)
        if name == "scan":
            return self.scan(equation, inputs)
        if name == "cond" and inputs[0] in self.constants:
            branch = int(np.clip(self.constants[inputs[0]], 0, len(options["branches"]) - 1))
            return self.enter(options["branches"][branch], inputs[1:])
        if name == "while":
            return self.loop(equation, inputs)
        outputs = [self.fresh(var.aval) for var in equation.outvars]
        evaluate = partial(_evaluate, equation)
        return self.add(
            Node(
                name,
                tuple(inputs),
                tuple(outputs),
                options,
                evaluate,
                summarize(equation.source_info),
            )
        )

    def add(self, node: Node) -> list[int]:
        """Keep the node, or compute it now where all its inputs are constants."""
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
        kept = self.derived(
            "slice", [value], (1, *shape[1:]),
            start_indices=(step, *(0,) * (len(shape) - 1)), limit_indices=(step + 1, *shape[1:]), strides=None,
        )  # fmt: skip
        return self.derived("reshape", [kept], shape[1:], new_sizes=shape[1:], dimensions=None)

    def stack(self, rows: list[int]) -> int:
        shape = self.values[rows[0]].shape
        raised = [
            self.derived("reshape", [i], (1, *shape), new_sizes=(1, *shape), dimensions=None)
            for i in rows
        ]
        return self.derived("concatenate", raised, (len(rows), *shape), dimension=0)

    def derived(self, name: str, inputs: list[int], shape: tuple[int, ...], **options: Any) -> int:
        """A node of our own making."""
        self.values.append(Value(tuple(shape), self.values[inputs[0]].dtype))
        evaluate = partial(_STRUCTURAL[name], options=options)
        return self.add(Node(name, tuple(inputs), (len(self.values) - 1,), options, evaluate))[0]

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


_STRUCTURAL: dict[str, Callable[..., list[Any]]] = {
    "slice": lambda a, options: [
        jax.lax.slice(a, options["start_indices"], options["limit_indices"])
    ],
    "reshape": lambda a, options: [jax.numpy.reshape(a, options["new_sizes"])],
    "concatenate": lambda *parts, options: [jax.lax.concatenate(parts, options["dimension"])],
}


def _evaluate(equation: Any, *values: Any) -> list[Any]:
    """The equation in JAX, with its own derivative rules."""
    if equation.primitive.name not in _CALLS:
        found = equation.primitive.bind(*values, **equation.params)
        return list(found) if equation.primitive.multiple_results else [found]
    given = {
        a: v for a, v in zip(equation.invars, values, strict=True) if not isinstance(a, jex.Literal)
    }
    name = jex.DebugInfo("a call kept whole", equation.primitive.name, None, None)
    jaxpr = jex.Jaxpr((), list(given), equation.outvars, [equation], equation.effects, name)
    return list(jex.jaxpr_as_fun(jex.ClosedJaxpr(jaxpr, ()))(*given.values()))


_FLOATS = Floats()
_EXACT = {
    *MAPS,
    *SEVERAL,
    "iota",
    "neg",
    "max",
    "min",
    "abs",
    "gt",
    "ge",
    "lt",
    "le",
    "eq",
    "ne",
    "is_finite",
}
_COMPARISONS = {
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_DIRECT = {
    **_COMPARISONS, "max": np.maximum, "min": np.minimum, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "sign": np.sign,
    "is_finite": np.isfinite, "rem": np.fmod,
}  # fmt: skip


@dataclass(frozen=True)
class Folded:
    """The values of a node of constants, and the roundings they may hold, in words."""

    arrays: tuple[np.ndarray, ...]
    rounded: tuple[str, ...]


def fold(node: Node, arrays: Sequence[np.ndarray], values: Sequence[Value]) -> Folded:
    """The node computed now. Real numbers in float64; integers exactly."""
    discrete = all(a.dtype.kind in "iub" for a in arrays)
    name = node.operation
    if discrete and not values[0].real:
        found = DISCRETE[name](node.options, *arrays) if name in DISCRETE else _by_jax(node, arrays)
    elif name == "iota":
        found = DISCRETE[name](node.options)
    elif name in _DIRECT:
        found = _DIRECT[name](*(np.asarray(a, np.float64) for a in arrays))
    elif name in RULES:
        found = RULES[name](
            _FLOATS,
            node.options,
            *(_FLOATS.lift(a) if a.dtype.kind not in "iub" else a for a in arrays),
        )
    else:
        found = _by_jax(node, arrays)
    listed = found if isinstance(found, list | tuple) else [found]
    kept = tuple(_as(a, value) for a, value in zip(listed, values, strict=True))
    rounded = () if discrete or name in _EXACT or not values[0].real else (f"{name} of constants",)
    return Folded(kept, rounded)


def _as(a: Array, value: Value) -> np.ndarray:
    """Integers in their dtype; real numbers stay in float64, the widest there is."""
    return np.asarray(a, value.dtype) if not value.real else np.asarray(a, np.float64)


def _by_jax(node: Node, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    import jax

    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return [np.asarray(a) for a in node.evaluate(*arrays)]
