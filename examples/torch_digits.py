"""Two networks that PyTorch trains on handwritten digits, and smaller ones that compute the same.

Run `python examples/torch_digits.py`; it needs PyTorch.
"""

import numpy as np
import torch

import neuromanifold as nm


def perceptron() -> torch.nn.Sequential:
    """64-48-48-10."""
    nn = torch.nn
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU()),
        nn.Linear(48, 10),
    )


def convolutional() -> torch.nn.Sequential:
    """8 and 16 channels, and a dense layer of 32."""
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def train(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float) -> float:
    """Twenty epochs of gradient descent; the share of samples that are right at the end. At large
    rates some units die.
    """
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
    for _ in range(20):
        for batch in torch.randperm(len(x)).split(100):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimizer.step()
    return (module(x).argmax(1) == y).float().mean().item()


def main() -> None:
    """Train, shrink, and compare in PyTorch."""
    torch.set_num_threads(1)
    digits = nm.data.load("digits")
    x = torch.tensor(np.asarray(digits.x), dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(np.asarray(digits.y)).argmax(1)
    for build, lr in ((perceptron, 0.3), (convolutional, 0.2)):
        torch.manual_seed(0)
        module = build()
        right = train(module, x, y, lr)
        f, params = nm.from_torch(module.eval(), example=x[:4])
        reduction = nm.reduce_width(f, params, x.numpy())
        small = reduction.to_torch(module, example=x[:4])
        with torch.no_grad():
            outputs, moved = module(x), (small(x) - module(x)).abs().max()
        count, left = (sum(p.numel() for p in each.parameters()) for each in (module, small))
        print(f"{build.__name__}: {right:.1%} right")
        print(f"  {count:,} → {left:,} parameters, {reduction.neurons_saved} units fewer")
        print(f"  outputs up to {outputs.abs().max():.0f} moved by {moved:.1g}")


if __name__ == "__main__":
    main()
