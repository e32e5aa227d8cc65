"""[teleport] Sentences that a second, blind reading found to say more than we had executed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.check import EPS, Check, at_least, at_most, equal, outside
from neuromanifold_papers.statement import control, in_float64
from neuromanifold_papers.teleport.statements import nonlinear
from neuromanifold_papers.teleport.statements.bounded import Pair, pairs
from neuromanifold_papers.teleport.statements.descent import (
    Descent,
    rate_bound,
    ratios,
    spectra,
)
from neuromanifold_papers.teleport.statements.exact import small_moves

WIDTHS = tuple(10**k for k in range(7))
BEYOND = 700.0
"""Rates above this are not told apart from infinite ones."""


@dataclass(frozen=True)
class Powers:
    """F_n = n^{−p}θ with the learning rate η_n = n^q and C = log cosh: H = 0."""

    p: Fraction
    q: Fraction

    @property
    def within(self) -> bool:
        """Eq. 21: ‖√η∇F‖ = n^{q/2 − p} and ‖η∇F‖ = n^{q − p} are O(1)."""
        return self.q / 2 <= self.p and self.q <= self.p

    def rate(self, n: int) -> float:
        return float(n) ** float(self.q)

    def step(self, n: int) -> float:
        """|η∇L| at F = 1."""
        return self.rate(n) * float(np.tanh(1.0)) * float(n) ** -float(self.p)


def _powers(rng: np.random.Generator, draws: int) -> Iterator[Powers]:
    halves = [Fraction(k, 2) for k in range(-2, 5)]
    yield from sorted((Powers(p, q) for p, q in product(halves, halves)), key=lambda c: abs(c.q))


_FAST = control("η = n for F = θ, against Eq. 21", lambda: Powers(Fraction(0), Fraction(1)))


def _by_logarithms(case: Powers) -> Check:
    """The slope of log η against log n."""
    slope = np.polyfit(np.log(WIDTHS), np.log([case.rate(n) for n in WIDTHS]), 1)[0]
    return at_most(float(slope), 0.0, 1e-9)


@in_float64("Eq 53", _powers, _FAST, confirm=_by_logarithms)
def eq_53(case: Powers, of: Any = Powers.rate) -> Check:
    """From Eq. 21, Eq. 50 and a Lipschitz loss η = O(1).

    At all widths it is at most what it is at width 1.
    """
    drops = outside("Eq. 21 does not hold", when=not case.within)
    found = max(of(case, n) for n in WIDTHS)
    return at_most(found, of(case, 1), 1e-12, drops=drops, p=str(case.p), q=str(case.q))


eq_53_amended = eq_53.amend(of=Powers.step)(
    "From Eq. 21 and a Lipschitz loss η∇L = O(1), which is what Eq. 54 needs."
)


def _by_angles(case: Pair) -> Check:
    """Both suprema over 3,600 directions."""
    H, gamma = (np.array(rows, float) for rows in case)
    angles = np.linspace(0, np.pi, 3601)
    v = np.array([np.cos(angles), np.sin(angles)])
    form = lambda M: float(np.einsum("ik,ij,jk->k", v, M, v).max())  # noqa: E731
    largest = form(gamma.T @ gamma)
    return at_most(form(gamma.T @ H @ gamma), largest * form(H), 1e-5 * (1 + largest))


def _supremum(case: Pair, power: int, absolute: bool) -> Check:
    H, gamma = (np.array(rows, float) for rows in case)
    size = np.abs if absolute else np.asarray
    inner, outer = (float(size(np.linalg.eigvalsh(M)).max()) for M in (H, gamma.T @ H @ gamma))
    right = float(np.linalg.norm(gamma, 2)) ** power * inner
    return at_most(outer, right, 1e-13 * (1 + abs(right)), definite=bool(np.linalg.det(H) > 0))


_LINEAR_IN_C = control("C for C²", lambda: (((1, 0), (0, 1)), ((1, 1), (1, 1))), power=1)


def _definite(rng: np.random.Generator, draws: int) -> Iterator[Pair]:
    """H = −1 and a projection, H = 1 and ½, then all small matrices."""
    yield ((-1, 0), (0, -1)), ((1, 0), (0, 0))
    yield ((1, 0), (0, 1)), ((0.5, 0), (0, 0.5))
    yield from pairs(rng, draws)


@in_float64("Eq 23", _definite, _LINEAR_IN_C, confirm=_by_angles)
def eq_23(case: Pair, power: int = 2) -> Check:
    """sup vᵀΓᵀHΓv ≤ C² sup vᵀHv over unit vectors v, C = ‖Γ‖, without an absolute value as printed."""
    return _supremum(case, power, absolute=False)


@eq_23.amend(control("C³ for C², at Γ = 2", lambda: (((1, 0), (0, 1)), ((2, 0), (0, 2))), power=3))
def eq_23_amended(case: Pair, power: int = 2) -> Check:
    """sup |vᵀΓᵀHΓv| ≤ C² sup |vᵀHv|: ‖ΓᵀHΓ‖ ≤ C²‖H‖ for ‖Γ‖ ≤ C, with equality where Γ is a multiple of
    an orthogonal matrix.
    """
    check = _supremum(case, power, absolute=True)
    values = np.linalg.svd(np.array(case[1], float), compute_uv=False)
    return replace(check, relation="=") if values[0] - values[-1] <= 1e-12 else check


def _half() -> Descent:
    return Descent(((Fraction(1, 2),),), (Fraction(1),))


@in_float64(
    "P F.1 (3)",
    spectra,
    control("half of the bound, for Θ = f = ½", _half, bound=lambda a: rate_bound(a) / 2),
    # 1 − A, whose logarithm the bound takes, is positive.
    confirm=lambda case: at_least(1 - float(case.alignment), 0.0),
)
def rate_everywhere(case: Descent, bound: Any = rate_bound) -> Check:
    """The exponential rate −ln(L(s)/L(0))/s is at most 2 ln(1/(1 − A)), for every A, as printed: not a
    number for A > 1.

    At the step where it is largest; where L = 0 it is infinite.
    """
    later = list(enumerate(ratios(case)))[1:]
    rates = [-float(np.log(float(value))) / s if value else BEYOND for s, value in later]
    right = bound(float(case.alignment))
    tolerance = 16 * EPS * (1 + abs(right)) if abs(right) < BEYOND else 0.0
    left, right = (min(value, BEYOND) for value in (max(rates), right))
    return at_most(left, right, tolerance, comparisons=len(rates))


rate_amended = rate_everywhere.amend(bound=lambda a: rate_bound(1 - abs(1 - a)))(
    "The exponential rate is at most 2 ln(1/|1 − A|), infinite for A = 1."
)
_UNMOVED = partial(
    control, "the Hessian left as it was", law=lambda g, second, hessian, gradient: hessian
)


@in_float64(
    "App G (higher)",
    nonlinear.nonlinear_cases,
    _UNMOVED(lambda: small_moves()[0]),
    draws=16,
    confirm=lambda case: equal(float(nonlinear.nonlinear_part(case)), 0.0, 1e-5),
)
def higher(case: Any, law: Any = lambda g, second, hessian, gradient: g @ hessian @ g.T) -> Check:
    """The derivation for gradients applies to higher derivatives as well: after any symmetry the Hessian
    is ΓHΓᵀ.
    """
    return nonlinear.eq_67.measure(case, law)


higher_amended = higher.amend(_UNMOVED(nonlinear.first_move), law=nonlinear.transformed_hessian)(
    "For linear symmetries it is ΓHΓᵀ; for others Γ_{αμ}(∂_μΓ_{βν})∂_νL is added, as in Eq. 67."
)
