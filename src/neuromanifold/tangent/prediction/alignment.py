"""Alignment of the kernel with what it has to learn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Targets,
    check_arguments,
    check_target,
)
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.lanczos import MatrixProduct, largest_eigenpairs
from neuromanifold.numerics.precision import boundary, is_traced, promote
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.kernel.operator import kernel_product

_FORMED = 512
"""Rows of a kernel that is formed: compiling Lanczos takes longer."""


def alignment(
    f: Model, params: Params, x: Samples, y: Targets, *, loss: Loss = mse, lr: float = 1.0
) -> float | Float[Any, ""]:
    """Return the modified alignment  A = gᵀΘg / ‖g‖²,  Θ = `lr`·JJᵀ,  g = ∂loss/∂f(X).
    [teleport, Eq. 28]

    A does not depend on the scale of g, so any normalisation of the loss gives the same number. One
    vector–Jacobian product: A = lr·‖Jᵀg‖²/‖g‖² = lr·‖∇_θ loss‖²/‖g‖², never the kernel. A float; a
    0-d array under `jit` and `vmap`. At a perfect fit g = 0 and A is nan.

    >>> squared = lambda prediction, target: ((prediction - target) ** 2).sum()
    >>> nm.alignment(lambda params, x: params * x, 2.0, np.array([[1.0], [3.0]]), np.zeros((2, 1)), loss=squared)
    10.0
    """
    with boundary(params, x, y):
        params, x = check_arguments(f, params, x)
        y = promote(check_target(f, params, x, y, loss), jax.tree.leaves(params)[0].dtype)
        check_loss(loss, y)
        value = _alignment(f, loss, params, x, y) * lr
        return value if is_traced(value) else float(value)


@compiled("f", "loss")
def _alignment(f: Model, loss: Loss, params: Any, x: Any, y: Any) -> Any:
    prediction, pullback = jax.vjp(lambda p: call(f, p, x), params)
    g = jax.grad(loss)(prediction, y)
    return _squared_norm(pullback(g)) / _squared_norm(g)


def _squared_norm(tree: Any) -> Any:
    return sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree))


def kernel_alignment(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    norm: str = "spectral",
    memory: int | str | None = None,
) -> float:
    """Return the classical alignment  A_o = yᵀΘy / (‖y‖² ‖Θ‖), in float64.   [teleport, Eq. 26]

    `norm="spectral"` (the paper's ‖·‖) lies in [0, 1]; of more than 512 rows no kernel is formed, and
    Lanczos gives it. `"frobenius"` is Cortes' cosine between Θ and yyᵀ. A kernel that is zero is
    aligned with nothing: 0.

    >>> nm.kernel_alignment(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]]), np.array([[1.0], [3.0]]))
    1.0
    """
    if norm not in ("spectral", "frobenius"):
        raise ValueError(f"`norm` is {norm!r}; pass 'spectral' or 'frobenius'.")
    memory_budget(memory)
    refuse_tracers((params, x, y), "`kernel_alignment`")
    with boundary(params, x, y):
        params, x = check_arguments(f, params, x, dtype=np.float64)
        target = np.asarray(check_target(f, params, x, y), np.float64).ravel()
        if not target.any():
            raise ValueError(
                "`y` is zero everywhere; the alignment with it is not defined: pass other targets."
            )
        if norm == "frobenius" or len(target) <= _FORMED:
            kernel = np.asarray(ntk(f, params, x, memory=memory))
            product = kernel @ target
            size = float(np.linalg.norm(kernel, "fro" if norm == "frobenius" else 2))
        else:
            product = np.asarray(kernel_product(f, params, x, jnp.asarray(target)))
            operator = MatrixProduct(kernel_product, (f,))
            size = float(largest_eigenpairs(operator, (params, x), len(target), 1).values[0])
        return float(target @ product / (target @ target * size)) if size > 0 else 0.0
