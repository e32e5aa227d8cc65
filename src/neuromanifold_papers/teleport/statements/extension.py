"""[teleport] on generalised symmetries: any invertible matrix, once the model is extended by it.
App. C
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from neuromanifold import symmetry as S
from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.groups.hadamard import Extended, Reparametrization, flatten
from neuromanifold.tangent.rank.jacobian import jacobian
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, statement
from neuromanifold_papers.teleport.statements import exact
from neuromanifold_papers.teleport.statements.exact import HALF, Jet, Move, largest


@dataclass(frozen=True, eq=False)
class Extension:
    """A matrix or a vector c for the parameters of a small network, over the rationals."""

    net: MLP
    theta: tuple[Fraction, ...]
    factors: np.ndarray
    x: tuple[tuple[Fraction, ...], ...] = ((Fraction(1),), (Fraction(-2),))

    def __str__(self) -> str:
        theta, gamma = list(map(str, self.theta)), self.factors.astype(str).tolist()
        return f"# {self.net}\ntheta = {theta}\nGamma = {gamma}"

    @property
    def hypotheses(self) -> dict[str, Any]:
        skew = largest(self.factors - self.factors.T) != 0
        kind = "diagonal" if self.factors.ndim == 1 else "not symmetric" if skew else "symmetric"
        return {"Γ": kind, "activation": str(self.net.activation[0])}


def _nets() -> Iterator[tuple[MLP, tuple[Fraction, ...]]]:
    for activation in (*exact.REAL, *exact.POSITIVE):
        yield MLP((1, 1, 1), activation, bias=False), (Fraction(1), Fraction(3))
        yield MLP((1, 1, 1), activation), (Fraction(1), HALF, Fraction(3), Fraction(-1))


def matrix_cases(rng: np.random.Generator, count: int) -> Iterator[Extension]:
    """Shears, symmetric and random invertible matrices."""
    for net, theta in _nets():
        size = net.n_params
        shear, symmetric = (exact.rationals(np.eye(size, dtype=int)) for _ in range(2))
        shear[0, 1] = Fraction(1)
        symmetric[0, 0], symmetric[0, 1], symmetric[1, 0] = Fraction(2), Fraction(1), Fraction(1)
        yield from (Extension(net, theta, matrix) for matrix in (symmetric, shear))
    nets = list(_nets())
    for _ in range(count):
        net, theta = nets[rng.integers(len(nets))]
        matrix = exact.rationals(rng.integers(-3, 4, (net.n_params, net.n_params)))
        if flint.fmpz_mat(matrix.astype(int).tolist()).det() != 0:
            yield Extension(net, theta, matrix)


def vector_cases(rng: np.random.Generator, count: int) -> Iterator[Extension]:
    """Factors of either sign for every parameter."""
    for net, theta in _nets():
        yield Extension(net, theta, exact.rationals([2, -1, 3, -2][: net.n_params]))
    nets = list(_nets())
    for _ in range(count):
        net, theta = nets[rng.integers(len(nets))]
        values = rng.choice([-3, -2, -1, 1, 2, 3], net.n_params)
        yield Extension(net, theta, exact.rationals(values) / 2)


def extended(case: Extension) -> Extended:
    """(Γ, Γ⁻¹θ), by the library's element where it is a vector, by exact inversion where it is a
    matrix.   [teleport, Eq. 45, 47]
    """
    theta = exact.rationals(case.theta)
    if case.factors.ndim == 2:
        return Extended(case.factors, exact.inverse(case.factors) @ theta)
    c = exact.layers(case.net, case.factors)
    ones = exact.layers(case.net, exact.rationals(np.ones(len(theta), int)))
    found = Reparametrization(c).act(Extended(ones, exact.layers(case.net, theta)))
    return Extended(flatten(found.factors), flatten(found.params))


def extended_outputs(case: Extension, factors: np.ndarray, theta: Any) -> list[Any]:
    """F(Γ̃θ), or F(c̃ ⊙ θ)."""
    product = factors @ theta if factors.ndim == 2 else factors * theta
    return exact.outputs(case.net, exact.layers(case.net, product), case.x)


def _first_matrix() -> Extension:
    return next(matrix_cases(np.random.default_rng(0), 0))


@statement(
    "App C",
    matrix_cases,
    control(
        "Γ̃ changed, θ left",
        _first_matrix,
        move=lambda case: Extended(case.factors, exact.rationals(case.theta)),
    ),
)
def app_c(case: Extension, move: Any = extended) -> Check:
    """Every invertible Γ is a symmetry (I, θ) ↦ (Γ, Γ⁻¹θ) of the extension F̃(Γ̃, θ) = F(Γ̃θ).

    F̃(Γ, Γ⁻¹θ) = F(θ).
    """
    moved = move(case)
    new = extended_outputs(case, moved.factors, moved.params)
    old = exact.outputs(case.net, exact.layers(case.net, exact.rationals(case.theta)), case.x)
    return equal(largest(np.array(new, object) - np.array(old, object)), 0)


APP_C_HADAMARD = replace(
    app_c,
    id="App C (Hadamard)",
    says="every vector c without zeros is a symmetry (1, θ) ↦ (c, c⁻¹ ⊙ θ) of F̃(c̃, θ) = F(c̃ ⊙ θ)",
    cases=vector_cases,
)


def _extended_gradient_by_jax(case: Extension) -> Check:
    """The library's `MatrixGroup` model in float64, differentiated by JAX."""
    moved = S.MatrixGroup(case.net).model.frozen(case.factors.astype(float))
    theta, x = np.array(case.theta, float), np.array(case.x, float)
    start = exact.layers(case.net, np.linalg.solve(case.factors.astype(float), theta))
    pairs = ((case.net, exact.layers(case.net, theta)), (moved, start))
    old, new = (jacobian(f, params, x) for f, params in pairs)
    return equal(float(np.abs(new - old @ case.factors.astype(float).T).max()), 0.0, 1e-10)


_LEFT_OUT = control("Γ left out", _first_matrix, law=lambda c: exact.rationals(np.eye(len(c))))


@statement("App C (Γ)", matrix_cases, _LEFT_OUT, confirm=_extended_gradient_by_jax)
def app_c_gradient(case: Any, law: Any = lambda factors: factors) -> Check:
    """The Γ of this symmetry is the transformation Jacobian of Eq. 15, so that ∇F becomes Γ∇F.

    ∇F̃ by θ at (Γ, Γ⁻¹θ) against Γ∇F (Eq. 16 with this Γ) or Γᵀ∇F.
    """
    moved = extended(case)
    new = extended_outputs(case, moved.factors, exact.variables(moved.params.tolist()))
    old = exact.outputs(case.net, exact.layers(case.net, exact.variables(case.theta)), case.x)
    matrix = law(case.factors)
    differences = [largest(b.slope - matrix @ a.slope) for a, b in zip(old, new, strict=True)]
    return equal(max(differences), 0)


app_c_amended = app_c_gradient.amend(law=lambda factors: factors.T)(
    "The transformation Jacobian of (I, θ) ↦ (Γ, Γ⁻¹θ) is Γᵀ: ∇F becomes Γᵀ∇F."
)


def hadamard_factors(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The c with c⁻¹ ⊙ θ = g(θ), for a scaling g.   [teleport, App. C.2]"""
    return before / after


def _distance(a: Jet, b: Jet) -> Fraction:
    return max(abs(a.value - b.value), largest(a.slope - b.slope), largest(a.curve - b.curve))


def scalings(rng: np.random.Generator, count: int) -> Iterator[Move]:
    """Scalings of every neuron, both signs where the activation allows it; no parameter is zero."""
    yield from (move for move in exact.small_moves() if move.kind == "scaling")
    yield from (exact.drawn_move(rng, kind="scaling") for _ in range(count))


@statement(
    "App C (C.2)",
    scalings,
    control(
        "the last factor left out of c",
        lambda: exact.small_moves()[0],
        factors=lambda before, after: np.array([*(before / after)[:-1], Fraction(1)]),
    ),
    draws=16,
)
def app_c_2(case: Move, factors: Any = hadamard_factors) -> Check:
    """The network after a neuron scaling, and its extension after the generalised symmetry, have
    the same derivatives.

    Value, gradient and Hessian of F at g(θ), and of F(c ⊙ ·) at c⁻¹ ⊙ θ.
    """
    theta, there = exact.rationals(case.theta), exact.rationals(exact.moved(case))
    c = factors(theta, there)
    jets = exact.variables(there.tolist())
    real, general = (
        exact.outputs(case.net, exact.layers(case.net, at), case.x) for at in (jets, c * jets)
    )
    return equal(max(_distance(a, b) for a, b in zip(real, general, strict=True)), 0)
