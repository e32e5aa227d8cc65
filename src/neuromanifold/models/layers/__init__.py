"""Layers for `nm.Sequential`: affine maps, averages, sums, normalisation, attention. Channels
are last.
"""

from neuromanifold.models.layers.attention import Attention
from neuromanifold.models.layers.branches import Elementwise, Residual, Sum
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.layers.norm import LayerNorm
from neuromanifold.models.layers.pooling import AvgPool, Flatten, GlobalAvgPool

__all__ = [
    "Attention",
    "AvgPool",
    "Conv",
    "Dense",
    "Elementwise",
    "Flatten",
    "GlobalAvgPool",
    "LayerNorm",
    "Residual",
    "Sum",
]
