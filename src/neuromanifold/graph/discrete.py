"""Operations on integers and truth values, which need no arithmetic of ours: NumPy's are exact."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from neuromanifold.graph.structural import MAPS, gather_index, scatter_options

Options = Mapping[str, Any]


def _divide(options: Options, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero, as XLA divides."""
    quotient = np.abs(a) // np.where(b == 0, 1, np.abs(b))
    return np.sign(a) * np.sign(b) * quotient


def _remainder(options: Options, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a - b * _divide(options, a, b)


def _clamp(options: Options, low: np.ndarray, a: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.clip(a, low, high)


def _iota(options: Options) -> np.ndarray:
    shape, axis = options["shape"], options["dimension"]
    steps = np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return np.broadcast_to(steps, shape)


def _reduction(fn: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return lambda options, a: fn(a, axis=tuple(options["axes"]))


def _scatter(add: bool) -> Callable[..., np.ndarray]:
    def rule(
        options: Options, base: np.ndarray, indices: np.ndarray, updates: np.ndarray
    ) -> np.ndarray:
        flat, valid = gather_index(
            base.shape, indices, scatter_options(options, base.shape, updates.shape)
        )
        out = np.array(base)
        if add:
            np.add.at(out.reshape(-1), flat[valid], updates[valid])
        else:
            out.reshape(-1)[flat[valid]] = updates[valid]
        return out

    return rule


_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "gt": np.greater, "ge": np.greater_equal,
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    "shift_left": np.left_shift, "shift_right_logical": np.right_shift, "shift_right_arithmetic": np.right_shift,
}  # fmt: skip

DISCRETE: dict[str, Callable[..., Any]] = {
    **{
        name: (lambda options, *arrays, make=make: make(options)(*arrays))
        for name, make in MAPS.items()
    },
    **{name: (lambda options, a, b, fn=fn: fn(a, b)) for name, fn in _BINARY.items()},
    "neg": lambda options, a: -a,
    "not": lambda options, a: np.bitwise_not(a),
    "sign": lambda options, a: np.sign(a),
    "abs": lambda options, a: np.abs(a),
    "square": lambda options, a: a * a,
    "integer_pow": lambda options, a: a ** options["y"],
    "div": _divide,
    "rem": _remainder,
    "clamp": _clamp,
    "iota": _iota,
    "reduce_sum": _reduction(np.sum),
    "reduce_prod": _reduction(np.prod),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_and": _reduction(np.all),
    "reduce_or": _reduction(np.any),
    "argmax": lambda options, a: np.argmax(a, axis=options["axes"][0]),
    "argmin": lambda options, a: np.argmin(a, axis=options["axes"][0]),
    "cumsum": lambda options, a: (
        np.flip(np.cumsum(np.flip(a, options["axis"]), options["axis"]), options["axis"])
        if options["reverse"]
        else np.cumsum(a, options["axis"])
    ),
    "split": lambda options, a: np.split(a, np.cumsum(options["sizes"])[:-1], options["axis"]),
    "unstack": lambda options, a: [
        a.take(i, options["axis"]) for i in range(a.shape[options["axis"]])
    ],
    "scatter": _scatter(False),
    "scatter-add": _scatter(True),
    "optimization_barrier": lambda options, *arrays: arrays,
}
"""One function for each operation that integers and truth values know."""
