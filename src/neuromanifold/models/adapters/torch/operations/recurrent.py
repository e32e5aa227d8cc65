"""Recurrent layers, as scans over time."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Refusal, Scalar, Table, table
from neuromanifold.models.adapters.torch.operations.linear import linear

Cell = Callable[..., Any]


def lstm_step(weights: Sequence[Any], state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """c' = σ(f) c + σ(i) tanh(g),  h' = σ(o) tanh(c');  with a fifth weight h' is projected."""
    (h, c), (w_x, w_h, b_x, b_h, *projection) = state, weights
    i, f, g, o = jnp.split(linear(x, w_x, b_x) + linear(h, w_h, b_h), 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (linear(h, projection[0]) if projection else h), c


def gru_step(weights: Sequence[Any], state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """h' = (1 − z) n + z h  with  n = tanh(W x + b + r (U h + c))."""
    [h], (w_x, w_h, b_x, b_h) = state, weights
    r_x, z_x, n_x = jnp.split(linear(x, w_x, b_x), 3, axis=-1)
    r_h, z_h, n_h = jnp.split(linear(h, w_h, b_h), 3, axis=-1)
    r, z = jax.nn.sigmoid(r_x + r_h), jax.nn.sigmoid(z_x + z_h)
    n = jnp.tanh(n_x + r * n_h)
    return ((1 - z) * n + z * h,)


def plain_step(
    activation: Cell, weights: Sequence[Any], state: tuple[Any, ...], x: Any
) -> tuple[Any, ...]:
    """h' = σ(W x + b + U h + c)."""
    [h], (w_x, w_h, b_x, b_h) = state, weights
    return (activation(linear(x, w_x, b_x) + linear(h, w_h, b_h)),)


def recurrent(
    step: Cell,
    x: Any,
    state: Any,
    weights: Sequence[Any],
    has_biases: bool,
    layers: int,
    dropout: Scalar,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    """Layers of a recurrence, each over time and, when bidirectional, back: (outputs, *final
    states).
    """
    if train and dropout > 0:
        raise Refusal("draws random numbers (dropout in training mode); call `module.eval()` first")
    states = state if isinstance(state, (list, tuple)) else (state,)
    directions = 1 + bidirectional
    per_layer = len(weights) // (layers * directions)
    x = jnp.swapaxes(x, 0, 1) if batch_first else x
    finals = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            given = weights[index * per_layer : (index + 1) * per_layer]
            y, final = _scan(
                step,
                _complete(given, has_biases),
                tuple(s[index] for s in states),
                x,
                direction == 1,
            )
            outputs.append(y)
            finals.append(final)
        x = jnp.concatenate(outputs, axis=-1) if bidirectional else outputs[0]
    stacked = [jnp.stack(parts) for parts in zip(*finals, strict=True)]
    return jnp.swapaxes(x, 0, 1) if batch_first else x, *stacked


def _complete(weights: Sequence[Any], has_biases: bool) -> list[Any]:
    return list(weights) if has_biases else [*weights[:2], None, None, *weights[2:]]


def _scan(
    step: Cell, weights: Sequence[Any], state: tuple[Any, ...], x: Any, backwards: bool
) -> tuple[Any, Any]:
    def advance(carry: tuple[Any, ...], x_t: Any) -> tuple[Any, Any]:
        carry = step(weights, carry, x_t)
        return carry, carry[0]

    final, outputs = jax.lax.scan(advance, state, x, reverse=backwards)
    return outputs, final


RECURRENT: Table = table(
    {
        "lstm.input": functools.partial(recurrent, lstm_step),
        "gru.input": functools.partial(recurrent, gru_step),
        "rnn_tanh.input": functools.partial(recurrent, functools.partial(plain_step, jnp.tanh)),
        "rnn_relu.input": functools.partial(recurrent, functools.partial(plain_step, jax.nn.relu)),
    }
)
