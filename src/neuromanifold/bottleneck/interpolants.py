"""Theorem 10: networks of bottleneck rank 1 that fit N points of a k*-dimensional target.
[bottleneck, Thm 10]
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.bottleneck.balance import balance
from neuromanifold.bottleneck.kernel import ntk_trace_by_layer
from neuromanifold.bottleneck.passage import passage, squared_norm
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import MatrixLike, check_depth, check_matrix


@dataclass(frozen=True, repr=False)
class Interpolant(Result):
    """A network that passes the points `x` through one neuron and fits `y` on all of them."""

    net: MLP
    params: Params
    x: Array
    y: Array

    @property
    def c1(self) -> float:
        """‖θ‖² − L."""
        return squared_norm(self.net, self.params) - self.net.depth

    @property
    def steepest(self) -> float:
        """max ‖Jf(x)‖_op over the points."""
        J = passage(self.net, self.params, self.x).jacobian()
        return float(np.linalg.norm(J, ord=2, axis=(1, 2)).max())

    @property
    def trace(self) -> float:
        """max Tr Θ(x, x) over the points, without bias terms."""
        return float(
            ntk_trace_by_layer(self.net, self.params, self.x, bias=False).sum(axis=1).max()
        )

    @property
    def exponent_side(self) -> float:
        """L e^{−c₁} N^{4−4/k*}: what Tr Θ exceeds up to a constant, by the theorem."""
        n, k = self.y.shape
        return self.net.depth * float(np.exp(-self.c1)) * n ** (4 - 4 / k)


def folded_interpolant(dimension: int, folds: int, depth: int) -> Interpolant:
    """Return the identity at N = 2^{qk} points of [0, 1]^k, fitted by a curve that depends on the
    last coordinate alone.   [bottleneck, Thm 10]

    f(x) = (T^{(k−1)q}(t), …, T^q(t), t) with t = x_k and T the tent map, q = `folds`. The points
    are (j + ½)/N on the curve: a sheared lattice, one point in each cell of side 2^{−q}. The curve
    is as short as the theorem allows, N^{1−1/k}, and folding in (k−1)q layers keeps c₁ of the order
    log N. Scalings are balanced, so this is the cheapest of its orbit.

    `dimension` is k, `depth` the number of layers.

    >>> from neuromanifold.bottleneck import folded_interpolant
    >>> found = folded_interpolant(2, 2, 12)
    >>> len(found.y), bool(np.allclose(found.net(found.params, found.x), found.y))
    (16, True)
    """
    k, q, L = _check_dimension(dimension), check_depth(folds), check_depth(depth)
    stages = (k - 1) * q
    scalars = L - 1 - stages
    if scalars < 1:
        raise ValueError(f"`depth` is {depth}; {stages} folds need at least {stages + 2} layers.")
    layers = [
        Layer(np.eye(k)[-1:], np.zeros(1)),
        *[Layer(np.ones((1, 1)), np.zeros(1))] * (scalars - 1),
    ]
    carried, current = np.ones((1, 1)), np.ones((1, 1))
    for stage in range(1, stages + 1):
        kept = len(carried)
        layers.append(
            Layer(
                np.vstack([carried, current, current]), np.concatenate([np.zeros(kept + 1), [-0.5]])
            )
        )
        current = np.concatenate([np.zeros(kept), [2.0, -4.0]])[None]
        carried = np.hstack([np.eye(kept), np.zeros((kept, 2))])
        if stage % q == 0:
            carried = np.vstack([current, carried])
    layers.append(Layer(carried, np.zeros(k)))
    n = 2 ** (q * k)
    t = (np.arange(n) + 0.5) / n
    y = np.stack([_tent(t, i * q) for i in reversed(range(k))], axis=1)
    net = MLP((k, *(len(layer.weight) for layer in layers)), "relu")
    return Interpolant(net, balance(net, tuple(layers)), y, y)


def _tent(t: np.ndarray, times: int) -> np.ndarray:
    for _ in range(times):
        t = np.minimum(2 * t, 2 - 2 * t)
    return t


def _check_dimension(dimension: Any) -> int:
    if dimension != int(dimension) or dimension < 2:
        raise ValueError(
            f"`dimension` is {dimension!r}; the theorem is about k* ≥ 2: pass a whole number, two or more."
        )
    return int(dimension)


@follows
def polyline_interpolant(points: MatrixLike, depth: int) -> Interpolant:
    """Return the identity at any points of [0, 1]^k, fitted by the polyline that visits them in the
    order of the sum of their coordinates.

    One hidden layer of N − 1 kinks after the neuron that all points pass: works for every sample,
    at the price of a c₁ that grows like a power of N.

    `points` is (N, k), `depth` the number of layers.

    >>> from neuromanifold.bottleneck import polyline_interpolant
    >>> found = polyline_interpolant(np.array([[0.0, 0.0], [1.0, 0.5], [0.5, 0.25]]), 4)
    >>> bool(np.allclose(found.net(found.params, found.x), found.y))
    True
    """
    Y, L = check_matrix(points, "points"), check_depth(depth)
    n, k = Y.shape
    direction = np.full(k, k**-0.5)
    t = Y @ direction
    if L < 3 or Y.min() < 0 or len(np.unique(t)) < n:
        raise ValueError(
            f"`points` has the least entry {Y.min():.3g} and {len(np.unique(t))} different coordinate "
            f"sums in {n} rows, and `depth` is {L}; pass nonnegative points with distinct coordinate "
            "sums, and a depth of at least 3."
        )
    order = np.argsort(t)
    y, t = Y[order], t[order]
    slopes = np.diff(y, axis=0) / np.diff(t)[:, None]
    changes = np.diff(slopes, axis=0, prepend=np.zeros((1, k)))
    layers = [
        Layer(direction[None], np.zeros(1)),
        *[Layer(np.ones((1, 1)), np.zeros(1))] * (L - 3),
        Layer(np.ones((n - 1, 1)), -t[:-1]),
        Layer(changes.T, y[0]),
    ]
    net = MLP((k, *(len(layer.weight) for layer in layers)), "relu")
    return Interpolant(net, balance(net, tuple(layers)), Y, Y)
