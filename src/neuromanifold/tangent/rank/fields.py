"""Generators as vector fields θ ↦ Mθ + m with sparse M: one description, evaluated in floating
point or modulo a prime.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from neuromanifold.models.mlp import MLP
from neuromanifold.numerics import modular
from neuromanifold.numerics.precision import is_traced, widest

ONE = -1
"""As a source: the constant 1. As a scale: none."""


@dataclass(frozen=True, eq=False)
class VectorFields:
    """`count` vector fields: entry e adds factor[e]·scale·θ[source[e]] to component target[e] of
    field generator[e].

    Source −1 is the constant 1; scale l ≥ 0 is the factor 1/√fan_in of layer l in NTK scaling (1
    otherwise), −1 none.
    """

    net: MLP
    count: int
    generator: Int[np.ndarray, " e"]
    target: Int[np.ndarray, " e"]
    source: Int[np.ndarray, " e"]
    factor: Float[np.ndarray, " e"]
    scale: Int[np.ndarray, " e"]

    def at(self, params: Any) -> Float[Any, "g D"]:
        """The fields at θ, in the dtype of the parameters."""
        self.net.check_params(params)
        if is_traced(params):
            flat = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(params)])
            fields = jnp.zeros((self.count, self.net.n_params), flat.dtype)
            return fields.at[self.generator, self.target].add(
                self._entries(jnp.append(flat, jnp.ones((), flat.dtype)))
            )
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)]).astype(
            widest(params)
        )
        fields = np.zeros((self.count, self.net.n_params), flat.dtype)
        np.add.at(
            fields,
            (self.generator, self.target),
            self._entries(np.append(flat, np.ones((), flat.dtype))),
        )
        return fields

    def _entries(self, extended: Any) -> Any:
        scales = np.array([*self.net.weight_scales, 1.0])[self.scale]
        return (self.factor * scales).astype(extended.dtype) * extended[self.source]

    def modulo(self, params: Any, p: int) -> Int[np.ndarray, "g D"]:
        """The fields at θ modulo p, exactly."""
        self.net.check_params(params)
        leaves = [np.ravel(a) for layer in params for a in layer if a is not None]
        extended = np.append(modular.from_floats(np.concatenate(leaves).astype(np.float64), p), 1)
        scales = modular.from_floats(np.array([*self.net.weight_scales, 1.0]), p)
        factors = modular.multiply(modular.from_floats(self.factor, p), scales[self.scale], p)
        values = modular.multiply(factors, extended[self.source], p)
        fields = np.zeros((self.count, self.net.n_params), np.int64)
        # An entry of a field has at most two terms (an orthogonal pair), each below 2⁶¹.
        np.add.at(fields, (self.generator, self.target), values)
        return fields % p

    def fractions(self, params: Any) -> list[dict[int, Fraction]]:
        """The entries of the fields at θ as rational numbers, by component."""
        self.net.check_params(params)
        extended = [Fraction(float(v)) for a in jax.tree.leaves(params) for v in np.ravel(a)] + [
            Fraction(1)
        ]
        scales = [*map(Fraction, map(float, self.net.weight_scales)), Fraction(1)]
        fields = [dict[int, Fraction]() for _ in range(self.count)]
        for g, t, s, factor, k in zip(
            self.generator, self.target, self.source, self.factor, self.scale, strict=True
        ):
            entry = Fraction(float(factor)) * scales[k] * extended[s]
            fields[g][int(t)] = fields[g].get(int(t), Fraction(0)) + entry
        return fields

    def combine(self, combination: Int[np.ndarray, "h g"]) -> "VectorFields":
        """The fields Σ_k c_hk X_k for integer coefficients c."""
        h, g = np.nonzero(combination)
        pieces = [np.flatnonzero(self.generator == k) for k in g]
        entry = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
        repeat = [len(piece) for piece in pieces]
        return VectorFields(
            self.net,
            len(combination),
            np.repeat(h, repeat).astype(np.int64),
            self.target[entry],
            self.source[entry],
            self.factor[entry] * np.repeat(combination[h, g], repeat),
            self.scale[entry],
        )


@dataclass(frozen=True)
class ParameterLayout:
    """Where the weights and biases of each layer lie in the flat parameter vector."""

    net: MLP

    @cached_property
    def _starts(self) -> np.ndarray:
        widths = self.net.widths
        sizes = [
            out * (fan_in + self.net.bias)
            for fan_in, out in zip(widths[:-1], widths[1:], strict=True)
        ]
        return np.concatenate([[0], np.cumsum(sizes)])

    def weight(self, layer: int) -> Int[np.ndarray, "out in"]:
        """Positions of W_l (layers counted from 0)."""
        shape = (self.net.widths[layer + 1], self.net.widths[layer])
        return self._starts[layer] + np.arange(shape[0] * shape[1]).reshape(shape)

    def bias(self, layer: int) -> Int[np.ndarray, " out"]:
        """Positions of b_l, none when the network has no biases."""
        out = self.net.widths[layer + 1] if self.net.bias else 0
        return (
            self._starts[layer]
            + self.net.widths[layer + 1] * self.net.widths[layer]
            + np.arange(out)
        )

    def incoming(self, layer: int, neuron: int) -> Int[np.ndarray, " k"]:
        """Positions of a neuron's incoming weights and bias."""
        return np.append(self.weight(layer)[neuron], self.bias(layer)[neuron : neuron + 1])

    def outgoing(self, layer: int, neuron: int) -> Int[np.ndarray, " k"]:
        """Positions of a neuron's outgoing weights."""
        return self.weight(layer + 1)[:, neuron]


def mixing(
    layout: ParameterLayout, layer: int, i: int, j: int, up: float, down: float
) -> VectorFields:
    """One field: δ(W, b)_i = up·(W, b)_j and δV_{·j} = −down·V_{·i}, V the next layer's weights."""
    target = np.concatenate([layout.incoming(layer, i), layout.outgoing(layer, j)])
    source = np.concatenate([layout.incoming(layer, j), layout.outgoing(layer, i)])
    factor = np.concatenate(
        [np.full(len(layout.incoming(layer, i)), up), np.full(layout.net.widths[layer + 2], -down)]
    )
    return _single(layout.net, target, source, factor, ONE)


def translation(layout: ParameterLayout, layer: int, i: int, slope: float) -> VectorFields:
    """One field: δb_i = 1 and δb' = −slope·scale·V_{·i}, for a neuron with σ(z) = slope·z on the
    sample.
    """
    target = np.append(layout.bias(layer + 1), layout.bias(layer)[i])
    source = np.append(layout.outgoing(layer, i), ONE)
    factor = np.append(np.full(layout.net.widths[layer + 2], -slope), 1.0)
    scale = np.append(np.full(layout.net.widths[layer + 2], layer + 1), ONE)
    return _single(layout.net, target, source, factor, scale)


def units(net: MLP, positions: Int[np.ndarray, " k"]) -> VectorFields:
    """One constant field for each position: that parameter moves, nothing else."""
    k = len(positions)
    none = np.full(k, ONE)
    return VectorFields(
        net, k, np.arange(k), np.asarray(positions, np.int64), none, np.ones(k), none
    )


def join(net: MLP, parts: list[VectorFields]) -> VectorFields:
    """All fields one after the other."""
    counts = np.cumsum([0, *(part.count for part in parts)])
    if not parts:
        return units(net, np.empty(0, np.int64))
    return VectorFields(
        net,
        int(counts[-1]),
        np.concatenate(
            [part.generator + start for part, start in zip(parts, counts[:-1], strict=True)]
        ),
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("target", "source", "factor", "scale")
        ),
    )


def _single(net: MLP, target: Any, source: Any, factor: Any, scale: Any) -> VectorFields:
    scales = np.broadcast_to(scale, np.shape(target)).astype(np.int64)
    return VectorFields(
        net,
        1,
        np.zeros(len(target), np.int64),
        target,
        source,
        np.asarray(factor, np.float64),
        scales,
    )
