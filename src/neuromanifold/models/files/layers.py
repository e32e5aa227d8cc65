"""The layers of a state dict: which tensors belong together, in which order, and what stands
between them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neuromanifold.models.init import Layer

_LEAVES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_MOST_UNORDERED = 12
FACTORY = "--factory package.module:function (nm.load(path, factory=…, example=x))"


@dataclass(frozen=True, eq=False)
class Part:
    """A linear layer or a batch normalisation, with the name its tensors share."""

    name: str
    tensors: Mapping[str, np.ndarray]

    @property
    def normalises(self) -> bool:
        """Whether this is a batch normalisation: it has recorded moments."""
        return {"running_mean", "running_var"} <= set(self.tensors)

    @property
    def linear(self) -> bool:
        """Whether this is a linear layer: a matrix, perhaps a bias."""
        return {"weight"} <= set(self.tensors) <= {"weight", "bias"} and self.tensors[
            "weight"
        ].ndim == 2

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in the name."""
        return tuple(int(digits) for digits in re.findall(r"\d+", self.name))

    @property
    def pattern(self) -> str:
        """The name without its numbers and dots; parts of one pattern are ordered by their
        numbers.
        """
        return re.sub(r"[\d._/]+", ".", self.name).strip(".")

    @property
    def layer(self) -> Layer:
        """Weight and bias."""
        return Layer(self.tensors["weight"], self.tensors.get("bias"))


def parts_of(path: Path, tensors: Mapping[str, np.ndarray]) -> list[Part]:
    """The tensors grouped by the module they belong to, in the file's order; anything but linear
    layers is refused by name.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        prefix, leaf = _split(name)
        found.setdefault(prefix, {})[leaf] = tensor
    parts = [Part(name, grouped) for name, grouped in found.items()]
    if not any(part.linear for part in parts) or not all(
        part.linear or part.normalises for part in parts
    ):
        raise ValueError(_refusal(path, tensors))
    return parts


def _split(name: str) -> tuple[str, str]:
    for leaf in _LEAVES:
        if name == leaf or name.endswith((f".{leaf}", f"_{leaf}", f"/{leaf}")):
            return name[: -len(leaf)].rstrip("._/"), leaf
    return name, ""


def _refusal(path: Path, tensors: Mapping[str, np.ndarray]) -> str:
    shown = [f"{name} {tuple(tensor.shape)}" for name, tensor in list(tensors.items())[:8]]
    more = f" and {len(tensors) - len(shown)} more" if len(tensors) > len(shown) else ""
    return (
        f"`path` {path.name} holds {', '.join(shown) or 'nothing'}{more}; a file alone describes "
        "stacked linear layers "
        "(0.weight (out, in), 0.bias, 1.weight, …, each taking what the one before it gives): "
        f"for any other network add {FACTORY}."
    )


def chained(
    path: Path, parts: list[Part], ordered: bool, tensors: Mapping[str, np.ndarray]
) -> list[Part]:
    """The linear layers in the order in which they are applied.

    Numbers in otherwise equal names order them, the file's order where it means something, and each
    must take what the one before it gives. Where that leaves more than one order the file is
    refused, not guessed at.
    """
    linear = [part for part in parts if part.linear]
    if ordered and _chains(linear) and _respects_numbers(linear):
        return linear
    if len({part.pattern for part in linear}) > 1 and len(linear) > _MOST_UNORDERED:
        raise ValueError(
            f"`path` {path.name} has {len(linear)} layers whose names do not say their order; "
            "number them."
        )
    orders = list(_orders((), tuple(linear)))
    if len(orders) > 1:
        shown = " or ".join(", ".join(part.name for part in order) for order in orders[:2])
        raise ValueError(
            f"`path` {path.name} has layers that fit together in more than one order ({shown}); "
            "number them."
        )
    if not orders:
        raise ValueError(_refusal(path, tensors))
    return list(orders[0])


def _chains(parts: list[Part] | tuple[Part, ...]) -> bool:
    return all(
        a.tensors["weight"].shape[0] == b.tensors["weight"].shape[1]
        for a, b in zip(parts[:-1], parts[1:], strict=True)
    )


def _respects_numbers(parts: list[Part]) -> bool:
    return not any(
        a.pattern == b.pattern and a.numbers > b.numbers
        for i, a in enumerate(parts)
        for b in parts[i + 1 :]
    )


def _orders(done: tuple[Part, ...], rest: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """At most two ways to continue the chain, numbers within a pattern ascending."""
    if not rest:
        yield done
        return
    first = {
        min((p for p in rest if p.pattern == pattern), key=lambda p: p.numbers)
        for pattern in {p.pattern for p in rest}
    }
    count = 0
    for part in sorted(first, key=lambda p: p.name):
        if _chains((*done[-1:], part)):
            for order in _orders((*done, part), tuple(p for p in rest if p is not part)):
                yield order
                count += 1
                if count == 2:
                    return
