"""`Descent`: what a step of gradient descent does from here, by the loss's own slope and
curvature.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.arguments import Model
from neuromanifold.models.losses import Loss
from neuromanifold.numerics.results import Result
from neuromanifold.tangent.curvature import sharpness
from neuromanifold.tangent.prediction.alignment import alignment, kernel_alignment

_RTOL = 1e-6


@dataclass(frozen=True, repr=False)
class Descent(Result):
    """`alignment` gᵀΘg/‖g‖² of the kernel with the loss's gradient, `kernel_alignment` that with
    the targets, in [0, 1], and the `sharpness` λ_max of the loss's Hessian, with the
    `largest_lr` 2/sharpness at which a step does not overshoot. `loss` is the name of that loss.
    """

    alignment: float
    kernel_alignment: float
    sharpness: float
    loss: str

    @property
    def largest_lr(self) -> float:
        """2/sharpness; infinite where the loss bends up in no direction."""
        return 2 / self.sharpness if self.sharpness > 0 else float("inf")


def descent(f: Model, params: Any, x: Any, y: Any, loss: Loss) -> Descent:
    """Alignment, sharpness and learning rate of a network on a sample with targets; targets that
    are zero, as of a differential equation's residual, have no direction to be aligned with.
    """
    return Descent(
        alignment(f, params, x, y, loss=loss),
        kernel_alignment(f, params, x, y) if np.any(y) else float("nan"),
        sharpness(f, params, x, y, loss=loss, rtol=_RTOL),
        getattr(loss, "__name__", type(loss).__name__),
    )
