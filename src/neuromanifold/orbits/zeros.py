"""The manifolds of silent neurons, invariant though no symmetry of the whole function holds
them.   [invariant, Thm 4.2 (iii), (iv)]
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.activation import Activation
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics.randomness import host_generator
from neuromanifold.numerics.results import Result
from neuromanifold.orbits.genericity import is_flat_at_zero, vanishes_at_zero
from neuromanifold.orbits.partition import on_host, vector
from neuromanifold.symmetry.groups.hadamard import flatten, template, unflatten
from neuromanifold.symmetry.groups.monomial import Monomial, monomial
from neuromanifold.symmetry.groups.neurons import by_neuron


@dataclass(frozen=True, eq=False, repr=False)
class ZeroManifold(Result):
    """Parameters some of whose coordinates are held at given values, the others free.

    `fixed` and `values` are in `ravel_pytree` order. `flip` is the sign change Λ that is
    first-order invariant at its own fixed points, of which the manifold is a part: all of them, or
    those with the given entries c_ij.
    """

    net: MLP
    fixed: np.ndarray
    values: np.ndarray
    flip: Monomial

    @property
    def dimension(self) -> int:
        """The number of free coordinates."""
        return int((~self.fixed).sum())

    @property
    def basis(self) -> np.ndarray:
        """The unit vectors of the free coordinates, one row each: an orthonormal basis of the
        tangent space.
        """
        return np.eye(len(self.fixed))[~self.fixed]

    def project(self, params: Params) -> Params:
        """Return the nearest point of the manifold."""
        return unflatten(
            on_host(params), np.where(self.fixed, self.values, vector(self.net, params))
        )

    def distance(self, params: Params) -> float:
        """Return the length of what the held coordinates lack."""
        return float(np.linalg.norm((vector(self.net, params) - self.values)[self.fixed]))

    def contains(self, params: Params, *, atol: float = 0.0) -> bool:
        """Return whether every held coordinate is within `atol` of its value."""
        return bool((np.abs(vector(self.net, params) - self.values)[self.fixed] <= atol).all())

    def sample(self, *, key: Any) -> Params:
        """Return a random point: standard normal free coordinates."""
        drawn = host_generator(key).standard_normal(len(self.fixed))
        return unflatten(template(self.net), np.where(self.fixed, self.values, drawn))

    def __str__(self) -> str:
        return f"zero manifold of dimension {self.dimension} of {len(self.fixed)}"


def zero_blocks(
    net: MLP, neurons: Sequence[Iterable[int]], frozen: Params | None = None
) -> ZeroManifold:
    """Return the manifold of silent neurons for σ(0) = 0: I_l the chosen neurons of hidden layer l.
    [invariant, Thm 4.2 (iii)]

    W_ij = 0 where one of i ∈ I_l, j ∈ I_{l−1} holds and not the other, b_i = 0 for i ∈ I_l, and
    W_ij = c_ij where both hold: between silent neurons weights may have any values, and keep them.
    The c_ij are the entries of `frozen`, else zero.

    `neurons` has the chosen ones of each hidden layer.

    >>> net = nm.MLP((1, 3, 1), "silu", bias=False)
    >>> zero_blocks(net, [{0}]).dimension                # neuron 0 has no weights, the others have two each
    4
    """
    chosen = _choose_masks(net, neurons, range(1, net.depth))
    _require(net, chosen, vanishes_at_zero, "σ(0) ≠ 0", "tanh, sin, erf, silu, gelu or relu")
    sets = [np.zeros(net.widths[0], bool), *(c for c in chosen), np.zeros(net.widths[-1], bool)]
    layers, values = [], []
    given = template(net) if frozen is None else on_host(frozen)
    net.check_params(given)
    for before, after, layer in zip(sets[:-1], sets[1:], given, strict=True):
        both = after[:, None] & before
        bias = None if layer.bias is None else after
        layers.append(Layer(after[:, None] | before, bias))
        values.append(
            Layer(np.where(both, layer.weight, 0.0), None if bias is None else np.zeros(len(after)))
        )
    signs = [np.where(c, -1.0, 1.0) for c in chosen]
    return ZeroManifold(
        net, flatten(tuple(layers)), flatten(tuple(values)), monomial(net, into=signs, out=signs)
    )


def zero_rows(net: MLP, neurons: Sequence[Iterable[int]]) -> ZeroManifold:
    """Return the manifold of neurons without input for σ'(0) = 0: (W, b)_j = 0 for the chosen
    neurons of each layer.   [invariant, Thm 4.2 (iv)]

    `neurons` has one entry for each hidden layer, or one more for the output layer, whose
    activation must then be flat too.

    >>> zero_rows(nm.MLP((2, 3, 1), "cos"), [{0, 1}]).dimension              # 13 parameters, two rows of (w, b) held at zero
    7
    """
    last = net.depth if len(neurons) == net.depth else net.depth - 1
    chosen = _choose_masks(net, neurons, range(1, last + 1))
    _require(
        net, chosen, is_flat_at_zero, "σ'(0) ≠ 0 (or a kink there)", "cos or power(d) with d > 1"
    )
    chosen += [np.zeros(width, bool) for width in net.widths[1 + len(chosen) :]]
    layers = [
        Layer(np.repeat(c[:, None], fan_in, axis=1), c if net.bias else None)
        for c, fan_in in zip(chosen, net.widths[:-1], strict=True)
    ]
    fixed, signs = flatten(tuple(layers)), [np.where(c, -1.0, 1.0) for c in chosen]
    ones = [np.ones(width) for width in net.widths[1:-1]]
    return ZeroManifold(net, fixed, np.zeros(len(fixed)), monomial(net, into=signs, out=ones))


def _choose_masks(net: Any, neurons: Sequence[Iterable[int]], layers: range) -> list[np.ndarray]:
    require_perceptron(net, "pass an nm.MLP")
    if len(neurons) != len(layers):
        raise ValueError(
            f"`neurons` has {len(neurons)} entries for {len(layers)} layers; give a set for each, "
            "empty or not."
        )
    masks = []
    for number, members in zip(layers, neurons, strict=True):
        mask = np.zeros(net.widths[number], bool)
        for i in members:
            if not 0 <= i < net.widths[number]:
                raise ValueError(
                    f"`neurons[{number - 1}]` names neuron {i}; the layer has {net.widths[number]}."
                )
            mask[i] = True
        masks.append(mask)
    return masks


def _require(
    net: MLP, chosen: list[np.ndarray], has: Callable[[Activation], bool], lacks: str, remedy: str
) -> None:
    """Refuse neurons whose activation lacks the property."""
    for index, (mask, entry) in enumerate(zip(chosen, net.activations, strict=False)):
        width = net.widths[1 + index]
        without = mask & ~by_neuron(entry, width, has).astype(bool)
        if without.any():
            raise ValueError(
                f"`neurons[{index}]` names neuron {int(np.flatnonzero(without)[0])} with "
                f"activation {entry}, where {lacks}; "
                f"choose neurons with an activation such as {remedy}."
            )
