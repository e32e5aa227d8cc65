"""Filters as sparse polynomials, in floats and exactly.

A filter w of layer l is the polynomial π_t(w) = Σ_i w_i x^{t(k−1−i)} y^{t i}, t = s_1⋯s_{l−1};
composing layers multiplies their polynomials [riemann, Eq 8, Lem 9]. With x = 1 the index of a
coefficient is the exponent of y, so a coefficient array *is* the polynomial. Its nominal degree k −
1 counts: a vanishing last coefficient is a factor x (a root at ∞).
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold.models.arguments import Params
from neuromanifold.models.convolution import LinearConvNet, Shape, dilated_product
from neuromanifold.numerics.results import Array


def multiply(p: Array, q: Array) -> np.ndarray:
    """The product of two polynomials, in the arithmetic of the arrays (`Fraction` and `int`
    objects stay exact).
    """
    return (
        dilated_product(p, q, (1,) * q.ndim)
        if q.size <= p.size
        else dilated_product(q, p, (1,) * q.ndim)
    )


def product(factors: Iterable[Array], ndim: int) -> np.ndarray:
    """The product of any number of polynomials; of none, the constant 1."""
    total = np.ones((1,) * ndim)
    for factor in factors:
        total = multiply(total, factor)
    return total


def spread(w: Array, t: Shape) -> np.ndarray:
    """w(z^t): the filter with t − 1 zeros put between neighbours.

    >>> spread(np.array([1, 2]), (3,)).tolist()
    [1, 0, 0, 2]
    """
    dilated = np.zeros(tuple(s * (k - 1) + 1 for s, k in zip(t, w.shape, strict=True)), w.dtype)
    dilated[tuple(slice(None, None, s) for s in t)] = w
    return dilated


def exact(w: Any) -> np.ndarray:
    """The array with `Fraction` entries: ints and rationals as they are, floats as the dyadic
    rationals that they are.

    >>> exact([0.5, 3]).tolist()
    [Fraction(1, 2), Fraction(3, 1)]
    """
    array = np.asarray(w)
    if not is_rational(array):
        array = array.astype(np.float64)
    entries = [Fraction(entry) for entry in array.ravel().tolist()]
    return np.array([*entries, None], object)[:-1].reshape(array.shape)


def is_rational(array: Array) -> bool:
    """Whether the array was given exactly: integers, or objects that are ints or Fractions."""
    if array.dtype == object:
        return all(isinstance(entry, (int, Fraction, np.integer)) for entry in array.ravel())
    return np.issubdtype(array.dtype, np.integer)


def compose_exactly(net: LinearConvNet, params: Params) -> np.ndarray:
    """μ(θ) in rational arithmetic."""
    return net.end_to_end(tuple(exact(w) for w in params))


def primitive(array: Array) -> list[int]:
    """The entries of a rational array, scaled to integers without a common divisor (in C order)."""
    import flint

    entries = [flint.fmpq(int(entry.numerator), int(entry.denominator)) for entry in array.ravel()]
    common = flint.fmpz(1)
    for entry in entries:
        common = common.lcm(entry.q)
    integers = [entry.p * (common // entry.q) for entry in entries]
    divisor = flint.fmpz(0)
    for entry in integers:
        divisor = divisor.gcd(entry)
    return [int(entry // divisor) for entry in integers] if divisor else [0] * len(entries)


def factor_exactly(array: Array) -> list[tuple[np.ndarray, int]]:
    """The irreducible factors over ℚ of a nonzero rational polynomial, with multiplicities,
    constants left out.

    >>> [(factor.tolist(), power) for factor, power in factor_exactly(exact([[1, 2, 1], [1, 2, 1]]))]
    [([[1], [1]], 1), ([[1, 1]], 2)]
    """
    import flint

    names = [f"y{m}" for m in range(array.ndim)]
    context = flint.fmpz_mpoly_ctx.get(names, flint.Ordering.lex)
    terms = zip(np.ndindex(array.shape), primitive(array), strict=True)
    polynomial = context.from_dict({index: value for index, value in terms if value})
    factors = [
        (_coefficients(factor, array.ndim), int(power)) for factor, power in polynomial.factor()[1]
    ]
    return sorted(factors, key=lambda entry: (entry[1], entry[0].shape[::-1]))


def _coefficients(polynomial: Any, ndim: int) -> np.ndarray:
    terms = {
        tuple(int(e) for e in exponent): int(value)
        for exponent, value in polynomial.to_dict().items()
    }
    shape = tuple(1 + max(exponent[m] for exponent in terms) for m in range(ndim))
    array = np.zeros(shape, object)
    for exponent, value in terms.items():
        array[exponent] = value
    return array
