"""[teleport] Sentences that a second, blind reading found to say more than we had executed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, at_least, at_most, equal, outside
from neuromanifold_papers.statement import control, statement
from neuromanifold_papers.teleport.statements.bounded import Pair, pairs
from neuromanifold_papers.teleport.statements.descent import (
    HALF,
    Descent,
    rate_bound,
    rate_check,
    spectra,
)
from neuromanifold_papers.teleport.statements.nonlinear import (
    eq_67,
    first_move,
    nonlinear_cases,
    nonlinear_part,
    transformed_hessian,
)

WIDTHS = tuple(10**k for k in range(7))


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


def _bounded(case: Powers, values: Callable[[int], float], drop: bool = True) -> Check:
    """Whether the values at all widths are at most that at width 1."""
    drops = outside("Eq. 21 does not hold", when=drop and not case.within)
    found = max(values(n) for n in WIDTHS)
    return at_most(found, values(1), 1e-12, drops=drops, p=str(case.p), q=str(case.q))


def _by_logarithms(case: Powers) -> Check:
    """The slope of log η against log n."""
    slope = np.polyfit(np.log(WIDTHS), np.log([case.rate(n) for n in WIDTHS]), 1)[0]
    return at_most(float(slope), 0.0, 1e-9)


@statement("Eq 53", _powers, _FAST, method="float64", confirm=_by_logarithms)
def eq_53(case: Powers) -> Check:
    """From Eq. 21, Eq. 50 and a Lipschitz loss η = O(1)."""
    return _bounded(case, case.rate)


@statement("Eq 53 (amended)", _powers, _FAST, amends="Eq 53", method="float64")
def eq_53_amended(case: Powers) -> Check:
    """From Eq. 21 and a Lipschitz loss η∇L = O(1), which is what Eq. 54 needs."""
    return _bounded(case, case.step)


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


@statement("Eq 23", _definite, _LINEAR_IN_C, method="float64", confirm=_by_angles)
def eq_23(case: Pair, power: int = 2) -> Check:
    """sup vᵀΓᵀHΓv ≤ C² sup vᵀHv over unit vectors v, C = ‖Γ‖, without an absolute value as printed."""
    return _supremum(case, power, absolute=False)


@statement("Eq 23 (amended)", _definite, _LINEAR_IN_C, amends="Eq 23", method="float64")
def eq_23_amended(case: Pair, power: int = 2) -> Check:
    """sup |vᵀΓᵀHΓv| ≤ C² sup |vᵀHv|: ‖ΓᵀHΓ‖ ≤ C²‖H‖ for ‖Γ‖ ≤ C."""
    return _supremum(case, power, absolute=True)


_HALF_RATE = control(
    "half of the bound, for Θ = f = ½", lambda: HALF, bound=lambda a: rate_bound(a) / 2
)


def _by_rounding(case: Descent) -> Check:
    """1 − A, whose logarithm the bound takes, is positive."""
    return at_least(1 - float(case.alignment), 0.0)


@statement("P F.1 (3)", spectra, _HALF_RATE, method="float64", confirm=_by_rounding)
def rate_everywhere(case: Descent, bound: Callable[[float], float] = rate_bound) -> Check:
    """The exponential rate −ln(L(s)/L(0))/s is at most 2 ln(1/(1 − A)), for every A, as printed: not a
    number for A > 1.
    """
    return rate_check(case, bound)


def absolute_bound(a: float) -> float:
    """−2 ln|1 − A|."""
    return rate_bound(1 - abs(1 - a))


@statement("P F.1 (3, amended)", spectra, _HALF_RATE, amends="P F.1 (3)", method="float64")
def rate_amended(case: Descent, bound: Callable[[float], float] = absolute_bound) -> Check:
    """The exponential rate is at most 2 ln(1/|1 − A|), infinite for A = 1."""
    return rate_check(case, bound)


def linear_law(g: Any, second: Any, hessian: Any, gradient: Any) -> Any:
    """ΓHΓᵀ."""
    return g @ hessian @ g.T


_NO_MOVE = control(
    "the Hessian left as it was", first_move, law=lambda g, second, hessian, gradient: hessian
)


@statement(
    "App G (higher)",
    nonlinear_cases,
    _NO_MOVE,
    method="float64",
    draws=16,
    confirm=lambda case: equal(float(nonlinear_part(case)), 0.0, 1e-5),
)
def higher(case: Any, law: Callable[..., Any] = linear_law) -> Check:
    """The derivation for gradients applies to higher derivatives as well: after any symmetry the Hessian
    is ΓHΓᵀ.
    """
    return eq_67.measure(case, law)


@statement(
    "App G (higher, amended)",
    nonlinear_cases,
    _NO_MOVE,
    amends="App G (higher)",
    method="float64",
    draws=16,
)
def higher_amended(case: Any, law: Callable[..., Any] = transformed_hessian) -> Check:
    """For linear symmetries it is ΓHΓᵀ; for others Γ_{αμ}(∂_μΓ_{βν})∂_νL is added, as in Eq. 67."""
    return eq_67.measure(case, law)
