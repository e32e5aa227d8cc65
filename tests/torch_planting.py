"""PyTorch networks with channels, units and heads that are dead, copies or multiples of others."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn


@dataclass
class Planting:
    """What was planted: for each parameter that writes channels, which of them are dead, and which
    are multiples of which others.
    """

    rng: np.random.Generator
    dead: dict[str, list[int]] = field(default_factory=dict)
    multiples: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many channels may go."""
        every = (*self.dead.values(), *self.multiples.values())
        return sum(len(channels) for channels in every)

    def chosen(
        self, name: str, width: int, share: float
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Channels to be dead and pairs to be made alike, one of each at least."""
        each = max(1, int(share * width))
        gone = self.rng.choice(width, 2 * each, replace=False).tolist()
        rest = np.setdiff1d(np.arange(width), gone)
        pairs = [(i, int(self.rng.choice(rest))) for i in gone[each:]]
        self.dead[name], self.multiples[name] = gone[:each], pairs
        return gone[:each], pairs

    def factor(self, homogeneous: bool) -> float:
        """1 for half of the pairs, and for all where only equal channels are alike."""
        return float(self.rng.uniform(0.5, 2.0)) if homogeneous and self.rng.random() < 0.5 else 1.0

    def missed(self, kept: dict[str, np.ndarray]) -> list[tuple[str, Any]]:
        """What is still there, by the rows of each parameter that stayed."""
        found: list[tuple[str, Any]] = []
        for name, channels in self.dead.items():
            found += [(name, i) for i in channels if i in kept[name]]
        for name, pairs in self.multiples.items():
            by_base: dict[int, list[int]] = {}
            for i, j in pairs:
                by_base.setdefault(j, [j]).append(i)
            for group in by_base.values():
                left = [i for i in group if i in kept[name]]
                found += [(name, i) for i in left[1:]]
        return found


def plant_normalised(
    plan: Planting,
    name: str,
    layers: list[tuple[nn.Module, nn.Module]],
    share: float,
    *,
    homogeneous: bool,
    beside: list[nn.Module] | None = None,
) -> None:
    """Channels of products with batch normalisations after them, which follow one another channel by
    channel: dead ones by their last shift, multiples by their last gain and shift. Rows of `beside`
    are equal for them.
    """
    dead, pairs = plan.chosen(name, len(layers[0][0].weight), share)
    last = layers[-1][1]
    with torch.no_grad():
        for i in dead:
            last.bias[i] = -100.0
        for i, j in pairs:
            for product, norm in layers:
                for a in (product.weight, product.bias, norm.weight, norm.bias):
                    if a is not None:
                        a[i] = a[j]
                norm.running_mean[i], norm.running_var[i] = (
                    norm.running_mean[j],
                    norm.running_var[j],
                )
            for layer in beside or ():
                layer.weight[i], layer.bias[i] = layer.weight[j], layer.bias[j]
            t = plan.factor(homogeneous)
            last.weight[i] *= t
            last.bias[i] *= t


def plant_units(
    plan: Planting, name: str, layer: nn.Linear, share: float, *, homogeneous: bool
) -> None:
    """Units of a linear layer: dead ones by their bias, others multiples."""
    dead, pairs = plan.chosen(name, len(layer.weight), share)
    with torch.no_grad():
        for i in dead:
            layer.bias[i] = -200.0
        for i, j in pairs:
            t = plan.factor(homogeneous)
            layer.weight[i], layer.bias[i] = t * layer.weight[j], t * layer.bias[j]


def plant_heads(plan: Planting, name: str, qkv: nn.Linear, proj: nn.Linear, heads: int) -> None:
    """One head that nobody reads, one whose queries, keys and values are those of another."""
    d = len(proj.weight)
    gone, base, copy = plan.rng.choice(heads, 3, replace=False).tolist()
    width = d // heads
    rows = lambda h: slice(h * width, (h + 1) * width)  # noqa: E731
    with torch.no_grad():
        proj.weight[:, rows(gone)] = 0.0
        for part in range(3):
            at = [slice(part * d + h * width, part * d + (h + 1) * width) for h in (copy, base)]
            qkv.weight[at[0]], qkv.bias[at[0]] = qkv.weight[at[1]], qkv.bias[at[1]]
    plan.dead[name] = list(range(gone * width, (gone + 1) * width))
    plan.multiples[name] = [(copy * width + c, base * width + c) for c in range(width)]


def plant(module: Any, plan: Planting, share: float) -> None:
    """Dead channels and multiples in every hidden axis of a network of `torch_architectures`, or of
    a GPT of `torch_zoo`.
    """
    if type(module).__name__ == "GPT":
        for k, block in enumerate(module.blocks):
            plant_heads(plan, f"blocks.{k}.qkv.weight", block.qkv, block.proj, block.heads)
            name = f"blocks.{k}.mlp.0.weight"
            plant_units(plan, name, block.mlp[0], share, homogeneous=False)
        return
    names = {layer: name for name, layer in module.named_modules()}
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if kind == "BasicBlock":
            own = f"{name}.conv1.weight"
            plant_normalised(plan, own, [(layer.conv1, layer.bn1)], share, homogeneous=True)
        elif kind == "VGG11":
            products = [a for a in layer.features if isinstance(a, nn.Conv2d)]
            norms = [a for a in layer.features if isinstance(a, nn.BatchNorm2d)]
            for pair in zip(products, norms, strict=True):
                own = f"{names[pair[0]]}.weight"
                plant_normalised(plan, own, [pair], share, homogeneous=True)
            for at in (0, 3):
                own = f"classifier.{at}.weight"
                plant_units(plan, own, layer.classifier[at], share, homogeneous=True)
        elif kind == "InvertedResidual" and len(layer.block) > 2:
            parts = list(layer.block)
            squeezes = [a for a in parts if type(a).__name__ == "SqueezeExcitation"]
            products = [(a[0], a[1]) for a in parts[:-1] if isinstance(a, nn.Sequential)]
            own = f"{names[products[0][0]]}.weight"
            if len(products) == 2:
                hard = isinstance(parts[0][2], nn.Hardswish)
                beside = [squeeze.fc2 for squeeze in squeezes]
                plant_normalised(
                    plan,
                    own,
                    products,
                    share,
                    homogeneous=not hard and not squeezes,
                    beside=beside,
                )
