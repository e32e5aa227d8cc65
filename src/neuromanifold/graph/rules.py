"""What each operation is made of: one short rule for each, in terms of the few operations of an
`Arithmetic`.

A rule takes the arithmetic, the node's options and the node's values: real ones as the arithmetic
has them, integers and truth values as NumPy arrays.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.structural import MAPS, gather_index, padded, scatter_options, windows

Options = Mapping[str, Any]
Rule = Callable[..., Any]


def _structural(name: str) -> Rule:
    def rule(A: Arithmetic, options: Options, *values: Any) -> Any:
        return rearranged(A, MAPS[name](options), *values)

    return rule


def rearranged(A: Arithmetic, fn: Callable[..., np.ndarray], *values: Any) -> Any:
    """`A.rearrange` with integer arguments (indices, choices) bound to the map."""
    known = {i: v for i, v in enumerate(values) if is_discrete(v)}
    free = [v for i, v in enumerate(values) if i not in known]

    def bound(*arrays: np.ndarray) -> np.ndarray:
        rest = iter(arrays)
        return fn(*(known[i] if i in known else next(rest) for i in range(len(values))))

    return A.rearrange(bound, *free) if known else A.rearrange(fn, *values)


def is_discrete(value: Any) -> bool:
    """Whether it is an array of integers or truth values that stands for itself. Residues are
    wrapped, so they are not.
    """
    return isinstance(value, np.ndarray) and value.dtype.kind in "iub"


def _convert(A: Arithmetic, options: Options, a: Any) -> Any:
    return A.lift(a) if is_discrete(a) else a


def _square(A: Arithmetic, options: Options, a: Any) -> Any:
    return A.multiply(a, a)


def _reduce_sum(A: Arithmetic, options: Options, a: Any) -> Any:
    return A.sum(a, tuple(map(int, options["axes"])))


def _cumulative(A: Arithmetic, options: Options, a: Any) -> Any:
    """Σ_{j ≤ i} a_j along an axis, as a product with a triangle of ones."""
    axis, shape = options["axis"], A.shape(a)
    n = shape[axis]
    triangle = np.tril(np.ones((n, n)))
    ones = A.lift(triangle.T if options["reverse"] else triangle)
    front = A.rearrange(lambda v: np.moveaxis(v, axis, 0).reshape(n, -1), a)
    moved = (n, *shape[:axis], *shape[axis + 1 :])
    return A.rearrange(lambda v: np.moveaxis(v.reshape(moved), 0, axis), A.dot(ones, front))


def _reduce_prod(A: Arithmetic, options: Options, a: Any) -> Any:
    axes, shape = tuple(options["axes"]), A.shape(a)
    kept = [d for d in range(len(shape)) if d not in axes]
    rest = tuple(shape[d] for d in kept)
    last = A.rearrange(lambda v: v.transpose([*kept, *axes]).reshape(*rest, -1), a)
    result = A.power(A.rearrange(lambda v: v[..., 0], last), 1)
    for i in range(1, math.prod(shape[d] for d in axes)):
        result = A.multiply(result, A.rearrange(lambda v, i=i: v[..., i], last))
    return result


def _dot_general(A: Arithmetic, options: Options, a: Any, b: Any) -> Any:
    (of_a, of_b), (batch_a, batch_b) = options["dimension_numbers"]
    shape_a, shape_b = A.shape(a), A.shape(b)
    free_a = [d for d in range(len(shape_a)) if d not in of_a and d not in batch_a]
    free_b = [d for d in range(len(shape_b)) if d not in of_b and d not in batch_b]
    batch, rows = [shape_a[d] for d in batch_a], [shape_a[d] for d in free_a]
    columns, inner = [shape_b[d] for d in free_b], math.prod(shape_a[d] for d in of_a)
    left = (*batch, math.prod(rows), inner)
    right = (*batch, inner, math.prod(columns))
    a = A.rearrange(lambda v: v.transpose([*batch_a, *free_a, *of_a]).reshape(left), a)
    b = A.rearrange(lambda v: v.transpose([*batch_b, *of_b, *free_b]).reshape(right), b)
    return A.rearrange(lambda v: v.reshape(*batch, *rows, *columns), A.dot(a, b))


def _convolution(A: Arithmetic, options: Options, a: Any, w: Any) -> Any:
    """A matrix product with the windows of the padded and dilated signal: any strides,
    dilations, groups.
    """
    spec = options["dimension_numbers"]
    groups, batch_groups = options["feature_group_count"], options["batch_group_count"]
    order = np.argsort(spec.out_spec)
    shape_w = [A.shape(w)[d] for d in spec.rhs_spec]
    out, inner, window = shape_w[0], shape_w[1], shape_w[2:]
    axes = tuple(range(2, 2 + len(window)))
    config = [(0, 0, 0)] * 2 + [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["lhs_dilation"], strict=True)
    ]

    def cut(v: np.ndarray) -> np.ndarray:
        signal = padded(v.transpose(spec.lhs_spec), 0, config)
        return windows(signal, window, options["window_strides"], options["rhs_dilation"], axes)

    patches = A.rearrange(cut, a)  # (n, channels, *places, offsets)
    n, _, *places, _ = A.shape(patches)
    split = groups * batch_groups
    rows = n // batch_groups

    def left(v: np.ndarray) -> np.ndarray:
        by_group = v.reshape(batch_groups, rows, groups, inner, *places, -1)
        moved = np.moveaxis(
            by_group, (2, 3, -1), (1, -2, -1)
        )  # (batch group, group, row, *places, inner, offset)
        return moved.reshape(split, rows * math.prod(places), -1)

    def right(v: np.ndarray) -> np.ndarray:
        filters = v.transpose(spec.rhs_spec).reshape(split, out // split, -1)
        return filters.swapaxes(1, 2)

    def arranged(v: np.ndarray) -> np.ndarray:
        by_group = v.reshape(split, rows, *places, out // split)
        return np.moveaxis(by_group, (0, -1), (1, 2)).reshape(rows, out, *places).transpose(order)

    patches = A.rearrange(left, patches)  # under the same name, so that the other copy goes
    return A.rearrange(arranged, A.dot(patches, A.rearrange(right, w)))


def _window_sum(A: Arithmetic, options: Options, a: Any) -> Any:
    return A.sum(window_entries(A, options, a, 0), (-1,))


def window_entries(A: Arithmetic, options: Options, a: Any, fill: Any) -> Any:
    """The entries of every window of a `reduce_window`, on a new last axis."""
    sizes = options["window_dimensions"]
    config = [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["base_dilation"], strict=True)
    ]
    return A.rearrange(
        lambda v: windows(
            padded(v, fill, config),
            sizes,
            options["window_strides"],
            options["window_dilation"],
            range(v.ndim),
        ),
        a,
    )


def _scatter(A: Arithmetic, options: Options, base: Any, indices: np.ndarray, updates: Any) -> Any:
    flat, valid = gather_index(
        A.shape(base), indices, scatter_options(options, A.shape(base), A.shape(updates))
    )

    def replaced(a: np.ndarray, new: np.ndarray) -> np.ndarray:
        out = np.array(a)
        out.reshape(-1)[flat[valid]] = new[valid]
        return out

    return A.rearrange(replaced, base, updates)


def _scatter_add(
    A: Arithmetic, options: Options, base: Any, indices: np.ndarray, updates: Any
) -> Any:
    flat, valid = gather_index(
        A.shape(base), indices, scatter_options(options, A.shape(base), A.shape(updates))
    )
    return A.scatter_add(base, flat[valid], A.rearrange(lambda v: v[valid], updates))


def _split(A: Arithmetic, options: Options, a: Any) -> Sequence[Any]:
    stops = np.cumsum(options["sizes"])
    axis = options["axis"]
    return [
        rearranged(A, lambda v, lo=lo, hi=hi: v.take(np.arange(lo, hi), axis), a)
        for lo, hi in zip([0, *stops[:-1]], stops, strict=True)
    ]


def _unstack(A: Arithmetic, options: Options, a: Any) -> Sequence[Any]:
    axis = options["axis"]
    return [rearranged(A, lambda v, i=i: v.take(i, axis), a) for i in range(A.shape(a)[axis])]


SEVERAL = {"split", "unstack", "optimization_barrier"}
"""Operations that give a list of values."""

RULES: dict[str, Rule] = {
    **{name: _structural(name) for name in MAPS},
    "convert_element_type": _convert,
    "split": _split,
    "unstack": _unstack,
    "optimization_barrier": lambda A, options, *values: values,
    "add": lambda A, options, a, b: A.add(a, b),
    "add_any": lambda A, options, a, b: A.add(a, b),
    "sub": lambda A, options, a, b: A.subtract(a, b),
    "neg": lambda A, options, a: A.negate(a),
    "reduce_sum": _reduce_sum,
    "cumsum": _cumulative,
    "reduce_window_sum": _window_sum,
    "scatter": _scatter,
    "scatter-add": _scatter_add,
    "mul": lambda A, options, a, b: A.multiply(a, b),
    "square": _square,
    "integer_pow": lambda A, options, a: A.power(a, options["y"]),
    "reduce_prod": _reduce_prod,
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "div": lambda A, options, a, b: A.divide(a, b),
}
"""The operations that every arithmetic knows. Decisions (`gt`, and `argmax` on the last axis)
are the walk's own.
"""
