"""The table of operations: one row for each primitive of JAX, one column for each question.

Every node of a program carries the row of its operation, and whoever asks something of a program
reads a column: how to evaluate it in an arithmetic, how far it bends, what it does to degrees, to
axes, to parameters that pass through. A new operation is a new row; one without a row is taken for
a smooth function of which nothing else is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from neuromanifold.graph import axis_rules, bends, index_maps, parts, rules
from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.axis_rules import AxisRule
from neuromanifold.graph.bends import Bend
from neuromanifold.graph.index_maps import Options
from neuromanifold.graph.parts import PartRule
from neuromanifold.graph.products import Convolution, Dot, Lookup, Product
from neuromanifold.graph.rules import Rule


class Kind(Enum):
    """What an operation makes of real numbers."""

    MOVES = "each entry of the result is an entry of an operand"
    SELECTS = "each entry is one of several operands', as another operand says"
    ADDS = "linear in all operands together"
    MULTIPLIES = "linear in each operand"
    RAISES = "products of entries of one operand"
    DIVIDES = "the first operand over the second"
    BENDS = "one of several linear functions, as a comparison says"
    CURVES = "smooth where it is defined, with values that are not rational"
    JUMPS = "not continuous"
    COUNTS = "knows integers and truth values alone"
    CALLS = "entered when a program is traced"


class ControlFlow(Enum):
    """How a program is traced through an operation that holds programs."""

    CALL = "entered"
    RULED = "entered, unless its own derivative rule is asked for"
    SCAN = "unrolled"
    WHILE = "unrolled where its end is known"
    COND = "entered where the branch is known"


class LayerPart(Enum):
    """Which part of a layer an operation is, for networks of infinite width."""

    PRODUCT = "weights of a dense layer"
    CONVOLUTION = "weights of a convolution"
    MARGIN = "zeros around the positions"
    WINDOW_SUM = "a sum over windows of positions"
    POSITION_SUM = "a sum over all positions"
    RESHAPE = "the same entries in other axes"
    TRANSPOSE = "the same axes in another order"
    COPY = "the same"


@dataclass(frozen=True)
class Primitive:
    """A row: what one operation is to every question.

    - `kind`: what it makes of real numbers; degrees and the dependence on channels follow.
    - `arithmetic`: the rule in any `Arithmetic`; None where only smooth arithmetics know it.
    - `numpy`: a function of options and NumPy arrays, for integers, truth values and constants.
    - `bend`: what it asks about real numbers and makes of the answers.
    - `decides`: how a walk answers such a question: the gate, and what was found out about it.
    - `signs`: for sums of entries, the sign with which each operand enters.
    - `exponent`: for powers, how many entries are multiplied (negative for their reciprocal).
    - `degree`, `parity`: of a function of one number, f(tv) = t^degree f(v) for t > 0; "odd" or
      "even". `monotone`: 1 where it grows with every operand, −1 where it falls.
    - `axes`: what becomes of the labels of axes; guessed from options and shapes where it is None.
    - `parts`: which parts of its operands a part of its result needs; all of them where it is None.
    - `product`: the canonical form of a product with a parameter.
    - `carries`: a parameter stays one here: each entry passes at most once, derivative 1.
    - `entrywise`: entry i of the result depends on the entries i of the operands.
    - `rounds`: float64 may not hold its values at float64 constants.
    - `several`: it gives a list of values.
    - `stops`: no derivative passes.
    - `control`, `layer`: see there.
    - `fused_on_gpu`: XLA makes it part of a less exact operation there.
    """

    name: str
    kind: Kind
    arithmetic: Rule | None = None
    numpy: Callable[..., Any] | None = None
    bend: Bend | None = None
    decides: Callable[..., tuple[Any, Any]] | None = None
    signs: tuple[int, ...] = ()
    exponent: Callable[[Options, tuple[int, ...]], int] | None = None
    degree: float | None = None
    parity: str = ""
    monotone: int = 0
    axes: AxisRule | None = None
    parts: PartRule | None = None
    product: Product | None = None
    carries: bool = False
    entrywise: bool = False
    rounds: bool = False
    several: bool = False
    stops: bool = False
    control: ControlFlow | None = None
    layer: LayerPart | None = None
    fused_on_gpu: bool = False


def _greater(A: Arithmetic, options: Options, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    signs = A.sign(A.subtract(a, b))
    return signs == 1, signs


def _argmax(
    A: Arithmetic, options: Options, a: Any
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """On the last axis, where all questions about candidates are put."""
    place, tied = A.largest(a)
    return np.maximum(place, 0).astype(np.int64), (place, tied)


def _divide(options: Options, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers, towards zero, as XLA divides."""
    quotient = np.abs(a) // np.where(b == 0, 1, np.abs(b))
    return np.sign(a) * np.sign(b) * quotient


def _remainder(options: Options, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.fmod(a, b) if a.dtype.kind == "f" else a - b * _divide(options, a, b)


def _iota(options: Options) -> np.ndarray:
    shape, axis = options["shape"], options["dimension"]
    steps = np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return np.broadcast_to(steps, shape)


def _scatter_add(
    options: Options, base: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    flat, valid = index_maps.scatter_index(options, base.shape, indices, updates.shape)
    out = np.array(base)
    np.add.at(out.reshape(-1), flat[valid], updates[valid])
    return out


def _sort_arrays(options: Options, *arrays: np.ndarray) -> list[np.ndarray]:
    axis, keys = options["dimension"], arrays[: options["num_keys"]]
    order = np.lexsort(keys[::-1], axis=axis)
    return [np.take_along_axis(a, order, axis) for a in arrays]


def _largest(options: Options, a: np.ndarray) -> list[np.ndarray]:
    axis = options.get("axis", a.ndim - 1)
    order = np.argsort(-a, axis=axis, kind="stable").take(np.arange(options["k"]), axis)
    return [np.take_along_axis(a, order, axis), order]


def _running(fn: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """A running sum or the like along an axis, from either end."""

    def run(options: Options, a: np.ndarray) -> np.ndarray:
        axis = options["axis"]
        if options["reverse"]:
            return np.flip(fn(np.flip(a, axis), axis), axis)
        return fn(a, axis)

    return run


def _over_axes(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda options, a: fn(a, axis=tuple(options["axes"]))


def _over_axis(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda options, a: fn(a, axis=options["axes"][0])


def _of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function that takes no options."""
    return lambda options, *arrays: fn(*arrays)


def _special(name: str) -> Callable[..., Any]:
    """A function of `scipy.special`, imported when it is called."""

    def call(options: Options, *arrays: np.ndarray) -> np.ndarray:
        import scipy.special

        return getattr(scipy.special, name)(*arrays)

    return call


def _rows(*names: str, kind: Kind, **columns: Any) -> dict[str, Primitive]:
    if columns.get("entrywise"):
        columns = {"axes": axis_rules.entrywise, "parts": parts.entrywise, **columns}
    return {name: Primitive(name, kind, **columns) for name in names}


def _move(*names: str, map: Callable[..., Any], **columns: Any) -> dict[str, Primitive]:
    """Index maps, the same for all arithmetics, integers and constants."""
    return _rows(
        *names, kind=Kind.MOVES, **{"arithmetic": rules.move(map), "numpy": map, **columns}
    )


def _compute(*names: str, kind: Kind, **columns: Any) -> dict[str, Primitive]:
    """Sums, products and quotients."""
    return _rows(*names, kind=kind, **{"rounds": True, **columns})


def _bend(*names: str, numpy: Callable[..., Any], bend: Bend, **columns: Any) -> Any:
    return _rows(*names, kind=Kind.BENDS, numpy=numpy, bend=bend, **columns)


def _compare(name: str, numpy: Callable[..., Any], bend: Bend, **columns: Any) -> Any:
    return _bend(name, numpy=_of(numpy), bend=bend, entrywise=True, **columns)


def _curve(name: str, numpy: Callable[..., Any], **columns: Any) -> dict[str, Primitive]:
    """Smooth functions of the entries; `numpy` takes them alone."""
    return _rows(
        name, kind=Kind.CURVES, numpy=numpy, **{"entrywise": True, "rounds": True, **columns}
    )


def _jump(name: str, numpy: Callable[..., Any] | None, **columns: Any) -> Any:
    return _rows(name, kind=Kind.JUMPS, numpy=numpy, **{"entrywise": True, **columns})


def _count(*names: str, numpy: Callable[..., Any], **columns: Any) -> Any:
    return _rows(*names, kind=Kind.COUNTS, numpy=numpy, **{"entrywise": True, **columns})


def _call(*names: str, control: ControlFlow) -> dict[str, Primitive]:
    return _rows(*names, kind=Kind.CALLS, control=control)


def _give_back(options: Options, a: np.ndarray, *_: Any) -> np.ndarray:
    return a


PRIMITIVES: dict[str, Primitive] = {
    # Index maps.
    **_move("reshape", map=index_maps.reshape, axes=axis_rules.reshape, parts=parts.reshape,
            carries=True, layer=LayerPart.RESHAPE),
    **_move("squeeze", map=lambda options, a: np.squeeze(a, tuple(options["dimensions"])),
            axes=axis_rules.expand, parts=parts.squeeze, carries=True, layer=LayerPart.RESHAPE),
    **_move("expand_dims", map=lambda options, a: np.expand_dims(a, tuple(options["dimensions"])),
            axes=axis_rules.expand, carries=True, layer=LayerPart.RESHAPE),
    **_move("broadcast_in_dim", map=index_maps.broadcast, axes=axis_rules.broadcast,
            parts=parts.broadcast, carries=True, layer=LayerPart.RESHAPE),
    **_move("transpose", map=lambda options, a: np.transpose(a, options["permutation"]),
            axes=axis_rules.transpose, parts=parts.transpose, carries=True, layer=LayerPart.TRANSPOSE),
    **_move("rev", map=lambda options, a: np.flip(a, options["dimensions"]),
            axes=axis_rules.along_axis, carries=True),
    **_move("slice", map=index_maps.slice_entries, axes=axis_rules.slice_axes, parts=parts.slices,
            carries=True),
    **_move("split", map=index_maps.split, axes=axis_rules.split, several=True, carries=True,
            arithmetic=rules.move_apart(index_maps.split, lambda o, shape: len(o["sizes"]))),
    **_move("unstack", map=index_maps.unstack, several=True, carries=True,
            arithmetic=rules.move_apart(index_maps.unstack, lambda o, shape: shape[o["axis"]])),
    **_move("pad", map=lambda o, a, fill: index_maps.pad(a, fill, o["padding_config"]),
            axes=axis_rules.pad, layer=LayerPart.MARGIN),
    **_move("concatenate", map=lambda o, *parts: np.concatenate(parts, o["dimension"]),
            axes=axis_rules.concatenate),
    **_move("stack", map=lambda options, *parts: np.stack(parts, options["axis"]),
            axes=axis_rules.rigid),
    **_move("tile", map=lambda options, a: np.tile(a, options["reps"]), axes=axis_rules.rigid),
    **_move("dynamic_slice", map=index_maps.dynamic_slice, axes=axis_rules.dynamic_slice_axes),
    **_move("dynamic_update_slice", map=index_maps.dynamic_update, axes=axis_rules.update),
    **_move("gather", map=index_maps.gather, axes=axis_rules.gather, product=Lookup()),
    **_move("scatter", map=index_maps.scatter, axes=axis_rules.rigid),
    **_move("copy", map=_give_back, carries=True, entrywise=True, layer=LayerPart.COPY),
    **_move("copy_p", map=_give_back, carries=True, entrywise=True),
    **_move("convert_element_type", map=_give_back, arithmetic=rules.convert, carries=True,
            entrywise=True, layer=LayerPart.COPY),
    **_move("stop_gradient", map=_give_back, axes=axis_rules.entrywise, parts=parts.entrywise,
            stops=True),
    **_move("device_put", "sharding_constraint", "reduce_precision", "name",
            map=_give_back, axes=axis_rules.entrywise, parts=parts.entrywise),
    **_move("optimization_barrier", map=lambda options, *arrays: arrays, several=True,
            axes=axis_rules.each,
            arithmetic=lambda A, options, *values: values),
    **_rows("select_n", kind=Kind.SELECTS, arithmetic=rules.move(index_maps.select),
            numpy=index_maps.select, entrywise=True),
    # Sums.
    **_compute("add", "add_any", kind=Kind.ADDS, entrywise=True, signs=(1, 1), numpy=_of(np.add),
               arithmetic=lambda A, options, a, b: A.add(a, b)),
    **_compute("sub", kind=Kind.ADDS, entrywise=True, signs=(1, -1), numpy=_of(np.subtract),
               arithmetic=lambda A, options, a, b: A.subtract(a, b)),
    **_compute("neg", kind=Kind.ADDS, entrywise=True, signs=(-1,), rounds=False,
               numpy=_of(np.negative),
               arithmetic=lambda A, options, a: A.negate(a)),
    **_compute("reduce_sum", kind=Kind.ADDS, arithmetic=rules.reduce_sum, numpy=_over_axes(np.sum),
               axes=axis_rules.reduce, parts=parts.squeeze, layer=LayerPart.POSITION_SUM),
    **_compute("cumsum", kind=Kind.ADDS, arithmetic=rules.cumulative_sum,
               numpy=_running(np.cumsum), axes=axis_rules.along_axis),
    **_compute("reduce_window_sum", kind=Kind.ADDS, arithmetic=rules.window_sum,
               axes=axis_rules.window, layer=LayerPart.WINDOW_SUM),
    **_compute("scatter-add", kind=Kind.ADDS, arithmetic=rules.scatter_add, numpy=_scatter_add,
               axes=axis_rules.rigid),
    # Products and quotients.
    **_compute("mul", kind=Kind.MULTIPLIES, entrywise=True, numpy=_of(np.multiply),
               arithmetic=lambda A, options, a, b: A.multiply(a, b)),
    **_compute("dot_general", kind=Kind.MULTIPLIES, arithmetic=rules.dot_general, product=Dot(),
               axes=axis_rules.dot, parts=parts.dot, layer=LayerPart.PRODUCT),
    **_compute("conv_general_dilated", kind=Kind.MULTIPLIES, arithmetic=rules.convolution,
               product=Convolution(), axes=axis_rules.convolution, layer=LayerPart.CONVOLUTION),
    **_compute("square", kind=Kind.RAISES, entrywise=True, numpy=_of(np.square),
               exponent=lambda options, shape: 2,
               arithmetic=lambda A, options, a: A.multiply(a, a)),
    **_compute("integer_pow", kind=Kind.RAISES, entrywise=True,
               exponent=lambda options, shape: options["y"],
               numpy=lambda options, a: a ** options["y"],
               arithmetic=lambda A, options, a: A.power(a, options["y"])),
    **_compute("reduce_prod", kind=Kind.RAISES, arithmetic=rules.reduce_prod,
               numpy=_over_axes(np.prod), axes=axis_rules.reduce, parts=parts.squeeze,
               exponent=lambda o, shape: int(np.prod([shape[d] for d in o["axes"]], dtype=int))),
    **_compute("cumprod", kind=Kind.RAISES, arithmetic=rules.cumulative_product,
               numpy=_running(np.cumprod), axes=axis_rules.along_axis,
               exponent=lambda options, shape: shape[options["axis"]]),
    **_compute("div", kind=Kind.DIVIDES, entrywise=True, numpy=_divide,
               arithmetic=lambda A, options, a, b: A.divide(a, b)),
    # Bends.
    **_bend("max", numpy=_of(np.maximum), entrywise=True, monotone=1,
            bend=Bend(bends.maximum, commutes=True, clips=("below",))),
    **_bend("min", numpy=_of(np.minimum), entrywise=True, monotone=1,
            bend=Bend(bends.minimum, commutes=True, clips=("above",))),
    **_bend("abs", numpy=_of(np.abs), entrywise=True, bend=Bend(bends.absolute), degree=1.0,
            parity="even"),
    **_bend("clamp", numpy=lambda options, low, a, high: np.clip(a, low, high), entrywise=True,
            monotone=1,
            bend=Bend(bends.clamp, questions=2, clips=("below", "above"))),
    **_bend("reduce_max", numpy=_over_axes(np.max), bend=bends.reduction(1), monotone=1,
            axes=axis_rules.reduce, parts=parts.squeeze),
    **_bend("reduce_min", numpy=_over_axes(np.min), bend=bends.reduction(-1), monotone=1,
            axes=axis_rules.reduce, parts=parts.squeeze),
    **_bend("cummax", numpy=_running(np.maximum.accumulate), bend=bends.running(1), monotone=1,
            axes=axis_rules.along_axis),
    **_bend("cummin", numpy=_running(np.minimum.accumulate), bend=bends.running(-1), monotone=1,
            axes=axis_rules.along_axis),
    **_rows("reduce_window_max", kind=Kind.BENDS, bend=bends.pooling(1), axes=axis_rules.window,
            monotone=1),
    **_rows("reduce_window_min", kind=Kind.BENDS, bend=bends.pooling(-1), axes=axis_rules.window,
            monotone=1),
    **_bend("argmax", numpy=_over_axis(np.argmax), bend=bends.argument(1), decides=_argmax,
            axes=axis_rules.arguments),
    **_bend("argmin", numpy=_over_axis(np.argmin), bend=bends.argument(-1),
            axes=axis_rules.arguments),
    **_bend("sort", numpy=_sort_arrays, axes=axis_rules.along_axis, several=True,
            bend=Bend(bends.sort_entries, applies=lambda options: options["num_keys"] == 1,
                      held=bends.pairs("dimension"), orders=True)),
    **_bend("top_k", numpy=_largest, axes=axis_rules.cut_sorted, several=True,
            bend=Bend(bends.largest_entries, held=bends.pairs("axis"), orders=True)),
    **_compare("gt", np.greater, decides=_greater,
               bend=Bend(lambda ask, options, a, b: ask.positive(a - b), of_equals=False)),
    **_compare("lt", np.less,
               Bend(lambda ask, options, a, b: ask.positive(b - a), of_equals=False)),
    **_compare("ge", np.greater_equal,
               Bend(lambda ask, options, a, b: ~ask.positive(b - a), of_equals=True)),
    **_compare("le", np.less_equal,
               Bend(lambda ask, options, a, b: ~ask.positive(a - b), of_equals=True)),
    **_compare("eq", np.equal, Bend(bends.equal, questions=2, of_equals=True)),
    **_compare("ne", np.not_equal,
               Bend(lambda ask, options, a, b: ~bends.equal(ask, options, a, b), questions=2,
                    of_equals=False)),
    # Smooth functions.
    **_curve("exp", _of(np.exp), monotone=1),
    **_curve("exp2", _of(np.exp2), monotone=1),
    **_curve("expm1", _of(np.expm1), monotone=1),
    **_curve("log", _of(np.log), monotone=1),
    **_curve("log1p", _of(np.log1p), monotone=1),
    **_curve("sqrt", _of(np.sqrt), monotone=1, degree=0.5),
    **_curve("rsqrt", lambda options, a: 1 / np.sqrt(a), degree=-0.5, monotone=-1),
    **_curve("cbrt", _of(np.cbrt), monotone=1, degree=1 / 3, parity="odd"),
    **_curve("pow", _of(np.power)),
    **_curve("sin", _of(np.sin), parity="odd"),
    **_curve("cos", _of(np.cos), parity="even"),
    **_curve("tan", _of(np.tan), parity="odd"),
    **_curve("asin", _of(np.arcsin), monotone=1, parity="odd"),
    **_curve("acos", _of(np.arccos), monotone=-1),
    **_curve("atan", _of(np.arctan), monotone=1, parity="odd"),
    **_curve("atan2", _of(np.arctan2)),
    **_curve("sinh", _of(np.sinh), monotone=1, parity="odd"),
    **_curve("cosh", _of(np.cosh), parity="even"),
    **_curve("tanh", _of(np.tanh), monotone=1, parity="odd", fused_on_gpu=True),
    **_curve("asinh", _of(np.arcsinh), monotone=1, parity="odd"),
    **_curve("acosh", _of(np.arccosh), monotone=1),
    **_curve("atanh", _of(np.arctanh), monotone=1, parity="odd"),
    **_curve("logistic", _special("expit"), monotone=1),
    **_curve("erf", _special("erf"), parity="odd", monotone=1),
    **_curve("erfc", _special("erfc"), monotone=-1),
    **_curve("erf_inv", _special("erfinv"), parity="odd", monotone=1),
    **_curve("lgamma", _special("gammaln")),
    **_curve("digamma", _special("psi")),
    **_rows("cumlogsumexp", kind=Kind.CURVES, axes=axis_rules.along_axis, rounds=True),
    # Jumps.
    **_jump("sign", _of(np.sign), degree=0.0, parity="odd", monotone=1),
    **_jump("floor", _of(np.floor), monotone=1),
    **_jump("ceil", _of(np.ceil), monotone=1),
    **_jump("round", None),
    **_jump("rem", _remainder),
    **_jump("nextafter", None),
    **_jump("is_finite", _of(np.isfinite)),
    **_jump("approx_top_k", None, entrywise=False, axes=axis_rules.rigid),
    # Integers and truth values.
    **_count("and", numpy=_of(np.bitwise_and), monotone=1),
    **_count("or", numpy=_of(np.bitwise_or), monotone=1),
    **_count("xor", numpy=_of(np.bitwise_xor)),
    **_count("not", numpy=_of(np.bitwise_not), monotone=-1),
    **_count("shift_left", numpy=_of(np.left_shift)),
    **_count("shift_right_logical", "shift_right_arithmetic", numpy=_of(np.right_shift)),
    **_count("reduce_and", numpy=_over_axes(np.all), entrywise=False, axes=axis_rules.reduce),
    **_count("reduce_or", numpy=_over_axes(np.any), entrywise=False, axes=axis_rules.reduce),
    **_count("iota", numpy=_iota, entrywise=False),
    # Programs in programs.
    **_call("jit", "pjit", "closed_call", "core_call", "call", "remat", "remat2", "checkpoint",
            "custom_vjp_call_jaxpr", "custom_lin", "xla_call", control=ControlFlow.CALL),
    **_call("custom_jvp_call", "custom_vjp_call", control=ControlFlow.RULED),
    **_call("scan", control=ControlFlow.SCAN),
    **_call("while", control=ControlFlow.WHILE),
    **_call("cond", control=ControlFlow.COND),
}  # fmt: skip


@cache
def primitive_named(name: str) -> Primitive:
    """The row of an operation; of one that the table lacks, a smooth function of which nothing
    else is known.
    """
    return PRIMITIVES.get(name) or Primitive(name, Kind.CURVES, rounds=True)


EXP = PRIMITIVES["exp"]
"""What softmax is recognised by."""
