"""Balanced parameters: every hidden neuron takes in as much as it gives out.   [bottleneck, Thm 7]"""

from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.bottleneck.passage import squared_norm
from neuromanifold.models.activation import per_neuron
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import follows


def imbalances(net: MLP, params: Params) -> tuple[Float[np.ndarray, " _"], ...]:
    """‖W_{l,i·}‖² + b_{l,i}² − ‖W_{l+1,·i}‖² of every hidden neuron; zero at every minimum of a
    loss with ridge.
    """
    squares = [
        (scale * np.asarray(layer.weight, np.float64)) ** 2
        for layer, scale in zip(params, net.weight_scales, strict=True)
    ]
    found = []
    for layer, inner, outer in zip(params[:-1], squares[:-1], squares[1:], strict=True):
        bias = 0.0 if layer.bias is None else np.asarray(layer.bias, np.float64) ** 2
        found.append(inner.sum(axis=1) + bias - outer.sum(axis=0))
    return tuple(found)


def balance_defect(net: MLP, params: Params) -> float:
    """Return the largest imbalance of a neuron relative to ‖θ‖²/L.

    >>> from neuromanifold.bottleneck import balance_defect
    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> balance_defect(net, (nm.Layer(np.array([[2.0]])), nm.Layer(np.array([[1.0]]))))      # (4 − 1)/((4 + 1)/2)
    1.2
    """
    net.check_params(params)
    norm = squared_norm(net, params)
    largest = max((float(np.abs(d).max()) for d in imbalances(net, params)), default=0.0)
    return largest / (norm / net.depth) if norm > 0 else 0.0


@follows
def balance(net: MLP, params: Params, *, rtol: float = 1e-13, iterations: int = 200) -> Params:
    """Return the cheapest parameters that differ from these by positive scalings of neurons, which
    leave the function as it is.

    min over u of Σ_l Σ_ij W_{l,ij}² e^{2(u_{l,i} − u_{l-1,j})} + b_{l,i}² e^{2u_{l,i}}: convex, and
    stationary exactly where balanced. Newton's method on the logarithms of the scalings; a neuron
    that takes in or gives out nothing is set to zero, with all that depends on it alone.

    It stops after `iterations` steps, or once `balance_defect` is at most `rtol`.

    >>> from neuromanifold.bottleneck import balance
    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> [layer.weight.item() for layer in balance(net, (nm.Layer(np.array([[8.0]])), nm.Layer(np.array([[2.0]]))))]
    [4.0, 4.0]
    """
    net.check_params(params)
    _require_homogeneous(net)
    layers = _without_dead_neurons(params)
    shifts = [np.zeros(width) for width in net.widths[1:-1]]
    for _ in range(iterations):
        scaled = _scale_layers(layers, shifts)
        if balance_defect(net, scaled) <= rtol:
            return scaled
        step = _newton_step(scaled)
        largest = max((float(np.abs(s).max()) for s in step), default=0.0)
        damping = min(1.0, 1.0 / largest) if largest > 0 else 1.0
        moved = [u + damping * s for u, s in zip(shifts, step, strict=True)]
        if np.all([np.array_equal(a, b) for a, b in zip(moved, shifts, strict=True)]):
            break
        shifts = moved
    return _scale_layers(layers, shifts)


def _require_homogeneous(net: MLP) -> None:
    if net.scaling != "standard":
        raise ValueError(
            f"`net` has scaling {net.scaling!r}; balancing is for scaling='standard': pass such a network."
        )
    for entry in net.activation:
        for activation, _ in per_neuron(entry, 1):
            if activation.degree != 1.0:
                raise ValueError(
                    f"`net` uses {activation.name!r}, which is not homogeneous of degree 1; "
                    "scaling its neurons changes the function: pass a network with relu, leaky_relu or "
                    "identity."
                )


def _without_dead_neurons(params: Params) -> tuple[Layer, ...]:
    layers = [
        Layer(
            np.array(p.weight, np.float64), None if p.bias is None else np.array(p.bias, np.float64)
        )
        for p in params
    ]
    while True:
        found = False
        for layer, after in zip(layers[:-1], layers[1:], strict=True):
            taken = np.any(layer.weight != 0, axis=1) | (
                False if layer.bias is None else layer.bias != 0
            )
            given = np.any(after.weight != 0, axis=0)
            dead = taken != given
            found = found or bool(dead.any())
            layer.weight[dead] = 0.0
            after.weight[:, dead] = 0.0
            if layer.bias is not None:
                layer.bias[dead] = 0.0
        if not found:
            return tuple(layers)


def _scale_layers(layers: tuple[Layer, ...], shifts: list[np.ndarray]) -> tuple[Layer, ...]:
    inner = [np.zeros(layers[0].weight.shape[1]), *shifts, np.zeros(layers[-1].weight.shape[0])]
    return tuple(
        Layer(
            layer.weight * np.exp(after[:, None] - before[None, :]),
            None if layer.bias is None else layer.bias * np.exp(after),
        )
        for layer, before, after in zip(layers, inner[:-1], inner[1:], strict=True)
    )


def _newton_step(layers: tuple[Layer, ...]) -> list[np.ndarray]:
    """−H⁻¹g for the norm as a function of log-scalings at zero; H/4 is a weighted graph
    Laplacian with boundary.
    """
    import scipy.sparse as sparse
    from scipy.sparse.linalg import splu

    hidden = [layer.weight.shape[0] for layer in layers[:-1]]
    if not hidden:
        return []
    taken = [
        np.sum(p.weight**2, axis=1) + (0.0 if p.bias is None else p.bias**2) for p in layers[:-1]
    ]
    given = [np.sum(p.weight**2, axis=0) for p in layers[1:]]
    blocks: list[list[Any]] = [[None] * len(hidden) for _ in hidden]
    for l in range(len(hidden)):
        diagonal = taken[l] + given[l]
        blocks[l][l] = sparse.diags(np.where(diagonal > 0, diagonal * (1 + 1e-14), 1.0))
        if l:
            between = sparse.csr_matrix(-(layers[l].weight ** 2))
            blocks[l][l - 1], blocks[l - 1][l] = between, between.T
    gradient = np.concatenate([t - g for t, g in zip(taken, given, strict=True)])
    solution = splu(sparse.csc_matrix(sparse.bmat(blocks))).solve(-gradient / 2)
    return np.split(solution, np.cumsum(hidden)[:-1])
