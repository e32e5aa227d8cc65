"""Generic ranks: what the Jacobian's rank is for almost every parameter, once the activation signs
are given.

With the sign of every neuron at every sample held, f_θ(X) is a polynomial map of θ, and the rank of
its Jacobian is largest at almost every θ: at each single θ it can only be smaller. A random θ
modulo a random 61-bit prime finds that largest rank.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from neuromanifold.graph.residues import ResidueArithmetic
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.status import LayerStatus


def reduced_layers(layers: Sequence[LayerStatus]) -> tuple[tuple[int, int], ...]:
    """Return how many linear and bent neurons each hidden layer keeps on the sample.

    The others are dead, or lie before a layer that is dead throughout: no parameter of theirs
    changes the outputs.
    """
    found, reaches = [], True
    for layer in reversed(layers):
        found.append((len(layer.linear) * reaches, len(layer.bent) * reaches))
        reaches = any(found[-1])
    return tuple(reversed(found))


def generic_rank(problem: Problem) -> int:
    """Return the rank of J at almost every θ, the gates held: the largest that any θ with these
    gates on X can have.

    Computed at uniformly random weights modulo a random prime, through a random sketch of J. It is
    never too large, and too small with probability below r·(degree + 2)/2⁶⁰ for minors of order r,
    plus that of a prime which divides all coefficients of a minor (about 10⁻¹³).
    """
    A = ResidueArithmetic(modular.random_prime())
    matrix, _ = problem.sketch(A.p, [A.random(leaf.shape) for leaf in problem.leaves])
    return modular_rank(matrix, A.p)


def symmetry_bound(net: MLP, layers: Sequence[LayerStatus]) -> int:
    """Return parameters that remain when dead neurons are removed, less the dimension of their
    generic orbit of symmetries.

    Positive scalings of bent neurons, GL(a) of the a linear neurons of a layer, and translations of
    these, which the
    next layer's biases undo:  d − dim Lie(Π D₊(r_l) × (GL(a_l) ⋉ ℝ^{a_l}))·θ  at generic θ.
    [complexity, Prop A.10]
    """
    kept = reduced_layers(layers)
    widths = (net.widths[0], *(linear + bent for linear, bent in kept), net.widths[-1])
    n_params = sum(
        out * (fan_in + net.bias) for fan_in, out in zip(widths[:-1], widths[1:], strict=True)
    )
    p = modular.random_prime()
    vectors = orbit_directions(widths, tuple(linear for linear, _ in kept), p, bias=net.bias)
    return n_params - (modular_rank(vectors, p) if len(vectors) else 0)


def orbit_directions(
    widths: tuple[int, ...],
    linear: tuple[int, ...],
    p: int,
    *,
    bias: bool = True,
    translations: bool = True,
) -> Int[np.ndarray, "g D"]:
    """Return the tangent vectors of the symmetry orbit at a random θ modulo p; of each hidden layer
    the first `linear[l]` neurons are linear.

    δ(W, b)_i = (W, b)_j with δV_{·j} = −V_{·i} for linear i, j and for i = j;  δb_i = 1 with δb' =
    −V_{·i} for linear i.
    """
    pairs = list(zip(widths[:-1], widths[1:], strict=True))
    # A layer as one matrix (W | b), so that a row is what enters a neuron.
    layers = [modular.random_residues((out, fan_in + bias), p) for fan_in, out in pairs]
    starts = np.cumsum([0, *(layer.size for layer in layers)])
    vectors: list[np.ndarray] = []

    def vector(
        index: int, i: int, row: np.ndarray, column: int, outgoing: np.ndarray
    ) -> np.ndarray:
        v = np.zeros(starts[-1], np.int64)
        here, there = (
            v[starts[k] : starts[k + 1]].reshape(layers[k].shape) for k in (index, index + 1)
        )
        here[i], there[:, column] = row, (-outgoing) % p
        return v

    for index, a in enumerate(linear):
        layer, after = layers[index : index + 2]
        couples = [(i, j) for i in range(a) for j in range(a)] + [
            (i, i) for i in range(a, len(layer))
        ]
        vectors += [vector(index, i, layer[j], j, after[:, i]) for i, j in couples]
        if bias and translations:
            unit = np.eye(layer.shape[1], dtype=np.int64)[-1]
            vectors += [vector(index, i, unit, -1, after[:, i]) for i in range(a)]
    return np.stack(vectors) if vectors else np.empty((0, int(starts[-1])), np.int64)
