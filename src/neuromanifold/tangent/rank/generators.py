"""Kernel vectors of J that symmetries give: the generators of a multilayer perceptron's
symmetries on the sample.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Int

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import perceptron
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.status import LayerStatus
from neuromanifold.tangent.rank.fields import (
    ParameterLayout,
    VectorFields,
    join,
    mixing,
    translation,
)


def generator_count(problem: Problem) -> int:
    """How many rows `generators` would have; none for other networks, or where some parameters
    are frozen.
    """
    if (net := _describe(problem)) is None:
        return 0
    return sum(
        len(layer.linear) ** 2 + net.bias * len(layer.linear) + len(layer.scaled) + len(layer.mixed)
        for layer in problem.layers
    )


def _describe(problem: Problem) -> MLP | None:
    """The description whose symmetries are known, when nothing is frozen."""
    whole = len(problem.chosen.leaves) == len(problem.leaves)
    return perceptron(problem.model) if whole else None


def generators(problem: Problem, p: int) -> Int[np.ndarray, "g D"]:
    """Kernel vectors of J modulo p, one per row."""
    if (net := _describe(problem)) is None:
        return np.empty((0, problem.shape[1]), np.int64)
    return _fields(net, problem).modulo(_params(net, problem), p)


def rational_generators(problem: Problem) -> list[dict[int, Fraction]]:
    """The entries of the same vectors as rational numbers, by column."""
    if (net := _describe(problem)) is None:
        return []
    return _fields(net, problem).fractions(_params(net, problem))


def _fields(net: MLP, problem: Problem) -> VectorFields:
    return join(net, list(sample_symmetries(net, problem.layers).values()))


def _params(net: MLP, problem: Problem) -> Params:
    leaves = iter(problem.leaves)
    return tuple(Layer(next(leaves), next(leaves) if net.bias else None) for _ in range(net.depth))


def sample_symmetries(net: MLP, layers: Sequence[LayerStatus]) -> dict[str, VectorFields]:
    """Infinitesimal symmetries at θ on the sample, by where they come from.

    With V the next layer's weights and s_i the slope of a neuron that is linear on the sample:
    scaling of a neuron homogeneous of degree k: δ(W, b)_i = (W, b)_i, δV_{·i} = −k V_{·i};
    mixing of linear neurons: δ(W, b)_i = s_j (W, b)_j, δV_{·j} = −s_i V_{·i};
    translation of a linear neuron: δb_i = 1, δb' = −s_i V_{·i} (with V's scale);
    mixing of neurons with equal or opposite slopes ±s(x) on the sample: δ(W, b)_i = (W, b)_j,
    δV_{·j} = ∓V_{·i}.
    """
    layout = ParameterLayout(net)
    scalings, mixers, shifts, shared = [], [], [], []
    for index, layer in enumerate(layers):
        degrees = zip(layer.scaled.tolist(), layer.degrees.tolist(), strict=True)
        scalings += [mixing(layout, index, i, i, 1.0, d) for i, d in degrees]
        linear = list(zip(layer.linear.tolist(), layer.slopes.tolist(), strict=True))
        mixers += [mixing(layout, index, i, j, t, s) for i, s in linear for j, t in linear]
        shifts += [translation(layout, index, i, s) for i, s in linear if net.bias]
        shared += [mixing(layout, index, i, j, 1.0, sign) for i, j, sign in layer.mixed]
    found = {
        "scalings": scalings,
        "linear neurons": mixers,
        "translations": shifts,
        "shared sign patterns": shared,
    }
    return {name: join(net, parts) for name, parts in found.items()}
