"""Asks the rooms about one network on one sample and returns one `Inspection`."""

from neuromanifold.inspection.inspect import Inspection, LayerStatus, inspect

__all__ = ["Inspection", "LayerStatus", "inspect"]
