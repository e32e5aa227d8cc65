"""Closure dimension against leaf dimension, for every leaf of two-layer networks and for
degenerate points on them.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.orbits.closure import lie_closure
from neuromanifold.orbits.lattice import invariant_leaves
from neuromanifold.orbits.partition import InvariantLeaf, invariant_leaf

CLASSES = {
    "generic": ("exp", "sigmoid", "softplus"),
    "generic odd": ("tanh", "erf", "sin"),
    "even": ("cos",),
    "σ(0) = 0 only": ("silu", "gelu"),
    "polynomial": ("power(2)", "power(3)"),
}


@dataclass(frozen=True)
class Case:
    """One point: where it lies, and the two dimensions. `depth` is how deep brackets had to go."""

    family: str
    activation: str
    inputs: int
    neurons: int
    blocks: str
    point: str
    leaf: int
    closure: int
    upper_bound: int
    depth: int

    @property
    def certified(self) -> bool:
        """Whether the closure meets its upper bound."""
        return self.closure == self.upper_bound


def cases(
    widest: int, inputs: tuple[int, ...], *, every: bool, note: Callable[[], None]
) -> list[Case]:
    """A generic point of every leaf up to `widest` neurons, points with zero neurons, and
    degenerate ones.

    Of leaves that differ by a relabelling or by signs one is taken at the largest width, unless
    `every`.
    """
    found = []
    for family, activations in CLASSES.items():
        shapes = list(itertools.product(inputs, range(1, widest + 1)))
        for net in [
            MLP((d, m, 1), activation, bias=False) for activation in activations for d, m in shapes
        ]:
            d, m, _ = net.widths
            rng = np.random.default_rng([d, m])
            points = itertools.chain(
                _on_leaves(net, rng, every or m < widest),
                _zeros(net, rng, every or m < widest),
                _degenerate(net, rng),
            )
            found += [_measured(family, net, kind, params) for kind, params in points]
        note()
    return found


def _measured(family: str, net: MLP, kind: str, params: Params) -> Case:
    leaf, closure = invariant_leaf(net, params), lie_closure(net, params, key=jax.random.key(1))
    return Case(
        family,
        str(net.activation[0]),
        net.widths[0],
        net.widths[1],
        " ".join(map(str, leaf.partition[0])),
        kind,
        leaf.dimension,
        int(closure.dimension),
        closure.upper_bound,
        closure.depth,
    )


def _on_leaves(net: MLP, rng: np.random.Generator, every: bool) -> Iterator[tuple[str, Params]]:
    seen = set()
    for leaf in invariant_leaves(net):
        kind = tuple(sorted((len(block), block.zero) for block in leaf.partition[0]))
        if every or kind not in seen:
            seen.add(kind)
            yield "generic", _spread(net, leaf, rng)


def _spread(net: MLP, leaf: InvariantLeaf, rng: np.random.Generator) -> Params:
    """A point of the leaf whose neurons are well apart: weights from a grid, in random order and
    with random signs.
    """
    return leaf.project(_neurons(net, rng))


def _neurons(net: MLP, rng: np.random.Generator) -> Params:
    """Incoming weights of distinct lengths between 0.6 and 1.9, outgoing ones between 0.7 and
    1.5, signs at random.
    """
    d, m = net.widths[0], net.widths[1]
    lengths = rng.permutation(np.linspace(0.6, 1.9, m) + 0.05 * rng.random(m))
    directions = rng.normal(size=(m, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    a = rng.permutation(np.linspace(0.7, 1.5, m)) * rng.choice([-1.0, 1.0], m)
    return Layer(lengths[:, None] * directions), Layer(a[None])


def _zeros(net: MLP, rng: np.random.Generator, every: bool) -> Iterator[tuple[str, Params]]:
    """Some neurons (a, w) = 0, the others on a leaf of their own."""
    m = net.widths[1]
    for count in range(1, m + 1):
        choices = itertools.combinations(range(m), count) if every else [tuple(range(count))]
        for zero in choices:
            (w, _), (a, _) = _neurons(net, rng)
            w[list(zero)], a[:, list(zero)] = 0.0, 0.0
            yield f"{count} zero", (Layer(w), Layer(a))


def _degenerate(net: MLP, rng: np.random.Generator) -> Iterator[tuple[str, Params]]:
    """Definition 5.1: on the largest leaf, and yet brackets of one field do not see all of it."""
    m = net.widths[1]
    changes: dict[str, Callable[[Any, Any], None]] = {
        "a₀ = 0": lambda w, a: a.__setitem__((0, 0), 0.0),
        "w₀ = 0": lambda w, a: w.__setitem__(0, 0.0),
        "all w = 0": lambda w, a: w.__setitem__(slice(None), 0.0),
    }
    if m > 1:
        changes["w₀ = w₁"] = lambda w, a: w.__setitem__(0, w[1])
        changes["w₀ = −w₁"] = lambda w, a: w.__setitem__(0, -w[1])
        changes["all w equal"] = lambda w, a: w.__setitem__(slice(None), w[0].copy())
    for kind, change in changes.items():
        (w, _), (a, _) = _neurons(net, rng)
        change(w, a)
        yield kind, (Layer(w), Layer(a))
