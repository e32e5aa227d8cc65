"""What depends on constants alone is computed once, in float64, and remembered as a rounding where it may be one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neuromanifold.graph.arithmetic import Array, Floats
from neuromanifold.graph.discrete import DISCRETE
from neuromanifold.graph.program import Node, Value
from neuromanifold.graph.rules import RULES, SEVERAL
from neuromanifold.graph.structural import MAPS

_FLOATS = Floats()
_EXACT = {*MAPS, *SEVERAL, "iota", "neg", "max", "min", "abs", "gt", "ge", "lt", "le", "eq", "ne", "is_finite"}
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
            _FLOATS, node.options, *(_FLOATS.lift(a) if a.dtype.kind not in "iub" else a for a in arrays)
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
