"""[teleport] on functions with kinks: the barycentric mean value.   Cor. G.1"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, statement

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
        widths = [right - left for left, right in zip(self.knots, self.knots[1:], strict=False)]
        return [q * w * w + p * w for (q, p), w in zip(self.pieces, widths, strict=True)]

    def slope(self, piece: int, t: Fraction) -> Fraction:
        """f'(t) within a piece."""
        q, p = self.pieces[piece]
        return 2 * q * (t - self.knots[piece]) + p

    def __str__(self) -> str:
        return (
            f"knots = {list(map(str, self.knots))}; pieces = "
            f"{[tuple(map(str, piece)) for piece in self.pieces]}"
        )


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
    whole = knots[-1] - knots[0]
    return [(right - left) / whole for left, right in zip(knots, knots[1:], strict=False)]


def points(knots: Sequence[Fraction]) -> list[Fraction]:
    """Where each piece has its mean slope: for a parabola, the middle."""
    return [(left + right) / 2 for left, right in zip(knots, knots[1:], strict=False)]


_ABSOLUTE = Broken(
    (Fraction(-1), Fraction(0), Fraction(2)),
    ((Fraction(0), Fraction(-1)), (Fraction(0), Fraction(1))),
)
"""|t| on [−1, 2], whose mean slope is 1/3."""


@statement(
    "G.1",
    functions,
    control(
        "both pieces with equal weights, for |t| on [−1, 2]",
        lambda: _ABSOLUTE,
        of=lambda knots: [Fraction(1, len(knots) - 1)] * (len(knots) - 1),
    ),
)
def g_1(case: Broken, of: Callable[[Sequence[Fraction]], list[Fraction]] = weights) -> Check:
    """The mean slope of a continuous function with finitely many kinks is Σ λ_j f'(c_j), with λ_j
    > 0 and Σ λ_j = 1.

    (f(b) − f(a))/(b − a) against Σ λ_j f'(c_j), with λ_j > 0, Σ λ_j = 1 and c_j inside.
    """
    shares, places = of(case.knots), points(case.knots)
    inside = all(case.knots[0] < c < case.knots[-1] for c in places)
    proper = min(shares) > 0 and sum(shares) == 1 and inside
    mean = sum(case.ends()) / (case.knots[-1] - case.knots[0])
    found = sum(
        share * case.slope(k, c) for k, (share, c) in enumerate(zip(shares, places, strict=True))
    )
    return equal(found - mean if proper else Fraction(1), 0, kinks=len(shares) - 1)


@statement(
    "G.1 (proof)",
    functions,
    control("the left ends for the middles", lambda: _CURVED, at=lambda knots: list(knots[:-1])),
)
def g_1_proof(case: Broken, at: Callable[[Sequence[Fraction]], list[Fraction]] = points) -> Check:
    """On every piece some c_j has the mean slope of the piece, the weights are positive and sum to
    1, and the weighted sum telescopes to (f(b) − f(a))/(b − a) (Eqs 94 to 98).
    """
    shares, places = weights(case.knots), at(case.knots)
    gaps = [right - left for left, right in zip(case.knots, case.knots[1:], strict=False)]
    wrong = sum(
        case.slope(k, c) != end / gap
        for k, (c, end, gap) in enumerate(zip(places, case.ends(), gaps, strict=True))
    )
    wrong += sum(shares) != 1 or min(shares) <= 0
    steps = sum(
        (share * end / gap for share, end, gap in zip(shares, case.ends(), gaps, strict=True)),
        Fraction(0),
    )
    wrong += steps != sum(case.ends()) / (case.knots[-1] - case.knots[0])
    return equal(wrong, 0, comparisons=len(gaps) + 2, kinks=len(shares) - 1)


_CURVED = Broken((Fraction(0), Fraction(4)), ((Fraction(-1), Fraction(2)),))
"""2t − t² on [0, 4], whose slope at 0 is 2 and whose mean slope is −2."""
