"""Arithmetic modulo a 61-bit prime on whole NumPy arrays.

Residues are int64 in `[0, p)` with `2⁶⁰ < p < 2⁶¹`. A product of two of them has 122 bits, so it is taken in steps whose
quotient fits float64: for `a < p` and `c < 2³²`, `q = ⌊a·c/p⌋` is at most 2³³ and its float estimate is off by less
than one, hence `a·c − q·p`, computed modulo 2⁶⁴, lies in `(−p, 2p)` and is right after one correction.
Matrix products go through BLAS: three limbs of at most 21 bits make every partial sum an integer below 2⁵³.
"""

import functools
import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from neuromanifold.numerics.memory import blocks

Residues = Int[np.ndarray, "..."]
_LIMB = 20
_LIMB_MASK = (1 << _LIMB) - 1
_EXACT_TERMS = 1 << 10  # limbs ≤ 2²¹, three products to an entry, sums below 2⁵³
_HALF = 31
_HALF_MASK = (1 << _HALF) - 1


def random_prime(*, squares: Iterable[int] = ()) -> int:
    """A prime drawn uniformly from those between 2⁶⁰ and 2⁶¹ modulo which every element of `squares` is a square."""
    import flint

    integers = [flint.fmpz(s) for s in set(squares)]
    while True:
        p = flint.fmpz((1 << 60) + 1 + 2 * secrets.randbelow(1 << 59))
        if p.is_prime() and all(s.jacobi(p) == 1 for s in integers):
            return int(p)


def square_root(a: int, p: int) -> int:
    """A root of `z² = a (mod p)`, for an `a` that has one."""
    import flint

    return int(flint.nmod(a, p).sqrt())


def _times_small(a: Residues, c: Any, p: int) -> Residues:
    quotient = (a * (np.asarray(c, np.float64) / p)).astype(np.int64)
    remainder = a * c - quotient * p
    remainder += p * (remainder < 0)
    remainder -= p * (remainder >= p)
    return remainder


def multiply(a: Residues, b: Residues, p: int) -> Residues:
    """Entrywise `a·b mod p`, broadcasting.

    >>> p = 2**61 - 1
    >>> int(multiply(np.array([p - 1]), np.array([p - 2]), p)[0])
    2
    """
    high = _times_small(_times_small(a, b >> _HALF, p), 1 << _HALF, p)
    return add(high, _times_small(a, b & _HALF_MASK, p), p)


def add(a: Residues, b: Residues, p: int) -> Residues:
    """Entrywise `a + b mod p`."""
    total = a + b
    total -= p * (total >= p)
    return total


def power(a: Residues, exponent: int, p: int) -> Residues:
    """Entrywise `a^exponent mod p`, by repeated squaring."""
    result = np.ones_like(a)
    while exponent:
        if exponent & 1:
            result = multiply(result, a, p)
        a, exponent = multiply(a, a, p), exponent >> 1
    return result


def matmul(a: Residues, b: Residues, p: int) -> Residues:
    """The matrix product modulo p, leading axes broadcasting as in NumPy."""
    if a.shape[-1] == 0:
        return np.zeros((*a.shape[:-1], b.shape[-1]), np.int64)
    parts = (_short_matmul(a[..., part], b[..., part, :], p) for part in blocks(a.shape[-1], _EXACT_TERMS))
    return functools.reduce(lambda total, part: add(total, part, p), parts)


def _short_matmul(a: Residues, b: Residues, p: int) -> Residues:
    A, B = _limbs(a), _limbs(b)
    sums = [A[2] @ B[2], A[2] @ B[1] + A[1] @ B[2], A[2] @ B[0] + A[1] @ B[1] + A[0] @ B[2], A[1] @ B[0] + A[0] @ B[1]]
    total = sums[0].astype(np.int64)
    for partial in (*sums[1:], A[0] @ B[0]):
        total = add(_times_small(total, 1 << _LIMB, p), partial.astype(np.int64), p)
    return total


def _limbs(a: Residues) -> tuple[np.ndarray, ...]:
    low, middle, high = a & _LIMB_MASK, (a >> _LIMB) & _LIMB_MASK, a >> (2 * _LIMB)
    return low.astype(np.float64), middle.astype(np.float64), high.astype(np.float64)


def from_floats(a: Float[np.ndarray, "..."], p: int) -> Residues:
    """The residues of floats, which are dyadic rationals `m·2^e`: exact, no rounding anywhere.

    >>> p = 2**61 - 1
    >>> int(multiply(from_floats(np.array([0.75]), p), np.array([4]), p)[0])
    3
    """
    mantissa, exponent = np.frexp(np.asarray(a, np.float64))
    integer = (mantissa * 2.0**53).astype(np.int64)
    integer += p * (integer < 0)
    exponents, inverse = np.unique(exponent, return_inverse=True)
    powers = np.array([pow(2, int(e) - 53, p) for e in exponents], np.int64)
    return multiply(integer, powers[inverse].reshape(integer.shape), p)


def from_fraction(numerator: int, denominator: int, p: int) -> int:
    """The residue of one rational number."""
    return numerator * pow(denominator, -1, p) % p


def random_residues(shape: tuple[int, ...], p: int) -> Residues:
    """Independent uniform residues."""
    return np.random.default_rng(secrets.randbits(128)).integers(0, p, shape, dtype=np.int64)
