"""The operations of ATen that programs are made of, each a short function of JAX arrays."""

from neuromanifold.models.adapters.operations.attention import ATTENTION
from neuromanifold.models.adapters.operations.base import Refusal
from neuromanifold.models.adapters.operations.creation import CREATION
from neuromanifold.models.adapters.operations.elementwise import ELEMENTWISE
from neuromanifold.models.adapters.operations.linear import LINEAR
from neuromanifold.models.adapters.operations.normalisation import NORMALISATION
from neuromanifold.models.adapters.operations.pooling import POOLING
from neuromanifold.models.adapters.operations.recurrent import RECURRENT
from neuromanifold.models.adapters.operations.reduction import REDUCTION
from neuromanifold.models.adapters.operations.scattering import SCATTERING
from neuromanifold.models.adapters.operations.shape import SHAPE
from neuromanifold.models.adapters.operations.spectral import SPECTRAL

OPERATIONS = (
    ELEMENTWISE
    | SHAPE
    | REDUCTION
    | LINEAR
    | POOLING
    | NORMALISATION
    | ATTENTION
    | RECURRENT
    | CREATION
    | SCATTERING
    | SPECTRAL
)

__all__ = ["OPERATIONS", "Refusal"]
