"""What a value in a network's graph is: the data after some layers, a parameter, or something on its way to one of them."""

from dataclasses import dataclass
from math import prod
from typing import Any

ENTRYWISE = frozenset((
    "abs", "add", "and", "asinh", "atan", "atan2", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "cos",
    "cosh", "div", "eq", "erf", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite",
    "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow", "rsqrt",
    "select_n", "sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
))  # fmt: skip


@dataclass(frozen=True)
class Weights:
    """A weight layer in the making. `axes` bring the leaf to (features, channels, *window); `bias` is (leaf, factor)."""

    leaf: int
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    factor: float = 1.0
    bias: tuple[int, float] | None = None
    strides: tuple[int, ...] = ()
    padding: str = "VALID"

    @property
    def fan_in(self) -> int:
        """Channels times the size of the window."""
        return prod(self.shape[1:])


@dataclass(frozen=True)
class Fork:
    """A sum of two branches; an empty one is the input itself."""

    branches: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, eq=False)
class Step:
    """The data after one more layer; two values that share a step share all layers up to it."""

    before: "Step | None" = None
    layer: Any = None

    def back(self) -> list["Step"]:
        """This step and all before it."""
        return [self, *(() if self.before is None else self.before.back())]

    def since(self, earlier: "Step") -> tuple[Any, ...]:
        """The layers after an earlier step."""
        steps = self.back()
        return tuple(step.layer for step in reversed(steps[: steps.index(earlier)]))


@dataclass(frozen=True)
class Data:
    """An entrywise function of the value `source`, which is the data after `step`."""

    step: Step
    source: int


@dataclass(frozen=True)
class Parameter:
    """A leaf times a factor, its axes in that order; `spread` where it was broadcast along the channels."""

    leaf: int
    factor: float
    axes: tuple[int, ...]
    spread: bool = False


@dataclass(frozen=True)
class Padded:
    """Zeros around the data."""

    step: Step
    widths: tuple[tuple[int, int], ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class Total:
    """A sum over `count` positions, on its way to a mean."""

    step: Step
    layer: Any
    count: int
