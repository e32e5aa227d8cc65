"""`riemann`, Eq 8, Lem 9, P 2, P 12, Obs 3 and the dimension: polynomials, rescalings, the
differential.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet, Shape, compose
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.riemann.statements.conserved import RUNNING, small_nets
from neuromanifold_papers.riemann.statements.exact import (
    EPS,
    along,
    differing,
    hypotheses,
    integer_filters,
    line_nets,
    show_filters,
    slope,
    symbols,
    tensor_nets,
)
from neuromanifold_papers.statement import Statement, control, statement


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
    params, output = symbols(net.filter_shapes), (2,) * net.dimension
    v = net.end_to_end(params) if dilations is None else compose(params, dilations)
    whole = composed_matrix(net, params, output)
    if v.shape != net.end_to_end_shape:
        return equal(sum(a != b for a, b in zip(v.shape, net.end_to_end_shape, strict=True)), 0)
    return equal(
        differing(whole, convolution_matrix(v, net.end_to_end_stride, output)),
        0,
        hypotheses=hypotheses(net),
    )


def _with_last_stride(nets: Any) -> list[LinearConvNet]:
    return [
        LinearConvNet(net.filter_shapes, (*net.strides[:-1], (2,) * net.dimension)) for net in nets
    ]


eq_8 = statement(
    "Eq 8",
    lambda rng, draws: _with_last_stride(
        [
            *line_nets((2, 3, 4), (1, 2, 3), (1, 2)),
            *line_nets((2, 3), (1, 2, 3), (3,)),
            *line_nets((2,), (1, 2), (4,)),
        ]
    ),
    control("all t_l = 1 at strides (2, 1)", lambda: RUNNING, dilations=((1,), (1,))),
    says="D = 1: composing convolutions is multiplying the polynomials π_{t_l}(w_l), t_l = s_1⋯s_{l−1}; the stride of the whole is s_1⋯s_H",
)(_eq_8)
lem_9 = statement(
    "Lem 9",
    lambda rng, draws: _with_last_stride(
        [
            *tensor_nets([(2, 2), (1, 2), (3, 1)], [(1, 1), (2, 3)]),
            *tensor_nets([(2, 2)], [(1, 1), (1, 2)], (3,)),
            *tensor_nets([(2, 1, 2), (1, 2, 1)], [(1, 1, 1), (2, 1, 3)]),
        ]
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
    coefficients = [1]
    for o in offsets:
        coefficients = [
            a + o * b for a, b in zip([*coefficients, 0], [0, *coefficients], strict=True)
        ]
    coefficients[-1] -= int(np.prod([int(c) for c in squared], dtype=object))
    signs = [c > 0 for c in coefficients if c]
    return sum(a != b for a, b in zip(signs, signs[1:], strict=False))


def rescalings(depth: int) -> int:
    """2^{H−1}, the printed number."""
    return 2 ** (depth - 1)


def _squared(params: Any) -> list[int]:
    return [int((np.asarray(w, object) ** 2).sum()) for w in params]


def _p_2(case: Any, squared: Callable[[Any], list[int]] = _squared) -> Check:
    net, params, delta = case
    signs = len(fs.rescale(net, params, [float(d) for d in delta]))
    counted = positive_solutions(squared(params), delta) * signs
    return equal(counted, rescalings(net.depth), hypotheses=hypotheses(net, delta=str(list(delta))))


def _p_2_values(case: Any, rescale: Callable[..., Any] = fs.rescale) -> Check:
    net, params, delta = case
    v, worst = np.asarray(net.end_to_end(params), float), 0.0
    found = rescale(net, params, [float(d) for d in delta])
    for theta in found.all_params:
        largest = max(float(np.sum(w * w)) for w in theta)
        off = (
            np.abs(fs.norm_differences(net, theta) - np.array(delta, float)).max(initial=0.0)
            / largest
        )
        worst = max(
            worst, float(off), float(np.linalg.norm(net.end_to_end(theta) - v) / np.linalg.norm(v))
        )
    flats = {
        tuple(np.round(np.concatenate([w.ravel() for w in theta]), 9)) for theta in found.all_params
    }
    worst = worst if len(flats) == rescalings(net.depth) else float("inf")
    return equal(
        worst, 0.0, 64 * EPS * net.depth, hypotheses=hypotheses(net, delta=str(list(delta)))
    )


def _rescaling_cases(nets: Any) -> Any:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
        for net in nets:
            for delta in product((0, -2, 3), repeat=net.depth - 1):
                yield net, integer_filters(net, rng, 3), delta
        for _ in range(draws):
            net = nets[rng.integers(len(nets))]
            scale = 10 ** int(rng.integers(0, 6))
            yield (
                net,
                integer_filters(net, rng, 99),
                tuple(rng.integers(-scale, scale + 1, net.depth - 1).tolist()),
            )

    return cases


def _unscaled(net: LinearConvNet, params: Any, delta: Any) -> Any:
    """The filters as they are, with both signs."""
    return SimpleNamespace(all_params=[params, tuple(-w for w in params)])


_ZERO_FILTER = control(
    "a filter that is zero",
    lambda: (
        LinearConvNet((2, 2), (1, 1)),
        (np.array([1, 1], object), np.array([1, 1], object)),
        (1,),
    ),
    squared=lambda params: [0, 4],
)
_UNSCALED = control(
    "filters as they are, asked for δ = 0 although δ = 7",
    lambda: (RUNNING, (np.array([1.0, 2.0, 2.0]), np.array([4.0, 0.0])), (0,)),
    rescale=_unscaled,
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


def _rescaling(id_: str, nets: Any, says: str, values: bool) -> Statement:
    return statement(
        id_,
        _rescaling_cases(nets),
        _UNSCALED if values else _ZERO_FILTER,
        says=says,
        method="float64" if values else "exact",
        show=show_filters,
    )(_p_2_values if values else _p_2)


P_2 = _rescaling(
    "P 2",
    _LINES,
    "D = 1: every δ is attained by exactly 2^{H−1} rescalings of nonzero filters",
    False,
)
P_2_VALUES = _rescaling(
    "P 2 (values)",
    _LINES,
    "those rescalings keep μ and have the invariants δ; they differ by signs",
    True,
)
P_12 = _rescaling(
    "P 12",
    _TENSORS,
    "D > 1: every δ is attained by exactly 2^{H−1} rescalings of nonzero filters",
    False,
)
P_12_VALUES = _rescaling(
    "P 12 (values)",
    _TENSORS,
    "those rescalings keep μ and have the invariants δ; they differ by signs",
    True,
)


def substituted(net: LinearConvNet, params: Any, moved: Any) -> np.ndarray:
    """Σ_l μ(w_1, …, ẇ_l, …, w_H)."""
    return sum(
        net.end_to_end(tuple(moved[m] if m == l else w for m, w in enumerate(params)))
        for l in range(net.depth)
    )  # pyright: ignore[reportReturnType]


@statement(
    "Obs 3",
    lambda rng, draws: small_nets(),
    control("the blocks in the opposite order", lambda: LinearConvNet((2, 2), (2, 1)), broken=True),
)
def obs_3(net: LinearConvNet, broken: bool = False) -> Check:
    """J = [J_1|…|J_H] with J_l ẇ_l = μ(w_1, …, ẇ_l, …, w_H)."""
    both = symbols([*net.filter_shapes, *net.filter_shapes])
    params, moved = both[: net.depth], both[net.depth :]
    J = fs.filter_jacobian(net, params)
    flat = np.concatenate([w.ravel() for w in (moved[::-1] if broken else moved)])
    return equal(
        differing(J @ flat, substituted(net, params, moved).ravel()), 0, hypotheses=hypotheses(net)
    )


def _direction_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    nets = small_nets()
    for net in nets:
        yield net, integer_filters(net, rng), integer_filters(net, rng)
    for _ in range(draws):
        net = nets[rng.integers(len(nets))]
        yield net, integer_filters(net, rng, 10**6), integer_filters(net, rng, 10**6)


def _one_direction() -> Any:
    rng = np.random.default_rng(0)
    return RUNNING, integer_filters(RUNNING, rng), integer_filters(RUNNING, rng)


@statement(
    "Obs 3 (derivative)",
    _direction_cases,
    control(
        "only the first layer moves",
        _one_direction,
        image=lambda net, params, moved: net.end_to_end((moved[0], *params[1:])),
    ),
    show=show_filters,
)
def obs_3_derivative(case: Any, image: Callable[..., np.ndarray] = substituted) -> Check:
    """d_θμ(θ̇) = Σ_l μ(w_1, …, ẇ_l, …, w_H): the coefficient of ε in μ(θ + εθ̇)."""
    net, params, moved = case
    exact = slope(net.end_to_end(tuple(along(w, d) for w, d in zip(params, moved, strict=True))))
    return equal(differing(exact, image(net, params, moved).ravel()), 0, hypotheses=hypotheses(net))


# The degree of K_l in each other filter.
DEGREE = 2


@statement(
    "Obs 3 (kernel)",
    lambda rng, draws: small_nets(),
    control("degree 1 instead of 2", lambda: RUNNING, degree=1),
)
def obs_3_kernel(net: LinearConvNet, degree: int | None = None) -> Check:
    """K = Σ_l K_l, K_l = J_lJ_lᵀ, free of w_l and homogeneous of degree 2 in every other filter."""
    params, power = symbols(net.filter_shapes), DEGREE if degree is None else degree
    J, blocks = fs.filter_jacobian(net, params), fs.filter_kernel_blocks(net, params)
    wrong = differing(J @ J.T, sum(blocks))
    for j in range(net.depth):
        scaled = fs.filter_kernel_blocks(
            net, tuple(3 * w if m == j else w for m, w in enumerate(params))
        )
        wrong += sum(
            differing(after, before if l == j else 3**power * before)
            for l, (before, after) in enumerate(zip(blocks, scaled, strict=True))
        )
    return equal(wrong, 0, hypotheses=hypotheses(net))


def printed_dimension(sizes: Any) -> int:
    """Σ(k_l − 1) + 1."""
    return sum(k - 1 for k in sizes) + 1


def _dimension_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in [*line_nets((2, 3, 4, 5), (1, 2, 3), (1, 2)), *line_nets((2, 3), (1, 2, 3), (3,))]:
        yield net, integer_filters(net, rng, 10**4)
    for _ in range(draws):
        depth = int(rng.integers(2, 5))
        sizes, strides = rng.integers(2, 5, depth).tolist(), rng.integers(1, 4, depth).tolist()
        net = LinearConvNet(sizes, strides)
        yield net, integer_filters(net, rng, 10**4)


@statement(
    "dim",
    _dimension_cases,
    control(
        "filters that share a factor: (1 + z²) and 1 + Z at stride 2",
        lambda: (RUNNING, (np.array([1, 0, 1]), np.array([1, 1]))),
    ),
    show=show_filters,
)
def dim(case: Any) -> Check:
    """D = 1, all k_l > 1: dim M = Σ(k_l − 1) + 1, the rank of dμ at generic filters."""
    net, params = case
    sizes = [k for (k,) in net.filter_shapes]
    return equal(
        exact_jacobian_rank(net, params), printed_dimension(sizes), hypotheses=hypotheses(net)
    )


GROUP = (
    eq_8,
    lem_9,
    P_2,
    P_2_VALUES,
    P_12,
    P_12_VALUES,
    obs_3,
    obs_3_derivative,
    obs_3_kernel,
    dim,
)
