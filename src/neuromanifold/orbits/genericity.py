"""What the theory of invariant manifolds asks of activations and of points."""

from typing import Any

import numpy as np

from neuromanifold.models.activation import Activation
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.orbits.partition import on_host


def vanishes_at_zero(activation: Activation) -> bool:
    """Return whether σ(0) = 0: a neuron without input is silent, and sign flips are infinitesimally
    invariant. [invariant, P 4.1 (i)]

    >>> [name for name in ("tanh", "silu", "exp", "cos") if vanishes_at_zero(nm.MLP((1, 1, 1), name).activation[0])]
    ['tanh', 'silu']
    """
    return activation.at_zero == 0


def is_flat_at_zero(activation: Activation) -> bool:
    """Return whether σ'(0) = 0 and σ has no kink there: a neuron without input stays so.
    [invariant, P 4.1 (ii)]

    >>> [name for name in ("tanh", "cos", "power(3)", "relu") if is_flat_at_zero(nm.MLP((1, 1, 1), name).activation[0])]
    ['cos', 'power(3)']
    """
    return activation.analytic and activation.slope_at_zero == 0


def is_generic(activation: Activation) -> bool:
    """Return whether `activation` is analytic, no polynomial, neither odd nor even, and σ(0) ≠ 0 ≠
    σ'(0). [invariant, Def 5.2]

    >>> [name for name in ("exp", "sigmoid", "softplus", "silu", "tanh") if is_generic(nm.MLP((1, 1, 1), name).activation[0])]
    ['exp', 'sigmoid', 'softplus']
    """
    nowhere_zero = activation.at_zero != 0 and activation.slope_at_zero != 0
    return (
        activation.analytic
        and activation.polynomial is None
        and activation.parity is None
        and nowhere_zero
    )


def is_generic_odd(activation: Activation) -> bool:
    """Return whether `activation` is analytic, no polynomial, odd, and σ'(0) ≠ 0.
    [invariant, Def 5.2]

    >>> [name for name in ("tanh", "erf", "sin", "power(3)", "exp") if is_generic_odd(nm.MLP((1, 1, 1), name).activation[0])]
    ['tanh', 'erf', 'sin']
    """
    transcendental = activation.analytic and activation.polynomial is None
    return transcendental and activation.parity == "odd" and activation.slope_at_zero != 0


def is_degenerate(net: MLP, params: Params) -> bool:
    """Return whether some a_k = 0 or w_k = 0, or w_i = ±w_j for i ≠ j, in a two-layer network.
    [invariant, Def 5.1]

    A bias counts as a weight of a constant input.

    >>> net = nm.MLP((1, 2, 1), "tanh", bias=False)
    >>> is_degenerate(net, (nm.Layer(np.array([[1.0], [-1.0]])), nm.Layer(np.array([[2.0, 3.0]]))))
    True
    """
    if net.depth != 2:
        raise ValueError(
            f"`net` has {net.depth - 1} hidden layers; degeneracy is defined for one: pass such a network."
        )
    net.check_params(params)
    hidden, output = on_host(params)
    incoming = (
        hidden.weight
        if hidden.bias is None
        else np.concatenate([hidden.weight, hidden.bias[:, None]], axis=1)
    )
    return bool((output.weight == 0).all(axis=0).any() or _meet(incoming))


def _meet(rows: Any) -> bool:
    """Whether a row is zero, or two are equal or opposite."""
    same = (rows[:, None] == rows).all(axis=2) | (rows[:, None] == -rows).all(axis=2)
    return bool((rows == 0).all(axis=1).any() or (same & ~np.eye(len(rows), dtype=bool)).any())
