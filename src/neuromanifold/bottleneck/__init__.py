"""Representation cost, Jacobian rank, bottleneck structure, the layerwise bounds."""

from neuromanifold.bottleneck.along import CutRanks, LayerRanks, RanksAlong, ranks_along
from neuromanifold.bottleneck.balance import balance, balance_defect
from neuromanifold.bottleneck.bounds import NormBound, norm_bound, two_point_bound
from neuromanifold.bottleneck.construction import construction_norm, linear_construction
from neuromanifold.bottleneck.cost import (
    CostExpansion,
    balanced_factors,
    cost_expansion,
    log_plus,
    pseudo_determinant,
    representation_cost,
)
from neuromanifold.bottleneck.frames import Frames, bottleneck_frames
from neuromanifold.bottleneck.interpolants import (
    Interpolant,
    folded_interpolant,
    polyline_interpolant,
)
from neuromanifold.bottleneck.jacobian_rank import jacobian_rank
from neuromanifold.bottleneck.kernel import (
    activation_bound,
    kernel_curvature,
    ntk_trace_by_layer,
    planarity_bound,
    segment_bound,
)
from neuromanifold.bottleneck.positivity import CompletePositivity, completely_positive
from neuromanifold.bottleneck.structure import BottleneckStructure, bottleneck_structure

__all__ = [
    "BottleneckStructure",
    "CompletePositivity",
    "CostExpansion",
    "CutRanks",
    "Frames",
    "Interpolant",
    "LayerRanks",
    "NormBound",
    "RanksAlong",
    "activation_bound",
    "balance",
    "balance_defect",
    "balanced_factors",
    "bottleneck_frames",
    "bottleneck_structure",
    "completely_positive",
    "construction_norm",
    "cost_expansion",
    "folded_interpolant",
    "jacobian_rank",
    "kernel_curvature",
    "linear_construction",
    "log_plus",
    "norm_bound",
    "ntk_trace_by_layer",
    "planarity_bound",
    "polyline_interpolant",
    "pseudo_determinant",
    "ranks_along",
    "representation_cost",
    "segment_bound",
    "two_point_bound",
]
