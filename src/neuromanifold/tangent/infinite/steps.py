"""What a value in a network's graph is: the data after some layers, a parameter, or something on
its way to one of them.
"""

from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True)
class Weights:
    """A weight layer in the making. `axes` bring the leaf to (features, channels, *window);
    `bias` is (leaf, factor).
    """

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

    @property
    def leaves(self) -> tuple[int, ...]:
        """The leaves that the layer owns."""
        return (self.leaf, *(() if self.bias is None else self.bias[:1]))

    @property
    def plain(self) -> bool:
        """Whether the leaves enter without factors."""
        return self.factor == 1 and (self.bias is None or self.bias[1] == 1)


@dataclass(frozen=True)
class Arranged:
    """A leaf read as (heads, width, channels): cut into three axes, then transposed."""

    leaf: int
    split: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(heads, width, channels)."""
        return tuple(self.split[a] for a in self.axes)

    def of(self, leaf: Any) -> Any:
        """The leaf's numbers in that order."""
        return leaf.reshape(self.split).transpose(self.axes)


@dataclass(frozen=True)
class Heads:
    """Attention whose queries are its keys: softmax(φ XKᵀKXᵀ) XVᵀO ψ + β b; `out` is read as
    (heads, width, features).
    """

    key: Arranged
    value: Arranged
    out: Arranged
    key_factor: float
    factor: float
    bias: tuple[int, float] | None

    @property
    def leaves(self) -> tuple[int, ...]:
        """The leaves that the layer owns."""
        return (
            self.key.leaf,
            self.value.leaf,
            self.out.leaf,
            *(() if self.bias is None else self.bias[:1]),
        )

    @property
    def plain(self) -> bool:
        """Whether the leaves enter without factors, but for 1/width of the keys; factors are
        known to rounding.
        """
        factors = (
            self.key_factor * self.key.shape[1],
            self.factor,
            1.0 if self.bias is None else self.bias[1],
        )
        return max(abs(factor - 1) for factor in factors) < 1e-12


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
    """A leaf times a factor, its axes in that order; `spread` where it was broadcast along the
    channels.
    """

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
class Unread:
    """Something computed from the data after `step`, or from parameters alone, that no layer known
    here is; `why` says what stood in
    the way. A later value may turn out to be a layer as a whole."""

    step: "Step | None"
    why: ValueError


@dataclass(frozen=True)
class Total:
    """A sum over `count` positions, on its way to a mean."""

    step: Step
    layer: Any
    count: int
