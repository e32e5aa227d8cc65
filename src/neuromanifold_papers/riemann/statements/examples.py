"""`riemann`, Ex 16, 17, 19: the printed matrices and factorisations."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.roots import projective_roots
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold_papers.check import Check, equal, outside
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.exact import differing, statement, symbols
from neuromanifold_papers.riemann.statements.running import IDENTITY, printed_scale, sign_of
from neuromanifold_papers.riemann.statements.strided import STRIDE_ONE, condition
from neuromanifold_papers.statement import control

PRINTED_16 = (
    [[5, 0, 4, 0, 0], [0, 4, 0, 2, 0], [4, 0, 10, 0, 4], [0, 2, 0, 1, 0], [0, 0, 4, 0, 5]],
    [[5, 0, 4, 0, 0], [0, 1, 0, 2, 0], [4, 0, 10, 0, 4], [0, 2, 0, 4, 0], [0, 0, 4, 0, 5]],
)
PAIR_16 = (([1, 0, 2], [2, 1]), ([2, 0, 1], [1, 2]))


@statement(
    "Ex 16 (kernels)",
    lambda rng, draws: enumerate(PRINTED_16),
    control("the printed kernels exchanged", lambda: (0, PRINTED_16[1])),
)
def ex_16(case: Any) -> Check:
    """(1, 0, 2), (2, 1) and (2, 0, 1), (1, 2): one filter, δ = 0, and the two printed kernels."""
    index, printed = case
    params = tuple(np.array(w, object) for w in PAIR_16[index])
    wrong = differing(fs.filter_kernel(RUNNING, params), np.array(printed, object))
    wrong += differing(RUNNING.end_to_end(params), [2, 0, 5, 0, 2])
    return equal(wrong + differing(fs.norm_differences(RUNNING, params), [0]), 0)


@statement(
    "Ex 16 (ranks)",
    lambda rng, draws: (
        ([a0, 0, a2], [b0, b1])
        for a0, a2, b0, b1 in product((-2, -1, 0, 1, 2), repeat=4)
        if (a0 or a2) and (b0 or b1) and (a0, a2) <= (b0, b1)
    ),
    control("a_1 = 1: one tuple although independent", lambda: ([1, 1, 2], [2, 1])),
)
def ex_16_ranks(case: Any) -> Check:
    """(a_0, 0, a_2), (b_0, b_1): two tuples and rank 4 when independent, one tuple and a rank
    below 4 when dependent.

    Rank and number of tuples at (a_0, 0, a_2), (b_0, b_1): 4 and 2 when independent, below 4
    and 1 when dependent.
    """
    a, b = (np.array(w, object) for w in case)
    dependent = a[0] * b[1] == a[2] * b[0]
    full = (
        exact_jacobian_rank(RUNNING, (a, b)) == 4 == exact.rank(fs.filter_kernel(RUNNING, (a, b)))
    )
    tuples = fs.fiber(RUNNING, RUNNING.end_to_end((a, b))).factorisations
    wrong = int(full == dependent) + int(tuples != (1 if dependent else 2))
    return equal(wrong, 0, dependent=dependent)


def _delta_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for delta in (0.0, 1.0, -1.0, 20.0, -20.0):
        yield np.array([1.0, 2.0, 3.0]), np.array([1.0, -2.0]), delta, delta + 0.5
    for _ in range(draws):
        yield rng.normal(size=3), rng.normal(size=2), *(3 * rng.normal(size=2)).tolist()


@exact.in_float64(
    "Ex 17",
    _delta_cases,
    control(
        "v_0 = 0, where the entry does not depend on δ",
        lambda: (np.array([0.0, 2.0, 3.0]), np.array([1.0, 10.0]), 0.0, 5.0),
    ),
)
def ex_17(case: Any) -> Check:
    """v_0, v_1 ≠ 0: the entry (2, 1) of K^(δ)(v) is λ²a_0a_1, strictly monotone in δ, so
    different δ give different kernels.
    """
    a, b, delta, other = case
    v = RUNNING.end_to_end((a, b))
    K, L = (fs.filter_kernel(RUNNING, fs.fiber(RUNNING, v, d)[0]) for d in (delta, other))
    closed = printed_scale(a, b, delta) * a[0] * a[1]
    # Distinct δ must give distinct entries, in the order that a decreasing λ² gives.
    ordered = (K[1, 0] - L[1, 0]) * (a[0] * a[1]) * (other - delta) > 0
    gap = float((K[1, 0] - closed) / np.abs(K).max()) if ordered else float("nan")
    rounding = 64 * exact.EPS * condition(RUNNING, fs.rescale(RUNNING, (a, b), [delta]).params)
    drops = outside("v_0 = 0 or v_1 = 0", when=not (v[0] and v[1]))
    return equal(gap, 0.0, rounding, drops=drops, δ=sign_of(delta))


def printed_kernel_19(a: Any, b: Any) -> list[list[Any]]:
    """K_{a,b} of sizes (3, 2) at stride one: symmetric."""
    (a0, a1, a2), (b0, b1) = a, b
    first = [a0 * a0 + b0 * b0, a0 * a1 + b0 * b1, a0 * a2, 0]
    second = [a0 * a0 + a1 * a1 + b0 * b0 + b1 * b1, a0 * a1 + a1 * a2 + b0 * b1, a0 * a2]
    third = [a1 * a1 + a2 * a2 + b0 * b0 + b1 * b1, a1 * a2 + b0 * b1]
    last = a2 * a2 + b1 * b1
    return [
        first,
        [first[1], *second],
        [first[2], second[1], *third],
        [first[3], second[2], third[1], last],
    ]


@statement(
    "Ex 19 (formula)",
    [STRIDE_ONE],
    control(
        "b read backwards", lambda: STRIDE_ONE, wanted=lambda a, b: printed_kernel_19(a, b[::-1])
    ),
    exhaustive=IDENTITY,
)
def ex_19_formula(net: Any, wanted: Callable[..., Any] = printed_kernel_19) -> Check:
    """The kernel of sizes (3, 2) at stride one, as printed."""
    params = symbols(net.filter_shapes)
    return equal(differing(fs.filter_kernel(net, params), np.array(wanted(*params), object)), 0)


PRINTED_19 = (  # a, 2^{1/2}·(scale of a)², b, 2^{1/2}·(scale of b)², √2·K
    ((0, 1, 0), 2, (1, 1), 1, [[1, 1, 0, 0], [1, 4, 1, 0], [0, 1, 4, 1], [0, 0, 1, 1]]),
    ((1, 1, 0), 1, (0, 1), 2, [[1, 1, 0, 0], [1, 4, 1, 0], [0, 1, 3, 0], [0, 0, 0, 2]]),
    ((0, 1, 1), 1, (1, 0), 2, [[2, 0, 0, 0], [0, 3, 1, 0], [0, 1, 4, 1], [0, 0, 1, 1]]),
)


@statement(
    "Ex 19 (factorisations)",
    PRINTED_19,
    control("the kernel of another factorisation", lambda: (*PRINTED_19[0][:4], PRINTED_19[1][4])),
)
def ex_19(case: Any) -> Check:
    """x²y + xy²: the three printed balanced factorisations and their kernels.

    √2·K = s_b K_1(b) + s_a K_2(a) in integers; the product, balance, and that the fibre
    contains such a kernel.
    """
    a, sa, b, sb, printed = case
    a, b = np.array(a, object), np.array(b, object)
    first, second = fs.filter_kernel_blocks(STRIDE_ONE, (a, b))
    wrong = differing(sb * first + sa * second, np.array(printed, object))
    wrong += differing(STRIDE_ONE.end_to_end((a, b)), [0, 1, 1, 0])
    wrong += differing([sa * (a @ a), sa * sb], [sb * (b @ b), 2])
    over = fs.fiber(STRIDE_ONE, np.array([0, 1, 1, 0])).up_to_signs
    gaps = [np.abs(2**0.5 * fs.filter_kernel(STRIDE_ONE, p) - np.array(printed)) for p in over]
    return equal(wrong + int(min(gap.max() for gap in gaps) >= 64 * exact.EPS), 0)


def real_roots(v: Any) -> list[int]:
    """The multiplicities of the distinct real roots, projective, of an integer form."""
    zero, infinity, roots, powers = projective_roots(np.array(v, object))
    real = [p for r, p in zip(roots, powers, strict=True) if r.imag == 0]
    return [m for m in (zero, infinity, *real) if m]


PRINTED_COUNTS = {1: 1, 3: 3}


@statement(
    "Ex 19 (cubics)",
    lambda rng, draws: filter(
        any,
        [
            *product((-1, 0, 1, 2), repeat=4),
            *map(tuple, rng.integers(-99, 100, (draws, 4)).tolist()),
        ],
    ),
    control(
        "x²(x + y): two distinct real roots, asked for one", lambda: (1, 1, 0, 0), printed={2: 1}
    ),
)
def ex_19_cubics(v: Any, printed: Mapping[int, int] = PRINTED_COUNTS) -> Check:
    """Every real cubic factors, so M = ℝ⁴; with one real root in one way up to scaling, with
    three distinct real roots in three.

    One distinct real root: one factorisation; three: three. Every cubic has one.
    """
    distinct = len(real_roots(v))
    found = fs.fiber(STRIDE_ONE, np.array(v, object)).factorisations
    wanted = printed.get(distinct, max(found, 1))
    return equal(found, wanted, distinct_real_roots=distinct)
