"""What θ and f_θ are: activations, networks, initialisations, losses, files."""

from neuromanifold.models import init, layers, losses
from neuromanifold.models.activation import Activation, Mixed, leaky_relu, power
from neuromanifold.models.adapters import from_equinox, from_flax, from_haiku, from_torch, to_torch
from neuromanifold.models.arguments import Model, Params, Samples, Targets
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.models.function import FunctionModel
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.models.sequential import Sequential
from neuromanifold.models.storage import load, save

__all__ = [
    "MLP",
    "Activation",
    "FunctionModel",
    "Layer",
    "LinearConvNet",
    "Mixed",
    "Model",
    "Params",
    "Samples",
    "Sequential",
    "Targets",
    "from_equinox",
    "from_flax",
    "from_haiku",
    "from_torch",
    "init",
    "layers",
    "leaky_relu",
    "load",
    "losses",
    "power",
    "save",
    "to_torch",
]
