"""Piecewise-linear geometry: activation signs, patterns, regions, fixed neurons."""

from neuromanifold.regions.patterns import FixedNeurons, activation_patterns, fixed_neurons, sampled_regions
from neuromanifold.regions.signs import Signs, exact_signs

__all__ = ["FixedNeurons", "Signs", "activation_patterns", "exact_signs", "fixed_neurons", "sampled_regions"]
