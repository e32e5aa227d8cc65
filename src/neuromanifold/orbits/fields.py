"""The induced fields of networks over any ring with nilpotents: forward and backward pass, one lane
per control.

A control is a sample with a cotangent, (x, c); its field is X(θ) = ∇_θ Σ_i ⟨c_i, f_θ(x_i)⟩. Points
are elements of the nilpotent algebra with entries (lanes, D), columns in `ravel_pytree(params)`
order.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import factorial
from typing import NamedTuple

import jax
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.primitives import Primitive
from neuromanifold.graph.walk import walk
from neuromanifold.models.activation import Activation
from neuromanifold.models.mlp import MLP, Entry
from neuromanifold.orbits import nilpotent
from neuromanifold.orbits.derivatives import derivatives, named_derivatives
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
        for (W, b), a, slope, scale in reversed(
            list(zip(layers, inputs, slopes, scales, strict=True))
        ):
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
            leaves.append(
                Element(theta[..., start : start + size].reshape(*theta.shape[:2], *leaf.shape))
            )
            start += size
        program = programs.gradients(self.graph, control.x.shape[1])
        data = (
            Element(control.x[None]),
            Element(control.cotangent.reshape(1, *control.cotangent.shape[:2], -1)),
        )
        [found] = walk(program, Elements(self.ring), [*leaves, *data])
        lanes = np.broadcast_to(found.entries, (len(found.entries), theta.shape[1], start))
        return nilpotent.extend(lanes, nilpotent.generators(theta))


def _transpose(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def _over_samples(b: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.broadcast_to(b[:, :, None], (*b.shape[:2], z.shape[2], b.shape[-1]))


class Element(NamedTuple):
    """Entries (2ⁿ, lanes, *shape): the coefficients of ε_S, for many points at once."""

    entries: np.ndarray


class Elements(Arithmetic):
    """Arithmetic over `ring` with nilpotents. Programs do not see subsets and lanes: their axes
    stand in front of all others.
    """

    name = "nilpotent elements"

    def __init__(self, ring: Ring):
        self.ring = ring

    def lift(self, a: np.ndarray) -> Element:
        return Element(self.ring.embed(np.asarray(a, np.float64)[None, None]))

    def shape(self, a: Element) -> tuple[int, ...]:
        return a.entries.shape[2:]

    def rearrange(self, fn: Callable[..., np.ndarray], *values: Element) -> Element:
        """The map is read off from places: place 0 is a zero, the others count through the
        values.
        """
        places, count = [], 1
        for value in values:
            size = int(np.prod(self.shape(value), dtype=int))
            places.append(np.arange(count, count + size).reshape(self.shape(value)))
            count += size
        moved = np.asarray(fn(*places))
        pool = _side_by_side(values)
        if (moved == 0).any():
            pool = np.concatenate([np.zeros((*pool.shape[:2], 1), pool.dtype), pool], axis=2)
        else:
            moved = moved - 1
        whole = moved.size == pool.shape[2] and np.array_equal(moved.ravel(), np.arange(moved.size))
        return Element(
            (pool if whole else pool[:, :, moved.ravel()]).reshape(*pool.shape[:2], *moved.shape)
        )

    def add(self, a: Element, b: Element) -> Element:
        return Element(nilpotent.add(self.ring, *_alike(a, b)))

    def negate(self, a: Element) -> Element:
        return Element(self.ring.negate(a.entries))

    def multiply(self, a: Element, b: Element) -> Element:
        return Element(nilpotent.multiply(self.ring, *_alike(a, b)))

    def dot(self, a: Element, b: Element) -> Element:
        return Element(nilpotent.matmul(self.ring, a.entries, b.entries))

    def divide(self, a: Element, b: Element) -> Element:
        """a·(1/b), from the derivatives (−1)ᵏ k! / b^(k+1) of the reciprocal at the constant
        term.
        """
        inverse = self.ring.inverse(b.entries[0])
        tower, power = [], inverse
        for k in range(nilpotent.generators(b.entries) + 2):
            tower.append(
                self.ring.multiply(power, self.ring.embed(np.array([(-1.0) ** k * factorial(k)])))
            )
            power = self.ring.multiply(power, inverse)
        return self.multiply(a, Element(nilpotent.compose(self.ring, tower, b.entries)[0]))

    def sum(self, a: Element, axes: tuple[int, ...]) -> Element:
        shape = self.shape(a)
        axes = tuple(axis % len(shape) for axis in axes)
        kept = tuple(shape[d] for d in range(len(shape)) if d not in axes)
        rows = self.rearrange(
            lambda v: np.moveaxis(v, axes, range(-len(axes), 0)).reshape(*kept, 1, -1), a
        )
        ones = self.ring.embed(np.ones((1, 1, *[1] * len(kept), self.shape(rows)[-1], 1)))
        total = nilpotent.matmul(self.ring, rows.entries, ones)
        return Element(total.reshape(*total.shape[:2], *kept))

    def scatter_add(self, base: Element, index: np.ndarray, updates: Element) -> Element:
        order = np.argsort(index, axis=None, kind="stable")
        places, starts = np.unique(index.ravel()[order], return_index=True)
        if not len(places):
            return base
        flat = self.rearrange(lambda v: v.reshape(-1)[order], updates).entries
        sums = np.moveaxis(self.ring.sum_runs(np.moveaxis(flat, 2, 0), starts), 0, 2)
        zero, size = np.zeros((1, 1, 1), sums.dtype), int(np.prod(self.shape(base), dtype=int))
        places_of = np.zeros(size, int)
        places_of[places] = 1 + np.arange(len(places))
        spread = np.concatenate([np.broadcast_to(zero, (*sums.shape[:2], 1)), sums], axis=2)[
            :, :, places_of
        ]
        return self.add(base, Element(spread.reshape(*spread.shape[:2], *self.shape(base))))

    def smooth(self, primitive: Primitive, options: object, *values: Element) -> Element:
        if len(values) != 1:
            return super().smooth(primitive, options, *values)
        [z] = values
        tower = named_derivatives(
            self.ring, primitive, z.entries[0], nilpotent.generators(z.entries) + 1
        )
        return Element(nilpotent.compose(self.ring, tower, z.entries)[0])


def _alike(a: Element, b: Element) -> tuple[np.ndarray, np.ndarray]:
    """Entries with as many axes: a scalar meets any shape."""
    ndim = max(a.entries.ndim, b.entries.ndim)
    first, second = (
        v.entries.reshape(*v.entries.shape, *[1] * (ndim - v.entries.ndim)) for v in (a, b)
    )
    return first, second


def _side_by_side(values: tuple[Element, ...]) -> np.ndarray:
    """All entries flat behind subsets and lanes, (2ⁿ, lanes, total)."""
    n = max(nilpotent.generators(v.entries) for v in values)
    lanes = max(v.entries.shape[1] for v in values)
    flat = [nilpotent.extend(v.entries.reshape(*v.entries.shape[:2], -1), n) for v in values]
    if len(flat) == 1:
        return flat[0]
    return np.concatenate(
        [np.broadcast_to(a, (a.shape[0], lanes, a.shape[2])) for a in flat], axis=2
    )
