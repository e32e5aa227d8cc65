"""The Riemannian metric that gradient flow puts on the smooth locus of the neuromanifold."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.functionspace.fiber import Fiber, fiber
from neuromanifold.functionspace.kernel import filter_jacobian, filter_kernel
from neuromanifold.functionspace.rescale import FilterLike, Filters
from neuromanifold.functionspace.smoothness import jacobian_rank, neuromanifold_dimension
from neuromanifold.models.arguments import Params
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.results import Array, Result, follows


@dataclass(frozen=True, repr=False)
class Metric(Result):
    """An inner product on the tangent space T_vM: `metric(a, b)` for tangent vectors a, b (shaped
    like v).

    `basis` has orthonormal tangent vectors as columns and `matrix` is the metric in it, the inverse
    of the kernel restricted to T_vM. `pushforward` is the same matrix from the Euclidean metric of
    Θ_δ (Lem 5, Cor 6), and `disagreement` their relative distance.
    """

    v: Array
    params: Filters
    kernel: Float[Array, "k k"]
    basis: Float[Array, "k dim"]
    matrix: Float[Array, "dim dim"]
    pushforward: Float[Array, "dim dim"]
    disagreement: float

    def __call__(self, a: Any, b: Any) -> float:
        return float(self._coordinates(a) @ self.matrix @ self._coordinates(b))

    def _coordinates(self, a: Any) -> np.ndarray:
        flat = np.asarray(a, np.float64).ravel()
        coordinates = self.basis.T @ flat
        off = np.linalg.norm(flat - self.basis @ coordinates)
        if off > 1e-8 * np.linalg.norm(flat):
            raise ValueError(
                "the vector is not tangent to the neuromanifold at `v`: its normal part has "
                f"length {off:.3g}; project it first."
            )
        return coordinates


@follows
def metric(
    net: LinearConvNet, v: FilterLike, delta: Any = 0.0, *, params: Params | None = None
) -> Metric:
    """Return g(a, b) = aᵀ K^{(δ)}(v)⁻¹ b on T_vM.   [riemann, Lem 5, Cor 6]

    Needs a smooth v over which every tuple has the same kernel; when the kernels differ there is
    one metric per tuple, and `params` chooses.

    `delta` are the invariants δ, one for each pair of neighbouring layers or one for all.

    >>> net = LinearConvNet((3, 2), (2, 1))
    >>> g = metric(net, np.array([1.0, 2.0, 13.0, 20.0, 30.0]))
    >>> g.matrix.shape, g.disagreement < 1e-12
    ((4, 4), True)
    """
    theta = choose_filters(fiber(net, v, delta), params)
    rank = jacobian_rank(net, theta)
    if int(rank) < neuromanifold_dimension(net):
        raise ValueError(
            f"`v` is a singular point: dμ has rank {int(rank)} there and the neuromanifold "
            f"dimension {neuromanifold_dimension(net)}; the metric exists at smooth points only."
        )
    J, K = filter_jacobian(net, theta), filter_kernel(net, theta)
    basis = np.linalg.svd(J)[0][:, : int(rank)]
    matrix = np.linalg.inv(basis.T @ K @ basis)
    pushed = _pushforward(net, theta, J, basis)
    disagreement = float(np.linalg.norm(matrix - pushed) / np.linalg.norm(matrix))
    return Metric(
        np.asarray(v, np.float64), theta, K, basis, (matrix + matrix.T) / 2, pushed, disagreement
    )


def choose_filters(over: Fiber, params: Params, *, tolerance: float = 1e-7) -> Filters:
    """The tuple whose kernel is meant: `params` when given, else any, provided that all kernels
    agree.
    """
    if not over.params:
        raise ValueError(f"`v` has no finite fibre to take the kernel from: {over}.")
    if params is not None:
        over.net.check_params(params)
        flat = np.concatenate([np.ravel(np.asarray(w, np.float64)) for w in params])
        distances = [
            np.linalg.norm(flat - np.concatenate([w.ravel() for w in member])) for member in over
        ]
        if min(distances) > 1e-5 * np.linalg.norm(flat):
            raise ValueError(
                "`params` is not in the fibre: the closest tuple is at distance "
                f"{min(distances):.3g}; pass one of the tuples of `fiber(net, v, delta)`."
            )
        return over[int(np.argmin(distances))]
    if over.kernel_spread > tolerance:
        raise ValueError(
            f"the kernel is no function of `v` and `delta`: {over.factorisations} factorisations "
            "have kernels up to "
            f"{over.kernel_spread:.3g} apart (relative); choose one with `params`."
        )
    return over[0]


def level_set_tangents(net: LinearConvNet, params: Filters) -> np.ndarray:
    """An orthonormal basis (columns) of T_θΘ_δ = {θ̇ : ⟨w_{l+1}, ẇ_{l+1}⟩ = ⟨w_l, ẇ_l⟩}.
    [riemann, Eq 9]
    """
    sizes = [w.size for w in params]
    rows = np.zeros((net.depth - 1, net.n_params))
    bounds = np.cumsum([0, *sizes])
    for l in range(net.depth - 1):
        rows[l, bounds[l] : bounds[l + 1]] = -params[l].ravel()
        rows[l, bounds[l + 1] : bounds[l + 2]] = params[l + 1].ravel()
    return np.linalg.svd(rows)[2][net.depth - 1 :].T if net.depth > 1 else np.eye(net.n_params)


def _pushforward(net: LinearConvNet, params: Filters, J: Array, basis: Array) -> np.ndarray:
    tangents = level_set_tangents(net, params)
    lifts = np.linalg.lstsq(J @ tangents, basis, rcond=None)[0]
    return lifts.T @ lifts
