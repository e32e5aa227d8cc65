"""neuromanifold: the geometry of neural-network parametrizations θ ↦ f_θ, with answers that carry their proof."""

from neuromanifold import data, dynamics, report
from neuromanifold.dynamics import gradient_flow, losses, train
from neuromanifold.inspection import Inspection, inspect
from neuromanifold.models import MLP, Activation, FunctionModel, Layer, Mixed, init, leaky_relu, load, power, save
from neuromanifold.numerics import Rank
from neuromanifold.regions import activation_patterns, fixed_neurons, sampled_regions
from neuromanifold.tangent import (
    alignment,
    functional_dimension,
    jacobian,
    kernel_alignment,
    ntk,
    ntk_operator,
    spectrum,
)

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Activation",
    "FunctionModel",
    "Inspection",
    "Layer",
    "Mixed",
    "Rank",
    "activation_patterns",
    "alignment",
    "data",
    "dynamics",
    "fixed_neurons",
    "functional_dimension",
    "gradient_flow",
    "init",
    "inspect",
    "jacobian",
    "kernel_alignment",
    "leaky_relu",
    "load",
    "losses",
    "ntk",
    "ntk_operator",
    "power",
    "report",
    "sampled_regions",
    "save",
    "spectrum",
    "train",
]
