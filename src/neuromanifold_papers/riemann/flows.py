"""The flows of `riemann`: function space against parameters, convergence (Thm 7, Prop 8), Lemma
18, and Section 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.search import join, split
from neuromanifold.functionspace.smoothness import jacobian_rank
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.precision import arithmetic

Note = Callable[[], None]


def data_loss(net: LinearConvNet, rng: np.random.Generator, *, zero: bool = False) -> fs.FilterLoss:
    """The squared error of N = k generic samples with two outputs per axis, divided by N to set
    the time scale.
    """
    n = int(np.prod(net.end_to_end_shape))
    x = rng.normal(size=(n, *net.signal_shape((2,) * net.dimension))) / np.sqrt(n)
    y = rng.normal(size=(n, *(2,) * net.dimension)) / np.sqrt(n)
    return fs.filter_loss(net, x, 0 * y if zero else y)


@dataclass(frozen=True)
class Pair:
    """Two trajectories of end-to-end functions from one start: the largest relative distance at
    each time.
    """

    name: str
    theory: str
    t: np.ndarray
    distance: np.ndarray
    first: np.ndarray
    second: np.ndarray
    drift: float


def _pair(
    name: str, theory: str, t: np.ndarray, a: np.ndarray, b: np.ndarray, drift: float
) -> Pair:
    a, b = a.reshape(len(t), -1), b.reshape(len(t), -1)
    return Pair(name, theory, t, np.linalg.norm(a - b, axis=1) / np.linalg.norm(a[0]), a, b, drift)


AGREE = [
    LinearConvNet((3, 2), (2, 1)),
    LinearConvNet((2, 3, 2), (2, 2, 1)),
    LinearConvNet(((2, 2), (3, 2)), ((1, 1), (1, 1))),
    LinearConvNet(((2, 2, 1), (2, 1, 2)), ((1, 1, 1), (1, 1, 1))),
]
PART = [LinearConvNet((3, 2), (1, 1)), LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1)))]


def flow_pairs(t1: float = 5.0, seed: int = 7, note: Note = lambda: None) -> list[Pair]:
    """Function-space flow against the pushed-forward parameter flow, and the flows of two tuples
    over one (v, δ).
    """
    rng, pairs = np.random.default_rng(seed), []
    for net in AGREE:
        params = tuple(rng.normal(size=shape) for shape in net.filter_shapes)
        loss, delta = data_loss(net, rng), fs.norm_differences(net, params)
        down = fs.parameter_flow(net, params, loss=loss, t1=t1)
        up = fs.riemannian_flow(net, net.end_to_end(params), delta, loss=loss, t1=t1)
        pairs.append(_pair(f"{net}, δ ≠ 0", "agree", up.t, down.v, up.v, down.drift))
        note()
    for net in PART:
        over = None
        while over is None or over.kernel_spread < 0.1:
            v = net.end_to_end(tuple(rng.normal(size=shape) for shape in net.filter_shapes))
            over = fs.fiber(net, v, 1.0)
        loss = data_loss(net, rng)
        mates = [
            fs.parameter_flow(net, params, loss=loss, t1=t1) for params in over.up_to_signs[:2]
        ]
        pairs.append(
            _pair(
                f"{net}, δ = 1, two tuples over v",
                "part",
                mates[0].t,
                mates[0].v,
                mates[1].v,
                mates[0].drift,
            )
        )
        note()
    target, W = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    loss = fs.FilterLoss(np.eye(9), target)
    balanced = fs.balanced_factors(W, 3)
    down, up = (
        fs.dense_parameter_flow(balanced, loss=loss, t1=t1),
        fs.balanced_flow(W, 3, loss=loss, t1=t1),
    )
    pairs.append(_pair("dense 3 × 3, 3 layers, Δ = 0", "agree", up.t, down.W, up.W, down.drift))
    note()
    factors = tuple(rng.normal(size=(3, 3)) for _ in range(2))
    mates = [factors, *fs.level_set_sample(factors, 1, key=jax.random.key(seed))]
    flows = [fs.dense_parameter_flow(mate, loss=loss, t1=t1) for mate in mates]
    pairs.append(
        _pair(
            "dense 3 × 3, 2 layers, Δ ≠ 0, two tuples over W",
            "part",
            flows[0].t,
            flows[0].W,
            flows[1].W,
            flows[0].drift,
        )
    )
    note()
    return pairs


@dataclass(frozen=True)
class Limit:
    """Where a gradient flow ended."""

    gradient: float
    size: float
    regularity: float
    smooth: bool
    drift: float


CONVERGENCE = [
    LinearConvNet((3, 2), (2, 1)),
    LinearConvNet((2, 2), (2, 1)),
    LinearConvNet((4, 3), (2, 1)),
    LinearConvNet((2, 2, 2), (2, 2, 1)),
    LinearConvNet((3, 3, 2), (2, 3, 1)),
]
STRIDE_ONE = [LinearConvNet((2, 2), (1, 1)), LinearConvNet((3, 2), (1, 1))]


def flow_limit(net: LinearConvNet, params: Any, loss: fs.FilterLoss, *, t1: float = 1e5) -> Limit:
    """Gradient flow by an implicit solver until the gradient has fallen by ten orders, then
    classified.

    `gradient` is ‖∇L‖ relative to ‖J‖‖∇ℓ(0)‖; `regularity` is the dim M-th singular value of dμ
    relative to the first.
    """
    from scipy.integrate import solve_ivp

    def slope(_: float, flat: np.ndarray) -> np.ndarray:
        theta = split(net, flat)
        return -fs.filter_jacobian(net, theta).T @ loss.gradient(net.end_to_end(theta)).ravel()

    start = join(tuple(np.asarray(w, np.float64) for w in params))
    size = np.linalg.norm(slope(0.0, start))

    def settled(t: float, flat: np.ndarray) -> float:
        return float(np.linalg.norm(slope(t, flat)) - 1e-10 * size)

    settled.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    result = solve_ivp(
        slope, (0.0, t1), start, method="LSODA", rtol=1e-10, atol=1e-12, events=settled
    )
    theta = split(net, result.y[:, -1])
    v = net.end_to_end(theta)
    spectrum = np.asarray(jacobian_rank(net, theta).spectrum)
    scale = spectrum[0] * np.linalg.norm(loss.gradient(np.zeros_like(v)))
    gradient = float(np.linalg.norm(slope(0.0, result.y[:, -1])) / scale) if scale else 0.0
    regularity = (
        float(spectrum[fs.neuromanifold_dimension(net) - 1] / spectrum[0]) if spectrum[0] else 0.0
    )
    nonzero = np.linalg.norm(v) > 1e-4 * np.linalg.norm(loss.u)
    smooth = bool(
        nonzero and regularity > 1e-5 and fs.fiber(net, v, 0.0, rtol=1e-8).factorisations == 1
    )
    drift = float(np.abs(fs.norm_differences(net, theta) - fs.norm_differences(net, params)).max())
    return Limit(
        gradient,
        float(np.linalg.norm(v) / max(np.linalg.norm(loss.u), 1e-300)),
        regularity,
        smooth,
        drift,
    )


def limits(
    net: LinearConvNet, flows: int, seed: int = 11, note: Note = lambda: None
) -> list[Limit]:
    """Limits of flows from Gaussian filters, each on its own generic data set of N = k samples."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(flows):
        loss = data_loss(net, rng)
        found.append(
            flow_limit(net, tuple(rng.normal(size=shape) for shape in net.filter_shapes), loss)
        )
        note()
    return found


def control_limit(seed: int = 12) -> Limit:
    """Outside Thm 7: all targets zero. The flow then ends at the zero filter (its size is
    measured against the start's).
    """
    net, rng = CONVERGENCE[0], np.random.default_rng(seed)
    params = tuple(rng.normal(size=shape) for shape in net.filter_shapes)
    loss = data_loss(net, rng, zero=True)
    flow = fs.parameter_flow(net, params, loss=loss, t1=200.0, times=2, rtol=1e-9, atol=1e-12)
    size = float(np.linalg.norm(flow.v[-1]) / np.linalg.norm(flow.v[0]))
    return Limit(0.0, size, 0.0, False, flow.drift)


def smallest_pairing(net: LinearConvNet, w: np.ndarray, starts: int = 20, seed: int = 18) -> float:
    """min over θ with nonzero filters of ‖J_θᵀ w‖ / (‖J_θ‖ ‖w‖), by descent: zero when w is
    normal to some tangent image.   [Lem 18]
    """
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)

    def pairing(flat: np.ndarray) -> float:
        theta = tuple(p / np.linalg.norm(p) for p in split(net, flat))
        J = fs.filter_jacobian(net, theta)
        return float(np.sum((J.T @ w) ** 2) / (np.linalg.norm(J) ** 2 * (w @ w)))

    return min(
        float(minimize(pairing, rng.normal(size=net.n_params), tol=1e-14).fun) ** 0.5
        for _ in range(starts)
    )


@dataclass(frozen=True)
class Relu:
    """Section 5: how many tuples of a linear fibre give the same ReLU function, and two ReLU
    MLPs that do.
    """

    cases: int
    tuples: int
    same_function: int
    kernel_on_positive: float
    mlp_outputs: float
    mlp_everywhere: float
    mlp_kernels: float


def relu_networks(cases: int, seed: int = 5) -> Relu:
    """Shallow ReLU convolutional networks over one linear filter, and the matrices of Ex 20 as
    ReLU layers.
    """
    rng = np.random.default_rng(seed)
    nets = [
        LinearConvNet((3, 2), (2, 1)),
        LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1))),
        LinearConvNet(((2, 2), (3, 2)), ((1, 1), (1, 1))),
    ]
    tuples = same = total = 0
    worst = 0.0
    for net in nets:
        relu = LinearConvNet(net.filter_shapes, net.strides, activation="relu")
        for _ in range(cases):
            params = tuple(rng.normal(size=shape) for shape in net.filter_shapes)
            x = rng.normal(size=(16, *net.signal_shape((2,) * net.dimension)))
            with arithmetic():
                target = np.asarray(relu(params, x))
                over = fs.fiber(net, net.end_to_end(params), fs.norm_differences(net, params))
                same += sum(
                    bool(np.abs(np.asarray(relu(mate, x)) - target).max() < 1e-9) for mate in over
                )
                positive = _positive_signals(net, params, rng)
                worst = max(worst, _kernel_gap(relu, net, params, positive))
            tuples += len(over)
            total += 1
    U = (np.array([[0.0, 1.0], [0.5, 0.0]]), np.array([[0.0, 2.0], [1.0, 0.0]]))
    V = (np.diag([1.0, 0.5]), np.diag([1.0, 2.0]))
    x = rng.normal(size=(50, 2))

    def mlp(params: Any, inputs: Any):
        return jax.nn.relu(inputs @ params[0].T) @ params[1].T

    with arithmetic():
        gaps = [
            float(np.abs(np.asarray(mlp(U, z)) - np.asarray(mlp(V, z))).max())
            for z in (np.abs(x), x)
        ]
        kernels = []
        for params in (U, V):
            J = jax.jacobian(mlp)(tuple(map(jax.numpy.asarray, params)), np.abs(x))
            flat = np.concatenate([np.asarray(j).reshape(x.size, -1) for j in J], axis=1)
            kernels.append(flat @ flat.T)
    return Relu(total, tuples, same, worst, gaps[0], gaps[1], fs.kernel_distance(*kernels))


def _positive_signals(net: LinearConvNet, params: Any, rng: np.random.Generator) -> np.ndarray:
    """Signals that the first layer maps to the positive orthant: it has full rank, so such
    signals form an open set.
    """
    first = LinearConvNet(net.filter_shapes[:1], net.strides[:1])
    shape = net.signal_shape((2,) * net.dimension)
    basis = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    matrix = np.asarray(first(params[:1], basis)).reshape(len(basis), -1).T
    wanted = rng.uniform(0.5, 1.5, (len(matrix), 8))
    return np.linalg.lstsq(matrix, wanted, rcond=None)[0].T.reshape(8, *shape)


def _kernel_gap(relu: LinearConvNet, net: LinearConvNet, params: Any, x: np.ndarray) -> float:
    kernels = []
    for f in (relu, net):
        J = jax.jacobian(f)(tuple(map(jax.numpy.asarray, params)), x)
        flat = np.concatenate(
            [np.asarray(j).reshape(-1, w.size) for j, w in zip(J, params, strict=True)], axis=1
        )
        kernels.append(flat @ flat.T)
    return fs.kernel_distance(*kernels)
