"""The induced fields of networks over any ring with nilpotents: forward and backward pass, one lane per control.

A control is a sample with a cotangent, (x, c); its field is X(θ) = ∇_θ Σ_i ⟨c_i, f_θ(x_i)⟩. Points are elements of the
nilpotent algebra with entries (lanes, D), columns in `ravel_pytree(params)` order.
"""

import abc
import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.walk import walk
from neuromanifold.models.activation import Activation
from neuromanifold.models.mlp import MLP, Entry
from neuromanifold.orbits import nilpotent
from neuromanifold.orbits.derivatives import derivatives
from neuromanifold.orbits.elements import Element, Elements
from neuromanifold.orbits.rings import Reals, Ring


class Control(NamedTuple):
    """Samples (lanes, c, *in) and cotangents (lanes, c, *out), elements of the ring."""

    x: np.ndarray
    cotangent: np.ndarray


class Fields(abc.ABC):
    """X over a ring: a point with 2ⁿ entries to a vector with 2ⁿ entries."""

    ring: Ring

    @abc.abstractmethod
    def __call__(self, theta: np.ndarray, control: Control) -> np.ndarray:
        """The field of each lane's control at each lane's point."""


@dataclass(frozen=True)
class DenseFields(Fields):
    """The fields of an MLP in float64, whatever bends."""

    net: MLP
    ring: Ring = field(default_factory=Reals)

    def __call__(self, theta: np.ndarray, control: Control) -> np.ndarray:
        """∂W_l = δ_lᵀ a_{l−1}, ∂b_l = Σ δ_l, with δ_{l−1} = (δ_l W_l) ∘ σ'(z_{l−1})."""
        layers, scales = self._layers(theta), self._scales()
        a, inputs, slopes = control.x[None], [], []
        for (W, b), entry, scale in zip(layers, self.net.activations, scales, strict=True):
            inputs.append(a)
            z = self._scaled(nilpotent.matmul(self.ring, a, _transpose(W)), scale)
            z = z if b is None else nilpotent.add(self.ring, z, _over_samples(b, z))
            a, slope = self._activate(entry, z)
            slopes.append(slope)
        delta, parts = control.cotangent[None], []
        for (W, b), a, slope, scale in reversed(list(zip(layers, inputs, slopes, scales, strict=True))):
            delta = delta if slope is None else nilpotent.multiply(self.ring, delta, slope)
            scaled = self._scaled(delta, scale)
            if b is not None:
                ones = self.ring.embed(np.ones((1, 1, 1, delta.shape[-2])))
                parts.append(nilpotent.matmul(self.ring, ones, delta))
            parts.append(nilpotent.matmul(self.ring, _transpose(scaled), a))
            delta = nilpotent.matmul(self.ring, scaled, W)
        n = nilpotent.generators(theta)
        flat = [nilpotent.extend(part.reshape(*part.shape[:2], -1), n) for part in reversed(parts)]
        return np.concatenate(flat, axis=-1)

    def _layers(self, theta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray | None]]:
        layers, start = [], 0
        for fan_in, out in pairwise(self.net.widths):
            W = theta[..., start : start + out * fan_in].reshape(*theta.shape[:-1], out, fan_in)
            start += out * fan_in
            b = theta[..., start : start + out] if self.net.bias else None
            start += out * self.net.bias
            layers.append((W, b))
        return layers

    def _scales(self) -> list[np.ndarray | None]:
        if self.net.scaling == "standard":
            return [None] * self.net.depth
        return [np.array(scale) for scale in self.net.weight_scales]

    def _scaled(self, a: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
        return a if scale is None else self.ring.multiply(a, scale)

    def _activate(self, entry: Entry, z: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """(σ(z), σ'(z)); no slope where σ is the identity."""
        if isinstance(entry, Activation) and entry.polynomial == (0.0, 1.0):
            return z, None
        order = nilpotent.generators(z) + 1
        return nilpotent.compose(self.ring, derivatives(self.ring, entry, z[0], order), z)


@dataclass(frozen=True)
class WalkedFields(Fields):
    """The fields of any network without bends, by one walk through the program of the gradient."""

    graph: Graph
    ring: Ring

    def __call__(self, theta: np.ndarray, control: Control) -> np.ndarray:
        leaves, start = [], 0
        for leaf in jax.tree.leaves(self.graph.params):
            size = math.prod(leaf.shape)
            leaves.append(Element(theta[..., start : start + size].reshape(*theta.shape[:2], *leaf.shape)))
            start += size
        program = programs.gradients(self.graph, control.x.shape[1])
        data = (Element(control.x[None]), Element(control.cotangent.reshape(1, *control.cotangent.shape[:2], -1)))
        [found] = walk(program, Elements(self.ring), [*leaves, *data])
        lanes = np.broadcast_to(found.entries, (len(found.entries), theta.shape[1], start))
        return nilpotent.extend(lanes, nilpotent.generators(theta))


def _transpose(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def _over_samples(b: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.broadcast_to(b[:, :, None], (*b.shape[:2], z.shape[2], b.shape[-1]))
