"""The differential of θ ↦ f_θ(X): Jacobian, kernel, spectrum, functional dimension, alignment."""

from neuromanifold.tangent.alignment import alignment, kernel_alignment
from neuromanifold.tangent.certificate import JacobianCertificate
from neuromanifold.tangent.dimension import UntrustworthyRank, functional_dimension, single_precision_rank
from neuromanifold.tangent.jacobian import jacobian
from neuromanifold.tangent.ntk import ntk
from neuromanifold.tangent.operator import ntk_operator
from neuromanifold.tangent.spectrum import Spectrum, spectrum

__all__ = [
    "JacobianCertificate",
    "Spectrum",
    "UntrustworthyRank",
    "alignment",
    "functional_dimension",
    "jacobian",
    "kernel_alignment",
    "ntk",
    "ntk_operator",
    "single_precision_rank",
    "spectrum",
]
