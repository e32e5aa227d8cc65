"""Heights: how large the conjugates and denominators of a network's exact values can be.

Two uses: a nonzero value of small height cannot be too small (separation), and a nonzero minor of the Jacobian has few
prime divisors (failure probability of a modular rank).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.models.activation import Activation, per_neuron
from neuromanifold.models.mlp import MLP, Entry, Params


class Height(NamedTuple):
    """Size of a family of algebraic numbers: |conjugates| ≤ 2^magnitude, and 2^denominator makes them integers."""

    magnitude: float
    denominator: float

    def separation(self, degree: int) -> float:
        """log₂ of a lower bound on |z| for a nonzero member z of a field of that degree."""
        return -self.denominator - (degree - 1) * max(0.0, self.denominator + self.magnitude)


def fractional_bits(a: np.ndarray) -> int:
    """The least e ≥ 0 such that 2^e·a is integer."""
    mantissas, exponents = np.frexp(a[a != 0])
    if not exponents.size:
        return 0
    integers = (mantissas * 2.0**53).astype(np.int64)
    trailing = np.log2((integers & -integers).astype(np.float64)).astype(np.int64)
    return max(0, int((53 - exponents - trailing).max()))


def log2_bound(a: float) -> float:
    """log₂ of a nonnegative bound, and 0 for 0, rounded up."""
    return math.log2(a) + 1e-9 if a > 0 else 0.0


def field_degree(net: MLP) -> int:
    """The degree over the rationals of a field that holds every value of the network: 1, or 2^k for k irrational √fan_in."""
    if net.scaling == "standard":
        return 1
    return 2 ** len({fan_in for fan_in in net.widths[:-1] if math.isqrt(fan_in) ** 2 != fan_in})


def affine_height(height: Height, layer: Any, fan_in_divisor: int) -> Height:
    """The height of z = Wa/√n + b, given that of a (n = 1 in standard scaling)."""
    rows = float(np.abs(layer.weight).sum(axis=1).max())
    bias = 0.0 if layer.bias is None else float(np.abs(layer.bias).max())
    magnitude = np.logaddexp2(height.magnitude + log2_bound(rows), log2_bound(bias))
    bits = height.denominator + fractional_bits(layer.weight)
    bits = bits if layer.bias is None else max(bits, fractional_bits(layer.bias))
    return Height(float(magnitude), bits + math.log2(fan_in_divisor))


def activated_height(height: Height, activation: Activation) -> Height:
    """The height of σ(z), given that of z."""
    coefficients = np.array(activation.slopes if activation.slopes is not None else activation.polynomial, np.float64)
    degree = 1 if activation.slopes is not None else max(1, len(coefficients) - 1)
    magnitude = degree * max(0.0, height.magnitude) + log2_bound(float(np.abs(coefficients).sum()))
    return Height(magnitude, degree * height.denominator + fractional_bits(coefficients))


def activated_layer_height(height: Height, entry: Entry) -> Height:
    """The largest height among the activations of a layer."""
    heights = [activated_height(height, activation) for activation, _ in per_neuron(entry, 1)]
    return Height(max(h.magnitude for h in heights), max(h.denominator for h in heights))


def sample_height(x: np.ndarray) -> Height:
    """The height of the data."""
    return Height(log2_bound(float(np.abs(x).max())), fractional_bits(x))


def _slope_height(height: Height, entry: Entry) -> Height:
    """The largest height of σ'(z) in a layer, given that of z: σ' is a constant or a polynomial of degree one less."""
    heights = []
    for activation, _ in per_neuron(entry, 1):
        if activation.slopes is not None:
            slopes = np.array(activation.slopes)
            heights.append(Height(log2_bound(float(np.abs(slopes).max())), fractional_bits(slopes)))
        else:
            derivative = np.polynomial.Polynomial(activation.polynomial or (0.0,)).deriv()
            degree, coefficients = len(derivative.coef) - 1, derivative.coef
            magnitude = degree * max(0.0, height.magnitude) + log2_bound(float(np.abs(coefficients).sum()))
            heights.append(Height(magnitude, degree * height.denominator + fractional_bits(coefficients)))
    return Height(max(h.magnitude for h in heights), max(h.denominator for h in heights))


def jacobian_height(net: MLP, params: Params, x: np.ndarray) -> Height:
    """The height of the entries d·a of the Jacobian."""
    divisors = [fan_in if net.scaling == "ntk" else 1 for fan_in in net.widths[:-1]]
    inputs, slopes, height = [], [], sample_height(x)
    for layer, entry, divisor in zip(params, net.activations, divisors, strict=True):
        inputs.append(height)
        z = affine_height(height, layer, divisor)
        slopes.append(_slope_height(z, entry))
        height = activated_layer_height(z, entry)
    d, entries = slopes[-1], []
    for index in reversed(range(net.depth)):
        a, divisor = inputs[index], divisors[index]
        entries.append(Height(max(0.0, a.magnitude) + d.magnitude, a.denominator + d.denominator + math.log2(divisor)))
        if index:
            columns = float(np.abs(params[index].weight).sum(axis=0).max())
            magnitude = d.magnitude + log2_bound(columns) + slopes[index - 1].magnitude
            bits = fractional_bits(params[index].weight) + math.log2(divisor) + slopes[index - 1].denominator
            d = Height(magnitude, d.denominator + bits)
    return Height(max(h.magnitude for h in entries), max(h.denominator for h in entries))


def minor_bits(height: Height, order: int, degree: int) -> float:
    """log₂ of the norm of any minor of that order (Hadamard), denominators cleared."""
    return degree * order * (max(0.0, height.magnitude) + height.denominator + math.log2(max(1, order)) / 2)
