"""Second-order numbers by products alone: the output's Hessian, the sharpness of a loss, and the learning rate it allows."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.lanczos import largest_eigenvalues
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.tangent.arguments import Model, check_target, checked

_DENSE_LIMIT = 24


def output_hessian_norm(
    f: Model, params: Any, x: Any, *, output: int = 0, rtol: float = 1e-6, dtype: Any = np.float64
) -> np.ndarray:
    """‖∇²_θ f_output(x_i)‖, the spectral norm of the output's Hessian at each sample.   [teleport, Eq. 19]

    By Lanczos on Hessian–vector products, in float64 (`dtype="float32"` on request). For a network in NTK scaling it falls
    like 1/√width, which is why wide networks train as their linearisation does.

    >>> output_hessian_norm(lambda params, x: params[0] * params[1] * x, np.array([1.0, 2.0]), np.array([[3.0]])).round(12)
    array([3.])
    """
    with arithmetic():
        params, x = checked(f, params, x, dtype=dtype)
        outputs = int(np.prod(jax.eval_shape(f, params, x[:1]).shape))
        if not 0 <= output < outputs:
            raise ValueError(f"`output` is {output} but the model has {outputs} outputs; pass 0 to {outputs - 1}.")
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        return np.array([_spectral_norm(lambda v, s=s: _hessian(f, output, params, s, v), size, rtol) for s in x])


def sharpness(f: Model, params: Any, x: Any, y: Any, *, loss: Loss = mse, rtol: float = 1e-9) -> float:
    """The top eigenvalue of JᵀHJ, H the Hessian of the loss in the outputs: the curvature of the linearised model's loss.

    For ½‖f − y‖²/n it is λ_max(Θ)/n. By Lanczos, in float64, with one JVP, one Hessian–vector product of the loss and one VJP.

    >>> half = lambda prediction, target: ((prediction - target) ** 2).sum() / 2
    >>> sharpness(lambda params, x: params * x, 2.0, np.array([[1.0], [3.0]]), np.zeros((2, 1)), loss=half)
    10.0
    """
    with arithmetic():
        params, x = checked(f, params, x, dtype=np.float64)
        check_target(f, params, x, y)
        y = promote(y, np.float64)
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        return _spectral_norm(lambda v: _gauss_newton(f, loss, params, x, y, v), size, rtol)


def largest_stable_lr(f: Model, params: Any, x: Any, y: Any, *, loss: Loss = mse, momentum: float = 0.0) -> float:
    """2(1 + momentum) / sharpness: beyond it gradient descent on the linearised model diverges.

    With heavy-ball momentum β the step θ ← θ + βΔ − η∇L contracts a direction of curvature λ exactly when ηλ < 2(1 + β). For
    squared errors that is the kernel's top eigenvalue; for other losses the curvature is that at the current outputs.

    >>> half = lambda prediction, target: ((prediction - target) ** 2).sum() / 2
    >>> largest_stable_lr(lambda params, x: params * x, 2.0, np.array([[1.0], [3.0]]), np.zeros((2, 1)), loss=half)
    0.2
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"`momentum` is {momentum}; pass a number in [0, 1).")
    top = sharpness(f, params, x, y, loss=loss)
    return 2 * (1 + momentum) / top if top > 0 else np.inf


@jax.jit(static_argnums=(0, 1))
def _hessian(f: Model, output: int, params: Any, sample: Any, v: Any) -> Any:
    flat, unravel = ravel_pytree(params)
    gradient = jax.grad(lambda p: f(unravel(p), sample[None]).ravel()[output])
    return jax.jvp(gradient, (flat,), (v.astype(flat.dtype),))[1]


@jax.jit(static_argnums=(0, 1))
def _gauss_newton(f: Model, loss: Loss, params: Any, x: Any, y: Any, v: Any) -> Any:
    flat, unravel = ravel_pytree(params)
    prediction, change = jax.jvp(lambda p: f(unravel(p), x), (flat,), (v.astype(flat.dtype),))
    curved = jax.jvp(lambda z: jax.grad(loss)(z, y), (prediction,), (change,))[1]
    return jax.vjp(lambda p: f(unravel(p), x), flat)[1](curved)[0]


def _spectral_norm(product: Callable[[Any], Any], size: int, rtol: float) -> float:
    """The largest |eigenvalue|. Two are asked for: the Hessian of a ReLU network has them in pairs ±λ."""
    if size <= _DENSE_LIMIT:
        columns = [np.asarray(product(jnp.asarray(e))) for e in np.eye(size)]
        return float(np.abs(np.linalg.eigvalsh(np.stack(columns))).max())
    values = largest_eigenvalues(lambda v: np.asarray(product(jnp.asarray(v.ravel())), np.float64), size, 2, rtol=rtol)
    return float(np.abs(values[0]))
