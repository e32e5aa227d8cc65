"""The statements of teleport: planted errors change their verdicts, and the counterexamples are
numbers one can take by hand.
"""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold_papers import examine, reading, seen_to_fail
from neuromanifold_papers.output import Claim, write_summary
from neuromanifold_papers.teleport.statements import (
    STATEMENTS,
    descent,
    exact,
    extension,
    figures,
    hessian,
    limit,
    mean_value,
    nonlinear,
    scaling,
    symmetry,
)
from papers.support import assert_planted, assert_recorded, statement_name

BY_ID = {statement.id: statement for statement in STATEMENTS}
PLANTED = [
    (scaling, "out_factor", lambda c, d: c ** (d + 1), "Eq 5"),
    (symmetry, "gradient_law", lambda g, j: j @ g, "Eq 16"),
    (symmetry, "kernel_law", lambda g, j: j @ g @ g.T @ j.T, "Eq 24"),
    (nonlinear, "derivative_of_gamma", lambda g, t: np.einsum("br,mrs,sn->mbn", g, t, g), "Eq 67"),
    (nonlinear, "derivative_of_gamma", lambda g, t: np.einsum("br,mrs,sn->mbn", g, t, g), "Eq 72"),
    (extension, "hadamard_factors", lambda before, after: 2 * before / after, "App C (C.2)"),
    (descent, "floor", lambda a, s: (1 - a) ** s, "P F.1 (1)"),
    (descent, "line", lambda a, s: 1 - s * a, "P F.1 (2)"),
    (descent, "rate_bound", lambda a: -np.log1p(-a) if a < 1 else np.inf, "P F.1 (3)"),
    (mean_value, "weights", lambda knots: [Fraction(1, len(knots) - 1)] * (len(knots) - 1), "G.1"),
    (figures, "PRINTED_R", -0.53, "Fig 2 (r)"),
    (figures, "RATE", -0.6, "Fig 1 (at least)"),
]


@pytest.mark.parametrize(
    ("module", "name", "wrong", "which"), PLANTED, ids=[f"{p[1]}-{p[3]}" for p in PLANTED]
)
def test_a_planted_error_changes_the_verdict(module, name, wrong, which, monkeypatch):
    assert_planted(monkeypatch, BY_ID[which], module, name, wrong, draws=2)


def test_a_reversed_inequality_is_noticed():
    amended = BY_ID["Eq 87"].amended
    assert amended is not None
    swapped = replace(BY_ID["Eq 87"], measure=amended.measure, control=amended.control)
    assert examine(swapped, draws=5).kind == "no counterexample"
    assert examine(BY_ID["Eq 87"], draws=5).kind == "fails; true instead"


def test_every_cheap_control_fails():
    names = ("P F.1", "Eq 87", "App C", "G.1", "Fig", "Eq 5")
    cheap = [s for s in STATEMENTS if s.id.startswith(names)]
    assert len(cheap) > 10
    assert all(seen_to_fail(s.control.measured(s.measure)) for s in cheap)


def test_equation_22_by_hand():
    """g(w₁, w₂, v₁, v₂) = (2w₂, w₁, v₂/4, v₁) of F = v₁w₁² + v₂w₂²: entry (w₁, v₁) of ΓᵀHΓ is 4,
    of the Hessian there 8.
    """
    [case] = [
        m
        for m in exact.small_moves()
        if m.kind == "scaled permutation" and m.net.activation == (nm.power(2),)
    ]
    assert exact.moved(case) == [4, 1, Fraction(1, 4), 3]
    found = exact.law(case)
    old, new = found.before[0].curve, found.after[0].curve
    assert new[0, 2] == 2 * 4
    assert symmetry.printed_hessian(found.gamma, old)[0, 2] == 4
    assert (symmetry.indexed_hessian(found.gamma, old) == new).all()


def test_equation_73_by_hand():
    """A dead second neuron: T·∇L vanishes, the second term does not."""
    case = next(m for m in exact.nonlinear_moves() if m.kind == "inversion and swap")
    found = exact.law(case)
    gradient = exact.half_square(found.before).slope
    assert gradient.tolist() == [2, 0, 1, 0]
    assert (found.gamma @ gradient).tolist() == [0, Fraction(1, 2), 0, 4]
    assert not np.einsum("mrs,s->mr", found.second, gradient).any()
    assert nonlinear.second_term(found.gamma, found.second, gradient).any()


def test_jets_differentiate_as_jax_does(rng):
    net = nm.MLP((2, 2, 1), nm.power(3))
    theta = [Fraction(int(k), 4) for k in rng.integers(-5, 6, net.n_params)]
    sample = [[Fraction(1), Fraction(-2)]]
    [jet] = exact.outputs(net, exact.layers(net, exact.variables(theta)), sample)
    params = exact.rounded(exact.layers(net, exact.rationals(theta)))
    x = np.array(sample, float)
    np.testing.assert_allclose(
        nm.jacobian(net, params, x)[0], jet.slope.astype(float), rtol=1e-12, atol=1e-12
    )
    assert float(jet.value) == pytest.approx(float(net(params, x)[0, 0]))
    quotient = 1 / exact.variables([Fraction(2)])[0]
    assert (quotient.value, quotient.slope[0], quotient.curve[0, 0]) == (
        Fraction(1, 2),
        Fraction(-1, 4),
        Fraction(1, 4),
    )


def test_the_hessian_of_one_hidden_layer_is_its_blocks(rng):
    """The closed form of Eq. 19 against the library's Lanczos, and the growth of max|v| like √(2
    ln n).
    """
    width = 40
    net = nm.MLP((1, width, 1), "tanh", bias=False, scaling="ntk")
    w, v = rng.standard_normal((2, width))
    params = (nm.Layer(w[:, None]), nm.Layer(v[None]))
    closed = hessian.block_norm(hessian.SHAPES["tanh"], w, v).max() / np.sqrt(width)
    assert nm.tangent.output_hessian_norm(net, params, np.ones((1, 1)))[0] == pytest.approx(
        closed, rel=1e-5
    )
    assert hessian.tail(hessian.SHAPES["power(2)"], 4.0) == pytest.approx(0.04550026, rel=1e-4)


def test_relu_gradients_move_like_the_fourth_root(rng):
    """‖∇F − ∇F₀‖² → 1/(π√n), and with the other terms, of order 1/n, beside it."""
    n = 10**6
    found = np.mean([limit.flipped(n, rng) ** 2 for _ in range(20)])
    assert found == pytest.approx(limit.expected_flips(n), rel=0.1)


def test_a_small_study_is_read_and_a_missing_claim_is_no_crash(tmp_path: Path):
    slope = {"value": -0.28, "low": -0.39, "high": -0.18, "points": 12}
    claims = [
        Claim("1", f"the linearisation error of the {kind} network falls like width^(−1/2)",
              {"slope": slope, "slope_at_the_end": slope, "batch": 320}, "partly")
        for kind in ("standard", "transformed")
    ]  # fmt: skip
    write_summary(tmp_path, "teleport", "small", claims)
    names = ("Fig 1 (at least)", "Fig 1 (preserved)", "Fig 2", "Eq 19 (study)")
    chosen = [BY_ID[name] for name in names]
    verdicts = [
        examine(s).verdict for s in reading(chosen, lambda paper: tmp_path / "summary.json")
    ]
    vacuous = "vacuous: no case says anything"
    assert verdicts == ["fails as printed", "no counterexample in 1", vacuous, vacuous]


@pytest.mark.parametrize("one", STATEMENTS, ids=statement_name)
def test_the_verdict_is_the_recorded_one(one, draws):
    assert_recorded(one, draws)
