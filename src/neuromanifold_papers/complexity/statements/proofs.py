"""complexity, App. A: steps of the proof of Prop A.8, and what matches what."""

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, equal, outside
from neuromanifold_papers.complexity.statements.cases import Widths, integer_rank, roughly
from neuromanifold_papers.statement import control, statement


def _sizes(rng: np.random.Generator, draws: int) -> Iterator[tuple[int, int, int]]:
    for n0, n1 in product(range(1, 6), range(1, 6)):
        yield n0, n1, int(rng.integers(2**31))


@statement(
    "A.8 (proof)",
    _sizes,
    control("a first layer without biases, one input", lambda: (1, 3, 0), biases=0),
)
def a_8_proof(case: tuple[int, int, int], biases: int = 1) -> Check:
    """(W¹|b¹) has generic rank min(n_1, n_0 + 1); g ≠ 1 fixes a space of at most n_1 − 1 dimensions
    that holds its columns, so that g_1 ≠ 1 needs n_0 + 1 ≤ n_1 − 1: as many columns are fixed by
    some g ≠ 1 as the rank leaves a dimension free.
    """
    n0, n1, seed = case
    layer = np.random.default_rng(seed).integers(-99, 100, (n1, n0 + biases))
    rank = integer_rank(layer)
    # g = 1 + uvᵀ fixes exactly v's complement, of dimension n_1 − 1; it fixes the layer when vᵀ
    # vanishes on it, and such v ≠ 0 exist exactly when the rank is below n_1.
    wrong = abs(rank - min(n1, n0 + 1)) + ((rank < n1) != (n0 + 1 <= n1 - 1))
    return equal(wrong, 0, comparisons=2, n_0=n0, n_1=n1)


def _second(rng: np.random.Generator, draws: int) -> Iterator[tuple[Widths, int]]:
    for hidden in (1, 2, 3):
        for widths in product(range(1, 5), repeat=hidden + 2):
            if roughly(widths)[1]:
                yield widths, int(rng.integers(2**31))


@statement(
    "A.8 (ii, symmetric)",
    _second,
    control("(2, 4 | 1), which shrinks too fast", lambda: ((2, 4, 1), 0)),
)
def a_8_symmetric(case: tuple[Widths, int]) -> Check:
    """Under (ii) symmetric elements of the stabiliser of a generic parameter are the identity: from
    the last layer on g_l fixes the rows of W^{l+1} and b^l, which span everything.
    """
    widths, seed = case
    rng = np.random.default_rng(seed)
    short = 0
    for layer in range(len(widths) - 2, 0, -1):
        width = widths[layer]
        rows = rng.integers(-99, 100, (widths[layer + 1] + 1, width))
        short += width - integer_rank(rows)
    return equal(short, 0, hidden_layers=len(widths) - 2)


def _jacobian(widths: Widths, seed: int) -> np.ndarray:
    """Of a network (n_0, k | o) whose neurons are all active, on n_0 + 2 inputs: as a linear one."""
    n0, k, o = widths
    rng = np.random.default_rng(seed)
    W, b = rng.integers(1, 30, (k, n0)), rng.integers(1, 30, k)
    V = rng.integers(-30, 31, (o, k))
    return np.array(
        [
            [*np.outer(V[i], x).ravel(), *V[i], *np.outer(one, W @ x + b).ravel(), *one]
            for x in rng.integers(1, 30, (n0 + 2, n0))
            for i, one in enumerate(np.eye(o, dtype=int))
        ]
    )


def _symmetries(case: tuple[Widths, int]) -> int:
    """D less the functional dimension: the dimension of the local symmetries on the data."""
    J = _jacobian(*case)
    return J.shape[1] - integer_rank(J)


def _in_float64(case: tuple[Widths, int]) -> Check:
    J = _jacobian(*case).astype(float)
    values = np.linalg.svd(J, compute_uv=False)
    found = J.shape[1] - int(np.sum(values > 1e-9 * values[0]))
    return equal(found, case[0][1] ** 2)


def _active(rng: np.random.Generator, draws: int) -> Iterator[tuple[Widths, int]]:
    for n0, k, o in product((1, 2, 3), (1, 2, 3), (1, 2)):
        if any(roughly((n0, k, o))):
            yield (n0, k, o), int(rng.integers(2**31))


def symmetries(k: int, n: int, o: int) -> int:
    """D = k(n + 1) + (k + 1)o less r(n + o − r) + o, the dimension of the maps x ↦ VWx + d with a
    matrix VW of rank r.
    """
    r = min(k, n, o)
    return k * (n + o + 1) - r * (n + o - r)


@statement(
    "App A (matches)",
    _active,
    control("(1, 2 | 1)", lambda: ((1, 2, 1), 0)),
    confirm=_in_float64,
)
def app_a_matches(case: tuple[Widths, int]) -> Check:
    """The local symmetries on data on which all k neurons of one layer are active have the dimension
    of the hidden equivalence group of the linear network, k².
    """
    return equal(_symmetries(case), case[0][1] ** 2, hypotheses={"widths": case[0]})


@app_a_matches.amend(
    control(
        "k² at (1, 1 | 1), where it is k² + k",
        lambda: ((1, 1, 1), 0),
        formula=lambda k, n, o: k * k,
    )
)
def app_a_matches_amended(case: tuple[Widths, int], formula: Any = symmetries) -> Check:
    """With one hidden layer they have the dimension k(n_0 + n_2 + 1) − r(n_0 + n_2 − r), r = min(k, n_0,
    n_2): k² + k for k ≤ n_0, n_2, and more than k² for roughly monotonic widths.
    """
    n, k, o = case[0]
    found, wanted = _symmetries(case), formula(k, n, o)
    return equal(found + (found <= k * k), wanted, hypotheses={"widths": case[0]})


def _signed(n: int) -> list[np.ndarray]:
    """All permutations of n coordinates with signs."""
    pairs = product(permutations(range(n)), product((1, -1), repeat=n))
    return [np.diag(signs)[list(order)] for order, signs in pairs]


def _stabiliser(group: list[np.ndarray], theta: np.ndarray) -> int:
    return sum(bool((g @ theta == theta).all()) for g in group)


def _generated(g: np.ndarray) -> list[np.ndarray]:
    """The powers of g, whose order is at most 12."""
    powers = [np.linalg.matrix_power(g, k) for k in range(12)]
    return list({power.tobytes(): power for power in powers}.values())


Acted = tuple[tuple[int, ...], np.ndarray]


def _points(rng: np.random.Generator, draws: int) -> Iterator[Acted]:
    for n in (1, 2, 3):
        for theta in product((0, 1, 2, 3), repeat=n):
            yield from ((theta, g) for g in _signed(n))


@statement(
    "Lem A.7",
    _points,
    control(
        "a subgroup of another group: the swap, where G is trivial",
        lambda: ((1, 1), np.array([[0, 1], [1, 0]])),
        group=lambda n: [np.eye(n, dtype=int)],
    ),
)
def lem_a_7(case: Acted, group: Any = _signed) -> Check:
    """Where the stabiliser of θ in G is trivial, so is that in every subgroup H: here G permutes
    coordinates with signs and H is generated by one element.
    """
    theta = np.array(case[0])
    drops = outside("θ has a stabiliser in G", when=_stabiliser(group(len(theta)), theta) > 1)
    return equal(_stabiliser(_generated(case[1]), theta), 1, drops=drops, n=len(theta))
