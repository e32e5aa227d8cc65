"""Many networks trained at once by SGD with momentum, alone or beside their linearised twins."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from neuromanifold.models.init import ntk as standard_normal
from neuromanifold.models.losses import cross_entropy, half_squared_error, mse
from neuromanifold.models.mlp import MLP
from neuromanifold.tangent.prediction.linearize import first_order

Loss = Callable[[Any, Any], Any]


def mean_squared_error(prediction: Any, target: Any) -> Any:
    """‖r‖²/(2n·o): `half_squared_error` divided by the number of outputs, as JAX's examples
    write it.
    """
    return mse(prediction, target) / 2


LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "squared error": half_squared_error,
    "mean squared error": mean_squared_error,
}


@dataclass(frozen=True)
class Optimizer:
    """SGD with heavy-ball momentum, as torch and JAX's examples write it: m ← βm + g, θ ← θ − η
    m.
    """

    lr: float = 1.0
    momentum: float = 0.9
    batch: int = 128

    def step(self, gradient: Any, params: Any, momenta: Any) -> tuple[Any, Any]:
        """One update of parameters and momenta."""
        momenta = jax.tree.map(lambda m, g: self.momentum * m + g, momenta, gradient)
        return jax.tree.map(lambda p, m: p - self.lr * m, params, momenta), momenta

    def batches(self, key: Any, n: int, segments: int) -> Any:
        """A reshuffled epoch as (segments, steps, batch) indices; the images left over by whole
        batches wait an epoch.
        """
        steps = n // self.batch
        return jax.random.permutation(key, n)[: steps * self.batch].reshape(
            segments, steps // segments, self.batch
        )

    def segments(self, n: int, at_most: int) -> int:
        """The largest number of equal segments, up to `at_most`, into which an epoch's batches
        divide.
        """
        steps = n // self.batch
        if steps < 1:
            raise ValueError(
                f"`batch` is {self.batch} but there are {n} samples; use a smaller batch."
            )
        return max(s for s in range(1, min(at_most, steps) + 1) if steps % s == 0)


class Images(NamedTuple):
    """Training and test arrays on the device."""

    x: Any
    y: Any
    x_test: Any
    y_test: Any


@jax.jit(static_argnums=0)
def draw(net: MLP, keys: Any) -> Any:
    """Standard normal weights, one network per key, on a leading axis."""
    return jax.vmap(lambda key: standard_normal(key, net))(keys)


def accuracy(prediction: Any, target: Any) -> Any:
    """The fraction of samples whose largest output is their class."""
    return jnp.mean(jnp.argmax(prediction, axis=-1) == jnp.argmax(target, axis=-1))


class Measures(NamedTuple):
    """Of each network before training: loss, alignment (Eq. 28), the same with the outputs in
    place of f, ‖f‖²/n.
    """

    loss: Any
    alignment: Any
    logit_alignment: Any
    signal: Any


@partial(jax.jit, static_argnums=(0, 1))
def measure(net: MLP, loss: Loss, params: Any, x: Any, y: Any, full: Images) -> Measures:
    """The predictors of Figure 2 on (x, y) and the training loss on all samples, network by
    network.
    """

    def one(p: Any):
        prediction, pullback = jax.vjp(lambda q: net(q, x), p)
        f = jax.grad(loss)(prediction, y)
        return Measures(
            loss(net(p, full.x), full.y),
            squared_norm(pullback(f)) / squared_norm(f),
            squared_norm(pullback(prediction)) / squared_norm(prediction),
            squared_norm(f) * len(x),
        )

    return jax.vmap(one)(params)


def squared_norm(tree: Any) -> Any:
    """‖·‖² over all leaves."""
    return sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree))


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(3, 4))
def train_steps(
    net: MLP,
    loss: Loss,
    optimizer: Optimizer,
    params: Any,
    momenta: Any,
    indices: Any,
    data: Images,
) -> tuple[Any, Any]:
    """Every network along its own batches, `indices` (nets, steps, batch)."""

    def one(params: Any, momenta: Any, indices: Any):
        def update(state: Any, index: Any):
            params, momenta = state
            gradient = jax.grad(lambda p: loss(net(p, data.x[index]), data.y[index]))(params)
            return optimizer.step(gradient, params, momenta), None

        return jax.lax.scan(update, (params, momenta), indices)[0]

    return jax.vmap(one)(params, momenta, indices)


@partial(jax.jit, static_argnums=(0, 1))
def evaluate(net: MLP, loss: Loss, params: Any, data: Images) -> tuple[Any, Any]:
    """The training loss and the test accuracy of every network."""

    def one(p: Any):
        return loss(net(p, data.x), data.y), accuracy(net(p, data.x_test), data.y_test)

    return jax.vmap(one)(params)


@partial(jax.jit, static_argnums=(0, 1, 2))
def shuffled(optimizer: Optimizer, n: int, segments: int, keys: Any) -> Any:
    """One reshuffled epoch for each key, (nets, segments, steps, batch)."""
    return jax.vmap(lambda key: optimizer.batches(key, n, segments))(keys)


class Twins(NamedTuple):
    """Networks F(c ⊙ θ) and their linearisations at θ₀, on a leading axis; `net` and `linear`
    are θ − θ₀ of each.
    """

    scales: Any
    start: Any
    net: Any
    net_momenta: Any
    linear: Any
    linear_momenta: Any


class Comparison(NamedTuple):
    """On the test images: RMSE between network and twin, and the accuracy of each."""

    rmse: Any
    accuracy: Any
    linear_accuracy: Any


def twins(weights: Any, scales: Any) -> Twins:
    """The Hadamard-transformed networks of weights W: θ₀ = W/c, so that c ⊙ θ₀ = W, and twins
    that start with them.
    """
    start = jax.tree.map(lambda w, c: w / c, weights, scales)
    # One array of zeros for each role: they are given up to the update and must not share memory.
    zeros = [jax.tree.map(jnp.zeros_like, start) for _ in range(4)]
    return Twins(scales, start, *zeros)


@partial(jax.jit, static_argnums=(0, 1, 2, 3), donate_argnums=4)
def train_twins(
    net: MLP, loss: Loss, optimizer: Optimizer, segments: int, runs: Twins, keys: Any, data: Images
) -> tuple[Twins, Comparison]:
    """One epoch of networks and linearised twins on the same batches, compared after each
    segment.
    """

    def one(run: Any, key: Any):
        def model(moved: Any, x: Any):
            weights = jax.tree.map(
                lambda c, start, d: c * (start + d), run.scales, run.start, moved
            )
            return net(weights, x)

        origin = jax.tree.map(jnp.zeros_like, run.start)

        def linear_model(moved: Any, x: Any):
            return first_order(model, origin, moved, x)

        def update(state: Any, index: Any):
            x, y = data.x[index], data.y[index]
            moved, momenta, linear, linear_momenta = state
            gradient = jax.grad(lambda d: loss(model(d, x), y))(moved)
            linear_gradient = jax.grad(lambda d: loss(linear_model(d, x), y))(linear)
            one = optimizer.step(gradient, moved, momenta)
            return (*one, *optimizer.step(linear_gradient, linear, linear_momenta)), None

        def segment(state: Any, indices: Any):
            state, _ = jax.lax.scan(update, state, indices)
            outputs, twin = model(state[0], data.x_test), linear_model(state[2], data.x_test)
            rmse = jnp.sqrt(jnp.mean((outputs - twin) ** 2))
            return state, Comparison(
                rmse, accuracy(outputs, data.y_test), accuracy(twin, data.y_test)
            )

        indices = optimizer.batches(key, len(data.x), segments)
        state, compared = jax.lax.scan(segment, run[2:], indices)
        return Twins(run.scales, run.start, *state), compared

    return jax.vmap(one)(runs, keys)
