"""How gradient, Hessian and kernel change under a symmetry θ' = g(θ).   [teleport, Sec. 3.2, App. D.2]"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.numerics.lanczos import largest_eigenvalues
from neuromanifold.numerics.precision import arithmetic, promote, to_host
from neuromanifold.symmetry.base import Element

Matrix = Float[np.ndarray, "D D"]


class Transformation(eqx.Module):
    """Γ = (Dg)^{−T} and the second derivatives T_{μρσ} = ∂_μ∂_ρ g_σ of a symmetry at θ, as dense arrays.

    With Γ_{αβ} so defined (Γ⁻¹_{αβ} = ∂g_β/∂θ_α, the paper's Eq. 15), at θ' = g(θ) and for an invariant L or F:
    ∇L ↦ Γ∇L;  H ↦ ΓHΓᵀ − Γ(∂²g·Γ∇L)Γᵀ;  JJᵀ ↦ JΓᵀΓJᵀ.
    The paper prints ΓᵀHΓ in Eq. 22; its own Eq. 67, with indices, is ΓHΓᵀ, and only that holds unless Γ is symmetric.
    """

    gamma: Matrix
    second: Float[np.ndarray, "D D D"] | None = None

    def gradient(self, gradient: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """Γ∇L.   [teleport, Eq. 16]"""
        return self.gamma @ gradient

    def hessian(self, hessian: Matrix, gradient: Float[np.ndarray, " D"]) -> Matrix:
        """Γ(H − T·Γ∇L)Γᵀ; the second term vanishes for linear symmetries.   [teleport, Eq. 67, 72]"""
        return self.gamma @ (hessian - self.curvature(gradient)) @ self.gamma.T

    def curvature(self, gradient: Float[np.ndarray, " D"]) -> Matrix:
        """T·Γ∇L: what the nonlinearity of the symmetry takes from the Hessian."""
        if self.second is None:
            return np.zeros_like(self.gamma)
        return np.einsum("mrs,s->mr", self.second, self.gamma @ gradient)

    def kernel(self, jacobian: Float[np.ndarray, "rows D"]) -> Float[np.ndarray, "rows rows"]:
        """JΓᵀΓJᵀ.   [teleport, Eq. 24]"""
        moved = jacobian @ self.gamma.T
        return moved @ moved.T

    @property
    def norm(self) -> float:
        """‖Γ‖, the largest singular value.   [teleport, Eq. 18]"""
        return float(np.linalg.norm(self.gamma, 2))


def transformation(g: Element, params: Any, *, second: bool = False) -> Transformation:
    """Γ = (Dg)^{−T} of a symmetry at θ, in float64; with `second=True` also ∂²g (D³ numbers, for small networks).

    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> params = (nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]])))
    >>> g = nm.symmetry.ScalingGroup(net).element(np.log([2.0]))
    >>> nm.symmetry.transformation(g, params).gamma.diagonal().tolist()        # W × 2, V ÷ 2
    [0.5, 2.0]
    """
    with arithmetic():
        params, g = promote(params, np.float64), promote(g, np.float64)
        flat, unravel = ravel_pytree(params)

        def act(theta):
            return ravel_pytree(g.act(unravel(theta)))[0]

        derivative = np.asarray(jax.jacfwd(act)(flat))
        tensor = None
        if second:
            tensor = np.asarray(jax.jacfwd(jax.jacfwd(act))(flat)).transpose(1, 2, 0)
        return Transformation(np.linalg.inv(derivative).T, tensor)


def gamma_norm(g: Element, params: Any) -> float:
    """‖Γ‖ by Lanczos on ΓΓᵀ, whose products need one Jacobian and one transposed product with g⁻¹; no matrix is formed.

    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> g = nm.symmetry.ScalingGroup(net).element(np.log([4.0]))
    >>> round(gamma_norm(g, (nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]])))), 12)
    4.0
    """
    with arithmetic():
        flat, unravel = ravel_pytree(promote(params, np.float64))
        g = promote(g, np.float64)
        if flat.size < 3:
            return transformation(g, params).norm
        moved = ravel_pytree(g.act(unravel(flat)))[0]

        @jax.jit
        def product(v):
            def back(theta):
                return ravel_pytree(g.inverse.act(unravel(theta)))[0]

            along = jax.jvp(back, (moved,), (v,))[1]
            return jax.vjp(back, moved)[1](along)[0]

        largest = largest_eigenvalues(lambda v: np.asarray(product(jnp.asarray(v))), flat.size, 1)
        return float(np.sqrt(to_host(largest)[0]))
