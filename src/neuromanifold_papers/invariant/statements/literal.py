"""`invariant`: sentences that a second, blind reading found to say more than we had executed."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from flint import fmpz_mat

from neuromanifold_papers.check import Check, at_least, equal, outside
from neuromanifold_papers.invariant.statements.maps import Matrices, generated, signed_permutations
from neuromanifold_papers.statement import control, statement


@dataclass(frozen=True)
class Affine:
    """g(θ) = aθ + b on ℝ, and the model F(θ)(x) = p(θ)x with p constant, even around c, or periodic;
    g leaves it: a = ±1.
    """

    a: int
    b: Fraction
    model: str

    def invariant(self) -> bool:
        """Whether p∘g = p."""
        if self.model == "zero":
            return True
        if self.model == "even":
            return self.b == 0
        return self.b.denominator == 1 and self.a == 1

    def fixed(self) -> bool:
        """Whether g has a fixed point."""
        return self.a != 1 or self.b == 0

    def __str__(self) -> str:
        p = {"zero": "0", "even": "theta**2", "periodic": "np.sin(2 * np.pi * theta)"}[self.model]
        return f"F = lambda theta, x: {p} * x; g = lambda theta: {self.a} * theta + {self.b}"


def _by_values(case: Affine) -> Check:
    """Whether g(θ) = θ anywhere on a grid, and p∘g = p there."""
    theta = np.linspace(-9, 9, 3601)
    moved = case.a * theta + float(case.b)
    p = {"zero": np.zeros_like, "even": np.square, "periodic": lambda t: np.sin(2 * np.pi * t)}
    same = np.allclose(p[case.model](moved), p[case.model](theta))
    return equal(int(np.abs(moved - theta).min() < 1e-9), int(same))


_SHIFT = control(
    "a flip without its fixed point", lambda: Affine(-1, Fraction(0), "even"), fixed=lambda c: False
)


_SHIFTS = [Fraction(k, 2) for k in (0, 1, 2, -2, 3)]
_AFFINE = [Affine(a, b, f) for f, a, b in product(("periodic", "even", "zero"), (-1, 1), _SHIFTS)]


@statement("Def 4.1 (global)", _AFFINE, _SHIFT, confirm=_by_values)
def every_global(
    case: Affine, fixed: Any = Affine.fixed, invariant: Any = Affine.invariant
) -> Check:
    """Every global invariant map is an infinitesimal invariant map, whose set of fixed points the
    definition wants not empty.
    """
    drops = outside("g is not a global invariant map", when=not invariant(case))
    return equal(int(fixed(case)), 1, drops=drops, model=case.model)


@every_global.amend(
    control(
        "a flip around ½ of a function that is even around 0",
        lambda: Affine(-1, Fraction(1), "even"),
        invariant=lambda case: True,
    )
)
def global_with_fixed_points(case: Affine, invariant: Any = Affine.invariant) -> Check:
    """Every global invariant map with a fixed point is an infinitesimal invariant map: (p∘g)' = p' there."""
    both = invariant(case) and case.fixed()
    drops = outside("g is no global map, or fixes nothing", when=not both)
    at = case.b / 2 if case.a == -1 else Fraction(1, 7)
    slope = {"zero": 0.0, "even": 2.0 * float(at), "periodic": float(np.cos(2 * np.pi * float(at)))}
    return equal(case.a * slope[case.model], slope[case.model], drops=drops, model=case.model)


Pair = tuple[Fraction, Fraction]
"""F = 0, g_1 = 2c_1 − θ and g_2 = 2c_2 − θ."""


_REFLECTIONS = list(product(map(Fraction, (0, 1, -1, 3)), repeat=2))


def _by_solving(case: Pair) -> Check:
    """(2, 2)ᵀθ = 2(c_1, c_2) by least squares, its residual 0."""
    residual = np.linalg.lstsq(np.array([[2.0], [2.0]]), 2 * np.array(case, float), rcond=None)[1]
    return equal(int(np.all(residual < 1e-12)), 1)


_COMMON = lambda case: len({case[0]} & {case[1]})  # noqa: E731
_APART = control("none in place of both", lambda: (Fraction(1), Fraction(1)), common=lambda c: 0)


@statement("Thm 4.1 (empty)", _REFLECTIONS, _APART, confirm=_by_solving)
def not_empty(case: Pair, common: Any = _COMMON) -> Check:
    """The common fixed points of a family of invariant maps are a SIM, so not empty: a footnote excludes
    the empty set.
    """
    return equal(int(common(case) > 0), 1)


def _affine_maps(rng: np.random.Generator, draws: int) -> list[Matrices]:
    """θ ↦ Pθ + b in the plane, P a signed permutation, as matrices on (θ, 1): one, then two."""
    linear = product(signed_permutations(2).tolist(), product((-1, 0, 1), repeat=2))
    every = [((*P[0], b[0]), (*P[1], b[1]), (0, 0, 1)) for P, b in linear]
    pairs = rng.integers(len(every), size=(draws, 2)).tolist()
    return [(g,) for g in every] + [(every[i], every[j]) for i, j in pairs]


@not_empty.amend(
    control(
        "θ itself for the mean", lambda: (((0, -1, 1), (1, 0, 0), (0, 0, 1)),), over=lambda G: G[:1]
    ),
    cases=_affine_maps,
)
def a_mean_is_fixed(case: Matrices, over: Any = lambda group: group) -> Check:
    """Affine invariant maps that generate a finite group have a common fixed point, the mean of any orbit:
    their set is not empty.

    How many of the maps move Σ g(θ, 1) over the group; it has at most eight elements where it is
    finite, one for each P.
    """
    group = np.array(generated(*map(np.array, case), most=8))
    mean = over(group).sum(axis=0) @ np.array([1, 2, 1])
    moved = sum(bool((np.array(g) @ mean != mean).any()) for g in case)
    drops = outside("the maps generate translations", when=len(group) > 8)
    return equal(moved, 0, drops=drops, order=min(len(group), 9))


@statement("Sec 4.1 (semigroup)", _REFLECTIONS, _APART, confirm=_by_solving)
def semigroup(case: Pair, common: Any = _COMMON) -> Check:
    """Invariant maps form a semigroup under composition: g_1∘g_2, the shift by 2(c_1 − c_2), has a fixed
    point again.
    """
    shift = 2 * (case[0] - case[1])
    return equal(int(shift == 0 and common(case) > 0), 1)


@semigroup.amend()
def semigroup_amended(case: Pair, common: Any = _COMMON) -> Check:
    """Invariant maps with a common fixed point form a semigroup: the composition fixes it."""
    drops = outside("no common fixed point", when=case[0] != case[1])
    theta = case[0]
    composed = 2 * case[0] - (2 * case[1] - theta)
    return equal(int(composed == theta and common(case) > 0), 1, drops=drops)


Features = tuple[tuple[int, ...], ...]
"""The coefficients of the features ψ_i in 1, x, x²."""


def _features(rng: np.random.Generator, draws: int) -> Iterator[Features]:
    yield ((1, 0, 0), (1, 0, 0))
    yield ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    yield from product(((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1)), repeat=2)
    for _ in range(draws):
        count = int(rng.integers(1, 4))
        yield tuple(tuple(map(int, rng.integers(-1, 2, 3))) for _ in range(count))


def _rank(features: Any) -> int:
    return fmpz_mat([list(map(int, row)) for row in features]).rank()


def _conserved(features: Features) -> Check:
    """Directions that no gradient ψ(x) has a component in, at 50 inputs."""
    x = np.linspace(-1, 1, 50)
    psi = np.array(features, float) @ np.array([x**0, x, x**2])
    return equal(len(features) - int(np.linalg.matrix_rank(psi)), 0)


_ONE_LESS = control("a field left out", lambda: ((1, 0, 0), (0, 1, 0)), fewer=1)


@statement("3.3 (every linear model)", _features, _ONE_LESS, confirm=_conserved)
def every_linear_model(features: Features, fewer: int = 0) -> Check:
    """Linear models have only the trivial SIM, the gradients (ψ_1(x), …, ψ_M(x)) spanning ℝ^M, without the
    independence of Prop 3.3.
    """
    return equal(_rank(features) - fewer, len(features))


@every_linear_model.amend()
def independent(features: Features, fewer: int = 0) -> Check:
    """Independent features have gradients at some inputs, here 0, 1 and 2, that span ℝ^M: constant fields,
    one orbit.
    """
    x = np.arange(3)
    values = np.array(features) @ np.array([x**0, x, x**2])
    drops = outside("the features are dependent", when=_rank(features) < len(features))
    return equal(_rank(values) - fewer, len(features), drops=drops)


Power = tuple[int, int, int]
"""p, a and w of F = aσ(wx), σ(z) = z^p: one neuron, one input, no bias."""


def _orbit_dimension(case: Power) -> int:
    """The fields (w^p, pa w^{p−1})x^p are multiples of one: an orbit is one of its curves."""
    p, a, w = case
    return int(bool(w**p or p * a * w ** (p - 1)))


def _by_conservation(case: Power) -> Check:
    """pa² − w² is constant along the field: its gradient is orthogonal to it."""
    p, a, w = case
    field, gradient = (w**p, p * a * w ** (p - 1)), (2 * p * a, -2 * w)
    along = sum(u * v for u, v in zip(field, gradient, strict=True))
    return at_least(abs(along), 1)


def _exponential(case: Power) -> int:
    """For σ = exp: (e^{wx}, axe^{wx}) at three inputs."""
    values = [(np.exp(case[2] * x), case[1] * x * np.exp(case[2] * x)) for x in (0.0, 1.0, 2.0)]
    return int(np.linalg.matrix_rank(np.array(values)))


_NEURONS = control("a neuron that is zero", lambda: (1, 0, 0))


_POWERS = list(product((1, 2, 3), (1, -2), (1, 3)))


@statement("Abstract (two layers)", _POWERS, _NEURONS, confirm=_by_conservation)
def two_layers(case: Power, orbit: Any = _orbit_dimension) -> Check:
    """For two-layer networks all SIMs are symmetry-induced, whatever the activation: a nonzero neuron's
    orbit is its whole leaf, of dimension 2.
    """
    return equal(orbit(case), 2, power=case[0])


two_layers_amended = two_layers.amend(method="float64", orbit=_exponential)(
    "For generic activations they are, as Theorem 5.1 says: for exp the orbit has dimension 2."
)
