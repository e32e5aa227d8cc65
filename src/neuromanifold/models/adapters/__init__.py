"""Networks of other libraries as models."""

from neuromanifold.models.adapters.pytorch import from_torch

__all__ = ["from_torch"]
