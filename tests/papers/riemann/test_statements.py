"""The statements of `riemann`: planted errors change verdicts, and the counterexamples are right
by hand.
"""

import importlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from neuromanifold import functionspace as fs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers import read_claims
from neuromanifold_papers.output import claims_hash
from neuromanifold_papers.riemann.statements import STATEMENTS
from neuromanifold_papers.riemann.statements.cells import cells, ruled
from neuromanifold_papers.riemann.statements.dense import generalised
from neuromanifold_papers.riemann.statements.exact import along, differing, slope, symbols
from neuromanifold_papers.riemann.statements.locus import complex_tuples, contained, tangent_spread
from neuromanifold_papers.riemann.statements.omitted import (
    Layers,
    dropped_with_stride,
    stride_passed_on,
)
from neuromanifold_papers.riemann.statements.table import depends, hourglass
from papers.support import assert_planted, assert_recorded, statement_name

BY_ID = {statement.id: statement for statement in STATEMENTS}


def _times(function: Any, factor: Any) -> Any:
    return lambda *args: factor * function(*args)


@pytest.mark.parametrize(
    ("id_", "module", "name", "broken"),
    [
        ("Eq 1", "conserved", "rate", lambda f: lambda *a: f(*a) + np.array([1])),
        ("Eq 7", "conserved", "printed_kernel", lambda f: _times(f, 2)),
        ("P 2", "algebra", "rescalings", lambda f: lambda depth: 2**depth),
        (
            "P 2",
            "algebra",
            "positive_solutions",
            lambda f: lambda squared, delta: f([-c for c in squared[:1]], delta[:0]),
        ),
        ("dim", "algebra", "printed_dimension", lambda f: lambda sizes: sum(sizes)),
        ("P 8 (two zero filters)", "exact", "differing", lambda f: lambda a, b: 1 - f(a, b)),
        ("Thm 4 (kernel)", "strided", "is_singular", lambda f: lambda net, v: True),
        ("sing (tuples)", "locus", "several_or_drop", lambda f: lambda *a: not f(*a)),
        ("Thm 4 (count)", "strided", "rescalings", lambda f: lambda depth: 2 ** (depth - 1) + 1),
        ("Cor 6", "strided", "pushforward", lambda f: _times(f, 1.001)),
        (
            "Ex 15 (equations)",
            "running",
            "printed_equation",
            lambda f: lambda v: f(v) + 2 * v[1] * v[2] * v[3],
        ),
        ("Ex 15 (λ)", "running", "printed_scale", lambda f: lambda a, b, delta: f(a, b, -delta)),
        ("Ex 17", "examples", "printed_scale", lambda f: lambda a, b, delta: f(a, b, -delta)),
        ("Ex 19 (formula)", "examples", "printed_kernel_19", lambda f: lambda a, b: f(-a, b * 2)),
        ("Cor 10", "tensors", "orders", lambda f: lambda net: 1),
        (
            "Obs 11 (c)",
            "tensors",
            "coincide",
            lambda f: lambda net, l, m: net.filter_shapes[l] == net.filter_shapes[m],
        ),
        ("Thm 13 (count)", "tensors", "orders", lambda f: lambda net: 1),
        (
            "Table 1 (dense, unbalanced)",
            "table",
            "depends",
            lambda f: lambda widths: len(widths) > 2,
        ),
        ("Table 1 (all cells)", "cells", "ruled", lambda f: lambda label, printed: printed),
        ("Sec 5 (MLP)", "relu", "relu_kernel", lambda f: lambda params, x: x),
    ],
)
def test_a_planted_error_changes_the_verdict(
    id_: str, module: str, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = importlib.import_module(f"neuromanifold_papers.riemann.statements.{module}")
    assert_planted(monkeypatch, BY_ID[id_], target, name, broken(getattr(target, name)), draws=2)


def test_theorem_13_by_hand() -> None:
    """(y_1 + y_2)(2 + 2y_1y_2) = (1 + y_1y_2)(2y_1 + 2y_2), δ = 8 − 2 in both; K[0, 0] = w_1[0,
    0]² + w_2[0, 0]².
    """
    net = LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1)))
    first = (np.array([[0, 1], [1, 0]], object), np.array([[2, 0], [0, 2]], object))
    second = (np.array([[1, 0], [0, 1]], object), np.array([[0, 2], [2, 0]], object))
    assert (
        net.end_to_end(first).tolist()
        == net.end_to_end(second).tolist()
        == [[0, 2, 0], [2, 0, 2], [0, 2, 0]]
    )
    assert (
        fs.norm_differences(net, first).tolist() == fs.norm_differences(net, second).tolist() == [6]
    )
    assert (fs.filter_kernel(net, first)[0, 0], fs.filter_kernel(net, second)[0, 0]) == (4, 1)


def test_the_singular_locus_by_hand() -> None:
    """No neuromanifold of the running example's strides lies strictly inside it over ℝ; (1, 4)
    lies inside (5, 2).
    """
    assert list(contained((3, 2), 2)) == []
    assert list(contained((5, 2), 2)) == [(1, 4)]
    assert list(contained((3, 3), 1)) == [(2, 4), (4, 2)]
    running, wide = LinearConvNet((3, 2), (2, 1)), LinearConvNet((5, 2), (2, 1))
    assert tangent_spread(running, np.array([2, 0, 5, 0, 2])) > 0.1
    assert tangent_spread(running, np.array([1, 2, 13, 20, 30])) < 1e-4
    even = np.array([1, 0, 1, 0, 1, 0, 1])
    assert tangent_spread(wide, even) < 1e-4
    assert (complex_tuples((5, 2), (2, 1), even), fs.fiber(wide, even).factorisations) == (3, 1)
    # (x² + xy + y²)(x² − y²)(x² − 4y²): two real tuples, and not even, so in no smaller
    # neuromanifold
    crossing = np.convolve([1, 1, 1], np.convolve([1, 0, -1], [1, 0, -4]))
    assert fs.fiber(wide, crossing).factorisations == 2
    assert tangent_spread(wide, crossing) > 0.1
    # y⁸: generic neighbours share a tangent space; those without a middle entry in w_1 have
    # another.
    power = np.zeros(9, int)
    power[-1] = 1
    assert tangent_spread(LinearConvNet((3, 2, 2), (2, 2, 1)), power) > 1.4


def test_a_layer_of_size_one_carries_its_stride() -> None:
    """7(x + 2y)(3x² + 5y²) with the stride, 7(x + 2y)(3x + 5y) without, and a first layer
    spreads the rest out.
    """
    layers = Layers((2, 1, 2), (1, 2, 1), ((1, 2), (7,), (3, 5)))
    assert (
        layers.end_to_end(layers.params).tolist()
        == layers.matrix(layers.params).ravel().tolist()
        == [21, 42, 35, 70]
    )
    rest = [layers.params[0], layers.params[2]]
    assert (7 * dropped_with_stride(layers, 1).end_to_end(rest)).tolist() == [21, 77, 70]
    assert (7 * stride_passed_on(layers, 1).end_to_end(rest)).tolist() == [21, 42, 35, 70]
    first = Layers((1, 2, 2), (2, 1, 1), ((7,), (1, 2), (3, 5)))
    assert first.end_to_end(first.params).tolist() == [21, 0, 77, 0, 70]


def test_dense_kernels_by_hand() -> None:
    """Width 1: 2² + 1² = √(3² + 4·2²); (1, h, 1): K² = (tr Δ)² + 4(W² − e_2(Δ)); Example 20 at
    depth 3, width 2.
    """
    assert (2**2 + 1**2) ** 2 == (2**2 - 1**2) ** 2 + 4 * (2 * 1) ** 2
    assert hourglass() == 0
    assert [
        depends(w)
        for w in ((1, 1, 1), (1, 5, 1), (2, 1, 2), (2, 2, 2), (1, 2, 2), (1, 2, 1, 1), (2, 2, 1, 1))
    ] == [
        False,
        False,
        False,
        True,
        True,
        False,
        True,
    ]
    first, second = generalised(2, 3)
    assert [W.tolist() for W in first] == [
        [[1, 0], [0, Fraction(1, 2)]],
        [[1, 0], [0, 2]],
        [[1, 0], [0, 1]],
    ]
    assert fs.end_to_end_matrix(second).tolist() == [[1, 0], [0, 1]]
    for a, b in zip(fs.gram_differences(first), fs.gram_differences(second), strict=True):
        assert a.tolist() == b.tolist()
    assert differing(fs.dense_kernel(first).matrix, fs.dense_kernel(second).matrix) > 0


def test_symbols_are_polynomials() -> None:
    (a, b), (c,) = symbols([(2,), (1,)])
    assert differing([(a + b) * (a - b)], [a * a - b * b]) == 0
    assert differing([2 - a], [-(a - 2)]) == 0
    assert differing([a * c, 1], [c * b, 1]) == 1
    # d/dε (2 + ε)(3 + 5ε) = 3 + 10 at ε = 0
    x, y = along(np.array([2, 3]), np.array([1, 5]))
    assert slope(np.array([x * y, 7], object)).tolist() == [13, 0]


def test_the_recorded_study_is_the_one_the_study_wrote() -> None:
    claims = list(read_claims("riemann"))
    assert len(claims_hash(claims)) == 64
    answers = [(printed, ruled(label, printed)) for label, printed, _ in cells(claims)]
    assert len(answers) == 40
    assert sum(printed != answer for printed, answer in answers) == 10


def test_a_study_without_the_claim_is_vacuous_not_an_error() -> None:
    assert (
        list(
            cells(
                [{"figure": "Table 1", "claim": "as printed", "measured": "30 of 40 cells agree"}]
            )
        )
        == []
    )
    measure = BY_ID["Thm 7 (many flows)"].measure
    assert measure("not measured").dropped is not None
    assert not measure("59 of 60 flows").holds


@pytest.mark.parametrize("one", STATEMENTS, ids=statement_name)
def test_the_verdict_is_the_recorded_one(one, draws):
    assert_recorded(one, draws)


def test_a_factor_crosses_a_stride_on_a_set_of_measure_zero():
    """Table 1 (D = 1, stride 1, δ = 0, amended), says almost every v: over (x² − y²)(x² −
    2y²)(x² − 3y²) the balanced kernels differ.
    """
    net = LinearConvNet((2, 2, 3), (1, 2, 1))
    found = []
    for inner, (a, b) in ((1.0, (2.0, 3.0)), (2.0, (1.0, 3.0))):
        root = np.sqrt(inner)
        filters = [np.array([1.0, -root]), np.array([1.0, root]), np.array([1.0, -a - b, a * b])]
        size = np.prod([np.linalg.norm(w) for w in filters]) ** (1 / 3)
        filters = tuple(size * w / np.linalg.norm(w) for w in filters)
        found.append(
            (np.asarray(net.end_to_end(filters)), np.asarray(fs.filter_kernel(net, filters)))
        )
    np.testing.assert_allclose(
        found[0][0], found[1][0], rtol=0, atol=1e-12 * np.abs(found[0][0]).max()
    )
    assert np.abs(found[0][1] - found[1][1]).max() > 1
