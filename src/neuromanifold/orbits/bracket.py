"""Induced fields X_x(θ) = ∇_θ f_θ(x), their Lie brackets, and brackets of brackets, on pytrees."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import Samples

Field = Callable[[Any], Any]


def induced_field(f: Callable[[Any, Any], Any], x: Samples, cotangent: Any = None) -> Field:
    """Return the field  X(θ) = ∇_θ Σ_i ⟨c_i, f_θ(x_i)⟩  that sample and cotangent induce.
    [invariant, Def 3.2]

    `x` has a leading sample axis, as everywhere. One sample and a unit cotangent e_o give the field
    of output o; without a cotangent all outputs of all samples are added up. A gradient of any loss
    is a member of this family.

    >>> X = induced_field(lambda theta, x: theta["a"] * jnp.exp(theta["w"] * x), jnp.ones(1))
    >>> {k: float(v) for k, v in X({"a": 2.0, "w": 0.0}).items()}          # (e^{wx}, a x e^{wx})
    {'a': 1.0, 'w': 2.0}
    """

    def paired(params: Any) -> Any:
        y = call(f, params, x)
        return jnp.sum(y if cotangent is None else jnp.asarray(cotangent) * y)

    return jax.grad(paired)


def lie_bracket(X: Field, Y: Field) -> Field:
    """Return the field [X, Y] = DY·X − DX·Y, by two Jacobian–vector products.
    [invariant, Def 2.7]

    X and Y map a pytree of parameters to a pytree of the same structure; so does the bracket, which
    can be bracketed again, jitted and vmapped. The sign makes d/dt (e^{tX})^*Y = [X, Y] at t = 0,
    and [θ ↦ Aθ, θ ↦ Bθ] = θ ↦ (BA − AB)θ.

    >>> A, B = jnp.array([[0.0, 1.0], [0.0, 0.0]]), jnp.array([[0.0, 0.0], [1.0, 0.0]])
    >>> lie_bracket(lambda t: A @ t, lambda t: B @ t)(jnp.array([2.0, 3.0])).tolist()
    [-2.0, 3.0]
    """

    def bracket(params: Any) -> Any:
        y, along_x = jax.jvp(Y, (params,), (X(params),))
        along_y = jax.jvp(X, (params,), (y,))[1]
        return jax.tree.map(jnp.subtract, along_x, along_y)

    return bracket


def left_normed(*fields: Field) -> Field:
    """Return [X₁, [X₂, … [X_{k−1}, X_k]…]]: brackets of this form span the Lie algebra that the
    fields generate.

    Each field is evaluated once per level, but the number of operations still triples with each: to
    depth 5 or so this is the tool, beyond it `lie_closure` has better ones.

    `fields` are X₁, …, X_k.
    """
    return functools.reduce(lambda Y, X: lie_bracket(X, Y), reversed(fields))
