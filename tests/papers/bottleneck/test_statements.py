"""`bottleneck`: planted errors change the verdict, counterexamples are right by hand, figure
statements read any scale.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from neuromanifold_papers import examine, reading
from neuromanifold_papers.bottleneck.statements import (
    STATEMENTS,
    cases,
    cost,
    dynamics,
    example,
    figures,
    first,
    identity,
    interpolants,
    layers,
    narrow,
    ranks,
    second,
)
from neuromanifold_papers.bottleneck.statements.cases import chain, network
from neuromanifold_papers.output import Claim, write_summary
from papers.support import assert_planted, assert_recorded, plant, smallest, statement_name


def statement(name):
    return next(s for s in STATEMENTS if s.id == name)


PLANTED = [
    ("linear (minimiser)", cost, "linear_cost", lambda s, L: float(L * np.sum(s ** (1 / L)))),
    ("expansion", cost, "third_order", lambda s, L: -1.0),
    ("ranks (sum)", ranks, "added_rank", np.maximum),
    ("ranks (composition)", ranks, "composed_rank", lambda f, g: np.minimum(f, g) - 1),
    ("Thm 3", first, "first_bound", lambda s: 3 * float(np.sum(np.log(s)))),
    ("Thm 3 (1)", first, "composed_determinant", lambda f, g: f * g / 2),
    ("Thm 3 (2)", first, "constant_cost", lambda c: 0.0),
    ("Thm 3 (3)", first, "construction_rate", lambda s, L: float(np.sum(np.log(s)))),
    ("Thm 3 (3, interpolation)", first, "printed_weights", first.exchanged_weights),
    ("P 4 (1)", second, "composed_root", lambda f, g: np.sqrt(f) - np.sqrt(g)),
    ("P 4 (3)", cost, "expansion", lambda A, L: 0.0),
    ("P 5 (only if)", identity, "signed_gap", lambda r, a: 2.0),
    (
        "P 13",
        identity,
        "change_term",
        lambda nuclear, square: 2 * nuclear / square if square else 0.0,
    ),
    ("Thm 6", layers, "budget", lambda f: f.c1 + 2 * f.log_determinant),
    ("Thm 7 (layers)", layers, "layer_share", lambda total, m: total / (m + 1)),
    ("P 9", narrow, "proved_constant", lambda case: 1.5 * case.net.depth),
    (
        "P 9 (slopes)",
        narrow,
        "sloped_constant",
        lambda case: case.net.depth * (abs(case.slope) or 1.0),
    ),
    ("Thm 10 (c₁)", interpolants, "least_cost", lambda n, k: -2 * (1 - 1 / k) * math.log(n) - 20),
    ("Sec 5 (along w)", dynamics, "axis_rate", lambda norm, u: 8 * (norm - 1) * u),
    ("Sec 5 (across w)", dynamics, "rest_rate", lambda norm, u: -4 * norm * u),
    ("Sec 5 (flow)", dynamics, "axis_rate", lambda norm, u: -8 * norm * u),
    ("Sec 5 (cost)", dynamics, "printed_cost", lambda norm, u: norm - 2 * u + 1),
    ("Ex 20 (norm)", example, "excess_bound", lambda L, gamma: 6 * L ** (1 - 2 * gamma)),
    ("Fig 2 (c)", figures, "_ORBIT_SHARE", -0.1),
]


@pytest.mark.parametrize(
    ("name", "module", "formula", "wrong"), PLANTED, ids=[p[0] for p in PLANTED]
)
def test_a_planted_error_changes_the_verdict(monkeypatch, name, module, formula, wrong):
    assert_planted(monkeypatch, statement(name), module, formula, wrong, first=60, draws=2)


def test_the_trace_misses_a_planted_factor(monkeypatch):
    right, chosen = layers.trace_formula, smallest(statement("trace"), 60)
    plant(monkeypatch, chosen, layers, "trace_formula", lambda case, bias: 2 * right(case, bias))
    assert examine(chosen, draws=2).kind not in ("holds", "no counterexample")


def test_the_printed_constant_of_p9_and_the_slopes_by_hand():
    one = narrow.printed(chain(1.0, 1, 1.0))
    assert (one.left, one.right) == (1.0, 2.0)
    half = narrow.measure_proved(chain(1.0, 2, -1.0, slope=0.5))
    assert (half.left, half.right) == (0.5, 1.0)
    for depth, slope in ((2, 0.5), (5, 0.25)):
        attained = narrow.measure_sloped(chain(1.0, depth, -1.0, slope=slope))
        np.testing.assert_allclose(attained.left, attained.right, rtol=1e-12)
    shallow = network([[[1.0]]] * 2, [[-1.0], [-0.125]], slope=0.125)
    segment = narrow.segment(shallow)
    assert (segment.left, segment.right) == (1 / 32, 49 / 1024)


def test_the_frames_of_theorem_6_by_hand():
    projected = network([[[0.8], [0.6]], [[1.0, 0.0]]], [[1.0]])
    found = layers.appendix(projected)
    np.testing.assert_allclose([found.left, found.right], [0.8, -2 * math.log(0.8)], rtol=1e-12)
    assert layers.confirm_appendix(projected).left == Fraction(4, 5)
    assert layers.carried(projected).holds
    reflected = network([[[0.8], [-0.6]], [[0.8, 0.6]]], [[1.0]], slope=-0.5)
    shared = layers.shared(reflected)
    np.testing.assert_allclose([shared.left, shared.right], [0.8, -2 * math.log(0.82)], rtol=1e-12)
    assert layers.thm6(reflected).holds, "with U_l and V_l apart"


def test_the_interpolation_the_lemma_and_the_constants_by_hand():
    case = (np.array([[2.0]]), np.ones((1, 1)), 3)
    assert first.confirm_interpolation(case).left == Fraction(8, 3)
    far = first.interpolation_norm(case[0], 20_000, first.printed_weights) - 20_000
    np.testing.assert_allclose(far, 6 - 2 * math.log(2), atol=1e-3)
    junction = first.confirm_lemma((Fraction(1), Fraction(1), True))
    np.testing.assert_allclose(junction.left, 2 * math.sqrt(2), rtol=1e-6)
    assert junction.right == 2.0
    halves = first.confirm_constants((Fraction(1, 2), Fraction(1, 2)))
    np.testing.assert_allclose([halves.left, halves.right], [1.0, 0.5], rtol=1e-12)


def test_corollary_8_fails_where_one_point_is_far_and_holds_point_by_point():
    far = layers.far_point(400, Fraction(1, 20), 100.0)
    printed = layers.cor8(far)
    by_hand = layers.confirm_planarity(far)
    np.testing.assert_allclose(
        (printed.left / printed.right) ** 2, by_hand.left / by_hand.right, rtol=1e-4
    )
    assert by_hand.left == 9975.0
    assert not by_hand.holds
    assert layers.pointwise(far).holds


def test_shrunk_targets_are_fitted_for_less_than_the_printed_bound():
    found = interpolants.folded_interpolant(2, 1, 10)
    small = interpolants.shrunk(found, 0.01)
    np.testing.assert_allclose(cases.outputs(small), 0.01 * found.y, atol=1e-12)
    assert small.c1 < 0 < math.log(4) < found.c1


FITS = [
    "rank 3 at L = 5–23: slope 2.030 ± 0.220, with a term 1/L 3.037 ± 0.034, of (loss + λ‖θ‖²)/λ "
    "2.000",
    "rank 3 at L = 24–31: slope 3.010 ± 0.040, of (loss + λ‖θ‖²)/λ 2.800",
]


def planted_summary(out, **measured):
    """A summary of figure claims with these numbers, as a study writes it; what is not given was
    not measured.
    """
    texts = {
        "affine": "1a",
        "smaller middle rank": "1a",
        "Training fails": "1a",
        "middle grows": "1b",
    }
    claims = [
        Claim(figure, word, measured.get(word.split()[0], "not measured"), True)
        for word, figure in texts.items()
    ]
    write_summary(out, "bottleneck", "paper", claims)
    return lambda paper: out / "summary.json"


def kinds(summaries):
    figures = [s for s in STATEMENTS if s.id.startswith("Fig 1")]
    return {e.id: e.kind for e in map(examine, reading(figures, summaries))}


def test_deep_networks_that_fit_refute_the_failure_of_training(tmp_path):
    ranks, costs = {"24": 3, "31": 3, "32": 4}, {"24": 0.003, "31": 0.003, "32": 0.05}
    found = kinds(
        planted_summary(
            tmp_path,
            affine=FITS,
            smaller=ranks,
            Training=costs,
            middle={"24": 3, "31": 10, "32": 1},
        )
    )
    assert found == {
        "Fig 1 (slope)": "not reproduced",
        "Fig 1 (rank)": "not reproduced",
        "Fig 1 (failure)": "not reproduced",
        "Fig 1 (middle)": "no counterexample",
    }
    zero = kinds(
        planted_summary(
            tmp_path,
            affine=FITS[1:],
            smaller=dict.fromkeys(ranks, 0),
            Training=dict.fromkeys(costs, 0.5),
        )
    )
    assert (zero["Fig 1 (failure)"], zero["Fig 1 (slope)"]) == (
        "no counterexample",
        "no counterexample",
    )


def test_what_was_not_measured_says_nothing(tmp_path):
    assert set(kinds(planted_summary(tmp_path)).values()) == {"vacuous: no case says anything"}


def test_the_recorded_summary_is_read_and_unlearned_numbers_fail():
    figures = [s for s in STATEMENTS if s.id.startswith("Fig 2")]
    assert [examine(s).kind for s in figures] == ["not reproduced", *["no counterexample"] * 3]
    orbits = statement("Fig 2 (c)")
    unlearned = replace(
        orbits, cases=lambda rng, draws: [{"variance within orbits": 0.4, "untrained": 0.4}]
    )
    assert examine(unlearned).kind.startswith("unconfirmed")


@pytest.mark.parametrize("one", STATEMENTS, ids=statement_name)
def test_the_verdict_is_the_recorded_one(one, draws):
    assert_recorded(one, draws)
