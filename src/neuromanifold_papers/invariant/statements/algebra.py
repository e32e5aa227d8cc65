"""The gradient fields of two-layer networks as polynomials in one neuron, in exact arithmetic.

With σ(z) = Σ s_n zⁿ the fields ∇_θ Σ_i a_i σ(w_i·x), over all x, span at every θ the same space as
the gradients of Σ_i a_i w_i^α, |α| = n, s_n ≠ 0. Brackets act on each neuron alone [invariant,
proof of Cor 5.3], so a bracket is d + 1 polynomials in (a, w), and Lie_θ is spanned by their values
at the neurons. Only the *support* {n : s_n ≠ 0} matters. Everything is computed modulo a prime,
where a rank can only be too small: each dimension found is a proved lower bound.
"""

import itertools
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from neuromanifold.numerics.elimination import modular_rank

PRIME = 2**31 - 1
CAPS = {1: (4, 8, 16, 24), 2: (4, 8, 12)}
"""The grades of brackets to go up to, one after the other, by the number of inputs; the field of
wⁿ has grade n − 1, and grades add.
"""

Exponents = tuple[int, ...]
Polynomial = dict[Exponents, int]
Field = tuple[Polynomial, ...]
Support = tuple[int, ...]
Neurons = tuple[tuple[int, ...], ...]


def monomial_fields(d: int, support: Iterable[int]) -> list[tuple[int, Field]]:
    """(grade, ∇(a w^α)) for every α with |α| in the support.

    >>> monomial_fields(1, [2])                                        # w² ∂_a + 2aw ∂_w
    [(1, ({(0, 2): 1}, {(1, 1): 2}))]
    """
    return [(n - 1, _gradient(alpha)) for n in support for alpha in _exponents(d, n)]


def _exponents(d: int, n: int) -> list[Exponents]:
    return [alpha for alpha in itertools.product(range(n + 1), repeat=d) if sum(alpha) == n]


def _gradient(alpha: Exponents) -> Field:
    def lowered(j: int) -> Polynomial:
        return {(1, *(k - (i == j) for i, k in enumerate(alpha))): alpha[j]} if alpha[j] else {}

    return ({(0, *alpha): 1}, *(lowered(j) for j in range(len(alpha))))


def along(X: Field, p: Polynomial) -> Polynomial:
    """X p = Σ_j X_j ∂p/∂n_j, the derivative of a function of one neuron along a field."""
    result: Polynomial = {}
    for j, component in enumerate(X):
        for (e, c), (f, k) in itertools.product(p.items(), component.items()):
            if e[j]:
                g = tuple(a + b - (i == j) for i, (a, b) in enumerate(zip(e, f, strict=True)))
                result[g] = (result.get(g, 0) + c * e[j] * k) % PRIME
    return {e: c for e, c in result.items() if c}


def bracket(X: Field, Y: Field) -> Field:
    """[X, Y] = DY·X − DX·Y."""
    return tuple(_difference(along(X, y), along(Y, x)) for x, y in zip(X, Y, strict=True))


def _difference(p: Polynomial, q: Polynomial) -> Polynomial:
    result = {e: (p.get(e, 0) - q.get(e, 0)) % PRIME for e in p.keys() | q.keys()}
    return {e: c for e, c in result.items() if c}


@lru_cache
def algebra(d: int, support: Support, cap: int) -> tuple[Field, ...]:
    """A basis of the iterated brackets of the monomial fields, as far as grades up to `cap` lead.

    >>> [len(algebra(1, support, 0)) for support in ((0, 1), (0, 1, 2), (1, 3))]     # up to linear fields of the plane
    [3, 3, 1]
    >>> len(algebra(1, (0, 1, 2), 1))                                                # all fields of degree at most 2
    12
    """
    generators = [(g, X) for g, X in monomial_fields(d, support) if g <= cap]
    spans: dict[int, Span] = {}
    new = [(g, X) for g, X in generators if spans.setdefault(g, Span()).add(X)]
    found: list[Field] = []
    while new:
        found += [X for _, X in new]
        pairs = itertools.product(generators, new)
        brackets = ((g + h, bracket(X, Y)) for (g, X), (h, Y) in pairs if g + h <= cap)
        new = [(g, Z) for g, Z in brackets if spans.setdefault(g, Span()).add(Z)]
    return tuple(found)


class Span:
    """Polynomial fields in echelon form."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, Exponents], dict[tuple[int, Exponents], int]] = {}

    def add(self, X: Field) -> bool:
        """Whether X is new."""
        v = {(j, e): c for j, p in enumerate(X) for e, c in p.items()}
        while v:
            lead = min(v)
            if lead not in self.rows:
                inverse = pow(v[lead], -1, PRIME)
                self.rows[lead] = {e: c * inverse % PRIME for e, c in v.items()}
                return True
            factor, row = v[lead], self.rows[lead]
            v = {e: (v.get(e, 0) - factor * row.get(e, 0)) % PRIME for e in v.keys() | row.keys()}
            v = {e: c for e, c in v.items() if c}
        return False


@lru_cache(maxsize=4096)
def _values(d: int, support: Support, cap: int, neuron: tuple[int, ...]) -> np.ndarray:
    """The basis of the algebra at one neuron, one field a row."""
    return np.array(
        [[value(p, neuron) for p in X] for X in algebra(d, support, cap)], np.int64
    ).reshape(-1, d + 1)


def value(p: Polynomial, neuron: Sequence[int]) -> int:
    """p at a whole point, modulo the prime."""
    total = 0
    for exponents, coefficient in p.items():
        for entry, k in zip(neuron, exponents, strict=True):
            coefficient = coefficient * pow(int(entry), k, PRIME) % PRIME
        total += coefficient
    return total % PRIME


def closure_rows(support: Support, neurons: Neurons, cap: int) -> np.ndarray:
    """Vectors of Lie_θ modulo the prime, of brackets up to the grade `cap`; columns neuron by
    neuron, (a_i, w_i).
    """
    d = len(neurons[0]) - 1
    return np.concatenate([_values(d, support, cap, tuple(neuron)) for neuron in neurons], axis=1)


def closure_dimension(support: Support, neurons: Neurons, enough: int | None = None) -> int:
    """dim Lie_θ at whole neurons (a_i, w_i), proved from below; brackets are taken until the
    dimension is `enough`, or D.

    >>> full = tuple(range(10))
    >>> [closure_dimension(full, neurons) for neurons in (((1, 1), (2, 1)), ((1, 1), (1, 1)))]   # [invariant, Ex 3.1]
    [4, 2]
    """
    enough = len(neurons) * len(neurons[0]) if enough is None else enough
    found = 0
    for cap in CAPS[len(neurons[0]) - 1]:
        found = rank(closure_rows(support, neurons, cap))
        if found >= enough:
            break
    return found


def field_dimension(support: Support, neurons: Neurons) -> int:
    """The dimension of the span of the fields themselves, without brackets."""
    d = len(neurons[0]) - 1
    fields = [X for _, X in monomial_fields(d, support)]
    return rank(
        np.array([[value(p, neuron) for neuron in neurons for p in X] for X in fields], np.int64)
    )


def rank(rows: np.ndarray) -> int:
    """The rank modulo the prime."""
    return modular_rank(rows % PRIME, PRIME)


@lru_cache
def derived(d: int, support: Support, form: int, length: int) -> tuple[Polynomial, ...]:
    """The coordinate n_form of a neuron, differentiated along all words of at most `length`
    fields of the support.
    """
    fields = [X for _, X in monomial_fields(d, support)]
    start: Polynomial = {tuple(int(j == form) for j in range(d + 1)): 1}
    words, last = [start], [start]
    for _ in range(length):
        last = [q for p in last for X in fields if (q := along(X, p))]
        words += last
    return tuple(words)


def stays(
    support: Support, combination: Sequence[tuple[int, tuple[int, ...]]], form: int, length: int = 3
) -> bool:
    """Whether Σ_k c_k (n_k)_form vanishes along the orbit near the neurons n_k, for pairs (c_k,
    n_k).

    An analytic function vanishes on the orbit near θ exactly where all its derivatives along words
    of fields vanish at θ; here words of at most `length` fields are tried.

    >>> even, odd = (0, 2, 4), (1, 3, 5)                         # w₁ + w₂ at (a, w) = (1, 1) and (1, −1), (−1, −1)
    >>> [stays(s, [(1, (1, 1)), (1, (a, -1))], 1) for s in (even, odd) for a in (1, -1)]
    [True, False, False, True]
    """
    d = len(combination[0][1]) - 1
    words = derived(d, support, form, length)
    return all(sum(c * value(p, neuron) for c, neuron in combination) % PRIME == 0 for p in words)
