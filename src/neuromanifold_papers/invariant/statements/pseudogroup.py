"""invariant, App. A.2: the composition of local diffeomorphisms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check
from neuromanifold_papers.statement import Control, Statement

Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Shift:
    """x ↦ x + by on an open interval of ℝ."""

    low: int
    high: int
    by: int

    def __call__(self, x: Fraction) -> Fraction:
        return x + self.by

    @property
    def inverse(self) -> "Shift":
        return Shift(self.low + self.by, self.high + self.by, -self.by)

    def defined(self, x: Fraction) -> bool:
        return self.low < x < self.high


def printed_domain(f: Shift, g: Shift, x: Fraction) -> bool:
    """Dom(f) ∩ Dom(g).   [invariant, Eq. 6]"""
    return f.defined(x) and g.defined(x)


def preimage_domain(f: Shift, g: Shift, x: Fraction) -> bool:
    """Dom(g) ∩ g⁻¹(Dom(f)): where f∘g is defined."""
    return g.defined(x) and f.defined(g(x))


Domain = Callable[[Shift, Shift, Fraction], bool]
POINTS = tuple(Fraction(n, 2) for n in range(-9, 26))


def _composable(case: tuple[Shift, Shift], domain: Domain) -> Check:
    """At how many of the points of a grid the domain and the possibility of g and then f
    disagree.
    """
    f, g = case
    wrong = sum(domain(f, g, x) != (g.defined(x) and f.defined(g(x))) for x in POINTS)
    return Check(wrong, 0, hypotheses={"inverse pair": f == g.inverse}, comparisons=len(POINTS))


def _against_eq_7(case: tuple[Shift, Shift]) -> Check:
    """Eq. 7 prints that f⁻¹∘f is the identity of Dom(f); by Eq. 6 its domain is Dom(f⁻¹) ∩
    Dom(f).
    """
    f = case[1]
    wrong = sum(printed_domain(f.inverse, f, x) != f.defined(x) for x in POINTS)
    return Check(wrong, 0)


def _shifts(rng: np.random.Generator, draws: int) -> Iterator[tuple[Shift, Shift]]:
    yield Shift(10, 11, -10), Shift(0, 1, 10)
    every = [Shift(low, low + size, by) for low, size, by in product((0, 1), (1, 3), (-2, 0, 2))]
    yield from product(every, every)


EQ_6 = Statement(
    paper="invariant",
    row="Thm 3.1",
    id="Eq 6 (domain)",
    says="local diffeomorphisms compose to f∘g on Dom(f) ∩ Dom(g)",
    method="exact",
    cases=_shifts,
    measure=lambda case, domain=printed_domain: _composable(case, domain),
    control=Control(
        "Dom(f) ∩ Dom(g), for a shift and its inverse",
        case=lambda: (Shift(10, 11, -10), Shift(0, 1, 10)),
        breaks={"domain": printed_domain},
    ),
    confirm=_against_eq_7,
    route="against Eq. 7 of the same page, f⁻¹∘f = id on Dom(f)",
    worked="""g(x) = x + 10 on (0, 1) and its inverse f(x) = x − 10 on (10, 11): f∘g is defined on (0, 1), as Eq. 7 says, but
Dom(f) ∩ Dom(g) is empty. The domain of f∘g is Dom(g) ∩ g⁻¹(Dom(f)); with it, the operation is associative and Eq. 7 and
8 hold. Nothing else in the paper uses Eq. 6.""",
    amended=Statement(
        paper="invariant",
        row="Thm 3.1",
        id="Eq 6 (domain), amended",
        says="f∘g is defined on Dom(g) ∩ g⁻¹(Dom(f)), and (f∘g)∘h and f∘(g∘h) have one domain",
        method="exact",
        cases=lambda rng, draws: (
            (f, g, h)
            for (f, g), h in product(list(_shifts(rng, draws)), (Shift(0, 3, 0), Shift(0, 1, 2)))
        ),
        measure=lambda case, domain=preimage_domain: _associative(case, domain),
        control=Control(
            "the printed domains",
            case=lambda: (Shift(10, 11, -10), Shift(0, 1, 10), Shift(0, 1, 0)),
            breaks={"domain": printed_domain},
        ),
        proof="Both are {x ∈ Dom(h) : h(x) ∈ Dom(g), g(h(x)) ∈ Dom(f)}.",
    ),
)


def _associative(case: tuple[Shift, Shift, Shift], domain: Domain) -> Check:
    """Points at which the composition f∘g∘h, by its domain for (g, h) and then for f, disagrees
    with what can be composed.
    """
    f, g, h = case
    wrong = 0
    for x in POINTS:
        can: Any = h.defined(x) and g.defined(h(x)) and f.defined(g(h(x)))
        inner = domain(g, h, x) and domain(f, Shift(-99, 99, g.by + h.by), x)
        wrong += inner != can
    return Check(wrong, 0, comparisons=len(POINTS))
