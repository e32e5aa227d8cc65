"""neuromanifold: the geometry of neural-network parametrizations θ ↦ f_θ, with answers that carry their proof."""

from neuromanifold.models import MLP, Activation, FunctionModel, Layer, Mixed, init, leaky_relu, load, power, save
from neuromanifold.numerics import Rank

__version__ = "0.1.0"

__all__ = ["MLP", "Activation", "FunctionModel", "Layer", "Mixed", "Rank", "init", "leaky_relu", "load", "power", "save"]
