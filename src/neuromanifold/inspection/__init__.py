"""Asks everything about one network on one sample and returns one `Inspection`; tracks networks
over training; gathers the probes.
"""

from neuromanifold.inspection import probes
from neuromanifold.inspection.checkpoints import checkpoints
from neuromanifold.inspection.descent import Descent
from neuromanifold.inspection.inspect import inspect
from neuromanifold.inspection.inspection import Inspection, LayerRank, Part
from neuromanifold.inspection.live import LivePage
from neuromanifold.inspection.timeline import Timeline
from neuromanifold.inspection.tracker import Tracker
from neuromanifold.inspection.units import LayerUnits

__all__ = [
    "Descent",
    "Inspection",
    "LayerRank",
    "LayerUnits",
    "LivePage",
    "Part",
    "Timeline",
    "Tracker",
    "checkpoints",
    "inspect",
    "probes",
]
