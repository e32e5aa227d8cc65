"""Linear networks in function space: polynomials, fibres over a function, kernel and metric,
Riemannian flow.
"""

from neuromanifold.functionspace.dense import (
    balanced_factors,
    balanced_flow,
    balanced_operator,
    dense_kernel,
    dense_parameter_flow,
    end_to_end_matrix,
    gauge_between,
    gram_differences,
    level_set_sample,
    rotate_factors,
)
from neuromanifold.functionspace.fiber import Fiber, fiber
from neuromanifold.functionspace.flow import FilterFlow, parameter_flow, riemannian_flow
from neuromanifold.functionspace.kernel import (
    filter_jacobian,
    filter_kernel,
    filter_kernel_blocks,
    kernel_distance,
    kernel_spread,
)
from neuromanifold.functionspace.loss import FilterLoss, filter_loss
from neuromanifold.functionspace.metric import Metric, metric
from neuromanifold.functionspace.rescale import Rescaling, norm_differences, rescale
from neuromanifold.functionspace.search import nearest_filter, search_fiber
from neuromanifold.functionspace.smoothness import (
    Smoothness,
    is_smooth,
    neuromanifold_dimension,
    swappable,
)

__all__ = [
    "Fiber",
    "FilterFlow",
    "FilterLoss",
    "Metric",
    "Rescaling",
    "Smoothness",
    "balanced_factors",
    "balanced_flow",
    "balanced_operator",
    "dense_kernel",
    "dense_parameter_flow",
    "end_to_end_matrix",
    "fiber",
    "filter_jacobian",
    "filter_kernel",
    "filter_kernel_blocks",
    "filter_loss",
    "gauge_between",
    "gram_differences",
    "is_smooth",
    "kernel_distance",
    "kernel_spread",
    "level_set_sample",
    "metric",
    "nearest_filter",
    "neuromanifold_dimension",
    "norm_differences",
    "parameter_flow",
    "rescale",
    "riemannian_flow",
    "rotate_factors",
    "search_fiber",
    "swappable",
]
