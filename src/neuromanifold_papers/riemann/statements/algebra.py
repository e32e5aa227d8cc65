"""`riemann`, Eq 8, Lem 9, P 2, P 12, Obs 3 and the dimension: polynomials, rescalings, the
differential.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import product
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.search import join
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet, Shape, compose
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.conserved import RUNNING, small_nets
from neuromanifold_papers.statement import control


def convolution_matrix(w: np.ndarray, stride: Shape, output: Shape) -> np.ndarray:
    """The matrix of X ↦ (Σ_j w_j X_{i·s+j})_i, entry by entry.   [riemann, Eq 2, 10]"""
    signal = tuple(s * (d - 1) + k for s, d, k in zip(stride, output, w.shape, strict=True))
    matrix = np.zeros((int(np.prod(output)), int(np.prod(signal))), int).astype(object)
    for row, i in enumerate(np.ndindex(output)):
        for j in np.ndindex(w.shape):
            at = tuple(a * s + b for a, s, b in zip(i, stride, j, strict=True))
            matrix[row, np.ravel_multi_index(at, signal)] = w[j]
    return matrix


def composed_matrix(net: LinearConvNet, params: Any, output: Shape) -> np.ndarray:
    """The product of the layers' matrices, the last layer having the given output."""
    matrices, shape = [], output
    for w, stride in zip(reversed(params), reversed(net.strides), strict=True):
        matrices.append(convolution_matrix(w, stride, shape))
        shape = tuple(s * (d - 1) + k for s, d, k in zip(stride, shape, w.shape, strict=True))
    return reduce(np.matmul, matrices)


def _eq_8(net: LinearConvNet, dilations: Any = None) -> Check:
    params, output = exact.symbols(net.filter_shapes), (2,) * net.dimension
    v = net.end_to_end(params) if dilations is None else compose(params, dilations)
    whole = composed_matrix(net, params, output)
    if v.shape != net.end_to_end_shape:
        return equal(int(np.sum(np.not_equal(v.shape, net.end_to_end_shape))), 0)
    return equal(exact.differing(whole, convolution_matrix(v, net.end_to_end_stride, output)), 0)


def _with_last_stride(*ranges: Any) -> Callable[..., list[LinearConvNet]]:
    return lambda rng, draws: [
        LinearConvNet(net.filter_shapes, (*net.strides[:-1], (2,) * net.dimension))
        for listed in ranges
        for net in exact.all_nets(*listed)
    ]


eq_8 = exact.statement(
    "Eq 8",
    _with_last_stride(
        ((2, 3, 4), (1, 2, 3), (1, 2)), ((2, 3), (1, 2, 3), (3,)), ((2,), (1, 2), (4,))
    ),
    control("all t_l = 1 at strides (2, 1)", lambda: RUNNING, dilations=((1,), (1,))),
    says="D = 1: composing convolutions is multiplying the polynomials π_{t_l}(w_l), t_l = s_1⋯s_{l−1}; the stride of the whole is s_1⋯s_H",
)(_eq_8)
lem_9 = exact.statement(
    "Lem 9",
    _with_last_stride(
        ([(2, 2), (1, 2), (3, 1)], [(1, 1), (2, 3)]),
        ([(2, 2)], [(1, 1), (1, 2)], (3,)),
        ([(2, 1, 2), (1, 2, 1)], [(1, 1, 1), (2, 1, 3)]),
    ),
    control(
        "the strides of the two axes exchanged",
        lambda: LinearConvNet(((2, 2), (2, 2)), ((2, 1), (1, 1))),
        dilations=((1, 1), (1, 2)),
    ),
    says="the same for D-dimensional signals, axis by axis",
)(_eq_8)


def positive_solutions(squared: Any, delta: Any) -> int:
    """How many β > 0 solve β_{l+1} − β_l = δ_l, Πβ_l = C, by Descartes' rule: one sign change is
    exactly one positive root.

    With β_l = x + o_l, o ≥ 0, min o = 0, all β are positive exactly when x is, and the polynomial
    is Π(x + o_l) − C.
    """
    offsets = np.cumsum([0, *delta])
    offsets = [int(o) for o in offsets - offsets.min()]
    factors = (np.array([1, o], object) for o in offsets)
    coefficients = reduce(np.convolve, factors, np.array([1], object))
    coefficients[-1] -= prod(squared)
    signs = [c > 0 for c in coefficients if c]
    return sum(a != b for a, b in zip(signs, signs[1:], strict=False))


def rescalings(depth: int) -> int:
    """2^{H−1}, the printed number."""
    return 2 ** (depth - 1)


def _p_2(case: Any, zero: int = 0) -> Check:
    net, params, delta = case
    squared = [int((np.asarray(w, object) ** 2).sum()) for w in params]
    squared[:zero] = [0] * zero
    signs = len(fs.rescale(net, params, [float(d) for d in delta]))
    counted = positive_solutions(squared, delta) * signs
    return equal(counted, rescalings(net.depth), delta=str(list(delta)))


def _p_2_values(case: Any, rescale: Callable[..., Any] = fs.rescale) -> Check:
    net, params, delta = case
    v, gaps, flats = np.asarray(net.end_to_end(params), float), [0.0], set()
    for theta in rescale(net, params, [float(d) for d in delta]).all_params:
        largest = max(float(np.sum(w * w)) for w in theta)
        off = np.abs(fs.norm_differences(net, theta) - np.array(delta, float)).max(initial=0.0)
        gaps += [off / largest, np.linalg.norm(net.end_to_end(theta) - v) / np.linalg.norm(v)]
        flats.add(tuple(np.round(join(theta), 9)))
    worst = float(max(gaps)) if len(flats) == rescalings(net.depth) else float("inf")
    return equal(worst, 0.0, 64 * exact.EPS * net.depth, delta=str(list(delta)))


def _rescaling_cases(nets: Any) -> Any:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
        for net in nets:
            for delta in product((0, -2, 3), repeat=net.depth - 1):
                yield net, exact.integer_filters(net, rng, 3), delta
        for _ in range(draws):
            net, scale = nets[rng.integers(len(nets))], 10 ** int(rng.integers(0, 6))
            params = exact.integer_filters(net, rng, 99)
            yield net, params, tuple(rng.integers(-scale, scale + 1, net.depth - 1).tolist())

    return cases


_ZERO_FILTER = control(
    "a filter that is zero",
    lambda: (
        LinearConvNet((2, 2), (1, 1)),
        (np.array([1, 1], object), np.array([1, 1], object)),
        (1,),
    ),
    zero=1,
)
_UNSCALED = control(
    "filters as they are, asked for δ = 0 although δ = 7",
    lambda: (RUNNING, (np.array([1.0, 2.0, 2.0]), np.array([4.0, 0.0])), (0,)),
    rescale=lambda net, params, delta: SimpleNamespace(
        all_params=[params, tuple(-w for w in params)]
    ),
)


_LINES = [
    LinearConvNet(k, (1,) * len(k))
    for k in ((2,), (2, 2), (3, 2), (2, 2, 2), (3, 2, 4), (2, 3, 2, 2), (2,) * 5)
]
_TENSORS = [
    LinearConvNet(((2, 2),), ((1, 1),)),
    LinearConvNet(((2, 2), (3, 1)), ((2, 1), (1, 1))),
    LinearConvNet(((2, 2), (2, 2), (1, 3)), ((1, 1),) * 3),
    LinearConvNet(((2, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 1)), ((1, 2, 1),) * 4),
]


RESCALINGS = [
    made
    for number, D, nets in (("P 2", "D = 1", _LINES), ("P 12", "D > 1", _TENSORS))
    for made in (
        exact.statement(
            number,
            _rescaling_cases(nets),
            _ZERO_FILTER,
            says=f"{D}: every δ is attained by exactly 2^{{H−1}} rescalings of nonzero filters",
        )(_p_2),
        exact.in_float64(
            f"{number} (values)",
            _rescaling_cases(nets),
            _UNSCALED,
            says="those rescalings keep μ and have the invariants δ; they differ by signs",
        )(_p_2_values),
    )
]


def substituted(net: LinearConvNet, params: Any, moved: Any) -> np.ndarray:
    """Σ_l μ(w_1, …, ẇ_l, …, w_H)."""
    moves = enumerate(moved)
    return np.sum([net.end_to_end((*params[:l], d, *params[l + 1 :])) for l, d in moves], axis=0)


@exact.statement(
    "Obs 3",
    lambda rng, draws: small_nets(),
    control("the blocks in the opposite order", lambda: LinearConvNet((2, 2), (2, 1)), broken=True),
)
def obs_3(net: LinearConvNet, broken: bool = False) -> Check:
    """J = [J_1|…|J_H] with J_l ẇ_l = μ(w_1, …, ẇ_l, …, w_H)."""
    both = exact.symbols([*net.filter_shapes, *net.filter_shapes])
    params, moved = both[: net.depth], both[net.depth :]
    J, flat = fs.filter_jacobian(net, params), join(moved[::-1] if broken else moved)
    return equal(exact.differing(J @ flat, substituted(net, params, moved).ravel()), 0)


def _direction_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    nets = small_nets()
    for net in nets:
        yield net, exact.integer_filters(net, rng), exact.integer_filters(net, rng)
    for _ in range(draws):
        net = nets[rng.integers(len(nets))]
        yield net, exact.integer_filters(net, rng, 10**6), exact.integer_filters(net, rng, 10**6)


@exact.statement(
    "Obs 3 (derivative)",
    _direction_cases,
    control(
        "only the first layer moves",
        lambda: (
            RUNNING,
            *(exact.integer_filters(RUNNING, np.random.default_rng(seed)) for seed in (0, 1)),
        ),
        image=lambda net, params, moved: net.end_to_end((moved[0], *params[1:])),
    ),
)
def obs_3_derivative(case: Any, image: Callable[..., np.ndarray] = substituted) -> Check:
    """d_θμ(θ̇) = Σ_l μ(w_1, …, ẇ_l, …, w_H): the coefficient of ε in μ(θ + εθ̇)."""
    net, params, moved = case
    found = exact.slope(net.end_to_end(tuple(map(exact.along, params, moved))))
    return equal(exact.differing(found, image(net, params, moved).ravel()), 0)


@exact.statement(
    "Obs 3 (kernel)",
    lambda rng, draws: small_nets(),
    control("degree 1 instead of 2", lambda: RUNNING, power=1),
)
def obs_3_kernel(net: LinearConvNet, power: int = 2) -> Check:
    """K = Σ_l K_l, K_l = J_lJ_lᵀ, free of w_l and homogeneous of degree 2 in every other filter."""
    params = exact.symbols(net.filter_shapes)
    J, blocks = fs.filter_jacobian(net, params), fs.filter_kernel_blocks(net, params)
    wrong = exact.differing(J @ J.T, sum(blocks))
    for j, w in enumerate(params):
        scaled = fs.filter_kernel_blocks(net, (*params[:j], 3 * w, *params[j + 1 :]))
        for l, (before, after) in enumerate(zip(blocks, scaled, strict=True)):
            wrong += exact.differing(after, before if l == j else 3**power * before)
    return equal(wrong, 0)


def printed_dimension(sizes: Any) -> int:
    """Σ(k_l − 1) + 1."""
    return sum(k - 1 for k in sizes) + 1


def _dimension_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in [
        *exact.all_nets((2, 3, 4, 5), (1, 2, 3), (1, 2)),
        *exact.all_nets((2, 3), (1, 2, 3), (3,)),
    ]:
        yield net, exact.integer_filters(net, rng, 10**4)
    for depth in (int(rng.integers(2, 5)) for _ in range(draws)):
        net = LinearConvNet(rng.integers(2, 5, depth).tolist(), rng.integers(1, 4, depth).tolist())
        yield net, exact.integer_filters(net, rng, 10**4)


@exact.statement(
    "dim",
    _dimension_cases,
    control(
        "filters that share a factor: (1 + z²) and 1 + Z at stride 2",
        lambda: (RUNNING, (np.array([1, 0, 1]), np.array([1, 1]))),
    ),
)
def dim(case: Any) -> Check:
    """D = 1, all k_l > 1: dim M = Σ(k_l − 1) + 1, the rank of dμ at generic filters."""
    net, params = case
    return equal(exact_jacobian_rank(net, params), printed_dimension(exact.sizes_of(net)))
