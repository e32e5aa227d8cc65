"""The worked examples of `riemann`, entry by entry, in exact arithmetic wherever they are
rational.
"""

from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.output import Claim

RUNNING = LinearConvNet((3, 2), (2, 1))
STRIDE_ONE = LinearConvNet((3, 2), (1, 1))


def integers(*entries: int) -> np.ndarray:
    """An array of Python ints, whose arithmetic is exact."""
    return np.array(entries, object)


def printed_blocks(a: Any, b: Any) -> tuple[list[Any], list[Any]]:
    """K_1 and K_2 as Example 15 prints them."""
    (a0, a1, a2), (b0, b1) = a, b
    K1 = [
        [b0 * b0, 0, b0 * b1, 0, 0],
        [0, b0 * b0, 0, b0 * b1, 0],
        [b0 * b1, 0, b0 * b0 + b1 * b1, 0, b0 * b1],
        [0, b0 * b1, 0, b1 * b1, 0],
        [0, 0, b0 * b1, 0, b1 * b1],
    ]
    K2 = [
        [a0 * a0, a0 * a1, a0 * a2, 0, 0],
        [a0 * a1, a1 * a1, a1 * a2, 0, 0],
        [a0 * a2, a1 * a2, a0 * a0 + a2 * a2, a0 * a1, a0 * a2],
        [0, 0, a0 * a1, a1 * a1, a1 * a2],
        [0, 0, a0 * a2, a1 * a2, a2 * a2],
    ]
    return K1, K2


def equation(v: Any) -> Any:
    """v_0 v_3² + v_1² v_4 − v_1 v_2 v_3, which vanishes on the running example's neuromanifold."""
    return v[0] * v[3] ** 2 + v[1] ** 2 * v[4] - v[1] * v[2] * v[3]


def example_15(points: int = 200, seed: int = 15) -> list[Claim]:
    """The blocks of the kernel, the equations of M, and the inverse of μ, at random integers."""
    rng = np.random.default_rng(seed)
    blocks = equations = inverses = members = 0
    for _ in range(points):
        a, b = (
            integers(*rng.integers(-20, 21, 3).tolist()),
            integers(*rng.integers(-20, 21, 2).tolist()),
        )
        blocks += tuple(
            K.tolist() for K in fs.filter_kernel_blocks(RUNNING, (a, b))
        ) == printed_blocks(a, b)
        v = RUNNING.end_to_end((a, b))
        equations += equation(v) == 0 and v[2] ** 2 - 4 * v[0] * v[4] >= 0
        v0, v1, v3, v4 = (Fraction(int(e)) for e in rng.choice([-3, -2, -1, 1, 2, 3], 4))
        point = np.array([v0, v1, (v0 * v3**2 + v1**2 * v4) / (v1 * v3), v3, v4], object)
        inverse = (np.array([v0 / v1, Fraction(1), v4 / v3], object), np.array([v1, v3], object))
        inverses += RUNNING.end_to_end(inverse).tolist() == point.tolist()
        members += len(fs.fiber(RUNNING, point, 1.0)) == 2
    return [
        Claim(
            "Ex 15",
            "K_1 and K_2 as printed",
            f"{blocks} of {points} integer points agree in all 50 entries",
            blocks == points,
        ),
        Claim(
            "Ex 15",
            "M satisfies the printed equation and inequality",
            f"{equations} of {points} products",
            equations == points,
        ),
        Claim(
            "Ex 15",
            "for v_1, v_3 ≠ 0 the filters over v are (15), unique up to scaling",
            f"{inverses} of {points} inverses exact, {members} fibres of two tuples",
            inverses == members == points,
        ),
    ]


def example_16() -> list[Claim]:
    """Two balanced tuples over one singular filter, with different kernels of full rank."""
    first, second = (integers(1, 0, 2), integers(2, 1)), (integers(2, 0, 1), integers(1, 2))
    printed = [
        [[5, 0, 4, 0, 0], [0, 4, 0, 2, 0], [4, 0, 10, 0, 4], [0, 2, 0, 1, 0], [0, 0, 4, 0, 5]],
        [[5, 0, 4, 0, 0], [0, 1, 0, 2, 0], [4, 0, 10, 0, 4], [0, 2, 0, 4, 0], [0, 0, 4, 0, 5]],
    ]
    exact = [fs.filter_kernel(RUNNING, params).tolist() for params in (first, second)] == printed
    v = RUNNING.end_to_end(first)
    over = fs.fiber(RUNNING, v, 0.0)
    ranks = [exact_jacobian_rank(RUNNING, params) for params in (first, second)]
    dependent = exact_jacobian_rank(RUNNING, (integers(1, 0, 2), integers(1, 2)))
    return [
        Claim(
            "Ex 16",
            "the two printed kernels",
            "equal in all entries" if exact else "different",
            exact,
        ),
        Claim(
            "Ex 16",
            "two tuples up to scaling over v = (2, 0, 5, 0, 2), each of rank 4",
            f"{over.factorisations} factorisations, ranks {ranks}",
            over.factorisations == 2 and ranks == [4, 4],
            f"relative kernel distance {over.kernel_spread:.4f}",
        ),
        Claim("Ex 16", "dependent (a_0, a_2), (b_0, b_1): rank below 4", dependent, dependent < 4),
    ]


def example_17(points: int = 50, seed: int = 17) -> list[Claim]:
    """Different δ give different kernels: the entry (2, 1) is λ²(δ) a_0 a_1 and λ² decreases."""
    rng = np.random.default_rng(seed)
    good, worst = 0, 0.0
    for _ in range(points):
        a, b = rng.normal(size=3), rng.normal(size=2)
        v, deltas, entries = RUNNING.end_to_end((a, b)), np.linspace(-5, 5, 21), []
        na, nb = a @ a, b @ b
        for delta in deltas:
            K = fs.filter_kernel(RUNNING, fs.fiber(RUNNING, v, delta)[0])
            closed = (-delta + np.sqrt(delta**2 + 4 * na * nb)) / (2 * na) * a[0] * a[1]
            worst = max(worst, float(abs(K[1, 0] - closed) / abs(closed)))
            entries.append(K[1, 0] / (a[0] * a[1]))
        good += bool((np.diff(entries) < 0).all())
    return [
        Claim(
            "Ex 17",
            "K^(δ)(v) differs for different δ; its entry (2,1) is λ² a_0 a_1",
            f"{good} of {points} strictly decreasing, closed form to {worst:.1e}",
            good == points and worst < 1e-8,
        )
    ]


def example_19() -> list[Claim]:
    """Three balanced factorisations of x²y + xy² at stride one; √2 K is an integer matrix."""
    scaled = [  # (integer a, its squared scale·√2), (integer b, …): K·√2 = s_b K_1(b) + s_a K_2(a)
        ((0, 1, 0), 2, (1, 1), 1),
        ((1, 1, 0), 1, (0, 1), 2),
        ((0, 1, 1), 1, (1, 0), 2),
    ]
    printed = [
        [[1, 1, 0, 0], [1, 4, 1, 0], [0, 1, 4, 1], [0, 0, 1, 1]],
        [[1, 1, 0, 0], [1, 4, 1, 0], [0, 1, 3, 0], [0, 0, 0, 2]],
        [[2, 0, 0, 0], [0, 3, 1, 0], [0, 1, 4, 1], [0, 0, 1, 1]],
    ]
    matrices = []
    for a, sa, b, sb in scaled:
        K1, K2 = fs.filter_kernel_blocks(STRIDE_ONE, (integers(*a), integers(*b)))
        matrices.append((sb * K1 + sa * K2).tolist())
    v = integers(0, 1, 1, 0)
    over = fs.fiber(STRIDE_ONE, v, 0.0)
    kernels = [np.sqrt(2) * fs.filter_kernel(STRIDE_ONE, params) for params in over.up_to_signs]
    found = sum(any(np.abs(K - np.array(P)).max() < 1e-12 for K in kernels) for P in printed)
    return [
        Claim(
            "Ex 19",
            "the three printed kernels (times √2, integers)",
            "equal in all entries" if matrices == printed else "different",
            matrices == printed,
        ),
        Claim(
            "Ex 19",
            "three factorisations of (0, 1, 1, 0), balanced",
            f"{over.factorisations} factorisations, {found} of 3 kernels met",
            over.factorisations == found == 3,
        ),
    ]


def example_20() -> list[Claim]:
    """Two dense factorisations of the identity with one Δ and different kernels."""
    half = Fraction(1, 2)
    V = (np.array([[1, 0], [0, half]], object), np.array([[1, 0], [0, 2]], object))
    U = (np.array([[0, 1], [half, 0]], object), np.array([[0, 2], [1, 0]], object))
    identity = all((fs.end_to_end_matrix(p) == np.eye(2, dtype=int)).all() for p in (U, V))
    target = np.array([[0, 0], [0, Fraction(15, 4)]], object)
    level = all((fs.gram_differences(p)[0] == target).all() for p in (U, V))
    differ = bool((fs.dense_kernel(U).matrix != fs.dense_kernel(V).matrix).any())
    distance = fs.kernel_distance(*(fs.dense_kernel(p).matrix.astype(np.float64) for p in (U, V)))
    return [
        Claim(
            "Ex 20",
            "U and V: product I, Δ = diag(0, 15/4), different kernels",
            f"relative kernel distance {distance:.4f}",
            identity and level and differ,
            "exact rationals",
        )
    ]


def all_examples(points: int) -> list[Claim]:
    """Every example of the paper."""
    return [
        *example_15(points),
        *example_16(),
        *example_17(max(points // 4, 5)),
        *example_19(),
        *example_20(),
    ]
