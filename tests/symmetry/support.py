"""What the tests of this room share: draws in NumPy, derivatives compiled once for each network."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic, promote


def draw(net: nm.MLP, rng: np.random.Generator) -> tuple[nm.Layer, ...]:
    """Parameters as float64 NumPy arrays: nothing is compiled."""
    return tuple(
        nm.Layer(
            rng.normal(size=(b, a)) / np.sqrt(a), 0.5 * rng.normal(size=b) if net.bias else None
        )
        for a, b in zip(net.widths[:-1], net.widths[1:], strict=True)
    )


def problem(
    net: nm.MLP, rng: np.random.Generator, n: int = 12
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Parameters, inputs and targets."""
    return draw(net, rng), rng.normal(size=(n, net.widths[0])), rng.normal(size=(n, net.widths[-1]))


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def distance(a: Any, b: Any) -> float:
    """The largest difference relative to the largest entry."""
    a, b = flat(a), flat(b)
    return float(np.abs(a - b).max() / np.abs(b).max())


def close(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    """Equal relative to the largest entry."""
    return bool(np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max())


@jax.jit(static_argnums=0)
def _gradient(f: Any, params: Any, x: Any, y: Any) -> Any:
    return jax.grad(lambda p: jnp.mean((f(p, x) - y) ** 2))(params)


def gradient(f: Any, params: Any, x: Any, y: Any) -> Any:
    """∇ of the mean squared error, in float64 on the host."""
    with arithmetic():
        return jax.tree.map(np.asarray, _gradient(f, *promote((params, x, y), np.float64)))


@jax.jit(static_argnums=0)
def _derivatives(f: Any, params: Any, x: Any, y: Any) -> Any:
    start, unravel = ravel_pytree(params)

    def loss(theta):
        return jnp.sum((f(unravel(theta), x) - y) ** 2)

    J = jax.jacrev(lambda t: f(unravel(t), x).ravel())(start)
    return jax.grad(loss)(start), jax.hessian(loss)(start), J


def derivatives(f: Any, params: Any, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradient and Hessian of the squared error, and J, in float64 on the host."""
    with arithmetic():
        a, b, c = (np.asarray(a) for a in _derivatives(f, *promote((params, x, y), np.float64)))
        return a, b, c
