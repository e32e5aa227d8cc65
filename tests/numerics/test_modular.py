"""Arithmetic modulo a 61-bit prime against Python's integers, at the ends of its range too;
ranks against Bareiss.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from neuromanifold.numerics import elimination, modular

P = 2**61 - 1
residues = st.integers(0, P - 1) | st.sampled_from(
    [0, 1, 2, P - 1, P - 2, 2**32, 2**32 - 1, 2**60, P // 2]
)


def integers(a: np.ndarray) -> np.ndarray:
    return np.array([int(v) for v in a.flat], dtype=object).reshape(a.shape)


@given(st.lists(st.tuples(residues, residues), min_size=1, max_size=8))
def test_products_sums_and_powers(pairs: list[tuple[int, int]]):
    a, b = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    assert modular.multiply(a, b, P).tolist() == [x * y % P for x, y in pairs]
    assert modular.add(a, b, P).tolist() == [(x + y) % P for x, y in pairs]
    assert modular.power(a, 5, P).tolist() == [pow(x, 5, P) for x, _ in pairs]


@pytest.mark.parametrize("inner", [1, 7, 2047, 2048, 2049, 5000])
def test_matrix_products_at_the_ends_of_the_range(inner: int, rng: np.random.Generator):
    """Inner sums of the largest residues are where a limb would overflow."""
    largest = np.full((2, inner), P - 1, dtype=np.int64)
    drawn = rng.integers(0, P, size=(inner, 3), dtype=np.int64)
    for a, b in [(largest, largest.T), (largest, drawn), (drawn.T, drawn)]:
        expected = integers(a) @ integers(b) % P
        np.testing.assert_array_equal(integers(modular.matmul(a, b, P)), expected)


@pytest.mark.parametrize(("p", "below"), [(3_000_017, True), (4_194_287, False)])
def test_floats_are_reduced_to_residues(p: int, below: bool, rng: np.random.Generator):
    """Beside multiples of p near 2⁵³ the rounded quotient is one too large, or one too small."""
    multiples = p * rng.integers(2**52 // p, 2**53 // p - 1, 2000)
    a = np.concatenate([multiples + near for near in (-1, 0, 1)])
    floats = a.astype(np.float64)
    first = floats - np.floor(floats * (1.0 / p)) * p
    assert (first < 0).any() if below else (first >= p).any()  # control: it happens here
    np.testing.assert_array_equal(elimination._reduce(floats, float(p)), a % p)


def test_matrix_products_broadcast(rng: np.random.Generator):
    a, b = rng.integers(0, P, size=(4, 1, 2, 3)), rng.integers(0, P, size=(5, 3, 2))
    np.testing.assert_array_equal(integers(modular.matmul(a, b, P)), integers(a) @ integers(b) % P)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_floats_become_residues_without_rounding(values: list[float]):
    """5e-324 and 1.8e308 included."""
    found = modular.from_floats(np.array([*values, 5e-324, -1.7976931348623157e308, -0.0]), P)
    for value, residue in zip(
        [*values, 5e-324, -1.7976931348623157e308, -0.0], found.tolist(), strict=True
    ):
        fraction = Fraction(value)
        assert residue * fraction.denominator % P == fraction.numerator % P
        assert modular.from_fraction(fraction.numerator, fraction.denominator, P) == residue


def test_primes_are_prime(draws):
    for _ in range(draws(12)):
        p = modular.random_prime()
        assert 2**60 < p < 2**61
        assert all(pow(base, p - 1, p) == 1 for base in (2, 3, 5, 7, 11, 13))
    assert len({modular.random_prime() for _ in range(5)}) == 5


@given(
    matrix=st.integers(1, 5).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-2, 2), min_size=n, max_size=n), min_size=1, max_size=6
        )
    )
)
@settings(max_examples=100)
def test_ranks_are_those_over_the_rationals(matrix: list[list[int]]):
    """Minors of such small matrices are far below the prime, so that the ranks agree."""
    reduced = np.array(matrix, dtype=np.int64) % P
    rank = naive.exact_rank(naive.exact(np.array(matrix)))
    assert elimination.modular_rank(reduced, P) == rank
    found = elimination.echelon(reduced, P)
    assert found.rank == rank == len(found.rows) == len(found.columns)
    minor = reduced[np.ix_(found.rows, found.columns)]
    assert (
        naive.exact_rank(naive.exact(np.array(matrix)[np.ix_(found.rows, found.columns)])) == rank
        if rank
        else True
    )
    assert elimination.is_invertible(minor, P) if rank else True


def test_a_rank_modulo_a_small_prime_may_be_smaller():
    matrix = np.array([[1, 1], [1, 8]])
    assert elimination.modular_rank(matrix % 7, 7) == 1 < naive.exact_rank(naive.exact(matrix)) == 2
