"""invariant, Rem 4.1: how smooth the model must be for fixed points of invariant maps to be
kept.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.statement import by_integration, control

NEAR = 1e-30
"""How far from M = {0} the flow starts; a solution that leaves M itself is the limit of such
flows.
"""
LIPSCHITZ = math.e * (1 + 1e-6)
"""By Gronwall's inequality a field with Lipschitz constant 1 on [−1, 1] takes |θ| to at most
e|θ| in time 1.
"""


def reached(alpha: Fraction, start: float = NEAR) -> float:
    """θ(1) of dθ/dt = sign(θ)|θ|^α, the gradient of |θ|^{1+α}/(1+α) at x = 1, from θ(0)."""
    from scipy.integrate import solve_ivp

    rate: Any = lambda _, theta: np.sign(theta) * np.abs(theta) ** float(alpha)  # noqa: E731
    found: Any = solve_ivp(rate, (0.0, 1.0), [start], method="DOP853", rtol=1e-8, atol=1e-8 * start)
    return float(found.y[0, -1])


def _kept(alpha: Fraction, start: float = NEAR) -> Check:
    """In units of the starting distance's bound: F is even, g = −1 is linear, orthogonal and
    globally invariant, M = {0}.
    """
    smooth = "C¹ and no more" if alpha < 1 else "gradient locally Lipschitz"
    return at_most(
        reached(alpha, start), 0.0, LIPSCHITZ * NEAR, hypotheses={"F": smooth, "α": str(alpha)}
    )


def _another_solution(alpha: Fraction) -> Check:
    """θ(t) = (t/k)ᵏ, α = (k−1)/k, solves dθ/dt = θ^α: (dθ/dt)ᵏ = θᵏ⁻¹ at rational times; its
    distance from M at t = 1.
    """
    k = alpha.denominator
    if alpha.numerator != k - 1:
        return equal(Fraction(0), Fraction(0))
    times = [Fraction(i, 8) for i in range(1, 9)]
    solves = all(((t / k) ** (k - 1)) ** k == ((t / k) ** k) ** (k - 1) for t in times)
    return at_most(Fraction(1, k) ** k if solves else Fraction(0), Fraction(0))


def _smoothness(rng: np.random.Generator, draws: int) -> Iterator[Fraction]:
    yield from map(Fraction, ("1/2", "2/3", "3/4", "1", "3/2", "2"))
    yield from (Fraction(int(k) - 1, int(k)) for k in rng.integers(2, 9, draws))


once_differentiable = by_integration(
    "Rem 4.1 (C¹)",
    _smoothness,
    control("a point off M: |θ(1)| from θ(0) = 1", lambda: Fraction(1), start=1.0),
    draws=5,
    show=lambda alpha: (
        f"alpha, t = {float(alpha)!r}, np.linspace(0, 1, 9)\n"
        f"theta = (t / {alpha.denominator}) ** {alpha.denominator}                      # θ(0) = "
        "0 is fixed by g = −1\n"
        f"np.abs(np.gradient(theta, t, edge_order=2) - theta**alpha).max(), theta[-1]"
    ),
    confirm=_another_solution,
    says="in Theorem 4.1 the model F(θ)(x) need only be C¹ in θ",
)(_kept)

rem_4_1_c_amended = once_differentiable.amend(
    control("F = |θ|^{3/2}, whose gradient is not Lipschitz at 0", lambda: Fraction(1, 2)),
    id="Rem 4.1 (C¹), amended",
    cases=lambda rng, draws: [
        *(Fraction(k, 2) for k in range(2, 9)),
        *(1 + Fraction(int(k), 16) for k in rng.integers(0, 48, draws)),
    ],
    show=lambda alpha: f"α = {alpha}",
)(
    "Theorem 4.1 holds where ∇F is locally Lipschitz in θ: a locally Lipschitz field tangent to a "
    "closed manifold keeps it, whatever the maps"
)
