"""Kernel vectors of J that symmetries give: the generators of a multilayer perceptron's symmetries on the sample."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Int

from neuromanifold.models.activation import per_neuron
from neuromanifold.models.described import perceptron
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Entry, Params
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.signs import Signs, layer_slopes, signs_of
from neuromanifold.tangent.fields import Fields, Layout, join, mixing, translation


def generator_count(problem: Problem) -> int:
    """How many rows `generators` would have; none for other networks, or where some parameters are frozen."""
    if (net := _described(problem)) is None:
        return 0
    signs = signs_of(net, problem.decisions, problem.samples)
    affine = sum(len(linear) ** 2 + net.bias * len(linear) + len(scaled) for linear, scaled in _classes(net, signs))
    return affine + sum(len(pairs) for pairs in _shared(net, signs))


def _described(problem: Problem) -> MLP | None:
    """The description whose symmetries are known, when nothing is frozen."""
    whole = len(problem.chosen.leaves) == len(problem.leaves)
    return perceptron(problem.model) if whole else None


def generators(problem: Problem, p: int) -> Int[np.ndarray, "g D"]:
    """Kernel vectors of J modulo p, one per row."""
    if (net := _described(problem)) is None:
        return np.empty((0, problem.shape[1]), np.int64)
    signs = signs_of(net, problem.decisions, problem.samples)
    return generator_fields(net, signs).modulo(_params(net, problem), p)


def rational_generators(problem: Problem) -> list[list[Fraction]]:
    """The same vectors as rational numbers."""
    if (net := _described(problem)) is None:
        return []
    signs = signs_of(net, problem.decisions, problem.samples)
    return generator_fields(net, signs).fractions(_params(net, problem))


def _params(net: MLP, problem: Problem) -> Params:
    leaves = iter(problem.leaves)
    return tuple(Layer(next(leaves), next(leaves) if net.bias else None) for _ in range(net.depth))


def generator_fields(net: MLP, signs: Signs) -> Fields:
    """Infinitesimal symmetries at θ on the sample.

    With V the next layer's weights and s_i the slope of a neuron that is linear on the sample:
    scaling of a neuron homogeneous of degree k: δ(W, b)_i = (W, b)_i, δV_{·i} = −k V_{·i};
    mixing of linear neurons: δ(W, b)_i = s_j (W, b)_j, δV_{·j} = −s_i V_{·i};
    mixing of neurons with equal or opposite slopes ±s(x) on the sample: δ(W, b)_i = (W, b)_j, δV_{·j} = ∓V_{·i};
    translation of a linear neuron: δb_i = 1, δb' = −s_i V_{·i} (with V's scale).
    """
    slopes, shared, layout, parts = layer_slopes(net, signs), [*_shared(net, signs)], Layout(net), []
    for index, (linear, scaled) in enumerate(_classes(net, signs)):
        s, degrees = slopes[index][0], _degrees(net.activation[index], net.widths[index + 1])
        parts += [mixing(layout, index, i, i, 1.0, degrees[i]) for i in scaled]
        parts += [mixing(layout, index, i, j, 1.0, sign) for i, j, sign in shared[index]]
        for i in linear:
            parts += [mixing(layout, index, i, j, s[j], s[i]) for j in linear]
            if net.bias:
                parts.append(translation(layout, index, i, s[i]))
    return join(net, parts)


def same_pattern(slope: np.ndarray, among: Sequence[int]) -> list[tuple[int, int, float]]:
    """(i, j, ±1) for ordered pairs of neurons of degree 1 whose slopes on the sample are s_i = ±s_j: they mix as linear ones do.

    >>> same_pattern(np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]), [0, 1, 2])
    [(0, 1, 1.0), (1, 0, 1.0)]
    """
    groups: dict[bytes, list[tuple[int, float]]] = {}
    for i in among:
        lead = slope[np.flatnonzero(slope[:, i])[0], i] if slope[:, i].any() else 1.0
        sign = float(np.copysign(1.0, lead))
        groups.setdefault((sign * slope[:, i] + 0.0).tobytes(), []).append((int(i), sign))
    return [(i, j, s * t) for group in groups.values() for i, s in group for j, t in group if i != j]


def _shared(net: MLP, signs: Signs) -> Iterator[list[tuple[int, int, float]]]:
    """For each hidden layer: the pairs that mix because they share a pattern."""
    slopes = layer_slopes(net, signs)
    for entry, slope, (_, scaled) in zip(net.activation, slopes, _classes(net, signs), strict=False):
        degrees = _degrees(entry, slope.shape[1])
        yield same_pattern(slope, [i for i in scaled if degrees[i] == 1])


def _classes(net: MLP, signs: Signs) -> Iterator[tuple[list[int], list[int]]]:
    """For each hidden layer: neurons linear on the sample, and the other homogeneous neurons."""
    for entry, slope in zip(net.activation, layer_slopes(net, signs), strict=False):
        linear = (slope == slope[0]).all(axis=0) & (slope[0] != 0)
        dead = (slope == 0).all(axis=0)
        homogeneous = ~np.isnan(_degrees(entry, slope.shape[1]))
        yield np.flatnonzero(linear).tolist(), np.flatnonzero(homogeneous & ~linear & ~dead).tolist()


def _degrees(entry: Entry, width: int) -> np.ndarray:
    """d for each neuron, nan where the activation is not homogeneous."""
    runs = per_neuron(entry, width)
    return np.concatenate([np.full(run.stop - run.start, np.nan if a.degree is None else a.degree) for a, run in runs])
