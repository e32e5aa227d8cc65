"""`bottleneck`, linear maps: the cost and its expansion in the depth.   [bottleneck, Sec. 3]"""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import numpy as np

from neuromanifold.bottleneck import (
    balanced_factors,
    cost_expansion,
    log_plus,
    pseudo_determinant,
    representation_cost,
)
from neuromanifold.bottleneck.cost import CostExpansion
from neuromanifold.models.init import Layer
from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.bottleneck.statements.cases import EPS, Case, compare, network, worst
from neuromanifold_papers.check import Check, at_least, equal, inside
from neuromanifold_papers.statement import control, named

RTOL = 1e-10
Spectrum = tuple[tuple[float, ...], tuple[int, int], int, int]


def linear_cost(s: np.ndarray, depth: int) -> float:
    """L Σ s_i^{2/L}."""
    return float(depth * np.sum(s ** (2 / depth)))


def with_singular_values(s: Any, shape: tuple[int, int], seed: int) -> np.ndarray:
    """A matrix of that shape with these nonzero singular values, its singular vectors drawn from
    the seed.
    """
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.normal(size=(n, n)))[0][:, : len(s)] for n in shape)
    return (U * np.asarray(s)) @ V.T


def spectra(rng: np.random.Generator, draws: int) -> Iterator[Spectrum]:
    """(singular values, shape, seed, depth): every shape up to 3 and every rank, values below,
    at and above 1.
    """
    for shape in ((m, n) for m in (1, 2, 3) for n in (1, 2, 3)):
        for k in range(min(shape) + 1):
            for s in itertools.combinations_with_replacement((0.5, 1.0, 3.0), k):
                yield s, shape, 0, 1 + (len(s) + sum(shape)) % 5
    for index in range(draws):
        shape = tuple(int(n) for n in rng.integers(1, 6, size=2))
        s = np.exp(rng.uniform(-2.3, 2.3, size=int(rng.integers(1, min(shape) + 1))))
        yield tuple(s.tolist()), (shape[0], shape[1]), index, int(rng.integers(1, 40))


of_spectra = partial(
    cases.numeric,
    show=named("s, shape, seed, depth"),
    covers=lambda case: {"rank": len(case[0]), "shape": str(case[1]), "depth": case[3]},
)
"""A statement whose cases are spectra."""


def singular_values(A: np.ndarray) -> np.ndarray:
    s = np.linalg.svdvals(A)
    return s[s > RTOL * s[0]]


def expansion(A: np.ndarray, depth: int) -> float:
    """L·rank A + 2 log|A|₊ + ‖log₊AᵀA‖²/(2L), as printed."""
    log = log_plus(A.T @ A, rtol=RTOL)
    rank = int(np.linalg.matrix_rank(A, tol=RTOL * np.linalg.norm(A)))
    return (
        depth * rank
        + 2 * math.log(pseudo_determinant(A, rtol=RTOL))
        + float(np.sum(log**2)) / (2 * depth)
    )


def third_order(s: np.ndarray, depth: int) -> float:
    """Taylor's bound on the rest: (4/3) Σ |log s|³ max(1, s^{2/L}) / L²."""
    return float(
        4 / 3 * np.sum(np.abs(np.log(s)) ** 3 * np.maximum(1, s ** (2 / depth))) / depth**2
    )


@cases.of_networks(
    "linear",
    lambda rng, draws: itertools.chain(
        cases.lattice(slopes=(1.0,)),
        cases.random_networks(rng, 4 * draws, slopes=(1.0,), biased=(False,)),
    ),
    control(
        "exponent 2/(L+1)",
        lambda: network([np.diag([0.5, 0.1]) ** 0.25] * 4, np.eye(2), slope=1.0),
        least=lambda s, depth: depth / (depth + 1) * linear_cost(s, depth + 1),
    ),
)
def measure_factorisation(
    case: Case, least: Callable[[np.ndarray, int], float] = linear_cost
) -> Check:
    """No factorisation W_L⋯W_1 = A has Σ‖W_l‖² below L Σ s_i(A)^{2/L}."""
    weights = [np.asarray(p.weight) for p in case.params]
    A = reduce(lambda a, W: W @ a, weights, np.eye(case.net.widths[0]))
    norm = sum(float(np.sum(W**2)) for W in weights)
    cost = least(singular_values(A), len(weights))
    return compare(norm, ">=", cost, 64 * EPS * len(weights) * (1 + norm))


@of_spectra(
    "linear (minimiser)",
    spectra,
    control(
        "unequal factors 4·1 of 4",
        lambda: ((4.0,), (1, 1), 0, 2),
        factorise=lambda A, depth: (Layer(A), Layer(np.eye(1))),
    ),
)
def measure_minimiser(
    case: Spectrum, factorise: Callable[[np.ndarray, int], Any] = balanced_factors
) -> Check:
    """The balanced factorisation attains R(A; L) = L Σ s_i(A)^{2/L}.

    The balanced factors multiply to A, and their norm is the closed form and the library's
    cost.
    """
    s, shape, seed, depth = case
    A = with_singular_values(s, shape, seed)
    factors = [p.weight for p in factorise(A, depth)]
    product = reduce(lambda a, W: W @ a, factors, np.eye(shape[1]))
    norm, closed = sum(float(np.sum(W**2)) for W in factors), linear_cost(np.array(s), depth)
    error, gap = 64 * EPS * depth * (1 + closed), float(np.abs(product - A).max())
    return worst(
        [
            compare(gap, "=", 0.0, 64 * EPS * depth * max(s, default=1.0)),
            compare(norm, "=", closed, error),
            compare(representation_cost(A, depth), "=", closed, error),
        ]
    )


@of_spectra(
    "expansion",
    spectra,
    control(
        "the third correction subtracted, so that the rest has it twice",
        lambda: ((3.0,), (1, 1), 0, 64),
        printed=lambda A, depth: expansion(A, depth) - cost_expansion(A).r3 / depth**2,
    ),
)
def measure_expansion(
    case: Spectrum, printed: Callable[[np.ndarray, int], float] = expansion
) -> Check:
    """R(A; L) = L·rank A + 2 log|A|₊ + ‖log₊AᵀA‖²/(2L) up to (4/3)Σ|log s|³max(1, s^{2/L})/L²."""
    s, shape, seed, depth = case
    A, values = with_singular_values(s, shape, seed), np.array(s)
    rest = representation_cost(A, depth, rtol=RTOL) - printed(A, depth)
    condition = float(values.max() / values.min()) ** 2 if s else 1.0
    size = (depth * (1 + len(s)) + condition) * (1 + float(np.sum(np.log(values) ** 2)))
    return compare(abs(rest), "<=", third_order(values, depth), 64 * EPS * size)


@of_spectra(
    "expansion (order)",
    spectra,
    control(
        "the expansion without its last term",
        lambda: ((3.0,), (1, 1), 0, 1),
        rest=lambda found, depth: found.remainder(depth) + found.r2 / depth,
    ),
)
def measure_order(
    case: Spectrum, rest: Callable[[CostExpansion, int], float] = CostExpansion.remainder
) -> Check:
    """The remainder of the expansion is O(L⁻²): it falls at least fourfold when the depth
    doubles.

    log₂ of how much the rest shrinks when the depth doubles: at least 2, up to the next
    term's share.
    """
    s, shape, seed, depth = case
    found, L = cost_expansion(with_singular_values(s, shape, seed), rtol=RTOL), depth * 2**12
    near, far = abs(rest(found, L)), abs(rest(found, 2 * L))
    if far <= 1e-3 * EPS:
        return equal(2, 2, drops=inside("the remainder is below rounding"))
    next_term = 2 / 3 * float(np.sum(np.log(np.array(s)) ** 4))
    share = 4 * next_term / (abs(found.r3) * L) if abs(found.r3) > 1e-12 else 0.0
    return at_least(math.log2(near / far), 2.0, min(1.0, share) + 64 * EPS)
