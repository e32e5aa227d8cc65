"""The reference: networks in plain NumPy, nothing hidden. The tests compare the library with it,
never the reverse.

Every function works on arrays of float64 and, unchanged, on object arrays of exact numbers:
`Fraction`, and `Surd` where NTK scaling brings in square roots. Floats are dyadic rationals, so
`exact` loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import cos, erf, exp, gcd, isqrt, lcm, log, pi, prod, sin, sqrt, tanh
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Surd:
    """A sum of rational multiples of roots of squarefree integers, (radicand, coefficient); zero
    exactly when empty.
    """

    terms: tuple[tuple[int, Fraction], ...]

    @staticmethod
    def of(number: Any) -> "Surd":
        return number if isinstance(number, Surd) else Surd.collect([(1, Fraction(number))])

    @staticmethod
    def collect(terms: list[tuple[int, Fraction]]) -> "Surd":
        sums: dict[int, Fraction] = {}
        for radicand, coefficient in terms:
            sums[radicand] = sums.get(radicand, Fraction(0)) + coefficient
        return Surd(tuple(sorted((r, c) for r, c in sums.items() if c)))

    def __add__(self, other: Any) -> "Surd":
        return Surd.collect([*self.terms, *Surd.of(other).terms])

    def __mul__(self, other: Any) -> "Surd":
        pairs = product(self.terms, Surd.of(other).terms)
        return Surd.collect([(times(r, s), a * b * gcd(r, s)) for (r, a), (s, b) in pairs])

    def __neg__(self) -> "Surd":
        return self * -1

    def __sub__(self, other: Any) -> "Surd":
        return self + -Surd.of(other)

    def __pow__(self, degree: int) -> "Surd":
        return prod([self] * degree, start=Surd.of(1))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> "Surd":
        return Surd.of(other) - self

    def __gt__(self, other: Any) -> bool:
        return (self - other).sign() > 0

    def __lt__(self, other: Any) -> bool:
        return (self - other).sign() < 0

    def sign(self) -> int:
        """Bracket the sum between integers at doubling precision; roots of squarefree integers
        never cancel.
        """
        bits = 64
        while self.terms:
            scale = lcm(*(c.denominator for _, c in self.terms))
            floors = [(int(c * scale), isqrt(r << 2 * bits)) for r, c in self.terms]
            low = sum(c * (f if c > 0 else f + 1) for c, f in floors)
            high = sum(c * (f + 1 if c > 0 else f) for c, f in floors)
            if low > 0 or high < 0:
                return 1 if low > 0 else -1
            bits *= 2
        return 0

    def __float__(self) -> float:
        return float(sum(float(c) * sqrt(r) for r, c in self.terms))


def times(r: int, s: int) -> int:
    """The squarefree part of the product of two squarefree integers."""
    return r * s // gcd(r, s) ** 2


def inverse_root(n: int) -> Fraction | Surd:
    """1/√n exactly."""
    square = max(k for k in range(1, isqrt(n) + 1) if n % (k * k) == 0)
    radicand = n // square**2
    return Fraction(1, square) if radicand == 1 else Surd(((radicand, Fraction(square, n)),))


@dataclass(frozen=True)
class Scalar:
    """An activation: value and slope at one number; at a kink, the slope from the left."""

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]


def leaky(alpha: float) -> Scalar:
    below = lambda z: Fraction(alpha) if isinstance(z, Fraction | Surd) else alpha  # noqa: E731
    return Scalar(lambda z: z if z > 0 else below(z) * z, lambda z: 1 if z > 0 else below(z))


def power(degree: int) -> Scalar:
    return Scalar(lambda z: z**degree, lambda z: degree * z ** (degree - 1))


def _sigmoid(z: float) -> float:
    return 1 / (1 + exp(-z))


def _normal(z: float) -> float:
    return (1 + erf(z / sqrt(2))) / 2


IDENTITY, RELU, ABS, SQUARE = power(1), leaky(0), leaky(-1), power(2)
# The derivatives below were taken by hand; gelu is the one without tanh.
SMOOTH = {
    "tanh": Scalar(tanh, lambda z: 1 - tanh(z) ** 2),
    "sigmoid": Scalar(_sigmoid, lambda z: _sigmoid(z) * (1 - _sigmoid(z))),
    "softplus": Scalar(lambda z: log(1 + exp(z)), _sigmoid),
    "gelu": Scalar(
        lambda z: z * _normal(z), lambda z: _normal(z) + z * exp(-z * z / 2) / sqrt(2 * pi)
    ),
    "silu": Scalar(lambda z: z * _sigmoid(z), lambda z: _sigmoid(z) * (1 + z * (1 - _sigmoid(z)))),
    "erf": Scalar(erf, lambda z: 2 * exp(-z * z) / sqrt(pi)),
    "sin": Scalar(sin, cos),
    "cos": Scalar(cos, lambda z: -sin(z)),
    "exp": Scalar(exp, exp),
}


@dataclass(frozen=True)
class Network:
    """One `Scalar` per hidden neuron, layer by layer; `output` acts on every output."""

    hidden: tuple[tuple[Scalar, ...], ...]
    output: Scalar = IDENTITY
    ntk: bool = False

    def scalars(self, layer: int, width: int) -> tuple[Scalar, ...]:
        return self.hidden[layer] if layer < len(self.hidden) else (self.output,) * width


def plain(params: Any) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Parameters as float64 NumPy arrays."""
    return [
        (np.asarray(w, np.float64), None if b is None else np.asarray(b, np.float64))
        for w, b in params
    ]


def exact(tree: Any) -> Any:
    """The same numbers as Fractions; floats of every width convert without loss."""
    if tree is None:
        return None
    if isinstance(tree, tuple | list):
        return [exact(leaf) for leaf in tree]
    return np.vectorize(Fraction, otypes=[object])(np.asarray(tree, np.float64))


def _apply(functions: list[Callable[[Any], Any]], z: np.ndarray) -> np.ndarray:
    return np.array(
        [function(entry) for function, entry in zip(functions, z, strict=True)], dtype=z.dtype
    )


def _scale(net: Network, weight: np.ndarray) -> Any:
    if not net.ntk:
        return 1
    return inverse_root(weight.shape[1]) if weight.dtype == object else 1 / sqrt(weight.shape[1])


def run(net: Network, params: Any, sample: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """One sample through the network: (z_1, …, z_L) and (a_0, …, a_L)."""
    inputs, sums = [sample], []
    for layer, (weight, bias) in enumerate(params):
        z = (weight @ inputs[-1]) * _scale(net, weight)
        sums.append(z if bias is None else z + bias)
        inputs.append(_apply([s.value for s in net.scalars(layer, len(z))], sums[-1]))
    return sums, inputs


def forward(net: Network, params: Any, x: np.ndarray) -> np.ndarray:
    return np.array([run(net, params, sample)[1][-1] for sample in x])


def gradient(net: Network, params: Any, sample: np.ndarray, output: int) -> np.ndarray:
    """∂ f_output(sample)/∂θ by backpropagation, in ravel_pytree's order: each weight row by row,
    then its bias.
    """
    sums, inputs = run(net, params, sample)
    slopes = [
        _apply([s.slope for s in net.scalars(layer, len(z))], z) for layer, z in enumerate(sums)
    ]
    delta = np.zeros_like(sums[-1])
    delta[output] = slopes[-1][output]
    blocks = []
    for layer in reversed(range(len(params))):
        weight, bias = params[layer]
        scale = _scale(net, weight)
        blocks += [] if bias is None else [delta]
        blocks.append((np.outer(delta, inputs[layer]) * scale).ravel())
        if layer:
            delta = (weight.T @ delta) * scale * slopes[layer - 1]
    return np.concatenate(blocks[::-1])


def jacobian(net: Network, params: Any, x: np.ndarray) -> np.ndarray:
    """One row per (sample, output), sample-major."""
    outputs = range(len(params[-1][0]))
    return np.array([gradient(net, params, sample, o) for sample in x for o in outputs])


def ntk(net: Network, params: Any, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return jacobian(net, params, x1) @ jacobian(net, params, x2).T


def preactivations(net: Network, params: Any, x: np.ndarray) -> np.ndarray:
    """Everything that enters a hidden activation, (n, hidden)."""
    return np.array([np.concatenate(run(net, params, sample)[0][:-1]) for sample in x])


def patterns(net: Network, params: Any, x: np.ndarray) -> np.ndarray:
    return (preactivations(net, params, x) > 0).astype(bool)


def _over_the_rationals(matrix: np.ndarray) -> tuple[list[list[Fraction]], int]:
    """Each entry of a number field as its matrix of multiplication: the rank grows by the degree
    of the field.
    """
    radicands = {r for entry in matrix.flat if isinstance(entry, Surd) for r, _ in entry.terms} | {
        1
    }
    while new := {times(r, s) for r in radicands for s in radicands} - radicands:
        radicands |= new
    basis = sorted(radicands)
    rows = []
    for row, r in product(matrix, basis):
        images = [dict((Surd.of(entry) * Surd(((r, Fraction(1)),))).terms) for entry in row]
        rows.append([image.get(s, Fraction(0)) for image in images for s in basis])
    return rows, len(basis)


def exact_rank(matrix: np.ndarray) -> int:
    """Fraction-free Gaussian elimination (Bareiss): every division below is exact."""
    fractions, degree = _over_the_rationals(matrix)
    rows = []
    for row in fractions:
        scale = lcm(*(entry.denominator for entry in row))
        rows.append([int(entry * scale) for entry in row])
    rank, previous = 0, 1
    while rows and rows[0]:
        pivot = next((i for i, row in enumerate(rows) if row[0]), None)
        if pivot is None:
            rows = [row[1:] for row in rows]
            continue
        head, *top = rows.pop(pivot)
        rows = [
            [(head * a - row[0] * b) // previous for a, b in zip(row[1:], top, strict=True)]
            for row in rows
        ]
        previous, rank = head, rank + 1
    assert rank % degree == 0
    return rank // degree


def functional_dimension(net: Network, params: Any, x: np.ndarray) -> int:
    """The rank of the Jacobian at these very floats, in exact arithmetic."""
    return exact_rank(jacobian(net, exact(list(params)), exact(x)))


def singular_rank(matrix: np.ndarray, eps: float = 2.0**-52) -> tuple[int, float]:
    """Rank by float64 singular values above max(n, m)·σ_max·ε, and the gap: smallest kept over
    largest dropped.
    """
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int((values > max(matrix.shape) * values[0] * eps).sum())
    if rank == len(values):
        return rank, np.inf
    with np.errstate(divide="ignore"):
        return rank, float(values[rank - 1] / values[rank]) if rank else 1.0
