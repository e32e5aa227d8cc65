"""Exact signs of pre-activations: which side of its kink each neuron is on, decided and never rounded.

Floats are rationals, so a pre-activation z is a rational number, or (NTK scaling) an algebraic number in Q(√fan_in, …).
A float64 pass with a running error bound decides nearly all signs. Samples with an undecided neuron are recomputed in
ball arithmetic (`flint.arb`) with growing precision until each ball excludes zero or lies below the separation bound:
if S·z is an algebraic integer of degree g whose conjugates are at most S·M, then z ≠ 0 implies
|z| ≥ S⁻¹ (S·M)^{1−g}, because its norm is a nonzero integer. A ball below that bound proves z = 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int8

from neuromanifold.models.activation import Activation, per_neuron
from neuromanifold.models.mlp import MLP, Entry, Params
from neuromanifold.regions.heights import (
    activated_layer_height,
    affine_height,
    field_degree,
    sample_height,
)

_UNIT_ROUNDOFF = 2.0**-53
# What an operation whose result underflows may lose: its result is subnormal, or zero where subnormals are flushed.
_UNDERFLOW = 2.0**-1022
_FIRST_PRECISION = 128


@dataclass(frozen=True)
class Signs:
    """The sign (−1, 0, +1) of every pre-activation, layer by layer (output included), with how it was decided.

    Neurons without a kink (identity, polynomial) are given +1. `kinks` lists (sample, layer, neuron) with a
    pre-activation of exactly zero at a kink, where f_θ is not differentiable; `escalated` counts the samples that
    needed ball arithmetic.
    """

    layers: tuple[Int8[np.ndarray, "n _"], ...]
    kinks: tuple[tuple[int, int, int], ...]
    escalated: int


def exact_signs(net: MLP, params: Params, x: np.ndarray, *, balls_only: bool = False) -> Signs:
    """The signs of all pre-activations at float parameters and float data, proved.

    `balls_only` skips the float64 pass: the slower, independent route.

    >>> from neuromanifold.models import Layer
    >>> net = MLP((2, 1, 1))
    >>> params = (Layer(np.array([[1.0, -1.0]]), np.array([2.0**-60])), Layer(np.ones((1, 1)), np.zeros(1)))
    >>> signs = exact_signs(net, params, np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-52]]))
    >>> signs.layers[0].ravel().tolist()
    [1, -1]
    """
    params, x = _to_float64(params), np.asarray(x, np.float64)
    require_exact(net)
    if not any(_has_kinks(entry) for entry in net.activations):
        return Signs(tuple(np.ones((len(x), w), np.int8) for w in net.widths[1:]), (), 0)
    if balls_only:
        layers = [np.zeros((len(x), w), np.int8) for w in net.widths[1:]]
        undecided = np.ones(len(x), bool)
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow leaves its sample undecided
            layers, undecided = _float_signs(net, params, x)
    rows = np.flatnonzero(undecided)
    if len(rows):
        for layer, decided in zip(layers, _ball_signs(net, params, x[rows]), strict=True):
            layer[rows] = decided
    found = [(int(s), index, int(i)) for index, layer in enumerate(layers) for s, i in np.argwhere(layer == 0)]
    return Signs(tuple(layers), tuple(sorted(found)), len(rows))


def require_exact(net: MLP) -> None:
    """Refuse activations whose derivative is not a rational function of float data."""
    for entry in net.activations:
        for activation, _ in per_neuron(entry, 1):
            declared = not {"slopes", "polynomial"} & activation.measured
            if not declared or (activation.slopes is None and activation.polynomial is None):
                reason = (
                    "is neither piecewise linear nor polynomial" if declared else "has slopes that were only measured"
                )
                raise ValueError(
                    f"exact arithmetic needs piecewise-linear or polynomial activations, and {activation.name!r} {reason}; "
                    "use exact=False, or declare nm.Activation(fn, slopes=…, polynomial=…)."
                )


def _to_float64(params: Params) -> Params:
    return tuple(type(p)(*(None if a is None else np.asarray(a, np.float64) for a in p)) for p in params)


def is_kinked(activation: Activation) -> bool:
    """Whether σ has different slopes left and right of zero."""
    return activation.slopes is not None and activation.slopes[0] != activation.slopes[1]


def _has_kinks(entry: Entry) -> bool:
    return any(is_kinked(activation) for activation, _ in per_neuron(entry, 1))


def _float_signs(net: MLP, params: Params, x: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Signs by float64 with a proved error bound, and which samples have a neuron that the bound leaves open."""
    a, error = x, np.zeros_like(x)
    undecided, layers = np.zeros(len(x), bool), []
    for layer, entry, scale in zip(params, net.activations, net.weight_scales, strict=True):
        z, error = _affine_with_error(a, error, layer, scale)
        sign = np.ones(z.shape, np.int8)
        next_a, next_error = np.empty_like(z), np.empty_like(z)
        for activation, neurons in per_neuron(entry, z.shape[1]):
            if is_kinked(activation):
                sign[:, neurons] = np.sign(z[:, neurons])
                open_signs = (np.abs(z[:, neurons]) <= error[:, neurons]) & (error[:, neurons] > 0)
                undecided |= open_signs.any(axis=1)
            next_a[:, neurons], next_error[:, neurons] = _activate_with_error(
                activation, z[:, neurons], error[:, neurons]
            )
        layers.append(sign)
        a, error = next_a, next_error
    return layers, undecided | ~np.isfinite(a).all(axis=1) | ~np.isfinite(error).all(axis=1)


def _affine_with_error(a, error, layer, scale) -> tuple[np.ndarray, np.ndarray]:
    """z = scale·Wa + b with |z − exact| ≤ bound: running analysis, γ_m = m·u/(1 − m·u), inflated by 1 %, underflow counted.

    A term goes through at most eight operations here, bounds included; without any term z = b exactly.
    """
    W = np.abs(layer.weight).T * scale
    z = (a @ layer.weight.T) * scale
    magnitude = np.abs(a) @ W
    terms = ((a != 0) | (error != 0)).astype(np.float64) @ (layer.weight.T != 0)
    if layer.bias is not None:
        z = z + layer.bias
        magnitude = magnitude + np.abs(layer.bias) * (terms > 0)
    m = (layer.weight.shape[1] + 6) * _UNIT_ROUNDOFF
    return z, 1.01 * (m / (1 - m) * magnitude + error @ W + 8 * _UNDERFLOW * terms)


def _activate_with_error(activation: Activation, z, error) -> tuple[np.ndarray, np.ndarray]:
    if activation.slopes is not None:
        left, right = activation.slopes
        a = np.where(z > 0, right * z, left * z)
        largest = max(abs(left), abs(right))
        rounded = largest not in (0.0, 1.0) or abs(left) not in (0.0, 1.0)
        return a, 1.01 * largest * error + rounded * (2 * _UNIT_ROUNDOFF * np.abs(a) + 4 * _UNDERFLOW * (z != 0))
    polynomial = np.polynomial.Polynomial(activation.polynomial or (0.0,))
    absolute = np.polynomial.Polynomial(np.abs(polynomial.coef))
    reach, steps = np.abs(z) + error, 4 * len(polynomial.coef)
    bound = absolute.deriv()(reach) * error + steps * _UNIT_ROUNDOFF * absolute(reach)
    # What underflows in one of Horner's steps is multiplied by |z| in each of the later ones.
    lost = steps * _UNDERFLOW * np.maximum(1.0, reach) ** (len(polynomial.coef) - 1) * (reach > 0)
    return polynomial(z), 1.01 * (bound + lost)


def _ball_signs(net: MLP, params: Params, x: np.ndarray) -> list[np.ndarray]:
    precision = _FIRST_PRECISION
    while True:
        signs = _try_ball_signs(net, params, x, precision)
        if signs is not None:
            return signs
        precision *= 2


def _try_ball_signs(net: MLP, params: Params, x: np.ndarray, precision: int) -> list[np.ndarray] | None:
    """All signs at that precision, or None when it does not suffice."""
    import flint

    with flint.ctx.workprec(precision):
        a = flint.arb_mat(x.T.tolist())
        height = sample_height(x)
        signs, degree = [], field_degree(net)
        for layer, entry, fan_in in zip(params, net.activations, net.widths[:-1], strict=True):
            divisor = fan_in if net.scaling == "ntk" else 1
            z = _ball_affine(a, layer, divisor)
            height = affine_height(height, layer, divisor)
            decided = _decide(z, entry, height.separation(degree))
            if decided is None:
                return None
            signs.append(decided)
            a, height = _ball_activate(z, entry, decided), activated_layer_height(height, entry)
    return signs


def _ball_affine(a, layer, divisor: int):
    import flint

    z = flint.arb_mat(layer.weight.tolist()) * a
    if divisor != 1:
        z = z * (1 / flint.arb(divisor).sqrt())
    if layer.bias is None:
        return z
    return z + flint.arb_mat([[b] * a.ncols() for b in layer.bias.tolist()])


def _decide(z, entry: Entry, separation: float) -> np.ndarray | None:
    import flint

    smallest = flint.arb((1, math.floor(separation)))
    sign = np.ones((z.ncols(), z.nrows()), np.int8)
    for activation, neurons in per_neuron(entry, z.nrows()):
        if not is_kinked(activation):
            continue
        for i in range(neurons.start, neurons.stop):
            for sample in range(z.ncols()):
                ball = z[i, sample]
                if ball > 0:
                    continue
                if ball < 0:
                    sign[sample, i] = -1
                elif abs(ball) < smallest:
                    sign[sample, i] = 0
                else:
                    return None
    return sign


def _ball_activate(z, entry: Entry, sign: np.ndarray):
    import flint

    rows = []
    for activation, neurons in per_neuron(entry, z.nrows()):
        for i in range(neurons.start, neurons.stop):
            rows.append([_ball_value(activation, z[i, s], int(sign[s, i])) for s in range(z.ncols())])
    return flint.arb_mat(rows)


def _ball_value(activation: Activation, ball, sign: int):
    import flint

    if activation.slopes is not None:
        return ball * activation.slopes[1 if sign > 0 else 0] if sign else flint.arb(0)
    value = flint.arb(0)
    for coefficient in reversed(activation.polynomial or ()):
        value = value * ball + coefficient
    return value
