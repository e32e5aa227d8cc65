"""What a function's Jacobians say about the norm of any parameters that represent it.
[bottleneck, Thm 3, P 13]
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.bottleneck.passage import Passage, passage, require_contraction
from neuromanifold.graph.graph import trace
from neuromanifold.models.arguments import Samples
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.regions.patterns import require_piecewise_linear


def schatten_cost(J: Any, depth: int) -> Any:
    """L‖J‖^{2/L}_{2/L} = L Σ s_i(J)^{2/L}, for a matrix or a stack of them, over the singular
    values above rounding.

    What the exponent 2/L would do to rounding: 10⁻¹⁶ counts 0.3 at L = 60. Leaving such values out
    keeps a lower bound one.
    """
    J = np.asarray(J, np.float64)
    s = np.linalg.svd(J, compute_uv=False)
    rounding = depth * max(J.shape[-2:]) * np.finfo(np.float64).eps * s[..., :1]
    return depth * np.sum(np.where(s > rounding, s, 0.0) ** (2 / depth), axis=-1)


@dataclass(frozen=True, repr=False)
class NormBound(Result):
    """‖θ‖² against the largest lower bound found on the norm of *any* parameters of that depth with
    the same function.

    `excess` bounds from above how much of ‖θ‖² a cheaper representation of the same function could
    save.
    """

    squared_norm: float
    bound: float
    pointwise: Float[Array, " n"]
    sample: int
    pair: tuple[int, int] | None = None

    @property
    def excess(self) -> float:
        """‖θ‖² − bound: what this network spends beyond what its function is known to need."""
        return self.squared_norm - self.bound

    def __str__(self) -> str:
        where = f"samples {self.pair}" if self.pair else f"sample {self.sample}"
        return (
            f"‖θ‖² = {self.squared_norm:.6g}, at least {self.bound:.6g} ({where}), excess "
            f"{self.excess:.3g}"
        )


@follows
def norm_bound(net: MLP, params: Params, x: Samples) -> NormBound:
    """Return both sides of  ‖θ‖² ≥ max_x L‖Jf(x)‖^{2/L}_{2/L}: no network of this depth has these
    Jacobians for less.   [bottleneck, Thm 3]

    Holds for every activation with |σ'| ≤ 1; the gap is the network's *excess norm*, as seen from
    the sample.

    >>> from neuromanifold.bottleneck import norm_bound
    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> params = (nm.Layer(np.array([[4.0]])), nm.Layer(np.array([[1.0]])))
    >>> found = norm_bound(net, params, np.array([[1.0]]))     # f(x) = 4x costs 16 + 1 here, and 2·4 at best
    >>> found.squared_norm, found.bound
    (17.0, 8.0)
    """
    through = passage(net, params, x)
    require_contraction(through)
    pointwise = schatten_cost(through.jacobian(), through.depth)
    best = int(np.argmax(pointwise))
    return NormBound(float(through.squared_norms.sum()), float(pointwise[best]), pointwise, best)


@follows
def two_point_bound(net: MLP, params: Params, x: Samples) -> NormBound:
    """Return both sides of  ‖θ‖² ≥ ½L‖J(x)‖^{2/L}_{2/L} + ½L‖J(y)‖^{2/L}_{2/L} +
    C⁻²‖J(x) − J(y)‖_*, over all pairs of the sample.   [bottleneck, P 13]

    A ReLU network pays for a change of its Jacobian. C² is the largest ‖Jα_{l-1}(x)‖·‖J(α̃_{l+1} →
    f)(y)‖ over the layers, at most the square of the paper's uniform Lipschitz constant. The
    printed proof loses a factor 2 on the last term; counting each weight once, with the masks of
    both points, gives the printed statement.

    >>> from neuromanifold.bottleneck import two_point_bound
    >>> net = nm.MLP((1, 2, 1), bias=False)                    # |x| = σ(x) + σ(−x)
    >>> params = (nm.Layer(np.array([[1.0], [-1.0]])), nm.Layer(np.array([[1.0, 1.0]])))
    >>> found = two_point_bound(net, params, np.array([[1.0], [-1.0]]))
    >>> found.squared_norm, found.bound, found.pair            # 1 + 1 + |1 − (−1)|, attained
    (4.0, 4.0, (0, 1))
    """
    require_piecewise_linear(trace(net, params, x))
    through = passage(net, params, x)
    for index, slope in enumerate(through.slopes[:-1]):
        if not np.isin(slope, (0.0, 1.0)).all():
            raise ValueError(
                f"`net` has other slopes than 0 and 1 in layer {index + 1}; this bound is for "
                "ReLU networks."
            )
    pointwise = schatten_cost(through.jacobian(), through.depth)
    pairs = _pair_bounds(through, pointwise)
    i, j = np.unravel_index(int(np.argmax(pairs)), pairs.shape)
    found = (min(int(i), int(j)), max(int(i), int(j)))
    norm = float(through.squared_norms.sum())
    return NormBound(
        norm, float(pairs[i, j]), pointwise, int(np.argmax(pointwise)), found if i != j else None
    )


def _pair_bounds(through: Passage, pointwise: np.ndarray) -> Float[np.ndarray, "n n"]:
    J = through.jacobian()
    nuclear = np.linalg.svd(J[:, None] - J[None, :], compute_uv=False).sum(axis=-1)
    before = [_operator_norms(A) for A in through.forward_jacobians()][: through.depth - 1]
    after = [_operator_norms(B) for B in through.backward_jacobians()][1:]
    squared = np.zeros((len(J), len(J)))
    for a, b in zip(before, after, strict=True):
        squared = np.maximum(squared, a[:, None] * b[None, :])
    change = np.divide(nuclear, squared, out=np.zeros_like(nuclear), where=squared > 0)
    return (pointwise[:, None] + pointwise[None, :]) / 2 + change


def _operator_norms(matrices: np.ndarray) -> Float[np.ndarray, " n"]:
    return np.linalg.norm(matrices, ord=2, axis=(1, 2))
