"""Arithmetic modulo a prime of at most 61 bits on whole NumPy arrays.

Residues are int64 in `[0, p)`. A product of two of 61 bits has 122, so it is taken in steps whose
quotient fits float64: for `a < p` and `c < 2³²`, `q = ⌊a·c/p⌋` is at most 2³³ and its float
estimate is off by less than one, hence `a·c − q·p`, computed modulo 2⁶⁴, lies in `(−p, 2p)` and is
right after one correction. Matrix products go through BLAS: residues are cut into limbs so short
that every partial sum is an integer below 2⁵³: one limb for primes of 22 bits, three of at most 21
bits for primes of 61 (six products).
"""

import functools
import itertools
import secrets
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from neuromanifold.runtime.memory import blocks

Residues = Int[Any, "..."]
_HALF = 31
_HALF_MASK = (1 << _HALF) - 1
_SMALL = 1 << 31
_ROWS = 512  # that are multiplied at once: the parts of their products take a dozen times as much memory as the result
SMALL_BITS = 22
"""Primes of this length multiply matrices in a single product: fast, and enough to prove a lower
bound of a rank.
"""


def random_prime(*, bits: int = 61) -> int:
    """A prime drawn uniformly from those of so many bits."""
    import flint

    while True:
        p = flint.fmpz((1 << bits - 1) + 1 + 2 * secrets.randbelow(1 << bits - 2))
        if p.is_prime():
            return int(p)


def is_prime(p: int) -> bool:
    """Whether p is a prime number."""
    import flint

    return p > 1 and bool(flint.fmpz(p).is_prime())


def _times_small(a: Residues, c: Any, p: int) -> Residues:
    quotient = (a * (np.asarray(c, np.float64) / p)).astype(np.int64)
    with np.errstate(over="ignore"):  # modulo 2⁶⁴ on purpose; NumPy warns for scalars
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
    if p < _SMALL:
        return a * b % p
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


def inverse(a: Residues, p: int) -> Residues:
    """Entrywise `1/a mod p` by Fermat's theorem; entries must not be zero.

    >>> inverse(np.array([2, 3]), 7).tolist()
    [4, 5]
    """
    return power(a, p - 2, p)


def sum_over(a: Residues, axes: tuple[int, ...], p: int) -> Residues:
    """The sum over axes modulo p: high and low halves apart, so that no partial sum overflows.

    >>> p = 2**61 - 1
    >>> int(sum_over(np.full(100, p - 1), (0,), p)) == p - 100
    True
    """
    if p < _SMALL:
        return np.asarray(a.sum(axis=axes) % p, np.int64)
    high, low = (a >> _HALF).sum(axis=axes) % p, (a & _HALF_MASK).sum(axis=axes) % p
    return add(_times_small(np.asarray(high), 1 << _HALF, p), np.asarray(low), p)


def scatter_add(base: Residues, index: np.ndarray, updates: Residues, p: int) -> Residues:
    """`base` with `updates` added at flat positions; positions may repeat."""
    halves = []
    for part in (updates >> _HALF, updates & _HALF_MASK):
        total = np.zeros(base.size, np.int64)
        np.add.at(total, index.ravel(), part.ravel())
        halves.append((total % p).reshape(base.shape))
    return add(base, add(multiply(halves[0], np.asarray((1 << _HALF) % p), p), halves[1], p), p)


def matmul(a: Residues, b: Residues, p: int) -> Residues:
    """The matrix product modulo p, leading axes broadcasting as in NumPy."""
    if a.shape[-1] == 0:
        return np.zeros(
            (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.int64
        )
    if a.ndim == 2 and len(a) > 2 * _ROWS:
        return np.concatenate([matmul(a[part], b, p) for part in blocks(len(a), _ROWS)])
    count, bits, terms = _limb_plan(p.bit_length())
    parts = (
        _products(a[..., part], b[..., part, :], count, bits) for part in blocks(a.shape[-1], terms)
    )
    sums = functools.reduce(lambda total, part: _sum(total, part, p), parts)
    return functools.reduce(
        lambda high, low: add(_times_small(high, 1 << bits, p), low, p), [s % p for s in sums[::-1]]
    )


def _sum(total: list[Residues], part: list[Residues], p: int) -> list[Residues]:
    """Sums of integers below 2⁶² and below 2⁵³, below 2⁶² again."""
    return [_below(a + b, 1 << 62, p) for a, b in zip(total, part, strict=True)]


def _below(a: Residues, bound: int, p: int) -> Residues:
    """The same modulo p, reduced only where that is needed to stay below the bound."""
    return a if a.max(initial=0) < bound else a % p


def _limb_plan(bits: int) -> tuple[int, int, int]:
    """How many limbs, of how many bits, and how many terms of a sum stay below 2⁵³."""
    count = 1 if bits <= SMALL_BITS + 2 else 2 if bits <= 44 else 3
    limb = -(-bits // count)
    return count, limb, max(1, (1 << 53) // ((1 if count == 1 else 4) << (2 * limb)))


def _products(a: Residues, b: Residues, count: int, bits: int) -> list[Residues]:
    """The product as a polynomial in 2^bits: integers below 2⁵³, the lowest degree first.

    By Karatsuba's A_i B_j + A_j B_i = (A_i + A_j)(B_i + B_j) − A_i B_i − A_j B_j: six products for
    three limbs instead of nine.
    """
    A, B = _limbs(a, count, bits), _limbs(b, count, bits)
    even = [x @ y for x, y in zip(A, B, strict=True)]
    found: list[Any] = [
        even[degree // 2] if degree % 2 == 0 else 0.0 for degree in range(2 * count - 1)
    ]
    for i, j in itertools.combinations(range(count), 2):
        found[i + j] = found[i + j] + ((A[i] + A[j]) @ (B[i] + B[j]) - even[i] - even[j])
    return [part.astype(np.int64) for part in found]


def _limbs(a: Residues, count: int, bits: int) -> list[np.ndarray]:
    mask = (1 << bits) - 1
    return [((a >> (bits * i)) & mask).astype(np.float64) for i in range(count)]


def from_floats(a: Float[np.ndarray, "..."], p: int) -> Residues:
    """The residues of floats, which are dyadic rationals `m·2^e`: exact, no rounding anywhere.

    >>> p = 2**61 - 1
    >>> int(multiply(from_floats(np.array([0.75]), p), np.array([4]), p)[0])
    3
    """
    mantissa, exponent = np.frexp(np.asarray(a, np.float64))
    integer = (mantissa * 2.0**53).astype(np.int64) % p
    exponents, inverse = np.unique(exponent, return_inverse=True)
    powers = np.array([pow(2, int(e) - 53, p) for e in exponents], np.int64)
    return multiply(integer, powers[inverse].reshape(integer.shape), p)


def from_fraction(numerator: int, denominator: int, p: int) -> int:
    """The residue of one rational number."""
    return numerator * pow(denominator, -1, p) % p


def random_residues(shape: tuple[int, ...], p: int) -> Residues:
    """Independent uniform residues."""
    return np.random.default_rng(secrets.randbits(128)).integers(0, p, shape, dtype=np.int64)
