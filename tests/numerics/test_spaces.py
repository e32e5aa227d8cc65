"""Spans that grow by what is new: against one elimination of everything."""

import numpy as np
import pytest

from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import echelon, minor_spans, to_flint
from neuromanifold.numerics.spaces import exact_spaces


def reduced(A, p):
    form, rank = to_flint(A, p).rref()
    return np.array([int(e) for e in form.entries()], np.int64).reshape(A.shape)[:rank]


@pytest.fixture
def spaces():
    return exact_spaces()


def low_rank(spaces, rows, columns, rank):
    return spaces.product(spaces.random((rows, rank)), spaces.random((rank, columns)))


@pytest.mark.parametrize(
    "rows, more, rank", [(5, 40, 12), (30, 700, 50), (60, 10, 3), (0, 300, 60)]
)
def test_an_extended_span_is_the_echelon_form_of_all_rows(spaces, rows, more, rank):
    first, second = low_rank(spaces, rows, 60, min(rank, 4)), low_rank(spaces, more, 60, rank)
    second[:, 7] = 0
    basis = spaces.basis(first)
    found = spaces.extended(basis, second)
    np.testing.assert_array_equal(found, reduced(np.concatenate([first, second]), spaces.p))
    assert (
        spaces.extended(found, second[::2]) is found and spaces.extended(found, second[:0]) is found
    )
    assert not spaces.product(second, spaces.orthogonal(found)[:, None]).any()
    assert not spaces.product(found, spaces.kernel(found).T).any()
    assert len(spaces.kernel(found)) == 60 - len(found)


def test_more_rows_than_are_eliminated_at_once_give_the_same(spaces, monkeypatch):
    monkeypatch.setattr("neuromanifold.numerics.spaces._AT_ONCE", 16)
    monkeypatch.setattr("neuromanifold.numerics.spaces._FEW", 4)
    A = low_rank(spaces, 70, 30, 20)
    np.testing.assert_array_equal(spaces.basis(A), reduced(A, spaces.p))


def test_confined_vectors_are_all_of_the_kernel_that_vanish_outside_a_block(spaces):
    A = spaces.basis(low_rank(spaces, 9, 20, 6))
    blocks = [np.arange(5), np.arange(3, 15), np.array([19, 2, 7, 11, 0, 5, 13, 16]), np.arange(0)]
    for block, found in zip(blocks, spaces.confined(A, blocks), strict=True):
        outside = np.setdiff1d(np.arange(20), block)
        assert not found[:, outside].any() and not spaces.product(A, found.T).any()
        assert (
            spaces.rank(found)
            == len(found)
            == len(block) - (spaces.rank(A[:, block]) if len(block) else 0)
        )


def test_a_minor_spans_exactly_when_the_rank_is_its_size(spaces):
    A = low_rank(spaces, 12, 15, 6)
    found = echelon(A, spaces.p)
    assert minor_spans(A, found.rows, found.columns, spaces.p)
    assert not minor_spans(A, found.rows[:-1], found.columns[:-1], spaces.p)
    assert not minor_spans(A, (*found.rows[:-1], found.rows[0]), found.columns, spaces.p)


@pytest.mark.parametrize("bits", [22, 44, 61])
@pytest.mark.parametrize("terms", [1, 500, 3000])
def test_long_products_agree_with_whole_numbers(bits, terms):
    p = modular.random_prime(bits=bits)
    A, B = (modular.random_residues(shape, p) for shape in ((3, terms), (terms, 2)))
    exact = [
        [sum(int(a) * int(b) for a, b in zip(row, column, strict=True)) % p for column in B.T]
        for row in A
    ]
    assert modular.matmul(A, B, p).tolist() == exact
    top = np.full((2, terms), p - 1)
    assert modular.matmul(top, top.T, p).tolist() == [[terms % p] * 2] * 2
