"""Orbits of the gradient fields: brackets, Lie closure, invariant partitions and leaves, condensation."""

from neuromanifold.orbits.partition import Block, InvariantLeaf, invariant_leaf

__all__ = ["Block", "InvariantLeaf", "invariant_leaf"]
