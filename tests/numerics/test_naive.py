"""The reference itself: two arithmetics that agree, ranks known by hand, square roots that do
not round.
"""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

import cast
import naive


@pytest.mark.parametrize("member", cast.EXACT, ids=str)
def test_the_exact_jacobian_is_the_float_one_to_rounding(
    member: cast.Member, rng: np.random.Generator
):
    params, x = member.draw(rng), member.inputs(rng, 4)
    floats = naive.jacobian(member.reference, naive.plain(params), x)
    exact = naive.jacobian(member.reference, naive.exact(list(params)), naive.exact(x)).astype(
        float
    )
    np.testing.assert_allclose(floats, exact, rtol=0, atol=50 * 2.0**-52 * np.abs(exact).max())


@pytest.mark.parametrize(
    "matrix, rank",
    [
        (np.zeros((2, 3)), 0),
        (np.eye(4), 4),
        ([[1, 2], [2, 4], [3, 6]], 1),
        ([[0, 0, 1], [0, 0, 2]], 1),
        ([[0, 1], [1, 0]], 2),
        (np.arange(12.0).reshape(3, 4), 2),
        ([[1, 1], [1, 1 + 2.0**-52]], 2),
        ([[1 / (i + j + 1) for j in range(9)] for i in range(9)], 9),
    ],
)
def test_ranks_known_by_hand(matrix, rank: int):
    assert naive.exact_rank(naive.exact(np.array(matrix, float))) == rank
    assert naive.exact_rank(naive.exact(np.array(matrix, float).T)) == rank


def test_ranks_over_a_field_with_square_roots():
    root2, root3 = naive.Surd(((2, Fraction(1)),)), naive.Surd(((3, Fraction(1)),))
    assert naive.exact_rank(np.array([[1, root2], [root2, 2]], dtype=object)) == 1
    assert naive.exact_rank(np.array([[1, root2], [root3, root2 * root3]], dtype=object)) == 1
    assert naive.exact_rank(np.array([[1, root2], [root2, root3]], dtype=object)) == 2


@pytest.mark.parametrize("n", range(1, 40))
def test_inverse_roots(n: int):
    root = naive.inverse_root(n)
    assert isinstance(root, Fraction) == (sqrt(n) == int(sqrt(n)))
    square = naive.Surd.of(root * root)
    assert square.terms == ((1, Fraction(1, n)),)
    assert abs(float(root) - 1 / sqrt(n)) < 1e-15


def test_signs_of_sums_of_roots():
    """√2 + √3 − √10 is 0.016 below zero … and (√2 + √3)² − 5 − 2√6 is zero."""
    root = {n: naive.Surd(((n, Fraction(1)),)) for n in (2, 3, 6, 10)}
    assert (root[2] + root[3] - root[10]).sign() == -1
    assert ((root[2] + root[3]) ** 2 - 5 - 2 * root[6]).sign() == 0
    # A convergent of √2, right to 60 digits: doubles and the first brackets see zero.
    p, q = 1, 1
    for _ in range(80):
        p, q = p + 2 * q, p + q
    assert (root[2] * q - p).sign() == (1 if 2 * q * q > p * p else -1)
    assert root[2] * q > p - 1
