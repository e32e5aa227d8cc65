"""The invariant paper's statements: planted errors change the verdict, and the counterexamples
hold as numbers.
"""

from fractions import Fraction
from itertools import pairwise

import jax
import numpy as np
import pytest

import neuromanifold as nm
from cast import unchecked
from neuromanifold.orbits import is_degenerate
from neuromanifold_papers import examine
from neuromanifold_papers.invariant import statements as paper
from neuromanifold_papers.invariant.statements import (
    algebra,
    closures,
    connected,
    conservation,
    deep,
    deep_laws,
    generic,
    leaves,
    maps,
    neurons,
    orbits,
    regularity,
)
from neuromanifold_papers.invariant.statements import cases as cast
from papers.support import assert_planted, assert_recorded, smallest, statement_name

BY_ID = {statement.id: statement for statement in paper.STATEMENTS}

# (statement, its verdict, module, formula, what is planted instead)
PLANTED = [
    ("Ex 3.1", orbits, "exponential_dimension", lambda n: 4),
    (
        "P 3.1",
        orbits,
        "is_structural",
        lambda candidate: candidate.a == candidate.w,
    ),
    (
        "Ex 4.2",
        maps,
        "radial_gradient",
        lambda x, y, data, r: (2 * data * x / r, 2 * data * y / r),
    ),
    ("Rem 4.1", maps, "is_normal", lambda g: np.ones(len(g), bool)),
    ("Rem 4.1 (C¹)", regularity, "reached", lambda alpha, start: 0.0),
    ("Lem 4.1 (leaf)", maps, "fixed_dimension", lambda case: 2 * len(set(case.neurons))),
    (
        "Thm 4.2 (i)",
        deep,
        "printed_action",
        lambda matrices, kind, params: params,
    ),
    ("P 5.2", leaves, "sets_with", lambda neurons, **options: [((), ())]),
    ("P 5.1, 5.2 (count)", leaves, "TYPE_B", (2, 6, 24, 115)),
    ("P 5.1, 5.2 (dimension)", leaves, "leaf_dimension", lambda odd, d, s: (d + 1) * s),
    (
        "Def 5.1",
        generic,
        "degenerate_as_printed",
        lambda neurons: any(n[0] == 0 for n in neurons),
    ),
    ("Def 5.2", generic, "kind_as_printed", lambda orders: "generic"),
    ("Lem 5.1", generic, "long_support", lambda name, count: (0, 1, 2)),
    ("Rem 5.1 (iii)", neurons, "SIGNS", neurons.SIGNS | {"(iii)": (-1, -1)}),
    (
        "Lem 5.2 (iv)",
        neurons,
        "condition",
        lambda case: case.neurons[0][0] == -case.neurons[1][0],
    ),
    (
        "Cor 5.3",
        closures,
        "leaf_dimension",
        lambda name, n: len(n[0]) * cast.condensed_up_to_sign(n),
    ),
    ("Cor 5.3 (every θ)", closures, "full_grade", lambda d, grade: (d + 1) * (grade + 1)),
    ("Cor 5.4 (paths)", connected, "segment_stays", lambda u, v: bool((u * v >= 0).all())),
    (
        "conservation (two-layer linear)",
        conservation,
        "printed_count",
        lambda n, m, r: r * r,
    ),
    (
        "conservation (deep linear)",
        deep_laws,
        "scalar_inside",
        lambda widths: False,
    ),
    (
        "conservation (more laws than Δ's)",
        deep_laws,
        "wide_neighbours",
        lambda widths: True,
    ),
]


@pytest.fixture(autouse=True)
def _few_chains(monkeypatch):
    few = [deep_laws.Chain(widths) for widths in ((1, 2, 2), (1, 2, 2, 1, 2))]
    monkeypatch.setattr(deep_laws, "_chains", lambda rng, draws: few)


@pytest.mark.parametrize(
    ("name", "module", "formula", "planted"), PLANTED, ids=[p[0] for p in PLANTED]
)
def test_a_planted_error_changes_the_verdict(name, module, formula, planted, monkeypatch):
    first = {
        "Ex 3.1": 8,
        "P 3.1": 25,
        "Thm 4.2 (i)": 4,
        "Lem 4.1 (leaf)": 60,
        "Cor 5.4 (paths)": 60,
    }
    few = first.get(name, 24)
    with unchecked():
        assert_planted(monkeypatch, BY_ID[name], module, formula, planted, first=few)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Rem 4.1 (C¹)", (0.0, 0.25)),
        ("P 5.2", 2),
        ("conservation (two-layer linear)", 7),
        ("conservation (deep linear)", 8),
        ("conservation (more laws than Δ's)", 1),
    ],
)
def test_a_counterexample_can_be_pasted(name, value):
    with unchecked():
        shown = examine(smallest(BY_ID[name], 60), draws=0).counterexample
        assert shown is not None
        *lines, last = shown.splitlines()
        names = {"nm": nm, "np": np, "jax": jax}
        exec("\n".join(lines), names)
        assert eval(last, names) == value


def test_a_zero_neuron_lies_in_two_of_the_printed_sets_by_hand():
    """m = 1, θ = 0: B_1 = {1} gives {0}, B_1 = ∅ the whole plane; the latter's points have two
    stabilisers.
    """
    assert leaves.sets_with(((0, 0),), nonzero=False) == [(((), (0,)), (1,)), (((0,),), (1,))]
    assert leaves.sets_with(((0, 0),), nonzero=True) == [(((0,),), (1,))]
    assert [len(maps.Stabilised("tanh", (n,)).stabiliser) for n in ((0, 0), (1, 0))] == [2, 1]


def test_a_solution_leaves_the_fixed_point_of_a_once_differentiable_model():
    """d/dt t²/4 = t/2 = (t²/4)^{1/2}, in rational numbers."""
    for t in (Fraction(1, 3), Fraction(2), Fraction(5, 7)):
        theta, rate = t * t / 4, t / 2
        assert rate * rate == theta
    assert abs(regularity.reached(Fraction(1, 2)) - 0.25) < 1e-9
    assert regularity.reached(Fraction(1)) < 3e-30


def test_the_stabiliser_of_two_equal_factors_by_hand():
    """U = V = (1 0 0; 0 1 0): of the six dimensions of so(2, 2) one, S = v∧w with v, w in the
    plane (p, p), fixes Z.
    """
    Z, J = conservation.Factors(2, 2, 3, True).stacked, np.diag([1, 1, -1, -1])
    v, w = np.array([1, 0, 1, 0]), np.array([0, 1, 0, 1])
    M = (np.outer(v, w) - np.outer(w, v)) @ J
    assert (M.T @ J + J @ M == 0).all() and not (M @ Z).any()
    assert len(conservation.matrix_algebra(2, 2)) == 6
    assert conservation.laws_at(2, 2, Z) == 12 - 5


def test_the_matrix_algebra_is_orthogonal():
    """((0, A), (Aᵀ, 0)) generate so(n, m), of dimension (n+m)(n+m−1)/2, also where n = m = 1."""
    for n, m in ((1, 1), (1, 2), (2, 1), (2, 3), (4, 4)):
        found, J = conservation.matrix_algebra(n, m), np.diag([1] * n + [-1] * m)
        assert len(found) == (n + m) * (n + m - 1) // 2
        assert not ((np.swapaxes(found, 1, 2) @ J + J @ found) % algebra.PRIME).any()


def test_brackets_of_polynomial_fields_are_those_of_the_library(key):
    """[X, Y] of the fields of a and aw² at (a, w) = (2, 3), by the library's lie_bracket."""
    X, Y = (field for _, field in algebra.monomial_fields(1, [1, 2]))

    def a_w(t):
        return t[0] * t[1]

    def a_w2(t):
        return t[0] * t[1] ** 2

    numeric = nm.lie_bracket(jax.grad(a_w), jax.grad(a_w2))(np.array([2.0, 3.0], np.float32))
    exact = [algebra.value(p, (2, 3)) for p in algebra.bracket(X, Y)]
    signed = [v - algebra.PRIME if v > algebra.PRIME // 2 else v for v in exact]
    np.testing.assert_allclose(numeric, signed)


def test_the_exact_closure_is_the_librarys(rng):
    for name, d in (("exp", 1), ("tanh", 1), ("cos", 1), ("silu", 1)):
        for _ in range(2):
            point = cast.whole_neurons(rng, 2, d, 2)
            with unchecked():
                found = int(cast.closure(name, point).dimension)
            assert found == algebra.closure_dimension(cast.SUPPORTS[name], point, found), (
                name,
                point,
            )


def test_the_algebra_of_two_generic_neurons_by_hand():
    """∂_a, w∂_a + a∂_w and w²∂_a + 2aw∂_w: [∂_a, w∂_a + a∂_w] = ∂_w, so all constant fields are
    there.
    """
    one, two = (field for _, field in algebra.monomial_fields(1, [0, 1]))
    assert algebra.bracket(one, two) == ({}, {(0, 0): 1})
    assert closures.full_grade(1, 0) == 4
    assert sum(closures._degree(X) == 1 for X in algebra.algebra(1, (0, 1, 2), 2)) == 4


def test_cor_5_2_needs_neurons_that_are_not_zero():
    """Read with i ≠ j only, (a_1, w_1) = 0 would be allowed, where the orbit of tanh is a point."""
    net, params = cast.two_layer("tanh", ((0, 0),))
    assert is_degenerate(net, params)
    assert algebra.closure_dimension(cast.SUPPORTS["tanh"], ((0, 0),)) == 0
    assert cast.condensed_up_to_sign(((0, 0),)) == 0


def test_scalar_parts_of_deep_networks():
    assert deep_laws.scalar_inside((1, 2, 2, 1, 2)) and deep_laws.scalar_inside((2, 1, 3, 2, 2, 1))
    assert not deep_laws.scalar_inside((1, 2, 1, 2)) and not deep_laws.scalar_inside((2, 2, 2, 1))


def test_paths_go_round_what_is_removed():
    """(1, 0) to (−1, 0) in the plane without 0: not straight, but in two segments; on the line
    there is no way.
    """
    straight = connected.Ends(True, ((1, 0),), ((-1, 0),))
    u, v = (connected.differences(True, point) for point in (straight.start, straight.end))
    assert not connected.segment_stays(u, v)
    assert connected.has_path(straight)


@pytest.mark.parametrize("one", paper.STATEMENTS, ids=statement_name)
def test_the_verdict_is_the_recorded_one(one, draws):
    assert_recorded(one, draws)


@pytest.mark.parametrize("widths", [(1, 2, 2, 1), (1, 2, 4, 1), (1, 1, 3, 2, 1), (1, 2, 3, 2, 1)])
def test_the_direction_of_the_proof_fixes_every_delta_and_is_not_the_gradient(widths, rng):
    """conservation (more laws than Δ's): V of the proof, by central differences of the Δ_l."""
    L = len(widths) - 1
    W = [
        np.zeros((0, 0)),
        *(rng.standard_normal((widths[l], widths[l - 1])) for l in range(1, L + 1)),
    ]
    u = [np.eye(1)]
    for l in range(1, L + 1):
        u.append(W[l] @ u[-1])
    v = [np.eye(1)]
    for l in range(L, 0, -1):
        v.insert(0, W[l].T @ v[0])
    l = next(l for l in range(1, L) if min(widths[l : l + 2]) > 1)
    V = [np.zeros_like(w) for w in W]
    V[l + 1] += u[l + 1] @ v[l].T
    down, up = W[l + 1].T @ W[l + 1] @ u[l], W[l + 1] @ v[l]
    for j in range(l + 1, L + 1):
        V[j] -= v[j] @ down.T
        down = W[j] @ down
    for j in range(l + 1, 0, -1):
        V[j] -= up @ u[j - 1].T
        up = W[j].T @ up

    def deltas(t: float) -> np.ndarray:
        moved = [w + t * d for w, d in zip(W, V, strict=True)]
        return np.concatenate([(b.T @ b - a @ a.T).ravel() for a, b in pairwise(moved[1:])])

    assert np.abs(deltas(1e-5) - deltas(-1e-5)).max() < 1e-9 * (1 + np.abs(deltas(0.0)).max())
    slopes = [after @ before.T for before, after in zip(u[:-1], v[1:], strict=True)]
    gradient, found = (np.concatenate([a.ravel() for a in part]) for part in (slopes, V[1:]))
    cosine = gradient @ found / np.linalg.norm(gradient) / np.linalg.norm(found)
    assert abs(cosine) < 1 - 1e-6
