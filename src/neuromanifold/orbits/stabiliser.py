"""The stabiliser of a network's parameters among permutations and sign flips: a search for
automorphisms.

A neuron whose activation has a parity is two vertices, itself and its negative; the others are one.
An element of the group fixes θ exactly when it is an automorphism of the graph of these signed
neurons, edges weighted with the signed weights, that keeps inputs and outputs in place. Neurons of
several layers may have to move together, so the search is over the whole graph: colour refinement,
and backtracking where colours do not decide. Refinement alone decides in all but very regular
graphs (0/1 weights of a strongly regular kind), where the time may grow exponentially with the
width.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.models.mlp import MLP, Params
from neuromanifold.symmetry.groups.monomial import Monomial, monomial
from neuromanifold.symmetry.groups.neurons import by_neuron
from neuromanifold.symmetry.groups.permutation import PermutationGroup

Mapping = tuple[np.ndarray, ...]
"""For each layer, inputs included: the vertex that each vertex goes to."""


class Vertices(NamedTuple):
    """The signed neurons of a layer: whose they are, the signs of what comes in and goes out,
    and each one's negative.
    """

    neuron: np.ndarray
    into: np.ndarray
    out: np.ndarray
    partner: np.ndarray


@dataclass(frozen=True, eq=False)
class SignedGraph:
    """Signed neurons by layer, their kinds (only equal kinds may be exchanged), biases, and
    signed weights from layer to layer.
    """

    layers: tuple[Vertices, ...]
    kinds: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]


class Colours(NamedTuple):
    """A partial map of the graph to itself: vertices of colour c on the left go to vertices of
    colour c on the right.
    """

    left: Mapping
    right: Mapping

    def cells(self, layer: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The left and right members of each colour of a layer."""
        left, right = self.left[layer], self.right[layer]
        for colour in range(int(left.max()) + 1):
            yield np.flatnonzero(left == colour), np.flatnonzero(right == colour)


def graph_of(net: MLP, params: Params) -> SignedGraph:
    """The graph of signed neurons:  w((i,s),(j,t)) = s·W_ij·t, where t counts only if neuron j
    is odd, and b((i,s)) = s·b_i.
    """
    kinds = _kinds(net)
    layers = tuple(_vertices(p) for p in _parities(net))
    biases, weights = [np.zeros(len(layers[0].neuron))], []
    for (before, after), (weight, bias) in zip(pairwise(layers), params, strict=True):
        entries = np.asarray(weight, np.float64)[np.ix_(after.neuron, before.neuron)]
        weights.append(after.into[:, None] * entries * before.out)
        bias = np.zeros(len(weight)) if bias is None else np.asarray(bias, np.float64)
        biases.append(after.into * bias[after.neuron])
    return SignedGraph(
        layers,
        tuple(k[v.neuron] for k, v in zip(kinds, layers, strict=True)),
        tuple(biases),
        tuple(weights),
    )


def _parities(net: MLP) -> list[np.ndarray]:
    """The parity of each neuron of each layer; none for inputs, and of the outputs only an even
    one may flip.
    """
    layers = zip(net.activations, net.widths[1:], strict=True)
    *hidden, output = [by_neuron(entry, width, lambda a: a.parity or "") for entry, width in layers]
    return [np.full(net.widths[0], ""), *hidden, np.where(output == "even", "even", "")]


def _vertices(parity: np.ndarray) -> Vertices:
    signed = np.flatnonzero(parity != "")
    neuron = np.concatenate([np.arange(len(parity)), signed])
    into = np.repeat([1.0, -1.0], [len(parity), len(signed)])
    partner = np.arange(len(neuron))
    partner[signed] = len(parity) + np.arange(len(signed))
    partner[len(parity) :] = signed
    return Vertices(neuron, into, np.where(parity[neuron] == "odd", into, 1.0), partner)


def _kinds(net: MLP) -> list[np.ndarray]:
    """Hidden neurons of a layer are of one kind when their activations are equal; each input and
    output is its own.
    """
    kinds = [np.arange(width) for width in net.widths]
    for layer, classes in enumerate(PermutationGroup(net).classes if net.hidden else (), start=1):
        for kind, neurons in enumerate(classes):
            kinds[layer][neurons] = kind
    return kinds


def stabiliser(net: MLP, params: Params, *, atol: float = 0.0) -> tuple[Monomial, ...]:
    """Generators of  {g : gθ = θ}, g ranging over the permutations and sign flips of neurons.
    [invariant, Lem 4.1]

    With `atol` elements count that move no parameter by more than it: exchanges of two neurons, and
    along a chain of fixed neurons one element for each place a further neuron can go.

    >>> hidden = nm.Layer(np.array([[1.0], [1.0], [-1.0]]))
    >>> params = (hidden, nm.Layer(np.array([[2.0, 2.0, -2.0]])))
    >>> len(stabiliser(nm.MLP((1, 3, 1), "tanh", bias=False), params))        # two exchanges generate the six permutations
    2
    """
    graph = graph_of(net, params)
    return tuple(_element(net, graph, mapping) for mapping in _generators(graph, atol))


def _element(net: MLP, graph: SignedGraph, mapping: Mapping) -> Monomial:
    """The group element that an automorphism is."""
    order, into, out = [], [], []
    for layer, target, width in zip(graph.layers[1:], mapping[1:], net.widths[1:], strict=True):
        image = target[:width]
        order.append(layer.neuron[image])
        into.append(layer.into[image])
        out.append(layer.out[image])
    return monomial(net, order=order[:-1], into=into, out=out[:-1])


def _generators(graph: SignedGraph, atol: float) -> list[Mapping]:
    """Exchanges of equal neurons, and automorphisms that keep the order within each class of
    equal neurons.
    """
    start = _refine(graph, Colours(graph.kinds, graph.kinds), atol)
    assert start is not None, "the identity is an automorphism"
    classes = [_equal(graph, start, layer, atol) for layer in range(len(graph.layers))]
    exchanges = [
        e for layer, found in enumerate(classes) for c in found for e in _exchanges(graph, layer, c)
    ]
    ordered = tuple(
        _order(colours, found) for colours, found in zip(start.left, classes, strict=True)
    )
    return exchanges + _strong_generators(
        graph, _refine(graph, Colours(ordered, ordered), atol), atol
    )


def _strong_generators(graph: SignedGraph, colours: Colours | None, atol: float) -> list[Mapping]:
    """Along a base: for each place the next base vertex can go, an automorphism that fixes those
    before.
    """
    found: list[Mapping] = []
    fixed: list[tuple[int, int]] = []
    while colours is not None and (cell := _find_undecided(colours)) is not None:
        layer, left, right = cell
        base, failed = int(left[0]), set()
        for target in right[right != base]:
            orbit = _orbits(graph, layer, [g for g in found if all(g[k][v] == v for k, v in fixed)])
            if orbit[target] == orbit[base] or orbit[target] in failed:
                continue
            mapping = _complete(
                graph, _individualise(graph, colours, layer, base, int(target), atol), atol
            )
            if mapping is None:
                failed.add(orbit[target])
            else:
                found.append(mapping)
                failed = set()
        fixed.append((layer, base))
        colours = _individualise(graph, colours, layer, base, base, atol)
    return found


def _orbits(graph: SignedGraph, layer: int, elements: list[Mapping]) -> np.ndarray:
    """The orbit's number for each vertex of the layer."""
    size = len(graph.layers[layer].neuron)
    return components(size, *(g[layer] for g in elements))


def components(size: int, *targets: np.ndarray) -> np.ndarray:
    """Connected components of {0, …, size−1} with an edge from i to each target[i]."""
    if not targets:
        return np.arange(size)
    rows, columns = np.tile(np.arange(size), len(targets)), np.concatenate(targets)
    return _components(size, rows, columns)


def _equal(graph: SignedGraph, colours: Colours, layer: int, atol: float) -> list[np.ndarray]:
    """Classes, of two and more, of signed neurons of a layer with equal weights and bias."""
    classes = []
    for members, _ in colours.cells(layer):
        if len(members) > 1:
            rows = graph.biases[layer][members, None]
            rows = (
                np.concatenate([rows, graph.weights[layer - 1][members]], axis=1)
                if layer > 0
                else rows
            )
            beyond = layer < len(graph.weights)
            rows = (
                np.concatenate([rows, graph.weights[layer][:, members].T], axis=1)
                if beyond
                else rows
            )
            first = [int(np.argmax((np.abs(rows - row) <= atol).all(axis=1))) for row in rows]
            label = components(len(members), np.array(first))
            classes += [
                members[label == k] for k in range(int(label.max()) + 1) if (label == k).sum() > 1
            ]
    return [_arrange(graph.layers[layer].neuron, members) for members in classes]


def _arrange(neuron: np.ndarray, members: np.ndarray) -> np.ndarray:
    """By neuron, so that a class and its negative have one order; a class that is its own
    negative stays, neurons first.
    """
    distinct = len(set(neuron[members].tolist())) == len(members)
    return members[np.argsort(neuron[members])] if distinct else members


def _exchanges(graph: SignedGraph, layer: int, members: np.ndarray) -> list[Mapping]:
    """Each with the next, and where a neuron equals its own negative the flip; negatives repeat
    what their neurons say.
    """
    partner = graph.layers[layer].partner
    if partner[members].min() < members.min():
        return []
    pairs = list(pairwise(members.tolist()))
    pairs += [(members[0], partner[members[0]])] if partner[members[0]] in members else []
    return [_transposition(graph, layer, int(a), int(b)) for a, b in pairs]


def _transposition(graph: SignedGraph, layer: int, a: int, b: int) -> Mapping:
    mapping, partner = [np.arange(len(v.neuron)) for v in graph.layers], graph.layers[layer].partner
    mapping[layer][[a, b, partner[a], partner[b]]] = [b, a, partner[b], partner[a]]
    return tuple(mapping)


def _order(colours: np.ndarray, classes: list[np.ndarray]) -> np.ndarray:
    """Colours split by the place of a neuron in its class: up to exchanges, automorphisms may be
    taken to keep it.
    """
    place = np.zeros(len(colours), np.int64)
    for members in classes:
        place[members] = np.arange(len(members))
    return _number(colours * len(colours) + place)


def _find_undecided(colours: Colours) -> tuple[int, np.ndarray, np.ndarray] | None:
    """The smallest cell of more than one vertex, as (layer, left members, right members)."""
    cells = [
        (layer, left, right)
        for layer in range(len(colours.left))
        for left, right in colours.cells(layer)
        if len(left) > 1
    ]
    return min(cells, key=lambda cell: len(cell[1]), default=None)


def _complete(graph: SignedGraph, colours: Colours | None, atol: float) -> Mapping | None:
    """An automorphism that respects the colours, or None when there is none."""
    if colours is None:
        return None
    cell = _find_undecided(colours)
    if cell is None:
        return tuple(np.argsort(r)[l] for l, r in zip(colours.left, colours.right, strict=True))
    layer, left, right = cell
    for target in right:
        narrowed = _individualise(graph, colours, layer, int(left[0]), int(target), atol)
        mapping = _complete(graph, narrowed, atol)
        if mapping is not None:
            return mapping
    return None


def _individualise(
    graph: SignedGraph, colours: Colours, layer: int, source: int, target: int, atol: float
) -> Colours | None:
    """`source` must go to `target`, so its negative to the negative; the consequences drawn."""
    left, right = list(colours.left), list(colours.right)
    partner, fresh = graph.layers[layer].partner, int(colours.left[layer].max()) + 1
    left[layer], right[layer] = left[layer].copy(), right[layer].copy()
    left[layer][source], right[layer][target] = fresh, fresh
    if (partner[source] == source) != (partner[target] == target):
        return None
    if partner[source] != source:
        left[layer][partner[source]], right[layer][partner[target]] = fresh + 1, fresh + 1
    return _refine(graph, Colours(tuple(left), tuple(right)), atol)


def _refine(graph: SignedGraph, colours: Colours, atol: float) -> Colours | None:
    """Split colours by what the signatures tell apart until nothing splits; None when left and
    right no longer match.
    """
    count = -1
    while count != (count := sum(int(c.max()) + 1 for c in colours.left)):
        for layer in range(len(graph.layers)):
            split = _split(graph, colours, layer, atol)
            if split is None:
                return None
            colours = Colours(
                (*colours.left[:layer], split[0], *colours.left[layer + 1 :]),
                (*colours.right[:layer], split[1], *colours.right[layer + 1 :]),
            )
    return colours


def _split(
    graph: SignedGraph, colours: Colours, layer: int, atol: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """A vertex may go where, colour by colour, its sorted weights and its bias agree, and its
    negative's do.
    """
    ours, theirs = _signatures(graph, colours.left, layer), _signatures(graph, colours.right, layer)
    size, partner = len(ours), graph.layers[layer].partner
    may = np.zeros((size, size), bool)
    for left, right in colours.cells(layer):
        if len(left) != len(right):
            return None
        for vertex in left:
            may[vertex, right] = (np.abs(theirs[right] - ours[vertex]) <= atol).all(axis=1)
    may &= may[np.ix_(partner, partner)]
    source, target = np.nonzero(may)
    number = _number(components_of_pairs(size, source, target))
    left, right = number[:size], number[size:]
    ours, theirs = (np.bincount(side, minlength=int(number.max()) + 1) for side in (left, right))
    return (left, right) if np.array_equal(ours, theirs) else None


def components_of_pairs(size: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Components of the bipartite graph on 2·size vertices with edges source → size + target."""
    return _components(2 * size, source, size + target)


def _components(size: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The component's number for each of {0, …, size−1}, with edges between rows and columns."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    return connected_components(
        coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)), directed=False
    )[1]


def _number(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def _signatures(graph: SignedGraph, colours: Mapping, layer: int) -> np.ndarray:
    """For each vertex its bias and its weights, those of neighbours of one colour sorted."""
    parts = [graph.biases[layer][:, None]]
    if layer > 0:
        parts.append(_sort_by_colour(graph.weights[layer - 1], colours[layer - 1]))
    if layer < len(graph.weights):
        parts.append(_sort_by_colour(graph.weights[layer].T, colours[layer + 1]))
    return np.concatenate(parts, axis=1)


def _sort_by_colour(weights: np.ndarray, colours: np.ndarray) -> np.ndarray:
    order = np.argsort(colours, kind="stable")
    arranged, stops = weights[:, order], np.flatnonzero(np.diff(colours[order])) + 1
    for start, stop in pairwise([0, *stops.tolist(), len(order)]):
        if stop - start > 1:
            arranged[:, start:stop] = np.sort(arranged[:, start:stop], axis=1)
    return arranged


def images(net: MLP, element: Any) -> tuple[np.ndarray, np.ndarray]:
    """(s, p) with  (gθ)_k = s_k θ_{p_k},  coordinates in `ravel_pytree` order."""
    start, layers = 1, []
    for fan_in, out in pairwise(net.widths):
        weight = np.arange(start, start + out * fan_in, dtype=np.float64).reshape(out, fan_in)
        start += out * fan_in
        bias = np.arange(start, start + out, dtype=np.float64) if net.bias else None
        start += out * net.bias
        layers.append((weight, bias))
    moved = element.act(tuple(layers))
    flat = np.concatenate(
        [part.reshape(-1) for layer in moved for part in layer if part is not None]
    )
    return np.sign(flat), np.abs(flat).astype(np.int64) - 1
