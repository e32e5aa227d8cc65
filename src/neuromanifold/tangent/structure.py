"""Upper bounds on rank J that exact signs alone prove: structurally zero columns, symmetry generators, shared regions."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int

from neuromanifold.models.activation import Activation, per_neuron
from neuromanifold.models.mlp import MLP, Entry, Params
from neuromanifold.regions.signs import Signs
from neuromanifold.tangent.fields import Layout, join, mixing, translation
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
    net, slopes = reduced.net, layer_slopes(reduced.net, signs)
    layout, parts = Layout(net), []
    for index, (linear, scaled) in enumerate(_classes(net, signs)):
        s, degrees = slopes[index][0], _degrees(net.activation[index], net.widths[index + 1])
        parts += [mixing(layout, index, i, i, 1.0, degrees[i]) for i in scaled]
        for i in linear:
            parts += [mixing(layout, index, i, j, s[j], s[i]) for j in linear]
            if net.bias:
                parts.append(translation(layout, index, i, s[i]))
    return join(net, parts).modulo(params, reduced.p)


def _degrees(entry: Entry, width: int) -> np.ndarray:
    return np.concatenate([np.full(run.stop - run.start, a.degree or 0.0) for a, run in per_neuron(entry, width)])
