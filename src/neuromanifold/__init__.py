"""neuromanifold: the geometry of neural-network parametrizations θ ↦ f_θ, with answers that
carry their proof.
"""

import sys
import warnings
from typing import TYPE_CHECKING, Any

from neuromanifold import (
    bottleneck,
    data,
    dynamics,
    functionspace,
    graph,
    inspection,
    models,
    numerics,
    orbits,
    regions,
    report,
    symmetry,
    tangent,
)
from neuromanifold.dynamics import gradient_flow, learning_coefficient, train
from neuromanifold.inspection import Tracker, inspect, probes
from neuromanifold.models import (
    MLP,
    Activation,
    FunctionModel,
    Layer,
    LinearConvNet,
    Mixed,
    Sequential,
    from_equinox,
    from_flax,
    from_haiku,
    from_torch,
    init,
    layers,
    leaky_relu,
    load,
    losses,
    power,
    save,
    to_torch,
)
from neuromanifold.numerics import Rank
from neuromanifold.numerics.boundary import guard
from neuromanifold.orbits import (
    condensation,
    induces_invariant_manifold,
    invariant_leaf,
    invariant_leaves,
    lie_bracket,
    lie_closure,
)
from neuromanifold.regions import (
    activation_patterns,
    dimension_bounds,
    fixed_neurons,
    sampled_regions,
)
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
    features,
    functional_dimension,
    gram,
    infinite,
    influence,
    jacobian,
    kernel_alignment,
    kernel_flow,
    largest_stable_lr,
    linearize,
    ntk,
    ntk_operator,
    sharpness,
    spectrum,
)
from neuromanifold.tangent.infinite import describe, infinite_ntk, nngp

__version__ = "0.2.0.dev0"

__all__ = [
    "MLP",
    "Activation",
    "FunctionModel",
    "Layer",
    "LinearConvNet",
    "Mixed",
    "Rank",
    "Sequential",
    "Tracker",
    "activation_patterns",
    "alignment",
    "bottleneck",
    "condensation",
    "conserved_quantities",
    "data",
    "describe",
    "dimension_account",
    "dimension_bounds",
    "dynamics",
    "features",
    "fixed_neurons",
    "from_equinox",
    "from_flax",
    "from_haiku",
    "from_torch",
    "functional_dimension",
    "functionspace",
    "gradient_flow",
    "gram",
    "graph",
    "hidden_equivalence",
    "induces_invariant_manifold",
    "infinite",
    "infinite_ntk",
    "influence",
    "init",
    "inspect",
    "inspection",
    "invariant_leaf",
    "invariant_leaves",
    "jacobian",
    "kernel_alignment",
    "kernel_flow",
    "largest_stable_lr",
    "layers",
    "leaky_relu",
    "learning_coefficient",
    "lie_bracket",
    "lie_closure",
    "linearize",
    "load",
    "losses",
    "models",
    "nngp",
    "ntk",
    "ntk_operator",
    "numerics",
    "orbits",
    "power",
    "probes",
    "reduce_width",
    "regions",
    "report",
    "sampled_regions",
    "save",
    "sharpness",
    "spectrum",
    "symmetry",
    "symmetry_group",
    "tangent",
    "teleport",
    "to_torch",
    "train",
]

guard(
    bottleneck, dynamics, functionspace, inspection, models, orbits, regions, symmetry, tangent,
    sys.modules[__name__], MLP, LinearConvNet,
)  # fmt: skip

# The names of version 0.1 that have moved, and the module that has each; they go with version 0.3.
_MOVED = {
    "adam_l2": "dynamics",
    "empirical_nngp": "tangent",
    "ensemble_flow": "infinite",
    "exact_signs": "regions",
    "gp_posterior": "infinite",
    "Graph": "graph",
    "infinite_kernels": "infinite",
    "Inspection": "inspection",
    "invariance_residual": "orbits",
    "log_marginal_likelihood": "infinite",
    "monte_carlo_kernels": "infinite",
    "output_hessian_norm": "tangent",
    "Quadrature": "infinite",
    "trace": "graph",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MOVED:
            raise AttributeError(f"module 'neuromanifold' has no attribute {name!r}")
        home = _MOVED[name]
        message = f"`nm.{name}` is now `nm.{home}.{name}`; the old name goes with version 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(globals()[home], name)
