"""Reduction against two packages that remove zeroed channels, on networks whose units were pruned by
setting their weights to zero (biases and shifts stay): `torch-simplify`, which folds what is left
of them into the next layers, and `torch-pruning`, which takes them out.

    python benchmarks/pruners.py        # where torch, torch-simplify and torch-pruning are installed

A row for each network and package: parameters, and how far the outputs in float32 moved over the
largest of them.
"""

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import neuromanifold as nm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from torch_architectures import ResNet18, trained_like


class Perceptron(nn.Module):
    """64-48-48-10."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))
        )

    def forward(self, x: Any) -> Any:
        return self.net(torch.flatten(x, 1))


def convolutional(*, bias: bool, padding: int) -> nn.Module:
    """Two convolutions, a hidden layer."""
    side = 8 - 4 * (1 - padding)
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=padding, bias=bias), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, padding=padding, bias=bias), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(16 * side**2, 32, bias=bias), nn.ReLU(), nn.Linear(32, 10)),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron 64-48-48-10": (Perceptron, (1, 8, 8)),
    "CNN, no biases": (lambda: convolutional(bias=False, padding=1), (1, 8, 8)),
    "CNN, biases": (lambda: convolutional(bias=True, padding=0), (1, 8, 8)),
    "CNN, biases, zero padding": (lambda: convolutional(bias=True, padding=1), (1, 8, 8)),
    "ResNet-18, width 8, batch normalisation": (lambda: ResNet18(8, 10), (3, 32, 32)),
}


def zeroed(module: nn.Module, share: float) -> list[tuple[nn.Module, list[int]]]:
    """Set a share of the rows of every hidden weight to zero (in residual blocks of the first
    convolution), and say which.
    """
    rng, found = np.random.default_rng(0), []
    layers = [
        (name, layer)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    for name, layer in layers[:-1]:
        if any(isinstance(a, nn.BatchNorm2d) for a in module.modules()) and (
            "layer" not in name or not name.endswith("conv1")
        ):
            continue
        n = len(layer.weight)
        rows = sorted(rng.choice(n, int(share * n), replace=False).tolist())
        with torch.no_grad():
            layer.weight[rows] = 0.0
        found.append((layer, rows))
    return found


def ours(module: nn.Module, x: torch.Tensor, rows: Any) -> nn.Module:
    """`nm.reduce_width`, on the images."""
    f, params = nm.from_torch(module, example=x)
    return nm.reduce_width(f, params, x.numpy()).to_torch(module, example=x)


def by_structure(module: nn.Module, x: torch.Tensor, rows: Any) -> nn.Module:
    """`nm.reduce_width(everywhere=True)`."""
    f, params = nm.from_torch(module, example=x)
    return nm.reduce_width(f, params, x.numpy(), everywhere=True).to_torch(module, example=x)


def simplified(module: nn.Module, x: torch.Tensor, rows: Any) -> nn.Module:
    """`torch-simplify`."""
    from simplify import simplify

    return simplify(module, x[:1])


def pruned(module: nn.Module, x: torch.Tensor, rows: Any) -> nn.Module:
    """`torch-pruning`: the zeroed rows and what depends on them."""
    import torch_pruning

    for layer, own in rows:
        graph = torch_pruning.DependencyGraph().build_dependency(module, example_inputs=x[:1])
        convolution = isinstance(layer, nn.Conv2d)
        by = (
            torch_pruning.prune_conv_out_channels
            if convolution
            else torch_pruning.prune_linear_out_channels
        )
        graph.get_pruning_group(layer, by, idxs=own).prune()
    return module


METHODS = {
    "ours": ours,
    "ours, everywhere": by_structure,
    "torch-simplify": simplified,
    "torch-pruning": pruned,
}


def main() -> None:
    """Print the table."""
    print("| network | parameters |", " | ".join(METHODS), "|")
    for name, (make, shape) in NETWORKS.items():
        torch.manual_seed(0)
        module = trained_like(make(), 0)
        rows = zeroed(module, 0.4)
        x = torch.randn(64, *shape)
        with torch.no_grad():
            before = module(x)
        cells = []
        for method in METHODS.values():
            both = copy.deepcopy((module, rows))
            try:
                small = method(both[0], x, both[1])
                with torch.no_grad():
                    moved = float((small(x) - before).abs().max() / before.abs().max())
                cells.append(f"{size(small):,} ({moved:.0e})")
            except Exception as error:  # a peer may fail in any way
                cells.append(f"{type(error).__name__}: {str(error)[:60]}")
        print(f"| {name} | {size(module):,} |", " | ".join(cells), "|", flush=True)


def size(module: nn.Module) -> int:
    """How many parameters it has."""
    return sum(p.numel() for p in module.parameters())


if __name__ == "__main__":
    main()
