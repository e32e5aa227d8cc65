"""`riemann`, Ex 20 and Thm 14: fully connected linear networks, unbalanced and balanced."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import jax
import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.conserved import balanced, shapes_of
from neuromanifold_papers.riemann.statements.exact import differing, statement, symbols
from neuromanifold_papers.statement import control, named

_HALF = Fraction(1, 2)
V_20 = (np.array([[1, 0], [0, _HALF]], object), np.array([[1, 0], [0, 2]], object))
U_20 = (np.array([[0, 1], [_HALF, 0]], object), np.array([[0, 2], [1, 0]], object))
DELTA_20 = [[0, 0], [0, Fraction(15, 4)]]


@statement(
    "Ex 20 (matrices)",
    lambda rng, draws: [(U_20, V_20)],
    control("V twice: the kernels are equal", lambda: (V_20, V_20)),
)
def ex_20(pair: Any) -> Check:
    """U and V: product I, Δ_1 = diag(0, 15/4), different kernels.

    Product I, Δ = diag(0, 15/4) for both tuples; how many conditions fail, or the kernels
    being equal.
    """
    wrong = sum(differing(fs.end_to_end_matrix(p), np.eye(2, dtype=int)) for p in pair)
    wrong += sum(differing(fs.gram_differences(p)[0], np.array(DELTA_20, object)) for p in pair)
    first, second = (fs.dense_kernel(p).matrix for p in pair)
    return equal(wrong + int(differing(first, second) == 0), 0)


def freedom(matrices: Any) -> int:
    """How many directions of the level set of (W, Δ) change the kernel: rank(dW, dΔ, dK) − rank(dW,
    dΔ), exactly.

    Positive at a point where rank(dW, dΔ) is generic: the level set is a manifold there on which
    the kernel is not constant.
    """
    level, kernel = [], []
    for l, W in enumerate(matrices):
        for unit in exact.units(W):
            theta = tuple(exact.along(V, unit if m == l else 0 * V) for m, V in enumerate(matrices))
            conserved = [Delta[np.triu_indices(len(Delta))] for Delta in fs.gram_differences(theta)]
            level.append(
                np.concatenate([*map(exact.slope, [fs.end_to_end_matrix(theta), *conserved])])
            )
            kernel.append(exact.slope(fs.dense_kernel(theta).matrix))
    return exact.rank(np.concatenate([level, kernel], axis=1)) - exact.rank(np.array(level, object))


def integer_matrices(
    widths: tuple[int, ...], rng: np.random.Generator, size: int = 1000
) -> tuple[np.ndarray, ...]:
    """Integer weights without zeros, generic in all that is asked of them here."""
    return tuple(rng.integers(1, size, s) * rng.choice([-1, 1], s) for s in shapes_of(widths))


BALANCED = control(
    "a balanced point: W_1 = M, W_2 = Mᵀ",
    lambda: ((np.array([[1, 2], [3, 5]]), np.array([[1, 3], [2, 5]])), (2, 2, 2)),
)


@statement(
    "Ex 20 (almost all Δ)",
    lambda rng, draws: [(integer_matrices((2, 2, 2), rng), (2, 2, 2)) for _ in range(draws)],
    BALANCED,
)
def ex_20_generic(case: Any) -> Check:
    """2 × 2, two layers: for almost all Δ_1 the NTK depends on more than W and Δ_1."""
    matrices, widths = case
    return at_least(min(freedom(matrices), 1), 1, widths=str(widths), H=len(matrices))


def generalised(width: int, depth: int) -> tuple[Any, Any]:
    """Example 20 at any depth and width ≥ 2: diag(a_l, b_l, 1, …), and the same with a and b
    exchanged, hidden spaces permuted back.

    a = (1, 1, …), b = (½, 2, 1, …). The exchange keeps the product I, and the permutations of the
    hidden spaces undo what it does to Δ.
    """
    swap = np.eye(width, dtype=int).astype(object)
    swap[[0, 1]] = swap[[1, 0]]
    b = [_HALF, Fraction(2), *[Fraction(1)] * (depth - 2)]
    first = [exact.diagonal([Fraction(1)] * width) for _ in range(depth)]
    second = [W.copy() for W in first]
    for l in range(depth):
        first[l][1, 1], second[l][0, 0] = b[l], b[l]
    left, right = [*[swap] * (depth - 1), swap @ swap], [swap @ swap, *[swap] * (depth - 1)]
    return tuple(first), tuple(L @ W @ R for L, W, R in zip(left, second, right, strict=True))


def scalar_kernels(case: Any) -> Check:
    """Width 1: K is a function of W and Δ, since K² = Δ² + 4W² (two layers); checked as a
    polynomial identity, else by P 2.
    """
    _, depth = case
    if depth == 2:
        pair = symbols([(1, 1), (1, 1)])
        K, W = fs.dense_kernel(pair).matrix, fs.end_to_end_matrix(pair)
        D = fs.gram_differences(pair)[0]
        return at_least(differing(K * K, D * D + 4 * W * W), 1)
    weights = integer_matrices((1,) * (depth + 1), np.random.default_rng(depth))
    mates = fs.level_set_sample(tuple(W.astype(float) for W in weights), 4)
    K = fs.dense_kernel(weights).matrix
    return at_least(max(fs.kernel_distance(K, fs.dense_kernel(m).matrix) for m in mates), 1e-6)


def _not_permuted(width: int, depth: int) -> tuple[Any, Any]:
    """Of width 2: a and b exchanged, and the hidden spaces left as they are."""
    first, _ = generalised(width, depth)
    return first, tuple(exact.diagonal([W[1, 1], W[0, 0]]) for W in first)


@statement(
    "Ex 20 (any width)",
    lambda rng, draws: sorted(product((1, 2, 3), (2, 3))),
    control(BALANCED.broken, lambda: (2, 2), draw=lambda widths, rng: BALANCED.case()[0]),
    confirm=scalar_kernels,
    show=named("width, depth"),
)
def ex_20_width(case: Any, draw: Callable[..., tuple[np.ndarray, ...]] = integer_matrices) -> Check:
    """The example generalises to any depth (two layers or more) and width.

    The largest rank by which the kernel varies over a generic level set: the printed claim
    asks for at least 1.
    """
    width, depth = case
    rng = np.random.default_rng([width, depth])
    matrices = draw((width,) * (depth + 1), rng)
    return at_least(min(freedom(matrices), 1), 1, width=width, depth=depth)


@ex_20_width.amend(
    control("without the permutation of the hidden space", lambda: (2, 2), pair=_not_permuted),
    cases=lambda rng, draws: product(range(2, 6), range(2, 7)),
)
def widened(case: Any, pair: Callable[[int, int], tuple[Any, Any]] = generalised) -> Check:
    """For any depth H ≥ 2 and width ≥ 2 there are two tuples with product I, the same Δ and
    different kernels.
    """
    first, second = pair(*case)
    wrong = differing(fs.end_to_end_matrix(first), fs.end_to_end_matrix(second))
    wrong += sum(map(differing, fs.gram_differences(first), fs.gram_differences(second)))
    same = differing(fs.dense_kernel(first).matrix, fs.dense_kernel(second).matrix) == 0
    return equal(wrong + int(same), 0, width=case[0], depth=case[1])


def rational_rotation(size: int, rng: np.random.Generator) -> np.ndarray:
    """A rational orthogonal matrix, by Householder reflections I − 2uuᵀ/uᵀu."""
    rotation = exact.diagonal([Fraction(1)] * size)
    for _ in range(2 + int(rng.integers(2))):
        u = (rng.integers(1, 5, size) * rng.choice([-1, 1], size)).astype(object)
        rotation = rotation - 2 * np.outer(u, u) @ rotation / (u @ u)
    return rotation


def rotated(matrices: Any, rotations: Any) -> tuple[np.ndarray, ...]:
    """(G_1ᵀW_1, G_2ᵀW_2G_1, …, W_HG_{H−1})."""
    size = len(matrices[0])
    one = np.eye(size, dtype=int).astype(object)
    left, right = [*(G.T for G in rotations), one], [one, *rotations]
    return tuple(L @ W @ R for L, W, R in zip(left, matrices, right, strict=True))


def rational_balanced(size: int, depth: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Balanced invertible rational factors: diagonal entries, the same in every layer, in
    rotated hidden spaces.
    """
    values = rng.choice([1, 2, 3, 5, 7], size, replace=False)
    layer = exact.diagonal([Fraction(int(e)) for e in values])
    ends = [rational_rotation(size, rng) for _ in range(2)]
    inner = [layer] * depth
    inner = [inner[0] @ ends[0], *inner[1:-1], ends[1] @ inner[-1]]
    return rotated(inner, [rational_rotation(size, rng) for _ in range(depth - 1)])


def _orbit_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    sizes = list(product((1, 2, 3), (2, 3, 4)))
    for index in range(len(sizes) + draws // 4):
        size, depth = sizes[index % len(sizes)]
        matrices = rational_balanced(size, depth, rng)
        yield matrices, [rational_rotation(size, rng) for _ in range(depth - 1)]


@statement(
    "Thm 14 (⊃)",
    _orbit_cases,
    control(
        "a shear instead of a rotation",
        lambda: (
            rational_balanced(2, 2, np.random.default_rng(0)),
            [np.array([[1, 1], [0, 1]], object)],
        ),
    ),
)
def thm_14_orbit(case: Any) -> Check:
    """Square invertible layers: orthogonal changes of the hidden spaces keep balance, product and
    NTK.

    A rotated balanced tuple is balanced and has the same product and kernel: entries that
    differ.
    """
    matrices, rotations = case
    moved = rotated(matrices, rotations)
    wrong = differing(fs.end_to_end_matrix(matrices), fs.end_to_end_matrix(moved))
    wrong += sum(differing(D, np.zeros(D.shape, int)) for D in fs.gram_differences(moved))
    wrong += differing(fs.dense_kernel(matrices).matrix, fs.dense_kernel(moved).matrix)
    return equal(wrong, 0, d=len(matrices[0]), H=len(matrices))


_FOUND = 1e-11


def _connected_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    sizes = [(1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (2, 4)]
    for index in range(max(draws, len(sizes))):
        size, depth = sizes[index % len(sizes)]
        matrices = balanced((size,) * (depth + 1), size, rng)
        key = jax.random.key(int(rng.integers(1 << 31)))
        yield from ((matrices, m) for m in fs.level_set_sample(matrices, 1, key=key, rtol=_FOUND))


@exact.in_float64(
    "Thm 14 (⊂)",
    _connected_cases,
    control(
        "I·I and diag(2, 1)·diag(2, 1), two matrices: connected, but by no orthogonal G",
        lambda: ((np.eye(2), np.eye(2)), (np.diag([2.0, 1.0]), np.diag([2.0, 1.0]))),
    ),
    draws=12,
)
def thm_14_connected(case: Any) -> Check:
    """Square invertible layers: any two balanced factorisations of W are connected by orthogonal
    G_1, …, G_{H−1}.

    Another balanced factorisation of the same product, found by least squares: are the
    connecting G_l orthogonal?
    """
    matrices, mate = case
    gauge = fs.gauge_between(matrices, mate)
    worst = max(float(np.linalg.cond(W)) for W in matrices)
    size = max(float(np.linalg.norm(W)) for W in matrices)
    # `level_set_sample` meets the equations to 1e-11; solving with up to H − 1 factors multiplies
    # by their condition numbers.
    tolerance = 8 * _FOUND * max(size, 1.0) ** 2 * worst ** (len(matrices) - 1)
    gap = max(gauge.orthogonality, gauge.residual)
    return equal(gap, 0.0, tolerance, d=len(matrices[0]), H=len(matrices))
