"""Searching c in F(c ⊙ θ) as the paper does: Adam on the factors themselves.   [teleport, App. E]

At θ = W/c the weights are W whatever c is, and ∇_θ L = c ⊙ ∇_W L: the objective ‖∇L‖ − λ‖c − 1‖²
needs the gradient at W only once. Needs jax alone, so that studies can run it on a bare
accelerator.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from neuromanifold.graph.reading import call
from neuromanifold.models.losses import Loss
from neuromanifold.numerics.results import Result


@dataclass(frozen=True, repr=False)
class ScaleSearch(Result):
    """Adam on c, as printed: learning rate 0.01, penalty 0.1‖c − 1‖², clipped gradients, bounds.
    [teleport, App. E]

    The paper gives neither the number of steps nor the bound of the clip, and allows c = 0, where θ
    = W/c is not defined: `floor` is positive. `mean_penalty` divides the penalty by the number of
    parameters (summed, as printed, it holds c at 1).
    """

    steps: int = 4
    lr: float = 0.01
    penalty: float = 0.1
    mean_penalty: bool = True
    clip: float = 1.0
    floor: float = 1e-3
    ceiling: float = 10.0
    decay: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


SEARCH = ScaleSearch()


@partial(jax.jit, static_argnums=(0, 1, 2))
def hadamard_scales(
    model: Any, loss: Loss, search: ScaleSearch, weights: Any, x: Any, y: Any
) -> Any:
    """Return c as a tree like `weights`, found by maximising ‖c ⊙ ∇_W L‖ − λ‖c − 1‖² from c = 1.
    Traceable.
    """
    gradient, unravel = ravel_pytree(jax.grad(lambda w: loss(call(model, w, x), y))(weights))
    penalty = search.penalty / (gradient.size if search.mean_penalty else 1)

    def objective(c: Any):
        return jnp.linalg.norm(c * gradient) - penalty * jnp.sum((c - 1) ** 2)

    def step(state: Any, count: Any):
        c, first, second = state
        slope = jax.grad(objective)(c)
        slope = slope * jnp.minimum(
            1.0, search.clip / jnp.maximum(jnp.linalg.norm(slope), search.epsilon)
        )
        b1, b2 = search.decay
        first, second = b1 * first + (1 - b1) * slope, b2 * second + (1 - b2) * slope**2
        size = jnp.sqrt(second / (1 - b2**count)) + search.epsilon
        moved = c + search.lr * first / (1 - b1**count) / size
        return (jnp.clip(moved, search.floor, search.ceiling), first, second), None

    start = (jnp.ones_like(gradient), jnp.zeros_like(gradient), jnp.zeros_like(gradient))
    (c, _, _), _ = jax.lax.scan(step, start, jnp.arange(1, search.steps + 1, dtype=gradient.dtype))
    return unravel(c)
