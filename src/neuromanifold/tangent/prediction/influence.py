"""`influence`: what each training sample does to the outputs at others, from the tangent kernel."""

import math
from dataclasses import dataclass
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
from neuromanifold.models.function import flat_outputs
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.numerics.results import Result, count_of, follows
from neuromanifold.numerics.validation import leading_axis, refuse_tracers
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.tangent.kernel.ntk import ntk

_SINGULAR = 1e-13
"""Reciprocal condition number below which the kernel is taken to be singular."""


@dataclass(frozen=True, eq=False, repr=False)
class Influence(Result):
    """What leaving each of n training samples out does to the outputs at m other samples.

    `leave_one_out[j, a, i]` is the change of output a at other sample j when sample i is left out;
    `first_order` is what the influence function says of it, the derivative with respect to the
    weight of sample i. `fitted` holds the outputs at the others with all samples, `loss` the loss.
    """

    leave_one_out: Float[Any, "m o n"]
    first_order: Float[Any, "m o n"]
    fitted: Float[Any, "m o"]
    loss: Loss

    def scores(self, target: Any) -> Float[Any, "m n"]:
        """Return by how much the loss between each other sample's output and `target` grows when sample i
        is left out:
        positive where sample i helps.

        >>> line = lambda params, x: params * x
        >>> x, y = np.array([[1.0], [1.0], [1.0]]), np.array([[1.0], [1.0], [-2.0]])
        >>> found = nm.influence(line, 0.0, x, y, np.array([[1.0]]), loss=nm.losses.squared_error)
        >>> found.scores(np.array([[1.0]])).round(6).tolist()        # the mean is 0; then −½, −½, 1
        [[1.25, 1.25, -1.0]]
        """
        fitted, target = np.asarray(self.fitted), np.asarray(target, np.float64)
        if target.shape != fitted.shape:
            raise ValueError(f"`target` has shape {target.shape}; pass {fitted.shape}, one a row.")
        moved = fitted[:, :, None] + np.asarray(self.leave_one_out)
        with arithmetic():
            each = jax.vmap(lambda p, t: self.loss(p[None], t[None]))
            every = jax.vmap(each, (2, None), 1)
            return np.asarray(every(jnp.asarray(moved), target) - each(fitted, target)[:, None])

    def headline(self) -> str:
        """Return how far leaving a sample out moves the outputs."""
        m, o, n = np.shape(self.leave_one_out)
        size = np.linalg.norm(np.asarray(self.leave_one_out), axis=1)
        top = int(size.max(axis=0).argmax())
        return (
            f"of {count_of(n, 'sample')} on {count_of(m, 'other')} with {count_of(o, 'output')}: "
            f"leaving one out moves outputs by {np.median(size):.2g} in the median, by "
            f"{size.max():.2g} at most (sample {top})"
        )


@follows
def influence(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    other: Samples,
    *,
    loss: Loss = mse,
    ridge: float = 0.0,
    memory: int | str | None = None,
) -> Influence:
    """Predict how the outputs at `other` samples change when each training sample is left out.

    The network is replaced by its linearisation at `params`, f + Jδ, and the loss by its quadratic
    model there, with gradient g and Hessian H in the outputs, block by block of samples. With all
    samples δ minimises gᵀJδ + ½δᵀJᵀHJδ + (ρ/2)‖δ‖², ρ = `ridge`. With B = (ρ + HΘ)⁻¹, Θ = JJᵀ the
    tangent kernel and Θ' the kernel between `other` and x,

        the outputs at `other` are f' − Θ'Bg,
        without sample i they change by Θ'B_{·i}(B_ii)⁻¹(Bg)_i,
        to first order in its weight by ρΘ'B_{·i}(Bg)_i.

    Nothing is refitted. For squared errors the second line is what refitting the linearised network
    without sample i gives, exactly. `params` are those after training: then g is small and the
    linearisation is that of the trained network. Without a ridge δ is the shortest of the
    minimisers; where leaving a sample out leaves parameters undetermined that were determined, the
    call says so and asks for a `ridge`. The loss must be a sum over samples, as all of `nm.losses` are up to a
    factor. In float64.

    >>> line = lambda params, x: params * x
    >>> x, y = np.array([[1.0], [1.0], [1.0]]), np.array([[1.0], [1.0], [-2.0]])
    >>> found = nm.influence(line, 0.0, x, y, np.array([[2.0]]), loss=nm.losses.squared_error)
    >>> found.leave_one_out.round(6).tolist()          # θ = 0; without a sample −½, −½, 1, and f' = 2θ
    [[[-1.0, -1.0, 2.0]]]
    """
    refuse_tracers((params, x, y, other), "`influence`")
    if not (math.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"`ridge` is {ridge}; pass zero or a positive number.")
    with arithmetic():
        params, x, other = check_arguments(f, params, x, other, dtype=np.float64)
        y = promote(check_target(f, params, x, y, loss), np.float64)
        check_loss(loss, y)
        n, m = leading_axis(x), leading_axis(other)
        outputs = flat_outputs(f, params, x)
        o = outputs.shape[1]
        _check_size(n * o, m * o, memory)
        g, H = (np.asarray(a) for a in _expansion(loss, call(f, params, x), y, o))
        _check_separate(loss, call(f, params, x), y, H)
        kernel = np.asarray(ntk(f, params, x, memory=memory))
        cross = np.asarray(ntk(f, params, other, x, memory=memory))
        return _solve(kernel, cross, g, H, flat_outputs(f, params, other), ridge, loss)


def _solve(
    kernel: np.ndarray,
    cross: np.ndarray,
    g: np.ndarray,
    H: np.ndarray,
    start: Any,
    ridge: float,
    loss: Loss,
) -> Influence:
    n, o = g.shape
    if ridge:
        system = (H @ kernel.reshape(n, o, n * o)).reshape(n * o, n * o)
        B = np.linalg.inv(system + ridge * np.eye(n * o))
        rest = ridge * B
    else:
        B, rest = _without_ridge(kernel, H)
    left = (rest @ g.ravel()).reshape(n, o)
    W = (cross @ B).reshape(-1, n, o)
    blocks = rest.reshape(n, o, n, o)[np.arange(n), :, np.arange(n), :]
    alone = np.linalg.solve(blocks, left[:, :, None])[:, :, 0]

    def moved(weights: np.ndarray) -> np.ndarray:
        return np.einsum("jio,io->ji", W, weights).reshape(-1, o, n)

    fitted = np.asarray(start) - (cross @ (B @ g.ravel())).reshape(-1, o)
    first_order = moved(left) if rest is not B else np.zeros_like(moved(left))
    return Influence(moved(alone), first_order, fitted, loss)


def _without_ridge(kernel: np.ndarray, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse B of HΘ twice where there is one; else its inverse on its range, and the
    projection ρB → Q on what no parameters fit.

    With H = LLᵀ and LᵀΘL = VΛVᵀ: HΘ = LVΛVᵀL⁻¹.
    """
    n, o, _ = H.shape
    values, vectors = np.linalg.eigh(H)
    if values.min() <= _SINGULAR * max(values.max(), np.finfo(float).tiny):
        raise ArithmeticError(
            "the loss bends in some outputs not at all (as cross entropy when all logits grow "
            "together), so that they are not determined; pass `ridge`, a positive number."
        )
    half = vectors * np.sqrt(values)[:, None, :] @ vectors.swapaxes(1, 2)
    inner = half @ kernel.reshape(n, o, n * o)
    inner = half @ inner.reshape(n * o, n * o).T.reshape(n, o, n * o)
    inner = inner.reshape(n * o, n * o)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    kept = values > len(values) * _SINGULAR * values.max(initial=0.0)
    left = (half @ vectors.reshape(n, o, n * o)).reshape(n * o, n * o)
    right = np.linalg.solve(half, vectors.reshape(n, o, n * o)).reshape(n * o, n * o).T
    inverse = left * np.where(kept, 1 / np.where(kept, values, 1.0), 0.0) @ right
    if kept.all():
        return inverse, inverse
    rest = left * ~kept @ right
    blocks = rest.reshape(n, o, n, o)[np.arange(n), :, np.arange(n), :]
    alone = np.linalg.svd(blocks, compute_uv=False).min(axis=1)
    if alone.min() <= 1e-9:
        raise ArithmeticError(
            f"without sample {int(alone.argmin())} some parameters are not determined (its "
            "leverage is 1); pass `ridge`, a positive number."
        )
    return inverse, rest


@compiled("loss", "o")
def _expansion(loss: Loss, outputs: Any, y: Any, o: int) -> tuple[Any, Any]:
    """The gradient of the loss in the outputs of each sample, and its Hessian."""
    gradient = jax.grad(loss)

    def along(k: Any) -> Any:
        change = jnp.zeros((len(outputs), o)).at[:, k].set(1.0).reshape(outputs.shape)
        return jax.jvp(lambda z: gradient(z, y), (outputs,), (change,))[1].reshape(-1, o)

    return gradient(outputs, y).reshape(-1, o), jax.vmap(along, out_axes=2)(jnp.arange(o))


def _check_separate(loss: Loss, outputs: Any, y: Any, H: np.ndarray) -> None:
    """Refuse losses that join samples: along a random direction their Hessian is not H."""
    v = np.random.default_rng(0).standard_normal(outputs.shape)
    exact = np.asarray(jax.jvp(lambda z: jax.grad(loss)(z, y), (outputs,), (jnp.asarray(v),))[1])
    n, o, _ = H.shape
    found = np.einsum("nab,nb->na", H, v.reshape(n, o)).reshape(exact.shape)
    if not np.allclose(found, exact, rtol=1e-8, atol=1e-8 * np.abs(exact).max(initial=1e-300)):
        raise ValueError(
            "`loss` joins samples (its second derivative does); pass a sum or mean over samples, "
            "such as nm.losses.mse."
        )


def _check_size(rows: int, others: int, memory: int | str | None) -> None:
    needed, budget = 8 * rows * (4 * rows + 3 * others), memory_budget(memory)
    if needed > budget:
        raise MemoryError(
            f"{rows:,} × {rows:,} kernels take {needed / 2**30:.2g} GiB here, and `memory` is "
            f"{budget / 2**30:.2g} GiB; pass fewer samples, or a larger `memory`."
        )
