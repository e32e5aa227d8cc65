"""invariant, Rem 4.1: how smooth the model must be for fixed points of invariant maps to be
kept.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check
from neuromanifold_papers.invariant.statements.cases import PAPER
from neuromanifold_papers.statement import Control, Statement

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
    return Check(reached(alpha, start), 0.0, "<=", LIPSCHITZ * NEAR, {"F": smooth, "α": str(alpha)})


def _another_solution(alpha: Fraction) -> Check:
    """θ(t) = (t/k)ᵏ, α = (k−1)/k, solves dθ/dt = θ^α: (dθ/dt)ᵏ = θᵏ⁻¹ at rational times; its
    distance from M at t = 1.
    """
    k = alpha.denominator
    if alpha.numerator != k - 1:
        return Check(Fraction(0), Fraction(0))
    times = [Fraction(i, 8) for i in range(1, 9)]
    solves = all(((t / k) ** (k - 1)) ** k == ((t / k) ** k) ** (k - 1) for t in times)
    return Check(Fraction(1, k) ** k if solves else Fraction(0), Fraction(0), "<=")


def _smoothness(rng: np.random.Generator, draws: int) -> Iterator[Fraction]:
    yield from (
        Fraction(1, 2),
        Fraction(2, 3),
        Fraction(3, 4),
        Fraction(1),
        Fraction(3, 2),
        Fraction(2),
    )
    yield from (Fraction(int(k) - 1, int(k)) for k in rng.integers(2, 9, draws))


SMOOTH = Statement(
    paper=PAPER,
    row="Rem 4.1",
    id="Rem 4.1 (C¹)",
    says="fixed sets of linear normal invariant maps are kept by gradient flow also where F is "
    "locally C^{1,1}: its "
    "gradient is locally Lipschitz",
    method="integration",
    cases=lambda rng, draws: [
        *(Fraction(k, 2) for k in range(2, 9)),
        *(1 + Fraction(int(k), 16) for k in rng.integers(0, 48, draws)),
    ],
    measure=_kept,
    control=Control(
        "F = |θ|^{3/2}, whose gradient is not Lipschitz at 0", case=lambda: Fraction(1, 2)
    ),
    draws=5,
    narrower="F = |θ|^{1+α}/(1+α) · x, 1 ≤ α ≤ 4",
    show=lambda alpha: f"α = {alpha}",
    proof="M = ∩ ker(g_i − 1) is a linear space, and at its points the gradients lie in ∩ "
    "ker(g_iᵀ − 1), which is M for"
    " normal g_i (proof of Thm 4.1, for which C¹ is enough). So the flow has a solution in M, and "
    "by uniqueness, "
    "for a locally Lipschitz field, no other.",
)

ONCE_DIFFERENTIABLE = Statement(
    paper=PAPER,
    row="Rem 4.1",
    id="Rem 4.1 (C¹)",
    says="in Theorem 4.1 the model F(θ)(x) need only be C¹ in θ",
    method="integration",
    cases=_smoothness,
    measure=_kept,
    control=Control(
        "a point off M: |θ(1)| from θ(0) = 1",
        case=lambda: Fraction(1),
        breaks={"start": 1.0},
    ),
    draws=5,
    narrower="F = |θ|^{1+α}/(1+α) · x with g(θ) = −θ, α > 0",
    show=lambda alpha: (
        f"alpha, t = {float(alpha)!r}, np.linspace(0, 1, 9)\n"
        f"theta = (t / {alpha.denominator}) ** {alpha.denominator}                      # θ(0) = "
        "0 is fixed by g = −1\n"
        f"np.abs(np.gradient(theta, t, edge_order=2) - theta**alpha).max(), theta[-1]"
    ),
    confirm=_another_solution,
    route="θ(t) = (t/k)ᵏ in rational numbers",
    worked="""
Let F(θ)(x) = ⅔|θ|^{3/2} x on ℝ. It is C¹ in θ with gradient sign(θ)|θ|^{1/2} x, and even, so that g(θ) = −θ is a linear,
orthogonal, globally invariant map. Its fixed set is M = {0}, a manifold with T M = {0} = ker(gᵀ − 1): every assumption holds. At x = 1
the flow dθ/dt = |θ|^{1/2} sign(θ) from θ(0) = 0 has the solution θ(t) = t²/4, since d/dt t²/4 = t/2 = (t²/4)^{1/2}: it leaves M at once.
The proof goes through Lemma 3.1, which needs the field X = ∇F to be Lipschitz for uniqueness; for F ∈ C¹ the field is only
continuous. The g_i may be C¹; F must have a locally Lipschitz gradient.
""",
    amended=SMOOTH,
)
