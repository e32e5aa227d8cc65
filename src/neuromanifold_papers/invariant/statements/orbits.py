"""invariant, Sec. 3: structural invariant sets are the unions of orbits of the fields ∇_θ
F(·)(x).
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from neuromanifold.orbits.closure import LieClosure
from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.invariant.statements import algebra
from neuromanifold_papers.invariant.statements import cases as cast
from neuromanifold_papers.invariant.statements.algebra import Neurons
from neuromanifold_papers.statement import control, in_float64, statement

LEFT = 1e-9
"""A gradient leaves a space when its part outside is longer than this fraction of it: rounding
is some 10⁻¹⁵, departures are not small.
"""


NAMES = ("exp", "tanh", "cos", "silu")


def exponential_dimension(neurons: Neurons) -> int:
    """The dimension of the SIM that example 3.1 puts a point on: 2 where the neurons are equal,
    4 elsewhere.
    """
    return 2 * cast.condensed(neurons)


def _pairs(rng: np.random.Generator, draws: int) -> Iterator[Neurons]:
    yield from cast.grid(2, 1)
    yield from (cast.whole_neurons(rng, 2, 1) for _ in range(draws))


@statement(
    "Ex 3.1",
    _pairs,
    control("tanh for exp at opposite neurons, off M", lambda: ((1, 1), (-1, -1)), name="tanh"),
    draws=10,
)
def two_exponentials(neurons: Neurons, name: str = "exp") -> Check:
    """The SIMs of a₁e^{w₁x} + a₂e^{w₂x} are ℝ⁴, M = {equal neurons} and its complement: dim Lie_θ
    is 2 on M and 4 off it.

    By polynomial fields modulo a prime, and by the library in float64 where no entry is
    negative; the worse of the two.
    """
    wanted = exponential_dimension(neurons)
    found = [algebra.closure_dimension(cast.SUPPORTS[name], neurons, wanted)]
    if min(map(min, neurons)) >= 0:
        found.append(int(cast.closure(name, neurons).dimension))
    worst = max(found, key=lambda dimension: abs(dimension - wanted))
    return equal(worst, wanted, comparisons=len(found), on_M=wanted == 2)


def rounding(found: LieClosure) -> float:
    """Up to where a gradient and its projection onto Lie_θ agree: over the smallest relative
    singular value that was kept.
    """
    spectrum, rank = np.asarray(found.dimension.spectrum), int(found.dimension)
    return float(cast.ROUNDING * spectrum[0] / spectrum[rank - 1]) if rank else 0.0


@dataclass(frozen=True)
class Sample:
    """A point, and seeds for data and losses."""

    name: str
    neurons: tuple[tuple[float | int, ...], ...]
    seed: int


def _samples(rng: np.random.Generator, draws: int) -> Iterator[Sample]:
    equal, opposite, single = ((1, 1), (1, 1)), ((1, 1), (-1, -1)), ((1, 1), (0, 0))
    corners = [equal, opposite, single, ((1, 0), (0, 0)), ((0, 0), (0, 0))]
    yield from (Sample(name, neurons, 0) for name in NAMES for neurons in corners)
    for _ in range(draws):
        name = str(rng.choice(NAMES))
        yield Sample(
            name, cast.whole_neurons(rng, int(rng.integers(2, 4)), 1, 2), int(rng.integers(2**31))
        )


@in_float64(
    "Thm 3.1 (gradients)",
    _samples,
    control(
        "a direction that is no gradient: w₁ alone, at opposite neurons of tanh",
        lambda: Sample("tanh", ((1, 1), (-1, -1)), 0),
        gradient=lambda run: np.array([1.0, 0.0, 0.0, 0.0]),
    ),
    draws=10,
)
def gradients(case: Sample, gradient: Any = lambda run: run.field(run.start)) -> Check:
    """The gradient of every loss on every data set lies in Lie_θ, the tangent space of the orbit.

    The largest part of a gradient outside Lie_θ, over every loss and data sets of 1, 2 and 7
    samples.
    """
    found, rng = cast.closure(case.name, case.neurons), np.random.default_rng(case.seed)
    net, params = cast.two_layer(case.name, case.neurons)
    runs = [
        cast.trained(rng, net, params, samples, loss)
        for samples in (1, 2, 7)
        for loss in cast.LOSSES
    ]
    worst = max(found.residual(gradient(run)) for run in runs)
    hypotheses = {"activation": case.name, "m": len(case.neurons)}
    hypotheses["dimension"] = int(found.dimension)
    return at_most(worst, 0.0, rounding(found), comparisons=len(runs), hypotheses=hypotheses)


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
            pairs = {"₁ = 0": (0, second), "₂ = 0": (first, 0), "= 0": (0, 0)}
            pairs |= {"₁ = ₂": (first, first), "₁ = −₂": (first, -first)}
            columns.append(pairs.get(plane, (first, second)))
        return tuple(zip(*columns, strict=True))

    def __str__(self) -> str:
        where = f"θ = {self.point}" if self.point is not None else f"a {self.a}, w {self.w}"
        return f"{self.name}: {{{where}}}"


@lru_cache(maxsize=1024)
def is_structural(candidate: Candidate) -> bool:
    """Whether every field is tangent to the set, modulo a prime at random whole points of it.
    [invariant, Thm 3.1]
    """
    fields = [X for _, X in algebra.monomial_fields(1, cast.SUPPORTS[candidate.name])]
    for point in candidate.points(np.random.default_rng(0), 4):
        rows = [[algebra.value(p, neuron) for neuron in point for p in X] for X in fields]
        if (np.array(rows) @ candidate.forms.T % algebra.PRIME).any():
            return False
    return True


def keeps(candidate: Candidate, loss: str, rng: np.random.Generator, small: float = 0.25) -> bool:
    """Whether the gradients of one loss are tangent to the set, for random data at random points
    of it.
    """
    order = cast.by_neuron(1, 2).ravel()
    for point in candidate.points(rng, 2):
        net, params = cast.two_layer(candidate.name, small * np.array(point))
        for samples in (1, 3):
            run = cast.trained(rng, net, params, samples, loss)
            v = run.field(run.start)[order]
            if np.linalg.norm(candidate.forms @ v) > LEFT * max(1.0, float(np.linalg.norm(v))):
                return False
    return True


def holds_orbits(candidate: Candidate, rng: np.random.Generator) -> bool:
    """Whether Lie_θ is tangent to the set at a random whole point of it, modulo a prime, and by
    the library for drawn sets.
    """
    [point] = candidate.points(rng, 1)
    rows = algebra.closure_rows(cast.SUPPORTS[candidate.name], point, 4)
    exactly = not (rows @ candidate.forms.T % algebra.PRIME).any()
    if not candidate.floating:
        return exactly
    scaled = tuple(tuple(0.25 * entry for entry in neuron) for neuron in point)
    basis = cast.closure(candidate.name, scaled).basis[:, cast.by_neuron(1, 2).ravel()]
    return exactly and float(np.abs(candidate.forms @ basis.T).max(initial=0.0)) <= LEFT


def _planes(names: tuple[str, ...]) -> Iterator[Candidate]:
    for name, a, w in itertools.product(names, PLANES, PLANES):
        yield Candidate(name, a, w)


def _candidates(rng: np.random.Generator, draws: int) -> Iterator[Candidate]:
    yield from _planes(NAMES)
    yield from (_drawn_plane(rng, NAMES) for _ in range(draws))


def _drawn_plane(rng: np.random.Generator, names: tuple[str, ...]) -> Candidate:
    name, a, w = (str(rng.choice(kinds)) for kinds in (names, list(PLANES), list(PLANES)))
    return Candidate(name, a, w, floating=True)


@in_float64(
    "Thm 3.1 (orbits)",
    _candidates,
    control(
        "{a₁ = a₂} without w₁ = w₂, taken for invariant",
        lambda: Candidate("exp", "₁ = ₂"),
        structural=lambda candidate: True,
    ),
    draws=10,
)
def equivalent(candidate: Candidate, structural: Any = is_structural) -> Check:
    """A set is invariant under all losses exactly when it is under all fields, exactly when it is
    a union of orbits.

    Invariance under all losses, under all fields, and under the brackets: how many of the
    three differ from the second.
    """
    rng = np.random.default_rng(1)
    under_fields = structural(candidate)
    under_losses = all(keeps(candidate, loss, rng) for loss in cast.LOSSES)
    different = (under_losses != under_fields) + (holds_orbits(candidate, rng) != under_fields)
    return equal(different, 0, activation=candidate.name, a_SIM=under_fields)


def satisfies_p31(loss: str) -> bool:
    """∀s ∃t ∇ℓ₀(s, t) ≠ 0, on a grid with s = 0."""
    s, t = np.meshgrid(np.linspace(-3, 3, 25), np.linspace(-3, 3, 25))
    return bool((cast.SLOPES[loss](s, t) != 0).any(axis=0).all())


def _sets(rng: np.random.Generator, draws: int) -> Iterator[Candidate]:
    for name in ("exp", "tanh", "cos"):
        yield from (Candidate(name, point=point) for point in cast.grid(2, 1, (0, 1)))
    yield from _planes(("exp", "tanh", "cos"))
    for _ in range(draws):
        yield _drawn_plane(rng, ("silu", "z - sin(z) + cos(z)"))


@in_float64(
    "P 3.1",
    _sets,
    control(
        "ℓ₀ = s²/2, whose slope is 0 at s = 0: the point a = (0, 0), w = (1, 1) stays, since F = 0, and is no SIM",
        lambda: Candidate("exp", point=((0, 1), (0, 1))),
        allowed=lambda loss: loss == "s²/2",
    ),
    draws=10,
)
def one_loss(candidate: Candidate, allowed: Any = satisfies_p31) -> Check:
    """A manifold invariant under one loss ℓ₀ with ∇ℓ₀(s, ·) ≢ 0 for every s, over all data sets,
    is a SIM.

    For how many single losses ℓ₀ invariance over all data differs from being a SIM.
    """
    rng = np.random.default_rng(2)
    chosen = [loss for loss in cast.SLOPES if allowed(loss)]
    different = sum(keeps(candidate, loss, rng) != is_structural(candidate) for loss in chosen)
    kind = "linear space" if candidate.point is None else "point"
    hypotheses = {"activation": candidate.name, "set": kind, "losses": len(chosen)}
    return equal(different, 0, comparisons=len(chosen), hypotheses=hypotheses)
