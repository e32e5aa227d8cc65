"""σ, σ', σ'', … at given points, over the reals or modulo a prime."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.arithmetic import NoExactAnswer
from neuromanifold.graph.primitives import Kind, Primitive
from neuromanifold.models.activation import Activation, Mixed, per_neuron
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.orbits.rings import Reals, Ring

_CHUNK = 1024
_ORDERS = (2, 5, 8, 13)
# How JAX's Taylor mode says that it has no rule: for a primitive (arctan), or for a function with
# its own derivative (softplus).
_NO_RULE = (KeyError, NotImplementedError, jax.errors.UnexpectedTracerError)


def derivatives(
    ring: Ring, entry: Activation | Mixed, z: np.ndarray, order: int
) -> list[np.ndarray]:
    """[σ(z), σ'(z), …, σ^(order)(z)], neurons on the last axis.

    >>> [float(d) for d in derivatives(Reals(), nm.Activation(jnp.sin), np.zeros(()), 3)]
    [0.0, 1.0, 0.0, -1.0]
    """
    if isinstance(entry, Activation):
        return _of_one(ring, entry, z, order)
    runs = [_of_one(ring, a, z[..., run], order) for a, run in per_neuron(entry, z.shape[-1])]
    return [np.concatenate(parts, axis=-1) for parts in zip(*runs, strict=True)]


def has_derivatives(primitive: Primitive) -> bool:
    """Whether an operation is a smooth function that `jax.lax` has under its name."""
    return primitive.kind is Kind.CURVES and primitive.numpy is not None


def named_derivatives(
    ring: Ring, primitive: Primitive, z: np.ndarray, order: int
) -> list[np.ndarray]:
    """The same of a smooth function of `jax.lax`; residues have none of them."""
    if not has_derivatives(primitive) or not isinstance(ring, Reals):
        raise NoExactAnswer(f"nilpotent elements know no {primitive.name}")
    return _of_function(getattr(jax.lax, primitive.name), z, order)


def _of_one(ring: Ring, activation: Activation, z: np.ndarray, order: int) -> list[np.ndarray]:
    if activation.polynomial is not None:
        return _of_polynomial(ring, activation.polynomial, z, order)
    if not isinstance(ring, Reals):
        raise TypeError(
            f"`activation` is {activation}, no polynomial; exact brackets need one: pass power(d) or identity."
        )
    if activation.slopes is not None:
        slope = np.where(z > 0, activation.slopes[1], activation.slopes[0])
        return [slope * z, slope, *[np.zeros_like(z)] * (order - 1)][: order + 1]
    return _of_function(activation.fn, z, order)


def _of_polynomial(
    ring: Ring, coefficients: tuple[float, ...], z: np.ndarray, order: int
) -> list[np.ndarray]:
    result = []
    for k in range(order + 1):
        value = np.zeros_like(z)
        for j in range(len(coefficients) - 1, k - 1, -1):
            factor = ring.multiply(
                ring.embed(np.array([coefficients[j]])), ring.embed(np.array([math.perm(j, k)]))
            )
            value = ring.add(ring.multiply(value, z), factor)
        result.append(value)
    return result


def _of_function(fn: Callable[[Any], Any], z: np.ndarray, order: int) -> list[np.ndarray]:
    """By JAX, in chunks of one size and to one of few orders: three compilations for an
    activation, whatever the network.
    """
    flat = z.ravel()
    padded = np.concatenate([flat, np.zeros(-len(flat) % _CHUNK)]).reshape(-1, _CHUNK)
    with arithmetic():
        tower = _tower(fn, next((step for step in _ORDERS if step >= order), order))
        chunks = np.stack([np.asarray(tower(chunk)) for chunk in padded], axis=1)
    return [row.ravel()[: len(flat)].reshape(z.shape) for row in chunks[: order + 1]]


@functools.lru_cache
def _tower(fn: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    """z ↦ (order + 1, n) derivatives: Taylor mode where JAX has its rules, else nested forward
    mode, which needs none.
    """
    try:
        jax.eval_shape(_taylor(fn, order), jnp.zeros(_CHUNK, jnp.float64))
    except _NO_RULE:
        return jax.jit(_nest(fn, order))
    return jax.jit(_taylor(fn, order))


def _taylor(fn: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    from jax.experimental.jet import jet

    def tower(z: Any):
        if order == 0:
            return fn(z)[None]
        series = [jnp.ones_like(z), *[jnp.zeros_like(z)] * (order - 1)]
        value, rest = jet(fn, (z,), (series,))
        return jnp.stack([value, *rest])

    return tower


def _nest(fn: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    def level(k: int) -> Callable[[Any], tuple[Any, ...]]:
        if k == 0:
            return lambda z: (fn(z),)

        def above(z: Any):
            values, slopes = jax.jvp(level(k - 1), (z,), (jnp.ones_like(z),))
            return (*values, slopes[-1])

        return above

    return lambda z: jnp.stack(level(order)(z))
