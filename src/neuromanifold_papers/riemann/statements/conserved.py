"""`riemann`, Eq 1, 5, 6, 7: what gradient flow conserves, and the tangent kernel of dense linear
networks.
"""

import operator
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import product
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.search import join, split
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.exact import EPS
from neuromanifold_papers.statement import control

RUNNING = LinearConvNet((3, 2), (2, 1))
_RTOL = 1e-12
_TIME = 1.0


def small_nets() -> list[LinearConvNet]:
    """Every shape of case: D ≤ 3, strides of one and above, equal and unequal sizes, sizes of
    one (D > 1).
    """
    return [
        *exact.all_nets((2, 3, 4), (1, 2, 3), (2,)),
        *exact.all_nets((2, 3), (1, 2), (3,)),
        *exact.all_nets((2,), (1, 2), (4,)),
        *exact.all_nets([(2, 2), (1, 2), (3, 1)], [(1, 1), (2, 1)]),
        LinearConvNet(((2, 2, 1), (1, 2, 2)), ((2, 1, 1), (1, 1, 1))),
    ]


def velocity(
    net: LinearConvNet, params: Any, gradient: np.ndarray, speeds: Any = None
) -> tuple[np.ndarray, ...]:
    """ẇ_l = −J_lᵀ ∇ℓ(v); `speeds` ≠ 1 make it the gradient flow of another metric, layer by
    layer.
    """
    parts = split(net, -(fs.filter_jacobian(net, params).T @ gradient))
    return parts if speeds is None else tuple(s * w for s, w in zip(speeds, parts, strict=True))


def rate(net: LinearConvNet, params: Any, moved: Any) -> np.ndarray:
    """2·dδ(θ̇) = δ(θ + θ̇) − δ(θ − θ̇), exact because δ is quadratic."""
    forward, back = (tuple(map(add, params, moved)) for add in (operator.add, operator.sub))
    return fs.norm_differences(net, forward) - fs.norm_differences(net, back)


@exact.statement(
    "Eq 1",
    lambda rng, draws: small_nets(),
    control("a flow in which the first layer moves twice as fast", lambda: RUNNING, speeds=(2, 1)),
)
def eq_1(net: LinearConvNet, speeds: Any = None) -> Check:
    """δ_l = ‖w_{l+1}‖² − ‖w_l‖² does not change along gradient flow, whatever the loss."""
    *params, gradient = exact.symbols([*net.filter_shapes, (int(np.prod(net.end_to_end_shape)),)])
    rates = rate(net, params, velocity(net, params, gradient, speeds))
    return equal(exact.differing(rates, np.zeros(len(rates), int)), 0)


_FLOWS = (
    RUNNING,
    LinearConvNet((2, 2), (1, 1)),
    LinearConvNet((2, 3, 2), (2, 1, 1)),
    LinearConvNet(((2, 2), (2, 1)), ((1, 2), (1, 1))),
    LinearConvNet((2, 2, 2), (3, 2, 1)),
)


def data_loss(net: LinearConvNet, rng: np.random.Generator) -> fs.FilterLoss:
    """The squared error of N = k Gaussian samples, divided by N to set the time scale."""
    n = int(np.prod(net.end_to_end_shape))
    x = rng.normal(size=(n, *net.signal_shape((1,) * net.dimension))) / np.sqrt(n)
    return fs.filter_loss(net, x, rng.normal(size=(n, *(1,) * net.dimension)) / np.sqrt(n))


_flow_cases = exact.gaussian_cases(_FLOWS, data_loss)


def _integrated(field: Callable[..., Any], start: np.ndarray) -> tuple[np.ndarray, int]:
    from scipy.integrate import solve_ivp

    flow = solve_ivp(
        lambda _, flat: field(flat), (0.0, _TIME), start, method="DOP853", rtol=_RTOL, atol=1e-13
    )
    return flow.y[:, -1], flow.nfev


def warped_flow(net: LinearConvNet, params: Any, *, loss: fs.FilterLoss, **options: Any) -> Any:
    """The first layer twice as fast, by the same integrator."""

    def field(flat: np.ndarray) -> np.ndarray:
        theta = split(net, flat)
        return join(velocity(net, theta, loss.gradient(net.end_to_end(theta)), (2.0, 1.0)))

    end, evaluations = _integrated(field, join(params))
    drift = np.abs(
        fs.norm_differences(net, split(net, end)) - fs.norm_differences(net, params)
    ).max()
    return SimpleNamespace(drift=float(drift), evaluations=evaluations)


@exact.by_integration(
    "Eq 1 (flow)",
    _flow_cases,
    control(
        "a flow in which the first layer moves twice as fast",
        lambda: next(_flow_cases(np.random.default_rng(1), 1)),
        follow=warped_flow,
    ),
    draws=10,
)
def eq_1_flow(case: Any, follow: Callable[..., Any] = fs.parameter_flow) -> Check:
    """δ_l stays constant along integrated gradient flows of the squared error."""
    net, params, loss = case
    flow = follow(net, params, loss=loss, t1=_TIME, times=6, rtol=_RTOL)
    rounding = flow.evaluations * _RTOL * sum(float(np.sum(w * w)) for w in params)
    return equal(flow.drift, 0.0, rounding, flows="Gaussian start")


def dense_velocity(matrices: Any, gradient: np.ndarray, speeds: Any = None) -> list[np.ndarray]:
    """Ẇ_l = −(W_H⋯W_{l+1})ᵀ ∇ℓ (W_{l−1}⋯W_1)ᵀ."""
    parts = []
    for l in range(len(matrices)):
        left = reduce(lambda G, W: W.T @ G, reversed(matrices[l + 1 :]), gradient)
        parts.append(-reduce(lambda G, W: G @ W.T, matrices[:l], left))
    return parts if speeds is None else [s * W for s, W in zip(speeds, parts, strict=True)]


def shapes_of(widths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Widths d_0, …, d_H as the shapes of W_1, …, W_H."""
    return [(b, a) for a, b in zip(widths, widths[1:], strict=False)]


def _widths(rng: Any = None, draws: int = 0) -> list[tuple[int, ...]]:
    """All widths up to 3 with two layers and up to 2 with three, the smallest first."""
    return sorted(
        [*product((1, 2, 3), repeat=3), *product((1, 2), repeat=4)], key=lambda w: (sum(w), w)
    )


@exact.statement(
    "Eq 5",
    _widths,
    control(
        "a flow in which the first layer moves twice as fast", lambda: (1, 2, 1), speeds=(2, 1)
    ),
)
def eq_5(widths: tuple[int, ...], speeds: Any = None) -> Check:
    """Δ_l = W_{l+1}ᵀW_{l+1} − W_lW_lᵀ does not change along gradient flow of dense linear
    networks, whatever the loss.
    """
    *params, gradient = exact.symbols([*shapes_of(widths), (widths[-1], widths[0])])
    moved = dense_velocity(params, gradient, speeds)
    forward, back = ([*map(add, params, moved)] for add in (operator.add, operator.sub))
    pairs = map(operator.sub, fs.gram_differences(forward), fs.gram_differences(back))
    changed = sum(exact.differing(rate, np.zeros(rate.shape, int)) for rate in pairs)
    return equal(changed, 0, widths=str(widths), H=len(widths) - 1)


def _dense_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for index in range(draws):
        widths = ((2, 3, 2), (3, 2, 1, 2), (1, 1, 1), (3, 3, 3))[index % 4]
        params = tuple(rng.normal(size=shape) for shape in shapes_of(widths))
        size = widths[-1], widths[0]
        yield params, fs.FilterLoss(np.eye(prod(size)), rng.normal(size=size))


def warped_dense_flow(params: Any, *, loss: fs.FilterLoss, **options: Any) -> Any:
    """Of two square layers, the first twice as fast."""
    start = np.stack(params)

    def field(flat: np.ndarray) -> np.ndarray:
        first, second = flat.reshape(start.shape)
        gradient = np.reshape(loss.gradient(second @ first), first.shape)
        return np.ravel(dense_velocity([first, second], gradient, (2.0, 1.0)))

    end, _ = _integrated(field, start.ravel())
    before, after = fs.gram_differences(start)[0], fs.gram_differences(end.reshape(start.shape))[0]
    return SimpleNamespace(drift=float(np.abs(after - before).max()))


_TWO_BY_TWO = (np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([[0.3, 1.0], [1.0, 0.2]]))


@exact.by_integration(
    "Eq 5 (flow)",
    _dense_cases,
    control(
        "a flow in which the first layer moves twice as fast",
        lambda: (_TWO_BY_TWO, fs.FilterLoss(np.eye(4), np.eye(2))),
        follow=warped_dense_flow,
    ),
    draws=8,
)
def eq_5_flow(case: Any, follow: Callable[..., Any] = fs.dense_parameter_flow) -> Check:
    """Δ_l stays constant along integrated gradient flows of dense linear networks."""
    params, loss = case
    flow = follow(params, loss=loss, t1=_TIME, times=6, rtol=_RTOL)
    # The integrator takes several hundred steps, each with a relative error of _RTOL.
    rounding = 1e3 * _RTOL * sum(float(np.sum(W * W)) for W in params)
    return equal(flow.drift, 0.0, rounding, widths=str([W.shape for W in params]))


def product_jacobian(matrices: Any) -> np.ndarray:
    """dμ on matrices flattened row by row, by its definition: column (l, i, j) is the product with
    W_l replaced by E_ij.
    """
    moved = [(l, unit) for l, W in enumerate(matrices) for unit in exact.units(W)]
    columns = [fs.end_to_end_matrix([*matrices[:l], E, *matrices[l + 1 :]]) for l, E in moved]
    return np.stack([column.ravel() for column in columns], axis=1)


def printed_kernel(matrices: Any) -> np.ndarray:
    """JJᵀ."""
    J = product_jacobian(matrices)
    return J @ J.T


@exact.statement(
    "Eq 7",
    _widths,
    control("the kernel taken twice", lambda: (1, 1, 1), factor=2),
    # Whether Z of shape d_H × d_H can stand between the d_H × d_H and the d_0 × d_0 matrices.
    confirm=lambda widths: equal(int(widths[-1] == widths[0]), 1),
)
def eq_7(widths: tuple[int, ...], factor: int = 1) -> Check:
    """The NTK of a dense linear network acts by Σ_l (W_H⋯W_{l+1})(⋯)ᵀ Z (W_{l−1}⋯W_1)ᵀ(⋯) on Z of shape
    d_H × d_H, as printed: JJᵀ is as large.
    """
    kernel = printed_kernel(exact.symbols(shapes_of(widths)))
    size = widths[-1] ** 2 * factor
    return equal(len(kernel), size, widths=str(widths), H=len(widths) - 1)


@eq_7.amend()
def eq_7_amended(widths: tuple[int, ...], factor: int = 1) -> Check:
    """It acts so on Z of shape d_H × d_0."""
    params = exact.symbols(shapes_of(widths))
    wrong = exact.differing(factor * fs.dense_kernel(params).matrix, printed_kernel(params))
    return equal(wrong, 0, widths=str(widths), H=len(widths) - 1)


def balanced(
    widths: tuple[int, ...], rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Balanced weights of any widths with a product of the given rank: S^{1/H} in each layer,
    hidden spaces rotated.
    """
    depth = len(widths) - 1
    U, V = (np.linalg.qr(rng.normal(size=(d, d)))[0][:, :rank] for d in (widths[-1], widths[0]))
    root = rng.uniform(0.5, 2.0, rank)
    frames = [V, *(np.linalg.qr(rng.normal(size=(d, d)))[0][:, :rank] for d in widths[1:-1]), U]
    return tuple((frames[l + 1] * root) @ frames[l].T for l in range(depth))


def balanced_cases(every: list[tuple[int, ...]]) -> Any:
    """Balanced weights of these widths and of every rank, then of random ones."""

    def cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
        for widths in sorted(every, key=lambda w: (len(w), sum(w), w)):
            for rank in range(1, min(widths) + 1):
                yield balanced(widths, rank, rng), widths, rank
        for _ in range(draws):
            widths = tuple(rng.integers(1, 6, rng.integers(3, 6)).tolist())
            yield balanced(widths, min(widths), rng), widths, min(widths)

    return cases


def _unbalanced() -> tuple[np.ndarray, ...]:
    first, second = balanced((2, 2, 2), 2, np.random.default_rng(0))
    return 2 * first, second / 2


@exact.in_float64(
    "Eq 6",
    balanced_cases([w for n in (2, 3, 4) for w in product((1, 2, 3), repeat=n)]),
    control("the first layer doubled, the second halved", lambda: (_unbalanced(), (2, 2, 2), 2)),
)
def eq_6(case: Any) -> Check:
    """At balanced weights the NTK is A_W, a function of the product W alone."""
    params, widths, rank = case
    depth, W = len(params), fs.end_to_end_matrix(params)
    K, A = fs.dense_kernel(params).matrix, fs.balanced_operator(W, depth).matrix
    # A zero singular value is computed as about eps, and A_W raises it to the powers 2/H, 4/H, …
    exponent = 1.0 if rank == max(W.shape) else min(1.0, 2 / depth)
    return equal(fs.kernel_distance(K, A), 0.0, 64 * EPS**exponent, widths=str(widths), rank=rank)


def _balanced_flows(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for index in range(draws):
        d, depth = ((2, 2), (2, 3), (3, 2))[index % 3]
        params = balanced((d,) * (depth + 1), d, rng)
        yield params, fs.FilterLoss(np.eye(d * d), rng.normal(size=(d, d)))


@exact.by_integration(
    "Eq 6 (flow)",
    _balanced_flows,
    control(
        "the first layer doubled, the second halved",
        lambda: (_unbalanced(), fs.FilterLoss(np.eye(4), np.eye(2))),
    ),
    draws=3,
)
def eq_6_flow(case: Any) -> Check:
    """From balanced weights the product follows Ẇ = −A_W(∇ℓ(W))."""
    params, loss = case
    W = fs.end_to_end_matrix(params)
    options: dict[str, Any] = {"t1": _TIME, "times": 6, "rtol": _RTOL}
    down = fs.dense_parameter_flow(params, loss=loss, **options)
    up = fs.balanced_flow(W, len(params), loss=loss, **options)
    distance = float(np.linalg.norm(down.W - up.W, axis=(1, 2)).max())
    rounding = 1e4 * _RTOL * float(np.linalg.norm(down.W[0]))
    return equal(distance, 0.0, rounding, d=params[0].shape[0], H=len(params))
