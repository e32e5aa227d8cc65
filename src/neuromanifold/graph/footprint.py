"""How many numbers a walk through a graph holds at once, for each sample."""

import math
from typing import Any

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.program import Node, Program


def live_entries(graph: Graph) -> int:
    """The most entries that one sample's values take at any time, the windows of convolutions and poolings included.

    Values that depend on parameters alone are not counted: they do not grow with the number of samples.
    """
    program = graph.program
    grows = program.depending(program.inputs[len(graph.parameters) :])
    size = lambda i: math.prod(program.values[i].shape) if i in grows else 0  # noqa: E731
    live, most = {i: size(i) for i in program.inputs}, 1
    for node, dying in zip(program.nodes, program.last_uses(), strict=True):
        live |= {i: size(i) for i in node.outputs}
        most = max(most, sum(live.values()) + (_windows(program, node) if grows & set(node.outputs) else 0))
        for i in dying:
            live.pop(i, None)
    return most


def _windows(program: Program, node: Node) -> int:
    """Entries of all windows together, each at its place."""
    out: Any = math.prod(program.values[node.outputs[0]].shape)
    if node.operation == "conv_general_dilated":
        kernel = program.values[node.inputs[1]].shape
        filters = kernel[node.options["dimension_numbers"].rhs_spec[0]]
        return out // filters * math.prod(kernel) // filters * node.options["feature_group_count"]
    return out * math.prod(node.options.get("window_dimensions", (1,)))
