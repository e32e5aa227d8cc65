"""Writes tests/data/torch: what PyTorch saves, with the outputs it computes, for tests that run
where PyTorch is absent.

`python tests/torch_files.py` (with PyTorch installed) makes the folder anew.
"""

import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).parent / "data" / "torch"


class Net(nn.Module):
    """A bit of everything that a graph has: convolution, in-place steps, normalisation,
    attention, a buffer, a tie.
    """

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = (
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
        )
        self.query, self.out = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.out.weight = self.query.weight
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 1.5, 2.0]))

    def forward(self, x: Tensor) -> dict[str, Any]:
        h = self.relu(self.bn(self.conv(x)))
        h += 0.25
        h = nn.functional.max_pool2d(h, 2).flatten(2).transpose(1, 2) * self.scale
        y = nn.functional.scaled_dot_product_attention(self.query(h), h, h, is_causal=True)
        return {"logits": self.out(y).mean(1), "parts": [h, y.sum((1, 2)).unsqueeze(1).squeeze(1)]}


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()


def net() -> Net:
    torch.manual_seed(0)
    module = Net().double()
    module(torch.randn(8, 1, 4, 4).double())
    return module.eval()


def views() -> dict[str, Tensor]:
    """Tensors that share storages, skip entries, are transposed, or are of other dtypes."""
    base = torch.arange(24.0, dtype=torch.float64).reshape(4, 6)
    return {
        "base": base,
        "transposed": base.T,
        "corner": base[1:3, 2:5],
        "strided": base[::2, ::3],
        "expanded": base[:, :1].expand(4, 3),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "half": torch.tensor([0.25], dtype=torch.float16),
        "ids": torch.tensor([[1, 2]]),
        "flags": torch.tensor([True, False]),
    }


def write(folder: Path = FOLDER) -> None:
    """Every file, and `expected.npz` with inputs and outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    module, network = mlp(), net()
    x, images = torch.randn(5, 3).double(), torch.randn(5, 1, 4, 4).double()
    y, z = module(x), network(images)
    arrays = {
        "x": x,
        "y": y,
        "images": images,
        "logits": z["logits"],
        "part0": z["parts"][0],
        "part1": z["parts"][1],
    }
    arrays |= {
        f"views.{name}": t.double() if t.dtype == torch.bfloat16 else t
        for name, t in views().items()
    }
    np.savez(
        folder / "expected.npz",
        **{name: tensor.detach().numpy() for name, tensor in arrays.items()},
    )

    torch.save(module.state_dict(), folder / "mlp.pt")
    optimizer = torch.optim.Adam(module.parameters())
    module(x).sum().backward()
    optimizer.step(lambda: None)
    torch.save(
        {
            "epoch": 3,
            "state_dict": mlp().state_dict(prefix="module."),
            "optimizer": optimizer.state_dict(),
        },
        folder / "checkpoint.pth",
    )
    torch.save(OrderedDict(views()), folder / "views.pt")
    torch.save(mlp(), folder / "module.pt")
    torch.save(mlp().state_dict(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.script(mlp()), folder / "script.pt")

    free = {0: torch.export.Dim("n")}
    graph = torch.export.export(network, (images,), dynamic_shapes=(free,))
    torch.export.save(graph, folder / "net.pt2")
    torch.export.save(graph.run_decompositions({}), folder / "functional.pt2")
    torch.export.save(torch.export.export(network, (images[:1],)), folder / "single.pt2")
    torch.export.save(torch.export.export(network, (images,)), folder / "fixed.pt2")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write()
