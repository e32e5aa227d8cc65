"""[teleport] on its experiments, read from the study's summary.   Fig. 1, 2, 3"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from neuromanifold_papers.check import Check, Interval, at_least, at_most, equal, inside
from neuromanifold_papers.recorded import Claims, StudyCases, read_claims
from neuromanifold_papers.statement import by_training, control
from neuromanifold_papers.teleport.statements.limit import RATE

PRINTED_R = -0.76
WITHIN = 0.05


def _claims(claims: Claims, figure: str, words: str) -> list[dict[str, Any]]:
    return [claim for claim in claims if claim["figure"] == figure and words in claim["claim"]]


def slopes(claims: Claims) -> list[dict[str, Any]]:
    """Figure 1: the slope at the snapshot and at the end of training, standard and transformed."""
    return [
        {"kind": kind, **claim["measured"]}
        for kind in ("standard", "transformed")
        for claim in _claims(claims, "1", f"of the {kind} network")
    ]


def _interval(estimate: dict[str, Any]) -> str:
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def interval(estimate: dict[str, Any]) -> Interval:
    """The estimate with its 95 % interval."""
    return Interval(estimate["value"], estimate["low"], estimate["high"])


def _estimate(value: float, half: float) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, "points": 0}


def falls(case: dict[str, Any], which: str = "slope") -> Check:
    """The interval reaches −1/2 or below: the error is O(width^{−1/2}) as far as it can be seen."""
    found = case[which]
    return at_most(found["low"], RATE, network=case["kind"], points=found["points"])


def as_printed(case: dict[str, Any], which: str = "slope") -> Check:
    """The interval holds −1/2."""
    return equal(interval(case[which]), RATE, network=case["kind"], points=case[which]["points"])


_slope = partial(
    by_training,
    cases=StudyCases("teleport", slopes),
    control=control(
        "at the end of training, far from the early phase",
        lambda: slopes(read_claims("teleport"))[0],
        passes=lambda: {"kind": "", "slope": _estimate(-0.5, 0.0)},
        which="slope_at_the_end",
    ),
    show=lambda case: f"{case['kind']}: slope {_interval(case['slope'])} at batch {case['batch']}",
)
fig_1_law = _slope(
    "Fig 1",
    says="the RMSE between network and linearised network falls like width^{−1/2}: the slope is −1/2, standard and transformed",
)(as_printed)
fig_1 = _slope(
    "Fig 1 (at least)",
    confirm=lambda case: falls(case, "slope_at_the_end"),
    says="the RMSE between network and linearised network falls at least like width^{−1/2}, standard and transformed",
)(falls)


def pairs(claims: Claims) -> list[dict[str, Any]]:
    found = {case["kind"]: case["slope"] for case in slopes(claims)}
    return [found] if len(found) == 2 else []


def _other(case: dict[str, Any]) -> Check:
    one, two = case["standard"], case["transformed"]
    return at_most(max(one["low"], two["low"]), min(one["high"], two["high"]))


@by_training(
    "Fig 1 (preserved)",
    StudyCases("teleport", pairs),
    control(
        "slopes −1/2 and 0",
        lambda: {"standard": _estimate(-0.5, 0.015), "transformed": _estimate(0.0, 0.015)},
        passes=lambda: {"standard": _estimate(-0.5, 0.02), "transformed": _estimate(-0.53, 0.02)},
    ),
    show=lambda case: ", ".join(f"{kind} {_interval(slope)}" for kind, slope in case.items()),
    confirm=_other,
)
def fig_1_same(case: dict[str, Any]) -> Check:
    """The transformation leaves the rate as it is.

    The slopes differ by no more than the half-widths of their intervals together.
    """
    one, two = case["standard"], case["transformed"]
    halves = sum(e["high"] - e["value"] for e in (one, two))
    return equal(one["value"], two["value"], halves, points=one["points"])


def speeds(claims: Claims) -> list[dict[str, Any]]:
    return [claim["measured"] for claim in _claims(claims, "3", "earlier")]


@by_training(
    "Fig 3",
    StudyCases("teleport", speeds),
    control(
        "a tie",
        lambda: {"batches": {"standard": 416, "transformed": 416}},
        passes=lambda: {"batches": {"standard": 416, "transformed": 415}},
    ),
    show=lambda case: f"batches {case['batches']}",
    confirm=lambda case: at_least(case["speed_up"], 1.0),
)
def fig_3(case: Any) -> Check:
    """The transformed network reaches the accuracy (65 %) at an earlier batch."""
    return at_most(case["batches"]["transformed"], case["batches"]["standard"] - 1)


def searches(claims: Claims) -> list[dict[str, Any]]:
    """c after 1, 2, 10 and 100 steps of the search with the penalty as printed."""
    return [
        {"steps": name, **numbers}
        for claim in _claims(claims, "E", "the search for c")
        for name, numbers in claim["measured"].items()
    ]


def _show_search(case: dict[str, Any]) -> str:
    return f"{case['steps']}: mean c {case['mean']:.6f}, largest {case['largest']:.6f}"


def _after(steps: str) -> dict[str, Any]:
    """The recorded search after so many steps."""
    found = searches(read_claims("teleport"))
    return next(case for case in found if case["steps"] == f"after {steps} steps")


@by_training(
    "Fig 3 (cause)",
    StudyCases("teleport", searches),
    control("1.01 in place of 1, after one step", lambda: _after("1"), least=1.01),
    show=_show_search,
)
def fig_3_cause(case: Any, least: Any = 1.0) -> Check:
    """The factors c that the search as printed finds (Adam 0.01, penalty 0.1‖c − 1‖²) are larger
    than one on average.
    """
    return at_least(case["mean"], least, steps=case["steps"])


@lru_cache
def searched(steps: int) -> tuple[tuple[str, float], ...]:
    """The least, mean and largest c of the study's own search, run here at its small width."""
    from neuromanifold_papers.teleport import runs, study

    return tuple(study.search_scales(runs.WIDTHS["small"], steps).items())


def both_sides(claims: Claims) -> Iterator[dict[str, Any]]:
    """The recorded searches, then two that are run here, of which both ends are known."""
    yield from searches(claims)
    yield from (
        {"steps": f"after {steps} steps", "run": "here", **dict(searched(steps))}
        for steps in (10, 100)
    )


@by_training(
    "Fig 3 (App E)",
    StudyCases("teleport", both_sides),
    control(
        "a search that takes some c to 0.947 and none above 1",
        lambda: {"steps": "after 100 steps", "least": 0.947, "mean": 0.99, "largest": 1.0},
        passes=lambda: {"steps": "after 100 steps", "mean": 1.0, "largest": 1.049},
    ),
    show=_show_search,
)
def fig_3_search(case: dict[str, Any]) -> Check:
    """The search for c as printed (Adam 0.01, penalty 0.1‖c − 1‖²) stays within 5 % of 1.

    The largest |c − 1| on both sides of 1 where the least was recorded; a step or two of Adam
    at 0.01 cannot leave 5 %.
    """
    deviation = max(abs(case[side] - 1) for side in ("least", "largest") if side in case)
    few = inside(
        "one or two steps of 0.01 cannot leave 5 %",
        when=case["steps"] in ("after 1 steps", "after 2 steps"),
    )
    hypotheses = {"steps": case["steps"], "sides": "both" if "least" in case else "above"}
    return at_most(deviation, WITHIN, drops=few, hypotheses=hypotheses)


def correlations(claims: Claims) -> list[dict[str, Any]]:
    return [claim["measured"] for claim in _claims(claims, "2", "anticorrelated")]


def _show(case: dict[str, Any]) -> str:
    whole, between = case["r_whole_epochs"], _interval(case["r_interpolated"])
    return f"{whole['value']:.3f}  # {case['loss']}: r {_interval(whole)}, interpolated {between}"


def anticorrelated(case: dict[str, Any], which: str = "r_whole_epochs") -> Check:
    """r with its interval, against 0."""
    return at_most(interval(case[which]), 0.0, loss=case["loss"], networks=case["networks"])


fig_2 = by_training(
    "Fig 2",
    StudyCases("teleport", correlations),
    control(
        "1/A in place of A, interpolated",
        lambda: correlations(read_claims("teleport"))[0],
        which="r_interpolated_with_1_over_A",
    ),
    show=_show,
    confirm=lambda case: anticorrelated(case, "r_interpolated"),
    says="alignment at initialisation and the loss-halving epoch are anticorrelated, for every loss",
)(anticorrelated)


def contains(case: dict[str, Any], which: str) -> Check:
    """How far the printed r lies outside the interval; 0 within it."""
    found = case[which]
    outside = max(found["low"] - PRINTED_R, PRINTED_R - found["high"], 0.0)
    return at_most(outside, 0.0, loss=case["loss"], networks=case["networks"])


def nearest(claims: Claims) -> list[dict[str, Any]]:
    """The loss whose interval is nearest to the printed r: the paper does not name its loss."""
    found = correlations(claims)
    return sorted(found, key=lambda case: contains(case, "r_whole_epochs").left)[:1]


@by_training(
    "Fig 2 (r)",
    StudyCases("teleport", nearest),
    control(
        "1/A in place of A",
        lambda: nearest(read_claims("teleport"))[0],
        which="r_interpolated_with_1_over_A",
    ),
    show=_show,
    confirm=lambda case: contains(case, "r_interpolated"),
)
def fig_2_value(case: Any, which: Any = "r_whole_epochs") -> Check:
    """The correlation is r ≈ −0.76, for at least one of the three usual losses (the paper does
    not name its own).
    """
    return contains(case, which)


def own(claims: Claims) -> list[dict[str, Any]]:
    """What is left of the rank correlation when the initial loss is held fixed."""
    return [
        {"loss": loss, **numbers["partial_rank_correlation_given_initial_loss"]}
        for claim in _claims(claims, "2", "alignment's own")
        for loss, numbers in claim["measured"].items()
    ]


@by_training(
    "Fig 2 (alignment itself)",
    StudyCases("teleport", own),
    control(
        "the correlation of alignment and initial loss",
        lambda: {"loss": "", "value": 0.52, "low": 0.47, "high": 0.57},
    ),
    show=lambda case: f"{case['loss']}: partial rank correlation {_interval(case)}",
    confirm=lambda case: at_most(case["value"], 0.0),
)
def fig_2_own(case: Any) -> Check:
    """Alignment is a good metric of the rate: it predicts the halving time also among networks of
    equal initial loss.
    """
    return at_most(interval(case), 0.0, loss=case["loss"])
