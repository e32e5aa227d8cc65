"""Orbits of the gradient fields: brackets, Lie closure, invariant partitions and leaves,
condensation.
"""

from neuromanifold.orbits.bounds import UpperBound, closure_upper_bound
from neuromanifold.orbits.bracket import induced_field, left_normed, lie_bracket
from neuromanifold.orbits.closure import ClosureCertificate, LieClosure, lie_closure
from neuromanifold.orbits.condensation import (
    Cluster,
    Condensation,
    condensation,
    effective_width,
    leaf_distance,
)
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
from neuromanifold.orbits.residual import InvarianceResidual, invariance_residual
from neuromanifold.orbits.zeros import ZeroManifold, zero_blocks, zero_rows

__all__ = [
    "Block",
    "ClosureCertificate",
    "Cluster",
    "Condensation",
    "InducedManifold",
    "InvarianceResidual",
    "InvariantLeaf",
    "InvariantSet",
    "LeafLattice",
    "LieClosure",
    "MapInvariance",
    "UpperBound",
    "ZeroManifold",
    "closure_upper_bound",
    "condensation",
    "effective_width",
    "induced_field",
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
    "left_normed",
    "lie_bracket",
    "lie_closure",
    "vanishes_at_zero",
    "zero_blocks",
    "zero_rows",
]
