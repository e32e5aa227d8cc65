"""Asks the rooms about one network on one sample and returns one `Inspection`; gathers the probes of all rooms."""

from neuromanifold.inspection import probes
from neuromanifold.inspection.inspect import Inspection, LayerStatus, inspect

__all__ = ["Inspection", "LayerStatus", "inspect", "probes"]
