"""The operations of ATen that programs are made of, each a short function of JAX arrays."""

from neuromanifold.models.adapters.torch.operations.attention import ATTENTION
from neuromanifold.models.adapters.torch.operations.base import Refusal
from neuromanifold.models.adapters.torch.operations.creation import CREATION
from neuromanifold.models.adapters.torch.operations.elementwise import ELEMENTWISE
from neuromanifold.models.adapters.torch.operations.linear import LINEAR
from neuromanifold.models.adapters.torch.operations.matrices import MATRICES
from neuromanifold.models.adapters.torch.operations.normalisation import NORMALISATION
from neuromanifold.models.adapters.torch.operations.pooling import POOLING
from neuromanifold.models.adapters.torch.operations.recurrent import RECURRENT
from neuromanifold.models.adapters.torch.operations.reduction import REDUCTION
from neuromanifold.models.adapters.torch.operations.scattering import SCATTERING
from neuromanifold.models.adapters.torch.operations.shape import SHAPE
from neuromanifold.models.adapters.torch.operations.spectral import SPECTRAL

OPERATIONS = (
    ELEMENTWISE
    | SHAPE
    | REDUCTION
    | LINEAR
    | MATRICES
    | POOLING
    | NORMALISATION
    | ATTENTION
    | RECURRENT
    | CREATION
    | SCATTERING
    | SPECTRAL
)

__all__ = ["OPERATIONS", "Refusal"]
