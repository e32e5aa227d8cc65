"""Models whose learning coefficient is known in closed form."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm


@dataclass(frozen=True)
class Case:
    """A model at a minimum θ* that fits its targets, its λ, and the multiplicity m of the pole.

    `localisation` is larger where within a distance 1 of θ* other minima weigh more than its own
    (the ReLU network), or where arms are long. At random parameters of a perceptron the rank is locally constant, so that the minima near them
    are a manifold and λ is half the rank.
    """

    name: str
    f: Callable[[Any, Any], Any]
    params: Any
    x: np.ndarray
    exact: float
    multiplicity: int = 1
    singular: bool = True
    localisation: float = 1.0

    @property
    def y(self) -> np.ndarray:
        """What the model computes at θ*, in float64."""
        with jax.enable_x64(True):
            return np.asarray(self.f(jax.tree.map(jnp.asarray, self.params), jnp.asarray(self.x)))

    def slack(self, b: float) -> float:
        """How far the mean of b(L − L*) may be from λ at a finite b: it is λ − (m − 1)/log b + …"""
        return 2 * (self.multiplicity - 1) / math.log(b)


def aoyagi(inputs: int, hidden: int, outputs: int, rank: int) -> float:
    """λ of W₂W₁ with W₁ hidden × inputs, W₂ outputs × hidden, where the product has a given rank
    (Aoyagi and Watanabe 2005).

    >>> aoyagi(2, 3, 2, 1), aoyagi(3, 1, 3, 1)
    (2.0, 2.5)
    """
    if outputs + rank > inputs + hidden:
        return (hidden * inputs - hidden * rank + outputs * rank) / 2
    if inputs + rank > outputs + hidden:
        return (hidden * outputs - hidden * rank + inputs * rank) / 2
    if hidden + rank > inputs + outputs:
        return inputs * outputs / 2
    odd = (inputs + hidden + outputs + rank) % 2
    mixed = 2 * (hidden + rank) * (inputs + outputs) + 2 * inputs * outputs
    return (mixed - (hidden + rank) ** 2 - inputs**2 - outputs**2 + odd) / 8


def _product(params: Any, x: Any) -> Any:
    return x @ params[0].T @ params[1].T


def _factors(inputs: int, hidden: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Two factors of rank one, the most degenerate point over their product."""
    first, second = np.zeros((hidden, inputs)), np.zeros((outputs, hidden))
    first[0, 0] = second[0, 0] = 1.0
    return first, second


def _perceptron(activation: str, widths: tuple[int, ...]) -> tuple[nm.MLP, Any]:
    net = nm.MLP(widths, activation)
    with jax.enable_x64(True):
        params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias, dtype=jnp.float64)
        return net, jax.tree.map(np.asarray, params)


_ZERO, _ONES = np.zeros(()), np.ones((10, 1))
_X = np.random.default_rng(0).normal(size=(100, 3))
_TANH, _RELU = _perceptron("tanh", (2, 3, 1)), _perceptron("relu", (2, 3, 1))

CAST = (
    Case("linear, 3 parameters", lambda w, x: x @ w, np.ones((3, 1)), _X, 1.5, singular=False),
    Case("w²", lambda w, x: w**2 * x, _ZERO, _ONES, 0.25),
    Case("vw", lambda p, x: p[0] * p[1] * x, (_ZERO, _ZERO), _ONES, 0.5, 2),
    Case(
        "a tanh(wx + b) at 0",
        lambda p, x: p[0] * jnp.tanh(p[1] * x + p[2]),
        (_ZERO, _ZERO, _ZERO),
        _X[:, :1],
        0.5,
    ),
    Case(
        "linear 2-3-2, rank 1",
        _product,
        _factors(2, 3, 2),
        _X[:, :2],
        aoyagi(2, 3, 2, 1),
        localisation=10.0,
    ),
    Case("tanh 2-3-1", *_TANH, _X[:, :2], 6.5, singular=False),
    Case("ReLU 2-3-1", *_RELU, _X[:, :2], 5.0, singular=False, localisation=100.0),
)
