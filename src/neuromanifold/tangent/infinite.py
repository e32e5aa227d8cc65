"""Kernels of infinitely wide MLPs: the covariance of their outputs (NNGP) and their tangent kernel."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from neuromanifold.models.activation import Activation, Mixed
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.memory import blocks, memory_budget
from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.validation import check_sample
from neuromanifold.tangent.infinite_duals import Dual, PiecewiseLinear, closed_form, mixture
from neuromanifold.tangent.infinite_quadrature import Quadrature, quadrature_dual

_ARRAYS_PER_PAIR = 16
_NEARLY_PARALLEL = 1e-4
_ROUNDING = 16 * np.finfo(np.float64).eps


def infinite_ntk(
    net: Any,
    x1: Any,
    x2: Any = None,
    *,
    weight_std: Any = 1.0,
    bias_std: Any = 1.0,
    quadrature: Quadrature | None = None,
    memory: int | str | None = None,
) -> Float[np.ndarray, "n1 n2"]:
    """The tangent kernel of an infinitely wide MLP at initialisation, in float64.

    Layers are z = σ_w W a/√fan_in + σ_b b with standard normal W, b, and derivatives are with respect to W and b (the
    conventions of neural-tangents; at σ_w = σ_b = 1 it is the limit of `nm.ntk` for `scaling="ntk"`):

    Θ¹ = Σ¹,   Θ^{l+1} = Σ^{l+1} + σ_w² Θ^l ∘ E[σ'(u)σ'(v)],   (u, v) ~ N(0, Σ^l).

    Shape (n1, n2), for one output; outputs are independent, so that the kernel of o outputs is this one ⊗ I_o. The net's
    hidden widths and scaling play no part, `net.bias` does; a `Mixed` layer counts by its proportions. Either deviation may
    be a sequence with one entry per affine layer. Closed forms for
    relu, leaky_relu, abs, identity, erf, sin, cos, exp; any other activation by `Quadrature`.

    >>> net = nm.MLP((1, 1, 1), bias=False, scaling="ntk")
    >>> infinite_ntk(net, np.array([[1.0]])).round(12).tolist()     # Σ² + Σ¹ E[σ'σ'] = 1/2 + 1·1/2
    [[1.0]]
    """
    return _kernels(net, x1, x2, weight_std, bias_std, quadrature, memory, tangent=True)


def nngp(
    net: Any,
    x1: Any,
    x2: Any = None,
    *,
    weight_std: Any = 1.0,
    bias_std: Any = 1.0,
    quadrature: Quadrature | None = None,
    memory: int | str | None = None,
) -> Float[np.ndarray, "n1 n2"]:
    """The covariance of the outputs of an infinitely wide MLP over its initialisations, in float64.

    Σ¹ = σ_w² ⟨x, x'⟩/n_0 + σ_b²,   Σ^{l+1} = σ_w² E[σ(u)σ(v)] + σ_b²,   (u, v) ~ N(0, Σ^l);   see `infinite_ntk`.

    >>> net = nm.MLP((1, 1, 1), bias=False, scaling="ntk")
    >>> nngp(net, np.array([[1.0]]), np.array([[1.0], [-1.0]])).round(12).tolist()
    [[0.5, 0.0]]
    """
    return _kernels(net, x1, x2, weight_std, bias_std, quadrature, memory, tangent=False)


class _Pairs(NamedTuple):
    """The state of the recursion for a block of pairs: variances a (n1, 1), b (1, n2), angles, covariances, tangent kernel."""

    a: np.ndarray
    b: np.ndarray
    angle: np.ndarray
    covariance: np.ndarray
    tangent: np.ndarray


def _kernels(net, x1, x2, weight_std, bias_std, quadrature, memory, *, tangent: bool) -> np.ndarray:
    _check(net)
    symmetric = x2 is None
    x1 = _checked_sample(net, x1, "x")
    x2 = x1 if symmetric else _checked_sample(net, x2, "x2")
    duals = [_dual(entry, quadrature or Quadrature()) for entry in net.activation]
    weights = _per_layer(net, weight_std, "weight_std") ** 2
    biases = _per_layer(net, bias_std, "bias_std") ** 2 * net.bias
    largest = max(1, int((memory_budget(memory) / (8 * _ARRAYS_PER_PAIR)) ** 0.5))
    kernel = np.empty((len(x1), len(x2)))
    cuts1, cuts2 = list(blocks(len(x1), largest)), list(blocks(len(x2), largest))
    for index, rows in enumerate(cuts1):
        for columns in cuts2[index:] if symmetric else cuts2:
            pairs = _recursion(x1[rows], x2[columns], duals, weights, biases)
            block = pairs.tangent if tangent else pairs.covariance
            on_diagonal = symmetric and rows == columns
            kernel[rows, columns] = (block + block.T) / 2 if on_diagonal else block
            if symmetric and not on_diagonal:
                kernel[columns, rows] = block.T
    return kernel


def _recursion(x1: np.ndarray, x2: np.ndarray, duals: list[Dual], weights: np.ndarray, biases: np.ndarray) -> _Pairs:
    pairs = _finite(_first_layer(x1, x2, weights[0], biases[0]), 1)
    for layer, (dual, weight, bias) in enumerate(zip(duals, weights[1:], biases[1:], strict=True), start=2):
        pairs = _finite(_next_layer(pairs, dual, weight, bias), layer)
    return pairs


def _next_layer(pairs: _Pairs, dual: Dual, weight: float, bias: float) -> _Pairs:
    with np.errstate(over="ignore", invalid="ignore"):
        value, slope = dual.moments(pairs.a, pairs.b, pairs.angle)
        a, b = (weight * dual.variance(v) + bias for v in (pairs.a, pairs.b))
        covariance = weight * value + bias
        if isinstance(dual, PiecewiseLinear):
            angle = dual.next_angle(pairs.a, pairs.b, pairs.angle, weight, bias)
        else:
            angle = _angle(a, b, covariance)
        # Equal samples stay equal whatever the rounding.
        angle = np.where((pairs.angle == 0) & (pairs.a == pairs.b), 0.0, angle)
        return _Pairs(a, b, angle, covariance, covariance + weight * pairs.tangent * slope)


def _first_layer(x1: np.ndarray, x2: np.ndarray, weight: float, bias: float) -> _Pairs:
    left, right = (np.hstack([x * (weight / x.shape[1]) ** 0.5, np.full((len(x), 1), bias**0.5)]) for x in (x1, x2))
    with np.errstate(over="ignore", invalid="ignore"):
        covariance = left @ right.T
        a, b = (left**2).sum(axis=1)[:, None], (right**2).sum(axis=1)[None, :]
        angle = _angle(a, b, covariance)
        close = np.argwhere(np.minimum(angle, np.pi - angle) ** 2 / 2 < _NEARLY_PARALLEL)
        for part in blocks(len(close), 4096):
            i, j = close[part].T
            angle[i, j] = _kahan_angle(left[i], right[j])
    return _Pairs(a, b, angle, covariance, covariance)


def _angle(a: np.ndarray, b: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """arccos of the correlation; one that is ±1 to rounding is ±1, for a jump in σ turns an error ε there into √ε."""
    roots = np.sqrt(a) * np.sqrt(b)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / roots
        parallel = np.abs(np.abs(correlation) - 1.0) <= _ROUNDING
        correlation = np.where(parallel, np.sign(correlation), np.clip(correlation, -1.0, 1.0))
        return np.where(roots > 0, np.arccos(correlation), np.pi / 2)


def _kahan_angle(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """2 atan2(‖û − v̂‖, ‖û + v̂‖), accurate at every angle."""
    u, v = (w / np.linalg.norm(w, axis=1, keepdims=True) for w in (u, v))
    return 2 * np.arctan2(np.linalg.norm(u - v, axis=1), np.linalg.norm(u + v, axis=1))


def _finite(pairs: _Pairs, layer: int) -> _Pairs:
    if all(np.isfinite(part).all() for part in pairs):
        return pairs
    variances = np.concatenate([pairs.a.ravel(), pairs.b.ravel()])
    finite = variances[np.isfinite(variances)]
    raise OverflowError(
        f"the kernel overflows float64 in layer {layer} (largest finite variance there: {finite.max(initial=0.0):.3g}); "
        "scale `x` or `weight_std` down, or use fewer layers."
    )


def _dual(entry: Activation | Mixed, quadrature: Quadrature) -> Dual:
    parts = ((entry, 1),) if isinstance(entry, Activation) else entry.parts
    width = sum(count for _, count in parts)
    return mixture(tuple((count / width, _dual_of(activation, quadrature)) for activation, count in parts))


def _dual_of(activation: Activation, quadrature: Quadrature) -> Dual:
    known = None if quadrature.always else closed_form(activation)
    return quadrature_dual(activation, quadrature) if known is None else known


def _check(net: Any) -> None:
    if not isinstance(net, MLP):
        raise TypeError(f"`net` is a {type(net).__name__}; infinite width is defined for nm.MLP.")
    if net.output_activation.name != "identity":
        raise ValueError(
            f"`net` has the output activation {net.output_activation}; the limit is Gaussian before it: pass a linear output."
        )


def _per_layer(net: MLP, given: Any, name: str) -> np.ndarray:
    """One standard deviation for each affine layer."""
    values = np.asarray(given, np.float64)
    if values.ndim > 1 or values.size not in (1, net.depth):
        raise ValueError(f"`{name}` is {given!r}; pass one number, or one for each of the {net.depth} affine layers.")
    if not np.isfinite(values).all() or (values < 0).any() or (name == "weight_std" and (values == 0).any()):
        allowed = "positive numbers" if name == "weight_std" else "zero or positive numbers"
        raise ValueError(f"`{name}` is {given!r}; pass {allowed}.")
    return np.broadcast_to(values.reshape(-1), (net.depth,))


def _checked_sample(net: MLP, x: Any, name: str) -> np.ndarray:
    if is_traced(x):
        raise TypeError(
            f"`{name}` is a tracer; infinite-width kernels are computed on the host: call them outside jit."
        )
    check_sample(x, name)
    shape = np.shape(x)
    if len(shape) != 2 or shape[1] != net.widths[0]:
        raise ValueError(f"`{name}` has shape {shape}; the network takes (n, {net.widths[0]}).")
    return np.asarray(x, np.float64)
