"""The complexity paper's statements: planted errors change the verdict, and the counterexamples
hold as numbers.
"""

from fractions import Fraction

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.regions import dimension_bounds
from neuromanifold_papers import Statement, StudyCases, examine, reading
from neuromanifold_papers.check import Interval
from neuromanifold_papers.complexity import statements as paper
from neuromanifold_papers.complexity.statements import account as accounts
from neuromanifold_papers.complexity.statements import (
    action,
    bounds,
    critical,
    figures,
    groups,
    kernel,
    regions,
    setup,
)
from neuromanifold_papers.complexity.statements.cases import (
    architectures,
    network,
    roughly,
    staged,
    statuses,
)
from neuromanifold_papers.output import Claim, write_summary
from papers.support import assert_planted, assert_recorded, smallest, statement_name

BY_ID = {statement.id: statement for statement in paper.STATEMENTS}

# (statement, module, formula, what is planted instead)
PLANTED = [
    (
        "count",
        kernel,
        "parameter_count",
        lambda w: sum(b * (a - 1) for a, b in zip(w[:-1], w[1:], strict=True)),
    ),
    ("4.1 (action)", action, "printed_action", lambda g, params: params),
    (
        "D = d + s (where it does not close)",
        accounts,
        "residual",
        lambda n, o, k: 1,
    ),
    ("4.1 (generators)", action, "pattern_classes", action.all_as_one),
    (
        "4.1 (H_eq)",
        action,
        "commuting_dimension",
        lambda case: sum(case.net.widths[1:-1]),
    ),
    ("4.2", critical, "critical_residual", lambda J: np.ones(len(J), int)),
    ("4.5", groups, "stated_dimension", groups.with_inputs),
    ("A.8 (ii)", groups, "stabiliser_at_least", lambda widths: 0),
    ("A.8 (ii)", groups, "generic_stabiliser", lambda widths: 0),
    (
        "Thm 1",
        bounds,
        "theorem1",
        lambda w, k: kernel.parameter_count(w) - sum(w[1:-1]) - 1,
    ),
    (
        "Thm 1 (every status)",
        bounds,
        "theorem1",
        lambda w, k: kernel.parameter_count(w) - 2 * sum(w[1:-1]),
    ),
    (
        "4.6",
        bounds,
        "amended_region_bound",
        lambda case: bounds.printed_region_bound(case),
    ),
    ("C.3", bounds, "cell_bound", lambda case: case.net.widths[0]),
    ("setup (data)", setup, "NOISE", 0.02),
    (
        "setup (optimiser)",
        setup,
        "torch_adam",
        lambda g, start, rate, decay: start - rate * g.sum(0),
    ),
    (
        "init (univariate)",
        figures,
        "LIMITS",
        figures.LIMITS | {"univariate": 17.3},
    ),
    ("Fig 2 (evolution)", figures, "RISE", 2.0),
    ("Fig 5 (correlation)", regions, "STRONG", 0.98),
    ("Fig 5 (well below)", regions, "WELL_BELOW", 0.95),
    ("Fig 6 (well below)", regions, "WELL_BELOW", 0.1),
]


@pytest.mark.parametrize(
    ("name", "module", "formula", "planted"), PLANTED, ids=[p[0] for p in PLANTED]
)
def test_a_planted_error_changes_the_verdict(name, module, formula, planted, monkeypatch):
    first = 30 if module is groups else 12
    assert_planted(monkeypatch, BY_ID[name], module, formula, planted, first=first)


def test_the_generic_stabiliser_by_hand():
    """(1, 3 | 2): one vector beyond the two columns, one that the output does not see. (1, 4, 4 | 1): the
    two of layer 1 that nothing reaches can go anywhere in the kernels of both layers together, and no
    layer alone has any.
    """
    found = [groups.generic_stabiliser(w) for w in ((1, 3, 2), (1, 4, 4, 1), (1, 5, 4, 3, 2, 1))]
    assert found == [1, 3, 4]
    assert groups.stabiliser_at_least((1, 4, 4, 1)) == 0


def test_the_stabiliser_of_1_3_2_in_integers():
    """g = 1 + e₃e₃ᵀ fixes W¹ = e₁, b¹ = e₂, W² = (e₁ e₂)ᵀ: the orbit of GL(3) has dimension 8."""
    e = np.eye(3)
    g, inverse = e + np.outer(e[2], e[2]), e - np.outer(e[2], e[2]) / 2
    assert (g @ inverse == e).all()
    params = (nm.Layer(e[:, :1], e[1]), nm.Layer(e[:2], np.zeros(2)))
    moved = action.printed_action([g], params)
    assert all(
        (a == b).all()
        for new, old in zip(moved, params, strict=True)
        for a, b in zip(new, old, strict=True)
    )
    group = nm.symmetry.GeneralLinearGroup(nm.MLP((1, 3, 2), "identity"))
    assert (group.orbit_dimension(params), group.stabiliser_dimension(params)) == (8, 1)


def test_how_often_a8_fails_and_that_the_papers_own_example_is_one_of_them(rng):
    monotonic = [w for w in architectures([1, 2, 3], 4) if any(roughly(w))]
    failing = [
        w for w in monotonic if groups.Mix(w, w[1:-1]).orbit_dimension < sum(n * n for n in w[1:-1])
    ]
    assert (len(monotonic), len(failing)) == (778, 98)
    assert not any(roughly(w)[0] for w in failing)
    net = nm.MLP(widths := (1, 5, 4, 3, 2, 1), "identity")
    params = tuple(
        nm.Layer(rng.integers(-99, 100, (b, a)) * 1.0, rng.integers(-99, 100, b) * 1.0)
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    )
    assert any(roughly(widths))
    assert nm.symmetry.GeneralLinearGroup(net).stabiliser_dimension(params) == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("A.8 (ii)", 1), ("A.10 (orbit)", 8), ("4.6", (4, 1))],
)
def test_a_counterexample_can_be_pasted(name, value):
    shown = examine(smallest(BY_ID[name], 1 if name == "4.6" else 40), draws=0).counterexample
    assert shown is not None
    *lines, last = shown.splitlines()
    names = {"nm": nm, "np": np, "jax": jax}
    exec("\n".join(lines), names)
    assert eval(last, names) == value


def test_the_commutant_of_a_mixed_activation_by_hand():
    """σ = (ReLU, id): diagonal matrices commute and no other; two identities add all of GL(2)."""
    assert [
        groups.commutant_dimension(*counts) for counts in ((1, 0), (1, 1), (2, 0), (0, 2), (1, 2))
    ] == [
        1,
        2,
        2,
        4,
        5,
    ]


def test_the_printed_bound_is_the_librarys(rng):
    for status in statuses((2, 3, 1)):
        case = staged(rng, (2, 3, 1), status, 14)
        found = dimension_bounds(case.net, case.params, case.x)
        assert found.theorem1.applies
        assert int(found.theorem1) == bounds.theorem1((2, 3, 1), case.fixed)
        assert [layer.count("bent") for layer in status] == [3 - k for k in case.fixed]


def test_affine_pieces_by_hand():
    """|x| − 2 clipped at zero is 0 between −2 and 2: three pieces at four points, although the
    patterns there are four.
    """
    case = network([[[1], [-1]], [[1, 1]], [[1]]], [[0, 0], [-2], [0]], [-6, -1, 1, 8])
    pieces = bounds.affine_pieces(case)
    assert sorted(map(len, pieces)) == [1, 1, 2]
    assert sorted(bounds.spanned(case, piece) for piece in pieces) == [1, 1, 2]
    assert nm.sampled_regions(case.net, case.params, case.x) == 4


def test_mixing_an_active_with_an_inactive_neuron_by_hand():
    """f(x) = x + 2 becomes (1 + t)x + 2 − 2t: at x = 0 it changes by 2t."""
    case = network([[[1], [1]], [[1, 1]]], [[2, -2], [0]], [0, 1])
    assert bounds.rational_outputs(case.params, case.x) == [[2], [3]]
    assert bounds.finite_change(case, Fraction(1, 8)).left == Fraction(1, 4)
    assert case.changes(bounds.proof_fields(case)) > 0


def test_the_residual_of_the_account_by_hand():
    """(3, 2 | 1), both active: f = VWx + c has 3 + 1 dimensions of 11; GL(2) and translations
    take 6, one is left.
    """
    [found, sampled] = accounts.account(accounts.Shallow(3, 2, 1, 2))
    assert (found.parameters, int(found.functional), found.symmetric, found.left) == (11, 4, 6, 1)
    assert sampled
    assert accounts.residual(3, 1, 2) == 1


def test_the_two_computed_ranks_differ_where_the_exact_one_is_2():
    assert kernel.computed_ranks(kernel.Offset(30, "float64")) == (2, 1)
    assert kernel.computed_ranks(kernel.Offset(15, "float32")) == (2, 1)
    assert kernel.computed_ranks(kernel.Offset(4, "float64")) == (2, 2)


def test_the_orbit_of_a_saddle_is_critical_and_that_of_a_point_off_it_is_not():
    saddle = critical.saddles(critical.Saddle(2, (0, 1)))
    assert saddle.dropped is None
    assert (saddle.left, saddle.right) == (4, 4)
    off = critical.saddles(critical.Saddle(2, (0, 1), 3.0))
    assert off.dropped is None, "the statement says that it is critical: where it is not, it fails"
    assert (off.left, off.fails) == (-1, True)


def test_neurons_of_one_sign_pattern_mix_by_hand():
    """x ↦ max(2x + 1, 0) and max(2x − 1, 0) agree in sign on −3, −1, 1, 3: adding the second to
    the first leaves f there.
    """
    case = network([[[2], [2]], [[2, 4]]], [[1, -1], [1]], [-3, -1, 1, 3])
    assert action.pattern_classes(case) == [[[0, 1]]]
    assert action.commuting_dimension(case) == 4
    there = critical.moved(case, 0, 0, 1)
    assert there.params[0].weight.tolist() == [[4], [2]]
    assert there.params[1].weight.tolist() == [[2, 2]]
    assert (
        critical.outputs(there).tolist()
        == critical.outputs(case).tolist()
        == [[1], [1], [11], [35]]
    )


def test_numbers_are_read_as_the_study_writes_them():
    assert figures.mean("29.9 ± 4.7 (15)") == 29.9
    assert np.isnan(figures.mean("no successful run"))
    assert figures.interval("-3.5 [-9.4, +2.4]") == Interval(-3.5, -9.4, 2.4)
    assert figures.of_runs("62.9 ± 2.8 (400)", 100).high == pytest.approx(68.5)
    assert figures.percent("84.9 %") == pytest.approx(0.849)


def test_what_a_study_did_not_measure_is_vacuous_and_no_crash(tmp_path):
    """A small-scale summary may lack a data set, have no successful run, or hold nothing at all."""
    training = [s for s in paper.STATEMENTS if isinstance(s.cases, StudyCases)]
    assert len(training) == 22
    not_measured = [
        Claim(f"Fig {n}", "needs a data set that is not here", None, "not measured")
        for n in range(1, 10)
    ]
    nothing = {"f1": "no successful run", "f2": "no successful run"}
    failed = Claim(
        "Fig 2", "after training the mean …", {"exact": nothing, "float32": nothing}, "partly"
    )
    for claims in ([], not_measured, [failed]):
        write_summary(tmp_path, "complexity", "small", claims)
        for statement in reading(training, lambda _: tmp_path / "summary.json"):
            assert verdict(statement).startswith("vacuous")


def verdict(statement: Statement) -> str:
    return examine(statement, draws=0).verdict


@pytest.mark.parametrize("one", paper.STATEMENTS, ids=statement_name)
def test_the_verdict_is_the_recorded_one(one, draws):
    assert_recorded(one, draws)
