"""`bottleneck`, the figures: what training left, read from the study's summary.
[bottleneck, Fig 1, Fig 2]
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuromanifold_papers.bottleneck.statements.cases import PAPER, statement
from neuromanifold_papers.check import Check, outside
from neuromanifold_papers.recorded import Claims, StudyCases, read_claims
from neuromanifold_papers.statement import Control, Statement

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_RANGE = re.compile(
    rf"rank (\d+) at L = (\d+)–(\d+): slope {_NUMBER} ± {_NUMBER}"
    rf"(?:, with a term 1/L {_NUMBER} ± {_NUMBER})?, of \(loss \+ λ‖θ‖²\)/λ {_NUMBER}"
)
_FAILED_COST = 0.1
_ORBIT_SHARE = 0.1
_PLANAR = 0.99


def _measured(claims: Claims, figure: str, word: str) -> Any:
    """What was measured for the claim of that figure whose text holds the word, or None."""
    found = [c["measured"] for c in claims if c["figure"] == figure and word in c["claim"]]
    return found[0] if found else None


def _by_depth(measured: Any) -> dict[int, float]:
    """JSON's string keys as depths or layers, in order; nothing where nothing was measured."""
    known = measured if isinstance(measured, Mapping) else {}
    return dict(sorted((int(key), float(value)) for key, value in known.items()))


@dataclass(frozen=True)
class Fit:
    """A range of depths of one middle rank with the fitted slopes of ‖θ‖² and half-widths of
    their 95 % intervals.
    """

    rank: int
    depths: tuple[int, int]
    slope: float
    half_width: float
    corrected: float | None
    corrected_half_width: float | None
    objective: float


def read_fit(text: str) -> Fit | None:
    """`rank 3 at L = 6–16: slope 2.185 ± 0.321, with a term 1/L 2.926 ± 0.536, of (loss + λ‖θ‖²)/λ
    1.846`

    >>> from neuromanifold_papers.bottleneck.statements.figures import read_fit
    >>> read_fit("rank 3 at L = 6–16: slope 2.185 ± 0.321, of (loss + λ‖θ‖²)/λ 1.846").slope
    2.185
    """
    found = _RANGE.match(text)
    if found is None:
        return None
    rank, low, high, slope, half, corrected, corrected_half, objective = found.groups()
    return Fit(
        int(rank),
        (int(low), int(high)),
        float(slope),
        float(half),
        None if corrected is None else float(corrected),
        None if corrected_half is None else float(corrected_half),
        float(objective),
    )


def pick_fits(claims: Claims) -> list[Fit]:
    """The ranges, one case each."""
    texts = _measured(claims, "1a", "affine")
    found = [read_fit(str(text)) for text in texts] if isinstance(texts, list) else []
    return [fit for fit in found if fit is not None]


def measure_slope(fit: Fit) -> Check:
    """How far the slope of the straight line lies from the rank, against the half-width of its
    95 % interval.
    """
    distance = abs(fit.slope - fit.rank)
    return Check(
        distance, fit.half_width, "<=", hypotheses={"rank": fit.rank, "depths": str(fit.depths)}
    )


def confirm_slope(fit: Fit) -> Check:
    """The same for the slope of (loss + λ‖θ‖²)/λ, which is what training minimises."""
    return Check(abs(fit.objective - fit.rank), fit.half_width, "<=")


@dataclass(frozen=True)
class Step:
    """Two neighbouring depths with a measured number at each, and the fitted ranges."""

    shallow: int
    deep: int
    before: float
    after: float
    fits: tuple[Fit, ...] = ()


def pick_ranks(claims: Claims) -> Iterator[Step]:
    """The middle rank at neighbouring depths where both train costs are below 0.1."""
    ranks, costs = (
        _by_depth(_measured(claims, "1a", "smaller middle rank")),
        _by_depth(_measured(claims, "1a", "fails")),
    )
    fitted = [L for L in ranks if costs.get(L, 0.0) < _FAILED_COST]
    fits = tuple(pick_fits(claims))
    yield from (Step(a, b, ranks[a], ranks[b], fits) for a, b in itertools.pairwise(fitted))


def measure_falling(step: Step) -> Check:
    return Check(
        int(step.after),
        int(step.before),
        "<=",
        hypotheses={"depth": step.deep, "rank": int(step.after)},
    )


def confirm_falling(step: Step) -> Check:
    """From the fits of ‖θ‖²: the last depth of a range with the smaller rank reaches the deeper
    network, if the rank stayed.
    """
    last = max((f.depths[1] for f in step.fits if f.rank <= step.before), default=step.shallow)
    return Check(last, step.deep, ">=")


@dataclass(frozen=True)
class Deep:
    """A depth above 25 with its train cost and middle rank; `depth` 0 where no network is that
    deep.
    """

    depth: int
    cost: float
    rank: float


def pick_deep(claims: Claims) -> Iterator[Deep]:
    """The depths above 25, or one case that says nothing."""
    costs, ranks = (
        _by_depth(_measured(claims, "1a", "fails")),
        _by_depth(_measured(claims, "1a", "smaller middle rank")),
    )
    found = [Deep(L, cost, ranks.get(L, 0.0)) for L, cost in costs.items() if L > 25]
    yield from found or [Deep(0, 0.0, 0.0)]


def measure_failure(case: Deep) -> Check:
    """A failed training leaves a cost above 0.1."""
    shallow = outside("no network deeper than 25 was trained", when=case.depth == 0)
    return Check(case.cost, _FAILED_COST, ">=", hypotheses={"depth": case.depth}, drops=shallow)


def confirm_failure(case: Deep) -> Check:
    """Zero parameters have middle rank 0."""
    return Check(int(case.rank), 0)


def pick_middle(claims: Claims) -> Iterator[dict[int, float]]:
    """The number of bottleneck layers by depth, for each range of depths of one middle rank."""
    layers, ranks = (
        _by_depth(_measured(claims, "1b", "middle grows")),
        _by_depth(_measured(claims, "1a", "smaller middle rank")),
    )
    for _, depths in itertools.groupby(layers, key=ranks.get):
        if len(found := {depth: layers[depth] for depth in depths}) > 1:
            yield found


def measure_growing(counts: dict[int, float], essentially: int = 1) -> Check:
    """By how much the number of layers outside the low-rank middle varies over the range: by one
    at most.
    """
    ends = [depth - count for depth, count in counts.items()]
    depths = f"{min(counts)}–{max(counts)}"
    return Check(
        int(max(ends) - min(ends)),
        essentially,
        "<=",
        hypotheses={"depths": depths},
        comparisons=len(ends),
    )


def _recorded_middle() -> dict[int, float]:
    """The depths from 24 on, with the middle that they have at depth 24."""
    [found] = pick_middle(read_claims(PAPER))
    return {depth: found[24] for depth in found if depth >= 24}


def pick_outliers(claims: Claims) -> list[dict[int, float]]:
    """The number of singular values above ½ by layer, in one case."""
    found = _by_depth(_measured(claims, "2a", "outlying"))
    return [found] if found else []


def measure_outliers(counts: dict[int, float], rank: int = 2) -> Check:
    """How many of the middle half of the layers have another number than two."""
    quarter = len(counts) // 4
    inner = [count for layer, count in counts.items() if quarter < layer <= len(counts) - quarter]
    few = outside("no middle half", when=not inner)
    return Check(
        sum(count != rank for count in inner), 0, "<=", hypotheses={"layers": len(inner)}, drops=few
    )


def pick_plane(claims: Claims) -> list[Mapping[str, Any]]:
    """The planarity of layer 6 and the R² of the statistics, in one case."""
    found = _measured(claims, "2b", "planar")
    return [found] if isinstance(found, Mapping) else []


def measure_planar(found: Mapping[str, Any]) -> Check:
    return Check(
        float(found["share of variance in two directions"]),
        _PLANAR,
        ">=",
        hypotheses={"layer": "shown"},
    )


def measure_recovered(found: Mapping[str, Any]) -> Check:
    """The share of the statistics' variance left unexplained by the layer's plane, against that
    left by the input's own plane.
    """
    left = 1 - min(found["R² of the true statistics"])
    right = 1 - min(found["R² from the input's own first two directions"])
    return Check(left, right / 2, "<=", hypotheses={"layer": "shown"})


def pick_orbits(claims: Claims) -> list[Mapping[str, Any]]:
    """The variance within rotation orbits, trained and untrained, in one case."""
    found = _measured(claims, "2c", "orbit")
    return [found] if isinstance(found, Mapping) else []


def measure_orbits(found: Mapping[str, Any]) -> Check:
    """Trained against a tenth of what it was before."""
    return Check(
        found["variance within orbits"],
        _ORBIT_SHARE * found["untrained"],
        "<=",
        hypotheses={"layer": "second hidden"},
    )


def _from_study(
    id: str, says: str, pick: Any, measure: Any, control: Control, **fields: Any
) -> Statement:
    return statement(
        id,
        id[:5],
        says,
        method="training",
        cases=StudyCases(PAPER, pick),
        measure=measure,
        control=control,
        **fields,
    )


_FLAT = Fit(3, (4, 8), 0.0, 0.05, 0.0, 0.05, 0.0)
_A_THIRD = {"variance within orbits": 0.15, "untrained": 0.45}
_INPUT = {
    "share of variance in two directions": 0.5,
    "R² of the true statistics": [0.99, 0.7],
    "R² from the input's own first two directions": [0.99, 0.7],
}

STATEMENTS = (
    _from_study(
        "Fig 1 (slope)",
        "within a range of depths of one middle rank, ‖θ‖² at the end of training is affine in L "
        "with slope equal "
        "to the rank",
        pick_fits,
        measure_slope,
        Control("a norm that does not grow with the depth", case=lambda: _FLAT),
        confirm=confirm_slope,
        route="slope of (loss + λ‖θ‖²)/λ",
        narrower="within the 95 % interval of the fitted slope",
        worked="""
The expansion R(f; L) = L·R⁽⁰⁾ + R⁽¹⁾ + R⁽²⁾/L + … is itself not affine: the last term bends the line at these depths, and at a
finite ridge the function changes with the depth. The straight line's slope misses the rank by more than its 95 % interval; with
a term 1/L in the fit it does not at the small scale; at width 200 it is 3.037 ± 0.034 on L = 5 … 23, off by 1.2 %, the size of
what the expansion leaves out.
""",
        missing="the optimiser, its rate and duration, the initialisation",
    ),
    _from_study(
        "Fig 1 (rank)",
        "larger depths lead to smaller middle rank (singular values of W_{L/2} above 0.1)",
        pick_ranks,
        measure_falling,
        Control("the depths in reverse order", case=lambda: Step(4, 6, 3.0, 10.0)),
        confirm=confirm_falling,
        route="depths of the ranges fitted to ‖θ‖²",
        narrower="from depth to depth where the train cost is below 0.1; that the rank falls to 2 "
        "is not asked",
        worked="""
At the deepest network the middle rank rises by one instead of falling, and with it the train cost; the range of the smaller
rank ends one depth before. One training run of this kind at the edge of trainability is all that speaks against the claim.
""",
        missing="the optimiser, its rate and duration, the initialisation",
    ),
    _from_study(
        "Fig 1 (failure)",
        "for L > 25 training fails and recovers the zero parameters: a train cost above 0.1",
        pick_deep,
        measure_failure,
        Control("a network that fits, at L = 16", case=lambda: Deep(16, 0.0034, 3.0)),
        confirm=confirm_failure,
        route="middle rank, 0 at zero parameters",
        narrower="with Adam and L-BFGS, as the paper leaves the optimiser open",
        worked="""
With our optimiser and initialisation networks deeper than 25 fit the data: their train cost is some hundredths of the threshold
0.1 (half of it at L = 32), and their middle weights have rank 3 instead of 0. The paper does not say how it trained.
""",
        missing="the optimiser, its rate and duration, the initialisation",
    ),
    _from_study(
        "Fig 1 (middle)",
        "within a range of depths only the low-rank middle grows with the depth",
        pick_middle,
        measure_growing,
        Control("depths 24 to 31 with a middle that does not grow", case=_recorded_middle),
        narrower="in the bottleneck: closer than ½ to a partial isometry of the middle rank",
        worked="""
From L = 24 to 31 all but six layers are in the bottleneck, at every depth: only the middle grows. Below, no layer is up to
L = 14, and the number of layers outside falls from 14 to 7 up to L = 23, although the middle rank is 3 from L = 5 on.
""",
        missing="the optimiser, its rate and duration, the initialisation",
    ),
    _from_study(
        "Fig 2 (a)",
        "the weights in the bottleneck have two outlying singular values: the network finds the "
        "true rank 2",
        pick_outliers,
        measure_outliers,
        Control(
            "rank 3 asked for",
            case=lambda: pick_outliers(read_claims(PAPER))[0],
            breaks={"rank": 3},
        ),
        narrower="in the middle half of the layers; outlying means above ½",
        worked="""
Layers 3 to 7 and 14 to 22 have two singular values above ½, layers 8 to 13 have three, with a train cost of 0.0006 and ‖θ‖² = 84.3.
""",
        missing="the optimiser, its rate and duration, the initialisation, dimension and noise of "
        "the task",
    ),
    _from_study(
        "Fig 2 (b, planar)",
        "the representation of layer 6 is planar",
        pick_plane,
        measure_planar,
        Control(
            "the input itself, four dimensions of equal variance",
            case=lambda: _INPUT,
        ),
        narrower="99 % of the variance on unseen paths in two directions",
    ),
    _from_study(
        "Fig 2 (b, statistics)",
        "the coordinates of that plane determine the summary statistics, so that paths of "
        "gradient descent do not "
        "cross in it",
        pick_plane,
        measure_recovered,
        Control("the input's own first two directions", case=lambda: _INPUT),
        narrower="polynomials of degree 5 leave less than half of what they leave in the input's "
        "own plane",
    ),
    _from_study(
        "Fig 2 (c)",
        "points of one rotation orbit collapse in layer 2: the network has learned the symmetry",
        pick_orbits,
        measure_orbits,
        Control("a network that keeps a third of it", case=lambda: _A_THIRD),
        narrower="the share of the variance within orbits falls to a tenth of what it was before "
        "training",
    ),
)
