"""`bottleneck`, Sec. 2 and 4: which nonlinearities are meant, and the Hessian at an
interpolating network.
"""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.bottleneck.statements.cases import numeric
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, statement

Slopes = tuple[Fraction, Fraction]


def homogeneous(slopes: Slopes, x: Fraction) -> Fraction:
    """σ(x) = px for x ≥ 0 and qx for x < 0: every nonlinearity that is homogeneous of degree 1."""
    return slopes[0 if x >= 0 else 1] * x


def matched(slopes: Slopes) -> tuple[Fraction, int, Fraction]:
    """Scale c, sign ε and slope a with σ(x) = c σ_a(εx): the larger of |p|, |q| becomes 1."""
    p, q = slopes
    if abs(p) >= abs(q):
        return (p, 1, q / p if p else Fraction(1))
    return -q, -1, p / q


_HALVES = [Fraction(n, 2) for n in range(-4, 5)]


def interpolation_hessian(
    seed: int, *, outputs: int, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """The Hessian of Σ‖f − y‖²/2N at y = f, and Θ(X, X), of a tanh network: smooth, so that
    nothing is left out at kinks.
    """
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        params = [rng.normal(size=(2, 1)), rng.normal(size=(outputs, 2))]
        x = rng.normal(size=(samples, 1))
        flat, unravel = ravel_pytree(params)

        def network(theta: Any) -> Any:
            first, second = unravel(theta)
            return jnp.tanh(x @ first.T) @ second.T

        y = network(flat)
        H = jax.jit(jax.hessian(lambda theta: ((network(theta) - y) ** 2).sum() / (2 * samples)))(
            flat
        )
        J = jax.jit(jax.jacobian(lambda theta: network(theta).ravel()))(flat)
        return np.asarray(H), np.asarray(J @ J.T)


@statement(
    "linear (homogeneous)",
    list(product(_HALVES, repeat=2)),
    control("the input not inverted, σ = min(x, 0)", lambda: (Fraction(0), Fraction(1)), turn=-1),
)
def measure_match(slopes: Slopes, turn: int = 1) -> Check:
    """Every homogeneous nonlinearity that is not proportional to the identity, zero or |x| is σ_a
    with a in (−1, 1), up to scaling and inverting the inputs; those three have a = 1, a = 1
    and a = −1.

    At how many of seven points σ(x) = c σ_a(εx), and whether a ∈ (−1, 1) exactly when |p| ≠
    |q|: both, in all 8 of 8.
    """
    c, sign, a = matched(slopes)
    right = sum(
        homogeneous(slopes, x) == c * homogeneous((Fraction(1), a), turn * sign * x)
        for x in _HALVES[1:-1]
    )
    special = abs(slopes[0]) == abs(slopes[1])
    return equal(right + int((-1 < a < 1) != special), 8, input_inverted=sign < 0, special=special)


@numeric(
    "trace (Hessian)",
    [(0, 1, 4), (1, 3, 2)],
    control("the trace without the half", lambda: (0, 1, 4), factors=(1.0, 2.0)),
    show=repr,
)
def measure_hessian(case: tuple[int, int, int], factors: tuple[float, float] = (1.0, 1.0)) -> Check:
    """Mean squared error, halved, at an interpolating network: ‖H‖_op = ‖Θ(X, X)‖_op/N and Tr H =
    Tr Θ(X, X)/N.

    ‖H‖_op against ‖Θ(X, X)‖_op/N, and Tr H against Tr Θ(X, X)/N: the larger relative
    difference.
    """
    seed, outputs, samples = case
    H, kernel = interpolation_hessian(seed, outputs=outputs, samples=samples)
    pairs = [(np.linalg.norm(H, 2), np.linalg.norm(kernel, 2)), (np.trace(H), np.trace(kernel))]
    gap = max(
        abs(left / (f * right / samples) - 1)
        for f, (left, right) in zip(factors, pairs, strict=True)
    )
    return equal(float(gap), 0.0, 1e-10, comparisons=2, outputs=outputs, samples=samples)
