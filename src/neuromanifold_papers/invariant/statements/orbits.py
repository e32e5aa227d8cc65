"""invariant, Sec. 3: structural invariant sets are the unions of orbits of the fields ∇_θ
F(·)(x).
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from neuromanifold.orbits.closure import LieClosure
from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.invariant.statements.algebra import (
    PRIME,
    Neurons,
    closure_dimension,
    closure_rows,
    monomial_fields,
    value,
)
from neuromanifold_papers.invariant.statements.cases import (
    EPS,
    LOSSES,
    SLOPES,
    SUPPORTS,
    Trained,
    by_neuron,
    closure,
    condensed,
    grid,
    show_neurons,
    trained,
    two_layer,
    whole_neurons,
)
from neuromanifold_papers.statement import control, statement

ROUNDING = 2**10
"""Roundings between a gradient and its projection onto Lie_θ, in units of ε over the smallest
singular value that was kept.
"""
LEFT = 1e-9
"""A gradient leaves a space when its part outside is longer than this fraction of it: rounding
is some 10⁻¹⁵, departures are not small.
"""


def exponential_dimension(neurons: Neurons) -> int:
    """The dimension of the SIM that example 3.1 puts a point on: 2 where the neurons are equal,
    4 elsewhere.
    """
    return 2 * condensed(neurons)


def _pairs(rng: np.random.Generator, draws: int) -> Iterator[Neurons]:
    yield from grid(2, 1)
    yield from (whole_neurons(rng, 2, 1) for _ in range(draws))


@statement(
    "Ex 3.1",
    _pairs,
    control("tanh for exp at opposite neurons, off M", lambda: ((1, 1), (-1, -1)), name="tanh"),
    draws=10,
    show=lambda neurons: show_neurons("exp", neurons),
)
def two_exponentials(neurons: Neurons, name: str = "exp") -> Check:
    """The SIMs of a₁e^{w₁x} + a₂e^{w₂x} are ℝ⁴, M = {equal neurons} and its complement: dim Lie_θ
    is 2 on M and 4 off it.

    By polynomial fields modulo a prime, and by the library in float64 where no entry is
    negative; the worse of the two.
    """
    wanted = exponential_dimension(neurons)
    found = [closure_dimension(SUPPORTS[name], neurons, wanted)]
    if min(map(min, neurons)) >= 0:
        found.append(int(closure(name, neurons).dimension))
    worst = max(found, key=lambda dimension: abs(dimension - wanted))
    return equal(worst, wanted, comparisons=len(found), on_M=wanted == 2)


def smallest_kept(found: LieClosure) -> float:
    """The smallest relative singular value of a direction of the closure: it is known to
    rounding over this.
    """
    spectrum = np.asarray(found.dimension.spectrum)
    return float(spectrum[int(found.dimension) - 1] / spectrum[0])


@dataclass(frozen=True)
class Sample:
    """A point, and seeds for data and losses."""

    name: str
    neurons: tuple[tuple[float | int, ...], ...]
    seed: int


def _gradient(run: Trained) -> np.ndarray:
    return run.field(run.start)


def _samples(rng: np.random.Generator, draws: int) -> Iterator[Sample]:
    corners = [
        ((1, 1), (1, 1)),
        ((1, 1), (-1, -1)),
        ((1, 1), (0, 0)),
        ((1, 0), (0, 0)),
        ((0, 0), (0, 0)),
    ]
    yield from (
        Sample(name, neurons, 0) for name in ("exp", "tanh", "cos", "silu") for neurons in corners
    )
    for _ in range(draws):
        name = str(rng.choice(["exp", "tanh", "cos", "silu"]))
        yield Sample(
            name, whole_neurons(rng, int(rng.integers(2, 4)), 1, 2), int(rng.integers(2**31))
        )


@statement(
    "Thm 3.1 (gradients)",
    _samples,
    control(
        "a direction that is no gradient: w₁ alone, at opposite neurons of tanh",
        lambda: Sample("tanh", ((1, 1), (-1, -1)), 0),
        gradient=lambda run: np.array([1.0, 0.0, 0.0, 0.0]),
    ),
    method="float64",
    draws=10,
    show=lambda case: show_neurons(case.name, case.neurons),
)
def gradients(case: Sample, gradient: Callable[[Trained], np.ndarray] = _gradient) -> Check:
    """The gradient of every loss on every data set lies in Lie_θ, the tangent space of the orbit.

    The largest part of a gradient outside Lie_θ, over every loss and data sets of 1, 2 and 7
    samples.
    """
    found, rng = closure(case.name, case.neurons), np.random.default_rng(case.seed)
    net, params = two_layer(case.name, case.neurons)
    runs = [trained(rng, net, params, samples, loss) for samples in (1, 2, 7) for loss in LOSSES]
    worst = max(found.residual(gradient(run)) for run in runs)
    hypotheses = {
        "activation": case.name,
        "m": len(case.neurons),
        "dimension": int(found.dimension),
    }
    tolerance = ROUNDING * EPS / smallest_kept(found) if int(found.dimension) else 0.0
    return at_most(worst, 0.0, tolerance, comparisons=len(runs), hypotheses=hypotheses)


PLANES: dict[str, tuple[tuple[int, int], ...]] = {
    "any": (),
    "₁ = 0": ((1, 0),),
    "₂ = 0": ((0, 1),),
    "₁ = ₂": ((1, -1),),
    "₁ = −₂": ((1, 1),),
    "= 0": ((1, 0), (0, 1)),
}


@dataclass(frozen=True)
class Candidate:
    """A set of parameters (a₁, w₁), (a₂, w₂): a linear condition on a and one on w, or the one
    point given.
    """

    name: str
    a: str = "any"
    w: str = "any"
    point: Neurons | None = None
    floating: bool = False

    @property
    def forms(self) -> np.ndarray:
        """The linear forms that vanish on the tangent space, columns (a₁, w₁, a₂, w₂)."""
        if self.point is not None:
            return np.eye(4, dtype=int)
        on_a = [(first, 0, second, 0) for first, second in PLANES[self.a]]
        on_w = [(0, first, 0, second) for first, second in PLANES[self.w]]
        return np.array([*on_a, *on_w], dtype=int).reshape(-1, 4)

    def points(self, rng: np.random.Generator, count: int) -> list[Neurons]:
        """Random whole points of the set."""
        if self.point is not None:
            return [self.point]
        return [self._drawn(rng) for _ in range(count)]

    def _drawn(self, rng: np.random.Generator) -> Neurons:
        columns = []
        for plane in (self.a, self.w):
            first, second = (
                int(k) for k in rng.permutation(np.arange(1, 8))[:2] * rng.choice([-1, 1], 2)
            )
            pairs = {
                "₁ = 0": (0, second),
                "₂ = 0": (first, 0),
                "₁ = ₂": (first, first),
                "₁ = −₂": (first, -first),
            }
            columns.append({**pairs, "= 0": (0, 0)}.get(plane, (first, second)))
        return tuple(zip(*columns, strict=True))

    def __str__(self) -> str:
        where = f"θ = {self.point}" if self.point is not None else f"a {self.a}, w {self.w}"
        return f"{self.name}: {{{where}}}"


@lru_cache(maxsize=1024)
def is_structural(candidate: Candidate) -> bool:
    """Whether every field is tangent to the set, modulo a prime at random whole points of it.
    [invariant, Thm 3.1]
    """
    fields = [X for _, X in monomial_fields(1, SUPPORTS[candidate.name])]
    for point in candidate.points(np.random.default_rng(0), 4):
        rows = [[value(p, neuron) for neuron in point for p in X] for X in fields]
        if (np.array(rows) @ candidate.forms.T % PRIME).any():
            return False
    return True


def keeps(candidate: Candidate, loss: str, rng: np.random.Generator, small: float = 0.25) -> bool:
    """Whether the gradients of one loss are tangent to the set, for random data at random points
    of it.
    """
    order = by_neuron(1, 2).ravel()
    for point in candidate.points(rng, 2):
        net, params = two_layer(candidate.name, small * np.array(point))
        for samples in (1, 3):
            run = trained(rng, net, params, samples, loss)
            v = run.field(run.start)[order]
            if np.linalg.norm(candidate.forms @ v) > LEFT * max(1.0, float(np.linalg.norm(v))):
                return False
    return True


def holds_orbits(candidate: Candidate, rng: np.random.Generator) -> bool:
    """Whether Lie_θ is tangent to the set at a random whole point of it, modulo a prime, and by
    the library for drawn sets.
    """
    [point] = candidate.points(rng, 1)
    exactly = not (
        closure_rows(SUPPORTS[candidate.name], point, 4) @ candidate.forms.T % PRIME
    ).any()
    if not candidate.floating:
        return exactly
    scaled = tuple(tuple(0.25 * entry for entry in neuron) for neuron in point)
    basis = closure(candidate.name, scaled).basis[:, by_neuron(1, 2).ravel()]
    return exactly and float(np.abs(candidate.forms @ basis.T).max(initial=0.0)) <= LEFT


def _planes(names: tuple[str, ...]) -> Iterator[Candidate]:
    for name, a, w in itertools.product(names, PLANES, PLANES):
        yield Candidate(name, a, w)


def _candidates(rng: np.random.Generator, draws: int) -> Iterator[Candidate]:
    yield from _planes(("exp", "tanh", "cos", "silu"))
    for _ in range(draws):
        yield _drawn_plane(rng, ("exp", "tanh", "cos", "silu"))


def _drawn_plane(rng: np.random.Generator, names: tuple[str, ...]) -> Candidate:
    name, a, w = (str(rng.choice(kinds)) for kinds in (names, list(PLANES), list(PLANES)))
    return Candidate(name, a, w, floating=True)


@statement(
    "Thm 3.1 (orbits)",
    _candidates,
    control(
        "{a₁ = a₂} without w₁ = w₂, taken for invariant",
        lambda: Candidate("exp", "₁ = ₂"),
        structural=lambda candidate: True,
    ),
    method="float64",
    draws=10,
)
def equivalent(
    candidate: Candidate, structural: Callable[[Candidate], bool] = is_structural
) -> Check:
    """A set is invariant under all losses exactly when it is under all fields, exactly when it is
    a union of orbits.

    Invariance under all losses, under all fields, and under the brackets: how many of the
    three differ from the second.
    """
    rng = np.random.default_rng(1)
    under_fields = structural(candidate)
    under_losses = all(keeps(candidate, loss, rng) for loss in LOSSES)
    different = (under_losses != under_fields) + (holds_orbits(candidate, rng) != under_fields)
    return equal(different, 0, activation=candidate.name, a_SIM=under_fields)


def satisfies_p31(loss: str) -> bool:
    """∀s ∃t ∇ℓ₀(s, t) ≠ 0, on a grid with s = 0."""
    s, t = np.meshgrid(np.linspace(-3, 3, 25), np.linspace(-3, 3, 25))
    return bool((SLOPES[loss](s, t) != 0).any(axis=0).all())


def _sets(rng: np.random.Generator, draws: int) -> Iterator[Candidate]:
    for name in ("exp", "tanh", "cos"):
        yield from (Candidate(name, point=point) for point in grid(2, 1, (0, 1)))
    yield from _planes(("exp", "tanh", "cos"))
    for _ in range(draws):
        yield _drawn_plane(rng, ("silu", "z - sin(z) + cos(z)"))


@statement(
    "P 3.1",
    _sets,
    control(
        "ℓ₀ = s²/2, whose slope is 0 at s = 0: the point a = (0, 0), w = (1, 1) stays, since F = 0, and is no SIM",
        lambda: Candidate("exp", point=((0, 1), (0, 1))),
        allowed=lambda loss: loss == "s²/2",
    ),
    method="float64",
    draws=10,
)
def one_loss(candidate: Candidate, allowed: Callable[[str], bool] = satisfies_p31) -> Check:
    """A manifold invariant under one loss ℓ₀ with ∇ℓ₀(s, ·) ≢ 0 for every s, over all data sets,
    is a SIM.

    For how many single losses ℓ₀ invariance over all data differs from being a SIM.
    """
    rng = np.random.default_rng(2)
    chosen = [loss for loss in SLOPES if allowed(loss)]
    different = sum(keeps(candidate, loss, rng) != is_structural(candidate) for loss in chosen)
    kind = "linear space" if candidate.point is None else "point"
    return equal(
        different,
        0,
        comparisons=len(chosen),
        activation=candidate.name,
        set=kind,
        losses=len(chosen),
    )
