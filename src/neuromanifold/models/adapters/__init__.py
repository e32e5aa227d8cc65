"""Networks of other libraries as models."""

from neuromanifold.models.adapters.jax.equinox import from_equinox
from neuromanifold.models.adapters.jax.flax import from_flax
from neuromanifold.models.adapters.jax.haiku import from_haiku
from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.adapters.torch.conversion import from_torch, to_torch

__all__ = ["AdaptedModel", "from_equinox", "from_flax", "from_haiku", "from_torch", "to_torch"]
