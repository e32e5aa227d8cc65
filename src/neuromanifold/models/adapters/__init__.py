"""Networks of other libraries as models."""

from neuromanifold.models.adapters.equinox import from_equinox
from neuromanifold.models.adapters.flax import from_flax
from neuromanifold.models.adapters.haiku import from_haiku
from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.adapters.pytorch import from_torch, to_torch

__all__ = ["AdaptedModel", "from_equinox", "from_flax", "from_haiku", "from_torch", "to_torch"]
