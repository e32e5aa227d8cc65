"""Gradient flow, training of many networks at once, and probes along the way."""

from neuromanifold.dynamics.flow import Trajectory, gradient_flow
from neuromanifold.dynamics.learning_coefficient import (
    LearningCoefficient,
    learning_coefficient,
)
from neuromanifold.dynamics.optimizers import adam_l2
from neuromanifold.dynamics.probes import Probe, loss_probe, r_squared, weight_norm
from neuromanifold.dynamics.training import Training, train

__all__ = [
    "LearningCoefficient",
    "Probe",
    "Training",
    "Trajectory",
    "adam_l2",
    "gradient_flow",
    "learning_coefficient",
    "loss_probe",
    "r_squared",
    "train",
    "weight_norm",
]
