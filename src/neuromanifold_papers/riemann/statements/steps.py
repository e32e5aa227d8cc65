"""`riemann`: steps of the text and of its proofs on convolutions that the theorems rest on."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from math import factorial, prod
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.search import split
from neuromanifold.functionspace.smoothness import stride_one_runs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.conserved import RUNNING, small_nets
from neuromanifold_papers.riemann.statements.locus import complex_tuples
from neuromanifold_papers.statement import control


def _losses(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Small nets with integer filters and integer A, Au of ℓ(v) = vᵀAv − 2vᵀAu."""
    for net in small_nets():
        size = int(np.prod(net.end_to_end_shape))
        B = rng.integers(-3, 4, (size, size)).astype(object)
        yield (
            net,
            exact.integer_filters(net, rng),
            B.T @ B,
            rng.integers(-9, 10, size).astype(object),
        )


_GENERIC = (np.array([1, 2, 3], object), np.array([1, 10], object))
_IDENTITY = np.eye(5, dtype=object)
_RUNNING = (RUNNING, _GENERIC, _IDENTITY, np.ones(5, int).astype(object))


def loss_of(net: LinearConvNet, params: Any, A: np.ndarray, Au: np.ndarray) -> Any:
    """ℓ(μ(θ)) = vᵀAv − 2vᵀAu, in the ring of the filters' entries."""
    v = net.end_to_end(params).ravel()
    return v @ (A @ v) - 2 * (v @ Au)


def gradient_by_entries(
    net: LinearConvNet, params: Any, A: np.ndarray, Au: np.ndarray
) -> tuple[np.ndarray, ...]:
    """∇L(θ), entry by entry: the coefficient of ε in L(θ + εe_i)."""

    def derivative(unit: np.ndarray) -> Any:
        theta = tuple(map(exact.along, params, split(net, unit)))
        return exact.slope([loss_of(net, theta, A, Au)])[0]

    units = np.eye(net.n_params, dtype=object)
    return split(net, np.array([derivative(unit) for unit in units], object))


@exact.statement(
    "Eq 3 (function space)",
    _losses,
    control(
        "the kernel taken twice",
        lambda: _RUNNING,
        kernel=lambda net, params: 2 * fs.filter_kernel(net, params),
    ),
)
def chain(
    case: Any, kernel: Callable[[LinearConvNet, Any], np.ndarray] = fs.filter_kernel
) -> Check:
    """Along gradient flow dμ(θ(t))/dt = −JJᵀ∇ℓ(μ(θ(t)))."""
    net, params, A, Au = case
    gradient = gradient_by_entries(net, params, A, Au)
    moved = tuple(exact.along(w, -g) for w, g in zip(params, gradient, strict=True))
    v = net.end_to_end(params).ravel()
    expected = -(kernel(net, params) @ (2 * (A @ v - Au)))
    return equal(exact.differing(exact.slope(net.end_to_end(moved)), expected), 0)


def _with_zeros(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Every nonempty set of filters zero, at strides one and above, with generic data."""
    for net, params, A, Au in _losses(rng, draws):
        for count in range(1, net.depth + 1):
            for zero in combinations(range(net.depth), count):
                theta = tuple(0 * w if l in zero else w for l, w in enumerate(params))
                yield net, theta, A, Au, exact.integer_filters(net, rng)


_NO_TARGETS = control(
    "all targets zero",
    lambda: (RUNNING, (0 * _GENERIC[0], _GENERIC[1]), _IDENTITY, 0 * _IDENTITY[0], _GENERIC),
)


@exact.statement("Sec 1.2 (zero)", _with_zeros, _NO_TARGETS)
def saddle(case: Any) -> Check:
    """Generic data: over the zero function the loss takes larger and smaller values arbitrarily
    near, so that a critical point there is a saddle (printed: unless all Y_i are 0).

    L − L(θ) along w_l ↦ ±τc_l for one zero filter, the other zero filters having left 0: −2τg
    + τ²q takes both signs.
    """
    net, theta, A, Au, c = case
    zero = [l for l, w in enumerate(theta) if not w.any()]
    near = tuple(c[l] if l in zero else w for l, w in enumerate(theta))
    v = net.end_to_end(near).ravel()
    q, g = int(v @ (A @ v)), int(v @ Au)
    tau = Fraction(g, q) if g else Fraction(1)
    values = [-2 * t * g + t * t * q for t in (tau, -tau)]
    return equal(int(min(values) < 0 < max(values)), 1, zero_filters=len(zero))


def expected_tuples(net: LinearConvNet) -> int:
    """Ways to deal the distinct roots of a generic v to layers joined by stride one: a
    multinomial for each run.
    """
    runs = [[exact.sizes_of(net)[l] - 1 for l in run] for run in stride_one_runs(net)]
    return prod(factorial(sum(run)) // prod(map(factorial, run)) for run in runs)


def _joined(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Nets of which some inner stride is one."""
    for net in [*exact.all_nets((2, 3, 4), (1,), (2,)), *exact.all_nets((2, 3), (1, 2), (3,))]:
        if (1,) in net.strides[:-1]:
            yield net, exact.integer_filters(net, rng, 50)


@exact.in_float64(
    "Sec 2.3 (fibres)",
    _joined,
    control(
        "one tuple expected",
        lambda: (LinearConvNet((3, 2), (1, 1)), (np.array([0, 1, 0]), np.array([1, 1]))),
        expected=lambda net: 1,
    ),
)
def fibres(case: Any, expected: Callable[[LinearConvNet], int] = expected_tuples) -> Check:
    """D = 1, some inner stride one: over a generic v lie finitely many tuples up to scaling, and
    more than one; read over ℂ, as 'birational' is (over ℝ a cubic with one real root has one,
    as Ex 19 says): a multinomial coefficient for each run of strides one.
    """
    net, params = case
    strides, v = tuple(s for (s,) in net.strides), np.asarray(net.end_to_end(params), float)
    return equal(complex_tuples(exact.sizes_of(net), strides, v), expected(net))


@exact.statement(
    "P 8 (two zero filters)",
    lambda rng, draws: exact.all_nets((2, 3), (2,), (2, 3, 4)),
    control("summed up to l", lambda: LinearConvNet((2, 2, 2), (2, 2, 1)), shift=1),
)
def two_zeros(net: LinearConvNet, shift: int = 0) -> Check:
    """If w_k = w_l = 0 then Σ_{i=k}^{l−1} δ_i = 0 (printed up to l, a misprint).

    Σ_{i=k}^{l−1} δ_i at symbols with w_k = w_l = 0, for every pair of layers.
    """
    wrong, filters = 0, list(enumerate(exact.symbols(net.filter_shapes)))
    for k, l in combinations(range(net.depth), 2):
        delta = fs.norm_differences(net, tuple(0 * w if m in (k, l) else w for m, w in filters))
        wrong += exact.differing([sum(delta[k : l + shift], 0)], [0])
    return equal(wrong, 0)


def second_derivative(
    net: LinearConvNet, theta: Any, direction: Any, A: np.ndarray, Au: np.ndarray
) -> int:
    """d²L(θ)(θ̇, θ̇): twice the coefficient of ε² in L(θ + εθ̇)."""
    value = loss_of(
        net, tuple(exact.along(w, d) for w, d in zip(theta, direction, strict=True)), A, Au
    )
    return 2 * int(value.value[2]) if isinstance(value, exact.Symbol) else 0


def printed_blocks(
    net: LinearConvNet, theta: Any, direction: Any, A: np.ndarray, Au: np.ndarray
) -> int:
    """Σ_{i,j} 2(μ_i(ẇ_i)ᵀAμ_j(ẇ_j) − μ_{i,j}(ẇ_i, ẇ_j)ᵀAu), with μ_{i,i} = 0.
    [riemann, proof of P 8]
    """

    def put(*moving: int) -> np.ndarray:
        moved = tuple(direction[m] if m in moving else w for m, w in enumerate(theta))
        return net.end_to_end(moved).ravel()

    layers = range(net.depth)
    total = sum(put(i) @ (A @ put(j)) for i in layers for j in layers)
    return int(2 * (total - sum(put(i, j) @ Au for i in layers for j in layers if i != j)))


def _one_zero(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    return (case for case in _with_zeros(rng, draws) if sum(not w.any() for w in case[1]) == 1)


@exact.statement(
    "P 8 (Hessian)",
    _one_zero,
    control(
        "where no filter is zero, the residual enters",
        lambda: (*_RUNNING, (np.array([1, 0, 2], object), np.array([3, 1], object))),
    ),
)
def _blocks(case: Any, blocks: Callable[..., int] = printed_blocks) -> Check:
    """Where one filter is zero, the Hessian's blocks are 2(μ_i(ẇ_i)ᵀAμ_j(ẇ_j) − μ_{i,j}(ẇ_i,
    ẇ_j)ᵀAu).
    """
    net, theta, A, Au, direction = case
    found = second_derivative(net, theta, direction, A, Au)
    return equal(found, blocks(net, theta, direction, A, Au))


def hessian(net: LinearConvNet, theta: Any, A: np.ndarray, Au: np.ndarray) -> np.ndarray:
    """Twice the Hessian of L at θ, exactly, by polarisation of its quadratic form."""
    units = np.eye(net.n_params, dtype=object)

    def form(flat: np.ndarray) -> int:
        return second_derivative(net, theta, split(net, flat), A, Au)

    diagonal = [form(unit) for unit in units]
    rows = range(net.n_params)
    return np.array(
        [[form(units[i] + units[j]) - diagonal[i] - diagonal[j] for j in rows] for i in rows],
        object,
    )


@exact.statement("P 8 (strict saddle)", _one_zero, _NO_TARGETS)
def strict(case: Any) -> Check:
    """Generic data, exactly one filter zero: the Hessian has a negative eigenvalue.

    Whether vᵀHv < 0 for some v = αe_s + e_t with t in the zero filter and s in another, α
    large and of the right sign.
    """
    net, theta, A, Au, _ = case
    H = hessian(net, theta, A, Au)
    inside_zero = np.concatenate([np.full(w.size, not w.any()) for w in theta])
    found = [
        -2 * (abs(H[t, t]) + 1) * abs(H[s, t]) + H[t, t]
        for t in np.flatnonzero(inside_zero)
        for s in np.flatnonzero(~inside_zero)
    ]
    return equal(int(min(found) < 0), 1)
