"""invariant, Sec. 4.1: maps that leave the function unchanged, and when their fixed points are a
SIM.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.mlp import MLP
from neuromanifold.orbits.maps import InducedManifold, induces_invariant_manifold
from neuromanifold.orbits.partition import invariant_leaf
from neuromanifold.orbits.zeros import zero_blocks
from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.invariant.statements import algebra
from neuromanifold_papers.invariant.statements import cases as cast
from neuromanifold_papers.invariant.statements.algebra import Neurons, Support
from neuromanifold_papers.statement import control, in_float64, statement

Plane = tuple[tuple[int, int], tuple[int, int]]
SHEAR: Plane = ((1, 1), (0, 2))
"""g(θ) = (θ₁ + θ₂, 2θ₂) of example 4.1."""
REFLECTION: Plane = ((0, -1), (-1, 0))
"""(−θ₂, −θ₁), which leaves the function unchanged too, and whose fixed set is a SIM."""
DIFFERENCE = np.array([1, -1])
"""∇_θ F(θ)(x) / x for F(θ)(x) = (θ₁ − θ₂)x."""


def departure(g: np.ndarray, field: np.ndarray) -> float:
    """The part of a constant field outside ker(g − 1), relative, for a linear map of the plane
    with a line of fixed points.
    """
    normal = next(row for row in g - np.eye(2) if row.any())
    return float(abs(normal @ field) / (np.linalg.norm(normal) * np.linalg.norm(field)))


@lru_cache
def _moved(g: Plane, point: tuple[float, float]) -> InducedManifold:
    def difference(theta: Any, x: Any) -> Any:
        return (theta[0] - theta[1]) * x

    return induces_invariant_manifold(
        difference, lambda theta: jnp.asarray(g, float) @ theta, np.array(point), features=1
    )


@in_float64(
    "Ex 4.1",
    lambda rng, draws: [(1.0, 0.0)],
    control(
        "the reflection (−θ₂, −θ₁), whose fixed set is a SIM", lambda: (0.0, 0.0), g=REFLECTION
    ),
)
def sheared(point: tuple[float, float], g: Plane = SHEAR) -> Check:
    """g(θ) = (θ₁ + θ₂, 2θ₂) leaves F = (θ₁ − θ₂)x unchanged, yet its fixed set {θ₂ = 0} is no
    SIM: gradients leave it at 45°.

    F∘g = F in whole numbers and by the library; how far gradients leave the fixed line by the
    library and by hand.
    """
    found, by_hand = _moved(g, point), departure(np.array(g), DIFFERENCE)
    unchanged = (DIFFERENCE @ np.array(g) == DIFFERENCE).all() and found.maps[
        0
    ].kind == "globally invariant"
    library = 0.0 if found else found.departure
    left = by_hand if unchanged and abs(library - by_hand) <= cast.ROUNDING else float("nan")
    return equal(left, np.sqrt(0.5), cast.ROUNDING, hypotheses={"θ": str(point)})


def radial_gradient(
    x: Fraction, y: Fraction, data: Fraction, radius: Fraction
) -> tuple[Fraction, Fraction]:
    """∇F of F = (r + 1/r + data)² at a point (x, y) of rational radius: 2(r + 1/r + data)(1 −
    1/r²) θ/r.
    """
    slope = 2 * (radius + 1 / radius + data) * (1 - 1 / radius**2)
    return slope * x / radius, slope * y / radius


@lru_cache
def _inverted() -> InducedManifold:
    def model(theta: Any, x: Any) -> Any:
        r = jnp.sqrt(theta @ theta)
        return (r + 1 / r + x) ** 2

    return induces_invariant_manifold(
        model, lambda theta: theta / (theta @ theta), np.array([0.6, 0.8]), features=1
    )


def _circle_points(rng: np.random.Generator, draws: int) -> Iterator[tuple[Fraction, Fraction]]:
    yield Fraction(3, 5), Fraction(4, 5)
    for t in (0, 1, -1, 2, *(Fraction(int(p), int(q)) for p, q in rng.integers(1, 99, (draws, 2)))):
        yield Fraction(1 - t * t) / (1 + t * t), Fraction(2 * t) / (1 + t * t)


@statement(
    "Ex 4.2",
    _circle_points,
    control("the gradient at radius 2", lambda: (Fraction(1), Fraction(0)), radius=Fraction(2)),
    draws=20,
)
def circle(point: tuple[Fraction, Fraction], radius: Fraction = Fraction(1)) -> Check:
    """Inversion θ/|θ|² leaves (r + 1/r + x)² unchanged and satisfies the tangent condition: the
    unit circle is a SIM.

    Gradients at a rational point of the unit circle, exactly; at (3/5, 4/5) the library's
    answer too.
    """
    x, y = point
    moved = sum(
        abs(part) for data in range(-3, 4) for part in radial_gradient(x, y, Fraction(data), radius)
    )
    # Dg = 1 − 2θθᵀ on the circle: its transpose fixes the tangent (−y, x) and no more.
    moved += abs(x * (-y) + y * x) + abs(x * x + y * y - 1)
    if point == (Fraction(3, 5), Fraction(4, 5)):
        found = _inverted()
        close = found and found.departure <= cast.ROUNDING
        moved += not (close and found.dimension == 1 and not found.maps[0].linear)
    return equal(moved, 0, hypotheses={"θ": f"({x}, {y})"})


Matrices = tuple[tuple[tuple[int, ...], ...], ...]


def tangent_defect(maps: Matrices) -> int:
    """0 exactly where ∩ ker(g − 1) = ∩ ker(gᵀ − 1): 2 rank (A; B) − rank A − rank B for the
    stacked g − 1 and gᵀ − 1.
    """
    ones = np.array(maps) - np.eye(len(maps[0]), dtype=int)
    A, B = np.concatenate(ones), np.concatenate(ones.transpose(0, 2, 1))
    return 2 * algebra.rank(np.concatenate([A, B])) - algebra.rank(A) - algebra.rank(B)


def is_normal(g: np.ndarray) -> np.ndarray:
    """g gᵀ = gᵀ g, for one matrix or many."""
    transposed = np.swapaxes(g, -1, -2)
    return (g @ transposed == transposed @ g).all(axis=(-1, -2))


def _normal_matrices(size: int, entries: range) -> list[tuple[tuple[int, ...], ...]]:
    every = np.array(list(itertools.product(entries, repeat=size * size))).reshape(-1, size, size)
    return [tuple(map(tuple, g.tolist())) for g in every[is_normal(every)]]


def _normal_families(rng: np.random.Generator, draws: int) -> Iterator[Matrices]:
    small = _normal_matrices(2, range(-1, 2))
    yield from ((g,) for g in _normal_matrices(2, range(-2, 3)))
    yield from itertools.combinations(small, 2)
    yield from ((g,) for g in _normal_matrices(3, range(-1, 2)))
    for _ in range(draws):
        size, count = (int(k) for k in rng.integers([4, 1], [7, 4]))
        yield tuple(_random_normal(rng, size) for _ in range(count))


def _random_normal(rng: np.random.Generator, size: int) -> tuple[tuple[int, ...], ...]:
    """A circulant, conjugated by a signed permutation."""
    first = rng.integers(-2, 3, size)
    circulant = np.stack([np.roll(first, k) for k in range(size)])
    P = np.eye(size, dtype=int)[rng.permutation(size)] * rng.choice([-1, 1], size)
    return tuple(map(tuple, (P @ circulant @ P.T).tolist()))


@statement(
    "Rem 4.1",
    _normal_families,
    control("the shear of example 4.1, which is not normal", lambda: (((1, 1), (0, 2)),)),
    draws=100,
)
def _normal(maps: Matrices) -> Check:
    """Linear normal maps satisfy the tangent condition: ∩ ker(g_iᵀ − 1) = ∩ ker(g_i − 1)."""
    return equal(tangent_defect(maps), 0, M=len(maps[0]), maps=len(maps))


def _library_cases() -> dict[str, tuple[Any, Any, Any, int | None]]:
    """(f, maps, fixed point, features): maps that are invariant and satisfy the tangent
    condition.
    """
    silent = zero_blocks(MLP((1, 2, 1), "gelu"), [{0}])

    def turning(theta: Any, x: Any) -> Any:
        r = jnp.sqrt(theta @ theta)
        return jnp.log(r) ** 2 * x + theta[0] / r

    flip = (silent.net, silent.flip, silent.sample(key=jax.random.key(1)), None)
    inversion = (turning, lambda t: t / (t @ t), np.array([0.6, 0.8]), 1)
    return {
        "flip of a silent gelu neuron": flip,
        "inversion, gradients along the circle": inversion,
    }


def _induced(name: str) -> Check:
    f, maps, params, features = _library_cases()[name]
    found = induces_invariant_manifold(f, maps, params, features=features)
    kind = found.maps[0].kind if found else "not induced"
    left = found.departure if found else float("nan")
    # A curved tangent space is known to a stride squared.
    tolerance = cast.ROUNDING if found.maps[0].linear else 1e-5
    return at_most(left, 0.0, tolerance, map=name, invariance=kind)


@dataclass(frozen=True)
class Averaged:
    """Signed permutations of ℝ³ that generate a group G, and p(θ) = Σ_G (c·gθ)³ + (e·gθ)², which
    they leave unchanged.
    """

    group: tuple[tuple[tuple[int, ...], ...], ...]
    c: tuple[int, ...]
    e: tuple[int, ...]
    theta: tuple[int, ...]

    def gradient(self) -> np.ndarray:
        """∇p at the mean of θ over the group, times its order, in whole numbers."""
        G = np.array(self.group)
        mean = G.sum(axis=0) @ np.array(self.theta)
        c, e = np.array(self.c), np.array(self.e)
        terms = [(3 * (c @ g @ mean) ** 2 * c + 2 * (e @ g @ mean) * e) @ g for g in G]
        return np.sum(terms, axis=0)


@lru_cache
def signed_permutations(n: int) -> np.ndarray:
    """All 2ⁿ n! of them."""
    orders, signs = (
        itertools.permutations(np.eye(n, dtype=int)),
        itertools.product((1, -1), repeat=n),
    )
    return np.stack([np.diag(s) @ P for P, s in itertools.product(orders, signs)])


def generated(*elements: np.ndarray, most: float = np.inf) -> Matrices:
    """The group that some integer matrices generate; cut off where it has more than `most`."""
    n = len(elements[0])
    found = {tuple(map(tuple, np.eye(n, dtype=int).tolist()))}
    new = set(found)
    while new and len(found) <= most:
        new = {tuple(map(tuple, (g @ np.array(h)).tolist())) for g in elements for h in new} - found
        found |= new
    return tuple(sorted(found))


def _averaged(case: Averaged) -> Check:
    """How many elements of the group move the gradient at a common fixed point."""
    v = case.gradient()
    moved = sum(int((np.array(g) @ v != v).any()) for g in case.group)
    return equal(moved, 0, map="signed permutations", order_of_the_group=len(case.group))


def _thm41_cases(rng: np.random.Generator, draws: int) -> Iterator[str | Averaged]:
    yield from _library_cases()
    B3 = signed_permutations(3)
    yield from (Averaged(generated(g), (1, 2, -1), (0, 1, 3), (1, 2, 3)) for g in B3)
    for _ in range(draws):
        c, e, theta = (tuple(v.tolist()) for v in rng.integers(-9, 10, (3, 3)))
        yield Averaged(generated(*B3[rng.integers(0, 48, 2)]), c, e, theta)


_SKEW = Averaged((((1, 0), (0, 1)), ((1, 1), (0, -1))), (1, 0), (0, 0), (1, 0))
"""g = ((1, 1), (0, −1)), g² = 1 but not orthogonal: ∇p = (1 + gᵀ)c leaves {θ₂ = 0}."""


@in_float64(
    "Thm 4.1",
    _thm41_cases,
    control("an involution that is not normal: its tangent condition fails", lambda: _SKEW),
    draws=20,
    show=lambda case: case if isinstance(case, str) else f"group {case.group}, θ = {case.theta}",
)
def induced(case: Any) -> Check:
    """The fixed set of invariant maps, with tangent space ∩ ker(Dg_iᵀ − 1), is a SIM."""
    return _induced(case) if isinstance(case, str) else _averaged(case)


@dataclass(frozen=True)
class Stabilised:
    """Neurons (a_i, w_i) under permutations, with signs where σ is odd."""

    name: str
    neurons: Neurons

    @property
    def group(self) -> np.ndarray:
        """S_m or the hyperoctahedral group, acting on neurons."""
        every = signed_permutations(len(self.neurons))
        return every if self.name == "tanh" else every[(every >= 0).all(axis=(1, 2))]

    @property
    def stabiliser(self) -> np.ndarray:
        """S(θ) = {g : gθ = θ}, by trying every element."""
        theta = np.array(self.neurons)
        return self.group[(self.group @ theta == theta).all(axis=(1, 2))]

    @property
    def hypotheses(self) -> dict[str, Any]:
        known = {"activation": self.name, "m": len(self.neurons)}
        return known | {"order of S(θ)": len(self.stabiliser)}


def fixed_dimension(case: Stabilised) -> int:
    """dim Fix(S) = (d + 1) · mean over S of the trace."""
    S = case.stabiliser
    return (len(case.neurons[0])) * int(np.trace(S, axis1=1, axis2=2).sum()) // len(S)


def _stabilised(rng: np.random.Generator, draws: int) -> Iterator[Stabilised]:
    for name, m in itertools.product(("exp", "tanh"), (1, 2)):
        yield from (Stabilised(name, neurons) for neurons in cast.grid(m, 1))
    for _ in range(draws):
        m, d = (int(k) for k in rng.integers([3, 1], [5, 3]))
        yield Stabilised(str(rng.choice(["exp", "tanh"])), cast.whole_neurons(rng, m, d, 2))


@statement(
    "Lem 4.1 (leaf)",
    _stabilised,
    control(
        "a group without signs at opposite neurons of tanh",
        lambda: Stabilised("tanh", ((1, 1), (-1, -1))),
        dimension=lambda case: fixed_dimension(Stabilised("exp", case.neurons)),
    ),
    draws=40,
)
def leaf_dimension(case: Stabilised, dimension: Any = fixed_dimension) -> Check:
    """The points with one stabiliser S are an open part of Fix(S), of dimension mean over S of
    the trace.
    """
    leaf = invariant_leaf(*cast.two_layer(case.name, case.neurons))
    return equal(leaf.dimension, dimension(case))


def moved_fields(group: np.ndarray, support: Support, neurons: Neurons) -> int:
    """How many pairs of a field and an element of the group there are with gX ≠ X at the
    neurons, modulo a prime.
    """
    moved = 0
    for _, X in algebra.monomial_fields(len(neurons[0]) - 1, support[:5]):
        v = np.array([[algebra.value(p, neuron) for p in X] for neuron in neurons])
        moved += int(((group @ v - v) % algebra.PRIME).any(axis=(1, 2)).sum())
    return moved


def _grid_and_draws(rng: np.random.Generator, draws: int) -> Iterator[Stabilised]:
    for name, m in itertools.product(("exp", "tanh"), (1, 2, 3)):
        yield from (Stabilised(name, neurons) for neurons in cast.grid(m, 1))
    yield from itertools.islice(_stabilised(rng, draws), 108, None)


@statement(
    "Lem 4.1 (invariant)",
    _grid_and_draws,
    control(
        "the sign group for exp, of which it is no symmetry",
        lambda: Stabilised("tanh", ((0, 0),)),
        supports={"tanh": cast.SUPPORTS["exp"]},
    ),
    draws=40,
)
def tangent(case: Stabilised, supports: Mapping[str, Support] = cast.SUPPORTS) -> Check:
    """A finite orthogonal symmetry group partitions parameter space into SIMs: S(θ) fixes every
    gradient at θ.
    """
    S = case.stabiliser
    moved = moved_fields(S, supports[case.name], case.neurons)
    return equal(moved, 0, comparisons=len(S))
