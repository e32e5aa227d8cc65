"""Exact signs of the pre-activations of a multilayer perceptron, read off the proved decisions
of its graph.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int8

from neuromanifold.graph.graph import trace
from neuromanifold.graph.walk import refuse_inexact
from neuromanifold.models.activation import Activation, per_neuron
from neuromanifold.models.arguments import Samples, check_arguments
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics.precision import boundary
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import sample_arrays
from neuromanifold.regions.decisions import Decisions, decide


@dataclass(frozen=True, eq=False, repr=False)
class Signs(Result):
    """The sign (−1, 0, +1) of every pre-activation, layer by layer (output included), with how it
    was decided.

    Neurons without a kink (identity, polynomial) are given +1. `kinks` lists (sample, layer,
    neuron) with a pre-activation of exactly zero at a kink; `escalated` counts the samples that
    needed ball arithmetic.
    """

    layers: tuple[Int8[np.ndarray, "n _"], ...]
    kinks: tuple[tuple[int, int, int], ...]
    escalated: int


def exact_signs(net: MLP, params: Params, x: Samples, *, balls_only: bool = False) -> Signs:
    """Return the signs of all pre-activations at float parameters and float data, proved.

    `balls_only` skips the float64 pass: the slower, independent route.

    >>> from neuromanifold.models import Layer
    >>> net = MLP((2, 1, 1))
    >>> params = (Layer(np.array([[1.0, -1.0]]), np.array([2.0**-60])), Layer(np.ones((1, 1)), np.zeros(1)))
    >>> signs = exact_signs(net, params, np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-52]]))
    >>> signs.layers[0].ravel().tolist()
    [1, -1]
    """
    require_perceptron(
        net, "for other networks call nm.activation_patterns(f, params, x, exact=True)"
    )
    x = sample_arrays(x)
    with boundary(params, x):
        check_arguments(net, params, x)
    graph = trace(net, params, x)
    refuse_inexact(graph, "`exact_signs` needs")
    return signs_of(net, decide(graph, params, x, balls_only=balls_only), len(x))


def signs_of(net: MLP, decisions: Decisions, n: int) -> Signs:
    """Return the decisions of a perceptron's graph by layer and neuron: each kinked run of neurons
    asks once whether z > 0.
    """
    asked = iter(zip(decisions.gates, decisions.ties, strict=True))
    layers = []
    for entry, width in zip(net.activations, net.widths[1:], strict=True):
        layer = np.ones((n, width), np.int8)
        for activation, run in per_neuron(entry, width):
            if is_kinked(activation):
                gate, tie = (a.reshape(n, -1) for a in next(asked))
                layer[:, run] = np.where(tie, 0, np.where(gate, 1, -1))
        layers.append(layer)
    found = [
        (int(s), index, int(i))
        for index, layer in enumerate(layers)
        for s, i in np.argwhere(layer == 0)
    ]
    return Signs(tuple(layers), tuple(sorted(found)), decisions.escalated)


def is_kinked(activation: Activation) -> bool:
    """Whether σ has different slopes left and right of zero."""
    return activation.slopes is not None and activation.slopes[0] != activation.slopes[1]


def layer_slopes(net: MLP, signs: Signs) -> list[np.ndarray]:
    """Return σ'(z) of each layer where it is a constant slope, nan where it depends on z."""
    return [_slopes(entry, sign) for entry, sign in zip(net.activations, signs.layers, strict=True)]


def _slopes(entry: Any, sign: np.ndarray) -> np.ndarray:
    slopes = np.full(sign.shape, np.nan)
    for activation, run in per_neuron(entry, sign.shape[1]):
        if activation.slopes is not None:
            slopes[:, run] = np.where(sign[:, run] > 0, activation.slopes[1], activation.slopes[0])
    return slopes
