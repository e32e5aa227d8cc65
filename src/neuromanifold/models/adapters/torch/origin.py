"""What a file says of its program beyond what it computes: the names, forms and bounds with
which it is written again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuromanifold.models.adapters.torch.structure import fill

Bounds = tuple[int | None, int | None]


@dataclass(frozen=True)
class Fixed:
    """An argument or an output that is no array: a number, a string, None."""

    value: Any


@dataclass(frozen=True)
class Held:
    """A parameter or buffer of the file: as it is stored, whether it is trained, and whether it
    belongs to the state dict.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    parameter: bool
    trained: bool
    persistent: bool


@dataclass(frozen=True, eq=False)
class Form:
    """Nested tuples, lists and dictionaries with consecutive numbers; at each stands the
    program's n-th array, or something fixed.
    """

    template: Any
    slots: tuple[int | Fixed, ...]

    @property
    def arrays(self) -> Any:
        """The template with the numbers of arrays alone, None elsewhere."""
        return fill(
            self.template, [None if isinstance(slot, Fixed) else slot for slot in self.slots]
        )

    def filled(self, arrays: Any) -> Any:
        """The arrays in their places, with what is fixed in its own."""
        return fill(
            self.template,
            [slot.value if isinstance(slot, Fixed) else arrays[slot] for slot in self.slots],
        )


@dataclass(frozen=True, eq=False)
class Origin:
    """Tensors by the program's names for them; the forms of (arguments, named arguments) and of the
    output; the names of the arguments;
    the bounds of free axes."""

    held: Mapping[str, Held]
    takes: Form
    gives: Form
    names: tuple[str, ...]
    bounds: Mapping[tuple[str, int], Bounds]
    devices: tuple[str, ...]
