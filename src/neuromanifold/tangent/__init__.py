"""The differential of θ ↦ f_θ(X): Jacobian, kernel, spectrum, functional dimension, alignment,
linearisation, infinite width.
"""

from neuromanifold.tangent import infinite
from neuromanifold.tangent.curvature import (
    curvatures,
    gauss_newton_curvature,
    largest_stable_lr,
    output_hessian_norm,
    sharpness,
)
from neuromanifold.tangent.kernel.density import SpectralDensity, spectral_density
from neuromanifold.tangent.kernel.features import features
from neuromanifold.tangent.kernel.gram import Gram, gram
from neuromanifold.tangent.kernel.ntk import balancing_weights, empirical_nngp, ntk
from neuromanifold.tangent.kernel.operator import ntk_operator
from neuromanifold.tangent.kernel.routes import Plan, kernel_plan
from neuromanifold.tangent.kernel.spectrum import Spectrum, spectrum
from neuromanifold.tangent.prediction.alignment import alignment, kernel_alignment
from neuromanifold.tangent.prediction.influence import Influence, influence
from neuromanifold.tangent.prediction.kernel_flow import KernelFlow, kernel_flow
from neuromanifold.tangent.prediction.linearize import linearize
from neuromanifold.tangent.rank.certificate import JacobianCertificate
from neuromanifold.tangent.rank.dimension import (
    UntrustworthyRank,
    functional_dimension,
    single_precision_rank,
)
from neuromanifold.tangent.rank.jacobian import jacobian

__all__ = [
    "Gram",
    "Influence",
    "JacobianCertificate",
    "KernelFlow",
    "Plan",
    "SpectralDensity",
    "Spectrum",
    "UntrustworthyRank",
    "alignment",
    "balancing_weights",
    "curvatures",
    "empirical_nngp",
    "features",
    "functional_dimension",
    "gauss_newton_curvature",
    "gram",
    "infinite",
    "influence",
    "jacobian",
    "kernel_alignment",
    "kernel_flow",
    "kernel_plan",
    "largest_stable_lr",
    "linearize",
    "ntk",
    "ntk_operator",
    "output_hessian_norm",
    "sharpness",
    "single_precision_rank",
    "spectral_density",
    "spectrum",
]
