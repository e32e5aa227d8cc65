"""The complexity paper's training of one network, with and without its measurements along the way.
[complexity, Sec. 5]

Adam (0.01, weight decay 1e-4), MSELoss, shuffled minibatches of 16; the functional dimension is
`torch.linalg.matrix_rank` of the float32 Jacobian, one gradient per sample.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch_mlp
from protocol import serve
from torch.utils.data import DataLoader, TensorDataset

BATCH = 16


class Measurement(NamedTuple):
    rank: int
    regions: int
    fixed: int


class Run(NamedTuple):
    loss: float
    measurements: list[Measurement]


def jacobian(net: torch.nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """∇_θ f(x_j; θ) as rows, one backward pass each."""
    params = tuple(net.parameters())
    gradients = (torch.autograd.grad(net(sample).squeeze(), params) for sample in x)
    return torch.stack([torch.cat([leaf.flatten() for leaf in gradient]) for gradient in gradients])


@torch.no_grad()
def patterns(net: torch.nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """Which hidden neurons are active on which sample."""
    signs = []
    for layer in net:
        x = layer(x)
        if isinstance(layer, torch.nn.ReLU):
            signs.append(x > 0)
    return torch.cat(signs, dim=1)


def measure(net: torch.nn.Sequential, x: torch.Tensor) -> Measurement:
    """Batch functional dimension, linear regions sampled, neurons always active or always
    inactive.
    """
    active = patterns(net, x)
    fixed = active.all(dim=0) | ~active.any(dim=0)
    return Measurement(
        rank=int(torch.linalg.matrix_rank(jacobian(net, x))),
        regions=len(torch.unique(active, dim=0)),
        fixed=int(fixed.sum()),
    )


class Shuffled:
    """Minibatches by indexing with a random permutation: the DataLoader's work without its
    overhead.
    """

    def __init__(self, x: torch.Tensor, y: torch.Tensor):
        self.x, self.y = x, y

    def __iter__(self):
        for index in torch.randperm(len(self.x)).split(BATCH):
            yield self.x[index], self.y[index]


def train(
    net: torch.nn.Sequential,
    x: torch.Tensor,
    y: torch.Tensor,
    batches: Iterable,
    epochs: int,
    every: int | None,
) -> Run:
    """The paper's loop; measures before epochs 0, `every`, 2·`every`, …"""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-4)
    criterion = torch.nn.MSELoss()
    measurements = []
    for epoch in range(epochs):
        if every is not None and epoch % every == 0:
            measurements.append(measure(net, x))
        for inputs, targets in batches:
            optimizer.zero_grad()
            criterion(net(inputs), targets).backward()
            optimizer.step()
    with torch.no_grad():
        return Run(float(criterion(net(x), y)), measurements)


def training(
    arrays: str, epochs: int, loader: bool = True, every: int | None = None
) -> Callable[[], Run]:
    """One run of `epochs` epochs from the stored parameters on the stored `x` and `y`."""
    torch.set_num_threads(
        1
    )  # as fast on tensors this small, and not hostage to whatever else the machine does
    data = torch_mlp.load(arrays)[1]
    x, y = data["x"], data["y"]
    batches = (
        DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
        if loader
        else Shuffled(x, y)
    )
    train(torch_mlp.load(arrays)[0], x, y, batches, 2, every)
    return lambda: train(torch_mlp.load(arrays)[0], x, y, batches, epochs, every)


if __name__ == "__main__":
    serve({"training": training}, summary=lambda run: run.loss)
