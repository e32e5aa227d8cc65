"""Piecewise-linear geometry: activation signs, patterns, regions, fixed neurons, dimension
bounds.
"""

from neuromanifold.regions.bounds import (
    Bound,
    DimensionBounds,
    dimension_bounds,
    is_roughly_monotonic,
    region_bound,
    theorem1_bound,
)
from neuromanifold.regions.enumeration import LinearRegions, enumerate_regions
from neuromanifold.regions.patterns import (
    FixedNeurons,
    activation_patterns,
    fixed_neurons,
    sampled_regions,
)
from neuromanifold.regions.signs import Signs, exact_signs

__all__ = [
    "Bound",
    "DimensionBounds",
    "FixedNeurons",
    "LinearRegions",
    "Signs",
    "activation_patterns",
    "dimension_bounds",
    "enumerate_regions",
    "exact_signs",
    "fixed_neurons",
    "is_roughly_monotonic",
    "region_bound",
    "sampled_regions",
    "theorem1_bound",
]
