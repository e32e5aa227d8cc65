"""Asks the rooms about one network on one sample and returns one `Inspection`; gathers the probes of all rooms."""

from neuromanifold.inspection import probes
from neuromanifold.inspection.inspect import inspect
from neuromanifold.inspection.inspection import Inspection, Part
from neuromanifold.inspection.units import LayerStatus

__all__ = ["Inspection", "LayerStatus", "Part", "inspect", "probes"]
