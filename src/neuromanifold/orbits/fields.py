"""The induced fields of networks over any ring with nilpotents: forward and backward pass, one lane per control.

A control is a sample with a cotangent, (x, c); its field is X(θ) = ∇_θ Σ_i ⟨c_i, f_θ(x_i)⟩. Points are elements of the
nilpotent algebra with entries (lanes, D), columns in `ravel_pytree(params)` order.
"""

import abc
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from neuromanifold.models.activation import Activation
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.models.mlp import MLP, Entry
from neuromanifold.numerics import modular
from neuromanifold.orbits import nilpotent
from neuromanifold.orbits.derivatives import derivatives
from neuromanifold.orbits.rings import Residues, Ring


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
    """The fields of an MLP."""

    net: MLP
    ring: Ring

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
        if isinstance(self.ring, Residues):
            p = self.ring.p
            return [np.array(pow(modular.square_root(n, p), -1, p)) for n in self.net.widths[:-1]]
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
class ConvolutionFields(Fields):
    """The fields of a linear convolutional net: f is linear in the end-to-end filter μ(θ), a product of polynomials."""

    net: LinearConvNet
    ring: Ring

    def __call__(self, theta: np.ndarray, control: Control) -> np.ndarray:
        """∂w_l[i] = ⟨G_l shifted by t_l i, μ_{l−1}⟩ with μ_l the filter of the first l layers and G_H = ∂⟨c, f⟩/∂μ."""
        filters, dilations = self._filters(theta), self.net.dilations
        products = [filters[0]]
        for w, t in zip(filters[1:], dilations[1:], strict=True):
            products.append(self._product(products[-1], w, t))
        G, parts = self._filter_gradient(control)[None], []
        for l in range(self.net.depth - 1, 0, -1):
            below = products[l - 1].shape[2:]
            windows = [_window(G, i, dilations[l], below) for i in np.ndindex(*self.net.filter_shapes[l])]
            parts.append(np.concatenate([self._dot(window, products[l - 1]) for window in windows], axis=-1))
            G = self._correlate(filters[l], windows)
        parts.append(G.reshape(*G.shape[:2], -1))
        n = nilpotent.generators(theta)
        return np.concatenate([nilpotent.extend(part, n) for part in reversed(parts)], axis=-1)

    def _filters(self, theta: np.ndarray) -> list[np.ndarray]:
        stops = np.cumsum([prod(shape) for shape in self.net.filter_shapes])[:-1]
        parts = np.split(theta, stops, axis=-1)
        return [w.reshape(*theta.shape[:2], *s) for w, s in zip(parts, self.net.filter_shapes, strict=True)]

    def _product(self, p: np.ndarray, w: np.ndarray, t: tuple[int, ...]) -> np.ndarray:
        shape = tuple(n + s * (k - 1) for n, s, k in zip(p.shape[2:], t, w.shape[2:], strict=True))
        total = np.zeros((len(p), p.shape[1], *shape), p.dtype)
        for index in np.ndindex(*w.shape[2:]):
            corner = (..., *(slice(s * i, s * i + n) for s, i, n in zip(t, index, p.shape[2:], strict=True)))
            total[corner] = self.ring.add(total[corner], self._times_entry(w, index, p))
        return total

    def _correlate(self, w: np.ndarray, windows: list[np.ndarray]) -> np.ndarray:
        total = np.zeros((1, *windows[0].shape[1:]), windows[0].dtype)
        for index, window in zip(np.ndindex(*w.shape[2:]), windows, strict=True):
            total = nilpotent.add(self.ring, total, self._times_entry(w, index, window))
        return total

    def _times_entry(self, w: np.ndarray, index: tuple[int, ...], a: np.ndarray) -> np.ndarray:
        entry = w[(..., *index)].reshape(*w.shape[:2], *[1] * (a.ndim - 2))
        return nilpotent.multiply(self.ring, entry, a)

    def _dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        rows, columns = a.reshape(*a.shape[:2], 1, -1), b.reshape(*b.shape[:2], -1, 1)
        return nilpotent.matmul(self.ring, rows, columns)[..., 0]

    def _filter_gradient(self, control: Control) -> np.ndarray:
        """G[j] = Σ_i c_i x_{is+j}, over samples and output positions."""
        x, c = control
        k, stride = self.net.end_to_end_shape, self.net.end_to_end_stride
        total = np.zeros((len(x), *k), x.dtype)
        for sample in range(x.shape[1]):
            for i in np.ndindex(*c.shape[2:]):
                patch = x[
                    (slice(None), sample, *(slice(s * a, s * a + n) for s, a, n in zip(stride, i, k, strict=True)))
                ]
                weight = c[(slice(None), sample, *i)].reshape(-1, *[1] * len(k))
                total = self.ring.add(total, self.ring.multiply(patch, weight))
        return total


def _transpose(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def _over_samples(b: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.broadcast_to(b[:, :, None], (*b.shape[:2], z.shape[2], b.shape[-1]))


def _window(G: np.ndarray, index: tuple[int, ...], t: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    return G[(..., *(slice(s * i, s * i + n) for s, i, n in zip(t, index, shape, strict=True)))]
