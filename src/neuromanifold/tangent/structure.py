"""Upper bounds on rank J that exact signs alone prove: structurally zero columns, symmetry generators, shared regions."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int

from neuromanifold.models.activation import Activation, per_neuron
from neuromanifold.models.mlp import MLP, Entry, Params
from neuromanifold.numerics import modular
from neuromanifold.regions.signs import Signs
from neuromanifold.tangent.residues import ModularNet


def exact_region_bound(net: MLP, signs: Signs) -> int:
    """`regions.region_bound` by proved signs: Σ over regions of o·min(samples in it, n_0 + 1).   [complexity, Prop C.3]

    On a region J(x) is affine in x, and linear without biases (n_0 then). Holds for piecewise-linear activations.
    """
    _, counts = np.unique(np.concatenate(signs.layers, axis=1), axis=0, return_counts=True)
    return net.widths[-1] * int(np.minimum(counts, net.widths[0] + net.bias).sum())


def is_piecewise_linear(net: MLP) -> bool:
    """Whether every activation has slopes."""
    return all(a.slopes is not None for entry in net.activations for a, _ in per_neuron(entry, 1))


def layer_slopes(net: MLP, signs: Signs) -> list[np.ndarray]:
    """σ'(z) of each layer where it is a constant slope, nan where it depends on z."""
    return [_slopes(entry, sign) for entry, sign in zip(net.activations, signs.layers, strict=True)]


def _slopes(entry: Entry, sign: np.ndarray) -> np.ndarray:
    slopes = np.full(sign.shape, np.nan)
    for activation, run in per_neuron(entry, sign.shape[1]):
        if activation.slopes is not None:
            slopes[:, run] = np.where(sign[:, run] > 0, activation.slopes[1], activation.slopes[0])
    return slopes


def zero_columns(net: MLP, params: Params, x: np.ndarray, signs: Signs) -> Bool[np.ndarray, " D"]:
    """Columns of J that vanish at every sample because no open path runs through their parameter."""
    slopes = layer_slopes(net, signs)
    alive = slopes[-1] != 0
    columns: list[np.ndarray] = []
    for index in reversed(range(net.depth)):
        live_input = x != 0 if index == 0 else (slopes[index - 1] != 0) & (signs.layers[index - 1] != 0)
        weight = (alive.T.astype(np.float64) @ live_input) == 0
        columns[:0] = [weight.ravel(), *([~alive.any(axis=0)] if net.bias else [])]
        if index:
            reached = alive.astype(np.float64) @ (np.asarray(params[index].weight) != 0)
            alive = (reached > 0) & (slopes[index - 1] != 0)
    return np.concatenate(columns)


def generator_count(net: MLP, signs: Signs) -> int:
    """How many rows `generators` would have."""
    return sum(len(linear) ** 2 + net.bias * len(linear) + len(scaled) for linear, scaled in _classes(net, signs))


def _classes(net: MLP, signs: Signs) -> Iterator[tuple[list[int], list[int]]]:
    """For each hidden layer: neurons linear on the sample, and the other homogeneous neurons."""
    for entry, slope in zip(net.activation, layer_slopes(net, signs), strict=False):
        linear = (slope == slope[0]).all(axis=0) & (slope[0] != 0)
        dead = (slope == 0).all(axis=0)
        homogeneous = np.concatenate(
            [np.full(run.stop - run.start, a.degree is not None) for a, run in _runs(entry, slope)]
        )
        yield np.flatnonzero(linear).tolist(), np.flatnonzero(homogeneous & ~linear & ~dead).tolist()


def _runs(entry: Entry, slope: np.ndarray) -> tuple[tuple[Activation, slice], ...]:
    return per_neuron(entry, slope.shape[1])


def generators(reduced: ModularNet, params: Params, signs: Signs) -> Int[np.ndarray, "g D"]:
    """Exact kernel vectors of J modulo p: infinitesimal symmetries at θ on the sample, one per row.

    With V the next layer's weights and s_i the slope of a neuron that is linear on the sample:
    scaling of a neuron homogeneous of degree k: δ(W, b)_i = (W, b)_i, δV_{·i} = −k V_{·i};
    mixing of linear neurons: δ(W, b)_i = s_j (W, b)_j, δV_{·j} = −s_i V_{·i};
    translation of a linear neuron: δb_i = 1, δb' = −s_i V_{·i} (with V's scale).
    """
    p, net = reduced.p, reduced.net
    weights = [modular.from_floats(np.asarray(layer.weight), p) for layer in params]
    rows: list[np.ndarray] = []
    slopes = layer_slopes(net, signs)
    for index, (linear, scaled) in enumerate(_classes(net, signs)):
        s = modular.from_floats(np.nan_to_num(slopes[index][0]), p)
        degrees = _degrees(net.activation[index], net.widths[index + 1])
        for i in scaled:
            rows.append(_mixing(reduced, weights, index, i, i, 1, int(degrees[i])))
        for i in linear:
            rows.extend(_mixing(reduced, weights, index, i, j, int(s[j]), int(s[i])) for j in linear)
            if net.bias:
                rows.append(_translation(reduced, index, i, int(s[i])))
    return np.stack(rows) if rows else np.empty((0, net.n_params), np.int64)


def _degrees(entry: Entry, width: int) -> np.ndarray:
    return np.concatenate([np.full(run.stop - run.start, a.degree or 0.0) for a, run in per_neuron(entry, width)])


def _offsets(net: MLP, index: int) -> tuple[int, int, int, int]:
    """Where (W_l, b_l, W_{l+1}, b_{l+1}) start in a flat parameter vector."""
    sizes = [out * (fan_in + net.bias) for fan_in, out in zip(net.widths[:-1], net.widths[1:], strict=True)]
    here, there = sum(sizes[:index]), sum(sizes[: index + 1])
    widths = net.widths[index : index + 3]
    return here, here + widths[0] * widths[1], there, there + widths[1] * widths[2]


def _mixing(reduced: ModularNet, weights: list, index: int, i: int, j: int, up: int, down: int) -> np.ndarray:
    """δ(W, b)_i = up·(W, b)_j and δV_{·j} = −down·V_{·i}."""
    net, p = reduced.net, reduced.p
    vector = np.zeros(net.n_params, np.int64)
    w, b, v, _ = _offsets(net, index)
    fan_in, width = net.widths[index], net.widths[index + 1]
    vector[w + i * fan_in : w + (i + 1) * fan_in] = modular.multiply(weights[index][j], np.array(up), p)
    bias = reduced.biases[index]
    if bias is not None:
        vector[b + i] = up * int(bias[j]) % p
    outgoing = modular.multiply(weights[index + 1][:, i], np.array(-down % p), p)
    vector[v + j : v + j + width * len(outgoing) : width] = outgoing
    return vector


def _translation(reduced: ModularNet, index: int, i: int, slope: int) -> np.ndarray:
    net, p = reduced.net, reduced.p
    vector = np.zeros(net.n_params, np.int64)
    _, b, _, next_b = _offsets(net, index)
    vector[b + i] = 1
    outgoing = modular.multiply(reduced.weights[index + 1][:, i], np.array(-slope % p), p)
    vector[next_b : next_b + len(outgoing)] = outgoing
    return vector
