"""Second-order numbers by products alone: the output's Hessian, the sharpness of a loss, and the
learning rate it allows.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Targets,
    check_arguments,
    check_target,
    output_size,
)
from neuromanifold.models.function import flat_outputs
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.lanczos import Eigenpairs, MatrixProduct, largest_eigenpairs
from neuromanifold.numerics.precision import arithmetic, boundary, is_traced, promote
from neuromanifold.numerics.validation import indefinite
from neuromanifold.tangent.rank.jacobian import n_columns

_KINDS = ("hessian", "gauss-newton")


def output_hessian_norm(
    f: Model,
    params: Params,
    x: Samples,
    *,
    output: int = 0,
    rtol: float = 1e-6,
    dtype: Any = np.float64,
) -> Float[Any, " n"]:
    """Return ‖∇²_θ f_output(x_i)‖, the spectral norm of the output's Hessian at each sample.
    [teleport, Eq. 19]

    By Lanczos on Hessian–vector products, in float64 (`dtype="float32"` on request), also under
    `jit`. For a network in NTK scaling it falls like 1/√width, which is why wide networks train as
    their linearisation does.

    `output` is the number of the output among the flattened ones; Lanczos ends once ‖Av − λv‖ ≤
    `rtol`·‖A‖.

    >>> output_hessian_norm(lambda params, x: params[0] * params[1] * x, np.array([1.0, 2.0]), np.array([[3.0]])).round(12)
    array([3.])
    """
    with boundary(params, x) as leave:
        params, x = check_arguments(f, params, x, dtype=dtype)
        outputs = output_size(f, params, x)
        if not 0 <= output < outputs:
            raise ValueError(
                f"`output` is {output} but the model has {outputs} outputs; pass 0 to "
                f"{outputs - 1}."
            )
        return leave(_hessian_norms(f, output, rtol, np.dtype(dtype), params, x))


@compiled("f", "output", "rtol", "dtype")
def _hessian_norms(f: Model, output: int, rtol: float, dtype: np.dtype, params: Any, x: Any) -> Any:
    size = n_columns(params)
    return jax.lax.map(
        lambda row: _norm(MatrixProduct(_hessian, (f, output)), (params, row), size, rtol, dtype), x
    )


@runtime_checkable
class Symmetries(Protocol):
    """A group of symmetries, as far as curvature needs it."""

    def shortest(self, params: Any) -> Any:
        """The point of the orbit nearest to the origin."""
        ...

    def generators(self, params: Any) -> Any:
        """Directions along the orbit, one in each row."""
        ...


def sharpness(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    loss: Loss = mse,
    rtol: float = 1e-9,
    modulo: Symmetries | None = None,
) -> float | Float[Any, ""]:
    """Return λ_max(∇²_θ loss), the largest eigenvalue of the Hessian of a loss, with its sign.

    It decides how far a step of gradient descent may go (`largest_stable_lr`). Negative where the
    loss bends down in every direction. By Lanczos, in float64, one Hessian–vector product a step,
    never a matrix. A float; a 0-d array under `jit`. The curvature that the loss has when the
    network is replaced by its linearisation is another number, `gauss_newton_curvature`.

    A symmetry multiplies the sharpness by any factor. With `modulo=group` it is that of the
    directions orthogonal to the orbit in a metric that the group preserves, so that moving along
    the orbit does not change it (see `curvatures`).

    Lanczos ends once ‖Av − λv‖ ≤ `rtol`·‖A‖.

    >>> half = lambda prediction, target: ((prediction - target) ** 2).sum() / 2
    >>> product = lambda params, x: params[0] * params[1] * x
    >>> at = (np.array([1.0, 1.0]), np.array([[1.0]]))
    >>> round(sharpness(product, *at, np.array([[3.0]]), loss=half), 9)       # of [[1, -1], [-1, 1]]
    2.0
    >>> round(sharpness(product, *at, np.array([[-1.0]]), loss=half), 9)      # of [[1, 3], [3, 1]]
    4.0
    """
    return _largest("hessian", f, params, x, y, loss, rtol, modulo)


def gauss_newton_curvature(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    loss: Loss = mse,
    rtol: float = 1e-9,
    modulo: Symmetries | None = None,
) -> float | Float[Any, ""]:
    """Return λ_max(JᵀHJ), the largest eigenvalue of the Gauss–Newton matrix of a loss, where H is
    the Hessian of the loss in the outputs.

    It is the sharpness of the linearised model: for ½‖f − y‖²/n equal to λ_max(Θ)/n. The Hessian
    has the term Σ (∂loss/∂f)·∇²f besides, which is zero where the loss is fitted perfectly. The
    arguments are those of `sharpness`.

    `rtol` and `modulo` are as for `sharpness`.

    >>> half = lambda prediction, target: ((prediction - target) ** 2).sum() / 2
    >>> product = lambda params, x: params[0] * params[1] * x
    >>> at = (np.array([1.0, 1.0]), np.array([[1.0]]))
    >>> round(gauss_newton_curvature(product, *at, np.array([[-1.0]]), loss=half), 9)
    2.0
    """
    return _largest("gauss-newton", f, params, x, y, loss, rtol, modulo)


def _largest(
    kind: str, f: Model, params: Any, x: Any, y: Any, loss: Loss, rtol: float, modulo: Any
) -> Any:
    found = curvatures(f, params, x, y, k=1, loss=loss, kind=kind, rtol=rtol, modulo=modulo)
    return found[0] if is_traced(found) else float(found[0])


def curvatures(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    k: int,
    loss: Loss = mse,
    kind: str = "hessian",
    rtol: float = 1e-9,
    modulo: Symmetries | None = None,
) -> Float[Any, " k"]:
    """Return the `k` largest eigenvalues of the Hessian of a loss (`kind="hessian"`), or of its
    Gauss–Newton matrix (`"gauss-newton"`).

    With `modulo=group`: those of PBP at θ⋆, the point of the orbit nearest to the origin, P the
    projection on the directions orthogonal to the orbit. θ⋆ is the same for all points of an orbit
    up to orthogonal elements, so these eigenvalues are too: they are those of B in the metric ⟨Dg
    v, Dg w⟩, gθ = θ⋆.

    Lanczos ends once ‖Av − λv‖ ≤ `rtol`·‖A‖.
    """
    if kind not in _KINDS:
        raise ValueError(f"`kind` is {kind!r}; pass 'hessian' or 'gauss-newton'.")
    if not (modulo is None or isinstance(modulo, Symmetries)):
        raise TypeError(
            f"`modulo` is {indefinite(modulo)}, which has no orbit of generators; pass a "
            "continuous group such as "
            "nm.symmetry_group(net), or nm.symmetry.discover(…).group of any network."
        )
    with boundary(params, x, y) as leave:
        params, x = check_arguments(
            f, params if modulo is None else modulo.shortest(params), x, dtype=np.float64
        )
        y = check_target(f, params, x, y, loss)
        check_loss(loss, y)
        fn = _gauss_newton if kind == "gauss-newton" else _loss_hessian
        arguments = (params, x, promote(y, np.float64))
        product, arguments = MatrixProduct(fn, (f, loss)), arguments
        if modulo is not None:
            product, arguments = (
                MatrixProduct(_beside, (fn, f, loss)),
                (_along(modulo.generators(params)), *arguments),
            )
        return leave(_eigenvalues(_Search(product, n_columns(params), k, rtol, True), arguments))


@dataclass(frozen=True)
class _Search:
    """A search for the first `k` eigenvalues of an operator of that size."""

    product: MatrixProduct
    size: int
    k: int
    rtol: float
    signed: bool = False
    dtype: Any = np.float64

    def __call__(self, arguments: Any) -> Eigenpairs:
        return largest_eigenpairs(
            self.product,
            arguments,
            self.size,
            self.k,
            rtol=self.rtol,
            signed=self.signed,
            dtype=self.dtype,
        )

    def quotients(self, arguments: Any, vectors: Any) -> Any:
        """Return vᵀAv for each unit vector. Its derivative at fixed vectors is that of the simple
        eigenvalues.
        """
        return jax.vmap(lambda v: v @ self.product(arguments, v).astype(v.dtype))(vectors)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _eigenvalues(search: _Search, arguments: Any) -> Any:
    return search(arguments).values


@_eigenvalues.defjvp
def _move(search: _Search, primals: Any, tangents: Any) -> Any:
    # Under the caller's `grad` of a `jit` nothing else says that float64 is meant. What JAX
    # transposes is a product of numbers alone: it does so in float32 while its x64 flag is off.
    with arithmetic():
        found = search(*primals)
        slopes = _slopes(search, found.vectors, *primals)
        products = [
            jax.lax.reduce_sum(slope * tangent, range(1, slope.ndim))
            for slope, tangent in zip(
                jax.tree.leaves(slopes), jax.tree.leaves(tangents), strict=True
            )
            if tangent.dtype != jax.dtypes.float0
        ]
        return found.values, sum(products)


@compiled("search")
def _slopes(search: _Search, vectors: Any, arguments: Any) -> Any:
    """The derivative of each quotient in each argument."""
    return jax.jacrev(lambda a: search.quotients(a, vectors), allow_int=True)(arguments)


def _along(generators: Any) -> Any:
    """An orthonormal basis of the directions along the orbit, one in each row."""
    _, s, V = np.linalg.svd(np.asarray(generators), full_matrices=False)
    return jnp.asarray(V[s > 1e-9 * s.max(initial=0.0)])


def _beside(fn: Any, f: Model, loss: Loss, along: Any, params: Any, x: Any, y: Any, v: Any) -> Any:
    """PBPv."""

    def beside(v: Any) -> Any:
        return v - along.T @ (along @ v)

    return beside(fn(f, loss, params, x, y, beside(v.astype(along.dtype))))


def largest_stable_lr(
    f: Model, params: Params, x: Samples, y: Targets, *, loss: Loss = mse, momentum: float = 0.0
) -> float | Float[Any, ""]:
    """Return 2(1 + `momentum`) / `sharpness`: beyond it gradient descent overshoots along the
    direction of largest curvature; inf where the loss bends up in no direction.

    With heavy-ball momentum β the step θ ← θ + βΔ − η∇L contracts a direction of curvature λ
    exactly when ηλ < 2(1 + β). That is a fact about the quadratic model of the loss at `params`.
    For training that follows the linearisation, pass the linearised model
    (`nm.linearize(f, params)`): its sharpness is `gauss_newton_curvature`.

    >>> half = lambda prediction, target: ((prediction - target) ** 2).sum() / 2
    >>> largest_stable_lr(lambda params, x: params * x, 2.0, np.array([[1.0], [3.0]]), np.zeros((2, 1)), loss=half)
    0.2
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"`momentum` is {momentum}; pass a number in [0, 1).")
    top = sharpness(f, params, x, y, loss=loss)
    if is_traced(top):
        with arithmetic():
            return jnp.where(top > 0, 2 * (1 + momentum) / jnp.where(top > 0, top, 1.0), jnp.inf)
    return 2 * (1 + momentum) / top if top > 0 else np.inf


def _norm(product: MatrixProduct, arguments: Any, size: int, rtol: float, dtype: Any) -> Any:
    """The largest |eigenvalue|. Two are asked for: the Hessian of a ReLU network has them in
    pairs ±λ.
    """
    search = _Search(product, size, min(2, size), rtol, dtype=dtype)
    return jnp.abs(_eigenvalues(search, arguments)[0])


def _hessian(f: Model, output: int, params: Any, sample: Any, v: Any) -> Any:
    flat, unravel = ravel_pytree(params)
    row = jax.tree.map(lambda a: a[None], sample)
    gradient = jax.grad(lambda p: flat_outputs(f, unravel(p), row)[0, output])
    return jax.jvp(gradient, (flat,), (v.astype(flat.dtype),))[1]


def _gauss_newton(f: Model, loss: Loss, params: Any, x: Any, y: Any, v: Any) -> Any:
    flat, unravel = ravel_pytree(params)
    prediction, change = jax.jvp(lambda p: call(f, unravel(p), x), (flat,), (v.astype(flat.dtype),))
    curved = jax.jvp(lambda z: jax.grad(loss)(z, y), (prediction,), (change,))[1]
    return jax.vjp(lambda p: call(f, unravel(p), x), flat)[1](curved)[0]


def _loss_hessian(f: Model, loss: Loss, params: Any, x: Any, y: Any, v: Any) -> Any:
    flat, unravel = ravel_pytree(params)
    return jax.jvp(
        jax.grad(lambda p: loss(call(f, unravel(p), x), y)), (flat,), (v.astype(flat.dtype),)
    )[1]
