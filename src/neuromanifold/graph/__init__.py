"""The network as a program: traced once, walked in any arithmetic."""

from neuromanifold.graph.arithmetic import Arithmetic, NoExactAnswer
from neuromanifold.graph.graph import Graph, Units, trace
from neuromanifold.graph.walk import walk

__all__ = ["Arithmetic", "Graph", "NoExactAnswer", "Units", "trace", "walk"]
