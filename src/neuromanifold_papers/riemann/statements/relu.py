"""`riemann`, Sec 5: shallow ReLU networks, convolutional and dense."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.precision import arithmetic
from neuromanifold_papers.check import Check, equal, outside
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.algebra import convolution_matrix
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.dense import DELTA_20, U_20, V_20
from neuromanifold_papers.riemann.statements.exact import differing, seed, statement, symbols
from neuromanifold_papers.riemann.statements.tensors import SQUARE
from neuromanifold_papers.statement import control


def _layers(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    lines = [((k,), (s,), (d,)) for k, s, d in product((1, 2, 3, 4), (1, 2, 3), (1, 3))]
    for shape, stride, output in [*lines, *(((2, 2), s, (2, 2)) for s in ((1, 1), (2, 1)))]:
        for entries in product((-1, 0, 1), repeat=prod(shape)):
            if any(entries):
                yield np.array(entries, object).reshape(shape), stride, output


@statement(
    "Sec 5 (rank)", _layers, control("the zero filter", lambda: (np.zeros(2, object), (1,), (3,)))
)
def full_rank(case: Any) -> Check:
    """A convolutional layer is zero or a linear map of full rank."""
    w, stride, output = case
    found = exact.rank(convolution_matrix(w, stride, output))
    return equal(found, prod(output), shape=str(w.shape), stride=str(stride))


def windows(x: np.ndarray, shape: Any, stride: Any) -> np.ndarray:
    """The windows of that shape of signals (n, *d), in steps of the stride."""
    every = np.lib.stride_tricks.sliding_window_view(x, shape, axis=tuple(range(1, x.ndim)))
    return every[(slice(None), *(slice(None, None, s) for s in stride))]


def layer(w: np.ndarray, stride: Any, x: np.ndarray) -> np.ndarray:
    """One convolution of signals (n, *d), in plain NumPy."""
    return np.tensordot(windows(x, w.shape, stride), w, axes=w.ndim)


def signals(net: LinearConvNet, seed: int, n: int = 24) -> np.ndarray:
    """Gaussian signals with two outputs along every axis."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, *net.signal_shape((2,) * net.dimension)))


def integer_signals(net: LinearConvNet, seed: int) -> np.ndarray:
    """24 of them with integer entries."""
    shape = net.signal_shape((2,) * net.dimension)
    return np.random.default_rng(seed).integers(-9, 10, (24, *shape))


def relu_net(net: LinearConvNet, params: Any, x: np.ndarray, linear: bool = False) -> np.ndarray:
    """Two convolutions with a ReLU between them."""
    hidden = layer(params[0], net.strides[0], x)
    return layer(params[1], net.strides[1], hidden if linear else np.maximum(hidden, 0))


def _keeping(case: Any, linear: bool = False) -> Check:
    """How many tuples over (v, δ) of the linear network give the same ReLU function at random
    signals.
    """
    net, params, seed = case
    x = signals(net, seed)
    target = relu_net(net, params, x, linear)
    over = fs.fiber(net, net.end_to_end(params), fs.norm_differences(net, params))
    gaps = [np.abs(relu_net(net, mate, x, linear) - target).max() for mate in over]
    same = sum(bool(gap <= 1e-7 * np.abs(target).max()) for gap in gaps)
    return equal(same, 1, linear_tuples=len(over))


_NETS = [
    RUNNING,
    LinearConvNet((2, 3), (3, 1)),
    LinearConvNet((3, 2), (1, 1)),
    SQUARE,
    LinearConvNet(((2, 2), (3, 2)), ((2, 1), (1, 1))),
    LinearConvNet(((2, 2, 1), (1, 2, 2)), ((1, 2, 1), (1, 1, 1))),
]


_EXAMPLE = RUNNING, (np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0])), 0
_GENERIC = RUNNING, (np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0])), 0


def _unique_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    yield _EXAMPLE
    for index in range(len(_NETS) + draws):
        net = _NETS[index % len(_NETS)]
        yield net, exact.gaussian_filters(net, rng), int(rng.integers(1 << 31))


def _shifted(net: LinearConvNet) -> Any:
    """One nonzero entry in each filter, the first layer's at its end and the second's at its
    beginning.
    """
    filters = tuple(np.zeros(shape) for shape in net.filter_shapes)
    filters[0].flat[-1], filters[1].flat[0] = 1.0, 1.0
    return net, filters, 0


_PLANE = LinearConvNet(((3, 3), (2, 2)), ((2, 2), (1, 1)))


def _same_outputs(case: Any) -> Check:
    """Tuples with one entry 1 in each filter and the same outputs at integer signals, exactly."""
    net, params, seed = case
    x, filters = integer_signals(net, seed), [w.astype(int) for w in params]
    target = relu_net(net, filters, x)
    same = [
        bool((relu_net(net, u, x) == target).all()) for u in product(*map(exact.units, filters))
    ]
    return equal(sum(same), 1)


unique = exact.in_float64(
    "Sec 5 (CNN)",
    lambda rng, draws: (
        _shifted(RUNNING),
        _shifted(_PLANE),
        *(case for case in _unique_cases(rng, draws) if min(case[0].strides[0]) > 1),
    ),
    control(
        "without the ReLU",
        lambda: _GENERIC,
        linear=True,
    ),
    confirm=_same_outputs,
    says="strides above one: a nonzero shallow ReLU convolutional network has one parameter tuple for its function and δ",
)(_keeping)

sec_5_cnn_almost_every = unique.amend(
    control("one entry in each filter, where v is singular", lambda: _shifted(RUNNING)),
    id="Sec 5 (CNN, almost every)",
    cases=_unique_cases,
)("almost every shallow ReLU convolutional network has one parameter tuple for its function and δ")


_SCALES = (0.5, 1.0, 2.0)


def _kernels_differ(case: Any) -> Check:
    """The NTKs of (w_1, w_2) and (2w_1, w_2/2), by finite steps in both filters."""
    net, (first, second), seed = case
    x = signals(net, seed, 3)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        steps = [(unit, 0 * b) for unit in 1e-6 * exact.units(a)]
        steps += [(0 * a, unit) for unit in 1e-6 * exact.units(b)]
        sides = [[relu_net(net, (a + s * u, b + s * v), x) for s in (1, -1)] for u, v in steps]
        J = np.array([(up - down).ravel() / 2e-6 for up, down in sides]).T
        return J @ J.T

    apart = np.abs(kernel(first, second) - kernel(2 * first, second / 2)).max()
    return equal(float(apart), 0.0, 1e-6)


@exact.in_float64(
    "Sec 5 (single choice)",
    _unique_cases,
    control("no tuple at all", lambda: _EXAMPLE, factors=()),
    confirm=_kernels_differ,
)
def single_choice(case: Any, factors: tuple[float, ...] = _SCALES) -> Check:
    """A nonzero shallow ReLU CNN has a single choice of filters for its function, so that the NTK depends
    on the function alone, as printed without δ.

    How many of (cw_1, w_2/c) give the same function as (w_1, w_2) at random signals.
    """
    net, (first, second), seed = case
    x = signals(net, seed)
    target = relu_net(net, (first, second), x)
    mates = [relu_net(net, (c * first, second / c), x) for c in factors]
    same = sum(bool(np.allclose(mate, target, rtol=1e-9, atol=1e-12)) for mate in mates)
    return equal(same, 1)


@single_choice.amend()
def single_scale(case: Any, factors: tuple[float, ...] = _SCALES) -> Check:
    """Among the positive scalings of its filters the value of δ picks one."""
    _, (first, second), _ = case
    a, b = float(np.sum(first**2)), float(np.sum(second**2))
    gaps = [abs(b / c**2 - c**2 * a - (b - a)) for c in factors]
    return equal(sum(gap <= 1e-9 * (1 + abs(b - a)) for gap in gaps), 1)


_SILENT = (RUNNING, (np.array([1.0, 2.0, 3.0]), np.zeros(2)), 0)


@statement(
    "Sec 5 (sign)",
    lambda rng, draws: (_SILENT, *_unique_cases(rng, draws)),
    control("a second layer that is zero", lambda: _SILENT),
)
def flipped(case: Any) -> Check:
    """The signs of the two layers cannot be flipped without changing a nonzero ReLU network's
    function.

    Whether some output changes when both signs are flipped, at signals of both signs of the
    first layer.
    """
    net, params, seed = case
    x, filters = integer_signals(net, seed), tuple(np.round(10 * w).astype(int) for w in params)
    changed = np.any(relu_net(net, filters, x) != relu_net(net, tuple(-w for w in filters), x))
    drops = outside("a filter is zero", when=any(not w.any() for w in filters))
    return equal(int(changed), 1, drops=drops)


@cache
def _compiled(net: LinearConvNet) -> Any:
    """The derivative of the library's ReLU network in both filters, at one tuple and a batch of
    signals.
    """
    import jax

    return jax.jit(jax.jacobian(LinearConvNet(net.filter_shapes, net.strides, activation="relu")))


def relu_jacobian(net: LinearConvNet, params: Any, x: np.ndarray) -> list[np.ndarray]:
    """One block per filter, in float64."""
    with arithmetic():
        return [
            np.asarray(b).reshape(-1, w.size)
            for b, w in zip(_compiled(net)(params, x), params, strict=True)
        ]


def linear_jacobian(net: LinearConvNet, params: Any, x: np.ndarray) -> np.ndarray:
    """That of the linear network: the signals' windows, times dμ."""
    parts = windows(x, net.end_to_end_shape, net.end_to_end_stride)
    return parts.reshape(-1, prod(net.end_to_end_shape)) @ fs.filter_jacobian(net, params)


def positive_signals(
    net: LinearConvNet, params: Any, rng: np.random.Generator, sign: float = 1.0
) -> np.ndarray:
    """Signals that the first layer maps into the open positive orthant: it has full rank."""
    shape = net.signal_shape((2,) * net.dimension)
    basis = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    matrix = layer(params[0], net.strides[0], basis).reshape(len(basis), -1).T
    wanted = sign * rng.uniform(0.5, 1.5, (len(matrix), 8))
    return np.linalg.lstsq(matrix, wanted, rcond=None)[0].T.reshape(8, *shape)


_open_cases = exact.gaussian_cases((RUNNING, SQUARE), seed, least=2, share=2)


@exact.in_float64(
    "Sec 5 (open set)",
    _open_cases,
    control(
        "signals that the first layer maps into the negative orthant", lambda: _GENERIC, sign=-1.0
    ),
)
def open(case: Any, sign: float = 1.0) -> Check:
    """On an open set of signals a nonzero shallow ReLU convolutional network is the linear one,
    with its NTK.

    On those signals the ReLU network's outputs and NTK are the linear network's.
    """
    net, params, seed = case
    x = positive_signals(net, params, np.random.default_rng(seed), sign)
    J, L = np.concatenate(relu_jacobian(net, params, x), axis=1), linear_jacobian(net, params, x)
    linear = relu_net(net, params, x, linear=True)
    outputs = float(np.abs(relu_net(net, params, x) - linear).max() / np.abs(linear).max())
    gap = max(outputs, fs.kernel_distance(J @ J.T, L @ L.T))
    return equal(gap, 0.0, 64 * exact.EPS)


@exact.in_float64(
    "Sec 5 (δ)",
    _open_cases,
    control("the first layer twice as fast", lambda: _GENERIC, speeds=(2.0, 1.0)),
)
def relu_delta(case: Any, speeds: tuple[float, float] = (1.0, 1.0)) -> Check:
    """δ is conserved by gradient flow of shallow ReLU convolutional networks.

    ½ dδ/dt = −(⟨w_2, J_2ᵀg⟩ − ⟨w_1, J_1ᵀg⟩), g any gradient in the outputs, relative to the
    terms.
    """
    net, params, seed = case
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, *net.signal_shape((2,) * net.dimension)))
    values, blocks = relu_net(net, params, x), relu_jacobian(net, params, x)
    g = rng.normal(size=values.size)
    terms = [
        s * float(w.ravel() @ (J.T @ g)) for w, J, s in zip(params, blocks, speeds, strict=True)
    ]
    size = float(np.abs(values).ravel() @ np.abs(g))
    return equal((terms[1] - terms[0]) / size, 0.0, 64 * exact.EPS)


def relu_mlp(params: Any, x: np.ndarray) -> np.ndarray:
    """W_2 ReLU(W_1 x), exactly, for inputs in rows."""
    hidden = x @ params[0].T
    return np.where(hidden > 0, hidden, 0) @ params[1].T


def relu_kernel(params: Any, x: np.ndarray) -> np.ndarray:
    """The NTK of W_2 ReLU(W_1 x) at the inputs x, exactly: rows are (input, output)."""
    W1, W2 = params
    hidden = x @ W1.T
    active = np.where(hidden > 0, hidden, 0)
    rows = []
    for n, (i, unit) in product(range(len(x)), enumerate(np.eye(len(W2), dtype=object))):
        first = np.outer(np.where(hidden[n] > 0, W2[i], 0), x[n])
        rows.append(np.concatenate([first.ravel(), np.outer(unit, active[n]).ravel()]))
    J = np.array(rows, object)
    return J @ J.T


def _positive_inputs(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    yield np.array([[1, 1]], object), (U_20, V_20)
    for _ in range(max(draws // 4, 2)):
        yield rng.integers(1, 10, (int(rng.integers(1, 5)), 2)).astype(object), (U_20, V_20)


@statement(
    "Sec 5 (MLP)",
    _positive_inputs,
    control("V twice", lambda: (np.array([[1, 1]], object), (V_20, V_20))),
)
def mlp(case: Any) -> Check:
    """The ReLU networks U and V of Ex 20 agree on positive inputs and in diag(Δ), and have
    different NTKs.

    Outputs that differ, conserved quantities that differ from diag(0, 15/4), or equal
    kernels.
    """
    x, pair = case
    wrong = differing(relu_mlp(pair[0], x), relu_mlp(pair[1], x))
    for W1, W2 in pair:
        wrong += differing(np.diag(W2.T @ W2 - W1 @ W1.T), np.diag(np.array(DELTA_20, object)))
    same = differing(relu_kernel(pair[0], x), relu_kernel(pair[1], x)) == 0
    return equal(wrong + int(same), 0, inputs=len(x))


def _rate_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for index in range(max(draws, 8)):
        a, h, b = ((1, 1, 1), (2, 2, 2), (3, 2, 1), (2, 4, 3))[index % 4]
        shapes = ((h, a), (b, h), (5, a), (5, b))
        W1, W2, x, g = (rng.integers(-9, 10, shape).astype(object) for shape in shapes)
        yield (W1, W2), x, g


@statement(
    "Sec 5 (MLP, conserved)",
    _rate_cases,
    control(
        "the entries off the diagonal",
        lambda: list(_rate_cases(np.random.default_rng(0), 0))[1],
        off_diagonal=True,
    ),
)
def mlp_conserved(case: Any, off_diagonal: bool = False) -> Check:
    """diag(W_2ᵀW_2 − W_1W_1ᵀ) is conserved by gradient flow of shallow ReLU networks.

    The rate of diag(W_2ᵀW_2 − W_1W_1ᵀ) under gradient flow with output gradients g, in
    integers: entries that are not zero.
    """
    (W1, W2), x, g = case
    hidden = x @ W1.T
    active = np.where(hidden > 0, hidden, 0)
    back = np.where(hidden > 0, g @ W2, 0)
    first, second = back.T @ x, g.T @ active
    rate = W2.T @ second + second.T @ W2 - W1 @ first.T - first @ W1.T
    entries = rate[~np.eye(len(rate), dtype=bool)] if off_diagonal else np.diag(rate)
    return equal(int(np.count_nonzero(entries)), 0, widths=str((W1.shape[1], *W2.shape[::-1])))


@statement(
    "Sec 5 (MLP, range)",
    (1, 2, 3),
    control("rows r and 3r, which do not miss it", lambda: 1, factor=3),
)
def mlp_range(rows: int, factor: int = -3) -> Check:
    """A fully connected layer of low rank can miss the positive orthant.

    A layer with rows r and −c·r: c(Wx)_1 + (Wx)_2 = 0 for all x, so Wx is never positive in
    both.
    """
    (r, x) = symbols([(rows,), (rows,)])
    y = np.stack([r, factor * r]) @ x
    return equal(differing([3 * y[0] + y[1]], [0]), 0, inputs=rows)
