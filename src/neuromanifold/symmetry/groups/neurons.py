"""What the activation of each hidden neuron allows: parity, homogeneity, linearity."""

from collections.abc import Callable
from typing import Any

import numpy as np

from neuromanifold.models.activation import Activation, per_neuron
from neuromanifold.models.mlp import MLP, Entry


def by_neuron(entry: Entry, width: int, property_of: Callable[[Activation], Any]) -> np.ndarray:
    """Return a property of the activation, for each neuron of a layer."""
    return np.concatenate(
        [np.full(run.stop - run.start, property_of(a)) for a, run in per_neuron(entry, width)]
    )


def hidden_property(net: MLP, property_of: Callable[[Activation], Any]) -> list[np.ndarray]:
    """Return a property of the activation, for each neuron of each hidden layer."""
    return [
        by_neuron(entry, width, property_of)
        for entry, width in zip(net.activation, net.widths[1:], strict=False)
    ]


def is_linear(activation: Activation) -> bool:
    """σ(z) = sz with s ≠ 0."""
    return activation.slopes is not None and activation.slopes[0] == activation.slopes[1] != 0


def linear_slope(activation: Activation) -> float:
    """Return s where σ(z) = sz, else nan."""
    return (
        activation.slopes[1] if activation.slopes is not None and is_linear(activation) else np.nan
    )


def degree(activation: Activation) -> float:
    """Return d where σ(cz) = c^d σ(z) for c > 0, else nan."""
    return np.nan if activation.degree is None else activation.degree


def is_real(activation: Activation) -> bool:
    """Whether σ(cz) = c^d σ(z) also for c < 0."""
    return activation.scalars == "real"


def linear_neurons(net: MLP) -> list[np.ndarray]:
    """Return the indices of linear neurons in each hidden layer."""
    return [np.flatnonzero(mask) for mask in hidden_property(net, is_linear)]


def require(
    net: MLP, group: str, has: Callable[[Activation], bool], lacks: str, remedy: str
) -> None:
    """Refuse a network no hidden neuron of which has the property, naming the property."""
    activations = [a for entry in net.activation for a, _ in per_neuron(entry, 1)]
    if not any(has(a) for a in activations):
        names = ", ".join(sorted({repr(a.name) for a in activations}))
        raise ValueError(f"`net` uses {names}, which {lacks}; {group} needs {remedy}.")
