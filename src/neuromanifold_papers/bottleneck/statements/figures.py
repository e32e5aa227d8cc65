"""`bottleneck`, the figures: what training left, read from the study's summary.
[bottleneck, Fig 1, Fig 2]
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neuromanifold_papers.bottleneck.statements.cases import PAPER
from neuromanifold_papers.check import Check, at_least, at_most, equal, outside
from neuromanifold_papers.recorded import Claims, StudyCases, read_claims
from neuromanifold_papers.statement import by_training, control

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


def _by_depth(claims: Claims, figure: str, word: str) -> dict[int, float]:
    """What was measured by depth or layer, in order; nothing where nothing was measured."""
    measured = _measured(claims, figure, word)
    return _in_order(measured) if isinstance(measured, Mapping) else {}


def _in_order(measured: Mapping[Any, Any]) -> dict[int, float]:
    """JSON's string keys as numbers."""
    return dict(sorted((int(key), float(value)) for key, value in measured.items()))


def _ranks_and_costs(claims: Claims) -> tuple[dict[int, float], dict[int, float]]:
    """The middle rank and the train cost by depth."""
    return _by_depth(claims, "1a", "smaller middle rank"), _by_depth(claims, "1a", "fails")


@dataclass(frozen=True)
class Fit:
    """A range of depths of one middle rank with the fitted slopes of ‖θ‖² and half-widths of
    their 95 % intervals.
    """

    rank: int
    depths: tuple[int, int]
    slope: float
    half_width: float
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
    rank, low, high, slope, half, _, _, objective = found.groups()
    depths = int(low), int(high)
    return Fit(int(rank), depths, float(slope), float(half), float(objective))


def pick_fits(claims: Claims) -> list[Fit]:
    """The ranges, one case each."""
    texts = _measured(claims, "1a", "affine")
    found = [read_fit(str(text)) for text in texts] if isinstance(texts, list) else []
    return [fit for fit in found if fit is not None]


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
    ranks, costs = _ranks_and_costs(claims)
    fitted = [L for L in ranks if costs.get(L, 0.0) < _FAILED_COST]
    fits = tuple(pick_fits(claims))
    yield from (Step(a, b, ranks[a], ranks[b], fits) for a, b in itertools.pairwise(fitted))


def confirm_falling(step: Step) -> Check:
    """From the fits of ‖θ‖²: the last depth of a range with the smaller rank reaches the deeper
    network, if the rank stayed.
    """
    last = max((f.depths[1] for f in step.fits if f.rank <= step.before), default=step.shallow)
    return at_least(last, step.deep)


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
    ranks, costs = _ranks_and_costs(claims)
    found = [Deep(L, cost, ranks.get(L, 0.0)) for L, cost in costs.items() if L > 25]
    yield from found or [Deep(0, 0.0, 0.0)]


def pick_middle(claims: Claims) -> Iterator[dict[int, float]]:
    """The number of bottleneck layers by depth, for each range of depths of one middle rank."""
    layers, (ranks, _) = _by_depth(claims, "1b", "middle grows"), _ranks_and_costs(claims)
    for _, depths in itertools.groupby(layers, key=ranks.get):
        if len(found := {depth: layers[depth] for depth in depths}) > 1:
            yield found


def _recorded_middle() -> dict[int, float]:
    """The depths from 24 on, with the middle that they have at depth 24."""
    [found] = pick_middle(read_claims(PAPER))
    return {depth: found[24] for depth in found if depth >= 24}


def _one_case(figure: str, word: str) -> StudyCases:
    """The numbers measured for one claim as the only case; none where nothing was measured."""

    def pick(claims: Claims) -> list[Mapping[str, Any]]:
        found = _measured(claims, figure, word)
        return [found] if isinstance(found, Mapping) and found else []

    return StudyCases(PAPER, pick)


_FLAT = Fit(3, (4, 8), 0.0, 0.05, 0.0)
_A_THIRD = {"variance within orbits": 0.15, "untrained": 0.45}
_INPUT = {
    "share of variance in two directions": 0.5,
    "R² of the true statistics": [0.99, 0.7],
    "R² from the input's own first two directions": [0.99, 0.7],
}


@by_training(
    "Fig 1 (slope)",
    StudyCases(PAPER, pick_fits),
    control("a norm that does not grow with the depth", lambda: _FLAT),
    # The same for the slope of (loss + λ‖θ‖²)/λ, which is what training minimises.
    confirm=lambda fit: at_most(abs(fit.objective - fit.rank), fit.half_width),
)
def measure_slope(fit: Fit) -> Check:
    """Within a range of depths of one middle rank, ‖θ‖² at the end of training is affine in L
    with slope equal to the rank.

    How far the slope of the straight line lies from the rank, against the half-width of its
    95 % interval.
    """
    distance = abs(fit.slope - fit.rank)
    return at_most(distance, fit.half_width, rank=fit.rank, depths=str(fit.depths))


@by_training(
    "Fig 1 (rank)",
    StudyCases(PAPER, pick_ranks),
    control("the depths in reverse order", lambda: Step(4, 6, 3.0, 10.0)),
    confirm=confirm_falling,
)
def measure_falling(step: Step) -> Check:
    """Larger depths lead to smaller middle rank (singular values of W_{L/2} above 0.1)."""
    return at_most(int(step.after), int(step.before), depth=step.deep, rank=int(step.after))


@by_training(
    "Fig 1 (failure)",
    StudyCases(PAPER, pick_deep),
    control("a network that fits, at L = 16", lambda: Deep(16, 0.0034, 3.0)),
    confirm=lambda case: equal(int(case.rank), 0),  # as zero parameters have
)
def measure_failure(case: Deep) -> Check:
    """For L > 25 training fails and recovers the zero parameters: a train cost above 0.1.

    A failed training leaves a cost above 0.1.
    """
    shallow = outside("no network deeper than 25 was trained", when=case.depth == 0)
    return at_least(case.cost, _FAILED_COST, drops=shallow, depth=case.depth)


@by_training(
    "Fig 1 (middle)",
    StudyCases(PAPER, pick_middle),
    control("depths 24 to 31 with a middle that does not grow", _recorded_middle),
)
def measure_growing(counts: dict[int, float], essentially: int = 1) -> Check:
    """Within a range of depths only the low-rank middle grows with the depth.

    By how much the number of layers outside the low-rank middle varies over the range: by one
    at most.
    """
    ends = [depth - count for depth, count in counts.items()]
    depths = f"{min(counts)}–{max(counts)}"
    return at_most(int(max(ends) - min(ends)), essentially, comparisons=len(ends), depths=depths)


@by_training(
    "Fig 2 (a)",
    _one_case("2a", "outlying"),
    control("rank 3 asked for", lambda: dict.fromkeys(range(1, 26), 2.0), rank=3),
)
def measure_outliers(counts: Mapping[Any, float], rank: int = 2) -> Check:
    """The weights in the bottleneck have two outlying singular values: the network finds the true
    rank 2.

    How many of the middle half of the layers have another number than two.
    """
    counts, quarter = _in_order(counts), len(counts) // 4
    inner = [count for layer, count in counts.items() if quarter < layer <= len(counts) - quarter]
    few = outside("no middle half", when=not inner)
    return at_most(sum(count != rank for count in inner), 0, drops=few, layers=len(inner))


@by_training(
    "Fig 2 (b, planar)",
    _one_case("2b", "planar"),
    control("the input itself, four dimensions of equal variance", lambda: _INPUT),
)
def measure_planar(found: Mapping[str, Any]) -> Check:
    """The representation of layer 6 is planar."""
    return at_least(float(found["share of variance in two directions"]), _PLANAR, layer="shown")


@by_training(
    "Fig 2 (b, statistics)",
    _one_case("2b", "planar"),
    control("the input's own first two directions", lambda: _INPUT),
)
def measure_recovered(found: Mapping[str, Any]) -> Check:
    """The coordinates of that plane determine the summary statistics, so that paths of gradient
    descent do not cross in it.

    The share of the statistics' variance left unexplained by the layer's plane, against that
    left by the input's own plane.
    """
    left = 1 - min(found["R² of the true statistics"])
    right = 1 - min(found["R² from the input's own first two directions"])
    return at_most(left, right / 2, layer="shown")


@by_training(
    "Fig 2 (c)",
    _one_case("2c", "orbit"),
    control("a network that keeps a third of it", lambda: _A_THIRD),
)
def measure_orbits(found: Mapping[str, Any]) -> Check:
    """Points of one rotation orbit collapse in layer 2: the network has learned the symmetry.

    Trained against a tenth of what it was before.
    """
    return at_most(
        found["variance within orbits"], _ORBIT_SHARE * found["untrained"], layer="second hidden"
    )
