"""`condensation`: neurons that have become, or are becoming, copies of each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from neuromanifold.dynamics.probes import Probe
from neuromanifold.models.arguments import Samples, Targets
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import Result, follows
from neuromanifold.orbits.lattice import exchange
from neuromanifold.orbits.partition import InvariantLeaf, invariant_leaf, leaf_of, on_host
from neuromanifold.orbits.stabiliser import components
from neuromanifold.symmetry.groups.monomial import Monomial
from neuromanifold.symmetry.groups.neurons import by_neuron
from neuromanifold.symmetry.groups.permutation import PermutationGroup
from neuromanifold.symmetry.reduction.reduce import Reduction, reduce_width

_CANDIDATES = 8


@dataclass(frozen=True)
class Cluster:
    """Neurons of a layer whose incoming weights (and bias) point one way, or the opposite way where
    the sign is −1.

    `spread` is the largest angle (radians) between two of them, signs taken into account.
    """

    neurons: tuple[int, ...]
    signs: tuple[int, ...]
    spread: float

    def __len__(self) -> int:
        return len(self.neurons)

    def __str__(self) -> str:
        signed = [
            ("" if s > 0 else "−") + str(i) for i, s in zip(self.neurons, self.signs, strict=True)
        ]
        return "{" + ", ".join(signed) + "}"


@dataclass(frozen=True, eq=False, repr=False)
class Condensation(Result):
    """How condensed a network is.

    `clusters` by layer, `silent` neurons (without incoming or outgoing weights), and
    `effective_widths`, the number of clusters. `leaf` is the leaf of θ (to the tolerance asked
    for); `nearest` the nearest leaf of lower dimension and `distance` how far it is: over exchanges
    of two neurons of a layer and flips of one, which is all there is with one hidden layer.
    """

    net: MLP
    params: Params
    clusters: tuple[tuple[Cluster, ...], ...]
    silent: tuple[tuple[int, ...], ...]
    leaf: InvariantLeaf
    nearest: InvariantLeaf | None
    distance: float

    @property
    def effective_widths(self) -> tuple[int, ...]:
        """The number of clusters of each hidden layer."""
        return tuple(len(layer) for layer in self.clusters)

    @cached_property
    def reduction(self) -> Reduction:
        """The narrower network with the function of θ moved onto its leaf: equal neurons merged,
        silent ones dropped.
        """
        return reduce_width(self.net, self.leaf.project(self.params))

    def __str__(self) -> str:
        layers = "; ".join(" ".join(map(str, layer)) for layer in self.clusters)
        widths = " ".join(map(str, self.effective_widths))
        return f"effective widths {widths}: {layers}; next leaf at distance {self.distance:.3g}"


@follows
def condensation(
    net: MLP,
    params: Params,
    *,
    angle: float | int = 0.05,
    silent: float | int = 1e-6,
    atol: float | int = 0.0,
) -> Condensation:
    """Find clusters of aligned neurons, effective width, and the distance to the nearest
    lower-dimensional leaf.   [invariant, Sec. 1, Thm 4.2]

    Neurons of one activation are aligned when the angle between their incoming (w, b) is at most
    `angle` radians, or, where the activation has a parity, that to the negative; clusters are what
    aligned pairs connect. Neurons whose incoming or outgoing weights are below `silent` of the
    layer's largest count as silent. `atol` is `invariant_leaf`'s.

    >>> net = nm.MLP((1, 3, 1), "tanh", bias=False)
    >>> params = (nm.Layer(np.array([[1.0], [-1.0], [0.5]])), nm.Layer(np.array([[2.0, -2.0, 1.0]])))
    >>> found = condensation(net, params)
    >>> found.effective_widths, found.leaf.dimension, round(found.distance, 4)      # where 2 joins 0 and −1: √(2/3)·√1.25
    ((1,), 4, 0.9129)
    >>> found.reduction.net.widths
    (1, 2, 1)
    """
    if not 0 <= silent <= 1:
        raise ValueError(f"`silent` is {silent!r}; pass a share of the largest, from 0 to 1.")
    leaf = invariant_leaf(net, params, atol=atol)
    params = on_host(params)
    found = [
        _layer(net, params, layer, float(angle), float(silent)) for layer in range(net.depth - 1)
    ]
    nearest, distance = _nearest(net, params, leaf)
    clusters, quiet = tuple(c for c, _ in found), tuple(q for _, q in found)
    return Condensation(net, params, clusters, quiet, leaf, nearest, distance)


def _incoming(params: Params, layer: int, xp: Any = np) -> Any:
    weight, bias = params[layer]
    return weight if bias is None else xp.concatenate([weight, bias[:, None]], axis=1)


def _layer(
    net: MLP, params: Params, layer: int, angle: float, silent: float
) -> tuple[tuple[Cluster, ...], tuple[int, ...]]:
    into, out = _incoming(params, layer), params[layer + 1].weight.T
    sizes = [np.linalg.norm(part, axis=1) for part in (into, out)]
    loud = np.logical_and(*(size > silent * size.max(initial=0.0) for size in sizes))
    clusters = []
    for neurons in PermutationGroup(net).classes[layer]:
        members = neurons[loud[neurons]]
        if len(members):
            parity = by_neuron(net.activation[layer], len(into), lambda a: a.parity or "")[
                members[0]
            ]
            clusters += _clusters(members, into[members], bool(parity), angle)
    return tuple(clusters), tuple(np.flatnonzero(~loud).tolist())


def _clusters(
    members: np.ndarray, rows: np.ndarray, signed: bool, angle: float
) -> Iterator[Cluster]:
    """What pairs within `angle` connect."""
    angles = _angles(rows)
    between = np.minimum(angles, np.pi - angles) if signed else angles
    label = components(
        len(members),
        *np.where(between <= angle, np.arange(len(members)), np.arange(len(members))[:, None]).T,
    )
    for number in dict.fromkeys(label.tolist()):
        chosen = np.flatnonzero(label == number)
        signs = np.where(signed & (angles[chosen[0], chosen] > np.pi / 2), -1, 1)
        neurons = tuple(members[chosen].tolist())
        yield Cluster(neurons, tuple(signs.tolist()), float(between[np.ix_(chosen, chosen)].max()))


def _angles(rows: np.ndarray) -> np.ndarray:
    """Angles between rows by half chords, accurate for small ones: 2 arcsin(|u − v| / 2)."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    near, far = (np.linalg.norm(unit[:, None] - s * unit, axis=2) for s in (1, -1))
    small = 2 * np.arcsin(np.minimum(1.0, near / 2))
    return np.where(near <= far, small, np.pi - 2 * np.arcsin(np.minimum(1.0, far / 2)))


def _nearest(net: MLP, params: Params, leaf: InvariantLeaf) -> tuple[InvariantLeaf | None, float]:
    """The nearest among the leaves that one more exchange or flip makes of θ's own; estimates
    first, then the best exactly.
    """
    ranked = sorted(_moves(net, params, leaf), key=lambda move: move[0])[:_CANDIDATES]
    found = [leaf_of(net, (*leaf.generators, element)) for _, element in ranked]
    distances = [candidate.distance(params) for candidate in found]
    if not found:
        return None, float("inf")
    best = int(np.argmin(distances))
    return found[best], distances[best]


def _moves(net: MLP, params: Params, leaf: InvariantLeaf) -> Iterator[tuple[float, Monomial]]:
    """Exchanges of neurons of two blocks and flips of one, with the distance when blocks of
    sizes p, q merge: √(pq/(p+q))|n_i ∓ n_j|.
    """
    for layer, blocks in enumerate(leaf.partition):
        parity = by_neuron(net.activation[layer], net.widths[1 + layer], lambda a: a.parity or "")
        kind = np.zeros(net.widths[1 + layer], int)
        for number, neurons in enumerate(PermutationGroup(net).classes[layer]):
            kind[neurons] = number
        into, out = _incoming(params, layer), params[layer + 1].weight.T
        for a, block in enumerate(blocks):
            i = block.neurons[0]
            if parity[i] and not block.zero:
                half = np.linalg.norm(np.append(into[i], out[i] if parity[i] == "odd" else []))
                yield float(np.sqrt(len(block)) * half), exchange(net, layer, i, i, -1)
            for other in blocks[:a]:
                j = other.neurons[0]
                for sign in ((1, -1) if parity[i] else (1,)) if kind[i] == kind[j] else ():
                    gap = np.append(
                        into[i] - sign * into[j],
                        out[i] - (sign if parity[i] == "odd" else 1) * out[j],
                    )
                    weight = np.sqrt(len(block) * len(other) / (len(block) + len(other)))
                    yield float(weight * np.linalg.norm(gap)), exchange(net, layer, i, j, sign)


def effective_width(*, angle: float | int = 0.05, silent: float | int = 1e-6) -> Probe:
    """Return a probe: the number of clusters of aligned neurons in each hidden layer, along
    training.

    Silent neurons are not counted, as in `condensation`, with the same `angle` and `silent`.

    >>> net = nm.MLP((1, 3, 1), "tanh", bias=False)
    >>> params = (nm.Layer(np.array([[1.0], [-1.0], [0.5]])), nm.Layer(np.array([[2.0, -2.0, 1.0]])))
    >>> effective_width()(net, params, None, None).tolist()
    [1]
    """

    def probe(f: Any, params: Any, x: Any, y: Any) -> Any:
        return jnp.stack([_count(f, params, layer, angle, silent) for layer in range(f.depth - 1)])

    return Probe(probe, "effective_width", ("layer",))


def _count(net: MLP, params: Any, layer: int, angle: Any, silent: Any) -> Any:
    """Σ over loud neurons of 1 / (size of its cluster), the clusters by repeated squaring of the
    relation.
    """
    into, out = jnp.asarray(_incoming(params, layer, jnp)), jnp.asarray(params[layer + 1].weight).T
    sizes = [jnp.linalg.norm(part, axis=1) for part in (into, out)]
    loud = (sizes[0] > silent * sizes[0].max()) & (sizes[1] > silent * sizes[1].max())
    unit = into / jnp.where(sizes[0] > 0, sizes[0], 1.0)[:, None]
    signed = by_neuron(net.activation[layer], len(into), lambda a: a.parity is not None).astype(
        bool
    )
    near = jnp.sum((unit[:, None] - unit) ** 2, axis=2)
    far = jnp.where(signed, jnp.sum((unit[:, None] + unit) ** 2, axis=2), jnp.inf)
    related = jnp.minimum(near, far) <= (2 * np.sin(angle / 2)) ** 2
    related &= _same_kind(net, layer) & loud & loud[:, None]
    for _ in range(max(1, int(np.ceil(np.log2(len(into)))))):
        related = (related.astype(jnp.float32) @ related.astype(jnp.float32)) > 0
    share = jnp.where(loud, 1 / jnp.maximum(related.sum(axis=1), 1), 0.0)
    return jnp.round(share.sum()).astype(jnp.int32)


def _same_kind(net: MLP, layer: int) -> np.ndarray:
    kind = np.zeros(net.widths[1 + layer], int)
    for number, neurons in enumerate(PermutationGroup(net).classes[layer]):
        kind[neurons] = number
    return kind[:, None] == kind


def leaf_distance(f: Any, params: Any, x: Samples, y: Targets) -> Any:
    """Return a probe: the distance to the nearest leaf of lower dimension, for networks without
    equal neurons.   [invariant, Sec. 3.1 (ii)]

    min over pairs of neurons of one activation of |n_i ∓ n_j| / √2, and over neurons with parity of
    what a flip negates.

    >>> net = nm.MLP((1, 2, 1), "exp", bias=False)
    >>> params = (nm.Layer(np.array([[1.0], [1.0]])), nm.Layer(np.array([[2.0, 3.0]])))
    >>> round(float(leaf_distance(net, params, None, None)), 4)
    0.7071
    """
    return jnp.min(jnp.stack([_smallest(f, params, layer) for layer in range(f.depth - 1)]))


def _smallest(net: MLP, params: Any, layer: int) -> Any:
    into, out = jnp.asarray(_incoming(params, layer, jnp)), jnp.asarray(params[layer + 1].weight).T
    parity = by_neuron(net.activation[layer], len(into), lambda a: a.parity or "")
    odd, signed = parity == "odd", parity != ""
    a, b = np.nonzero(np.triu(_same_kind(net, layer), k=1))
    flip = jnp.where(odd[a], -1.0, 1.0)[:, None]

    def gap(s: float, t: Any) -> Any:
        return jnp.sum((into[a] - s * into[b]) ** 2, axis=1) + jnp.sum(
            (out[a] - t * out[b]) ** 2, axis=1
        )

    opposite = jnp.where(signed[a], gap(-1.0, flip), jnp.inf)
    alone = jnp.sum(into**2, axis=1) + jnp.where(odd, jnp.sum(out**2, axis=1), 0.0)
    squares = jnp.concatenate([gap(1.0, 1.0) / 2, opposite / 2, jnp.where(signed, alone, jnp.inf)])
    return jnp.sqrt(jnp.min(squares))
