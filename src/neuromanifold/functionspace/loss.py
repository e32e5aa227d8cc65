"""The squared error of data as a quadratic form on end-to-end filters."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from neuromanifold.functionspace.rescale import FilterLike
from neuromanifold.models.arguments import Samples, Targets
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.results import Shown
from neuromanifold.numerics.validation import check_sample


@dataclass(frozen=True, repr=False)
class FilterLoss(Shown):
    """ℓ(v) = (v − u)ᵀ A (v − u) + constant, with A symmetric positive definite.
    [riemann, ℓ_{A,u} before Lem 18]

    >>> loss = FilterLoss(np.eye(2), np.array([1.0, 0.0]))
    >>> loss(np.array([3.0, 1.0])), loss.gradient(np.array([3.0, 1.0])).tolist()
    (5.0, [4.0, 2.0])
    """

    A: Float[np.ndarray, "k k"]
    u: Float[np.ndarray, "..."]
    constant: float = 0.0

    def __call__(self, v: FilterLike) -> float:
        off = (np.asarray(v) - self.u).ravel()
        return float(off @ self.A @ off + self.constant)

    def gradient(self, v: FilterLike) -> np.ndarray:
        """Return 2 A (v − u), shaped like v."""
        off = np.asarray(v) - self.u
        return (2 * self.A @ off.ravel()).reshape(off.shape)


def filter_loss(net: LinearConvNet, x: Samples, y: Targets) -> FilterLoss:
    """Return Σ_i ‖α_v(x_i) − y_i‖² as a function of the end-to-end filter v.
    [riemann, Sec 2.2, Lem 18]

    Every output entry is the inner product of v with one patch of the signal; A is the patches'
    Gram matrix and u the least-squares filter.
    """
    check_sample(x)
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    net.check(tuple(np.zeros(shape) for shape in net.filter_shapes), x)
    shape, axes = net.end_to_end_shape, tuple(range(1, net.dimension + 1))
    windows = np.lib.stride_tricks.sliding_window_view(x, shape, axis=axes)
    windows = windows[(slice(None), *(slice(None, None, s) for s in net.end_to_end_stride))]
    if y.shape != windows.shape[: net.dimension + 1]:
        raise ValueError(
            f"`y` has shape {y.shape}; these signals give outputs of shape "
            f"{windows.shape[: net.dimension + 1]}: pass targets of that shape."
        )
    patches, size = windows.reshape(y.size, -1), int(np.prod(shape))
    rank = int(np.linalg.matrix_rank(patches))
    if rank < size:
        raise ValueError(
            f"`x` has patches of rank {rank}; a positive definite loss on {size} filter entries "
            "needs more samples."
        )
    A = patches.T @ patches
    u = np.linalg.lstsq(patches, y.ravel(), rcond=None)[0]
    return FilterLoss(A, u.reshape(shape), float(np.sum((patches @ u - y.ravel()) ** 2)))
