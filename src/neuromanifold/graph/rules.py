"""How operations act in an arithmetic: short rules in terms of the few operations of an
`Arithmetic`.

A rule takes the arithmetic, the node's options and the node's values: real ones as the arithmetic
has them, integers and truth values as NumPy arrays.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from neuromanifold.graph.arithmetic import Arithmetic, NoExactAnswer
from neuromanifold.graph.index_maps import pad, scatter_index, windows

Options = Mapping[str, Any]
Rule = Callable[..., Any]


def move(index_map: Callable[..., np.ndarray]) -> Rule:
    """The rule of an index map that gives one value."""

    def rule(A: Arithmetic, options: Options, *values: Any) -> Any:
        return rearrange(A, partial(index_map, options), *values)

    return rule


def move_apart(
    index_map: Callable[..., list[np.ndarray]], count: Callable[[Options, Sequence[int]], int]
) -> Rule:
    """The rule of an index map that gives several values, `count(options, shape)` of them."""

    def rule(A: Arithmetic, options: Options, a: Any) -> Sequence[Any]:
        return [
            rearrange(A, lambda v, k=k: index_map(options, v)[k], a)
            for k in range(count(options, A.shape(a)))
        ]

    return rule


def rearrange(A: Arithmetic, fn: Callable[..., np.ndarray], *values: Any) -> Any:
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


def convert(A: Arithmetic, options: Options, a: Any) -> Any:
    """Integers and truth values become numbers of the arithmetic; these stay as they are."""
    if is_discrete(a):
        return A.lift(a)
    if np.dtype(options["new_dtype"]).kind in "iub":
        raise NoExactAnswer(f"{A.name} are not rounded to integers")
    return a


def reduce_sum(A: Arithmetic, options: Options, a: Any) -> Any:
    """The sum over axes."""
    return A.sum(a, tuple(map(int, options["axes"])))


def cumulative_sum(A: Arithmetic, options: Options, a: Any) -> Any:
    """Σ_{j ≤ i} a_j along an axis, as a product with a triangle of ones."""
    axis, shape = options["axis"], A.shape(a)
    n = shape[axis]
    triangle = np.tril(np.ones((n, n)))
    ones = A.lift(triangle.T if options["reverse"] else triangle)
    front = A.rearrange(lambda v: np.moveaxis(v, axis, 0).reshape(n, -1), a)
    moved = (n, *shape[:axis], *shape[axis + 1 :])
    return A.rearrange(lambda v: np.moveaxis(v.reshape(moved), 0, axis), A.dot(ones, front))


def cumulative_product(A: Arithmetic, options: Options, a: Any) -> Any:
    """Π_{j ≤ i} a_j along an axis, one factor after another."""
    axis, n = options["axis"], A.shape(a)[options["axis"]]
    products: list[Any] = []
    for i in range(n)[:: -1 if options["reverse"] else 1]:
        factor = A.rearrange(lambda v, i=i: v.take(i, axis), a)
        products.append(A.multiply(products[-1], factor) if products else factor)
    ordered = products[::-1] if options["reverse"] else products
    return A.rearrange(lambda *parts: np.stack(parts, axis), *ordered)


def reduce_prod(A: Arithmetic, options: Options, a: Any) -> Any:
    """The product over axes."""
    axes, shape = tuple(options["axes"]), A.shape(a)
    kept = [d for d in range(len(shape)) if d not in axes]
    rest = tuple(shape[d] for d in kept)
    last = A.rearrange(lambda v: v.transpose([*kept, *axes]).reshape(*rest, -1), a)
    result = A.power(A.rearrange(lambda v: v[..., 0], last), 1)
    for i in range(1, math.prod(shape[d] for d in axes)):
        result = A.multiply(result, A.rearrange(lambda v, i=i: v[..., i], last))
    return result


def dot_general(A: Arithmetic, options: Options, a: Any, b: Any) -> Any:
    """`lax.dot_general` as matrix products."""
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


def convolution(A: Arithmetic, options: Options, a: Any, w: Any) -> Any:
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
        signal = pad(v.transpose(spec.lhs_spec), 0, config)
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


def window_sum(A: Arithmetic, options: Options, a: Any) -> Any:
    """The sum over each window of `lax.reduce_window`; the padding is zero."""
    sizes = options["window_dimensions"]
    config = [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["base_dilation"], strict=True)
    ]
    entries = A.rearrange(
        lambda v: windows(
            pad(v, 0, config),
            sizes,
            options["window_strides"],
            options["window_dilation"],
            range(v.ndim),
        ),
        a,
    )
    return A.sum(entries, (-1,))


def scatter_add(
    A: Arithmetic, options: Options, base: Any, indices: np.ndarray, updates: Any
) -> Any:
    """`lax.scatter_add`: updates of one place add up."""
    flat, valid = scatter_index(options, A.shape(base), indices, A.shape(updates))
    return A.scatter_add(base, flat[valid], A.rearrange(lambda v: v[valid], updates))
