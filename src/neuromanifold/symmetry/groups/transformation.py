"""How gradient, Hessian and kernel change under a symmetry θ' = g(θ).
[teleport, Sec. 3.2, App. D.2]
"""

import functools
import operator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.models.arguments import Params
from neuromanifold.numerics.lanczos import MatrixProduct, largest_eigenpairs
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.numerics.results import Shown
from neuromanifold.symmetry.groups.base import Composition, Element, check_element
from neuromanifold.symmetry.groups.monomial import Monomial

Matrix = Float[np.ndarray, "D D"]


class Transformation(Shown, eqx.Module):
    """Γ = (Dg)^{−T} and the second derivatives T_{μρσ} = ∂_μ∂_ρ g_σ of a symmetry at θ, as dense
    arrays.

    With Γ_{αβ} so defined (Γ⁻¹_{αβ} = ∂g_β/∂θ_α, the paper's Eq. 15), at θ' = g(θ) and for an
    invariant L or F: ∇L ↦ Γ∇L;  H ↦ ΓHΓᵀ − Γ(∂²g·Γ∇L)Γᵀ;  JJᵀ ↦ JΓᵀΓJᵀ. The paper prints ΓᵀHΓ in
    Eq. 22; its own Eq. 67, with indices, is ΓHΓᵀ, and only that holds unless Γ is symmetric.
    """

    gamma: Matrix
    second: Float[np.ndarray, "D D D"] | None = None

    def gradient(self, gradient: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """Return Γ∇L, ∇L being `gradient`.   [teleport, Eq. 16]"""
        return self.gamma @ gradient

    def hessian(self, hessian: Matrix, gradient: Float[np.ndarray, " D"]) -> Matrix:
        """Return Γ(H − T·Γ∇L)Γᵀ for `hessian` H and `gradient` ∇L; the second term
        vanishes for linear symmetries.   [teleport, Eq. 67, 72]"""
        return self.gamma @ (hessian - self.curvature(gradient)) @ self.gamma.T

    def curvature(self, gradient: Float[np.ndarray, " D"]) -> Matrix:
        """Return T·Γ∇L for `gradient` ∇L: what the nonlinearity of the symmetry takes from the Hessian."""
        if self.second is None:
            return np.zeros_like(self.gamma)
        return np.einsum("mrs,s->mr", self.second, self.gamma @ gradient)

    def kernel(self, jacobian: Float[np.ndarray, "rows D"]) -> Float[np.ndarray, "rows rows"]:
        """Return JΓᵀΓJᵀ for `jacobian` J.   [teleport, Eq. 24]"""
        moved = jacobian @ self.gamma.T
        return moved @ moved.T

    @property
    def norm(self) -> float:
        """‖Γ‖, the largest singular value.   [teleport, Eq. 18]"""
        return float(np.linalg.norm(self.gamma, 2))


def transformation(g: Element, params: Params, *, second: bool = False) -> Transformation:
    """Return Γ = (Dg)^{−T} of a symmetry at θ, in float64; with `second=True` also ∂²g (D³ numbers,
    for small networks).

    `g` is an element of a group.

    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> params = (nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]])))
    >>> g = nm.symmetry.ScalingGroup(net).element(np.log([2.0]))
    >>> nm.symmetry.transformation(g, params).gamma.diagonal().tolist()        # W × 2, V ÷ 2
    [0.5, 2.0]
    """
    check_element(g)
    with arithmetic():
        g, params = promote((g, params), np.float64)
        tensor = np.asarray(_second_derivative(g, params)).transpose(1, 2, 0) if second else None
        return Transformation(np.linalg.inv(np.asarray(_derivative(g, params))).T, tensor)


def _on_vectors(g: Element, params: Any) -> tuple[Any, Any]:
    """Return g as a map of flat vectors, and θ as one."""
    flat, unravel = ravel_pytree(params)
    return lambda theta: ravel_pytree(g.act(unravel(theta)))[0], flat


@jax.jit
def _derivative(g: Element, params: Any) -> Any:
    act, flat = _on_vectors(g, params)
    return jax.jacfwd(act)(flat)


@jax.jit
def _second_derivative(g: Element, params: Any) -> Any:
    act, flat = _on_vectors(g, params)
    return jax.jacfwd(jax.jacfwd(act))(flat)


def gamma_norm(g: Element, params: Params) -> float:
    """Return ‖Γ‖: read off for elements that permute and rescale, otherwise by Lanczos on ΓΓᵀ
    without forming a matrix.

    `g` is an element of a group.

    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> g = nm.symmetry.ScalingGroup(net).element(np.log([4.0]))
    >>> round(gamma_norm(g, (nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]])))), 12)
    4.0
    """
    check_element(g)
    if isinstance(g, Composition) and all(isinstance(part, Monomial) for part in g.parts):
        g = functools.reduce(operator.matmul, g.parts)
    if isinstance(g, Monomial):
        multipliers = g(jax.tree.map(lambda leaf: np.ones(np.shape(leaf)), params))
        return max(float((1 / np.abs(leaf)).max()) for leaf in jax.tree.leaves(multipliers))
    with arithmetic():
        g, back, params = promote((g, g.inverse, params), np.float64)
        moved, size = g.act(params), ravel_pytree(params)[0].size
        return float(
            np.sqrt(largest_eigenpairs(MatrixProduct(_product), (back, moved), size, 1).values[0])
        )


def _product(back: Element, moved: Any, v: Any) -> Any:
    """Return ΓΓᵀv, by one derivative of g⁻¹ at g(θ) along v and one transposed."""
    act, flat = _on_vectors(back, moved)
    return jax.vjp(act, flat)[1](jax.jvp(act, (flat,), (v,))[1])[0]
