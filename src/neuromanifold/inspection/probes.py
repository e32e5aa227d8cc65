"""What can be watched while networks train: `nm.train(…, probes=[nm.probes.r_squared,
nm.probes.sampled_regions])`.

A probe is any function `probe(f, params, x, y) → value`; these come with the library.
"""

from neuromanifold.dynamics.geometry_probes import (
    effective_rank,
    exact_dimension,
    fixed_neurons,
    float32_dimension,
    functional_dimension,
    region_bound,
    sampled_regions,
    snapshot,
    theorem1_bound,
    tight_bound,
)
from neuromanifold.dynamics.probes import Probe, r_squared, weight_norm
from neuromanifold.dynamics.probes import loss_probe as loss
from neuromanifold.orbits.condensation import effective_width, leaf_distance
from neuromanifold.symmetry.conservation.conserved import (
    conserved_quantities_probe as conserved_quantities,
)

__all__ = [
    "Probe",
    "conserved_quantities",
    "effective_rank",
    "effective_width",
    "exact_dimension",
    "fixed_neurons",
    "float32_dimension",
    "functional_dimension",
    "leaf_distance",
    "loss",
    "r_squared",
    "region_bound",
    "sampled_regions",
    "snapshot",
    "theorem1_bound",
    "tight_bound",
    "weight_norm",
]
