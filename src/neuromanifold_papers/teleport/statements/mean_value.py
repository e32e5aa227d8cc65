"""[teleport] on functions with kinks: the barycentric mean value.   Cor. G.1"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, statement

ZERO, ONE = Fraction(0), Fraction(1)
Piece = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Broken:
    """A continuous function on [a, b], on each piece between its kinks q(t − left)² + p(t −
    left) + the value reached so far.
    """

    knots: tuple[Fraction, ...]
    pieces: tuple[Piece, ...]

    def ends(self) -> list[Fraction]:
        """f(b) − f(a), piece by piece."""
        pairs = zip(self.pieces, gaps(self.knots), strict=True)
        return [q * w * w + p * w for (q, p), w in pairs]

    def slope(self, piece: int, t: Fraction) -> Fraction:
        """f'(t) within a piece."""
        q, p = self.pieces[piece]
        return 2 * q * (t - self.knots[piece]) + p

    def __str__(self) -> str:
        pieces = [tuple(map(str, piece)) for piece in self.pieces]
        return f"knots = {list(map(str, self.knots))}; pieces = {pieces}"


def gaps(knots: Sequence[Fraction]) -> list[Fraction]:
    """The lengths of the pieces."""
    return [right - left for left, right in pairwise(knots)]


def functions(rng: np.random.Generator, count: int) -> Iterator[Broken]:
    """All with kinks among 1, 2, 3 in [0, 4] and slopes −1, 0, 2, straight or curved; then
    random ones.
    """
    slopes = (Fraction(-1), Fraction(0), Fraction(2))
    for size in range(3):
        for inner, bend in product(combinations((1, 2, 3), size), (Fraction(0), Fraction(-1))):
            knots = tuple(map(Fraction, (0, *inner, 4)))
            for chosen in product(slopes, repeat=size + 1):
                yield Broken(knots, tuple((bend, p) for p in chosen))
    for _ in range(count):
        size = int(rng.integers(0, 7))
        knots = tuple(sorted({Fraction(int(k), 11) for k in rng.integers(-90, 90, size + 2)}))
        if len(knots) > 1:
            pairs = rng.integers(-9, 10, (len(knots) - 1, 2))
            yield Broken(knots, tuple((Fraction(int(q), 4), Fraction(int(p))) for q, p in pairs))


def weights(knots: Sequence[Fraction]) -> list[Fraction]:
    """λ_j = (d_j − d_{j−1})/(b − a).   [teleport, Eq. 95]"""
    return [gap / (knots[-1] - knots[0]) for gap in gaps(knots)]


def points(knots: Sequence[Fraction]) -> list[Fraction]:
    """Where each piece has its mean slope: for a parabola, the middle."""
    return [(left + right) / 2 for left, right in pairwise(knots)]


@statement(
    "G.1",
    functions,
    control(
        "both pieces with equal weights, for |t| on [−1, 2], whose mean slope is 1/3",
        lambda: Broken(tuple(map(Fraction, (-1, 0, 2))), ((ZERO, -ONE), (ZERO, ONE))),
        of=lambda knots: [Fraction(1, len(knots) - 1)] * (len(knots) - 1),
    ),
)
def g_1(case: Broken, of: Any = weights) -> Check:
    """The mean slope of a continuous function with finitely many kinks is Σ λ_j f'(c_j), with λ_j
    > 0 and Σ λ_j = 1.
    """
    shares, places = of(case.knots), points(case.knots)
    inside = all(case.knots[0] < c < case.knots[-1] for c in places)
    proper = min(shares) > 0 and sum(shares) == 1 and inside
    mean = sum(case.ends()) / (case.knots[-1] - case.knots[0])
    pairs = enumerate(zip(shares, places, strict=True))
    found = sum(share * case.slope(k, c) for k, (share, c) in pairs)
    return equal(found - mean if proper else Fraction(1), 0, kinks=len(shares) - 1)


@statement(
    "G.1 (proof)",
    functions,
    control(
        "the left end for the middle, for 2t − t² on [0, 4]: slopes 2 and −2",
        lambda: Broken((ZERO, 4 * ONE), ((-ONE, 2 * ONE),)),
        at=lambda knots: list(knots[:-1]),
    ),
)
def g_1_proof(case: Broken, at: Any = points) -> Check:
    """On every piece some c_j has the mean slope of the piece, the weights are positive and sum to
    1, and the weighted sum telescopes to (f(b) − f(a))/(b − a) (Eqs 94 to 98).
    """
    shares, places = weights(case.knots), at(case.knots)
    slopes = [end / gap for end, gap in zip(case.ends(), gaps(case.knots), strict=True)]
    pairs = enumerate(zip(places, slopes, strict=True))
    wrong = sum(case.slope(k, c) != slope for k, (c, slope) in pairs)
    wrong += sum(shares) != 1 or min(shares) <= 0
    steps = sum(share * slope for share, slope in zip(shares, slopes, strict=True))
    wrong += steps != sum(case.ends()) / (case.knots[-1] - case.knots[0])
    return equal(wrong, 0, comparisons=len(slopes) + 2, kinks=len(shares) - 1)
