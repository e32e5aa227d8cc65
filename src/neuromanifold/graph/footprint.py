"""How many numbers a walk through a graph holds at once, and how many bytes they take."""

import math
from dataclasses import dataclass
from functools import lru_cache

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Node, Program

_ENTRY = 64
"""Bytes of an entry in an arithmetic of fixed length: a ball of float64 takes 16 and a residue 8, a
window lies there twice while it
is cut, and a maximum or an entrywise product holds about as much again."""
FIRST_BITS = 128
"""Bits of the balls that are tried first."""
_BALL = 112
"""Bytes of an entry as such a ball: the object, its copy in FLINT's matrix, and the product's
integers.
"""
_PARAMETER, _FACTOR = 8, 64
"""Bytes of each parameter, and of one of the largest leaf, which a product rearranges and takes
magnitudes or limbs of.
"""


@dataclass(frozen=True)
class Footprint:
    """`entries` that one sample takes at once, and `fixed` bytes of the parameters, however many
    samples there are.
    """

    entries: int
    fixed: int

    def bytes(self, samples: int = 1, *, bits: int | None = None) -> int:
        """What a walk with so many samples takes, in balls of so many bits or in numbers of
        fixed length.
        """
        return self.fixed + samples * self.entries * _bytes(bits)

    def samples(self, budget: int, *, bits: int | None = None, copies: int = 1) -> int:
        """How many samples a budget allows at least one of, where each takes so many `copies` of
        its entries.
        """
        return max(1, int((budget - self.fixed) // (copies * self.entries * _bytes(bits))))


def _bytes(bits: int | None) -> int:
    return _ENTRY if bits is None else _BALL + (bits // 2 if bits > FIRST_BITS else 0)


@lru_cache(maxsize=64)
def footprint(graph: Graph) -> Footprint:
    """That of a walk through the graph."""
    sizes = [
        math.prod(graph.program.values[i].shape)
        for i in graph.program.inputs[: len(graph.parameters)]
    ]
    return Footprint(live_entries(graph), _PARAMETER * sum(sizes) + _FACTOR * max(sizes, default=0))


def live_entries(graph: Graph) -> int:
    """The most entries that one sample's values take at any time, the windows of convolutions and
    poolings included.

    Values that depend on parameters alone are not counted: they do not grow with the number of
    samples.
    """
    program = graph.program
    grows = program.depending(program.inputs[len(graph.parameters) :])
    size = lambda i: math.prod(program.values[i].shape) if i in grows else 0  # noqa: E731
    live, most = sum(map(size, program.inputs)), 1
    for node, dying in zip(program.nodes, program.last_uses(), strict=True):
        live += sum(map(size, node.outputs))
        most = max(most, live + (0 if grows.isdisjoint(node.outputs) else _windows(program, node)))
        live -= sum(map(size, dying))
    return most


def _windows(program: Program, node: Node) -> int:
    """Entries of all windows together, each at its place; those of a maximum once more, for its
    choice among them.
    """
    out = program.values[node.outputs[0]].shape
    if node.primitive.product is not None:
        shapes = [program.values[i].shape for i in node.inputs]
        return node.primitive.product.copies(node.options, shapes, out)
    bend = node.primitive.bend
    if bend is not None and bend.held is not None:
        return bend.held(node.options, program.values[node.inputs[0]].shape)
    window = node.options.get("window_dimensions")
    return math.prod(out) if window is None else 2 * math.prod(out) * math.prod(window)
