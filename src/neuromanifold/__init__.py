"""neuromanifold: the geometry of neural-network parametrizations θ ↦ f_θ, with answers that carry their proof."""

from neuromanifold import bottleneck, data, dynamics, functionspace, report, symmetry
from neuromanifold.dynamics import gradient_flow, losses, train
from neuromanifold.inspection import Inspection, inspect
from neuromanifold.models import (
    MLP,
    Activation,
    FunctionModel,
    Layer,
    LinearConvNet,
    Mixed,
    init,
    leaky_relu,
    load,
    power,
    save,
)
from neuromanifold.numerics import Rank
from neuromanifold.regions import activation_patterns, fixed_neurons, sampled_regions
from neuromanifold.symmetry import (
    conserved_quantities,
    dimension_account,
    hidden_equivalence,
    reduce_width,
    symmetry_group,
    teleport,
)
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
    "LinearConvNet",
    "Mixed",
    "Rank",
    "activation_patterns",
    "alignment",
    "bottleneck",
    "conserved_quantities",
    "data",
    "dimension_account",
    "dynamics",
    "fixed_neurons",
    "functional_dimension",
    "functionspace",
    "gradient_flow",
    "hidden_equivalence",
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
    "reduce_width",
    "report",
    "sampled_regions",
    "save",
    "spectrum",
    "symmetry",
    "symmetry_group",
    "teleport",
    "train",
]
