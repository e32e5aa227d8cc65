"""`riemann`, Table 1: when is the NTK independent of the parameters, for fixed δ or Δ?"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import jax
import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import stride_one_runs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.riemann.statements import dense, exact
from neuromanifold_papers.riemann.statements.conserved import RUNNING, balanced
from neuromanifold_papers.riemann.statements.exact import EPS, in_float64, seed, statement
from neuromanifold_papers.riemann.statements.tensors import LINE, SQUARE
from neuromanifold_papers.riemann.statements.theorem13 import FIRST_13, equal_norms
from neuromanifold_papers.riemann.table import CONVOLUTIONS
from neuromanifold_papers.statement import control

# Root finding and factoring give filters to about 1e-10 for well-conditioned v; kernels of
# different tuples are 1e-3 apart.
SAME = 1e-7
APART = 1e-4


def _balanced_pairs(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Balanced weights of all widths, and others over the same product: their hidden frames
    rotated independently.
    """
    for widths in [*product((1, 2, 3), repeat=3), *product((1, 2, 3), repeat=4)]:
        first = balanced(widths, min(widths), rng)
        rotations = [np.linalg.qr(rng.normal(size=(d, d)))[0] for d in widths[1:-1]]
        yield first, fs.rotate_factors(first, rotations)
    for _ in range(draws // 4):
        first, key = balanced((2, 2, 2), 2, rng), jax.random.key(int(rng.integers(1 << 31)))
        yield from ((first, mate) for mate in fs.level_set_sample(first, 1, key=key))


def _unbalanced_pair() -> Any:
    rng = np.random.default_rng(0)
    first = tuple(rng.normal(size=(2, 2)) for _ in range(2))
    return first, fs.level_set_sample(first, 1)[0]


@in_float64("Table 1 (dense, balanced)", _balanced_pairs, control("generic Δ", _unbalanced_pair))
def dense_balanced(case: Any) -> Check:
    """Fully connected, Δ = 0: the NTK is parameter independent."""
    first, second = case
    distance = fs.kernel_distance(fs.dense_kernel(first).matrix, fs.dense_kernel(second).matrix)
    return equal(distance, 0.0, 64 * EPS * len(first), widths=str([W.shape for W in first]))


def segments(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The widths cut at hidden layers of width 1.

    >>> segments((2, 2, 1, 3, 1))
    [(2, 2, 1), (1, 3, 1)]
    """
    cuts = [0, *(i for i in range(1, len(widths) - 1) if widths[i] == 1), len(widths) - 1]
    return [widths[a : b + 1] for a, b in zip(cuts, cuts[1:], strict=False)]


def depends(widths: tuple[int, ...]) -> bool:
    """Whether some segment has two layers or more and is not (1, h, 1)."""
    return any(len(s) > 2 and not (len(s) == 3 and s[0] == s[2] == 1) for s in segments(widths))


def _widths(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    every = [w for n in (3, 4) for w in product((1, 2, 3), repeat=n) if n == 3 or sum(w) <= 7]
    for widths in sorted(every, key=lambda w: (len(w), sum(w), w)):
        yield dense.integer_matrices(widths, rng), widths


def hourglass() -> int:
    """(1, h, 1), h = 2: in how many entries K² differs from (tr Δ)² + 4(W² − det Δ), as
    polynomials.
    """
    pair = exact.symbols([(2, 1), (1, 2)])
    K, W = fs.dense_kernel(pair).matrix[0, 0], fs.end_to_end_matrix(pair)[0, 0]
    D = fs.gram_differences(pair)[0]
    trace, determinant = D[0, 0] + D[1, 1], D[0, 0] * D[1, 1] - D[0, 1] * D[1, 0]
    return exact.differing([K * K], [trace * trace + 4 * (W * W - determinant)])


def _simplest(case: Any) -> list[Any]:
    """The same widths with all entries of layer l equal to l."""
    matrices, widths = case
    simple = tuple(np.full(W.shape, l) for l, W in enumerate(matrices, 1))
    return [] if all(map(np.array_equal, matrices, simple)) else [(simple, widths)]


@statement(
    "Table 1 (dense, unbalanced)",
    _widths,
    dense.BALANCED,
    smaller=_simplest,
    confirm=lambda case: (
        at_least(hourglass(), 1) if case[1] == (1, 2, 1) else dense.scalar_kernels((1, 2))
    ),
    show=lambda case: f"weights = {[W.tolist() for W in case[0]]}",
)
def dense_unbalanced(case: Any) -> Check:
    """Fully connected, two layers or more, generic Δ: the NTK depends on more than W and Δ, for
    all widths.
    """
    matrices, widths = case
    return at_least(min(dense.freedom(matrices), 1), 1, widths=str(widths), H=len(matrices))


@dense_unbalanced.amend()
def dense_law(case: Any) -> Check:
    """Cut at the hidden layers of width 1, generic Δ: the NTK varies over (W, Δ) exactly when
    some piece has two layers or more and is not (1, h, 1).
    """
    matrices, widths = case
    return equal(min(dense.freedom(matrices), 1), int(depends(widths)), widths=str(widths))


def spread(
    net: LinearConvNet,
    rng: np.random.Generator,
    delta: Any,
    draws: int = 2,
    *,
    enough: float = np.inf,
) -> float:
    """The largest kernel distance over the fibres of Gaussian filters and, for D = 1, of filters
    with real roots only.

    Drawing stops at a distance of `enough`.
    """
    worst = 0.0
    for index in range(draws):
        params = exact.gaussian_filters(net, rng)
        if net.dimension == 1 and index % 2:
            params = tuple(np.poly(rng.normal(size=k - 1)) for k in exact.sizes_of(net))
        worst = max(worst, fs.fiber(net, net.end_to_end(params), delta).kernel_spread)
        if worst >= enough:
            break
    return worst


def drawn_delta(net: LinearConvNet, rng: np.random.Generator, zero: bool) -> np.ndarray:
    return np.zeros(net.depth - 1) if zero else 2 * rng.normal(size=net.depth - 1)


def _independent(case: Any) -> Check:
    net, delta, seed = case
    found = spread(net, np.random.default_rng(seed), delta)
    return equal(found, 0.0, SAME, delta="not 0" if delta.any() else "0")


def _dependent(case: Any) -> Check:
    net, delta, seed = case
    found = spread(net, np.random.default_rng(seed), delta, 8, enough=APART)
    return at_least(found, APART, delta="not 0" if delta.any() else "0")


def _family(dimension: int, printed: str) -> list[LinearConvNet]:
    """The study's architectures of the cells of Table 1."""
    cells = [nets for D, _, _, answer, nets in CONVOLUTIONS if (D, answer) == (dimension, printed)]
    return [net for nets in cells for net in nets]


def _seeded(nets: Any, *zeros: bool) -> Any:
    """Cases of each network with δ = 0 or drawn, and a seed."""
    return lambda rng, draws: (
        (net, drawn_delta(net, rng, zero), seed(net, rng)) for net in nets for zero in zeros
    )


def _every_filter(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Filters over which two tuples lie, and Gaussian ones."""
    for a, b in (((1, 0, 2), (2, 1)), ((1, 2, 3), (1, 1)), ((3, 0, 1), (1, 2))):
        yield RUNNING, (np.array(a, object), np.array(b, object))
    yield from ((net, exact.gaussian_filters(net, rng)) for net in _family(1, "yes"))


def _other_tuple(case: Any) -> Check:
    """(a_0, 0, a_2), (b_0, b_1) and (b_0, 0, b_1), (a_0, a_2), whose halves have the same norms: both
    kernels in integers.
    """
    net, ((a0, _, a2), (b0, b1)) = case
    mate = (np.array([b0, 0, b1], object), np.array([a0, a2], object))
    return equal(exact.differing(fs.filter_kernel(net, case[1]), fs.filter_kernel(net, mate)), 0)


@in_float64(
    "Table 1 (D = 1, strides > 1)",
    _every_filter,
    control(
        "stride one",
        lambda: (LinearConvNet((3, 2), (1, 1)), (np.array([0, 1, 1]), np.array([1, 2]))),
    ),
    confirm=_other_tuple,
)
def line_every(case: Any) -> Check:
    """One-dimensional, all inner strides above one: parameter independent for all δ, at every v; here at
    the δ of the tuple.
    """
    net, params = case
    over = fs.fiber(net, net.end_to_end(params), fs.norm_differences(net, params))
    return equal(over.kernel_spread, 0.0, SAME)


line_yes = line_every.amend(
    control("stride one", lambda: (LinearConvNet((3, 2), (1, 1)), np.zeros(1), 1)),
    cases=_seeded([*_family(1, "yes"), *exact.all_nets((2, 3), (2, 3))], True, False),
    says="one-dimensional, all inner strides above one: parameter independent for all δ at almost every v, the smooth ones",
)(_independent)


_STRIDE_ONE = [
    *exact.all_nets((2, 3), (1,)),
    *_family(1, "no"),
    LinearConvNet((2, 2, 3), (1, 2, 1)),
]


line_no = in_float64(
    "Table 1 (D = 1, stride 1, δ ≠ 0)",
    _seeded(_STRIDE_ONE, False),
    control("strides above one", lambda: (LinearConvNet((3, 2), (2, 1)), np.ones(1), 1)),
    says="one-dimensional, some inner stride one, generic δ: some v has tuples with different NTKs",
)(_dependent)


def _equal_norms_exactly(case: Any) -> Check:
    """Two filters of equal norm in layers of size 2: the only tuples over their product, up to
    signs, are the two orders.
    """
    net, *_ = case
    filters = tuple(np.array([[1, 2], [2, 1], [2, -1]], object)[: net.depth])
    kernels = (fs.filter_kernel(net, params) for params in (filters, filters[::-1]))
    return at_least(exact.differing(*kernels), 1)


def larger_in_run(net: LinearConvNet) -> bool:
    """Whether layers joined by stride one, two or more, include one of size above 2."""
    runs = [run for run in stride_one_runs(net) if len(run) > 1]
    return any(exact.sizes_of(net)[l] > 2 for run in runs for l in run)


line_no_balanced = in_float64(
    "Table 1 (D = 1, stride 1, δ = 0)",
    _seeded(_STRIDE_ONE, True),
    control("strides above one", lambda: (LinearConvNet((3, 2), (2, 1)), np.zeros(1), 1)),
    confirm=_equal_norms_exactly,
    says="one-dimensional, some inner stride one, δ = 0: some v has tuples with different NTKs",
)(_dependent)


@line_no_balanced.amend(
    control("δ = 1 for sizes (2, 2)", lambda: (LinearConvNet((2, 2), (1, 1)), np.ones(1), 1)),
)
def balanced_law(case: Any) -> Check:
    """δ = 0: where layers joined by stride one include a size above 2, an open set of v has
    tuples with different NTKs; else almost every v has one NTK.
    """
    return _dependent(case) if larger_in_run(case[0]) else _independent(case)


_wide = _seeded(
    sorted([*_family(2, "yes"), *_family(3, "yes")], key=lambda net: (net.n_params, net.depth)),
    True,
    False,
)


def _thick(net: LinearConvNet) -> bool:
    return all(sum(k > 1 for k in shape) >= 2 for shape in net.filter_shapes)


def _exact_kernels(case: Any) -> Check:
    """Integer tuples with one v and one δ: those of Thm 13 (like layers), or x²y + xy² in 3 × 1
    and 2 × 1 (balanced: 2K in integers).
    """
    if not _thick(case[0]):
        kernels = []
        for a, b, sa, sb in (((0, 1, 0), (1, 1), 2, 1), ((1, 1, 0), (0, 1), 1, 2)):
            params = tuple(np.array(w, object)[:, None] for w in (a, b))
            first, second = fs.filter_kernel_blocks(LINE, params)
            kernels.append(sb * first + sa * second)
        return equal(exact.differing(*kernels), 0)
    mate = (FIRST_13[1] // 2, 2 * FIRST_13[0])
    return equal(
        exact.differing(fs.filter_kernel(SQUARE, FIRST_13), fs.filter_kernel(SQUARE, mate)), 0
    )


wide = in_float64(
    "Table 1 (D > 1)",
    _wide,
    control("D = 1, stride one", lambda: (LinearConvNet((3, 2), (1, 1)), np.zeros(1), 1)),
    confirm=_exact_kernels,
    says="high-dimensional: parameter independent for all δ and all strides",
)(_independent)

table_1_d_1_amended = wide.amend(
    control("like layers, δ = 6", lambda: (SQUARE, np.array([6.0]), 1)),
    cases=lambda rng, draws: (
        case for case in _wide(rng, draws) if _thick(case[0]) and equal_norms(case[0], case[1])
    ),
)(
    "high-dimensional, two sizes above 1 in every layer: parameter independent for all strides "
    "and all δ with Σ_{i=l}^{L−1} δ_i = 0 between layers of the same space"
)
