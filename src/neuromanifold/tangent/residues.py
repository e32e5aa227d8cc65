"""The Jacobian of an MLP modulo a prime: exact, entry by entry, or sketched when it is large.

All of it follows `layer_factors`, with residues for floats and proved signs for slopes. For NTK scaling the prime is
one modulo which every fan_in is a square.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from neuromanifold.models.activation import Activation, per_neuron
from neuromanifold.models.mlp import MLP, Entry, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.memory import blocks
from neuromanifold.numerics.modular import Residues
from neuromanifold.regions.signs import Signs
from neuromanifold.tangent.factors import Factors


@dataclass(frozen=True)
class ModularNet:
    """Network, parameters and signs reduced modulo `p`: weights carry their scale 1/√fan_in, `scales` holds it apart."""

    net: MLP
    weights: tuple[Residues, ...]
    biases: tuple[Residues | None, ...]
    scales: tuple[int, ...]
    p: int

    @property
    def layers(self) -> Iterator[tuple[Residues, Residues | None, Entry]]:
        """(weight, bias, activation) of each layer."""
        return zip(self.weights, self.biases, self.net.activations, strict=True)


def reduce_net(net: MLP, params: Params, p: int) -> ModularNet:
    """The network modulo p."""
    scales = tuple(pow(modular.square_root(n, p), -1, p) if net.scaling == "ntk" else 1 for n in net.widths[:-1])
    weights = []
    for layer, scale in zip(params, scales, strict=True):
        weight = modular.from_floats(np.asarray(layer.weight), p)
        weights.append(weight if scale == 1 else modular.multiply(weight, np.array(scale), p))
    biases = tuple(None if layer.bias is None else modular.from_floats(np.asarray(layer.bias), p) for layer in params)
    return ModularNet(net, tuple(weights), biases, scales, p)


def draw_prime(net: MLP) -> int:
    """A random 61-bit prime fit for the network's scaling."""
    return modular.random_prime(squares=net.widths[:-1] if net.scaling == "ntk" else ())


def layer_values(reduced: ModularNet, x: Residues, signs: Signs) -> tuple[list[Residues], list[Residues]]:
    """Each layer's input a_{l-1} and slope σ'(z_l), modulo p."""
    a, inputs, slopes = x, [], []
    for (weight, bias, entry), sign in zip(reduced.layers, signs.layers, strict=True):
        inputs.append(a)
        z = modular.matmul(a, weight.T, reduced.p)
        z = z if bias is None else modular.add(z, bias, reduced.p)
        a, slope = _activate(entry, z, sign, reduced.p)
        slopes.append(slope)
    return inputs, slopes


def _activate(entry: Entry, z: Residues, sign: np.ndarray, p: int) -> tuple[Residues, Residues]:
    runs = [_activate_run(a, z[:, run], sign[:, run], p) for a, run in per_neuron(entry, z.shape[1])]
    return np.concatenate([a for a, _ in runs], axis=1), np.concatenate([slope for _, slope in runs], axis=1)


def _activate_run(activation: Activation, z: Residues, sign: np.ndarray, p: int) -> tuple[Residues, Residues]:
    if activation.slopes is not None:
        left, right = modular.from_floats(np.array(activation.slopes), p)
        slope = np.where(sign > 0, right, left)
        return modular.multiply(slope, z, p), slope
    coefficients = modular.from_floats(np.array(activation.polynomial), p)
    value, slope = np.zeros_like(z), np.zeros_like(z)
    for coefficient in coefficients[::-1].reshape(-1, 1, 1):
        slope = modular.add(modular.multiply(slope, z, p), value, p)
        value = modular.add(modular.multiply(value, z, p), coefficient, p)
    return value, slope


def modular_factors(reduced: ModularNet, x: Residues, signs: Signs) -> tuple[Factors, ...]:
    """The factors of J modulo p, by the same recursion as `layer_factors`."""
    inputs, slopes = layer_values(reduced, x, signs)
    d = np.eye(reduced.net.widths[-1], dtype=np.int64)[None] * slopes[-1][:, None, :]
    factors = []
    for index in reversed(range(reduced.net.depth)):
        scale = reduced.scales[index]
        a = inputs[index] if scale == 1 else modular.multiply(inputs[index], np.array(scale), reduced.p)
        factors.append(Factors(a, d))
        if index:
            back = modular.matmul(d, reduced.weights[index], reduced.p)
            d = modular.multiply(back, slopes[index - 1][:, None, :], reduced.p)
    return tuple(reversed(factors))


def modular_jacobian(factors: tuple[Factors, ...], *, bias: bool, p: int) -> Int[np.ndarray, "rows D"]:
    """J modulo p, rows sample-major, columns as `ravel_pytree` orders them."""
    rows = factors[0].d.shape[0] * factors[0].d.shape[1]
    columns = []
    for a, d in factors:
        columns.append(modular.multiply(d[..., None], a[:, None, None, :], p).reshape(rows, -1))
        if bias:
            columns.append(d.reshape(rows, -1))
    return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class Sketch:
    """A random map ℝ^D → ℝ^m made of rank-one tensors u ⊗ v in each layer: J·R needs only factor products.

    Rank-one tensors span everything, so for all but a fraction ≤ 2·rank/p of the draws rank(J·R) = min(rank J, m);
    rank(J·R) ≤ rank J always.
    """

    left: tuple[Residues, ...]
    right: tuple[Residues, ...]
    bias: tuple[Residues, ...]


def draw_sketch(net: MLP, m: int, p: int) -> Sketch:
    """A sketch to m columns."""
    pairs = list(zip(net.widths[:-1], net.widths[1:], strict=True))
    return Sketch(
        tuple(modular.random_residues((out, m), p) for _, out in pairs),
        tuple(modular.random_residues((fan_in, m), p) for fan_in, _ in pairs),
        tuple(modular.random_residues((out, m), p) for _, out in pairs) if net.bias else (),
    )


def sketched_jacobian(factors: tuple[Factors, ...], sketch: Sketch, p: int) -> Int[np.ndarray, "rows m"]:
    """J·R = Σ_l (D_l U_l) ∘ (A_l V_l) [+ D_l B_l], modulo p."""
    total: Residues | None = None
    for index, (a, d) in enumerate(factors):
        through_d = modular.matmul(d, sketch.left[index], p)
        through_a = modular.matmul(a, sketch.right[index], p)
        term = modular.multiply(through_d, through_a[:, None, :], p)
        if sketch.bias:
            term = modular.add(term, modular.matmul(d, sketch.bias[index], p), p)
        total = term if total is None else modular.add(total, term, p)
    assert total is not None
    return total.reshape(-1, total.shape[-1])


def forward_products(
    reduced: ModularNet, x: Residues, signs: Signs, directions: Int[np.ndarray, "m D"]
) -> Int[np.ndarray, "rows m"]:
    """J·v for each row v of `directions`, modulo p, by forward propagation: a route that shares no product with `modular_factors`."""
    p, net = reduced.p, reduced.net
    inputs, slopes = layer_values(reduced, x, signs)
    tangent = np.zeros((len(directions), len(x), net.widths[0]), np.int64)
    start = 0
    for index, (weight, bias, _) in enumerate(reduced.layers):
        out, fan_in = weight.shape
        change = directions[:, start : start + out * fan_in].reshape(len(directions), out, fan_in)
        start += out * fan_in
        scaled = (
            inputs[index]
            if reduced.scales[index] == 1
            else modular.multiply(inputs[index], np.array(reduced.scales[index]), p)
        )
        z = modular.add(modular.matmul(tangent, weight.T, p), modular.matmul(scaled, change.transpose(0, 2, 1), p), p)
        if bias is not None:
            z = modular.add(z, directions[:, None, start : start + out], p)
            start += out
        tangent = modular.multiply(z, slopes[index][None], p)
    return tangent.reshape(len(directions), len(x) * net.widths[-1]).T


def factor_bytes(net: MLP) -> int:
    """Bytes that the factors of one sample take, temporaries included."""
    return 8 * 12 * (sum(net.widths[:-1]) + net.widths[-1] * sum(net.widths[1:]))


def sample_blocks(net: MLP, n: int, extra: int, budget: int) -> Iterator[slice]:
    """Blocks of samples whose factors, and `extra` residues for each output row, fit the budget."""
    per_sample = factor_bytes(net) + 8 * 12 * extra * net.widths[-1]
    return blocks(n, math.floor(budget / per_sample))
