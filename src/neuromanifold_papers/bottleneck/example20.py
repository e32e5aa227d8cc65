"""Example 20: a function whose cheapest representations diverge with the depth.
[bottleneck, Ex 20]
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.bottleneck.passage import passage
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.validation import check_depth


def example20(
    depth: int, *, gamma: float = 0.75, epsilon: float | None = None
) -> tuple[MLP, Params]:
    """(x₁, x₂, x₃) ↦ (x₁, x₂, x₃ + σ(x₁ − x₂)) on [0, 1]³ with ‖θ‖² = 3L + o(1).
    [bottleneck, Ex 20]

    The first half of the layers stretches x₁, x₂ by e^ε and shrinks x₃ by e^{−2ε}, ε = L^{−γ} with
    ½ < γ < 1; a middle pair adds σ(x₁ − x₂) where it is cheap; the second half undoes the
    stretching. An odd depth stretches one layer less than it shrinks.

    >>> from neuromanifold_papers.bottleneck.example20 import example20
    >>> net, params = example20(40)
    >>> net(params, np.array([[0.75, 0.25, 0.5], [0.25, 0.75, 0.5]])).tolist()
    [[0.75, 0.25, 1.0], [0.25, 0.75, 0.5]]
    """
    L = check_depth(depth)
    if L < 2:
        raise ValueError(f"`depth` is {depth}; the construction needs at least 2 layers.")
    up, down = L // 2 - 1, L - 1 - L // 2
    stretch = float(L) ** -gamma if epsilon is None else float(epsilon)
    total = up * stretch
    undo = total / down if down else 0.0
    bend, add = math.exp(-total), math.exp(-2 * total)
    middle = np.vstack([np.eye(3), [bend, -bend, 0.0]])
    gather = np.hstack([np.eye(3), [[0.0], [0.0], [add]]])
    weights = [
        *([np.diag(np.exp(np.array([stretch, stretch, -2 * stretch])))] * up),
        middle,
        gather,
        *([np.diag(np.exp(np.array([-undo, -undo, 2 * undo])))] * down),
    ]
    net = MLP((3, *(len(W) for W in weights)), "relu", bias=False)
    return net, tuple(Layer(W) for W in weights)


def example20_excess(depth: int, epsilon: float) -> float:
    """‖θ‖² − 3L for an even depth in closed form: (L−2)/2 · (2cosh 2ε·2 + 2cosh 4ε − 6) +
    2e^{−(L−2)ε} + e^{−2(L−2)ε}.

    >>> from neuromanifold_papers.bottleneck.example20 import example20_excess
    >>> example20_excess(2, 0.5)
    3.0
    """
    L = check_depth(depth)
    stretch = 4 * math.cosh(2 * epsilon) + 2 * math.cosh(4 * epsilon) - 6
    return (
        (L - 2) / 2 * stretch + 2 * math.exp(-(L - 2) * epsilon) + math.exp(-2 * (L - 2) * epsilon)
    )


def representation_lipschitz(net: MLP, params: Params, x: Any) -> Float[np.ndarray, " L"]:
    """max_x ‖Jα_l(x)‖_op over the sample for l = 1 … L: how far the representations stretch."""
    through = passage(net, params, x)
    norms = [np.linalg.norm(J, ord=2, axis=(1, 2)).max() for J in through.forward_jacobians()]
    return np.array(norms[1:])
