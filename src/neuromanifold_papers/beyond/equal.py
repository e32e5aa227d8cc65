"""Moves of parameters that keep the function of a perceptron, and what is measured before and
after.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm

Network = tuple[nm.MLP, tuple[nm.Layer, ...]]


def widen(
    network: Network, layer: int, unit: tuple[Any, Any, Any], outgoing: Any = None
) -> Network:
    """The network with one more unit in a hidden layer: its incoming weights, its bias and its
    outgoing weights; `outgoing` replaces those of all the others.
    """
    net, params = network
    weights, bias, out = unit
    into, onto = params[layer], params[layer + 1]
    others = onto.weight if outgoing is None else outgoing
    grown = list(params)
    grown[layer] = nm.Layer(np.vstack([into.weight, weights]), np.append(into.bias, bias))
    grown[layer + 1] = nm.Layer(np.column_stack([others, out]), onto.bias)
    widths = list(net.widths)
    widths[layer + 1] += 1
    return nm.MLP(tuple(widths), net.activation), tuple(grown)


def split(network: Network, layer: int = 0) -> Network:
    """The first unit of a hidden layer twice, each with half of its outgoing weights."""
    _, params = network
    onto = params[layer + 1].weight.copy()
    onto[:, 0] /= 2
    unit = params[layer].weight[0], params[layer].bias[0], onto[:, 0]
    return widen(network, layer, unit, onto)


def silent(network: Network, layer: int = 0) -> Network:
    """One more unit that nothing reads."""
    _, params = network
    incoming = np.array([0.625, -0.375, 0.875])[: params[layer].weight.shape[1]]
    return widen(network, layer, (incoming, 0.25, np.zeros(len(params[layer + 1].weight))))


def zero(network: Network, layer: int = 0) -> Network:
    """One more unit, all of whose weights are zero."""
    _, params = network
    nothing = np.zeros(params[layer].weight.shape[1])
    return widen(network, layer, (nothing, 0.0, np.zeros(len(params[layer + 1].weight))))


def rescaled(network: Network) -> Network:
    """Incoming weights times powers of two, outgoing weights divided: exact in floating point."""
    net, params = network
    powers = np.random.default_rng(0).integers(-2, 3, sum(net.widths[1:-1]))
    group = nm.symmetry.ScalingGroup(net)
    return net, _float64(group.element(powers * np.log(2.0))(params))


def permuted(network: Network) -> Network:
    """The units of every layer in another order."""
    net, params = network
    group = nm.symmetry.PermutationGroup(net)
    return net, _float64(group.sample(key=jax.random.key(0))(params))


def flipped(network: Network) -> Network:
    """Units with the other sign on both sides (odd activations), in another order."""
    net, params = network
    group = nm.symmetry.SignGroup(net)
    return permuted((net, _float64(group.sample(key=jax.random.key(2))(params))))


def reduced(network: Network) -> Network:
    """What `reduce_width` makes of the network with a unit split and a silent one added."""
    found = nm.reduce_width(*silent(split(network)))
    return found.net, _float64(found.params)


def _float64(params: Any) -> Any:
    return jax.tree.map(lambda a: np.asarray(a, np.float64), params)


MOVES: dict[str, Callable[[Network], Network]] = {
    "none": lambda network: network,
    "permuted": permuted,
    "rescaled": rescaled,
    "a unit split": split,
    "a silent unit added": silent,
    "both, then reduced": reduced,
}
"""Moves of a ReLU network."""

DEGENERATE: dict[str, tuple[Callable[[Network], Network], float]] = {
    "none": (lambda network: network, 0.0),
    "flipped, permuted": (flipped, 0.0),
    "a unit split": (split, 1 / 2),
    "a silent unit added": (silent, 1 / 2),
    "a zero unit added": (zero, 1 / 2),
    "split and silent, reduced": (reduced, 0.0),
}
"""Moves of a tanh network with one input, and by how much they raise λ.

Split: let a = a₁ + a₂ be the outgoing weight and w₁ = w + δ₁, w₂ = w + δ₂ the incoming ones with the
bias, d = 2 numbers each. To first order f sees Σaᵢ and Σaᵢδᵢ, as many numbers as before: the rank
stays. On a₁δ₁ = −a₂δ₂ it sees δ₁ to second order, through tanh″(w·x)(δ₁·x)², so that the loss grows
like |δ₁|⁴: d/4 more. Silent: f sees a only, and a = 0 is the set of minima: ½, and the rank grows by
one. Zero: a tanh(w·x) is a(w·x) to first order, |a|²|w|² vanishes like ½ (as a tanh(wx + b) at 0), and
the rank stays.
"""


def perceptron(widths: tuple[int, ...], activation: str) -> Network:
    """A network with random parameters, which are multiples of 2⁻¹⁰, so that moves are exact."""
    net = nm.MLP(widths, activation)
    drawn = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
    return net, jax.tree.map(lambda a: np.round(np.asarray(a, np.float64) * 1024) / 1024, drawn)


def unit() -> Network:
    """4 tanh(2x + ½) + ¼: one unit, of which outputs see the bend."""
    first = nm.Layer(np.array([[2.0]]), np.array([0.5]))
    return nm.MLP((1, 1, 1), "tanh"), (first, nm.Layer(np.array([[4.0]]), np.array([0.25])))


def measured(network: Network, x: np.ndarray, y: np.ndarray, far: np.ndarray) -> dict[str, float]:
    """What is measured of a ReLU network: exact ranks, and numbers of its kernel and loss."""
    net, params = network
    kernel = nm.spectrum(net, params, x)
    ranks = nm.bottleneck.ranks_along(net, params, x)
    balances = np.asarray(nm.conserved_quantities(net, params).values)
    return {
        "rank of ∂f/∂x": int(ranks.cuts[0].to_output),
        "functional dimension on the sample": int(
            nm.functional_dimension(net, params, x, exact=True)
        ),
        "functional dimension on other inputs": int(
            nm.functional_dimension(net, params, far, exact=True)
        ),
        "ranks of the weights": sum(int(layer.weight) for layer in ranks.layers),
        "ranks of the representations": sum(int(layer.representation) for layer in ranks.layers),
        "effective rank of the kernel": float(kernel.effective_rank),
        "trace of the kernel": float(kernel.trace),
        "largest eigenvalue": float(kernel.eigenvalues[0]),
        "sharpness": float(nm.sharpness(net, params, x, y)),
        "sum of |balances|": float(np.abs(balances).sum()),
    }


def outputs(network: Network, x: np.ndarray) -> np.ndarray:
    """f(x) in float64."""
    net, params = network
    with jax.enable_x64(True):
        return np.asarray(net(jax.tree.map(jnp.asarray, params), jnp.asarray(x)))
