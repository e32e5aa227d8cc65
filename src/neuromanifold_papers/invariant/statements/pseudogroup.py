"""invariant, App. A.2: the composition of local diffeomorphisms."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, statement

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


POINTS = tuple(Fraction(n, 2) for n in range(-9, 26))


def _against_eq_7(case: tuple[Shift, Shift]) -> Check:
    """Eq. 7 prints that f⁻¹∘f is the identity of Dom(f); by Eq. 6 its domain is Dom(f⁻¹) ∩
    Dom(f).
    """
    f = case[1]
    wrong = sum(printed_domain(f.inverse, f, x) != f.defined(x) for x in POINTS)
    return equal(wrong, 0)


def _shifts(rng: np.random.Generator, draws: int) -> Iterator[tuple[Shift, Shift]]:
    yield Shift(10, 11, -10), Shift(0, 1, 10)
    every = [Shift(low, low + size, by) for low, size, by in product((0, 1), (1, 3), (-2, 0, 2))]
    yield from product(every, every)


@statement(
    "Eq 6 (domain)",
    _shifts,
    control(
        "Dom(f) alone, where Dom(f) ∩ Dom(g) is right: f = 1 on (0, 3), g = 1 on (0, 1)",
        lambda: (Shift(0, 3, 0), Shift(0, 1, 0)),
        domain=lambda f, g, x: f.defined(x),
    ),
    confirm=_against_eq_7,
)
def eq_6(case: Any, domain: Any = printed_domain) -> Check:
    """Local diffeomorphisms compose to f∘g on Dom(f) ∩ Dom(g).

    At how many of the points of a grid the domain and the possibility of g and then f disagree.
    """
    f, g = case
    wrong = sum(domain(f, g, x) != (g.defined(x) and f.defined(g(x))) for x in POINTS)
    return equal(wrong, 0, comparisons=len(POINTS), inverse_pair=f == g.inverse)


@eq_6.amend(
    control(
        "the printed domains",
        lambda: (Shift(10, 11, -10), Shift(0, 1, 10), Shift(0, 1, 0)),
        domain=printed_domain,
    ),
    cases=lambda rng, draws: (
        (f, g, h)
        for (f, g), h in product(list(_shifts(rng, draws)), (Shift(0, 3, 0), Shift(0, 1, 2)))
    ),
)
def eq_6_domain_amended(case: Any, domain: Any = preimage_domain) -> Check:
    """f∘g is defined on Dom(g) ∩ g⁻¹(Dom(f)), and (f∘g)∘h and f∘(g∘h) have one domain.

    Points at which the composition f∘g∘h, by its domain for (g, h) and then for f, disagrees with
    what can be composed.
    """
    f, g, h = case
    wrong = 0
    for x in POINTS:
        can: Any = h.defined(x) and g.defined(h(x)) and f.defined(g(h(x)))
        inner = domain(g, h, x) and domain(f, Shift(-99, 99, g.by + h.by), x)
        wrong += inner != can
    return equal(wrong, 0, comparisons=len(POINTS))


def _composed(f: Shift, g: Shift, domain: Any) -> tuple[frozenset[Fraction], int]:
    """The points of the grid where f·g is defined, and its shift."""
    return frozenset(x for x in POINTS if domain(f, g, x)), f.by + g.by


@statement(
    "Eq 6 (monoid)",
    _shifts,
    control(
        "domains as printed, Dom(f) ∩ Dom(g)",
        lambda: (Shift(10, 11, -10), Shift(0, 1, 10)),
        domain=printed_domain,
    ),
)
def eq_6_monoid(case: tuple[Shift, Shift], domain: Any = preimage_domain) -> Check:
    """Composition where it is defined is associative with the identity of M as its unit; f⁻¹·f and
    f·f⁻¹ are the identities of Dom(f) and Dom(f⁻¹), that of M only when Dom(f) = M: only global
    diffeomorphisms have an inverse.
    """
    f, g = case
    unit = Shift(-99, 99, 0)
    wrong = _composed(f, unit, domain) != _composed(unit, f, domain)
    wrong += _composed(f, unit, domain)[0] != frozenset(x for x in POINTS if f.defined(x))
    for one in (f, f.inverse):
        inverse, by = _composed(one.inverse, one, domain)
        wrong += inverse != frozenset(x for x in POINTS if one.defined(x)) or by != 0
        wrong += len(inverse) == len(POINTS)
    for x in POINTS:
        # (f·g)·f and f·(g·f) at x, each step by its own domain
        left = f.defined(x) and domain(f, g, f(x))
        right = domain(g, f, x) and f.defined(g(f(x)))
        wrong += left != right
    return equal(int(wrong), 0, comparisons=6 + len(POINTS))
