"""Orbits of the gradient fields: brackets, Lie closure, invariant partitions and leaves, condensation."""

from neuromanifold.orbits.condensation import Cluster, Condensation, condensation, effective_width, leaf_distance
from neuromanifold.orbits.genericity import (
    is_degenerate,
    is_flat_at_zero,
    is_generic,
    is_generic_odd,
    vanishes_at_zero,
)
from neuromanifold.orbits.lattice import InvariantSet, LeafLattice, invariant_leaves, leaf_count
from neuromanifold.orbits.maps import InducedManifold, MapInvariance, induces_invariant_manifold
from neuromanifold.orbits.partition import Block, InvariantLeaf, invariant_leaf
from neuromanifold.orbits.residual import Residual, invariance_residual
from neuromanifold.orbits.zeros import ZeroManifold, zero_blocks, zero_rows

__all__ = [
    "Block",
    "Cluster",
    "Condensation",
    "InducedManifold",
    "InvariantLeaf",
    "InvariantSet",
    "LeafLattice",
    "MapInvariance",
    "Residual",
    "ZeroManifold",
    "condensation",
    "effective_width",
    "induces_invariant_manifold",
    "invariance_residual",
    "invariant_leaf",
    "invariant_leaves",
    "is_degenerate",
    "is_flat_at_zero",
    "is_generic",
    "is_generic_odd",
    "leaf_count",
    "leaf_distance",
    "vanishes_at_zero",
    "zero_blocks",
    "zero_rows",
]
