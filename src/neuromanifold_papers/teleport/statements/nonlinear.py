"""[teleport] on nonlinear symmetries: the second term of the Hessian.   Eq. 67, 72, 73"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold.symmetry.groups.hadamard import flatten
from neuromanifold_papers.check import Check, at_most
from neuromanifold_papers.statement import control, in_float64, statement
from neuromanifold_papers.teleport.statements import exact
from neuromanifold_papers.teleport.statements.exact import Move
from neuromanifold_papers.teleport.statements.symmetry import Draw, compared, draws, float_law

NONLINEAR = ("batch",)


def nonlinear_cases(rng: np.random.Generator, count: int) -> Iterator[Move | Draw]:
    """Nonlinear symmetries over the rationals, then data-dependent ones of tanh networks in
    float64.
    """
    yield from exact.nonlinear_moves()
    for _ in range(count // 2):
        yield exact.drawn_nonlinear_move(rng)
    yield from draws(rng, count // 2, NONLINEAR)


def derivative_of_gamma(g: np.ndarray, second: np.ndarray) -> np.ndarray:
    """∂_μΓ_{βν} = −Γ_{βρ}T_{μρσ}Γ_{σν}.   [teleport, Eq. 72]"""
    return -np.einsum("br,mrs,sn->mbn", g, second, g)


def transformed_hessian(
    g: np.ndarray, second: np.ndarray, hessian: np.ndarray, gradient: np.ndarray
) -> np.ndarray:
    """Γ_{αμ}Γ_{βν}H_{μν} + Γ_{αμ}(∂_μΓ_{βν})∂_νL.   [teleport, Eq. 67]"""
    return g @ hessian @ g.T + second_term(g, second, gradient)


def second_term(g: np.ndarray, second: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Γ_{αμ}(∂_μΓ_{βν})∂_νL."""
    return np.einsum("am,mbn,n->ab", g, derivative_of_gamma(g, second), gradient)


def first_move() -> Move:
    return next(exact.nonlinear_moves())


@in_float64(
    "Eq 67",
    nonlinear_cases,
    control(
        "the first term alone, (w, v) ↦ (wv², 1/v) at (1, 2)",
        first_move,
        law=lambda g, second, hessian, gradient: g @ hessian @ g.T,
    ),
    draws=16,
)
def eq_67(case: Move | Draw, law: Any = transformed_hessian) -> Check:
    """A nonlinear symmetry turns the Hessian of L into Γ_{αμ}Γ_{βν}H_{μν} +
    Γ_{αμ}(∂_μΓ_{βν})∂_νL.

    The Hessian of L at g(θ), from both terms.
    """
    if isinstance(case, Move):
        found = exact.law(case)
        old, new = exact.half_square(found.before), exact.half_square(found.after)
        return compared(case, law(found.gamma, found.second, old.curve, old.slope), new.curve)
    both = float_law(case)
    found, (_, gradient, hessian, _) = both.law, both.before
    assert found.second is not None
    formula = law(found.gamma, found.second, hessian, gradient)
    return compared(case, formula, both.after[2], both.tolerance)


@in_float64(
    "Eq 72",
    nonlinear_cases,
    control(
        "the first Γ transposed",
        first_move,
        law=lambda g, second: -np.einsum("rb,mrs,sn->mbn", g, second, g),
    ),
    draws=16,
)
def eq_72(case: Move | Draw, law: Any = derivative_of_gamma) -> Check:
    """∂_μΓ_{βν} = −Γ_{βρ}T_{μρσ}Γ_{σν} with T_{μρσ} = ∂_μ∂_ρ g_σ.

    Eq. 72 against the inverse map: Γ_{βν}(θ) = ∂(g⁻¹)_ν/∂θ'_β at θ' = g(θ), so ∂_μΓ_{βν} =
    Γ⁻¹_{μκ} ∂_κ∂_β(g⁻¹)_ν.
    """
    if isinstance(case, Move):
        assert case.back is not None
        derivative, second = exact.derivatives(case.net, case.act, case.theta)
        _, back = exact.derivatives(case.net, case.back, exact.moved(case))
        expected = np.einsum("mk,kbn->mbn", derivative, back)
        return compared(case, law(exact.inverse(derivative), second), expected)
    both = float_law(case)
    assert both.law.second is not None and both.back is not None
    assert both.back.second is not None
    expected = np.einsum("mk,kbn->mbn", np.linalg.inv(both.law.gamma), both.back.second)
    return compared(case, law(both.law.gamma, both.law.second), expected, both.tolerance)


def size(array: np.ndarray) -> Fraction | float:
    """The sum of squares of the entries."""
    return sum(value * value for value in np.ravel(array))


def _deviation_by_differences(case: Move) -> Check:
    """The same move in float64, by central differences: what ΓHΓᵀ leaves of the Hessian at g(θ),
    and T·∇L.
    """
    g, loss, theta, gamma = _in_floats(case)
    contracted = _second_difference(g, theta) @ _first_difference(loss, theta)
    return at_most(nonlinear_part(case), float(size(gamma) ** 3 * size(contracted)), 1e-5)


def nonlinear_part(case: Move) -> float:
    """What ΓHΓᵀ leaves of the Hessian at g(θ), squared, by central differences."""
    g, loss, theta, gamma = _in_floats(case)
    old, new = (_second_difference(loss, at) for at in (theta, g(theta)))
    return float(size(new - gamma @ old @ gamma.T))


def _in_floats(case: Move) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """g, L, θ and Γ."""
    g = lambda t: flatten(case.act(exact.layers(case.net, t)))  # noqa: E731
    theta, x = np.array(case.theta, float), float(case.x[0][0])
    loss = lambda t: 0.5 * (x * np.dot(*np.split(t, 2)) - 1) ** 2  # noqa: E731
    return g, loss, theta, np.linalg.inv(_first_difference(g, theta))


def _first_difference(f: Any, t: np.ndarray, step: float = 1e-4) -> np.ndarray:
    return np.array([(f(t + e) - f(t - e)) / (2 * step) for e in step * np.eye(len(t))], float)


def _second_difference(f: Any, t: np.ndarray, step: float = 1e-4) -> np.ndarray:
    return _first_difference(lambda s: _first_difference(f, s, step), t, step)


_NO_CONSTANT = control(
    "a constant of 1/1000 at (w, v) ↦ (wv², 1/v)", first_move, constant=lambda g: Fraction(1, 1000)
)


@statement("Eq 73", nonlinear_cases, _NO_CONSTANT, draws=16, confirm=_deviation_by_differences)
def eq_73(case: Move | Draw, constant: Any = lambda g: size(g) ** 3, after: bool = False) -> Check:
    """The second term is, up to a constant that depends on ‖Γ‖ alone, at most ‖T·∇L‖.

    ‖second term‖² ≤ C⁴‖T·h‖², C² = Σ Γ² ≥ ‖Γ‖²; h = ∇L as printed (then C⁶), or h = Γ∇L, the
    gradient after the move.
    """
    if isinstance(case, Move):
        found = exact.law(case)
        g, second, gradient = found.gamma, found.second, exact.half_square(found.before).slope
        hypotheses, tolerance = case.hypotheses, 0.0
    else:
        both = float_law(case)
        g, second, gradient = both.law.gamma, both.law.second, both.before[1]
        hypotheses, tolerance = case.hypotheses, both.tolerance
    assert second is not None
    contracted = np.einsum("mrs,s->mr", second, g @ gradient if after else gradient)
    bound = constant(g) * size(contracted)
    term = size(second_term(g, second, gradient))
    largest_side = max(term, bound) or 1
    return at_most(term / largest_side, bound / largest_side, tolerance, hypotheses=hypotheses)


eq_73_amended = eq_73.amend(method="float64", constant=lambda g: size(g) ** 2, after=True)(
    "The second term is at most C²‖T·Γ∇L‖: the gradient is that after the symmetry."
)
