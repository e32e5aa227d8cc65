"""[teleport] on its experiments, read from the study's summary.   Fig. 1, 2, 3"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from neuromanifold_papers.check import Check, Interval, inside
from neuromanifold_papers.recorded import Claims, StudyCases, read_claims
from neuromanifold_papers.statement import Control, Statement
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


def falls(case: dict[str, Any], which: str = "slope") -> Check:
    """The interval reaches −1/2 or below: the error is O(width^{−1/2}) as far as it can be seen."""
    found = case[which]
    return Check(
        found["low"], RATE, "<=", hypotheses={"network": case["kind"], "points": found["points"]}
    )


FIG_1 = Statement(
    paper="teleport",
    row="Fig 1, 3",
    id="Fig 1",
    says="the RMSE between network and linearised network falls like width^{−1/2}, standard and "
    "transformed",
    method="training",
    cases=StudyCases("teleport", slopes),
    measure=falls,
    control=Control(
        "at the end of training, far from the early phase",
        case=lambda: slopes(read_claims("teleport"))[0],
        breaks={"which": "slope_at_the_end"},
    ),
    show=lambda case: f"{case['kind']}: slope {_interval(case['slope'])} at batch {case['batch']}",
    confirm=lambda case: falls(case, "slope_at_the_end"),
    route="the slope at the end of training",
    worked="""At the study's small scale (widths 32 to 256) the slopes are −0.28, standard and transformed: these widths are not yet in the
kernel regime. At the paper's widths, 100 to 1,500, they are −0.53 and −0.54.""",
    narrower="read as O(width^{−1/2}): the lower end of the 95 % interval; the transformed "
    "network's lies wholly below −1/2, by 0.006",
)


def pairs(claims: Claims) -> list[dict[str, Any]]:
    found = {case["kind"]: case["slope"] for case in slopes(claims)}
    return [found] if len(found) == 2 else []


def same(case: dict[str, Any]) -> Check:
    """The slopes differ by no more than the half-widths of their intervals together."""
    one, two = case["standard"], case["transformed"]
    halves = sum(e["high"] - e["value"] for e in (one, two))
    return Check(one["value"], two["value"], "=", halves, {"points": one["points"]})


def _other(case: dict[str, Any]) -> Check:
    one, two = case["standard"], case["transformed"]
    return Check(max(one["low"], two["low"]), min(one["high"], two["high"]), "<=")


FIG_1_SAME = Statement(
    paper="teleport",
    row="Fig 1, 3",
    id="Fig 1 (preserved)",
    says="the transformation leaves the rate as it is",
    method="training",
    cases=StudyCases("teleport", pairs),
    measure=same,
    control=Control(
        "slopes −1/2 and 0",
        case=lambda: {
            "standard": {"value": -0.5, "low": -0.515, "high": -0.485, "points": 0},
            "transformed": {"value": 0.0, "low": -0.015, "high": 0.015, "points": 0},
        },
    ),
    show=lambda case: ", ".join(f"{kind} {_interval(slope)}" for kind, slope in case.items()),
    confirm=_other,
    route="whether the intervals overlap",
)


def speeds(claims: Claims) -> list[dict[str, Any]]:
    return [claim["measured"] for claim in _claims(claims, "3", "earlier")]


def earlier(standard: int, transformed: int) -> Check:
    """By at least one reading."""
    return Check(transformed, standard - 1, "<=")


FIG_3 = Statement(
    paper="teleport",
    row="Fig 1, 3",
    id="Fig 3",
    says="the transformed network reaches the accuracy (65 %) at an earlier batch",
    method="training",
    cases=StudyCases("teleport", speeds),
    measure=lambda case: earlier(**case["batches"]),
    control=Control("a tie", case=lambda: {"batches": {"standard": 416, "transformed": 416}}),
    show=lambda case: f"batches {case['batches']}",
    confirm=lambda case: Check(case["speed_up"], 1.0, ">="),
    route="the ratio of the batches",
)


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
    return next(
        case
        for case in searches(read_claims("teleport"))
        if case["steps"] == f"after {steps} steps"
    )


FIG_3_CAUSE = Statement(
    paper="teleport",
    row="Fig 1, 3",
    id="Fig 3 (cause)",
    says="the factors c that the search as printed finds (Adam 0.01, penalty 0.1‖c − 1‖²) are "
    "larger than one on average",
    method="training",
    cases=StudyCases("teleport", searches),
    measure=lambda case, least=1.0: Check(
        case["mean"], least, ">=", hypotheses={"steps": case["steps"]}
    ),
    control=Control(
        "1.01 in place of 1, after one step", case=lambda: _after("1"), breaks={"least": 1.01}
    ),
    show=_show_search,
    worked="""With the penalty as a sum over the parameters, as printed, the mean of c is 1.0037 after one step, 0.9969 after two,
0.9994 after ten and 1.00001 after a hundred: Adam's first step of 0.01 leaves 1 upwards, and the penalty brings c back.
With its mean instead, which our figures use, c is 1.008 on average after four steps.""",
    missing="the number of steps of the search, the loss",
)


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


def leaves(case: dict[str, Any]) -> Check:
    """The largest |c − 1| on both sides of 1 where the least was recorded; a step or two of Adam
    at 0.01 cannot leave 5 %.
    """
    deviation = max(abs(case[side] - 1) for side in ("least", "largest") if side in case)
    few = inside(
        "one or two steps of 0.01 cannot leave 5 %",
        when=case["steps"] in ("after 1 steps", "after 2 steps"),
    )
    hypotheses = {"steps": case["steps"], "sides": "both" if "least" in case else "above"}
    return Check(deviation, WITHIN, "<=", hypotheses=hypotheses, drops=few)


FIG_3_SEARCH = Statement(
    paper="teleport",
    row="Fig 1, 3",
    id="Fig 3 (App E)",
    says="the search for c as printed (Adam 0.01, penalty 0.1‖c − 1‖²) stays within 5 % of 1",
    method="training",
    cases=StudyCases("teleport", both_sides),
    measure=leaves,
    control=Control(
        "a search that takes some c to 0.9 and none above 1",
        case=lambda: {"steps": "after 100 steps", "least": 0.9, "mean": 0.99, "largest": 1.0},
    ),
    show=_show_search,
    narrower="after 10 and 100 steps (the number is not printed); of the recorded run on "
    "Fashion-MNIST the mean and the largest c, of "
    "searches on the images of this machine at width 32 the least too",
)


def correlations(claims: Claims) -> list[dict[str, Any]]:
    return [claim["measured"] for claim in _claims(claims, "2", "anticorrelated")]


def _show(case: dict[str, Any]) -> str:
    value = case["r_whole_epochs"]["value"]
    return (
        f"{value:.3f}  # {case['loss']}: r {_interval(case['r_whole_epochs'])}, interpolated "
        f"{_interval(case['r_interpolated'])}"
    )


def anticorrelated(case: dict[str, Any], which: str = "r_whole_epochs") -> Check:
    """r with its interval, against 0."""
    return Check(
        interval(case[which]),
        0.0,
        "<=",
        hypotheses={"loss": case["loss"], "networks": case["networks"]},
    )


FIG_2 = Statement(
    paper="teleport",
    row="Fig 2",
    id="Fig 2",
    says="alignment at initialisation and the loss-halving epoch are anticorrelated, for every "
    "loss",
    method="training",
    cases=StudyCases("teleport", correlations),
    measure=anticorrelated,
    control=Control(
        "1/A in place of A, interpolated",
        case=lambda: correlations(read_claims("teleport"))[0],
        breaks={"which": "r_interpolated_with_1_over_A"},
    ),
    show=_show,
    confirm=lambda case: anticorrelated(case, "r_interpolated"),
    route="halving times interpolated between readings",
)


def contains(case: dict[str, Any], which: str) -> Check:
    """How far the printed r lies outside the interval; 0 within it."""
    found = case[which]
    outside = max(found["low"] - PRINTED_R, PRINTED_R - found["high"], 0.0)
    return Check(
        outside, 0.0, "<=", hypotheses={"loss": case["loss"], "networks": case["networks"]}
    )


def nearest(claims: Claims) -> list[dict[str, Any]]:
    """The loss whose interval is nearest to the printed r: the paper does not name its loss."""
    found = correlations(claims)
    return sorted(found, key=lambda case: contains(case, "r_whole_epochs").left)[:1]


FIG_2_VALUE = Statement(
    paper="teleport",
    row="Fig 2",
    id="Fig 2 (r)",
    says="the correlation is r ≈ −0.76, for at least one of the three usual losses (the paper "
    "does not name its own)",
    method="training",
    cases=StudyCases("teleport", nearest),
    measure=lambda case, which="r_whole_epochs": contains(case, which),
    control=Control(
        "1/A in place of A",
        case=lambda: nearest(read_claims("teleport"))[0],
        breaks={"which": "r_interpolated_with_1_over_A"},
    ),
    show=_show,
    confirm=lambda case: contains(case, "r_interpolated"),
    route="halving times interpolated between readings",
    worked="""1,000 networks of width 1,024 give, with the halving epoch read as a whole number as printed, −0.53 [−0.57, −0.48] for
cross-entropy, −0.47 [−0.52, −0.42] for ‖r‖²/2n and −0.89 [−0.90, −0.87] for ‖r‖²/2n·o; interpolated, −0.67, −0.90 and −0.89. The printed
−0.76 lies between, in none of these intervals: its size depends on loss and reading, its sign does not.""",
    missing="the loss",
)


def own(claims: Claims) -> list[dict[str, Any]]:
    """What is left of the rank correlation when the initial loss is held fixed."""
    return [
        {"loss": loss, **numbers["partial_rank_correlation_given_initial_loss"]}
        for claim in _claims(claims, "2", "alignment's own")
        for loss, numbers in claim["measured"].items()
    ]


FIG_2_OWN = Statement(
    paper="teleport",
    row="Fig 2",
    id="Fig 2 (alignment itself)",
    says="alignment is a good metric of the rate: it predicts the halving time also among "
    "networks of equal initial loss",
    method="training",
    cases=StudyCases("teleport", own),
    measure=lambda case: Check(interval(case), 0.0, "<=", hypotheses={"loss": case["loss"]}),
    control=Control(
        "the correlation of alignment and initial loss",
        case=lambda: {"loss": "", "value": 0.52, "low": 0.47, "high": 0.57},
    ),
    show=lambda case: f"{case['loss']}: partial rank correlation {_interval(case)}",
    confirm=lambda case: Check(case["value"], 0.0, "<="),
    route="the value itself",
)

FIGURES = (FIG_1, FIG_1_SAME, FIG_3, FIG_3_CAUSE, FIG_3_SEARCH, FIG_2, FIG_2_VALUE, FIG_2_OWN)
