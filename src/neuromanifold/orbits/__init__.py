"""Orbits of the gradient fields: brackets, Lie closure, invariant partitions and leaves, condensation."""

from neuromanifold.orbits.bounds import UpperBound, upper_bound
from neuromanifold.orbits.bracket import induced_field, left_normed, lie_bracket
from neuromanifold.orbits.closure import LieClosure, lie_closure
from neuromanifold.orbits.exact import ClosureCertificate
from neuromanifold.orbits.partition import Block, InvariantLeaf, invariant_leaf

__all__ = [
    "Block",
    "ClosureCertificate",
    "InvariantLeaf",
    "LieClosure",
    "UpperBound",
    "induced_field",
    "invariant_leaf",
    "left_normed",
    "lie_bracket",
    "lie_closure",
    "upper_bound",
]
