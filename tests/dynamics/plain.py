"""Training and its optimiser as anyone would write them: one network, NumPy, a loop. The trainer
is compared with this.
"""

from typing import Any

import jax
import numpy as np

import naive


def order(key: Any, epoch: int, run: int, n: int) -> np.ndarray:
    """The permutation of an epoch: sort 64-bit random numbers without their lowest bits; ties
    keep their order.
    """
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(key, epoch), run)
        numbers = np.asarray(jax.random.bits(key, (n,), "uint64"))
    return np.argsort(numbers >> np.uint64((n - 1).bit_length()), kind="stable")


class Adam:
    """torch.optim.Adam(lr=rate, weight_decay=decay), after its documentation's algorithm."""

    def __init__(self, rate: float, decay: float):
        self.rate, self.decay, self.t, self.m, self.v = rate, decay, 0, 0.0, 0.0

    def step(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        self.t += 1
        gradient = gradient + self.decay * theta
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        corrected = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        return theta - self.rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)


def vector(params: Any) -> np.ndarray:
    """Parameters in ravel_pytree's order."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def layers(like: Any, theta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """The inverse, for an MLP."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])
    parts = [
        theta[end - np.size(leaf) : end].reshape(np.shape(leaf))
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return naive.plain(jax.tree.unflatten(structure, parts))


def mse(net: naive.Network, params: Any, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean of the squares of all entries, and its gradient (2/(n·o)) Jᵀr."""
    residual = (naive.forward(net, params, x) - y).ravel()
    return float(residual @ residual / residual.size), naive.jacobian(
        net, params, x
    ).T @ residual * 2 / residual.size


def train(
    net: naive.Network,
    params: Any,
    x: Any,
    y: Any,
    *,
    key: Any,
    run: int,
    epochs: int,
    batch_size: int,
    optimizer: Adam,
) -> tuple[np.ndarray, list[float]]:
    """θ after training, and the loss on all data before each epoch and at the end."""
    theta, losses = vector(params), []
    for epoch in range(epochs):
        losses.append(mse(net, layers(params, theta), x, y)[0])
        shuffled = order(key, epoch, run, len(x))
        for start in range(0, len(x), batch_size):
            batch = shuffled[start : start + batch_size]
            theta = optimizer.step(theta, mse(net, layers(params, theta), x[batch], y[batch])[1])
    return theta, [*losses, mse(net, layers(params, theta), x, y)[0]]
