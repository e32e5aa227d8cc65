"""The layers of a state dict: which tensors belong together, in which order, and what stands
between them.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neuromanifold.models.init import Layer

_LEAVES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_MOST_UNORDERED = 12
FACTORY = "--factory package.module:function (nm.load(path, factory=…, example=x))"


@dataclass(frozen=True, eq=False)
class NamedLayer:
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


def parts_of(path: Path, tensors: Mapping[str, np.ndarray]) -> list[NamedLayer]:
    """The tensors grouped by the module they belong to, in the file's order; anything but linear
    layers is refused by name.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        prefix, leaf = _split(name)
        found.setdefault(prefix, {})[leaf] = tensor
    parts = [NamedLayer(name, grouped) for name, grouped in found.items()]
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
        f"`path` {path.name} holds {', '.join(shown) or 'nothing'}{more}; a file alone is enough "
        "for stacked linear layers "
        "(0.weight (out, in), 0.bias, 1.weight, …, each taking what the one before it gives); "
        f"for any other network add {FACTORY}."
    )


def chain_layers(
    path: Path, parts: list[NamedLayer], ordered: bool, tensors: Mapping[str, np.ndarray]
) -> list[NamedLayer]:
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


def _chains(parts: list[NamedLayer] | tuple[NamedLayer, ...]) -> bool:
    return all(
        a.tensors["weight"].shape[0] == b.tensors["weight"].shape[1]
        for a, b in zip(parts[:-1], parts[1:], strict=True)
    )


def _respects_numbers(parts: list[NamedLayer]) -> bool:
    return not any(
        a.pattern == b.pattern and a.numbers > b.numbers
        for i, a in enumerate(parts)
        for b in parts[i + 1 :]
    )


def _orders(
    done: tuple[NamedLayer, ...], rest: tuple[NamedLayer, ...]
) -> Iterator[tuple[NamedLayer, ...]]:
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


# A state dict does not hold ε; this is PyTorch's default.
EPS = 1e-5


def fold_normalisations(
    path: Path, parts: list[NamedLayer], linear: list[NamedLayer], batchnorm: str | None
) -> tuple[Layer, ...]:
    """The layers with every batch normalisation  s a + t,  s = γ/√(σ² + ε),  t = β − s μ,
    multiplied into a neighbour.

    Before the activation, W a + b becomes (s W) a + (s b + t); after it, the next layer's W a + b
    becomes (W s) a + (b + W t). That rounds, and γ and β are then no parameters of their own: a
    warning says so.
    """
    layers = [part.layer for part in linear]
    norms = [part for part in parts if part.normalises]
    for norm in norms:
        index, before = _place(path, norm, parts, linear, batchnorm)
        scale, shift = _affine(path, norm)
        target = index if before else index + 1
        fold = _fold_after if before else _fold_into
        if len(scale) != layers[target].weight.shape[0 if before else 1]:
            raise ValueError(
                f"`path` {path.name} has {norm.name} of width {len(scale)} beside "
                f"{linear[target].name}, which is not so wide."
            )
        layers[target] = fold(layers[target], scale, shift)
    if norms:
        warnings.warn(
            f"{path.name}: {len(norms)} batch normalisations are folded into the linear layers (ε "
            f"= {EPS}, rounded to "
            f"{layers[0].weight.dtype}); γ and β are not among the parameters. To keep them, load "
            "the module with a factory.",
            stacklevel=4,
        )
    return tuple(layers)


def _place(
    path: Path,
    norm: NamedLayer,
    parts: list[NamedLayer],
    linear: list[NamedLayer],
    batchnorm: str | None,
) -> tuple[int, bool]:
    """(index of the linear layer before it, −1 for none; whether it comes before that layer's
    activation).
    """
    index = _index(path, norm, parts, linear)
    if index in (-1, len(linear) - 1):
        return index, index >= 0
    if batchnorm is not None:
        return index, batchnorm == "before"
    before, after = _adjacent(linear[index], norm), _adjacent(norm, linear[index + 1])
    if before != after:
        return index, before
    raise ValueError(
        f"`path` {path.name} has the batch normalisation {norm.name}, and does not say whether it "
        "comes before or after the "
        "activation; pass batchnorm='before' or batchnorm='after' (--batchnorm)."
    )


def _adjacent(a: NamedLayer, b: NamedLayer) -> bool:
    """Whether nothing stands between two parts of one sequence: only their last numbers differ,
    by one.
    """
    return (
        a.pattern == b.pattern
        and a.numbers[:-1] == b.numbers[:-1]
        and bool(a.numbers)
        and b.numbers[-1] - a.numbers[-1] == 1
    )


def _index(path: Path, norm: NamedLayer, parts: list[NamedLayer], linear: list[NamedLayer]) -> int:
    """Which linear layer it follows: by number in a common pattern, by an equal number, or by
    the file's order.
    """
    same = [part for part in linear if part.pattern == norm.pattern]
    if len(same) == len(linear):
        return sum(part.numbers < norm.numbers for part in linear) - 1
    numbered = [i for i, part in enumerate(linear) if part.numbers and part.numbers == norm.numbers]
    if len(numbered) == 1:
        return numbered[0]
    earlier = parts[: parts.index(norm)]
    if path.suffix != ".safetensors" and all(part in parts for part in linear):
        return sum(part in earlier for part in linear) - 1
    raise ValueError(
        f"`path` {path.name} has the batch normalisation {norm.name}, and does not say after "
        "which layer; number both."
    )


def _affine(path: Path, norm: NamedLayer) -> tuple[np.ndarray, np.ndarray]:
    mean, var = (
        np.asarray(norm.tensors[key], np.float64) for key in ("running_mean", "running_var")
    )
    if (
        mean.ndim != 1
        or mean.shape != var.shape
        or not (var >= 0).all()
        or not np.isfinite(mean).all()
    ):
        raise ValueError(
            f"`path` {path.name} has {norm.name} with moments that no data has; train it, or save "
            "it again."
        )
    scale = np.asarray(norm.tensors.get("weight", 1.0), np.float64) / np.sqrt(var + EPS)
    return scale, np.asarray(norm.tensors.get("bias", 0.0), np.float64) - scale * mean


def _fold_after(layer: Layer, scale: np.ndarray, shift: np.ndarray) -> Layer:
    bias = shift if layer.bias is None else scale * np.asarray(layer.bias, np.float64) + shift
    return _round_layer(layer, scale[:, None] * np.asarray(layer.weight, np.float64), bias)


def _fold_into(layer: Layer, scale: np.ndarray, shift: np.ndarray) -> Layer:
    weight = np.asarray(layer.weight, np.float64)
    bias = (
        weight @ shift
        if layer.bias is None
        else np.asarray(layer.bias, np.float64) + weight @ shift
    )
    return _round_layer(layer, weight * scale, bias)


def _round_layer(layer: Layer, weight: np.ndarray, bias: np.ndarray) -> Layer:
    return Layer(weight.astype(layer.weight.dtype), bias.astype(layer.weight.dtype))
